"""The recipes in `docs/recipes` run, each where its packages are installed."""

import pathlib
import subprocess
import sys

import numpy as np
import pytest

DOCS = pathlib.Path(__file__).parents[3] / "docs"
RECIPES = DOCS / "recipes"
# What a recipe releases, printed in the last line: noise alone, where nobody contributes.
RELEASES = {
    "flower": """
nobody = type("Nobody", (), {"all": lambda self: {}})()
strategy.configure_fit(1, None, nobody)
strategy.aggregate_fit(1, [], [])
print([layer.tolist() for layer in strategy.weights])
""",
    "from-opacus": "print(draw().tolist())",
    "from-pytorch": "import numpy\nprint({name: numpy.ravel(values)[:9].tolist() for name, values in run.weights().items()})",
    "jax-privacy": "",
    "pfl": "print([weight.tolist() for weight in noised.get_weights()[1]])",
}
PACKAGES = {
    "flower": ["flwr"],
    "from-opacus": ["torch"],
    "jax-privacy": ["jax", "optax"],
    "pfl": ["pfl"],
    "sql": ["duckdb", "polars", "pyarrow"],
}


def run(name, folder, monkeypatch):
    for package in PACKAGES[name]:
        pytest.importorskip(package, reason=f"{package} is not installed")
    text = (RECIPES / f"{name}.md").read_text()
    assert len(text.splitlines()) <= 60
    return run_page(name, text, folder, monkeypatch)


def run_page(name, text, folder, monkeypatch):
    monkeypatch.chdir(folder)
    parts = text.split("```python\n")[1:]
    assert parts
    scope = {}
    for number, part in enumerate(parts, 1):
        exec(compile(part.split("```")[0], f"{name}.md, block {number}", "exec"), scope)
    return scope


@pytest.mark.parametrize("name", sorted(set(PACKAGES) - {"flower", "jax-privacy", "sql"}))
def test_a_recipe_runs(name, tmp_path, monkeypatch):
    run(name, tmp_path, monkeypatch)


def test_the_guide_from_pytorch_runs_and_its_model_learns(tmp_path, monkeypatch):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    scope = run_page("from-pytorch", (DOCS / "guide" / "from-pytorch.md").read_text(), tmp_path, monkeypatch)
    model = scope["make_model"]()
    mean = lambda: np.mean([scope["loss_of"](model, *rows).item() for rows in scope["people"]])
    before = mean()
    model.load_state_dict({name: torch.tensor(np.array(values)) for name, values in scope["run"].weights().items()})
    assert mean() < 0.8 * before


@pytest.mark.parametrize("block", [0, 1])
def test_the_queries_give_the_posts_of_those_who_take_part(block, tmp_path, monkeypatch):
    for package in PACKAGES["sql"]:
        pytest.importorskip(package, reason=f"{package} is not installed")
    import pyarrow.parquet
    import undertone_dp as udp

    monkeypatch.chdir(tmp_path)
    # 2,000 posts of 50 people with two accounts each, ten of whom opted out; the accounts of one row have no person.
    posts = [f"account {n % 100},post number {n},2026-01-01T00:{n // 60 % 60:02}:{n % 60:02}" for n in range(2000)]
    pathlib.Path("posts.csv").write_text("\n".join(["account,body,created", *posts]))
    people = [f"account {n},person {n % 50},{'true' if n % 50 < 10 else 'false'}" for n in range(100)]
    pathlib.Path("people.csv").write_text("\n".join(["account,person,opted_out", *people]))
    code = (RECIPES / "sql.md").read_text().split("```python\n")[1:][block].split("```")[0]
    code = code.replace("s3://forum", ".")
    exec(compile(code, "sql.md", "exec"), {})
    rows = pyarrow.parquet.read_table("rows.parquet")
    assert rows.num_rows == 1600

    def corpus():
        words = {"kind": "training_data", "size": 8}
        table = pyarrow.parquet.read_table("rows.parquet")
        return udp.Corpus.from_table(table, user="user_id", text="text", time="timestamp", vocabulary=words)

    assert len(set(rows["user_id"].to_pylist())) == 40 and corpus()
    people[77] = "account 77,,false"
    pathlib.Path("people.csv").write_text("\n".join(["account,person,opted_out", *people]))
    exec(compile(code, "sql.md", "exec"), {})
    with pytest.raises(ValueError, match="row"):
        corpus()


def test_no_recipe_is_left_out():
    assert {page.stem for page in RECIPES.glob("*.md")} == set(PACKAGES)
    # The recipe for SQL releases nothing.
    assert set(RELEASES) == {*PACKAGES, "from-pytorch"} - {"sql"}


