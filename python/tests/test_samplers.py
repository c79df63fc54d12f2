"""Samplers: their rates, their events, their states."""

import math
import os

import pytest

import undertone_dp as udp

OWNERS = [user for user in range(40) for _ in range(user % 7 + 1)]


def key(seed=1):
    return udp.NoiseKey.insecure_seed(seed)


def within(count, trials, rate):
    """Five standard deviations: honest draws miss it with a probability of 6e-7, and the seeds are fixed."""
    assert abs(count - trials * rate) <= 5 * math.sqrt(trials * rate * (1 - rate))


def test_poisson_users_join_independently_at_the_rate():
    draws = [set(drawn) for drawn in udp.PoissonUsers(1000, 0.05, rounds=400, key=key())]
    within(sum(map(len, draws)), 400_000, 0.05)
    within(sum(len(a & b) for a, b in zip(draws[::2], draws[1::2], strict=True)), 200_000, 0.05**2)
    within(sum(1 for drawn in draws for user in drawn if user % 2 == 0 and user + 1 in drawn), 200_000, 0.05**2)


def test_fixed_sizes_are_fixed_and_fair():
    draws = [list(drawn) for drawn in udp.FixedSizeUsers(50, 7, rounds=2000, key=key())]
    assert {len(set(drawn)) for drawn in draws} == {7}
    for user in range(50):
        within(sum(user in drawn for drawn in draws), 2000, 7 / 50)


def test_shuffled_epochs_keep_to_their_schema():
    sampler = udp.ShuffledEpochs(1218, 128, rounds=40, key=key())
    assert (sampler.participation.gap, sampler.participation.max_participation) == (9, 5)
    last = {}
    for index, drawn in enumerate(sampler):
        assert drawn.tolist() == sorted(drawn)
        for user in drawn:
            assert index - last.get(user, index - 9) == 9
            last[user] = index
    with pytest.raises(udp.UndertoneError, match="amplify no round"):
        sampler.event(1.0)


def test_user_level_sampling_takes_at_most_the_group_of_whole_users():
    sampler = udp.UserLevelSampling(OWNERS, group_size=3, probability=0.5, rounds=300, key=key())
    joined, first = 0, 0
    for drawn in sampler:
        owners = [OWNERS[example] for example in drawn]
        assert owners == sorted(owners) and len(set(drawn)) == len(drawn)
        for user in set(owners):
            assert owners.count(user) == min(3, user % 7 + 1)
        joined += len(set(owners))
        # User 6 has seven examples; each is chosen with probability 3/7.
        first += OWNERS.index(6) in list(drawn)
    within(joined, 300 * 40, 0.5)
    within(first, 300, 0.5 * 3 / 7)
    assert sampler.event(2.0) == udp.Event.PoissonGaussian(sampling_probability=0.5, noise_multiplier=2.0)


def test_example_level_sampling_keeps_the_same_examples_all_along():
    sampler = udp.ExampleLevelSampling(OWNERS, group_size=3, probability=0.5, rounds=300, key=key())
    seen, total = set(), 0
    for drawn in sampler:
        seen.update(drawn)
        total += len(drawn)
    kept = sum(min(3, OWNERS.count(user)) for user in range(40))
    assert len(seen) == kept
    within(total, 300 * kept, 0.5)
    assert all(sum(OWNERS[example] == user for example in seen) <= 3 for user in range(40))
    assert sampler.event(2.0) == udp.Event.ExampleLevelSampling(
        group_size=3, sampling_probability=0.5, noise_multiplier=2.0
    )


def test_fixed_sizes_are_accounted_for_as_replacements():
    event = udp.FixedSizeUsers(50, 7, rounds=1).event(2.0)
    assert event == udp.Event.FixedSizeGaussian(population=50, cohort_size=7, noise_multiplier=1.0)


def test_one_key_draws_the_same_and_another_key_others():
    def drawn(seed):
        return [list(users) for users in udp.PoissonUsers(200, 0.1, rounds=5, key=key(seed))]

    assert drawn(1) == drawn(1) != drawn(2)


