"""Sessions: training that a program of its own computes, with ledger, noise and verification in Rust."""

import array
import copy
import json
import multiprocessing
import os
import pathlib
import pickle
import re
import subprocess
import sys
import tempfile
import threading

import pytest
import undertone_dp as udp

ROOT = pathlib.Path(__file__).parents[2]
USERS = 1218
# The parameters of the twin's model. The roundings of correlated noise, which epsilon counts, depend on their number.
TWIN = 59_008
CONFIG = {
    "name": "uls-blt",
    "rounds": 40,
    "cohort": {"sampling": "shuffled_epochs", "users_per_round": 128},
    "user_update": {"algorithm": "uls", "group_size": 4},
    "clip": {"kind": "flat", "norm": 0.5, "normalised": True},
    "privacy": {"noise_multiplier": 3.0, "delta": 1e-5, "mechanism": {"kind": "blt", "buffers": 2}},
}
POISSON = {
    "name": "poisson",
    "rounds": 5,
    "cohort": {"sampling_probability": 1.0},
    "privacy": {"noise_multiplier": 2.0, "delta": 1e-5},
}


def binary():
    named = os.environ.get("UNDERTONE_CLI")
    built = [ROOT / "target" / profile / "undertone" for profile in ("release", "debug")]
    found = [path for path in built if path.exists()]
    return named or (str(max(found, key=lambda path: path.stat().st_mtime)) if found else None)


def zeros(count):
    return array.array("f", bytes(4 * count))


def train(session, weights, last=None):
    """A least-squares fit of each user's own line by plain Python, round by round."""
    average = zeros(len(weights))
    for round in session:
        for unit, user in enumerate(round.users):
            rows = [((user * 31 + place * 17) % 13 / 13, 1.0) for place in round.choose(user, 6)]
            errors = [weights[0] * x + weights[1] * one - (0.7 * x - 0.2) for x, one in rows]
            gradient = [sum(e * row[k] for e, row in zip(errors, rows)) / len(rows) for k in range(2)]
            round.add(unit, array.array("f", gradient))
        round.release(average)
        weights = array.array("f", [w - 0.3 * a for w, a in zip(weights, average)])
        if round.index == last:
            break
    return weights


