"""The cost of what keeps a unit apart from others, beside the training of the unit: a model of GPT-2's size on the processor.

`python bench/unit.py` prints the shares. `--small` tries it. No GPU is needed; `bench/gpu.py` measures whole units on one.
"""

import argparse
import json
import tempfile
import time

import torch
import torch.nn.functional as F
import undertone_dp as udp
import undertone_dp.torch
from gpu import FULL, SMALL, Gpt

CONFIG = {
    "name": "unit",
    "rounds": 1,
    "cohort": {"sampling_probability": 1.0},
    "clip": {"kind": "flat", "norm": 1.0},
    "privacy": {"noise_multiplier": 1.0, "delta": 1e-6},
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--rows", type=int, default=1)
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--units", type=int, default=5)
    parser.add_argument("--rank", type=int, default=0)
    given = parser.parse_args()
    torch.manual_seed(0)
    sizes = SMALL if given.small else FULL
    model = Gpt(**sizes, rank=given.rank)
    trained = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
    inner = torch.optim.AdamW(trained, lr=1e-5)
    dp = udp.torch.PrivateOptimizer(inner, out=tempfile.mkdtemp(), config=CONFIG, users=given.units, model=model)
    tokens = torch.randint(sizes["words"], (given.units, given.rows, given.length + 1))

    def body(unit):
        logits = model(tokens[unit, :, :-1])
        F.cross_entropy(logits.flatten(0, 1), tokens[unit, :, 1:].flatten()).backward()

    def apart(unit):
        # What `unit` does around the body, but for the zeros of the gradient, which any loop needs, and for the sum.
        dp._check_released()
        dp._parameters.check()
        dp._parameters.share()
        with dp._generators.seeded(bytes(16)):
            pass
        dp._parameters.put_back()
        dp._start().put_back()
        dp._parameters.check()
        dp._parameters.check_shared()

    def seconds(work):
        # Of the processor, so that other programs on the machine do not count.
        work(0)
        start, wall = time.process_time(), time.perf_counter()
        for unit in range(given.units):
            work(unit)
        return (time.process_time() - start) / given.units, (time.perf_counter() - wall) / given.units

    next(iter(dp))
    (plain, plain_wall), (kept, kept_wall), (folds, folds_wall) = (
        seconds(work) for work in (body, apart, lambda unit: dp._check_untrained())
    )
    print(
        "RESULT "
        + json.dumps(
            {
                "parameters": dp.session.dim,
                "tokens": given.rows * given.length,
                "threads": torch.get_num_threads(),
                "unit_s": [plain, plain_wall],
                "apart_s": [kept, kept_wall],
                "percent_of_unit": 100.0 * kept / plain,
                "percent_of_unit_wall": 100.0 * kept_wall / plain_wall,
                "folds_per_round_s": [folds, folds_wall],
            }
        )
    )


if __name__ == "__main__":
    main()
