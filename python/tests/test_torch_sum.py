"""The sum of a round on a GPU: the bits of the host's sum, whatever the updates are. On a machine without a GPU the CPU stands in for it."""

import json
import math
import os
import pathlib
import pickle
import struct
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import undertone_dp as udp  # noqa: E402
import undertone_dp.torch  # noqa: E402
from undertone_dp import _gpu  # noqa: E402

SEEDED = {
    "name": "s",
    "seed": 7,
    "rounds": 3,
    "cohort": {"sampling_probability": 1.0},
    "privacy": {"noise_multiplier": 1.0, "delta": 1e-5},
}
TREE = {"kind": "tree", "restarts": {"first": 2, "every": 2}}
CLIPS = {
    "flat": {"clip": {"kind": "flat", "norm": 0.7}},
    "short": {"clip": {"kind": "flat", "norm": 1e-7}},
    "large": {"clip": {"kind": "flat", "norm": 200.0}},
    "per layer": {"clip": {"kind": "per_layer", "norm": 0.5}},
    "adaptive": {
        "clip": {"kind": "adaptive", "initial_norm": 0.5, "bit_noise_std": 3.0},
        "cohort": {"sampling": "shuffled_epochs", "users_per_round": 23},
        "rounds": 7,
        "privacy": {"noise_multiplier": 4.0, "delta": 1e-5, "mechanism": TREE},
    },
}
USERS = 23
SHAPES = [(3, 5), (7,), (11, 1)]
DIM = sum(math.prod(shape) for shape in SHAPES)

INFINITY, NAN = math.inf, math.nan
LIMIT = 2.0**22
BELOW = math.nextafter(LIMIT, 0.0) - 0.25
HOSTILE = [
    [0.0] * DIM,
    [-0.0] * DIM,
    [INFINITY] + [1.0] * (DIM - 1),
    [1.0] * (DIM - 1) + [-INFINITY],
    [NAN] * DIM,
    [1e30] * DIM,
    [-3.4028234663852886e38] + [1e-3] * (DIM - 1),
    [1e-42] * DIM,
    [2.0**-126, -(2.0**-40), 2.0**-41, 2.0**-149] + [1e-30] * (DIM - 4),
    [BELOW, -BELOW] + [0.25] * (DIM - 2),
    [LIMIT, -LIMIT] + [0.25] * (DIM - 2),
    [math.nextafter(LIMIT, INFINITY)] + [1e-6] * (DIM - 1),
    [2.0**23] * DIM,
    [0.7 / math.sqrt(DIM)] * DIM,
]


def updates():
    """Hostile updates, any bits at all, and values of many magnitudes."""
    generator = torch.Generator().manual_seed(5)
    hostile = [torch.tensor(values, dtype=torch.float32) for values in HOSTILE]
    wild = torch.randint(-(2**31), 2**31 - 1, (4, DIM), dtype=torch.int32, generator=generator).view(torch.float32)
    finite = torch.where(wild.isfinite(), wild, torch.ones(()))
    scales = 10.0 ** torch.linspace(-9.0, 6.0, USERS - len(hostile) - 6)
    tame = torch.randn(len(scales), DIM, generator=generator) * scales[:, None]
    return torch.stack([*hostile, *wild[:2], *finite, *tame])


def optimizer(out, *, on_gpu, resume=False, sizes=None, **changes):
    torch.manual_seed(1)
    parameters = [(f"p{place}", torch.nn.Parameter(torch.randn(shape))) for place, shape in enumerate(SHAPES)]
    return udp.torch.PrivateOptimizer(
        torch.optim.SGD(parameters, lr=0.1),
        out=out,
        config=SEEDED | changes,
        users=USERS,
        examples=sizes,
        resume=resume,
        sum_on_gpu=on_gpu,
    )


@pytest.fixture
def deferred(monkeypatch):
    """The CPU as a device that the program does not wait for."""
    monkeypatch.setattr(_gpu, "_defers", lambda device: True)


@pytest.fixture(params=["at once", "deferred"])
def either(request):
    """A device that the program waits for, and one that it does not."""
    if request.param == "deferred":
        request.getfixturevalue("deferred")