def test_the_guarantee_has_the_digits_of_the_run_file(tmp_path):
    session = udp.Session.create(tmp_path, CONFIG, users=USERS, dim=TWIN)
    assert session.participation == udp.Participation.fixed_epochs(gap=9, max_participation=5)
    assert session.planned.epsilon == 4.905382355592794
    average = zeros(TWIN)
    for round in session:
        for unit, user in enumerate(round.users):
            update = zeros(TWIN)
            update[user] = 1.0
            round.add(unit, update)
        round.release(average)
    folder = session.finish({"parameters": average}).path
    report = json.loads((folder / "privacy.json").read_text())
    assert report["planned"]["schema"]["sensitivity"] == 3.309091466276503
    assert {"delta": 1e-6, "epsilon": 5.465547111430516} in report["planned"]["points"]
    assert report["observed"]["epsilon"] == 4.905382355592794
    if binary() is None:
        pytest.skip("no binary of the command line is at hand")
    verify = [binary(), "verify", str(folder)]
    shown = subprocess.run(verify, capture_output=True, text=True, check=False)
    assert shown.returncode == 0 and "trained outside: not recomputed" in shown.stdout, shown.stdout + shown.stderr
    for name, place, named in [
        ("ledger.jsonl", 2000, r"ledger\.jsonl[^\n]*line \d"),
        ("config.toml", 20, r"config\.toml: changed since the run ended"),
        ("model.safetensors", -3, r"model\.safetensors: changed since the run ended"),
    ]:
        whole = (folder / name).read_bytes()
        changed = bytearray(whole)
        changed[place] ^= 1
        (folder / name).write_bytes(changed)
        shown = subprocess.run(verify, capture_output=True, text=True, check=False)
        assert shown.returncode != 0 and re.search(named, shown.stdout), (name, shown.stdout, shown.stderr)
        (folder / name).write_bytes(whole)
    trained = subprocess.run(
        [binary(), "train", str(ROOT / "examples/quickstart-uls-blt.toml"), "--out", str(tmp_path / "twin")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert trained.returncode == 0, trained.stderr
    twin = json.loads((tmp_path / "twin" / "quickstart-uls-blt" / "privacy.json").read_text())
    assert twin["planned"] == report["planned"] and twin["observed"] == report["observed"]


def test_seeded_sessions_are_equal_also_when_one_is_killed(tmp_path):
    seeded = CONFIG | {"seed": 5, "rounds": 25}
    session = udp.Session.create(tmp_path / "whole", seeded, users=USERS, dim=2)
    whole = train(session, zeros(2))
    session.finish({"parameters": whole})
    # The process ends within round 17, after units have contributed. The state is that of round 10.
    program = f"""
import os, sys
sys.path.insert(0, {str(pathlib.Path(__file__).parent)!r})
import test_session as t
session = t.udp.Session.create({str(tmp_path / "parts")!r}, {seeded!r}, users=t.USERS, dim=2)
weights = t.train(session, t.zeros(2), last=16)
open({str(tmp_path / "weights")!r}, "wb").write(weights.tobytes())
round = next(session)
round.add(0, t.zeros(2))
os._exit(9)
"""
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 9
    weights = array.array("f", (tmp_path / "weights").read_bytes())
    session = udp.Session.create(tmp_path / "parts", seeded, users=USERS, dim=2, resume=True)
    assert session.round == 17
    weights = train(session, weights)
    session.finish({"parameters": weights})
    assert weights == whole
    for name in ["config.toml", "ledger.jsonl", "mechanism.json", "model.safetensors", "privacy.json", "manifest.json"]:
        first, second = ((tmp_path / run / "uls-blt" / name).read_bytes() for run in ("whole", "parts"))
        assert first == second, name


def test_a_session_without_a_seed_goes_on_after_a_kill_with_the_rows_of_its_ledger(tmp_path):
    session = udp.Session.create(tmp_path, CONFIG, users=USERS, dim=2)
    weights = train(session, zeros(2), last=16)
    ledger = (tmp_path / "uls-blt" / "ledger.jsonl").read_bytes()
    session.close()
    with pytest.raises(udp.SessionError, match="has stopped"):
        next(session)
    resumed = udp.Session.create(tmp_path, CONFIG, users=USERS, dim=2, resume=True)
    assert resumed.round == 17
    weights = train(resumed, weights)
    folder = resumed.finish({"parameters": weights}).path
    lines = (folder / "ledger.jsonl").read_bytes()
    assert lines.startswith(ledger) and len(lines.splitlines()) == 40
    keys = [json.loads(line)["noise_key"] for line in lines.splitlines()]
    assert len(set(keys)) == 40


def test_adaptive_clipping_has_the_figures_of_a_run(tmp_path):
    """Every update is longer than any estimate, so that the bits, and with the seed the clip norms, are those of the run beside it."""
    pytest.importorskip("numpy", reason="numpy reads the weights of a run")
    settings = {
        "rounds": 6,
        "seed": 3,
        "cohort": {"sampling": "shuffled_epochs", "users_per_round": 12},
        "user_update": {"algorithm": "uls", "group_size": 3},
        "clip": {"kind": "adaptive", "initial_norm": 1e-4, "bit_noise_std": 3.0},
        "privacy": {
            "noise_multiplier": 4.0,
            "delta": 1e-5,
            "mechanism": {"kind": "tree", "restarts": {"first": 2, "every": 2}},
        },
    }
    source = {"kind": "synthetic", "users": 60, "words": 40}
    model = {"family": "dplm", "embed": 4, "hidden": 4}
    run = udp.train({"name": "run", "data": {"source": source}, "model": model, **settings}, out=tempfile.mkdtemp(dir=tmp_path))
    expected = [json.loads(line) for line in (run.path / "ledger.jsonl").read_text().splitlines()]
    dim = sum(tensor.size for tensor in run.weights().values())
    session = udp.Session.create(tmp_path, settings | {"name": "session"}, users=expected[0]["population"], dim=dim)
    assert session.planned.epsilon == run.planned.epsilon
    long, average, norms = array.array("f", [1.0] * dim), zeros(dim), []
    for round in session:
        for unit, user in enumerate(round.users):
            round.choose(user, 3)
            assert round.add(unit, long).clipped
        norms.append(round.release(average).clip_norm)
    finished = session.finish({"parameters": average})
    assert finished.verify().holds and finished.guarantee.epsilon == run.guarantee.epsilon
    found = [json.loads(line) for line in (finished.path / "ledger.jsonl").read_text().splitlines()]
    for key in ["clip_norm", "sensitivity", "noise_std", "noise_multiplier", "noise_key", "participants", "cohort_size"]:
        assert [line[key] for line in found] == [line[key] for line in expected], key
    assert norms == [line["clip_norm"] for line in expected] and len(set(norms)) == 3


def test_a_finished_session_has_a_report_and_no_words(tmp_path):
    session = udp.Session.create(tmp_path, POISSON, users=4, dim=3)
    for round in session:
        round.release(zeros(3))
    run = session.finish({"parameters": zeros(3)})
    report = run.report()
    assert "another program computed for a population of 4 users" in report and "training time" not in report
    with pytest.raises(udp.RunError, match="is the configuration of a session.*Load model.safetensors in that program") as caught:
        run.export(tmp_path / "exported", "undertone")
    assert caught.value.kind == "of-session" and not (tmp_path / "exported").exists()


def test_examples_are_the_units_of_example_level_sampling(tmp_path):
    config = POISSON | {
        "cohort": {"examples_per_round": 30},
        "user_update": {"algorithm": "els", "group_size": 2},
    }
    examples = array.array("q", [user % 4 for user in range(100)])
    session = udp.Session.create(tmp_path, config, users=100, dim=3, examples=examples)
    out = zeros(3)
    for round in session:
        for unit, (user, place) in enumerate(round.examples):
            assert user in list(round.users) and 0 <= place < examples[user]
            round.add(unit, array.array("f", [1.0, 2.0, 3.0]))
        with pytest.raises(udp.ConfigError, match="uls"):
            round.choose(0, 5)
        round.release(out)
    session.finish({"parameters": out})


def test_what_was_not_trained_is_not_written(tmp_path):
    session = udp.Session.create(tmp_path, POISSON, users=4, dim=3, layout={"w": (1, 2), "b": (1,)})
    round = next(session)
    round.release(zeros(3))
    for tensors, message in [
        ({"w": zeros(2)}, "expected the tensor 'b'|expected the tensor \"b\""),
        ({"w": zeros(2), "b": zeros(2)}, 'expected 1 values of "b", got 2'),
        ({"w": zeros(2), "b": zeros(1), "running_mean": zeros(1)}, "running_mean"),
    ]:
        with pytest.raises(ValueError, match=message):
            session.finish(tensors)
    session.finish({"w": zeros(2), "b": zeros(1)})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"server": {"learning_rate": 1.0}}, "unknown field `server`"),
        ({"clip": None}, "the key `clip` has no value"),
        ({"cohort": {"users_per_round": "many"}}, "users_per_round"),
        ({"privacy": {"noise_multiplier": -1.0}}, "privacy.noise_multiplier"),
        ({"users": 3}, "`users` is given beside"),
        ({"name": "../s"}, "`name`"),
    ],
)
def test_wrong_settings_are_named(tmp_path, change, message):
    with pytest.raises(udp.UndertoneError, match=message):
        udp.Session.create(tmp_path, POISSON | change, users=4, dim=3)
    assert not (tmp_path / "poisson").exists()


