"""Corpora of tables in memory: the same rows are the same corpus, whichever library holds them."""

import ctypes
import datetime
import json
import os

import pytest
import undertone_dp as udp
from test_runs import TINY, files

ROWS = 600
PEOPLE = [f"person {row * 7 % 60}" for row in range(ROWS)]
WORDS = ["we", "meet", "at", "noon", "see", "you", "there", "again"]
TEXTS = [" ".join(WORDS[(row + place) % 8] for place in range(2 + row % 5)) for row in range(ROWS)]
TIMES = [1_700_000_000 + 60 * (row * 31 % ROWS) for row in range(ROWS)]
COLUMNS = {"author": PEOPLE, "said": TEXTS, "at": TIMES, "unused": list(range(ROWS))}
NAMED = {"user": "author", "text": "said", "time": "at"}
SETTINGS = {
    "vocabulary": {"kind": "training_data", "size": 8},
    "split": {"kind": "held_out_users", "validation": 0.2, "test": 0.0, "seed": 3},
    "max_examples": 8,
}
RUN = {name: value for name, value in TINY.items() if name != "data"} | {"rounds": 4}


def corpus(table, **changes):
    return udp.Corpus.from_table(table, **{**NAMED, **SETTINGS, **changes})


def pyarrow_table():
    return pytest.importorskip("pyarrow", reason="pyarrow is not installed").table(COLUMNS)


def large_types():
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    return pyarrow.table(
        {
            "at": pyarrow.array([time * 1000 for time in TIMES], pyarrow.timestamp("ms")),
            "said": pyarrow.array(TEXTS, pyarrow.large_string()),
            "author": pyarrow.array(PEOPLE).dictionary_encode(),
        }
    )


def parts():
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    table = pyarrow.table(COLUMNS)
    return pyarrow.concat_tables([table.slice(0, 1), table.slice(1, 0), table.slice(1, 400), table.slice(401)])


def reader():
    return parts().to_reader()


def polars_frame():
    return pytest.importorskip("polars", reason="polars is not installed").DataFrame(COLUMNS)


def pandas_frame():
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    return pytest.importorskip("pandas", reason="pandas is not installed").DataFrame(COLUMNS)


def pandas_times():
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    return pandas.DataFrame({**COLUMNS, "at": pandas.to_datetime(TIMES, unit="s")}, index=range(ROWS, 0, -1))


def dataset():
    datasets = pytest.importorskip("datasets", reason="datasets is not installed")
    # Backwards and put right again by indices, which the package must apply.
    backwards = {name: values[::-1] for name, values in COLUMNS.items()}
    return datasets.Dataset.from_dict(backwards).select(range(ROWS - 1, -1, -1))


def native_table():
    return udp.Table.of(COLUMNS)


def dict_of_datetimes():
    return {**COLUMNS, "at": [datetime.datetime.fromtimestamp(time, datetime.UTC) for time in TIMES]}


TABLES = [
    pyarrow_table,
    large_types,
    parts,
    reader,
    polars_frame,
    pandas_frame,
    pandas_times,
    dataset,
    native_table,
    dict_of_datetimes,
]


@pytest.fixture(scope="module")
def from_dict(tmp_path_factory):
    read = corpus(COLUMNS)
    return read, udp.train(RUN, data=read, out=tmp_path_factory.mktemp("dict"))


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.__name__)
def test_every_kind_of_table_is_the_same_corpus_and_model(table, from_dict, tmp_path):
    read, run = from_dict
    other = corpus(table())
    assert other.digest == read.digest and other.stats == read.stats and other.settings == read.settings
    assert files(udp.train(RUN, data=other, out=tmp_path).path) == files(run.path)


