"""Tables of other libraries as streams of Arrow's C interface."""

import datetime
import importlib
from collections.abc import Iterable, Mapping
from typing import Any, cast

from undertone_dp._native import Table


def stream(table: Any, columns: Iterable[str]) -> Any:
    """An object with `__arrow_c_stream__` that has these columns of the table, where the table has them.

    Accepts polars, pandas and pyarrow tables, every other object with `__arrow_c_stream__`, a `datasets.Dataset`, and a dict
    of lists.
    """
    wanted = list(dict.fromkeys(columns))
    if isinstance(table, Mapping):
        lists = cast(Mapping[str, Iterable[Any]], table)
        return Table.of({name: _values(lists[name]) for name in wanted if name in lists})
    if hasattr(table, "with_format") and hasattr(table, "features"):
        # A data set of Hugging Face: as Arrow, with its indices applied.
        return table.select_columns([name for name in wanted if name in table.features]).with_format("arrow")[:]
    if hasattr(table, "to_dict") and hasattr(table, "columns") and hasattr(table, "iloc"):
        frame = table[[name for name in wanted if name in table.columns]]
        try:
            pyarrow: Any = importlib.import_module("pyarrow")
        except ImportError:
            return Table.of({name: _values(frame[name].tolist()) for name in frame.columns})
        return pyarrow.Table.from_pandas(frame, preserve_index=False)
    if hasattr(table, "__arrow_c_stream__"):
        return table
    raise TypeError(
        f"data: expected a table with __arrow_c_stream__, a datasets.Dataset or a dict of lists, got {type(table).__name__}"
    )


def _values(values: Iterable[Any]) -> list[Any]:
    return [_value(value) for value in values]


def _value(value: Any) -> Any:
    if isinstance(value, datetime.datetime):
        if value.tzinfo is None:
            value = value.replace(tzinfo=datetime.UTC)
        return int(value.timestamp())
    # A missing value of pandas, the only one that differs from itself.
    if value is None or value != value:
        return None
    item = getattr(value, "item", None)
    return item() if callable(item) else value
