"""Tables of other libraries as streams of Arrow's C interface."""

import datetime
import importlib
from collections.abc import Iterable, Mapping
from typing import Any, cast

from undertone_dp._native import Table

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def stream(table: Any, columns: Iterable[str]) -> Any:
    """An object with `__arrow_c_stream__` that has these columns of the table, where the table has them.

    Accepts polars, pandas and pyarrow tables, every other object with `__arrow_c_stream__`, a `datasets.Dataset`, and a dict
    of lists.
    """
    wanted = list(dict.fromkeys(columns))
    _refuse_datasets(table)
    if isinstance(table, Mapping):
        lists = cast(Mapping[str, Iterable[Any]], table)
        return _of_lists({name: lists[name] for name in wanted if name in lists})
    if hasattr(table, "with_format") and hasattr(table, "features"):
        # A data set of Hugging Face: as Arrow, with its indices applied.
        return table.select_columns([name for name in wanted if name in table.features]).with_format("arrow")[:]
    if hasattr(table, "to_dict") and hasattr(table, "columns") and hasattr(table, "iloc"):
        return _of_frame(table[[name for name in wanted if name in table.columns]])
    if hasattr(table, "__arrow_c_stream__"):
        return table
    raise TypeError(
        f"data: expected a table with __arrow_c_stream__, a datasets.Dataset or a dict of lists, got {type(table).__name__}"
    )


def columns_of(table: Any) -> list[str] | None:
    """The names of the columns of a table; None where it does not tell them."""
    if isinstance(table, Mapping):
        return [str(name) for name in cast(Mapping[Any, Any], table)]
    for names in ("column_names", "columns"):
        found: Any = getattr(table, names, None)
        if isinstance(found, Iterable):
            return [str(name) for name in cast(Iterable[Any], found)]
    return None


def _refuse_datasets(table: Any) -> None:
    """Says what to pass in the place of several data sets, or of one that can be read but once."""
    kind = type(table).__name__
    if type(table).__module__.split(".")[0] != "datasets":
        return
    if kind in ("DatasetDict", "IterableDatasetDict"):
        names = ", ".join(f"data[{name!r}]" for name in table)
        raise TypeError(f"data: expected one data set, got a {kind}; pass one of its splits: {names}")
    if kind == "IterableDataset":
        raise TypeError(
            "data: expected a datasets.Dataset, got an IterableDataset, whose rows come once; "
            "pass datasets.Dataset.from_list(list(data)), or data.take(n) in the place of data for its first rows"
        )


def _of_frame(frame: Any) -> Any:
    """The stream of a table of pandas. Without pyarrow, and where pyarrow names no row, the values are taken one by one."""
    try:
        pyarrow: Any = importlib.import_module("pyarrow")
    except ImportError:
        return _of_lists({name: frame[name].tolist() for name in frame.columns})
    try:
        return pyarrow.Table.from_pandas(frame, preserve_index=False)
    except (pyarrow.ArrowException, UnicodeError, TypeError, ValueError):
        return _of_lists({name: frame[name].tolist() for name in frame.columns})


def _of_lists(lists: Mapping[str, Iterable[Any]]) -> Table:
    return Table.of({name: _values(name, values) for name, values in lists.items()})


def _values(name: str, values: Iterable[Any]) -> list[Any]:
    return [_value(name, row, value) for row, value in enumerate(values, 1)]


def _value(name: str, row: int, value: Any) -> Any:
    """A value as one that the native table takes: times become whole seconds, floored."""
    if _missing(value):
        return None
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise ValueError(
                f"data: column {name!r}, row {row}: expected text, got {value[error.start]!r}, half of a character; "
                "text.encode('utf-16', 'surrogatepass').decode('utf-16', 'replace') replaces it"
            ) from None
        return str(value)
    if isinstance(value, datetime.datetime):
        if value.tzinfo is None:
            value = value.replace(tzinfo=datetime.UTC)
        return int((value - EPOCH) // datetime.timedelta(seconds=1))
    if isinstance(value, datetime.date):
        return 86_400 * (value - EPOCH.date()).days
    module, kind = _kind(value)
    if module == "numpy" and kind == "datetime64":
        return int(value.astype("datetime64[s]").astype("int64"))
    if module == "pandas":
        hint = "; frame[column].dt.to_timestamp() makes times of it" if kind == "Period" else ""
        raise TypeError(
            f"data: column {name!r}, row {row}: expected text, a number or a time, got a {kind} of pandas{hint}"
        )
    item = getattr(value, "item", None)
    return item() if callable(item) else value


def _kind(value: object) -> tuple[str, str]:
    """The package and the name of a value's type."""
    return type(value).__module__.split(".")[0], type(value).__name__


def _missing(value: Any) -> bool:
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    try:
        # Not a number, and no time of numpy: they differ from themselves.
        return bool(value != value)
    except (TypeError, ValueError):
        return False
