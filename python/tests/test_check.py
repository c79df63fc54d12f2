"""The checker: planted mistakes are found, honest set-ups are not faulted."""

import random
from types import SimpleNamespace

import pytest

import undertone_dp as udp

SIZE = 1000


def poisson(rate=0.05, noise_multiplier=1.0):
    return udp.Event.PoissonGaussian(sampling_probability=rate, noise_multiplier=noise_multiplier)


def of(name, **fields):
    return type(name, (), {})() if not fields else type(name, (), fields)()


def torch_like(sampler, batch_size=50, drop_last=False, size=SIZE):
    batches = of("BatchSampler", sampler=sampler, batch_size=batch_size, drop_last=drop_last)
    return SimpleNamespace(dataset=range(size), sampler=sampler, batch_sampler=batches, batch_size=batch_size)


def opacus_like(rate=0.05, drawn_from=SIZE, size=SIZE, stated=None):
    batches = of("UniformWithReplacementSampler", sample_rate=rate, num_samples=drawn_from)
    return SimpleNamespace(
        dataset=range(size), batch_sampler=batches, sampler=None, sample_rate=rate if stated is None else stated
    )


def own(sampler, size=SIZE):
    return SimpleNamespace(dataset=range(size), batch_sampler=SimpleNamespace(sampler=sampler), sampler=None)


def optimizer(expected=50, reduction="mean", noise_multiplier=1.0):
    return SimpleNamespace(
        noise_multiplier=noise_multiplier, expected_batch_size=expected, loss_reduction=reduction, max_grad_norm=1.0
    )


