"""Mutations of honest files, read by `undertone data import` and by independent readers.

A mutant is one honest file with one to three small changes: a byte flipped, removed, doubled or swapped, the file cut, or a quote, a
separator or a line end moved to another place. In the honest file each text begins with the name of its user and ends with
the number of its row. A mutant may be refused.
If it is accepted, no row may stand under another user than its text says, unless an independent reader gives the same rows.

Usage: mutations.py --program undertone [--readers csv,tsv,jsonl,json,parquet,arrow,stream,sqlite] [--mutants 10000] [--seed 1] [--jobs 2]

The packages duckdb, pandas, polars and pyarrow are needed. The exit status is 1 if a row stands under another user, if fewer than a tenth of
the mutants are accepted by both sides, or, in a format of text, if fewer than a twentieth are accepted by both and move a mark.
"""

import argparse
import csv
import io
import json
import multiprocessing
import os
import random
import re
import sqlite3
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from dataclasses import dataclass
from typing import Callable

import duckdb
import pandas
import polars
import pyarrow
import pyarrow.parquet

# It cuts rows that are too long, and says so in a warning alone.
warnings.simplefilter("error", pandas.errors.ParserWarning)

Rows = list[tuple[str, str]]

USERS = [f"u{number:02}" for number in range(7)]
TEXTS = [
    "says hello to everybody there",
    'is 5" tall, and says "so", twice',
    "wrote: first, second; third",
    "has two\nlines of text",
    "asks: why, \"really\"?",
    "likes commas,,, and tabs\tand more",
    "counts [1, 2, 3] and {4: 5}",
    "ends here",
]


def honest_rows(rows: int) -> Rows:
    """Rows of several users in mixed order."""
    chooser = random.Random(7)
    users = [chooser.choice(USERS) for _ in range(rows)]
    return [(user, f"{user} {TEXTS[place % len(TEXTS)]} {place}") for place, user in enumerate(users)]


def honest_table(delimiter: str) -> bytes:
    out = io.StringIO(newline="")
    writer = csv.writer(out, delimiter=delimiter, lineterminator="\n")
    writer.writerow(["user_id", "n", "text"])
    for place, (user, text) in enumerate(honest_rows(24)):
        writer.writerow([user, place, text])
    return out.getvalue().encode()


def honest_objects() -> list[dict]:
    return [
        {"n": place, "user_id": user, "x": {"user_id": "no", "y": [1, None, "}"]}, "text": text}
        for place, (user, text) in enumerate(honest_rows(24))
    ]


def honest_lines() -> bytes:
    return "\n".join(json.dumps(row) + ("\n" if row["n"] % 3 == 0 else "") for row in honest_objects()).encode()


def honest_array() -> bytes:
    return json.dumps(honest_objects(), indent=1).encode()


def of_table(users: list, texts: list) -> Rows:
    if any(not isinstance(value, str) for value in users + texts) or "" in users:
        raise ValueError("a value is missing")
    return list(zip(users, texts))


def of_objects(objects: list) -> Rows:
    rows = []
    for row in objects:
        user, text = row["user_id"], row.get("text")
        text = "" if text is None or text != text else text
        if isinstance(user, bool) or not isinstance(user, (str, int, float)) or user == "" or not isinstance(text, str):
            raise ValueError("another type")
        if isinstance(user, float):
            if user != int(user):
                raise ValueError("not a whole number")
            user = int(user)
        rows.append((str(user), text))
    return rows


def by_python(data: bytes, delimiter: str) -> Rows:
    lines = csv.reader(io.StringIO(data.decode(), newline=""), delimiter=delimiter, strict=True)
    header, *body = [line for line in lines if line]
    if any(len(line) != len(header) for line in body):
        raise ValueError("another number of fields")
    user, text = header.index("user_id"), header.index("text")
    return of_table([line[user] for line in body], [line[text] for line in body])


def by_pandas(data: bytes, delimiter: str) -> Rows:
    table = pandas.read_csv(io.BytesIO(data), sep=delimiter, dtype=str, keep_default_na=False, index_col=False)
    return of_table(list(table["user_id"]), list(table["text"]))


