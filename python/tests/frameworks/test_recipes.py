"""The recipes in `docs/recipes` run, each where its packages are installed."""

import pathlib

import numpy as np
import pytest

RECIPES = pathlib.Path(__file__).parents[3] / "docs" / "recipes"
PACKAGES = {
    "flower": ["flwr"],
    "from-opacus": ["torch"],
    "hf-trainer": ["torch", "transformers", "accelerate"],
    "jax-privacy": ["jax", "optax"],
    "pfl": ["pfl"],
}


def run(name, folder, monkeypatch):
    for package in PACKAGES[name]:
        pytest.importorskip(package, reason=f"{package} is not installed")
    monkeypatch.chdir(folder)
    text = (RECIPES / f"{name}.md").read_text()
    parts = text.split("```python\n")[1:]
    assert parts and len(text.splitlines()) <= 60
    scope = {}
    for number, part in enumerate(parts, 1):
        exec(compile(part.split("```")[0], f"{name}.md, block {number}", "exec"), scope)
    return scope


@pytest.mark.parametrize("name", sorted(set(PACKAGES) - {"flower", "jax-privacy"}))
def test_a_recipe_runs(name, tmp_path, monkeypatch):
    run(name, tmp_path, monkeypatch)


def test_no_recipe_is_left_out():
    assert {page.stem for page in RECIPES.glob("*.md")} == set(PACKAGES)


def test_the_flower_strategy_bounds_what_clients_send(tmp_path, monkeypatch):
    scope = run("flower", tmp_path, monkeypatch)
    from flwr.common import Code, FitRes, Status, ndarrays_to_parameters, parameters_to_ndarrays

    strategy, mechanism = scope["strategy"], scope["mechanism"]

    class Manager:
        def all(self):
            return {f"client {index:03}": index for index in range(100)}

    drawn = [client for client, _ in strategy.configure_fit(1, ndarrays_to_parameters(scope["weights"]), Manager())]
    assert len(set(drawn)) == 10 and set(drawn) <= set(range(100))

    def reply(value):
        layers = ndarrays_to_parameters([np.full((4, 2), value, np.float32), np.full(2, value, np.float32)])
        return None, FitRes(Status(Code.OK, ""), layers, 1, {})

    import undertone_dp as udp

    key = udp.NoiseKey.insecure_seed(1)
    strategy.noise = mechanism.noise(10, clip_norm=0.5, key=key)
    parameters, _ = strategy.aggregate_fit(1, [reply(1e30), reply(np.nan), reply(1.0)], [])
    moved = np.concatenate([layer.ravel() for layer in parameters_to_ndarrays(parameters)])
    row = np.zeros(10, np.float32)
    mechanism.noise(10, clip_norm=0.5, key=key).next_into(row)
    # Two clients move the sum by their bound, the third by nothing.
    assert np.linalg.norm(10 * moved - row) == pytest.approx(1.0, rel=1e-4)


def test_the_jax_recipe_installs_the_accountant(tmp_path):
    for package in PACKAGES["jax-privacy"]:
        pytest.importorskip(package, reason=f"{package} is not installed")
    # In a process of its own: the installed name would serve the other tests too.
    import subprocess
    import sys

    code = "".join(part.split("```")[0] for part in (RECIPES / "jax-privacy.md").read_text().split("```python\n")[1:])
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    with_memory, without = (float(loss) for loss in done.stdout.split()[-2:])
    assert np.isfinite([with_memory, without]).all()