def one_round(dp, round, given, *, reports=True):
    found = []
    for unit in range(len(round.examples or round.users)):
        with dp.unit(unit):
            dp._flat.copy_(given[unit % len(given)])
        if reports:
            found.append(dp.last)
    released = dp.step()
    return found, released, dp._flat.clone()


def rounds(dp, **how):
    given = updates()
    return [one_round(dp, round, given.roll(round.index, 0), **how) for round in dp]


def magnitude(value, halvings):
    """|q| of a finite value, from its exact fraction."""
    numerator, denominator = abs(value).as_integer_ratio()
    return (numerator << 40) // (denominator << halvings)


def bits_of(value):
    return struct.unpack("<I", struct.pack("<f", value))[0] & 0x7FFFFFFF


@pytest.mark.usefixtures("either")
@pytest.mark.parametrize("chunk", [4, 1 << 22])
def test_the_norms_and_the_sum_are_those_of_big_integers(monkeypatch, chunk):
    monkeypatch.setattr(_gpu, "_CHUNK", chunk)
    values = torch.zeros(DIM)
    groups = [[(0, 15)], [(15, 20), (22, 33)], [(20, 22)]]
    sum_ = _gpu.GpuSum(values, groups)
    expected = [0] * DIM
    factors = [(1 << 30, 0), (123_456_789, 0), (1, 0), ((1 << 30) - 1, 0), (0, 0)]
    for number, update in enumerate(updates()):
        values.copy_(update)
        given = update.tolist()
        sum_.keep()
        if sum_.defers:
            # The next unit writes its update before the norms are there.
            values.fill_(-3e38)
        norms = sum_.norms().reshape(-1, 5).tolist()
        scaled = []
        for (largest, *digits), group, (factor, _) in zip(norms, groups, factors[number % 3 :]):
            places = [place for first, end in group for place in range(first, end)]
            assert largest == max(bits_of(given[place]) for place in places)
            if largest >= 0x7F800000:
                scaled.append((0, 0))
                continue
            halvings = max((largest >> 23) - 148, 0)
            q = {place: magnitude(given[place], halvings) for place in places}
            assert max(q.values()) < 1 << 62
            assert sum(square**2 for square in q.values()) == sum(
                (digit % 2**64) << 32 * place for place, digit in enumerate(digits)
            )
            scaled.append((factor, halvings))
            for place in places:
                r = q[place] * factor >> 30
                expected[place] += -r if math.copysign(1.0, given[place]) < 0.0 else r
        if max(map(abs, expected)) < 1 << 62:
            sum_.add(scaled)
        else:
            pytest.fail("the test leaves the range of the sum")
        assert sum_._total.tolist() == expected
        # Small enough to go on.
        sum_._total.zero_()
        expected = [0] * DIM


@pytest.mark.usefixtures("either")
@pytest.mark.parametrize("clip", CLIPS)
def test_a_round_has_the_bits_of_the_host(tmp_path, clip):
    host = rounds(optimizer(tmp_path / "host", on_gpu=False, **CLIPS[clip]))
    device = rounds(optimizer(tmp_path / "device", on_gpu=True, **CLIPS[clip]))
    assert len(host) == len(device) == CLIPS[clip].get("rounds", 3)
    for (reports, released, average), (others, same, again) in zip(host, device):
        assert torch.equal(average.view(torch.int32), again.view(torch.int32))
        assert released.sha256 == same.sha256 and released.clip_norm == same.clip_norm
        for one, other in zip(reports, others, strict=True):
            assert (one.clipped, one.discarded) == (other.clipped, other.discarded)
            # The norm of a unit on a GPU is that of q, in steps of 2^-40, or of what the largest value leaves of it.
            assert other.norm == pytest.approx(one.norm, rel=1e-5, abs=1e-9)


