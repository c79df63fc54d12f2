"""The pages keep their own advice: no code that states a guarantee draws from a generator that a seed makes a constant."""

import ast
import json
import pathlib
import re

import pytest

REPOSITORY = pathlib.Path(__file__).parents[2]
# Folders of builds and of other people's programs.
SKIPPED = {"target", "node_modules", ".git", "venv"}
DRAWS = {
    "rand", "randn", "randint", "randperm", "rand_like", "randn_like", "randint_like", "normal", "bernoulli", "multinomial", "poisson",
    "normal_", "uniform_", "exponential_", "cauchy_", "log_normal_", "bernoulli_", "random_", "geometric_",
}  # fmt: skip
SEEDS = {"manual_seed", "set_seed", "seed_everything", "set_random_seed"}
OWN = {"default_rng", "Generator", "SeedSequence", "PCG64", "Philox", "RandomState", "Random", "SystemRandom"}


def dotted(node):
    """`torch.randn` of `torch.randn(3)`; a part that is no name is a question mark."""
    if isinstance(node, ast.Attribute):
        return [*dotted(node.value), node.attr]
    return [node.id if isinstance(node, ast.Name) else "?"]


def global_draws(code):
    """Calls that draw from a global generator of a framework, or seed it."""
    for node in ast.walk(ast.parse(code)):
        if not isinstance(node, ast.Call) or any(keyword.arg == "generator" for keyword in node.keywords):
            continue
        path = dotted(node.func)
        name, owner = path[-1], ".".join(path[:-1])
        is_torch = name in DRAWS and (owner in ("", "torch", "torch.nn.init", "nn.init") or name.endswith("_"))
        is_numpy = owner in ("np.random", "numpy.random") and name not in OWN
        is_random = owner == "random" and name not in OWN
        is_seed = name in SEEDS and (owner in ("", "torch", "torch.cuda") or "utils" in owner or owner == "transformers")
        if is_torch or is_numpy or is_random or is_seed or owner == "tf.random":
            yield ".".join(path)


def blocks(path):
    """The Python code of a page or a notebook."""
    text = path.read_text()
    if path.suffix == ".ipynb":
        return ["".join(cell["source"]) for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    return re.findall(r"^```(?:python|py)\n(.*?)^```", text, flags=re.M | re.S)


def pages():
    found = [path for kind in ("*.md", "*.ipynb") for path in REPOSITORY.rglob(kind)]
    return sorted(path for path in found if not SKIPPED & set(path.relative_to(REPOSITORY).parts))


def states_a_guarantee(text):
    return re.search(r"epsilon|guarantee|\beps\b", text, flags=re.I) is not None


def test_no_page_has_noise_of_a_global_generator_beside_a_guarantee():
    looked_at = 0
    for page in pages():
        if not states_a_guarantee(page.read_text()):
            continue
        for code in blocks(page):
            looked_at += 1
            assert list(global_draws(code)) == [], f"{page}: a seed makes these draws a constant"
    assert looked_at > 20


@pytest.mark.parametrize(
    "code",
    [
        "noise = torch.randn_like(sum_) * (noise_multiplier * clip_norm)",
        "torch.manual_seed(0)",
        "transformers.set_seed(42)",
        "weight.grad.add_(torch.normal(0.0, 1.0, (3,)))",
        "weight.grad.normal_()",
        "x = np.random.standard_normal(5)",
        "x = [random.gauss(0, 1) for _ in range(3)]",
        "from torch import randn\nx = randn(3)",
    ],
)
def test_a_draw_of_a_global_generator_is_recognised(code):
    assert list(global_draws(code))


@pytest.mark.parametrize(
    "code",
    [
        "x = torch.randn(3, generator=torch.Generator().manual_seed(0))",
        "x = np.random.default_rng().normal(size=3)",
        "x = jax.random.normal(key, (3,))",
        "x = random.SystemRandom().gauss(0, 1)",
    ],
)
def test_a_generator_of_ones_own_is_recognised(code):
    assert list(global_draws(code)) == []
