"""The checker: planted mistakes are found, honest set-ups are not faulted."""

import json
import pathlib
import random
import subprocess
import sys
from array import array
from types import SimpleNamespace

import pytest

import undertone_dp as udp

SIZE = 1000
REPOSITORY = pathlib.Path(__file__).parents[2]


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


def of_system(values=40):
    generator = random.SystemRandom()
    return array("d", [generator.gauss(0.0, 1.0) for _ in range(values)])


@pytest.mark.parametrize(("loader", "options", "event"), HONEST)
def test_honest_set_ups_are_not_faulted(loader, options, event):
    report = udp.check.loader(loader, draw=of_system, **options)
    assert report.findings == () and report.event == event, report


def test_a_report_says_what_it_looked_at():
    report = udp.check.loader(opacus_like(), claimed=poisson(), optimizer=optimizer(reduction="sum"), draw=of_system)
    assert report.looked_at == ("the sampler", "the optimizer", "two draws of the noise")
    assert "private" not in str(report)
    assert "<table>" in report._repr_html_()


def test_a_loader_without_a_check_of_its_noise_ends_with_a_warning():
    for loader in (opacus_like(), torch_like(of("RandomSampler", replacement=False))):
        report = udp.check.loader(loader, claimed=poisson())
        assert (report.findings[-1].rule, report.findings[-1].severity) == ("noise-not-looked-at", "warning")
        assert "two draws of the noise" not in report.looked_at
    report = udp.check.loader(opacus_like(), claimed=poisson(), draw=lambda: [random.gauss(0.0, 1.0)] * 40)
    assert [finding.rule for finding in report.errors] == ["noise-from-a-global-generator"]


def test_noise_is_compared_with_the_claim():
    assert udp.check.noise(noise_std=2.0, clip_norm=1.0, noise_multiplier=2.0) == []
    of_sum = udp.check.noise(noise_std=2.0, clip_norm=1.0, noise_multiplier=2.0, normaliser=50)
    assert [finding.rule for finding in of_sum] == ["noise-of-the-sum-on-the-mean"]
    too_little = udp.check.noise(noise_std=0.03, clip_norm=1.0, noise_multiplier=2.0, normaliser=50)
    assert [finding.severity for finding in too_little] == ["error"]
    with pytest.raises(ValueError, match="clip_norm must be positive and finite, got 0"):
        udp.check.noise(noise_std=1.0, clip_norm=0, noise_multiplier=1.0)


def of_noise(draw):
    """The evidence of every finding about a draw."""
    found = udp.check.noise(noise_std=1.0, clip_norm=1.0, noise_multiplier=1.0, draw=draw)
    assert {(finding.rule, finding.severity) for finding in found} <= {("noise-from-a-global-generator", "error")}
    return [finding.evidence for finding in found]


def test_noise_of_the_global_generators_is_found_and_their_states_are_put_back():
    np = pytest.importorskip("numpy")
    before = (random.getstate(), np.random.get_state())
    assert of_noise(lambda: [random.gauss(0.0, 1.0) for _ in range(40)])
    assert of_noise(lambda: np.random.standard_normal(40))
    # One of several arrays, and whole numbers that might be equal by chance.
    parts = lambda: {"w": of_system(), "b": (of_system(3), np.random.laplace(size=2))}  # noqa: E731
    assert [text.split(" gave")[0] for text in of_noise(parts)] == ["draw()['b'][1]"]
    many = lambda: [np.random.standard_normal(3) for _ in range(150)]  # noqa: E731
    assert [text.split(" (")[0] for text in of_noise(many)] == ["draw()[0] and 149 other arrays gave the same values twice"]
    assert of_noise(lambda: np.random.randint(0, 2, size=1))
    assert random.getstate() == before[0]
    assert all(np.array_equal(*pair) for pair in zip(before[1], np.random.get_state(), strict=True))


def test_a_draw_that_fails_leaves_the_generators_as_they_were():
    def fails():
        raise KeyError(random.random())

    before = random.getstate()
    with pytest.raises(KeyError):
        of_noise(fails)
    assert random.getstate() == before


def test_noise_of_a_generator_with_a_constant_seed_is_found():
    evidence = of_noise(lambda: [random.Random(7).gauss(0.0, 1.0) for _ in range(40)])
    # The words blame no generator in particular: this one is not global.
    assert len(evidence) == 1 and evidence[0].startswith("draw() gave the same values twice (40 of them), after equal seeds of random")
    assert of_noise(lambda: [0.0] * 40)


def test_noise_of_a_private_generator_passes():
    assert of_noise(of_system) == []
    stream = udp.Mechanism(
        "independent", rounds=9, participation=udp.Participation.single(), noise_multiplier=1.0
    ).noise(40, clip_norm=1.0)
    row = array("f", bytes(4 * 40))

    def into_one_place():
        stream.next_into(row)
        return row

    assert of_noise(into_one_place) == []
    # A fair coin is equal twice by chance, in every other call.
    coin = random.SystemRandom()
    assert all(of_noise(lambda: [coin.randrange(2)]) == [] for _ in range(20))


def test_noise_of_torch_is_known():
    torch = pytest.importorskip("torch")
    before = torch.get_rng_state()
    assert of_noise(lambda: torch.randn(40, dtype=torch.bfloat16))
    assert of_noise(lambda: torch.randn(40, generator=torch.Generator().manual_seed(7)))

    def of_bytes():
        generator = torch.Generator()
        generator.seed()
        return [torch.randn(40, generator=generator), torch.randn(2, 3, generator=generator).requires_grad_()]

    assert of_noise(of_bytes) == []
    assert torch.equal(torch.get_rng_state(), before)


