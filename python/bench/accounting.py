"""Times accounting through Python: CPU milliseconds, medians of several turns, without the first turn.

Peers stand beside it where they are installed: dp-accounting, and opake (its package opake-dpsgd). Each turn asks all
packages in a row, so that other work on the machine slows all of them.
"""

import importlib.util
import itertools
import statistics
import subprocess
import sys
import time

import undertone_dp as udp

TURNS = 7
PEER_TURNS = 3
OURS = "undertone-dp"
ROUND = udp.Event.PoissonGaussian(sampling_probability=0.01, noise_multiplier=1.0)
CALIBRATED = udp.Event.PoissonGaussian(sampling_probability=0.00163735, noise_multiplier=1.0)


def ours():
    accountant = udp.Accountant("pld").compose(ROUND, 1000)
    return {
        "PLD epsilon, 1000 rounds": lambda: udp.epsilon(ROUND, delta=1e-6, rounds=1000),
        "PLD epsilon, 10^6 rounds": lambda: udp.epsilon(ROUND, delta=1e-6, rounds=10**6),
        "both bounds, 1000 rounds": lambda: accountant.bounds(1e-6),
        "RDP epsilon, 1000 rounds": lambda: udp.epsilon(ROUND, delta=1e-6, rounds=1000, recipe="rdp"),
        "noise multiplier, 3000 rounds": lambda: udp.calibrate.noise_multiplier(
            CALIBRATED, epsilon=1.0, delta=1e-9, rounds=3000
        ),
        "a call": lambda: accountant.rounds,
    }


def theirs():
    import dp_accounting as dp

    def event(q, z):
        return dp.PoissonSampledDpEvent(q, dp.GaussianDpEvent(z))

    def noise():
        def make(z):
            return dp.SelfComposedDpEvent(event(0.00163735, z), 3000)

        return dp.calibrate_dp_mechanism(
            dp.pld.PLDAccountant, make, 1.0, 1e-9, dp.LowerEndpointAndGuess(0.5, 1.0), tol=1e-5
        )

    return {
        "PLD epsilon, 1000 rounds": lambda: dp.pld.PLDAccountant().compose(event(0.01, 1.0), 1000).get_epsilon(1e-6),
        "PLD epsilon, 10^6 rounds": lambda: dp.pld.PLDAccountant().compose(event(0.01, 1.0), 10**6).get_epsilon(1e-6),
        "RDP epsilon, 1000 rounds": lambda: dp.rdp.RdpAccountant().compose(event(0.01, 1.0), 1000).get_epsilon(1e-6),
        "noise multiplier, 3000 rounds": noise,
    }


def opake():
    import opake.accounting as core
    import opake.dpsgd.accounting as dpsgd

    # It keeps its answers: no two turns ask quite the same.
    turn = itertools.count()

    def process(q, z, rounds):
        return dpsgd.poisson(dpsgd.gaussian(z), sample_rate=q) * rounds

    def epsilon(rounds):
        return process(0.01, 1.0 + 1e-12 * next(turn), rounds).epsilon_at(1e-6)

    def noise():
        budget, upper = core.epsilon_budget(1.0, delta=1e-9), 2.0 + 1e-9 * next(turn)
        # A smaller tolerance ends in an error.
        return core.calibrate(budget, lambda z: process(0.00163735, z, 3000), 0.5, upper, tolerance=2e-5).param

    return {
        "PLD epsilon, 1000 rounds": lambda: epsilon(1000),
        "PLD epsilon, 10^6 rounds": lambda: epsilon(10**6),
        "noise multiplier, 3000 rounds": noise,
    }


def cpu_seconds(questions):
    """The median and the answer of each package, asked in turns."""
    taken, answers = {package: [] for package in questions}, {}
    for turn in range(TURNS + 1):
        for package, question in questions.items():
            if turn > PEER_TURNS and package != OURS:
                continue
            start = time.process_time()
            answers[package] = question()
            taken[package].append(time.process_time() - start)
    return {package: (statistics.median(times[1:]), answers[package]) for package, times in taken.items()}


def import_seconds(name):
    def wall(code):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True)
        return time.perf_counter() - start

    turns = [(wall(f"import {name}"), wall("pass")) for _ in range(TURNS)]
    return statistics.median(with_it for with_it, _ in turns) - statistics.median(bare for _, bare in turns)


def main():
    packages, names = {OURS: ours()}, ["undertone_dp"]
    if importlib.util.find_spec("dp_accounting"):
        packages["dp-accounting"] = theirs()
        names.append("dp_accounting")
    if importlib.util.find_spec("opake") and importlib.util.find_spec("opake.dpsgd"):
        packages["opake"] = opake()
        names.append("opake.dpsgd.accounting")
    for name in packages[OURS]:
        found = cpu_seconds({package: own[name] for package, own in packages.items() if name in own})
        for package, (seconds, answer) in found.items():
            times = seconds / found[OURS][0]
            print(f"{name:30} {package:14} {1e3 * seconds:10.4f} ms CPU {times:8.1f} times ours   {answer}", flush=True)
    for name in names:
        print(f"{'import, above bare Python':30} {name:24} {1e3 * import_seconds(name):10.4f} ms wall", flush=True)


main()