def test_the_origin_of_the_random_numbers_of_units_is_a_setting(tmp_path):
    made = lambda name, config, **given: udp.Session.create(tmp_path / name, config, users=9, dim=1, **given)
    assert made("default", POISSON).unit_rng == "own"
    assert made("key", POISSON | {"unit_rng": "caller"}).unit_rng == "caller"
    given = made("given", POISSON, unit_rng="caller")
    assert given.unit_rng == "caller" and 'unit_rng = "caller"' in pathlib.Path(given.path, "config.toml").read_text()
    with pytest.raises(ValueError, match="""unit_rng: expected "own" or "caller", got "mine"""):
        made("wrong", POISSON, unit_rng="mine")
    given.close()
    with pytest.raises(udp.UndertoneError):
        made("given", POISSON, resume=True)


def test_settings_come_as_text_and_as_a_file(tmp_path):
    text = 'name = "poisson"\nrounds = 5\n[cohort]\nsampling_probability = 1.0\n[privacy]\nnoise_multiplier = 2.0\ndelta = 1e-5\n'
    (tmp_path / "session.toml").write_text(text)
    plans = [
        udp.Session.create(tmp_path / str(place), given, users=4, dim=3).planned
        for place, given in enumerate([POISSON, text, tmp_path / "session.toml", str(tmp_path / "session.toml")])
    ]
    assert all(plan == plans[0] for plan in plans)
    with pytest.raises(OSError) as caught:
        udp.Session.create(tmp_path, str(tmp_path / "none.toml"), users=4, dim=3)
    assert caught.value.errno == 2 and caught.value.filename.endswith("none.toml")