def by_polars(data: bytes, delimiter: str) -> Rows:
    table = polars.read_csv(
        data, separator=delimiter, infer_schema=False, missing_utf8_is_empty_string=True, truncate_ragged_lines=False
    )
    return of_table(list(table["user_id"]), list(table["text"]))


def lines_by_python(data: bytes) -> Rows:
    lines = data.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    return of_objects([json.loads(line) for line in lines if line.strip(b" \t\r\n")])


def lines_by_pandas(data: bytes) -> Rows:
    table = pandas.read_json(io.BytesIO(data), lines=True, dtype=False)
    return of_table(list(table["user_id"]), list(table["text"]))


def lines_by_polars(data: bytes) -> Rows:
    table = polars.read_ndjson(io.BytesIO(data), infer_schema_length=None)
    return of_table(list(table["user_id"]), list(table["text"]))


def array_by_python(data: bytes) -> Rows:
    objects = json.loads(data)
    if not isinstance(objects, list):
        raise ValueError("no array")
    return of_objects(objects)


def array_by_pandas(data: bytes) -> Rows:
    table = pandas.read_json(io.BytesIO(data), dtype=False)
    return of_table(list(table["user_id"]), list(table["text"]))


def array_by_polars(data: bytes) -> Rows:
    table = polars.read_json(io.BytesIO(data), infer_schema_length=None)
    return of_table(list(table["user_id"]), list(table["text"]))


def honest_columns() -> pyarrow.Table:
    users, texts = zip(*honest_rows(24))
    return pyarrow.table({"n": range(24), "user_id": list(users), "text": list(texts)})


def honest_parquet() -> bytes:
    out = io.BytesIO()
    pyarrow.parquet.write_table(honest_columns(), out, compression="none", use_dictionary=False, row_group_size=10)
    return out.getvalue()


def honest_arrow(opened: Callable) -> bytes:
    out = io.BytesIO()
    with opened(out, honest_columns().schema) as writer:
        writer.write_table(honest_columns(), max_chunksize=10)
    return out.getvalue()


def honest_database() -> bytes:
    with sqlite3.connect(":memory:") as database:
        database.execute("CREATE TABLE posts (n INTEGER PRIMARY KEY, user_id TEXT, text TEXT)")
        rows = [(place, *row) for place, row in enumerate(honest_rows(24))]
        database.executemany("INSERT INTO posts VALUES (?, ?, ?)", rows)
    return database.serialize()


def of_columns(table: pyarrow.Table) -> Rows:
    table.validate(full=True)
    users, texts = table["user_id"].to_pylist(), table["text"].to_pylist()
    return of_table(users, ["" if text is None else text for text in texts])


def parquet_by_pyarrow(data: bytes) -> Rows:
    return of_columns(pyarrow.parquet.read_table(io.BytesIO(data)))


def parquet_by_duckdb(data: bytes) -> Rows:
    # polars stands still for ever after some damaged files.
    with tempfile.NamedTemporaryFile(suffix=".parquet") as file:
        file.write(data)
        file.flush()
        rows = duckdb.execute("SELECT user_id, text FROM read_parquet(?)", [file.name]).fetchall()
        return of_table([user for user, _ in rows], ["" if text is None else text for _, text in rows])


def arrow_by_pyarrow(data: bytes) -> Rows:
    return of_columns(pyarrow.ipc.open_file(io.BytesIO(data)).read_all())


def stream_by_pyarrow(data: bytes) -> Rows:
    return of_columns(pyarrow.ipc.open_stream(io.BytesIO(data)).read_all())


QUERY = "SELECT user_id, text FROM posts"


def database_by_python(data: bytes) -> Rows:
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "posts.sqlite")
        with open(file, "wb") as out:
            out.write(data)
        database = sqlite3.connect(f"file:{file}?mode=ro", uri=True)
        try:
            rows = database.execute(QUERY).fetchall()
        finally:
            database.close()
    return of_table([row[0] for row in rows], ["" if row[1] is None else row[1] for row in rows])


@dataclass(frozen=True)
class Reader:
    """A reader of the program, with independent readers of its format."""

    suffix: str
    flag: str
    honest: Callable[[], bytes]
    marks: bytes
    others: dict[str, Callable[[bytes], Rows]]
    arguments: tuple[str, ...] = ()


