"""Settings of runs as values that JSON can hold."""

import datetime
import json
import math
import os
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast


def plain(value: Any, key: str = "") -> Any:
    """The value with plain dicts, lists, strings and numbers in it; a `TypeError` or `ValueError` names the key."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{key}: expected a finite number, got {value}")
        return value
    if isinstance(value, Mapping):
        table: dict[str, Any] = {}
        for name, inner in cast(Mapping[Any, Any], value).items():
            if not isinstance(name, str):
                raise TypeError(f"{key or 'configuration'}: expected names that are strings, got {name!r}")
            table[name] = plain(inner, f"{key}.{name}" if key else name)
        return table
    if isinstance(value, os.PathLike):
        return os.fspath(cast("os.PathLike[str]", value))
    if isinstance(value, (datetime.datetime, datetime.date)):
        return value.isoformat()
    if isinstance(value, Sequence) and not isinstance(value, (bytes, bytearray)):
        items = cast(Sequence[Any], value)
        return [plain(inner, f"{key}[{place}]") for place, inner in enumerate(items)]
    item = getattr(value, "item", None)
    if callable(item) and getattr(value, "ndim", None) == 0:
        return plain(item(), key)
    raise TypeError(f"{key or 'configuration'}: expected a table, list, string or number, got {type(value).__name__}")


def form(config: Any) -> tuple[str, str]:
    """The form of a configuration, and its content: JSON of a mapping, TOML text, or the path of a file."""
    if isinstance(config, Mapping):
        return "value", json.dumps(plain(config))
    if isinstance(config, str) and "\n" in config:
        return "text", config
    if isinstance(config, (str, Path)):
        return "file", os.fspath(config)
    raise TypeError(f"config: expected a mapping, TOML text or a path, got {type(config).__name__}")


def as_mapping(config: Any, overrides: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration with its overrides as a dict of its own, for settings that are completed from a table."""
    kind, content = form(config)
    if kind == "value":
        settings = json.loads(content)
    elif kind == "text":
        settings = tomllib.loads(content)
    else:
        settings = tomllib.loads(Path(content).read_text(encoding="utf-8"))
    settings = plain(settings)
    for key, value in overrides.items():
        table: Any = settings
        *parents, last = key.split(".")
        for name in parents:
            if not isinstance(table.setdefault(name, {}), dict):
                raise TypeError(f"overrides[{key!r}]: `{name}` is no table")
            table = table[name]
        table[last] = plain(value, key)
    return settings
