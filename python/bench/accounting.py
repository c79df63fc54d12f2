"""Times accounting through Python, with dp-accounting beside it where it is installed: CPU seconds, median of several turns."""

import importlib.util
import statistics
import subprocess
import sys
import time

import undertone_dp as udp

TURNS = 7
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


def cpu_seconds(question, turns):
    question()
    taken = []
    for _ in range(turns):
        start = time.process_time()
        answer = question()
        taken.append(time.process_time() - start)
    return statistics.median(taken), answer


def import_seconds(name):
    def wall(code):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True)
        return time.perf_counter() - start

    turns = [(wall(f"import {name}"), wall("pass")) for _ in range(TURNS)]
    return statistics.median(with_it for with_it, _ in turns) - statistics.median(bare for _, bare in turns)


def main():
    packages = [("undertone-dp", ours(), TURNS)]
    names = ["undertone_dp"]
    if importlib.util.find_spec("dp_accounting"):
        packages.append(("dp-accounting", theirs(), 3))
        names.append("dp_accounting")
    for package, questions, turns in packages:
        for name, question in questions.items():
            seconds, answer = cpu_seconds(question, turns)
            print(f"{package:14} {name:30} {1e3 * seconds:10.4f} ms CPU   {answer}")
    for name in names:
        print(f"{name:14} {'import, above bare Python':30} {1e3 * import_seconds(name):10.4f} ms wall")


main()
