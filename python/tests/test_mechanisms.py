"""Matrices, keys and streams of noise."""

import array
import copy
import ctypes
import json
import math
import os
import pickle
import statistics
import threading

import pytest

import undertone_dp as udp

SCHEMA = udp.Participation.at_least(gap=10, max_participation=3)
KINDS = [
    "independent", "tree", "tree-full", "blt", "normalised-blt", "fhu", "banded-toeplitz", "normalised-banded-toeplitz", "banded",
    "bisr", "inverse-toeplitz", "lambda", "normalised-lambda", "square-root", "normalised-square-root", "dense",
]  # fmt: skip


def mechanism(kind="blt", rounds=40, noise_multiplier=2.0):
    return udp.Mechanism(kind, rounds=rounds, participation=SCHEMA, noise_multiplier=noise_multiplier)


def stream(kind="blt", dim=5000, seed=1, **options):
    return mechanism(kind).noise(dim, clip_norm=0.5, key=udp.NoiseKey.insecure_seed(seed), **options)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_makes_a_matrix_its_sensitivity_and_its_noise(kind):
    made = udp.optimize(kind, rounds=24, participation=udp.Participation.at_least(gap=6, max_participation=4))
    own = udp.Mechanism(made, rounds=24, participation=SCHEMA, noise_multiplier=3.0)
    assert own.sensitivity >= 1 - 1e-12
    assert own.event.sensitivity_squared == pytest.approx(own.sensitivity**2, rel=1e-12)
    assert udp.Strategy.from_json(made.to_json()) == made
    noise = own.noise(8, clip_norm=1.0, key=udp.NoiseKey.insecure_seed(3))
    rows = [list(noise.next()) for _ in range(24)]
    assert all(any(row) for row in rows)
    with pytest.raises(udp.MechanismError, match="all 24 rounds of the plan are finished") as error:
        noise.next()
    assert error.value.kind == "no-more-rounds"


def test_optimised_matrices_beat_the_tree_at_equal_privacy():
    loss = {kind: mechanism(kind).losses().rms_loss for kind in ("tree", "blt", "banded", "dense")}
    assert loss["dense"] <= loss["banded"] * 1.02 and loss["blt"] < loss["tree"]


def test_values_travel_as_pickles_and_copies():
    own = mechanism()
    for value in (own, own.strategy, SCHEMA, udp.Workload.momentum(0.9).with_learning_rates([1.0, 2.0])):
        assert pickle.loads(pickle.dumps(value)) == value
        assert copy.deepcopy(value) == value
    for value in (own, own.strategy, udp.Workload.prefix_sum().with_learning_rates([1.0] * 900)):
        assert len(repr(value)) < 200, repr(value)
    assert eval(repr(SCHEMA), {"Participation": udp.Participation}) == SCHEMA
    assert pickle.loads(pickle.dumps(own)).digest == own.digest
    assert mechanism(noise_multiplier=2.1).digest != own.digest


def test_secrets_do_not_travel():
    key = udp.NoiseKey.random()
    for secret in (key, stream()):
        with pytest.raises(TypeError):
            pickle.dumps(secret)
    assert repr(key) == "<NoiseKey of entropy>"
    assert repr(udp.NoiseKey.insecure_seed(5)) == "<NoiseKey of an insecure seed>"
    assert key.id != udp.NoiseKey.random().id
    assert udp.NoiseKey.from_bytes(bytes(32)).id == udp.NoiseKey.from_bytes(bytes(32)).id


def test_rows_have_the_covariance_of_the_matrix():
    """Each of 400,000 coordinates is a sample; the empirical variance is within six standard deviations of the truth, which honest
    noise misses with a probability below 1e-8."""
    dim = 400_000
    noise = stream("independent", dim=dim)
    row = array.array("f", bytes(4 * dim))
    noise.next_into(row)
    # Noise multiplier 2 and clip norm 0.5.
    assert abs(statistics.fmean(value * value for value in row) - 1.0) < 6 * math.sqrt(2 / dim)
    assert abs(statistics.fmean(row)) < 6 / math.sqrt(dim)


def test_written_added_and_returned_rows_are_the_same():
    first, second, third = stream(), stream(), stream()
    for _ in range(4):
        row = array.array("f", bytes(4 * 5000))
        first.next_into(row)
        own = second.next()
        assert own.dtype == "float32" and own.tolist() == row.tolist()
        sums = array.array("f", [1.0]) * 5000
        third.next_into(sums, add=True)
        single = [ctypes.c_float(1.0 + value).value for value in row]
        assert sums.tolist() == single