@pytest.mark.usefixtures("deferred")
@pytest.mark.parametrize("clip", CLIPS)
def test_a_round_in_which_nobody_asks_for_reports_has_the_bits_of_the_host(tmp_path, clip):
    found = []
    for on_gpu in (False, True):
        dp = optimizer(tmp_path / str(on_gpu), on_gpu=on_gpu, **CLIPS[clip])
        found.append([released.sha256 for _, released, _ in rounds(dp, reports=False)])
    assert found[0] == found[1]


@pytest.mark.usefixtures("either")
def test_examples_have_the_bits_of_the_host(tmp_path):
    changes = {"cohort": {"examples_per_round": 20}, "user_update": {"algorithm": "els", "group_size": 2}}
    sizes = [user % 4 for user in range(USERS)]
    found = [
        rounds(optimizer(tmp_path / str(on_gpu), on_gpu=on_gpu, sizes=sizes, **changes))
        for on_gpu in (False, True)
    ]
    assert [released.sha256 for _, released, _ in found[0]] == [released.sha256 for _, released, _ in found[1]]


def test_an_update_in_many_chunks_has_the_bits_of_the_host(tmp_path, monkeypatch):
    for name, size in [("_CHUNK", 7), ("_PART", 10)]:
        monkeypatch.setattr(_gpu, name, size)
    host = rounds(optimizer(tmp_path / "host", on_gpu=False))
    device = rounds(optimizer(tmp_path / "device", on_gpu=True))
    assert [released.sha256 for _, released, _ in host] == [released.sha256 for _, released, _ in device]


@pytest.mark.usefixtures("either")
def test_the_report_says_what_it_assumes_of_the_device(tmp_path):
    for on_gpu in (False, True):
        dp = optimizer(tmp_path / str(on_gpu), on_gpu=on_gpu)
        rounds(dp)
        run = dp.finish()
        assert run.verify().holds
        statements = json.loads((run.path / "privacy.json").read_text())["statements"]
        found = [statement for statement in statements if statement.startswith("A device such as a GPU")]
        assert len(found) == int(on_gpu), statements
        ledger = (run.path / "ledger.jsonl").read_text()
        assert ledger.count('"summed_on_device":true') == (3 if on_gpu else 0)


@pytest.mark.usefixtures("either")
def test_a_round_of_nobody_says_that_it_was_made_on_a_device(tmp_path):
    # Who reads the published ledger must not learn from it that nobody took part.
    dp = optimizer(tmp_path, on_gpu=True, cohort={"sampling_probability": 1e-9})
    found = rounds(dp)
    assert all(not reports for reports, _, _ in found)
    run = dp.finish()
    assert (run.path / "ledger.jsonl").read_text().count('"summed_on_device":true') == 3
    assert run.verify().holds


def test_a_wrong_norm_of_the_audited_unit_is_found(tmp_path):
    dp = optimizer(tmp_path, on_gpu=True)
    round = next(iter(dp))
    (audited,) = [unit for unit in range(USERS) if round._audits(unit)]
    right, given = dp._sum.norms, updates()

    def wrong():
        norms = right()
        norms[2] ^= 1
        return norms

    for unit in range(USERS):
        dp._sum.norms = wrong if unit == audited else right
        before = dp._sum._total.clone()
        if unit != audited:
            with dp.unit(unit):
                dp._flat.copy_(given[-1])
            continue
        with pytest.raises(udp.SessionError, match=f"norm of unit {unit} differs from the exact norm"), dp.unit(unit):
            dp._flat.copy_(given[-1])
        assert torch.equal(dp._sum._total, before)
        break
    # The round is not released, since other norms of the device may be wrong too.
    with pytest.raises(udp.SessionError, match="gave a wrong norm or sum"):
        dp.step()


def test_each_round_audits_one_unit_chosen_at_random(tmp_path):
    dp = optimizer(tmp_path, on_gpu=True, rounds=40, cohort={"users_per_round": USERS - 3, "sampling": "fixed_size"})
    found = set()
    for round in dp:
        audited = [unit for unit in range(len(round.users)) if round._audits(unit)]
        assert len(audited) == 1
        found.update(audited)
        dp.step()
    # 40 draws of one of 20 units show fewer than 8 of them with a probability below 1e-9.
    assert len(found) >= 8


