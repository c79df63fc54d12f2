"""CPU seconds of dp-accounting on the questions of `undertone-lab bench accounting`: one RESULT {json} line for each.

usage: python dp_accounting_bench.py [--repeats 5] [--only NAME]

CPU time of the whole process (time.process_time, all threads) around one answer from fresh objects, median over the
repeats; imports and the first, discarded answer are outside.
"""
import argparse
import json
import os
import statistics
import time
from importlib.metadata import version

import dp_accounting
from dp_accounting import dp_event, pld, rdp
from scipy import stats


def poisson(probability, noise, rounds):
    event = dp_accounting.PoissonSampledDpEvent(probability, dp_accounting.GaussianDpEvent(noise))
    return dp_accounting.SelfComposedDpEvent(event, rounds)


def mixture(noise, examples, probability, rounds):
    counts = range(examples + 1)
    weights = [float(stats.binom.pmf(count, examples, probability)) for count in counts]
    event = dp_event.MixtureOfGaussiansDpEvent(noise, list(counts), weights)
    return dp_accounting.SelfComposedDpEvent(event, rounds)


def epsilon(accountant, event, delta):
    return accountant.compose(event).get_epsilon(delta)


def loss_distribution(interval=1e-4):
    return pld.PLDAccountant(value_discretization_interval=interval)


def calibrated(probability, rounds, target, delta):
    return dp_accounting.calibrate_dp_mechanism(
        loss_distribution, lambda noise: poisson(probability, noise, rounds), target, delta)


QUESTIONS = {
    "pld-1e3": lambda: epsilon(loss_distribution(), poisson(0.01, 1.0, 1000), 1e-6),
    "pld-1e6": lambda: epsilon(loss_distribution(), poisson(0.01, 1.0, 1_000_000), 1e-6),
    "rdp-1e3": lambda: epsilon(rdp.RdpAccountant(), poisson(0.01, 1.0, 1000), 1e-6),
    "mixture-64": lambda: epsilon(loss_distribution(), mixture(4.0, 64, 0.01, 2000), 1e-6),
    "mixture-64-coarse": lambda: epsilon(loss_distribution(1e-3), mixture(4.0, 64, 0.01, 2000), 1e-6),
    "calibrate-pld": lambda: calibrated(0.0016373472355029276, 3000, 1.0, 1e-9),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", choices=QUESTIONS)
    arguments = parser.parse_args()
    for name, answer in QUESTIONS.items():
        if arguments.only not in (None, name):
            continue
        value = answer()
        seconds = []
        for _ in range(arguments.repeats):
            start = time.process_time()
            value = answer()
            seconds.append(time.process_time() - start)
        print("RESULT", json.dumps({
            "name": "dp-accounting",
            "version": version("dp-accounting"),
            "question": name,
            "value": value,
            "cpu_s": round(statistics.median(seconds), 4),
            "cpu_s_all": [round(second, 4) for second in seconds],
            "load_1m": os.getloadavg()[0],
        }), flush=True)


if __name__ == "__main__":
    main()
