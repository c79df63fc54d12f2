"""Rate of correlated noise through Python, beside the rate of the Rust benchmark on the same machine.

    python bench/noise.py                                  # numpy, torch and plain arrays
    python bench/noise.py --lab ../target/release/undertone-lab

Rates are million samples per CPU second. The stream is that of `undertone-lab bench noise --only blt-4-stream`.
"""

from __future__ import annotations

import argparse
import array
import importlib.util
import json
import resource
import statistics
import subprocess
import time

import undertone_dp as udp

ROUNDS = 16
STRATEGY = {
    "kind": "blt",
    "decay_complements": [0.00001, 0.01, 0.1, 0.6],
    "output_scales": [0.03, 0.06, 0.12, 0.25],
}


def stream(dim: int) -> udp.NoiseStream:
    mechanism = udp.Mechanism(
        udp.Strategy.from_json(json.dumps(STRATEGY)),
        rounds=2048,
        participation=udp.Participation.single(),
        noise_multiplier=1.0,
    )
    return mechanism.noise(dim, clip_norm=1.0, key=udp.NoiseKey.insecure_seed(7))


def rate(dim: int, out: object, repeats: int, *, add: bool) -> float:
    """Median rate over the repeats, after one that is discarded."""
    noise, rates = stream(dim), []
    for repeat in range(repeats + 1):
        start = time.process_time()
        for _ in range(ROUNDS):
            noise.next_into(out, add=add)
        if repeat > 0:
            rates.append(ROUNDS * dim / (time.process_time() - start) / 1e6)
    return statistics.median(rates)


def outputs(dim: int) -> dict[str, object]:
    buffers: dict[str, object] = {"array": array.array("f", bytes(4 * dim))}
    if importlib.util.find_spec("numpy"):
        import numpy

        buffers["numpy"] = numpy.zeros(dim, dtype=numpy.float32)
    if importlib.util.find_spec("torch"):
        import torch

        buffers["torch"] = torch.zeros(dim)
    return buffers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dim", type=int, default=6_400_000)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--lab", help="the program undertone-lab")
    arguments = parser.parse_args()
    udp.set_threads(arguments.threads)
    rust = None
    if arguments.lab:
        command = [arguments.lab, "bench", "noise", "--only", "blt-4-stream"]
        sizes = ["--dim", arguments.dim, "--threads", arguments.threads, "--repeats", arguments.repeats]
        lines = subprocess.run([*command, *map(str, sizes)], check=True, capture_output=True, text=True).stdout
        rust = json.loads(lines.split("RESULT ", 1)[1])["msamples_per_cpu_s"]
        print(f"Rust: {rust:.1f} million samples per CPU second")
    for name, out in outputs(arguments.dim).items():
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for add in (False, True):
            own = rate(arguments.dim, out, arguments.repeats, add=add)
            share = "" if rust is None else f", {own / rust:.2f} of Rust's"
            print(f"{name}{', adding' if add else ''}: {own:.1f}{share}", flush=True)
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        print(f"  peak memory grew by {grown / 1024:.0f} MiB; the stream keeps {4 * 4 * arguments.dim / 2**20:.0f} MiB")


if __name__ == "__main__":
    main()