@pytest.mark.usefixtures("either")
def test_a_sum_that_is_larger_than_its_units_can_make_it_is_refused(tmp_path):
    for place, added in [(0, 1 << 50), (DIM - 1, -(1 << 50)), (5, -(2**63))]:
        dp = optimizer(tmp_path / str(place), on_gpu=True)
        for round in dp:
            with dp.unit(0):
                dp._flat.fill_(0.1)
            dp._sum._total[place] += added
            with pytest.raises(udp.SessionError, match=f"sum at index {place} is larger than its units can make it"):
                dp.step()
            break
        with pytest.raises(udp.SessionError, match="gave a wrong norm or sum"):
            dp.step()
        assert not dp._sum._total.any()
        assert dp.session.round == 0


def test_an_interrupted_unit_adds_nothing_and_can_contribute(tmp_path):
    dp = optimizer(tmp_path, on_gpu=True)
    next(iter(dp))
    with pytest.raises(KeyError), dp.unit(4):
        dp._flat.fill_(1.0)
        raise KeyError
    assert not dp._sum._total.any()
    with dp.unit(4):
        dp._flat.fill_(1.0)
    assert dp._sum._total.all()
    before = dp._sum._total.clone()
    with pytest.raises(udp.ParticipationError, match="it has contributed before"), dp.unit(4):
        dp._flat.fill_(1.0)
    with pytest.raises(udp.ParticipationError, match="expected a unit from 0 to 22"), dp.unit(99):
        dp._flat.fill_(1.0)
    assert torch.equal(dp._sum._total, before)
    dp.step()
    assert not dp._sum._total.any() and not any(host.any() for host in dp._sum._hosts)


@pytest.mark.usefixtures("either")
def test_a_session_that_is_resumed_has_the_bits_of_one_that_was_not(tmp_path):
    whole = [released.sha256 for _, released, _ in rounds(optimizer(tmp_path / "whole", on_gpu=True))]
    found = []
    for stop in range(4):
        dp = optimizer(tmp_path / "parts", on_gpu=stop % 2 == 0, resume=stop > 0)
        for round in dp:
            if round.index == stop:
                with dp.unit(1):
                    dp._flat.fill_(0.3)
                break
            found.append(one_round(dp, round, updates().roll(round.index, 0))[1].sha256)
        dp.session.close()
    assert found == whole


def test_without_clipping_the_host_adds(tmp_path):
    open_ = {"privacy": None, "clip": None}
    config = {key: value for key, value in (SEEDED | open_).items() if value is not None}
    parameter = torch.nn.Parameter(torch.zeros(3))
    inner = torch.optim.SGD([parameter], lr=1.0)
    dp = udp.torch.PrivateOptimizer(inner, out=tmp_path, config=config, users=2, sum_on_gpu=True)
    round = next(iter(dp))
    assert round._gpu_groups() is None and dp._sum is None
    for unit in range(2):
        with dp.unit(unit):
            parameter.grad.fill_(unit)
    dp.step()
    assert parameter.grad.tolist() == [0.5, 0.5, 0.5]


def test_without_privacy_values_that_are_not_finite_are_an_error(tmp_path):
    config = {key: value for key, value in SEEDED.items() if key != "privacy"} | {"clip": {"kind": "flat", "norm": 1.0}}
    parameter = torch.nn.Parameter(torch.zeros(3))
    inner = torch.optim.SGD([parameter], lr=1.0)
    dp = udp.torch.PrivateOptimizer(inner, out=tmp_path, config=config, users=9, sum_on_gpu=True)
    next(iter(dp))
    for unit in range(9):
        with pytest.raises(udp.UndertoneError, match="not finite"), dp.unit(unit):
            parameter.grad.fill_(NAN)


