"""Word models of a run as modules of torch."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy
import torch

from ._run import Run

State = tuple[torch.Tensor, torch.Tensor]


class WordModel(torch.nn.Module):
    """An LSTM over words, with the released parameters of a run.

    `forward(tokens, state=None)` takes ids of the shape `[time, batch]`, and gives logits of the shape `[time, batch, ids]` with the state after
    the last step, for the next call. A text begins with `begin_id`.
    """

    words: list[str]
    """The words, whose ids begin at `first_word_id`."""
    begin_id: int
    """The id that a text begins with."""
    end_id: int
    """The id of the end of a text."""
    unknown_id: int
    """The id of each word outside the list."""
    first_word_id: int
    """The id of the first word."""

    def __init__(self, tensors: dict[str, Any], model: dict[str, Any], about: dict[str, Any], words: list[str]) -> None:
        super().__init__()
        self.words, ids = words, about["ids"]
        self.begin_id, self.end_id, self.unknown_id = about["begin_id"], about["end_id"], about["unknown_id"]
        self.first_word_id = about["first_word_id"]
        self._is_coupled = model["family"] == "cifg"
        self._has_unit_rows = model["family"] == "dplm" and model.get("unit_norm", True)

        def parameter(array: Any) -> torch.nn.Parameter:
            return torch.nn.Parameter(torch.from_numpy(numpy.ascontiguousarray(array, dtype=numpy.float32).copy()))

        # Ids beyond those of the words, such as padding, are left out.
        self.embedding = parameter(tensors["embedding"][:ids])
        # z = x wx + h wh + bias: the matrices of torch are those transposed.
        self.wx, self.wh, self.bias = parameter(tensors["wx"]), parameter(tensors["wh"]), parameter(tensors["bias"])
        name = next(name for name in ("proj", "dense", "wp") if name in tensors)
        self.projection = parameter(tensors[name])
        self.projection_bias = parameter(tensors[f"{name}_bias"]) if f"{name}_bias" in tensors else None
        is_tied = "out" not in tensors
        self.out = None if is_tied else parameter(tensors["out"][:, :ids])
        self.out_bias = None if is_tied else parameter(tensors["out_bias"][:ids])

    def id_of(self, word: str) -> int:
        """The id of a word, or of unknown ones."""
        return self.first_word_id + self.words.index(word) if word in self.words else self.unknown_id

    def forward(self, tokens: torch.Tensor, state: State | None = None) -> tuple[torch.Tensor, State]:
        """Logits of the id after each of `tokens`, and the state after the last."""
        rows = self.embedding
        if self._has_unit_rows:
            rows = rows / rows.norm(dim=1, keepdim=True)
        width = self.projection.shape[0]
        if state is None:
            start = rows.new_zeros(tokens.shape[1], width)
            hidden = cell = start
        else:
            hidden, cell = state
        projected: list[torch.Tensor] = []
        for inputs in rows[tokens] @ self.wx + self.bias:
            fed_back = hidden @ self.projection if self._is_coupled else hidden
            hidden, cell = self._step(inputs + fed_back @ self.wh, cell)
            projected.append(hidden @ self.projection)
        states = torch.stack(projected)
        if self.projection_bias is not None:
            states = states + self.projection_bias
        logits = states @ rows.T if self.out is None else states @ self.out + self.out_bias
        return logits, (hidden, cell)

    def _step(self, gates: torch.Tensor, cell: torch.Tensor) -> State:
        # c' = f c + i tanh(g), h' = o tanh(c'); coupled gates have i = 1 - f
        if self._is_coupled:
            forget, candidate, output = gates.chunk(3, dim=1)
            forget = forget.sigmoid()
            into = 1 - forget
        else:
            into, forget, candidate, output = gates.chunk(4, dim=1)
            into, forget = into.sigmoid(), forget.sigmoid()
        cell = forget * cell + into * candidate.tanh()
        return output.sigmoid() * cell.tanh(), cell


def load(run: Run | str | os.PathLike[str]) -> WordModel:
    """The released word model of a run as a module of torch, in evaluation mode.

    A transformer is read by `transformers` from `Run.export`.

    >>> import tempfile, torch
    >>> import undertone_dp as udp
    >>> import undertone_dp.torch
    >>> run = udp.train({
    ...     "name": "tiny", "rounds": 2, "data": {"source": {"kind": "synthetic", "users": 60, "words": 40}},
    ...     "model": {"family": "dplm", "embed": 4, "hidden": 4}, "cohort": {"users_per_round": 12},
    ...     "user_update": {"batch_size": 4, "learning_rate": 0.5}, "clip": {"kind": "flat", "norm": 0.3},
    ...     "privacy": {"noise_multiplier": 2.0, "delta": 1e-5},
    ... }, out=tempfile.mkdtemp())
    >>> model = udp.torch.load(run)
    >>> logits, state = model(torch.tensor([[model.begin_id], [model.id_of(model.words[0])]]))
    >>> logits.shape
    torch.Size([2, 1, 43])
    """
    run = run if isinstance(run, Run) else Run.open(run)
    with tempfile.TemporaryDirectory() as folder:
        # What is exported for a keyboard states the ids, and refuses another family with a sentence.
        exported = run.export(Path(folder) / "model", "onnx")
        about = json.loads((exported / "model.json").read_text(encoding="utf-8"))
        words = (exported / about["words"]).read_text(encoding="utf-8").splitlines()
    return WordModel(run.weights(), run.config["model"], about, words).eval()