@pytest.mark.parametrize("name", sorted(RELEASES))
def test_two_fresh_processes_release_different_values(name, tmp_path):
    for package in PACKAGES.get(name, ["torch"]):
        pytest.importorskip(package, reason=f"{package} is not installed")
    page = DOCS / ("guide" if name == "from-pytorch" else "recipes") / f"{name}.md"
    released = set()
    for number in range(2):
        folder = tmp_path / str(number)
        folder.mkdir()
        released.add(in_a_fresh_process(page, RELEASES[name], folder).splitlines()[-1])
    assert len(released) == 2, f"{name}: {released}"


def in_a_fresh_process(page, code, folder):
    """What the code of a page prints, followed by `code`."""
    parts = [part.split("```")[0] for part in page.read_text().split("```python\n")[1:]]
    program = "\n".join([*parts, code])
    done = subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_the_flower_strategy_trains_in_a_session(tmp_path, monkeypatch):
    scope = run("flower", tmp_path, monkeypatch)
    from flwr.common import Code, FitRes, Status, ndarrays_to_parameters, parameters_to_ndarrays
    from flwr.server import Server, SimpleClientManager
    from flwr.server.client_proxy import ClientProxy

    class Client(ClientProxy):
        """A client that moves every weight by a half, but for one that sends nonsense."""

        rounds = 0

        def fit(self, ins, timeout, group_id):
            self.rounds += 1
            layers = [layer + np.float32(0.5) for layer in parameters_to_ndarrays(ins.parameters)]
            if self.cid == "client 007":
                layers = layers[:1]
            return FitRes(Status(Code.OK, ""), ndarrays_to_parameters(layers), 1, {})

        def get_properties(self, ins, timeout, group_id):
            raise NotImplementedError

        get_parameters = evaluate = reconnect = get_properties

    session, names, strategy = scope["session"], scope["names"], scope["strategy"]
    manager = SimpleClientManager()
    clients = [Client(name) for name in names if name != "client 003"]
    for client in clients:
        manager.register(client)
    Server(client_manager=manager, strategy=strategy).fit(num_rounds=20, timeout=None)
    assert session.round == 20 and {client.rounds for client in clients} == {2}
    finished = session.finish(dict(zip(["w", "b"], strategy.weights)))
    assert finished.verify().holds and finished.guarantee.epsilon <= session.planned.epsilon
    assert len(finished.ledger) == 20


def test_the_flower_strategy_bounds_what_clients_send(tmp_path, monkeypatch):
    scope = run("flower", tmp_path, monkeypatch)
    from flwr.common import Code, FitRes, Status, ndarrays_to_parameters, parameters_to_ndarrays

    import undertone_dp as udp

    # Noise too small to matter.
    config = scope["config"] | {"name": "quiet", "privacy": scope["config"]["privacy"] | {"noise_multiplier": 1e-5}}
    session = udp.Session.create("runs", config, users=100, dim=10)
    strategy = scope["Private"](session, scope["names"], [np.zeros((4, 2), np.float32), np.zeros(2, np.float32)])

    class Client:
        def __init__(self, cid):
            self.cid = cid

    class Manager:
        def all(self):
            return {name: Client(name) for name in scope["names"]}

    drawn = [client for client, _ in strategy.configure_fit(1, strategy.initial_parameters, Manager())]
    assert len({client.cid for client in drawn}) == 10

    def reply(client, value, shape=(4, 2)):
        layers = ndarrays_to_parameters([np.full(shape, value, np.float32), np.full(2, value, np.float32)])
        return client, FitRes(Status(Code.OK, ""), layers, 1, {})

    values = [reply(drawn[0], 1e30), reply(drawn[1], np.nan), reply(drawn[2], 1.0), reply(drawn[3], 1.0, shape=(3, 2))]
    parameters, _ = strategy.aggregate_fit(1, [*values, reply(drawn[2], 1.0)], [])
    moved = np.concatenate([layer.ravel() for layer in parameters_to_ndarrays(parameters)])
    # Two clients move the average of ten by their bound of a half; the others, and what a client sends twice, by nothing.
    assert np.linalg.norm(moved) == pytest.approx(0.1, rel=1e-2)


def test_the_jax_recipe_installs_the_accountant(tmp_path):
    for package in PACKAGES["jax-privacy"]:
        pytest.importorskip(package, reason=f"{package} is not installed")
    # In a process of its own: the installed name would serve the other tests too.
    with_memory, without = (float(loss) for loss in in_a_fresh_process(RECIPES / "jax-privacy.md", "", tmp_path).split()[-2:])
    assert np.isfinite([with_memory, without]).all()