def test_parts_of_a_sum_come_in_order_and_once(tmp_path):
    session = udp.Session.create(tmp_path, SEEDED, users=USERS, dim=4)
    round = next(session)
    assert round._gpu_groups() == [[(0, 4)]]
    audited = next(unit for unit in range(USERS) if round._audits(unit))
    update = torch.zeros(4)
    sum_ = _gpu.GpuSum(update, [[(0, 4)]])
    sum_.keep()
    norms = sum_.norms()
    average, zeros = torch.zeros(4), torch.zeros(4, dtype=torch.int64)
    with pytest.raises(udp.SessionError, match="no unit on a GPU to audit"):
        round._audit(update)
    report, factors = round._add_on_gpu(audited, norms)
    assert (report.norm, report.clipped, factors) == (0.0, False, [(1 << 30, 0)])
    with pytest.raises(udp.SessionError, match="has to be audited before the release"):
        round.release(average)
    with pytest.raises(udp.UndertoneError, match="expected 4 values, got 3"):
        round._audit(update[:3])
    round._audit(update)
    with pytest.raises(udp.SessionError, match="no unit on a GPU to audit"):
        round._audit(update)
    with pytest.raises(udp.SessionError, match="expected all parts of their sum before the release"):
        round.release(average)
    for first, part, expected in [
        (1, zeros, "begins at place 0, got places 1 to 5"),
        (0, torch.zeros(5, dtype=torch.int64), "a part of 4 places"),
        (2**63, zeros, "begins at place 0"),
    ]:
        with pytest.raises(ValueError, match=expected):
            round._merge_gpu(first, part)
    with pytest.raises(TypeError, match="int64"):
        round._merge_gpu(0, torch.zeros(4))
    round._merge_gpu(0, zeros[:3])
    with pytest.raises(udp.SessionError, match="expected all parts"):
        round.release(average)
    with pytest.raises(ValueError, match="begins at place 3"):
        round._merge_gpu(0, zeros)
    with pytest.raises(udp.ParticipationError, match="the sum of the GPU was taken before"):
        round._add_on_gpu((audited + 1) % USERS, norms)
    round._merge_gpu(3, zeros[3:])
    round.release(average)
    with pytest.raises(udp.SessionError):
        round._merge_gpu(0, zeros)


def test_norms_that_no_values_have_are_refused(tmp_path):
    session = udp.Session.create(tmp_path, SEEDED, users=USERS, dim=4)
    round = next(session)
    unit = next(unit for unit in range(USERS) if not round._audits(unit))
    for norms, expected in [
        ([0, 0, 0, 0], "four sums of digits for each group, got 4 numbers"),
        ([-1, 0, 0, 0, 0], "got -1"),
        ([1 << 32, 0, 0, 0, 0], "got 4294967296"),
        ([0, 0, 0, 0, 0] * 2, "norms of a unit"),
    ]:
        with pytest.raises((ValueError, udp.UndertoneError), match=expected):
            round._add_on_gpu(unit, norms)
    with pytest.raises(udp.SessionError, match=f"norm of unit {unit} differs"):
        round._add_on_gpu(unit, [0, 0, 0, 0, 1 << 40])


def test_nothing_shows_or_copies_the_sum(tmp_path):
    dp = optimizer(tmp_path, on_gpu=True)
    next(iter(dp))
    with dp.unit(0):
        dp._flat.fill_(0.5)
    assert repr(dp._sum) == f"<GpuSum of {DIM} values on cpu>"
    with pytest.raises(TypeError, match="stays where it is"):
        pickle.dumps(dp._sum)


@pytest.mark.usefixtures("deferred")
def test_a_unit_is_added_when_the_next_one_ends(tmp_path):
    dp = optimizer(tmp_path, on_gpu=True)
    round = next(iter(dp))
    seen = []

    def watched(name):
        work = getattr(dp._sum, name)

        def called(*given):
            seen.append(name)
            return work(*given)

        setattr(dp._sum, name, called)

    for name in ("keep", "norms", "add", "parts"):
        watched(name)
    for unit in range(3):
        with dp.unit(unit):
            seen.append(unit)
            dp._flat.fill_(0.01)
        if unit == 1:
            assert seen == [0, "keep", 1, "norms", "add", "keep"]
            # A caller that asks for a report waits for it.
            assert dp.last.norm == pytest.approx(0.01 * math.sqrt(DIM), rel=1e-5)
            assert dp.last == dp.last
            assert seen[6:] == ["norms", "add"]
    assert seen[8:] == [2, "keep"]
    dp.step()
    assert seen[10:] == ["norms", "add", "parts"]
    assert round.index == 0 and dp.session.round == 1