def test_a_table_makes_the_model_of_the_parquet_file(from_dict, tmp_path):
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    numpy = pytest.importorskip("numpy", reason="numpy is not installed")
    import pyarrow.parquet

    read, run = from_dict
    pyarrow.parquet.write_table(pyarrow_table(), tmp_path / "posts.parquet")
    source = {"kind": "parquet", "path": str(tmp_path / "posts.parquet"), **NAMED}
    of_file = udp.train({**RUN, "data": {**SETTINGS, "source": source}}, out=tmp_path)
    assert of_file.guarantee == run.guarantee
    ours, theirs = run.weights(), of_file.weights()
    assert ours.keys() == theirs.keys()
    assert all(numpy.array_equal(ours[name], theirs[name]) for name in ours)
    # The file, read back as a table, has the digest of every other table of its rows.
    assert corpus(pyarrow.parquet.read_table(tmp_path / "posts.parquet")).digest == read.digest


def test_a_run_on_a_table_keeps_its_digest_private_and_goes_on_with_that_table_alone(from_dict, tmp_path):
    read, whole = from_dict
    # The number and the digest of the rows are exact functions of people's text.
    assert whole.config["data"]["source"] == {
        "kind": "memory",
        **{name: NAMED[name] for name in ("user", "text", "time")},
    }
    private = whole.path / "table.json"
    assert json.loads(private.read_text()) == {"rows": ROWS, "sha256": read.digest}
    assert os.name != "posix" or private.stat().st_mode & 0o777 == 0o600
    assert whole.verify().holds

    def stop(event):
        if event.kind == "round" and event.record["round"] == 1:
            raise InterruptedError

    # Many checkpoints take so long that the run is ended before its last round.
    every_round = {**RUN, "rounds": 200, "checkpoint": {"every": 1}, "evaluation": {"every": 0}}
    settings = {**every_round, "data": {**SETTINGS, "source": NAMED}}
    with pytest.raises(InterruptedError):
        udp.train(settings, data=COLUMNS, out=tmp_path, progress=stop)
    short = {name: values[:-1] for name, values in COLUMNS.items()}
    assert not (tmp_path / "tiny" / "manifest.json").exists()
    with pytest.raises(udp.DataError, match="expected the table of 600 rows with SHA-256 .* got the table of 599 rows"):
        udp.train(settings, data=short, out=tmp_path, resume=True)
    # The private file of the run directory names the table by its digest.
    saved = tmp_path / "tiny" / "config.toml"
    with pytest.raises(udp.DataError, match="expected the table of 600 rows with SHA-256 .* got the table of 599 rows"):
        udp.train(saved, data=short, out=tmp_path, resume=True)
    with pytest.raises(udp.DataError, match="expected the table of 600 rows .* got no table"):
        udp.train(saved, out=tmp_path, resume=True)
    udp.train(saved, data=native_table(), out=tmp_path, resume=True)
    again = udp.train(every_round, data=read, out=tmp_path / "again")
    assert files(tmp_path / "tiny") == files(again.path)


def test_the_settings_of_a_corpus_are_those_of_its_run(from_dict, tmp_path):
    read, _ = from_dict
    with pytest.raises(udp.ConfigError, match="`data`: expected the settings of the corpus"):
        udp.train({**RUN, "data": {**read.settings, "max_examples": 9}}, data=read, out=tmp_path)
    with pytest.raises(udp.ConfigError, match="unknown field `max_exampels`"):
        corpus(COLUMNS, max_exampels=8)
    with pytest.raises(udp.ConfigError, match="data.vocabulary"):
        udp.Corpus.from_table(COLUMNS, user="author", text="said")
    with pytest.raises(TypeError, match="source: expected no such setting"):
        corpus(COLUMNS, source={})