OWNERS = [index // 4 for index in range(SIZE)]

MISTAKES = [
    ("shuffling-is-not-poisson", torch_like(of("RandomSampler", replacement=False)), {}),
    ("shuffling-is-not-poisson", torch_like(of("SubsetRandomSampler", indices=range(10))), {}),
    ("drawn-with-replacement", torch_like(of("RandomSampler", replacement=True)), {}),
    ("order-is-known", torch_like(of("SequentialSampler")), {}),
    ("weighted-draws", torch_like(of("WeightedRandomSampler", weights=[1.0])), {}),
    ("distributed-shuffling", torch_like(of("DistributedSampler")), {}),
    ("drop-last", torch_like(of("RandomSampler", replacement=False), drop_last=True), {}),
    ("stream", SimpleNamespace(batch_sampler=None, sampler=of("Stream")), {}),
    # The rate from the length of a sampler, and not from the dataset.
    ("rate-of-another-size", opacus_like(drawn_from=200), {}),
    ("rate", opacus_like(stated=0.01), {}),
    ("normaliser-follows-the-data", opacus_like(), {"optimizer": optimizer()}),
    ("noise-multiplier", opacus_like(), {"optimizer": optimizer(reduction="sum", noise_multiplier=0.5)}),
    ("accumulation-multiplies-the-rate", opacus_like(), {"accumulation": 4}),
    ("several-examples-of-a-user", opacus_like(), {"user_of_example": OWNERS}),
    ("claim", opacus_like(rate=0.1), {}),
    ("claim", own(udp.FixedSizeUsers(SIZE, 50, rounds=9)), {}),
    ("claim", own(udp.ExampleLevelSampling(OWNERS, group_size=4, probability=0.05, rounds=9)), {}),
]


@pytest.mark.parametrize(("rule", "loader", "options"), MISTAKES, ids=[f"{m[0]}-{i}" for i, m in enumerate(MISTAKES)])
def test_planted_mistakes_are_found(rule, loader, options):
    report = udp.check.loader(loader, claimed=poisson(), **options)
    assert rule in {finding.rule for finding in report.errors}, report
    with pytest.raises(ValueError, match=rule):
        report.raise_for_errors()


HONEST = [
    (opacus_like(), {"claimed": poisson()}, poisson()),
    (opacus_like(), {"claimed": poisson(), "optimizer": optimizer(reduction="sum")}, poisson()),
    (opacus_like(), {"claimed": poisson(), "optimizer": optimizer(), "size_is_public": True}, poisson()),
    # A normaliser that was fixed without the data.
    (opacus_like(), {"claimed": poisson(), "optimizer": optimizer(expected=64)}, poisson()),
    (own(udp.PoissonUsers(SIZE, 0.05, rounds=9)), {"claimed": poisson()}, poisson()),
    (
        own(udp.UserLevelSampling(OWNERS, group_size=2, probability=0.05, rounds=9)),
        {"claimed": poisson(), "user_of_example": OWNERS},
        poisson(),
    ),
    (
        own(udp.ExampleLevelSampling(OWNERS, group_size=4, probability=0.05, rounds=9)),
        {
            "claimed": udp.Event.ExampleLevelSampling(
                group_size=4, sampling_probability=0.05, noise_multiplier=1.0
            ),
            "user_of_example": OWNERS,
        },
        udp.Event.ExampleLevelSampling(group_size=4, sampling_probability=0.05, noise_multiplier=1.0),
    ),
    (
        own(udp.FixedSizeUsers(SIZE, 50, rounds=9)),
        {"claimed": udp.Event.FixedSizeGaussian(population=SIZE, cohort_size=50, noise_multiplier=0.5)},
        udp.Event.FixedSizeGaussian(population=SIZE, cohort_size=50, noise_multiplier=0.5),
    ),
    (
        opacus_like(),
        {
            "claimed": udp.Event.ExampleLevelSampling(
                group_size=4, sampling_probability=0.05, noise_multiplier=1.0
            ),
            "accumulation": 4,
        },
        udp.Event.ExampleLevelSampling(group_size=4, sampling_probability=0.05, noise_multiplier=1.0),
    ),
    (own(udp.ShuffledEpochs(SIZE, 50, rounds=9)), {}, None),
]


@pytest.mark.parametrize(("loader", "options", "event"), HONEST)
def test_honest_set_ups_are_not_faulted(loader, options, event):
    report = udp.check.loader(loader, **options)
    assert report.findings == () and report.event == event, report


def test_a_report_says_what_it_looked_at():
    report = udp.check.loader(opacus_like(), claimed=poisson(), optimizer=optimizer(reduction="sum"))
    assert report.looked_at == ("the sampler", "the optimizer")
    assert "private" not in str(report)
    assert "<table>" in report._repr_html_()


def test_noise_is_compared_with_the_claim():
    assert udp.check.noise(noise_std=2.0, clip_norm=1.0, noise_multiplier=2.0) == []
    of_sum = udp.check.noise(noise_std=2.0, clip_norm=1.0, noise_multiplier=2.0, normaliser=50)
    assert [finding.rule for finding in of_sum] == ["noise-of-the-sum-on-the-mean"]
    too_little = udp.check.noise(noise_std=0.03, clip_norm=1.0, noise_multiplier=2.0, normaliser=50)
    assert [finding.severity for finding in too_little] == ["error"]
    with pytest.raises(ValueError, match="clip_norm must be positive and finite, got 0"):
        udp.check.noise(noise_std=1.0, clip_norm=0, noise_multiplier=1.0)


def drawn(batches):
    return SimpleNamespace(dataset=range(SIZE), batch_sampler=list(batches))


def test_draws_of_honest_samplers_pass():
    """Each of the forty reports fails with a probability below 1e-6."""
    for seed in range(40):
        sampler = udp.PoissonUsers(SIZE, 0.05, rounds=200, key=udp.NoiseKey.insecure_seed(seed))
        assert udp.check.draws(drawn(list(users) for users in sampler), rate=0.05).findings == ()


def test_draws_of_dishonest_samplers_are_found():
    generator = random.Random(1)

    def shuffled():
        for _ in range(10):
            order = generator.sample(range(SIZE), SIZE)
            yield from (order[first : first + 50] for first in range(0, SIZE, 50))

    def weighted():
        for _ in range(200):
            yield [user for user in range(SIZE) if generator.random() < (0.9 if user == 7 else 0.05)]

    def sticky():
        for _ in range(100):
            batch = [user for user in range(SIZE) if generator.random() < 0.05]
            yield batch
            yield batch

    def often():
        for _ in range(200):
            yield [user for user in range(SIZE) if generator.random() < 0.06]

    for batches, rule in [(shuffled(), "fixed-size"), (weighted(), "weights"), (sticky(), "repeats"), (often(), "rate")]:
        report = udp.check.draws(drawn(batches), rate=0.05)
        assert rule in {finding.rule for finding in report.findings}, (rule, report)


def test_draws_need_enough_of_them():
    with pytest.raises(ValueError, match="gives 0 batches and no more"):
        udp.check.draws(drawn([]), rate=0.05)
    with pytest.raises(ValueError, match=r"rate must be in \(0, 1\), got 1"):
        udp.check.draws(drawn([[1]]), rate=1)


def test_loaders_of_torch_are_known():
    torch = pytest.importorskip("torch")
    import undertone_dp.torch as bridge

    data = torch.zeros(SIZE, 2)
    loaders = torch.utils.data
    shuffled = loaders.DataLoader(data, batch_size=50, shuffle=True)
    assert [finding.rule for finding in udp.check.loader(shuffled, claimed=poisson()).errors] == [
        "shuffling-is-not-poisson"
    ]
    ordered = loaders.DataLoader(data, batch_size=50, drop_last=True)
    assert {finding.rule for finding in udp.check.loader(ordered).errors} == {"order-is-known", "drop-last"}
    sampler = udp.PoissonUsers(SIZE, 0.05, rounds=9)
    honest = loaders.DataLoader(data, batch_sampler=bridge.BatchSampler(sampler))
    report = udp.check.loader(honest, claimed=poisson())
    assert report.findings == () and report.event == poisson() == sampler.event(1.0)