def with_wrong_norms(dp):
    """Opens a round whose device measures wrongly, and gives the unit that is audited."""
    round = next(iter(dp))
    (audited,) = [unit for unit in range(USERS) if round._audits(unit)]
    right = dp._sum.norms

    def wrong():
        norms = right()
        norms[2] ^= 1
        return norms

    dp._sum.norms = wrong
    return audited


def test_there_is_no_report_before_the_first_unit(tmp_path):
    dp = optimizer(tmp_path, on_gpu=True)
    with pytest.raises(AttributeError, match="expected a unit that was added before"):
        dp.last  # noqa: B018


@pytest.mark.usefixtures("deferred")
@pytest.mark.parametrize("when", ["next", "last", "step"])
def test_a_wrong_norm_comes_later_and_before_the_release(tmp_path, when):
    dp = optimizer(tmp_path, on_gpu=True)
    audited = with_wrong_norms(dp)
    with dp.unit(audited):
        dp._flat.fill_(0.25)
    with pytest.raises(udp.SessionError, match=f"norm of unit {audited} differs from the exact norm") as found:
        if when == "next":
            with dp.unit((audited + 1) % USERS):
                dp._flat.fill_(0.25)
        elif when == "last":
            dp.last  # noqa: B018
        else:
            dp.step()
    note, *others = found.value.__notes__
    assert note == f"This came with unit {audited} of round 0, which is added when the next one ends."
    assert len(others) == (when == "next") and all("was not added either" in other for other in others)
    assert not dp._sum._total.any()
    for _ in range(2):
        with pytest.raises(udp.SessionError, match="gave a wrong norm or sum"):
            dp.step()
    assert not dp._sum._total.any() and not dp._sum.kept.any() and dp.session.round == 0


@pytest.mark.usefixtures("deferred")
def test_the_error_of_a_unit_comes_with_the_next_one_which_counts(tmp_path):
    config = {key: value for key, value in SEEDED.items() if key != "privacy"} | {"clip": {"kind": "flat", "norm": 9.0}}
    parameter = torch.nn.Parameter(torch.zeros(3))
    inner = torch.optim.SGD([parameter], lr=1.0)
    dp = udp.torch.PrivateOptimizer(inner, out=tmp_path, config=config, users=4, sum_on_gpu=True)
    next(iter(dp))

    def unit(number, value):
        with dp.unit(number):
            parameter.grad.fill_(value)

    unit(0, NAN)
    with pytest.raises(udp.UndertoneError, match="not finite") as found:
        unit(1, 1.0)
    assert "unit 0 of round 0" in found.value.__notes__[0]
    unit(2, 2.0)
    # The unit that was refused may come again, and the last error comes with the step.
    unit(0, 4.0)
    unit(3, INFINITY)
    with pytest.raises(udp.UndertoneError, match="not finite") as found:
        dp.step()
    assert "unit 3 of round 0" in found.value.__notes__[0]
    dp.step()
    assert parameter.grad.tolist() == [7.0 / 4.0] * 3


@pytest.mark.usefixtures("deferred")
def test_a_unit_that_comes_twice_is_refused_before_it_is_kept(tmp_path):
    dp = optimizer(tmp_path, on_gpu=True)
    next(iter(dp))
    with dp.unit(4):
        dp._flat.fill_(1.0)
    kept = dp._sum.kept.clone()
    for unit, expected in [(4, "it has contributed before"), (99, "expected a unit from 0 to 22")]:
        with pytest.raises(udp.ParticipationError, match=expected), dp.unit(unit):
            dp._flat.fill_(3.0)
        # The first one was added, and nothing is left to add.
        assert dp._sum._total.all() and dp._pending is None
        assert torch.equal(dp._sum.kept, kept)
    before = dp._sum._total.clone()
    # A unit whose body raises changes nothing, and neither does a unit that waits beside it.
    with dp.unit(5):
        dp._flat.fill_(-1.0)
    with pytest.raises(KeyError), dp.unit(6):
        dp._flat.fill_(7.0)
        raise KeyError
    assert torch.equal(dp._sum._total, before) and dp.last.clipped
    assert not dp._sum._total.any()
    dp.step()


