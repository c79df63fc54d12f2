"""Values of tables in memory: the kinds that libraries have for times, users and nothing, and what is said of others."""

import datetime
import sys

import pytest
import undertone_dp as udp

TEXTS = ["we meet at noon", "see you there", "two words"]
SETTINGS = {"vocabulary": {"kind": "training_data", "size": 9}}
START = datetime.datetime(2024, 6, 5, 12, tzinfo=datetime.UTC)
SECONDS = int(START.timestamp())


def digest(table, **named):
    return udp.Corpus.from_table(table, user="who", text="said", **SETTINGS, **named).digest


def table(**changes):
    return {"who": ["ann", "bob", "ann"], "said": TEXTS, **changes}


def pandas():
    return pytest.importorskip("pandas", reason="pandas is not installed")


def numpy():
    return pytest.importorskip("numpy", reason="numpy is not installed")


@pytest.fixture(params=[True, False], ids=["pyarrow", "no pyarrow"])
def with_or_without_pyarrow(request, monkeypatch):
    if not request.param:
        monkeypatch.setitem(sys.modules, "pyarrow", None)
    return request.param


def test_times_of_every_library_are_the_same_seconds(with_or_without_pyarrow):
    pd, np = pandas(), numpy()
    times = [SECONDS, None, SECONDS + 61]
    expected = digest(table(at=times), time="at")
    stamps = pd.Series([pd.Timestamp(START), pd.NaT, pd.Timestamp(START) + pd.Timedelta(61.7, "s")])
    frame = pd.DataFrame(table())
    for at in (
        stamps,
        stamps.dt.tz_convert("Europe/Berlin"),
        stamps.dt.tz_localize(None),
        stamps.astype(object),
        pd.array(times, "Int64"),
        pd.Series([float(SECONDS), float("nan"), SECONDS + 61.25]),
    ):
        assert digest(frame.assign(at=at), time="at") == expected
    naive = START.replace(tzinfo=None)
    for at in (
        [START, None, START + datetime.timedelta(seconds=61.7)],
        [naive, pd.NaT, naive + datetime.timedelta(seconds=61)],
        np.array([naive, "NaT", naive + datetime.timedelta(seconds=61)], "datetime64[ns]"),
        np.array([naive, "NaT", naive + datetime.timedelta(seconds=61.9)], "datetime64[ms]"),
        [START.isoformat().replace("+00:00", "Z"), None, "2024-06-05 12:01:01"],
    ):
        assert digest(table(at=at), time="at") == expected


def test_dates_and_times_before_1970_are_floored(with_or_without_pyarrow):
    pd, np = pandas(), numpy()
    dates = [datetime.date(2024, 6, 5), datetime.date(1969, 12, 31), None]
    expected = digest(table(at=["2024-06-05", "1969-12-31", None]), time="at")
    assert digest(table(at=dates), time="at") == expected
    assert digest(pd.DataFrame(table(at=dates)), time="at") == expected
    assert digest(table(at=np.array(dates, "datetime64[D]")), time="at") == expected
    early = datetime.datetime(1969, 12, 31, 23, 59, 58, 500_000)
    expected = digest(table(at=["1969-12-31T23:59:58Z"] * 3), time="at")
    assert digest(table(at=[early] * 3), time="at") == expected
    assert digest(pd.DataFrame(table(at=[early] * 3)), time="at") == expected


def test_nothing_is_nothing_whatever_it_is_called(with_or_without_pyarrow):
    pd = pandas()
    expected = digest(table(said=["we meet", None, "two words"]))
    for nothing in (None, float("nan"), pd.NA, pd.NaT):
        assert digest(table(said=["we meet", nothing, "two words"])) == expected
        frame = pd.DataFrame(table(said=pd.Series(["we meet", nothing, "two words"], dtype=object)))
        assert digest(frame) == expected
    assert digest(table(at=[None] * 3), time="at") == digest(table(at=[pd.NaT] * 3), time="at")


def test_whole_numbers_are_users_whatever_their_type(with_or_without_pyarrow):
    pd, np = pandas(), numpy()
    expected = digest(table(who=["12", "7", "12"]))
    for who in ([12, 7, 12], [12.0, 7.0, 12.0], np.array([12, 7, 12], "float32"), pd.array([12, 7, 12], "Int64")):
        assert digest(table(who=who)) == expected
    assert digest(pd.DataFrame(table(who=pd.Series([12, 7, 12]).astype("category")))) == expected
    with pytest.raises(udp.DataError, match="row 2: column \"who\": expected a whole number.*got 7.5"):
        digest(table(who=[12.0, 7.5, 12.0]))


def test_periods_are_refused_with_what_to_type(with_or_without_pyarrow):
    frame = pandas().DataFrame(table(at=pandas().period_range("2024-06-05", periods=3, freq="D")))
    with pytest.raises((udp.DataError, TypeError), match=r"at.*dt\.to_timestamp\(\)"):
        digest(frame, time="at")
    assert digest(frame.assign(at=frame["at"].dt.to_timestamp()), time="at") == digest(
        table(at=["2024-06-05", "2024-06-06", "2024-06-07"]), time="at"
    )


def test_bad_values_name_their_row(with_or_without_pyarrow):
    pd = pandas()
    for bad, names in (("so funny \ud83d lol", "row 2.*half of a character"), (7, r"said.*\[1\].*strings alone")):
        values = [TEXTS[0], bad, TEXTS[2]]
        with pytest.raises((ValueError, TypeError), match=names):
            digest(table(said=values))
        with pytest.raises((ValueError, TypeError), match=names):
            digest(pd.DataFrame(table(said=pd.Series(values, dtype=object))))


def test_several_data_sets_and_streams_say_what_to_pass():
    datasets = pytest.importorskip("datasets", reason="datasets is not installed")
    rows = datasets.Dataset.from_dict(table())
    with pytest.raises(TypeError, match=r"DatasetDict; pass one of its splits: data\['train'\], data\['test'\]"):
        digest(datasets.DatasetDict({"train": rows, "test": rows}))
    stream = rows.to_iterable_dataset()
    with pytest.raises(TypeError, match="IterableDataset, whose rows come once; pass datasets.Dataset.from_list"):
        digest(stream)
    assert digest(datasets.Dataset.from_list(list(stream))) == digest(rows) == digest(table())