def test_generators_of_devices_begin_again_too(monkeypatch):
    torch = pytest.importorskip("torch")
    device = random.Random(5)
    for name, value in {
        "is_available": lambda: True,
        "init": lambda: None,
        "get_rng_state_all": device.getstate,
        "set_rng_state_all": device.setstate,
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)
    before = device.getstate()
    assert of_noise(lambda: torch.tensor([device.gauss(0.0, 1.0) for _ in range(40)]))
    assert device.getstate() == before


def test_a_library_that_the_first_draw_loads_is_known_from_then_on():
    pytest.importorskip("numpy")
    program = """
import sys
import undertone_dp as udp
def draw():
    import numpy
    return numpy.random.standard_normal(40)
assert "numpy" not in sys.modules
(found,) = udp.check.noise(noise_std=1.0, clip_norm=1.0, noise_multiplier=1.0, draw=draw)
print(found.evidence)
"""
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout.endswith("after equal seeds of random and numpy\n")


@pytest.mark.parametrize("value", [None, 3.0, "noise", [None], {"w": {3}}])
def test_a_draw_without_arrays_is_an_error(value):
    with pytest.raises(TypeError, match="draw: expected an array of the noise, or a list or a mapping of arrays, got"):
        of_noise(lambda: value)


@pytest.mark.parametrize("value", [[], {}, {"w": array("d")}])
def test_a_draw_without_values_is_an_error(value):
    with pytest.raises(ValueError, match="draw: expected an array with at least one value, got none"):
        of_noise(lambda: value)


def test_a_draw_of_another_form_is_an_error():
    sizes = iter(range(1, 9))
    with pytest.raises(ValueError, match="draw: expected arrays of one form in every call"):
        of_noise(lambda: of_system(next(sizes)))


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


def oracles(family):
    cases = json.loads((REPOSITORY / "vectors/accounting-2.json").read_text())
    found = [case for case in cases if case["family"] == family]
    assert found
    return pytest.mark.parametrize("case", found, ids=lambda case: case["id"])


def batches_of(population, rate, rounds, mode, seed, example):
    generator = random.Random(seed)
    for _ in range(rounds):
        if mode == "with-replacement":
            yield generator.choices(range(population), k=round(rate * population))
            continue
        batch = [number for number in range(population) if generator.random() < rate]
        if mode == "twice":
            batch *= 2
        elif mode != "honest":
            times = int(mode.removeprefix("one-example-").removesuffix("-times"))
            batch += [example] * (times - 1) * batch.count(example)
        yield batch


@oracles("check_draws")
def test_an_example_that_stands_twice_in_a_batch_is_found(case):
    given = case["inputs"]
    loader = SimpleNamespace(dataset=range(given["population"]), batch_sampler=list(batches_of(**given)))
    report = udp.check.draws(loader, rate=given["rate"], rounds=given["rounds"])
    assert [finding.rule for finding in report.findings] == case["outputs"]["findings"]
    assert {finding.severity for finding in report.findings} <= {case["outputs"]["severity"]}


def test_a_repeated_example_is_named_with_its_batch_and_count():
    batches = [[0], [3, 7, *[7] * 19], [5, 5], *[[9]] * 97]
    (found,) = [f for f in udp.check.draws(drawn(batches), rate=0.05, rounds=100).findings if f.rule == "drawn-more-than-once"]
    assert found.evidence == (
        "example 7 stands 20 times in one batch, number 2 of 100; 2 batches hold an example more than once"
    )


def test_numbers_of_other_libraries_and_from_the_end_are_the_same_example():
    np = pytest.importorskip("numpy")
    for twice in ([7, np.int64(7)], [7, 7 - SIZE], list(np.array([7, 7])), [np.int32(-1), SIZE - 1]):
        report = udp.check.draws(drawn([twice] * 3), rate=0.05, rounds=3)
        assert "drawn-more-than-once" in {finding.rule for finding in report.findings}, twice


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
    twice = loaders.DataLoader(data, batch_size=50, sampler=loaders.RandomSampler(data, replacement=True))
    assert [finding.rule for finding in udp.check.draws(twice, rate=0.05).findings][:1] == ["drawn-more-than-once"]

    class Own(loaders.Sampler):
        def __iter__(self):
            yield from ((torch.rand(SIZE) < 0.05).nonzero().flatten() for _ in range(20))

    # A batch sampler of one's own is unknown, and not the sampler that the loader makes and never asks. Its numbers are tensors.
    own_batches = loaders.DataLoader(data, batch_sampler=Own())
    report = udp.check.loader(own_batches, claimed=poisson(), draw=of_system)
    assert [(finding.rule, finding.severity) for finding in report.findings] == [("unknown-sampler", "warning")]
    assert udp.check.draws(own_batches, rate=0.05).findings == ()
    ordered = loaders.DataLoader(data, batch_size=50, drop_last=True)
    assert {finding.rule for finding in udp.check.loader(ordered).errors} == {"order-is-known", "drop-last"}
    sampler = udp.PoissonUsers(SIZE, 0.05, rounds=9)
    honest = loaders.DataLoader(data, batch_sampler=bridge.BatchSampler(sampler))
    report = udp.check.loader(honest, claimed=poisson(), draw=of_system)
    assert report.findings == () and report.event == poisson() == sampler.event(1.0)