READERS = {
    "csv": Reader(
        ".csv", "--csv", lambda: honest_table(","), b'",\n',
        {
            "csv": lambda data: by_python(data, ","),
            "pandas": lambda data: by_pandas(data, ","),
            "polars": lambda data: by_polars(data, ","),
        },
    ),
    "tsv": Reader(
        ".tsv", "--csv", lambda: honest_table("\t"), b'"\t\n',
        {
            "csv": lambda data: by_python(data, "\t"),
            "pandas": lambda data: by_pandas(data, "\t"),
            "polars": lambda data: by_polars(data, "\t"),
        },
    ),
    "jsonl": Reader(
        ".jsonl", "--jsonl", honest_lines, b'",:\n',
        {"json": lines_by_python, "pandas": lines_by_pandas, "polars": lines_by_polars},
    ),
    "json": Reader(
        ".json", "--jsonl", honest_array, b'",:\n',
        {"json": array_by_python, "pandas": array_by_pandas, "polars": array_by_polars},
    ),
    "parquet": Reader(
        ".parquet", "--parquet", honest_parquet, b"", {"pyarrow": parquet_by_pyarrow, "duckdb": parquet_by_duckdb}
    ),
    "arrow": Reader(
        ".arrow", "--arrow", lambda: honest_arrow(pyarrow.ipc.new_file), b"", {"pyarrow": arrow_by_pyarrow}
    ),
    "stream": Reader(
        ".arrow", "--arrow", lambda: honest_arrow(pyarrow.ipc.new_stream), b"", {"pyarrow": stream_by_pyarrow}
    ),
    "sqlite": Reader(
        ".sqlite", "--sqlite", honest_database, b"", {"sqlite3": database_by_python}, ("--query", QUERY)
    ),
}


def text_places(honest: bytes) -> list[int]:
    """The places of the letters of all texts, where a change does less harm."""
    places = []
    for text in TEXTS:
        for encoded in {text, json.dumps(text)[1:-1], text.replace('"', '""')}:
            start = honest.find(encoded.encode())
            while start >= 0:
                places += range(start, start + len(encoded))
                start = honest.find(encoded.encode(), start + 1)
    return places


def mutant(honest: bytes, marks: bytes, inside: list[int], chooser: random.Random) -> tuple[bytes, bool]:
    """A mutant, and whether it moves a quote, a separator or a line end and changes nothing else."""
    data = bytearray(honest)
    moves = bool(marks) and chooser.random() < 0.7
    marked = [place for place, byte in enumerate(data) if byte in marks]
    marked_inside = [place for place in inside if data[place] in marks]
    for _ in range(1 if moves else chooser.randint(1, 2)):
        if not data:
            break
        if moves:
            byte = data.pop(chooser.choice(marked_inside if chooser.random() < 0.6 else marked))
            data.insert(chooser.choice(inside) if chooser.random() < 0.7 else chooser.randrange(len(data) + 1), byte)
            continue
        places = [place for place, byte in enumerate(data) if byte in marks]
        place = chooser.choice(chooser.choice([places or inside, inside, range(len(data))]))
        place = min(place, len(data) - 1)
        match chooser.randrange(6):
            case 0:
                data[place] ^= 1 << chooser.randrange(8)
            case 1:
                del data[place]
            case 2:
                data.insert(place, data[place])
            case 3:
                other = min(chooser.choice(places or inside), len(data) - 1)
                data[place], data[other] = data[other], data[place]
            case 4:
                data.insert(place, chooser.choice(marks or b'\x00\x01az'))
            case _:
                if chooser.random() < 0.2:
                    del data[place:]
                else:
                    data[place] = chooser.randrange(256)
    return bytes(data), moves


def imported(program: str, reader: Reader, data: bytes, folder: str) -> Rows | None:
    """The rows that the program writes, `None` where it refuses."""
    source, output = os.path.join(folder, "in" + reader.suffix), os.path.join(folder, "out.parquet")
    with open(source, "wb") as file:
        file.write(data)
    command = [program, "data", "import", reader.flag, source, *reader.arguments, "--keep-user-ids", "--force", "-o", output]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode == 0:
        table = pyarrow.parquet.read_table(output)
        return list(zip(table["user_id"].to_pylist(), table["text"].to_pylist()))
    if done.returncode != 1 or "panicked" in done.stderr or source not in done.stderr:
        raise SystemExit(f"the program ended with {done.returncode}: {done.stderr}")
    return None


