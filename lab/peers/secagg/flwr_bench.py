"""CPU seconds of Flower's secure aggregation on the questions of `undertone-lab bench secagg`: one RESULT {json} line for each.

usage: python flwr_bench.py [--repeats 5] [--only NAME] [--session]

CPU time of the whole process (time.process_time, all threads), imports outside. A client's masking is what its stage 2 does
with a quantised vector: the self mask, 99 key agreements and pairwise masks, the reduction at the end. `--session` adds
what the server does for 100 clients of whom 10 are gone before they upload: opens 90 seeds and 10 keys, removes 990 masks.
"""
import argparse
import json
import os
import statistics
import time
from importlib.metadata import version

import numpy as np
from flwr.common.secure_aggregation.crypto import shamir
from flwr.common.secure_aggregation.crypto.symmetric_encryption import generate_shared_key
from flwr.common.secure_aggregation.ndarrays_arithmetic import (
    parameters_addition,
    parameters_mod,
    parameters_subtraction,
)
from flwr.common.secure_aggregation.secaggplus_utils import pseudo_rand_gen
from flwr.supercore.primitives.asymmetric import generate_key_pairs, private_key_to_bytes

CLIENTS, THRESHOLD, LENGTH, DROPPED = 100, 67, 1_000_000, 10
MODULUS = 1 << 32
SHAPES = [(LENGTH,)]


def measure(work):
    start = time.process_time()
    value = work()
    return value, time.process_time() - start


def report(question, seconds, **fields):
    result = {"question": question, "cpu_s": round(statistics.median(seconds), 6)}
    result["cpu_s_all"] = [round(second, 6) for second in seconds]
    print("RESULT", json.dumps(result | fields), flush=True)


def mask(repeats):
    """Client 50 of 100, every other one its neighbour."""
    own, _ = generate_key_pairs()
    others = [generate_key_pairs()[1] for _ in range(CLIENTS - 1)]
    seed = os.urandom(32)
    vector = np.random.default_rng(1).integers(0, 1 << 16, LENGTH)

    def work():
        masked = parameters_addition([vector], pseudo_rand_gen(seed, MODULUS, SHAPES))
        for number, public in enumerate(others):
            pairwise = pseudo_rand_gen(generate_shared_key(own, public), MODULUS, SHAPES)
            step = parameters_addition if number < CLIENTS // 2 else parameters_subtraction
            masked = step(masked, pairwise)
        return parameters_mod(masked, MODULUS)

    report("mask-n100-d1e6", [measure(work)[1] for _ in range(repeats)])


def share(repeats):
    """A 32-byte seed: split for 100, opened by 67."""
    seed = os.urandom(32)
    splits, opens = [], []
    for _ in range(repeats):
        shares, seconds = measure(lambda: shamir.create_shares(seed, THRESHOLD, CLIENTS))
        splits.append(seconds)
        opened, seconds = measure(lambda: shamir.combine_shares(shares[-THRESHOLD:]))
        opens.append(seconds)
        assert opened == seed
    report("shamir-split-t67-n100", splits)
    report("shamir-combine-t67-n100", opens)


def session():
    """The server's work after the last upload."""
    keys = [generate_key_pairs() for _ in range(CLIENTS)]
    seeds = [os.urandom(32) for _ in range(CLIENTS)]
    gone = range(CLIENTS - DROPPED, CLIENTS)
    there = range(CLIENTS - DROPPED)
    seed_shares = {i: shamir.create_shares(seeds[i], THRESHOLD, CLIENTS)[:THRESHOLD] for i in there}
    key_bytes = {i: private_key_to_bytes(keys[i][0]) for i in gone}
    key_shares = {i: shamir.create_shares(key_bytes[i], THRESHOLD, CLIENTS)[:THRESHOLD] for i in gone}
    # The masks are removed from what stands for the sum of the uploads; their values do not change the work.
    total = [np.zeros(LENGTH, dtype=np.int64)]

    def work():
        masked = total
        for i in there:
            seed = shamir.combine_shares(seed_shares[i])
            assert seed == seeds[i]
            masked = parameters_subtraction(masked, pseudo_rand_gen(seed, MODULUS, SHAPES))
        for i in gone:
            opened = shamir.combine_shares(key_shares[i])
            assert opened == key_bytes[i]
            for j in there:
                pairwise = pseudo_rand_gen(generate_shared_key(keys[i][0], keys[j][1]), MODULUS, SHAPES)
                masked = parameters_addition(masked, pairwise)
        return parameters_mod(masked, MODULUS)

    report("unmask-n100-d1e6-10-dropped", [measure(work)[1]])


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only")
    parser.add_argument("--session", action="store_true")
    arguments = parser.parse_args()
    print("flwr", version("flwr"), "numpy", np.__version__, "cores", os.cpu_count(), flush=True)
    for name, question in {"mask": mask, "shamir": share}.items():
        if arguments.only in (None, name):
            question(arguments.repeats)
    if arguments.session:
        session()