@pytest.mark.usefixtures("deferred")
def test_a_round_with_a_unit_that_is_kept_is_not_released(tmp_path):
    dp = optimizer(tmp_path, on_gpu=True)
    round = next(iter(dp))
    with dp.unit(4):
        dp._flat.fill_(1.0)
    awaits = pytest.raises(udp.SessionError, match="a unit that a GPU has measured: expected its norms")
    with awaits:
        round.release(torch.zeros(DIM))
    with awaits:
        round._announce(5)
    with awaits:
        round._merge_gpu(0, torch.zeros(DIM, dtype=torch.int64))
    dp.step()
    with pytest.raises(udp.SessionError):
        round._announce(5)


@pytest.mark.usefixtures("deferred")
def test_an_update_that_is_kept_does_not_outlive_its_round(tmp_path):
    dp = optimizer(tmp_path, on_gpu=True)
    for round in dp:
        with dp.unit(4):
            dp._flat.fill_(0.5)
        assert dp._sum.kept.all() and dp._sum.kept is not dp._flat
        if round.index == 1:
            break
        dp.step()
        assert not any(part.any() for part in (dp._sum.kept, dp._sum._total, dp._sum._norms, dp._sum._found))
    assert repr(dp._sum) == f"<GpuSum of {DIM} values on cpu>"
    with pytest.raises(TypeError, match="stays where it is"):
        pickle.dumps(dp._sum)
    # The open round is dropped, with the unit that waits.
    assert dp.finish().verify().holds
    assert not dp._sum.kept.any() and dp._pending is None


KERNELS = """
import sys, types
sys.path.insert(0, sys.argv[1])
import torch
import test_torch_sum as t
from undertone_dp import _gpu, _triton
generator = torch.Generator().manual_seed(3)
some = lambda count: torch.randint(-(2**31), 2**31 - 1, (count,), dtype=torch.int32, generator=generator)
for bits in [*(update.view(torch.int32) for update in t.updates()), some(1), some(1024), some(5000)]:
    for halvings in (0, 1, 107):
        norms = torch.zeros(2, 5, dtype=torch.int64)
        _gpu.measure(bits, halvings, norms[0])
        _triton.measure(bits, halvings, norms[1])
        assert torch.equal(norms[0], norms[1]), norms
        for factor in (1, 2, 16, (1 << 30) - 1, 1 << 30):
            sums = torch.randint(-(2**40), 2**40, (1, bits.numel()), generator=generator).repeat(2, 1)
            _gpu.add(bits, factor, halvings, sums[0])
            _triton.add(bits, factor, halvings, sums[1])
            assert torch.equal(sums[0], sums[1]), (factor, halvings)
"""


def test_the_kernels_of_triton_have_the_same_bits_in_its_interpreter():
    pytest.importorskip("triton", reason="Triton is not installed")
    here = str(pathlib.Path(__file__).parent)
    shown = subprocess.run(
        [sys.executable, "-c", KERNELS, here],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"TRITON_INTERPRET": "1"},
    )
    if "only 0-dimensional arrays can be converted" in shown.stderr:
        pytest.skip("this version of Triton cannot interpret with this version of numpy")
    assert shown.returncode == 0, shown.stdout + shown.stderr


def test_a_device_that_computes_other_integers_is_refused():
    def wrong(bits, factor, halvings, total):
        _gpu.add(bits, factor, halvings, total)
        total[2000] += 1

    cpu = torch.device("cpu")
    _gpu._test(cpu, _gpu.measure, _gpu.add)
    with pytest.raises(RuntimeError, match="cpu: expected the integers that the CPU computes"):
        _gpu._test(cpu, _gpu.measure, wrong)