def test_cumulative_rows_are_running_sums():
    plain, summed = stream("independent", dim=64), stream("independent", dim=64, cumulative=True)
    total = [0.0] * 64
    for _ in range(5):
        total = [ctypes.c_float(a + b).value for a, b in zip(total, plain.next(), strict=True)]
        assert summed.next().tolist() == total


def test_any_number_of_threads_makes_the_same_noise():
    rows = []
    for threads in (1, 2, 5):
        udp.set_threads(threads)
        noise = stream("tree", dim=50_000)
        rows.append([noise.next().tolist() for _ in range(3)])
    assert rows[0] == rows[1] == rows[2]


def test_a_state_continues_with_its_mechanism_and_key_alone():
    noise = stream()
    for _ in range(7):
        noise.next()
    state = noise.save()
    want = noise.next().tolist()
    again = stream()
    again.load(state)
    assert again.round == 7 and again.next().tolist() == want
    with pytest.raises(udp.MechanismError, match="different") as error:
        stream(seed=2).load(state)
    assert error.value.kind == "state-mismatch"
    with pytest.raises(udp.MechanismError):
        stream("tree").load(state)
    damaged = bytearray(state)
    damaged[-1] ^= 1
    with pytest.raises(udp.MechanismError, match="damaged"):
        stream().load(bytes(damaged))


def test_restarts_forget():
    noise, fresh = stream("tree", dim=16), stream("independent", dim=16)
    noise.next()
    fresh.next()
    noise.restart()
    noise.next()
    assert noise.round == 2


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (array.array("d", bytes(8 * 5000)), "format 'd'"),
        (array.array("i", bytes(4 * 5000)), "format 'i'"),
        (bytearray(4 * 5000), "format 'B'"),
        (memoryview(array.array("f", bytes(8 * 5000)))[::2], "strided memory"),
        (memoryview(array.array("f", bytes(4 * 5000))).toreadonly(), "read-only memory"),
        ([0.0] * 5000, "an object of type 'list'"),
        (None, "an object of type 'NoneType'"),
        ("noise", "an object of type 'str'"),
    ],
)
def test_wrong_buffers_are_named_and_cost_no_round(bad, words):
    noise = stream()
    with pytest.raises(TypeError, match="out: expected a contiguous, writable float32 buffer on the CPU") as error:
        noise.next_into(bad)
    assert words in str(error.value)
    assert noise.round == 0


def test_wrong_sizes_cost_no_round():
    noise = stream()
    with pytest.raises(udp.MechanismError, match="expected a vector of 5000 coordinates, got 4999"):
        noise.next_into(array.array("f", bytes(4 * 4999)))
    assert noise.round == 0


def test_wrong_settings_are_named():
    with pytest.raises(udp.MechanismError, match="kind must be one of independent, tree"):
        udp.optimize("blob", rounds=4, participation=SCHEMA)
    with pytest.raises(udp.MechanismError, match='objective must be "rms" or "max"'):
        udp.optimize("blt", rounds=4, participation=SCHEMA, objective="mean")
    with pytest.raises(udp.MechanismError, match='history must be "keep" or "remake"'):
        stream(history="forget")
    with pytest.raises(TypeError, match="strategy: expected a Strategy or the name of a kind, got int"):
        udp.Mechanism(3, rounds=4, participation=SCHEMA, noise_multiplier=1.0)


def test_progress_may_raise():
    def interrupted(steps, share):
        assert steps >= 1 and 0 <= share <= 1
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        udp.optimize("banded", rounds=60, participation=SCHEMA, bands=10, progress=interrupted)