# Attacks. Each is refused, or moves a sum by no more than the clip norm.


def test_units_twice_and_strangers_are_refused(tmp_path):
    session = udp.Session.create(tmp_path, POISSON, users=4, dim=3)
    round = next(session)
    round.add(1, zeros(3))
    for unit in [1, 4, 2**40]:
        with pytest.raises(udp.ParticipationError) as caught:
            round.add(unit, zeros(3))
        assert caught.value.kind == "unit"
    with pytest.raises(udp.ParticipationError):
        round.add_many([2, -1], zeros(6))
    with pytest.raises(ValueError, match="expected 6 values"):
        round.add_many([0, 3], zeros(5))
    with pytest.raises(udp.SessionError, match="open round"):
        next(session)
    out = zeros(3)
    round.release(out)
    kept = out.tobytes()
    for attempt in (lambda: round.release(out), lambda: round.add(0, zeros(3)), lambda: round.release(zeros(2))):
        with pytest.raises(udp.SessionError, match="closed this round"):
            attempt()
    assert out.tobytes() == kept


def test_no_update_moves_the_sum_by_more_than_the_clip_norm(tmp_path):
    quiet = POISSON | {"privacy": {"noise_multiplier": 1e-6, "delta": 1e-5}, "rounds": 1}
    session = udp.Session.create(tmp_path, quiet, users=4, dim=3)
    round = next(session)
    huge = array.array("f", [1e30, -1e30, 1e30])
    assert round.add(0, huge).clipped
    assert round.add(1, array.array("f", [float("nan"), 0, 0])).discarded
    assert round.add(2, array.array("f", [float("inf"), 0, 0])).discarded
    out = zeros(3)
    released = round.release(out)
    # One update of norm 1 in an average over 4, and noise of 2.5e-7 on each value. False-alarm rate below 1e-9.
    assert 0.24 < released.norm < 0.25 + 1e-5


def test_a_buffer_that_changes_while_it_is_added_is_bounded(tmp_path):
    """10,000 tries: the norm in the report is that of a vector whose clipped form was added, since the copy is what both use."""
    tries, dim = 10_000, 4096
    quiet = POISSON | {"privacy": {"noise_multiplier": 1e-6, "delta": 1e-5}, "rounds": 1}
    session = udp.Session.create(tmp_path, quiet, users=tries, dim=dim)
    round = next(session)
    numpy = pytest.importorskip("numpy", reason="numpy writes without the lock of the interpreter")
    update, stop = numpy.zeros(dim, numpy.float32), threading.Event()
    small, large = numpy.full(dim, 0.01, numpy.float32), numpy.full(dim, 1e20, numpy.float32)

    begun = threading.Event()

    def change():
        while not stop.is_set():
            begun.set()
            for source in (small, large, small):
                for _ in range(3):
                    numpy.copyto(update, source)

    other = threading.Thread(target=change)
    other.start()
    begun.wait()
    try:
        reports = [round.add(unit, update) for unit in range(tries)]
    finally:
        stop.set()
        other.join()
    out = zeros(dim)
    released = round.release(out)
    assert len({report.norm for report in reports}) > 1
    # Every update has norm at most 1, and so has their average over all users; noise of 1e-10 on each value is far below the margin.
    assert released.norm <= 1.0 + 1e-6


def test_a_child_process_is_refused(tmp_path):
    session = udp.Session.create(tmp_path, POISSON, users=4, dim=3)
    round = next(session)

    def attempt(answers):
        for work in (lambda: round.add(0, zeros(3)), lambda: round.release(zeros(3)), lambda: next(session), session.close):
            try:
                work()
                answers.put("worked")
            except RuntimeError as error:
                answers.put(str(error))

    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    child = context.Process(target=attempt, args=(answers,))
    child.start()
    shown = [answers.get(timeout=30) for _ in range(4)]
    child.join()
    assert all("two processes would draw one noise" in text for text in shown), shown
    # The parent goes on, and still holds the folder.
    with pytest.raises(udp.SessionError, match="in use"):
        udp.Session.create(tmp_path, POISSON, users=4, dim=3, resume=True)
    round.release(zeros(3))


def test_nothing_secret_is_pickled_or_copied(tmp_path):
    session = udp.Session.create(tmp_path, POISSON, users=4, dim=3)
    for value in (session, next(session)):
        with pytest.raises(TypeError):
            pickle.dumps(value)
        with pytest.raises(TypeError):
            copy.copy(value)


