"""The command `undertone` of the wheel: its answers, its exit status, and Ctrl-C."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest
import undertone_dp as udp

COMMAND = pathlib.Path(sys.executable).parent / ("undertone.exe" if os.name == "nt" else "undertone")
RUN = """
name = "long"
rounds = 100000
data = { source = { kind = "synthetic", users = 200, words = 60 } }
model = { family = "dplm", embed = 4, hidden = 4 }
cohort = { sampling = "poisson", users_per_round = 20 }
user_update = { algorithm = "fedavg", batch_size = 8, learning_rate = 1.0 }
clip = { kind = "flat", norm = 1.0 }
privacy = { noise_multiplier = 1.0, delta = 1e-5 }
"""


def command(*words, **options):
    return subprocess.run([COMMAND, *words], capture_output=True, text=True, timeout=120, **options)


def test_the_wheel_carries_the_complete_command():
    assert command("--version").stdout == f"undertone {udp.__version__}\n"
    for word in ("serve", "device", "planner"):
        assert command(word, "--help").returncode == 0
    assert command("data", "tokenizer", "--help").returncode == 0


def test_the_command_and_the_package_compute_the_same():
    asked = "gaussian --rounds 3 --noise-multiplier 2.5 --delta 1e-6 --json".split()
    event = udp.Event.Gaussian(noise_multiplier=2.5)
    spent = udp.Accountant().compose(event, 3).guarantee(1e-6).epsilon
    assert json.loads(command("account", *asked).stdout)["epsilon"] == pytest.approx(spent, rel=1e-12)


def test_errors_end_with_a_sentence_and_a_status():
    wrong = command("quote")
    assert wrong.returncode == 2 and "unrecognized subcommand 'quote'" in wrong.stderr
    absent = command("verify", "no-such-run")
    assert absent.returncode == 1 and absent.stderr.startswith("error: ") and "no-such-run" in absent.stderr


@pytest.mark.skipif(os.name == "nt", reason="another signal")
def test_ctrl_c_ends_a_training_in_order_and_says_how_to_go_on(tmp_path):
    (tmp_path / "long.toml").write_text(RUN)
    words = [COMMAND, "train", "long.toml"]
    # A shell starts a background job with this signal ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    training = subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    ledger = tmp_path / "runs/long/ledger.jsonl"
    until = time.monotonic() + 100
    while time.monotonic() < until and training.poll() is None and not (ledger.exists() and ledger.read_text().count("\n") > 3):
        time.sleep(0.1)
    training.send_signal(signal.SIGINT)
    _, errors = training.communicate(timeout=100)
    assert training.returncode == 130, errors
    assert "undertone train long.toml --resume" in errors