def test_a_state_continues_with_its_key_alone():
    whole = [list(drawn) for drawn in udp.PoissonUsers(200, 0.1, rounds=9, key=key())]
    sampler = udp.PoissonUsers(200, 0.1, rounds=9, key=key())
    for _ in range(4):
        next(sampler)
    state = sampler.state_dict()
    again = udp.PoissonUsers(200, 0.1, rounds=9, key=key())
    again.load_state_dict(state)
    assert [list(drawn) for drawn in again] == whole[4:]
    assert list(again) == []
    with pytest.raises(ValueError, match="another key draws other users"):
        udp.PoissonUsers(200, 0.1, rounds=9, key=key(2)).load_state_dict(state)
    with pytest.raises(ValueError, match="expected a round up to 9, got 10"):
        again.load_state_dict({**state, "round": 10})
    with pytest.raises(ValueError, match='expected the key "key", got none'):
        again.load_state_dict({"round": 1})


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: udp.PoissonUsers(0, 0.1, rounds=1), "num_users must be from 1 to 4294967295, got 0"),
        (lambda: udp.PoissonUsers(10, 1.5, rounds=1), "expected a number in"),
        (lambda: udp.PoissonUsers(10, 0.1, rounds=0), "rounds must be at least 1, got 0"),
        (lambda: udp.FixedSizeUsers(10, 11, rounds=1), "size must be from 1 to 10, got 11"),
        (lambda: udp.ShuffledEpochs(10, 11, rounds=1), "from 1 to the 10 users"),
        (lambda: udp.UserLevelSampling([], group_size=1, probability=0.1, rounds=1), "at least one example"),
        (lambda: udp.UserLevelSampling([1], group_size=0, probability=0.1, rounds=1), "group_size must be from 1"),
    ],
)
def test_wrong_settings_are_named(make, words):
    with pytest.raises(ValueError, match=words):
        make()


def test_owners_come_as_any_integers():
    numpy = pytest.importorskip("numpy")
    owners = numpy.array([5, 5, -3], dtype=numpy.int64)
    sampler = udp.UserLevelSampling(owners, group_size=1, probability=1.0, rounds=1)
    drawn = list(next(sampler))
    assert drawn[0] == 2 and drawn[1] in (0, 1)
    with pytest.raises(TypeError, match="user_of_example: expected a contiguous int64 buffer on the CPU, got .*format 'i'"):
        udp.UserLevelSampling(owners.astype(numpy.int32), group_size=1, probability=1.0, rounds=1)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_process_draws_nothing():
    sampler = udp.PoissonUsers(10, 0.5, rounds=2)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            next(sampler)
            os.write(write, b"drew")
        except RuntimeError as error:
            os.write(write, str(error).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert b"the sampler was made by process" in os.read(read, 1000)


def test_torch_loaders_draw_the_same_with_workers_and_without():
    torch = pytest.importorskip("torch")
    import undertone_dp.torch as bridge

    data = torch.arange(60, dtype=torch.float32)
    collate = bridge.allow_empty(torch.utils.data.default_collate, like=data[0])

    def batches(workers):
        sampler = udp.PoissonUsers(60, 0.03, rounds=30, key=key())
        batch_sampler = bridge.BatchSampler(sampler)
        loader = torch.utils.data.DataLoader(
            data, batch_sampler=batch_sampler, collate_fn=collate, num_workers=workers
        )
        assert len(loader) == 30
        return [batch.tolist() for batch in loader]

    alone = batches(0)
    assert [] in alone and alone == batches(2)


def test_jax_batches_have_one_shape():
    pytest.importorskip("numpy")
    import undertone_dp.jax as bridge

    sampler = udp.PoissonUsers(60, 0.1, rounds=20, key=key())
    twin = udp.PoissonUsers(60, 0.1, rounds=20, key=key())
    for (indices, mask), drawn in zip(bridge.batch_iterator(sampler, pad_to=60), twin, strict=True):
        assert indices.shape == mask.shape == (60,) and indices.dtype == "int32"
        assert indices[mask].tolist() == drawn.tolist() and not indices[~mask].any()
    with pytest.raises(ValueError, match="expected at least the 3 indices that round 0 drew, got 2"):
        next(bridge.batch_iterator(udp.FixedSizeUsers(9, 3, rounds=1), pad_to=2))