def test_tables_that_cannot_be_used_are_refused_by_column_and_row():
    def fails(table, error, part, **changes):
        with pytest.raises(error) as caught:
            corpus(table, **changes)
        assert part in str(caught.value), caught.value

    fails(3, TypeError, "got int")
    fails({"author": PEOPLE}, udp.DataError, 'it lacks the column "said"')
    fails({"who": PEOPLE, "said": TEXTS}, udp.DataError, 'data.source.user (user=) names; its columns are "who", "said"')
    fails({**COLUMNS, "author": [None, *PEOPLE[1:]]}, udp.DataError, 'row 1: column "author": expected a value, got null')
    fails({**COLUMNS, "author": ["", *PEOPLE[1:]]}, udp.DataError, "expected a value, got an empty string")
    fails({**COLUMNS, "said": list(range(ROWS))}, udp.DataError, 'column "said": expected a string type')
    fails({**COLUMNS, "at": [True] * ROWS}, udp.DataError, 'column "at": expected a Timestamp or Date type')
    fails({**COLUMNS, "said": TEXTS[:-1]}, ValueError, "expected 600 values")
    fails({**COLUMNS, "said": ["two words", *range(1, ROWS)]}, TypeError, "columns[\"said\"][1]: expected strings alone")
    fails({**COLUMNS, "author": [2**64, *range(1, ROWS)]}, TypeError, "expected an integer of 64 bits")
    fails({name: [] for name in COLUMNS}, udp.DataError, "")
    fails({**COLUMNS, "part": ["test"] * ROWS}, udp.DataError, "the train partition is empty", split="part")
    fails({**COLUMNS, "part": ["holdout"] * ROWS}, udp.DataError, 'expected "train", "validation" or "test"', split="part")


class Lies:
    """A stream that is not what it says."""

    def __init__(self, capsule):
        self.capsule = capsule

    def __arrow_c_stream__(self, requested_schema=None):
        return self.capsule


def test_streams_that_are_none_are_refused():
    with pytest.raises(TypeError, match="expected a capsule"):
        corpus(Lies(3))
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p] * 3
    name = ctypes.create_string_buffer(b"arrow_schema")
    place = ctypes.create_string_buffer(64)
    with pytest.raises(TypeError, match="of the name arrow_array_stream"):
        corpus(Lies(new(ctypes.addressof(place), ctypes.addressof(name), None)))
    # A stream of zeros is a released one.
    name = ctypes.create_string_buffer(b"arrow_array_stream")
    with pytest.raises(udp.DataError, match="valid Arrow data"):
        corpus(Lies(new(ctypes.addressof(place), ctypes.addressof(name), None)))


def test_a_stream_is_taken_once():
    capsule = native_table().__arrow_c_stream__()
    corpus(Lies(capsule))
    with pytest.raises(udp.DataError, match="valid Arrow data"):
        corpus(Lies(capsule))


def test_a_failing_stream_is_an_error():
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")

    def batches():
        yield pyarrow_table().to_batches()[0]
        raise OSError("the disk is gone")

    failing = pyarrow.RecordBatchReader.from_batches(pyarrow_table().schema, batches())
    with pytest.raises(udp.DataError, match="the disk is gone"):
        corpus(failing)


def test_arrays_that_are_no_valid_arrow_are_refused():
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")

    def forged(offsets, data):
        buffers = [None, pyarrow.py_buffer(offsets), pyarrow.py_buffer(data)]
        return pyarrow.StringArray.from_buffers(2, buffers[1], buffers[2])

    def numbers(*values):
        return b"".join(value.to_bytes(4, "little", signed=True) for value in values)

    good = pyarrow.array(["two words", "two words"])
    for offsets, data in [
        (numbers(0, 4, 2), b"abcdefgh"),
        (numbers(0, 4, 8), b"ab\xff\xfecdef"),
        (numbers(0, -4, 8), b"abcdefgh"),
    ]:
        table = pyarrow.table({"author": good, "said": forged(offsets, data), "at": [1, 2]})
        with pytest.raises(udp.DataError, match='table, column "said": expected valid Arrow data'):
            corpus(table)


def test_missing_texts_and_times_are_none_in_every_library(from_dict):
    columns = {"author": ["a", "b", "c"], "said": ["two words", None, "more words"], "at": [3, None, 1]}
    plain = {"validation": 0.0, "test": 0.0, "kind": "held_out_users"}
    expected = corpus(columns, split=plain).digest
    polars = pytest.importorskip("polars", reason="polars is not installed")
    assert corpus(polars.DataFrame(columns), split=plain).digest == expected
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    frame = pandas.DataFrame({**columns, "at": pandas.array([3, None, 1], "Int64")})
    assert corpus(frame, split=plain).digest == expected
