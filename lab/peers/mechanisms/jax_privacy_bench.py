"""CPU seconds of jax-privacy on the questions of `undertone-lab bench mechanisms` and `noise`: one RESULT {json} line for each.

usage: python jax_privacy_bench.py [--repeats 3] [--limit 180] [--only NAME]

CPU time of the whole process (time.process_time, all threads) around one answer, imports outside. An optimisation jits its
step anew in every call, so that warm calls compile too: `one_step_cpu_s` is a warm call that ends after its first step, and
shows how much of the whole is tracing and compiling. `within_1e-6_cpu_s` is the time in the first call, compiling included,
until the loss is within 1e-6 of where that call ends: the BLT optimiser takes its 600 steps whatever they bring.
"""
import argparse
import json
import math
import os
import statistics
import time
from importlib.metadata import version

import jax
import jax.numpy as jnp
from jax_privacy import noise_addition
from jax_privacy.matrix_factorization import banded, buffered_toeplitz, toeplitz


class Budget:
    """A callback for optimisers: keeps the losses of steps and ends after a number of steps or of CPU seconds."""

    def __init__(self, limit, most_steps=None):
        self.start = time.process_time()
        self.limit = limit
        self.most_steps = most_steps
        self.trace = []
        self.stopped = False

    def __call__(self, step):
        seconds = time.process_time() - self.start
        self.trace.append((seconds, float(step.loss)))
        self.stopped = seconds > self.limit
        return self.stopped or len(self.trace) == self.most_steps

    def arrival(self, tolerance=1e-6):
        """CPU seconds until the first step whose loss is as low as the last one's, but for the tolerance."""
        if not self.trace:
            return None
        enough = self.trace[-1][1] * (1 + tolerance)
        return round(next(seconds for seconds, loss in self.trace if loss <= enough), 3)


def blt(rounds, min_sep, most):
    """Maximal loss of the best BLT of four buffers."""
    loss = buffered_toeplitz.LossFn.build_min_sep(n=rounds, error="max", min_sep=min_sep, max_participations=most)

    def answer(budget):
        return buffered_toeplitz.optimize_loss(loss_fn=loss, num_buffers=4, callback=budget)[1]

    return answer


def band_toep(rounds, bands, most):
    """Root mean square loss of the best banded Toeplitz matrix; the library's function takes no callback."""

    def answer(budget):
        steps = {} if budget.most_steps is None else {"max_optimizer_steps": budget.most_steps}
        coefficients = toeplitz.optimize_banded_toeplitz(rounds, bands, **steps)
        with jax.enable_x64():
            coefficients = jnp.asarray(coefficients, jnp.float64)
            errors = toeplitz.per_query_error(strategy_coef=coefficients, n=rounds)
            squared_sensitivity = most * coefficients @ coefficients
            return errors.mean() * squared_sensitivity

    return answer


def band_mf(rounds, bands, most):
    """Root mean square loss of the best banded matrix of unit columns, its scan checkpointed as the library offers."""

    def answer(budget):
        matrix = banded.optimize(rounds, bands=bands, scan_fn="equinox", callback=budget)
        return banded.per_query_error(matrix).mean() * most

    return answer


OPTIMISATIONS = {
    "blt-4-n2000": blt(2000, 400, 5),
    "band-toep-400-n2000": band_toep(2000, 400, 5),
    "blt-4-n200000": blt(200_000, 1000, 20),
    "band-mf-342-n2052": band_mf(2052, 342, 6),
}
# Asked for by name only: the limit is looked at between steps, and a step of this one may take longer.
BY_NAME = {"band-mf-342-n2052"}
LONG = {"blt-4-n200000", "band-mf-342-n2052"}


def measure(work):
    start = time.process_time()
    value = work()
    return value, time.process_time() - start


def optimisation(name, answer, repeats, limit):
    def once(most_steps=None):
        budget = Budget(limit, most_steps)
        loss, seconds = measure(lambda: math.sqrt(answer(budget)))
        return loss, seconds, budget

    loss, first, budget = once()
    fields = {"question": name, "loss": loss, "first_cpu_s": round(first, 3), "stopped": budget.stopped}
    fields |= {"steps": len(budget.trace) or None, "within_1e-6_cpu_s": budget.arrival()}
    if name not in LONG:
        warm = [once()[1] for _ in range(repeats)]
        fields["cpu_s"] = round(statistics.median(warm), 3)
        fields["cpu_s_all"] = [round(seconds, 3) for seconds in warm]
    if not budget.stopped:
        fields["one_step_cpu_s"] = round(once(most_steps=1)[1], 3)
    return fields


def blt_noise():
    matrix = buffered_toeplitz.BufferedToeplitz.build(
        buf_decay=[0.999_99, 0.99, 0.9, 0.4], output_scale=[0.03, 0.06, 0.12, 0.25], dtype=jnp.float32)
    return matrix.inverse_as_streaming_matrix()


def bands_noise():
    return toeplitz.inverse_as_streaming_matrix(toeplitz.optimal_max_error_strategy_coefs(400))


def ring_noise():
    matrix = banded.ColumnNormalizedBanded.from_banded_toeplitz(2048, toeplitz.optimal_max_error_strategy_coefs(400))
    return matrix.inverse_as_streaming_matrix()


# Matrix, coordinates, rounds of a repeat.
STREAMS = {
    "blt-4-stream": (blt_noise, 6_400_000, 16),
    "bands-400-stream": (bands_noise, 640_000, 4),
    "bands-400-stream-ring": (ring_noise, 640_000, 4),
}


def stream(name, matrix, dim, rounds, repeats):
    """Rounds of the library's privatizer on a zero gradient: one jitted update a round, state donated to it."""
    privatizer = noise_addition.matrix_factorization_privatizer(matrix(), stddev=1.0, prng_key=7, dtype=jnp.float32)
    gradient = jnp.zeros(dim, jnp.float32)
    state = privatizer.init(gradient)
    update = jax.jit(privatizer.update, donate_argnums=1)

    def work():
        nonlocal state
        for _ in range(rounds):
            row, state = update(gradient, state)
        return row.block_until_ready()

    _, first = measure(work)
    seconds = [measure(work)[1] for _ in range(repeats)]
    return {
        "item": name,
        "count": rounds * dim,
        "dim": dim,
        "first_cpu_s": round(first, 3),
        "cpu_s": round(statistics.median(seconds), 3),
        "cpu_s_all": [round(second, 3) for second in seconds],
        "msamples_per_cpu_s": round(rounds * dim / statistics.median(seconds) / 1e6, 2),
    }


def report(fields):
    print("RESULT", json.dumps({
        "name": "jax-privacy",
        "version": version("jax-privacy"),
        "jax": jax.__version__,
        **fields,
        "load_1m": os.getloadavg()[0],
    }), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--limit", type=float, default=180.0, help="CPU seconds after which an optimisation is ended")
    parser.add_argument("--only", choices=[*OPTIMISATIONS, *STREAMS])
    arguments = parser.parse_args()
    for name, answer in OPTIMISATIONS.items():
        if arguments.only == name or (arguments.only is None and name not in BY_NAME):
            report(optimisation(name, answer, arguments.repeats, arguments.limit))
    for name, (matrix, dim, rounds) in STREAMS.items():
        if arguments.only in (None, name):
            report(stream(name, matrix, dim, rounds, arguments.repeats))


if __name__ == "__main__":
    main()
