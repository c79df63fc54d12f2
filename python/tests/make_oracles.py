"""Writes `oracles.json`: epsilons of dp-accounting 0.6.0, which must be installed. Run by hand."""

import itertools
import json
import pathlib

import dp_accounting as dp


def gaussians(z, q):
    return [f"GaussianDpEvent({z})", f"PoissonSampledDpEvent({q}, GaussianDpEvent({z}))", f"LaplaceDpEvent({4 * z})"]


def main():
    found = []
    questions = itertools.product((1.0, 2.0), (0.01,), (1, 50), (1e-6,), ("pld", "rdp"))
    for z, q, count, delta, kind in questions:
        mixture = f"MixtureOfGaussiansDpEvent({z}, [0.0, 1.0], [{1 - q}, {q}])"
        add = [*gaussians(z, q), f"ZCDpEvent({0.1 / z})"] if kind == "rdp" else [*gaussians(z, q), mixture]
        replace = [f"RandomizedResponseDpEvent({0.3 * z}, 5)", f"GaussianDpEvent({z})"]
        if kind == "rdp":
            replace.append(f"SampledWithoutReplacementDpEvent(1000, {int(1000 * q)}, GaussianDpEvent({z}))")
        for relation, events in (("ADD_OR_REMOVE_ONE", add), ("REPLACE_ONE", replace)):
            for event in events:
                made = dp.pld.PLDAccountant if kind == "pld" else dp.rdp.RdpAccountant
                accountant = made(neighboring_relation=dp.NeighboringRelation[relation])
                accountant.compose(eval(event, vars(dp.dp_event)), count)
                epsilon = accountant.get_epsilon(delta)
                found.append(
                    {
                        "accountant": kind,
                        "relation": relation,
                        "event": event,
                        "count": count,
                        "delta": delta,
                        "epsilon": float(epsilon),
                    }
                )
    unique = list({json.dumps(question): question for question in found}.values())
    lines = ",\n".join(json.dumps(question) for question in unique)
    (pathlib.Path(__file__).parent / "oracles.json").write_text(f"[\n{lines}\n]\n")


main()
