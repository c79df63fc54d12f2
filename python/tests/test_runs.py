"""Runs from Python are those of the command line, can be ended, and go on."""

import csv
import hashlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

import pytest
import undertone_dp as udp
from test_parity import binary, toml

ROOT = pathlib.Path(__file__).parents[2]
# A shell starts a background job with this signal ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
QUICKSTART = ROOT / "examples" / "quickstart.toml"
TINY = {
    "name": "tiny",
    "rounds": 12,
    "seed": 1,
    "data": {"source": {"kind": "synthetic", "users": 300, "words": 60}},
    "model": {"family": "dplm", "embed": 4, "hidden": 8},
    "cohort": {"sampling": "poisson", "users_per_round": 30},
    "user_update": {"algorithm": "fedavg", "batch_size": 4, "learning_rate": 0.5},
    "clip": {"kind": "flat", "norm": 0.3},
    "privacy": {"noise_multiplier": 2.0, "delta": 1e-5},
    "evaluation": {"every": 4},
    "checkpoint": {"every": 3},
}
# Times of the machine, and pages that show them.
TIMED = {"metrics.jsonl", "report.html", "manifest.json", ".base", ".lock"}


def files(folder):
    found = {}
    for path in sorted(pathlib.Path(folder).rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_file() and name not in TIMED and not name.startswith("plots"):
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def without_times(folder):
    def strip(value):
        if isinstance(value, dict):
            timed = ("seconds", "train_seconds", "phases")
            return {key: strip(inner) for key, inner in value.items() if key not in timed}
        return value

    lines = (pathlib.Path(folder) / "metrics.jsonl").read_text().splitlines()
    return [strip(json.loads(line)) for line in lines]


def needs_binary():
    found = binary()
    if not found:
        pytest.skip("no undertone binary at hand")
    return found


def test_a_run_from_python_has_the_bytes_of_the_command_line(tmp_path):
    cli = needs_binary()
    changes = {"rounds": 3, "seed": 5, "data.source.users": 1000, "checkpoint.every": 2}
    sets = [word for key, value in changes.items() for word in ("--set", f"{key}={value}")]
    done = subprocess.run(
        [cli, "train", QUICKSTART, "--out", tmp_path / "cli", *sets], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    run = udp.train(QUICKSTART, out=tmp_path / "python", overrides=changes, threads=1)
    assert run.finished and run.path == tmp_path / "python" / "quickstart"
    expected = files(tmp_path / "cli" / "quickstart")
    assert files(run.path) == expected and "model.safetensors" in expected and "ledger.jsonl" in expected
    assert without_times(run.path) == without_times(tmp_path / "cli" / "quickstart")
    assert (run.path / "report.html").exists()
    # The dict of the file, and its text, are the same run.
    import tomllib

    for name, form in [("dict", tomllib.loads(QUICKSTART.read_text())), ("text", QUICKSTART.read_text())]:
        other = udp.train(form, out=tmp_path / name, overrides=changes)
        assert files(other.path) == expected
    verified = subprocess.run([cli, "verify", run.path], capture_output=True, text=True, check=False)
    assert verified.returncode == 0, verified.stdout + verified.stderr


@pytest.mark.parametrize(
    ("change", "options"),
    [
        ({"clip.norm": -1.0}, ["clip.norm=-1.0"]),
        ({"privacy.delta": 2.0}, ["privacy.delta=2.0"]),
        ({"cohort.users": 3}, ["cohort.users=3"]),
        ({"rounds": "many"}, ["rounds=many"]),
        ({"data.max_examples": 0}, ["data.max_examples=0"]),
        ({"privacy.max_epsilon": 1e-6, "privacy.noise_multiplier": 1.0}, None),
    ],
)
def test_a_refused_configuration_has_the_words_of_the_command_line(tmp_path, change, options):
    cli = needs_binary()
    options = options or [f"{key}={value}" for key, value in change.items()]
    sets = [word for option in options for word in ("--set", option)]
    done = subprocess.run(
        [cli, "train", QUICKSTART, "--out", tmp_path, *sets], capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    with pytest.raises(udp.UndertoneError) as caught:
        udp.train(QUICKSTART, out=tmp_path, overrides=change)
    assert str(caught.value) in done.stderr
    assert caught.value.kind


def test_a_mapping_is_refused_by_the_name_of_its_key(tmp_path):
    def fails(error, change, part):
        with pytest.raises(error) as caught:
            udp.train({**TINY, **change}, out=tmp_path)
        assert part in str(caught.value) and "\n" not in str(caught.value)

    fails(udp.ConfigError, {"clip": {"kind": "flat", "norm": None}}, "`clip.norm`: expected a value")
    fails(udp.ConfigError, {"clipping": {}}, "there is no key `clipping`; did you mean `clip`?")
    fails(udp.ConfigError, {"seed": 2**63}, "`seed`")
    fails(ValueError, {"clip": {"kind": "flat", "norm": float("nan")}}, "clip.norm: expected a finite number, got nan")
    fails(TypeError, {"clip": {"kind": b"flat"}}, "clip.kind: expected a table, list, string or number, got bytes")
    fails(TypeError, {"clip": {3: 4}}, "clip: expected names that are strings, got 3")
    with pytest.raises(FileNotFoundError) as caught:
        udp.train(tmp_path / "absent.toml")
    assert caught.value.filename == str(tmp_path / "absent.toml") and caught.value.errno == 2
    with pytest.raises(TypeError, match="config: expected a mapping, TOML text or a path, got int"):
        udp.train(3)
    with pytest.raises(ValueError):
        udp.train(TINY, out=tmp_path, threads=0)
    assert not list(tmp_path.glob("tiny"))


def test_what_a_run_directory_holds(tmp_path):
    events = []
    run = udp.train(TINY, out=tmp_path, progress=lambda event: events.append((event, threading.get_ident())))
    assert {thread for _, thread in events} == {threading.get_ident()}
    kinds = [event.kind for event, _ in events]
    assert kinds.count("round") == 12 and kinds.count("start") == 1 and "corpus" in kinds
    assert kinds.count("evaluation") == 3
    assert run.name == "tiny" and run.finished and run.config["rounds"] == 12
    stated = json.loads((run.path / "privacy.json").read_text())
    assert run.planned.epsilon == stated["planned"]["epsilon"] and run.guarantee.epsilon == stated["observed"]["epsilon"]
    assert run.estimate is None and any("seed" in warning for warning in run.warnings)
    assert run.metrics.column("round") == list(range(12)) and len(run.evaluations) == 3
    assert len(run.ledger) == 12 and "train_loss" in run.metrics.columns
    verification = run.verify()
    verification.raise_for_problems()
    assert verification.holds and verification.recomputed.epsilon == run.guarantee.epsilon
    assert run.report(tmp_path / "page.html").startswith("<!") and (tmp_path / "page.html").exists()
    assert udp.Run.open(run.path).guarantee == run.guarantee
    assert str(run.guarantee) in run._repr_html_()
    (error,) = run.evaluations.column("metrics.top1_standard_error")[-1:]
    assert f" ± {100 * error:.2f}</td>" in run._repr_html_()
    for row in ("commonest word", "<td>start</td><td>random</td>", "<td>private</td>", "the same without privacy"):
        assert row in run._repr_html_()
    with pytest.warns(UserWarning, match="the guarantee does not cover the model: config.toml, seed"):
        exported = run.export(tmp_path / "model", "undertone")
    assert b"everybody who reads the seed" in (exported / "model.safetensors").read_bytes()[:8192]
    with pytest.raises(udp.RunError, match="cannot be published: .*seed"):
        run.publish(tmp_path / "published")
    with pytest.raises(udp.ConfigError, match="layout"):
        run.export(tmp_path / "gpt2")
    with pytest.raises(udp.RunError, match="already exists") as caught:
        udp.train(TINY, out=tmp_path)
    assert caught.value.kind == "run-exists"
    with pytest.raises(udp.RunError, match="is finished"):
        udp.train(TINY, out=tmp_path, resume=True)


def test_a_published_run_is_one_for_strangers(tmp_path):
    settings = {name: value for name, value in TINY.items() if name != "seed"}
    run = udp.train({**settings, "rounds": 2}, out=tmp_path)
    folder = run.publish(tmp_path / "published")
    assert {path.name for path in folder.iterdir()} >= {"model.safetensors", "ledger.public.jsonl", "privacy.json"}
    assert not (folder / "metrics.jsonl").exists()


def test_weights_are_the_tensors_of_the_model(tmp_path):
    numpy = pytest.importorskip("numpy", reason="numpy is not installed")
    run = udp.train({**TINY, "rounds": 1}, out=tmp_path)
    weights = run.weights()
    bytes_of = (run.path / "model.safetensors").read_bytes()
    assert weights and all(tensor.dtype == numpy.float32 for tensor in weights.values())
    assert all(tensor.tobytes() in bytes_of and not tensor.flags.writeable for tensor in weights.values())


def test_a_forged_run_fails_its_verification(tmp_path):
    run = udp.train({**TINY, "rounds": 2}, out=tmp_path)
    path = run.path / "ledger.jsonl"
    honest = path.read_text()
    path.write_text(honest.replace('"round":0', '"round":7', 1))
    assert path.read_text() != honest
    verification = run.verify()
    assert not verification.holds
    with pytest.raises(udp.RunError, match="ledger"):
        verification.raise_for_problems()


# Each round takes a good part of a second, so that a signal after the fourth comes before the last.
SLOW = {
    **TINY,
    "rounds": 14,
    "data": {"source": {"kind": "synthetic", "users": 1500, "words": 200}},
    "model": {"family": "dplm", "embed": 16, "hidden": 48},
    "cohort": {"sampling": "poisson", "users_per_round": 300},
    "evaluation": {"every": 0},
    "checkpoint": {"every": 3},
}


def test_an_interrupt_ends_a_run_within_a_second_and_it_goes_on(tmp_path):
    whole = udp.train(SLOW, out=tmp_path / "whole")
    script = f"""
import signal
import time
import undertone_dp as udp
# A shell starts a background job with this signal ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
def show(event):
    if event.kind == "round" and event.record["round"] == 4:
        print("here", flush=True)
try:
    udp.train({SLOW!r}, out={str(tmp_path / "torn")!r}, threads=1, progress=show)
except KeyboardInterrupt as error:
    print("interrupted", time.monotonic(), *error.__notes__, flush=True)
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    child = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, env=environment)
    assert child.stdout.readline() == "here\n"
    sent = time.monotonic()
    child.send_signal(signal.SIGINT)
    line = child.stdout.readline()
    child.wait()
    assert line.startswith("interrupted") and "continue with resume=True" in line
    assert float(line.split()[1]) - sent < 1.0
    torn = udp.Run.open(tmp_path / "torn" / "tiny")
    assert not torn.finished and 4 < len(torn.metrics) < 14
    udp.train(SLOW, out=tmp_path / "torn", resume=True)
    assert files(tmp_path / "torn" / "tiny") == files(whole.path)


def test_ctrl_c_inside_a_round(tmp_path):
    # One round of many users takes a minute, so the signal comes in the middle of it.
    slow = {
        **TINY,
        "data": {"source": {"kind": "synthetic", "users": 20_000, "words": 1000}},
        "model": {"family": "dplm", "embed": 32, "hidden": 96},
        "cohort": {"sampling": "poisson", "users_per_round": 10_000},
        "user_update": {"algorithm": "fedavg", "batch_size": 4, "learning_rate": 0.5, "max_examples": 32},
        "evaluation": {"every": 0},
    }
    started = threading.Event()

    def interrupt():
        started.wait(120)
        time.sleep(1.0)
        times.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    times = []
    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt) as caught:
        udp.train(slow, out=tmp_path, progress=lambda event: event.kind == "start" and started.set())
    took = time.monotonic() - times[0]
    thread.join()
    assert took < 1.0, took
    assert "continue with resume=True" in caught.value.__notes__[0]
    run = udp.Run.open(tmp_path / "tiny")
    assert not run.finished and len(run.metrics) == 0 and (run.path / "ledger.jsonl").read_bytes() == b""


def test_an_exception_of_the_callback_ends_the_run_and_it_goes_on(tmp_path):
    def fail(event):
        if event.kind == "round" and event.record["round"] == 5:
            raise RuntimeError("enough")

    whole = udp.train(TINY, out=tmp_path / "whole")
    with pytest.raises(RuntimeError, match="enough") as caught:
        udp.train(TINY, out=tmp_path / "torn", progress=fail)
    assert "resume=True" in caught.value.__notes__[0] or "finished" in caught.value.__notes__[0]
    if "resume=True" in caught.value.__notes__[0]:
        udp.train(TINY, out=tmp_path / "torn", resume=True)
    assert files(tmp_path / "torn" / "tiny") == files(whole.path)


def test_other_threads_go_on_while_a_run_trains(tmp_path):
    counts = []

    def count(until):
        number = 0
        while not until.is_set():
            number += 1
            if number % 1000 == 0:
                time.sleep(0)
        counts.append(number)

    until = threading.Event()
    counter = threading.Thread(target=count, args=(until,))
    started = time.monotonic()
    counter.start()
    udp.train({**TINY, "rounds": 30}, out=tmp_path, threads=1)
    until.set()
    counter.join()
    # The interpreter was never held for long: the counter counted all the while.
    assert counts[0] / (time.monotonic() - started) > 100_000


def test_a_bar_is_drawn_on_standard_error(tmp_path, capsys):
    udp.train({**TINY, "rounds": 2}, out=tmp_path, progress=True)
    shown = capsys.readouterr().err
    assert "2/2" in shown and "top-1" in shown and " ± " in shown


def test_a_report_escapes_and_tables_leave_for_other_libraries(tmp_path):
    run = udp.train({**TINY, "rounds": 2}, out=tmp_path)
    html = run.metrics._repr_html_()
    assert "<th>train_loss</th>" in html
    assert udp.Table.of({"<b>": ["<i>"]})._repr_html_().count("&lt;") == 2
    polars = pytest.importorskip("polars", reason="polars is not installed")
    frame = run.metrics.to_polars()
    assert isinstance(frame, polars.DataFrame) and frame["round"].to_list() == [0, 1]
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    pytest.importorskip("pandas", reason="pandas is not installed")
    assert run.ledger.to_pandas()["round"].tolist() == [0, 1]


def test_methods_of_a_run_give_the_documents_of_their_commands(tmp_path):
    run = udp.train(TINY, out=tmp_path)
    command = pathlib.Path(sys.executable).parent / "undertone"

    def document(*words):
        shown = subprocess.run([command, *words, "--json"], capture_output=True, text=True, check=True, timeout=100)
        return json.loads(shown.stdout)

    assert run.predict("ba", top=3) == document("predict", run.path, "ba", "--top", "3")
    drawn = document("generate", run.path, "ba", "--tokens", "9", "--samples", "2", "--seed", "3")
    assert run.generate("ba", tokens=9, samples=2, seed=3) == [text["text"] for text in drawn["texts"]]
    assert len(run.generate(tokens=4)) == 1
    measured = document("eval", run.path, "--split", "validation")
    assert run.evaluate("validation") == measured
    again = run.evaluate("validation", against=run)
    assert again["top1"] == measured["top1"] and again["against"]["top1"]
    assert run.personalize(users=5, epochs=1) == document("personalize", run.path, "--users", "5", "--epochs", "1")
    assert "private" in str(run.story()) and "<table>" in run.story()._repr_html_()
    picture = run.plot("train-loss")
    assert picture.startswith("<svg") and picture._repr_svg_() == picture
    with pytest.raises(ValueError, match="name: expected accuracy, .*, got 'loss'"):
        run.plot("loss")
    with pytest.raises(udp.RunError, match="--top") as refused:
        run.predict("ba", top=0)
    assert refused.value.kind == "command"


def test_text_that_looks_like_an_option_is_text(tmp_path):
    run = udp.train(TINY, out=tmp_path)
    assert run.predict("--top=0", top=2) == run.predict("zz", top=2)
    assert len(run.generate("-h", tokens=3)) == 1


@pytest.mark.skipif(os.name == "nt", reason="another signal")
def test_an_interrupt_ends_a_measure(tmp_path):
    run = udp.train({**TINY, "data": {"source": {"kind": "synthetic", "users": 20000, "words": 60}}, "rounds": 1}, out=tmp_path)
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        while time.monotonic() < started + 100:
            run.evaluate()
    assert len(run.predict("ba")) == 5


def test_tracked_figures_are_those_of_the_metrics(tmp_path):
    from undertone_dp import track

    with pytest.warns(UserWarning, match="exact statistics of people"):
        receiver = track.Csv(tmp_path / "figures")
    run = udp.train(TINY, out=tmp_path, progress=receiver)
    with open(tmp_path / "figures/rounds.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["round"]) for row in rows] == run.metrics.column("round")
    assert [float(row["train_loss"]) for row in rows] == run.metrics.column("train_loss")
    with open(tmp_path / "figures/evaluations.csv", newline="") as file:
        measured = list(csv.DictReader(file))
    assert [int(row["round"]) for row in measured] == run.evaluations.column("round")
    assert all(0 <= float(row["top1"]) <= 1 for row in measured)


def test_a_public_start_is_that_of_the_command(tmp_path):
    settings = {
        "name": "public",
        "steps": 6,
        "seed": 1,
        "data": {"source": {"kind": "synthetic", "users": 60, "words": 40}},
        "model": {"family": "dplm", "embed": 4, "hidden": 4},
        "training": {"batch_size": 8, "learning_rate": 0.1},
    }
    with pytest.warns(UserWarning, match="NOT private"):
        folder = udp.pretrain(settings, out=tmp_path, overrides={"steps": 5})
    file = tmp_path / "public.toml"
    file.write_text("\n".join(f"{key} = {toml(value)}" for key, value in settings.items()))
    command = pathlib.Path(sys.executable).parent / "undertone"
    words = [command, "pretrain", file, "--out", tmp_path / "by-command", "--set", "steps=5"]
    subprocess.run(words, check=True, capture_output=True, timeout=100)
    model = "model.safetensors"
    assert (folder / model).read_bytes() == (tmp_path / "by-command/public" / model).read_bytes()
    with pytest.raises(udp.ConfigError), pytest.warns(UserWarning):
        udp.pretrain({**settings, "stepz": 3}, out=tmp_path)