def with_text(rows: Rows) -> Rows:
    """Rows as an import writes them: without those that have no text, and in no order."""
    return sorted(row for row in rows if row[1].strip())


OWNERS = {place: user for place, (user, _) in enumerate(honest_rows(24))}


def is_own(user: str, text: str, name: str) -> bool:
    """Whether a text, or a piece of it, is one of this user and of nobody else.

    It holds no other user's name, and it begins with the user's name or ends with the number of a row of the user. A name that the
    mutation itself made is nobody else's. No sum is kept over the lengths in an Arrow file, and a mutant adds or takes away at most two
    bytes: so many of a neighbour's text may stand at the ends.
    """
    most = 3 if name in ("arrow", "stream") else 1
    pieces = [text[start : len(text) - end] for start in range(most) for end in range(most)]
    return any(is_own_exactly(user, piece) for piece in pieces)


def is_own_exactly(user: str, text: str) -> bool:
    names = set(re.findall(r"u0\d(?= )", text))
    if user not in USERS:
        return len(names) <= 1
    if names - {user}:
        return False
    if text.startswith(user + " ") or (user + " ").startswith(text):
        return True
    end = re.search(r"(\d+)\W*$", text)
    return end is not None and OWNERS.get(int(end[1])) == user


def judge(task: tuple[str, str, int, int]) -> tuple[Counter, list[str]]:
    program, name, seed, mutants = task
    reader, chooser = READERS[name], random.Random(seed)
    honest, counts, shown = reader.honest(), Counter(), []
    inside = text_places(honest)
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(mutants):
            data, moves = mutant(honest, reader.marks, inside, chooser)
            ours = imported(program, reader, data, folder)
            others: dict[str, Rows] = {}
            for other, read in reader.others.items():
                try:
                    others[other] = with_text(read(data))
                except (KeyboardInterrupt, SystemExit):
                    raise
                except BaseException:  # noqa: BLE001 - whatever another reader raises is a refusal; polars ends in panics
                    pass
            counts["accepted by the program"] += ours is not None
            counts["accepted by another reader"] += bool(others)
            if ours is None:
                continue
            ours = sorted(ours)
            equal = [other for other, rows in others.items() if rows == ours]
            counts["accepted by both"] += bool(others)
            counts["accepted by both, a mark moved"] += bool(others) and moves
            counts["accepted by both, rows equal to those of one reader or more"] += bool(equal)
            for other, rows in others.items():
                counts[f"accepted by both, rows unlike those of {other}"] += rows != ours
            strangers = [row for row in ours if not is_own(*row, name)]
            if strangers and not equal:
                counts["rows under another user"] += 1
                shown.append(f"under another user: {strangers[:2]!r} in {data!r}")
            elif others and not equal:
                shown.append(f"unlike every reader: {data!r}\n  {ours!r}\n  {others!r}")
    return counts, shown


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--readers", default=",".join(READERS))
    parser.add_argument("--mutants", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args()
    failed = False
    for name in args.readers.split(","):
        reader = READERS[name]
        with tempfile.TemporaryDirectory() as folder:
            honest = imported(args.program, reader, reader.honest(), folder)
        assert honest is not None and sorted(honest) == sorted(honest_rows(24)), f"{name}: the honest file is misread"
        parts = max(args.jobs * 4, 1)
        tasks = [(args.program, name, args.seed * 1000 + part, args.mutants // parts) for part in range(parts)]
        counts, shown = Counter(), []
        with multiprocessing.Pool(args.jobs) as pool:
            for part, lines in pool.imap_unordered(judge, tasks):
                counts += part
                shown += lines
        mutants = args.mutants // parts * parts
        print(f"{name}: {mutants} mutants")
        for what, count in sorted(counts.items()):
            print(f"  {what}: {count}")
        for line in shown[:10]:
            print(f"  {line}")
        strangers = counts["rows under another user"]
        enough = counts["accepted by both"] * 10 >= mutants and (
            not reader.marks or counts["accepted by both, a mark moved"] * 20 >= mutants
        )
        failed |= strangers > 0 or not enough
        print(f"  {'failed' if strangers or not enough else 'passed'}", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