def test_a_state_of_another_key_is_refused(tmp_path):
    for run in ("a", "b"):
        session = udp.Session.create(tmp_path / run, CONFIG, users=USERS, dim=2)
        train(session, zeros(2), last=2)
        session.close()
    journals = [tmp_path / run / "uls-blt" / "checkpoint" / "journal.jsonl" for run in ("a", "b")]
    assert journals[0].stat().st_mode & 0o777 == 0o600
    journals[0].write_bytes(journals[1].read_bytes())
    with pytest.raises(udp.SessionError, match="noise_key"):
        udp.Session.create(tmp_path / "a", CONFIG, users=USERS, dim=2, resume=True)
    journals[1].write_bytes(b"")
    with pytest.raises(udp.SessionError, match="ends before round 0, and ledger.jsonl has 3 rounds"):
        udp.Session.create(tmp_path / "b", CONFIG, users=USERS, dim=2, resume=True)


def test_a_budget_refuses_one_round_more(tmp_path):
    session = udp.Session.create(tmp_path / "free", POISSON, users=4, dim=3)
    for _ in range(2):
        next(session).release(zeros(3))
    limited = POISSON | {"privacy": POISSON["privacy"] | {"max_epsilon": session.epsilon * 1.0001}}
    session = udp.Session.create(tmp_path / "limited", limited, users=4, dim=3)
    for _ in range(2):
        next(session).release(zeros(3))
    with pytest.raises(udp.BudgetExceeded) as caught:
        next(session)
    assert caught.value.kind == "budget-exceeded" and session.round == 2


@pytest.mark.skipif(sys.platform != "linux", reason="limits on the size of files are those of Linux")
@pytest.mark.parametrize("room", [0, 60, 300])
def test_without_space_no_noise_leaves(tmp_path, room):
    """The limit on file sizes plays a full disk: at 0 not even the journal can be written, at 60 and 300 not the ledger's line."""
    program = f"""
import resource, signal, sys
sys.path.insert(0, {str(pathlib.Path(__file__).parent)!r})
import test_session as t
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
session = t.udp.Session.create({str(tmp_path)!r}, t.POISSON, users=4, dim=3)
next(session).release(t.zeros(3))
round = next(session)
ledger = t.pathlib.Path(session.path, "ledger.jsonl").stat().st_size
resource.setrlimit(resource.RLIMIT_FSIZE, ({room} and ledger + {room} - 60, resource.RLIM_INFINITY))
out = t.zeros(3)
for _ in range(2):
    try:
        round.release(out)
    except OSError as error:
        print("refused", error.errno)
    except t.udp.SessionError as error:
        print("stopped")
assert not any(out)
assert t.pathlib.Path(session.path, "ledger.jsonl").stat().st_size == ledger
"""
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert shown.returncode == 0 and shown.stdout.split() == ["refused", "27", "stopped"], (shown.stdout, shown.stderr)
    session = udp.Session.create(tmp_path, POISSON, users=4, dim=3, resume=True)
    assert session.round == 1
    next(session).release(zeros(3))


def test_the_interpreter_is_free_during_a_release(tmp_path):
    """A thread of Python counts on while a release of two million values runs."""
    wide = POISSON | {"rounds": 1}
    session = udp.Session.create(tmp_path, wide, users=4, dim=2_000_000)
    round = next(session)
    counted, stop = [0], threading.Event()

    def count():
        while not stop.is_set():
            counted[0] += 1

    counter = threading.Thread(target=count)
    counter.start()
    before = counted[0]
    round.release(zeros(2_000_000))
    after = counted[0]
    stop.set()
    counter.join()
    assert after - before > 1000


@pytest.mark.parametrize(
    "buffer",
    [
        array.array("d", bytes(24)),
        bytes(12),
        memoryview(array.array("f", bytes(24)))[::2],
        memoryview(bytes(12)).cast("f"),
        [0.0, 0.0, 0.0],
    ],
    ids=["doubles", "bytes", "strided", "read-only", "list"],
)
def test_memory_that_cannot_take_an_average_is_named(tmp_path, buffer):
    round = next(udp.Session.create(tmp_path, POISSON, users=4, dim=3))
    with pytest.raises(TypeError, match="out: expected a contiguous, writable float32 buffer on the CPU"):
        round.release(buffer)
    round.release(zeros(3))
