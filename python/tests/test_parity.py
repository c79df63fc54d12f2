"""Python and the command line answer random questions with equal digits, and refuse them with equal words."""

import json
import os
import pathlib
import random
import shutil
import subprocess

import pytest
import undertone_dp as udp

ROOT = pathlib.Path(__file__).parents[2]
QUESTIONS = 200
RECIPES = {"pld": "pld", "rdp": "rdp", "zcdp": "zcdp", "exact-gaussian": "gaussian", "moments-2016": "moments-2016"}
RELATIONS = {"add-or-remove-one": "add-or-remove", "replace-one": "replace-one", "zero-out": "zero-out"}


def binary():
    named = os.environ.get("UNDERTONE_CLI")
    built = [ROOT / "target" / profile / "undertone" for profile in ("release", "debug")]
    found = [path for path in built if path.exists()]
    return named or (str(max(found, key=lambda path: path.stat().st_mtime)) if found else shutil.which("undertone"))


def random_event(draw):
    z, q = draw.uniform(0.5, 8.0), 10 ** draw.uniform(-4, -0.5)
    return draw.choice(
        [
            lambda: udp.Event.PoissonGaussian(sampling_probability=q, noise_multiplier=z),
            lambda: udp.Event.Gaussian(noise_multiplier=z),
            lambda: udp.Event.FixedSizeGaussian(
                population=10_000, cohort_size=draw.randint(1, 500), noise_multiplier=z
            ),
            lambda: udp.Event.TruncatedPoissonGaussian(
                population=1000, sampling_probability=q, max_cohort_size=draw.randint(1, 1000), noise_multiplier=z
            ),
            lambda: udp.Event.ExampleLevelSampling(
                group_size=draw.randint(1, 8), sampling_probability=q, noise_multiplier=z
            ),
            lambda: udp.Event.MixtureOfGaussians(
                noise_multiplier=z, sensitivities=[0.0, 1.0, 2.0], probabilities=[1 - q, q / 2, q / 2]
            ),
            lambda: udp.Event.CorrelatedGaussian(sensitivity_squared=draw.uniform(1, 9), noise_multiplier=z),
            lambda: udp.Event.Laplace(scale=4 * z),
            lambda: udp.Event.DiscreteLaplace(parameter=1 / (4 * z), sensitivity=draw.randint(1, 3)),
            lambda: udp.Event.DiscreteGaussian(sigma=3 * z, sensitivity=draw.randint(1, 3)),
            lambda: udp.Event.RandomizedResponse(num_buckets=draw.randint(2, 20), noise_parameter=draw.uniform(0.5, 0.9)),
            lambda: udp.Event.PoissonSampled(sampling_probability=q, event=udp.Event.Laplace(scale=z)),
            lambda: udp.Event.ZeroConcentrated(rho=draw.uniform(0, 0.1), xi=draw.choice([0.0, 0.01])),
            lambda: udp.Event.BoundedRange(epsilon=draw.uniform(0, 0.5)),
            lambda: udp.Event.ApproximateDp(epsilon=draw.uniform(0, 0.5), delta=draw.choice([None, 1e-12])),
        ]
    )()


def toml(value):
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {toml(inner)}" for key, inner in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return json.dumps(value)


def table(event, count):
    fields = {key: value for key, value in json.loads(event.to_json()).items() if value is not None}
    return "[[event]]\n" + "".join(f"{key} = {toml(value)}\n" for key, value in (fields | {"count": count}).items())


@pytest.mark.skipif(binary() is None, reason="no binary of the command line is at hand")
@pytest.mark.parametrize("seed", range(QUESTIONS))
def test_python_and_the_command_line_agree(seed, tmp_path):
    draw = random.Random(seed)
    entries = [(random_event(draw), draw.randint(1, 300)) for _ in range(draw.choice([1, 1, 2]))]
    recipe = draw.choice(["pld", "pld", *RECIPES])
    adjacency = draw.choice([None, None, *RELATIONS])
    delta = 10 ** draw.uniform(-12, -3)
    file = tmp_path / "events.toml"
    file.write_text("".join(table(event, count) for event, count in entries))
    command = [binary(), "--json", "account", "compose", str(file), "--delta", repr(delta)]
    command += ["--recipe", RECIPES[recipe]]
    command += ["--adjacency", RELATIONS[adjacency]] if adjacency else []
    shown = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        accountant = udp.Accountant(recipe, adjacency=adjacency)
        for event, count in entries:
            accountant.compose(event, count)
        guarantee = accountant.guarantee(delta)
    except udp.AccountingError as error:
        assert shown.returncode != 0 and str(error) in " ".join(shown.stderr.split()), (shown.stdout, shown.stderr)
        return
    assert shown.returncode == 0, shown.stderr
    answer = json.loads(shown.stdout)
    assert answer["epsilon"] == guarantee.epsilon
    assert (answer["adjacency"], answer["recipe"]) == (guarantee.adjacency, guarantee.recipe)
    assert answer["sampling"] == guarantee.sampling
    if answer["epsilon_lower_bound"] is not None:
        assert answer["epsilon_lower_bound"] == accountant.lower_bound(delta)