def test_other_threads_run_while_noise_is_made():
    noise = stream("blt", dim=4_000_000)
    row = array.array("f", bytes(4 * 4_000_000))
    counted, done = [0], threading.Event()

    def count():
        while not done.is_set():
            counted[0] += 1

    thread = threading.Thread(target=count)
    thread.start()
    noise.next_into(row)
    seen = counted[0]
    done.set()
    thread.join()
    assert seen > 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_process_draws_no_noise_with_the_parents_key():
    noise = stream(dim=10)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            noise.next()
            os.write(write, b"drew")
        except RuntimeError as error:
            os.write(write, str(error).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert b"two processes would draw one noise for two sums" in os.read(read, 1000)
    assert noise.round == 0


def address(view):
    return ctypes.addressof(ctypes.c_char.from_buffer(view))


def test_arrays_share_their_memory():
    noise = stream(dim=33)
    row = noise.next()
    assert address(memoryview(row)) % 64 == 0
    assert row.__array_interface__["data"][0] == address(memoryview(row))
    memoryview(row)[3] = 7.0
    assert row[3] == 7.0 and row[-30] == 7.0 and len(row) == 33 and row[1:4][2] == 7.0
    with pytest.raises(IndexError, match="index 33 of an array of 33 numbers"):
        row[33]


def test_numpy_is_written_in_place():
    numpy = pytest.importorskip("numpy")
    noise, twin = stream(dim=6000), stream(dim=6000)
    out = numpy.zeros((60, 100), dtype=numpy.float32)
    before = out.ctypes.data
    noise.next_into(out)
    assert out.ctypes.data == before
    own = twin.next()
    shared = numpy.asarray(own)
    assert shared.ctypes.data == own.__array_interface__["data"][0]
    assert (out.ravel() == shared).all()
    for bad, words in [
        (out.T, "strided memory"),
        (out[:, ::2], "strided memory"),
        (out.astype(numpy.float64), "format 'd'"),
        (out.astype(numpy.float16), "format 'e'"),
        (numpy.asfortranarray(out), "strided memory"),
        (numpy.broadcast_to(numpy.float32(0), 6000), "strided memory"),
    ]:
        with pytest.raises(TypeError, match=words):
            noise.next_into(bad)
    assert noise.round == 1


def test_torch_is_written_in_place():
    torch = pytest.importorskip("torch")
    noise, twin = stream(dim=6000), stream(dim=6000)
    out = torch.zeros(60, 100)
    before = out.data_ptr()
    noise.next_into(out)
    own = twin.next()
    assert out.data_ptr() == before
    assert torch.equal(out.flatten(), torch.from_dlpack(own))
    assert torch.from_dlpack(own).data_ptr() == own.__array_interface__["data"][0]
    weights = torch.nn.Parameter(torch.ones(6000))
    noise.next_into(weights, add=True)
    assert torch.equal(weights.detach(), 1 + torch.from_dlpack(twin.next()))
    for bad, words in [
        (out.t(), "strided memory"),
        (out[:, ::2], "strided memory"),
        (out.double(), "float64"),
        (out.bfloat16(), "bfloat16"),
        (out.to(torch.complex64), "complex64"),
        (torch.zeros(6000, device="meta"), "."),
    ]:
        with pytest.raises((TypeError, RuntimeError, BufferError, ValueError), match=words):
            noise.next_into(bad)
    assert noise.round == 2
    del own
    assert torch.from_dlpack(twin.next()).isfinite().all()


def test_a_matrix_of_ones_own_is_taken_by_its_rows():
    rows = [[1.0, 0.0, 0.0], [0.5, 1.0, 0.0], [0.25, 0.5, 1.0]]
    dense = udp.Strategy.dense(rows)
    assert dense == udp.Strategy.dense([row[: place + 1] for place, row in enumerate(rows)])
    assert json.loads(dense.to_json()) == {"kind": "dense", "rounds": 3, "entries": [1.0, 0.5, 1.0, 0.25, 0.5, 1.0]}
    assert dense.squared_sensitivity(3, udp.Participation.at_least(gap=1, max_participation=3)).value > 6
    toeplitz = udp.Strategy.toeplitz([1.0, 0.5, 0.25])
    single = udp.Participation.single()
    assert toeplitz.squared_sensitivity(3, single).value == 1.3125
    # The inverse of a dense matrix is rounded, and its sensitivity is larger by as much.
    assert 1.3125 <= dense.squared_sensitivity(3, single).value < 1.3125 * (1 + 1e-12)
    own = udp.Mechanism(dense, rounds=3, participation=single, noise_multiplier=2.0)
    assert own.sensitivity == pytest.approx(1.3125**0.5, rel=1e-12)
    for wrong, part in [
        ([[1.0, 2.0], [0.0, 1.0]], "got 2 in row 0, column 1"),
        ([[1.0], [1.0, 0.0]], "diagonal"),
        ([[1.0], [float("nan"), 1.0]], "finite"),
        ([], "rounds"),
    ]:
        with pytest.raises(udp.UndertoneError, match=part):
            udp.Strategy.dense(wrong)


def test_an_array_is_a_matrix():
    numpy = pytest.importorskip("numpy")
    rows = numpy.tril(numpy.ones((4, 4)))
    assert udp.Strategy.dense(rows) == udp.Strategy.dense(rows.tolist())
