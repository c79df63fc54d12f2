"""Corpora of tables in memory."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from undertone_dp import _native
from undertone_dp._settings import plain
from undertone_dp._table import columns_of, stream


class Corpus:
    """People's text from a table in memory: users with their examples, cut into words or tokens.

    `digest` names the rows in their order. The same rows have the same digest, whichever library holds them. It is an exact function of
    people's text, like `stats`, and no part of a release. The tokenised text lies in a private temporary folder while the corpus exists.

    >>> import undertone_dp as udp
    >>> posts = {"user": ["ann", "bob", "ann"], "text": ["two words", "two", "two more words"]}
    >>> corpus = udp.Corpus.from_table(
    ...     posts, user="user", text="text", split={"kind": "held_out_users", "validation": 0.0, "test": 0.0},
    ...     vocabulary={"kind": "training_data", "size": 3},
    ... )
    >>> corpus.users, corpus.tokens, corpus.stats["rows"]
    (1, 7, 3)
    """

    def __init__(self, native: _native._Corpus) -> None:
        self._native = native

    @staticmethod
    def from_table(
        table: Any,
        *,
        user: str,
        text: str,
        time: str | None = None,
        split: str | Mapping[str, object] | None = None,
        **data_settings: object,
    ) -> Corpus:
        """Reads polars, pandas, pyarrow, a `datasets.Dataset`, anything with `__arrow_c_stream__`, or a dict of lists.

        `user`, `text`, `time` and `split` name columns. The other settings are keys of the table `[data]` of a run file, such as
        `vocabulary`; a mapping as `split` is the setting of that name. Relative paths start at the working directory.

        >>> import undertone_dp as udp
        >>> udp.Corpus.from_table(
        ...     {"who": ["ann", "bob"], "said": ["two words", "more words"], "part": ["train", "test"]},
        ...     user="who", text="said", split="part", vocabulary={"kind": "training_data", "size": 9},
        ... ).users
        1
        """
        source: dict[str, object] = {"user": user, "text": text}
        if time is not None:
            source["time"] = time
        settings = dict(data_settings)
        if isinstance(split, str):
            source["split"] = split
        elif split is not None:
            settings["split"] = split
        if "source" in settings:
            raise TypeError("source: expected no such setting: the table is the source")
        return Corpus._of(table, {**settings, "source": source})

    @staticmethod
    def _of(table: Any, data: Mapping[str, Any]) -> Corpus:
        """The corpus of a table with the table `[data]` of a run file, whose source may lack its kind, rows and digest."""
        given = dict(data.get("source", {}))
        source: dict[str, Any] = {"user": "user_id", "text": "text", **given, "kind": "memory", "rows": 0, "sha256": ""}
        keys = [key for key in ("user", "text", "time", "split") if source.get(key) is not None]
        named = [source[key] for key in keys]
        rows = stream(table, named)
        columns = columns_of(table)
        for key in keys:
            if columns is not None and source[key] not in columns:
                listed = ", ".join(f'"{name}"' for name in columns) or "no columns"
                error = _native.DataError(
                    f'data: it lacks the column "{source[key]}" that data.source.{key} ({key}=) names; its columns are {listed}'
                )
                error.kind = "memory"
                raise error
        settings = json.dumps(plain({**data, "source": source}, "data"))
        corpus = Corpus(_native._corpus(rows, settings, "."))
        if given.get("sha256", corpus.digest) != corpus.digest:
            error = _native.DataError(
                f"data.source: expected the table of {given.get('rows')} rows with SHA-256 {given['sha256']}, got the table of "
                f"{corpus.stats['rows']} rows with SHA-256 {corpus.digest}"
            )
            error.kind = "memory"
            raise error
        return corpus

    @property
    def users(self) -> int:
        """Number of training users."""
        return self._native.users

    @property
    def tokens(self) -> int:
        """Number of training tokens, after caps and filters."""
        return self._native.tokens

    @property
    def digest(self) -> str:
        """SHA-256 of the rows in their order."""
        return self._native.digest

    @property
    def stats(self) -> dict[str, Any]:
        """Counts of what the corpus holds and of what was left out. They are exact statistics of people."""
        return json.loads(self._native.stats())

    @property
    def settings(self) -> dict[str, Any]:
        """The table `[data]` of a run on this corpus."""
        return json.loads(self._native.settings())

    def __repr__(self) -> str:
        return f"<Corpus of {self.users} users, {self.tokens} tokens>"
