"""Receivers of a training's events, for `udp.train(progress=...)`: files that other tools draw.

Losses, norms and sizes are exact statistics of people. They are for the operator of the training, and no part of the release.
"""

from __future__ import annotations

import csv
import os
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from undertone_dp._run import Progress

__all__ = ["Csv", "TensorBoard", "all_of"]

_EXACT = "these files hold exact statistics of people, and are no part of the release"


def _figures(record: Mapping[str, Any], name: str = "") -> Iterator[tuple[str, float]]:
    """The numbers of a record by the path of their keys."""
    for key, value in record.items():
        path = f"{name}/{key}" if name else key
        if isinstance(value, Mapping):
            yield from _figures(cast("Mapping[str, Any]", value), path)
        elif isinstance(value, (int, float)):
            yield path, value


class TensorBoard:
    """Writes each figure of a round or an evaluation as a scalar, for TensorBoard.

    It needs the package `tensorboardX`, or torch with `tensorboard`.

    >>> from undertone_dp import track
    >>> track.TensorBoard
    <class 'undertone_dp.track.TensorBoard'>
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        try:
            from tensorboardX import SummaryWriter  # pyright: ignore
        except ImportError:
            try:
                from torch.utils.tensorboard import SummaryWriter  # pyright: ignore
            except ImportError:
                message = "TensorBoard needs the package tensorboardX (pip install tensorboardX), or torch with tensorboard"
                raise ImportError(message) from None
        warnings.warn(f"{os.fspath(folder)}: {_EXACT}", stacklevel=2)
        self._writer: Any = SummaryWriter(os.fspath(folder))

    def __call__(self, event: Progress) -> None:
        """Takes an event."""
        if event.kind == "round":
            for name, value in _figures(event.record):
                if name != "round":
                    self._writer.add_scalar(f"round/{name}", value, event.record["round"] + 1)
        elif event.kind == "evaluation":
            for name, value in _figures(event.record["metrics"]):
                self._writer.add_scalar(f"{event.record['split']}/{name}", value, event.record["round"])
            self._writer.flush()


class Csv:
    """Writes `rounds.csv` and `evaluations.csv` into a folder, a row per round and per evaluation.

    A column is a figure, named by the path of its keys. The first row of a file sets its columns, and a later figure without one is left out.

    >>> import tempfile, warnings
    >>> import undertone_dp as udp
    >>> from undertone_dp import track
    >>> warnings.simplefilter("ignore")
    >>> folder = tempfile.mkdtemp()
    >>> track.Csv(folder)(udp.Progress("round", {"round": 0, "train_loss": 2.5}))
    >>> print(open(f"{folder}/rounds.csv").read())
    round,train_loss
    0,2.5
    <BLANKLINE>
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        warnings.warn(f"{os.fspath(folder)}: {_EXACT}", stacklevel=2)
        self._folder = Path(folder)
        self._folder.mkdir(parents=True, exist_ok=True)
        self._columns: dict[str, list[str]] = {}

    def __call__(self, event: Progress) -> None:
        """Takes an event."""
        if event.kind == "round":
            self._row("rounds.csv", dict(_figures(event.record)))
        elif event.kind == "evaluation":
            metrics = dict(_figures(event.record["metrics"]))
            self._row("evaluations.csv", {"round": event.record["round"], "split": event.record["split"], **metrics})

    def _row(self, name: str, figures: Mapping[str, object]) -> None:
        is_first = name not in self._columns
        columns = self._columns.setdefault(name, list(figures))
        with open(self._folder / name, "w" if is_first else "a", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, columns, extrasaction="ignore", lineterminator="\n")
            if is_first:
                writer.writeheader()
            writer.writerow(figures)


class all_of:
    """Gives each event to several receivers in turn.

    >>> import undertone_dp as udp
    >>> from undertone_dp import track
    >>> kinds = []
    >>> track.all_of(lambda event: kinds.append(event.kind), print)(udp.Progress("round", {"round": 0}))
    Progress(kind='round', record={'round': 0})
    >>> kinds
    ['round']
    """

    def __init__(self, *receivers: Any) -> None:
        self._receivers = receivers

    def __call__(self, event: Progress) -> None:
        """Takes an event."""
        for receiver in self._receivers:
            receiver(event)
