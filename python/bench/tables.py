"""Time to read a corpus from a table in memory, beside the time from a Parquet file of the same rows.

    python bench/tables.py --cli ../target/release/undertone     # needs pyarrow, and numpy to draw the rows

CPU and wall seconds of the corpus alone, median of the repeats, which take turns. The command line reads the file without a cache; its
time has the start of a process. All must find the same users and tokens.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import resource
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable

import numpy
import pyarrow
import pyarrow.parquet
import undertone_dp as udp

SETTINGS = {
    "vocabulary": {"kind": "training_data", "size": 10_000},
    "split": {"kind": "held_out_users", "validation": 0.05, "test": 0.05},
}
CONFIG = """
name = "table"
rounds = 1
model = {{ family = "dplm", embed = 4, hidden = 4 }}
cohort = {{ users_per_round = 100 }}
user_update = {{ batch_size = 4, learning_rate = 0.5 }}
[data]
source = {{ kind = "parquet", path = {path}, user = "user", text = "text" }}
vocabulary = {{ kind = "training_data", size = 10000 }}
split = {{ kind = "held_out_users", validation = 0.05, test = 0.05 }}
"""


def rows(count: int) -> pyarrow.Table:
    """Texts of 12 words by Zipf's law, of one user in twenty rows on average."""
    draw = numpy.random.default_rng(1)
    words = numpy.array([f"w{index:x}" for index in range(20_000)], dtype=object)
    chosen = numpy.minimum(draw.zipf(1.3, (count, 12)), len(words)) - 1
    texts = [" ".join(line) for line in words[chosen]]
    users = [f"u{user}" for user in draw.integers(0, count // 20, count)]
    return pyarrow.table({"user": users, "text": texts})


def counts(corpus: udp.Corpus) -> tuple[int, int]:
    return corpus.users, corpus.tokens


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--cli", help="the program undertone")
    arguments = parser.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp())
    table, file = rows(arguments.rows), folder / "rows.parquet"
    pyarrow.parquet.write_table(table, file)
    lists = table.to_pydict()
    (folder / "run.toml").write_text(CONFIG.format(path=json.dumps(str(file))))
    print(f"{arguments.rows} rows: {file.stat().st_size / 1e6:.0f} MB of Parquet, {table.nbytes / 1e6:.0f} MB in memory")

    def corpus(made: object) -> tuple[int, int]:
        return counts(udp.Corpus.from_table(made, user="user", text="text", **SETTINGS))

    def by_command() -> tuple[int, int]:
        command = [arguments.cli, "data", "stats", "--json", "--config", str(folder / "run.toml")]
        with tempfile.TemporaryDirectory() as cache:
            done = subprocess.run([*command, "--cache-dir", cache], check=True, capture_output=True, text=True)
        train = json.loads(done.stdout)["stats"]["train"]
        return train["users"], train["tokens"]

    ways: dict[str, Callable[[], tuple[int, int]]] = {
        "a table of pyarrow": lambda: corpus(table),
        "the Parquet file, read by pyarrow into a table": lambda: corpus(pyarrow.parquet.read_table(file)),
        "a dict of lists": lambda: corpus(lists),
        "`udp.Table`, made before": lambda ready=udp.Table.of(lists): corpus(ready),
    }
    if arguments.cli:
        ways = {"the Parquet file, read by the command line": by_command, **ways}
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    found = set()
    for _ in range(arguments.repeats):
        for name, way in ways.items():
            cpu, wall = seconds(), time.perf_counter()
            found.add(way())
            taken[name].append((seconds() - cpu, time.perf_counter() - wall))
    assert len(found) == 1, found
    for name, times in taken.items():
        cpu, wall = (statistics.median(column) for column in zip(*times))
        print(f"{name}: {cpu:.2f} CPU seconds, {wall:.2f} wall seconds ({min(times)[0]:.2f} to {max(times)[0]:.2f})")


def seconds() -> float:
    """CPU seconds of this process and of those it waited for."""
    own, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


if __name__ == "__main__":
    main()
