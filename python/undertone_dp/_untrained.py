"""The tensors beside those that a session trains: frozen parameters, buffers, and tensors that are attributes of modules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch

from ._kept import compact, fold, overlap, place

__all__ = ["Untrained"]


class _Tensor:
    """A tensor at the start, and the table that has the tensor of this name now."""

    def __init__(self, name: str, tensor: torch.Tensor, table: Mapping[str, Any], key: str) -> None:
        if torch.nn.parameter.is_lazy(tensor) or tensor.is_meta or tensor.layout != torch.strided:
            found = f"one on {tensor.device} with the layout {tensor.layout}"
            raise TypeError(f"{name}: expected a tensor whose values are in memory, got {found}")
        self.name, self._table, self._key = name, table, key
        self.memory = tensor.data_ptr()
        self.fold = fold(tensor)

    def is_unchanged(self) -> bool:
        now = self._table.get(self._key)
        return isinstance(now, torch.Tensor) and fold(now) == self.fold


class Untrained:
    """What no release trains, as it was at the start: copies of the buffers of a model, and folds of all these tensors."""

    def __init__(
        self, model: torch.nn.Module | None, frozen: Mapping[str, torch.Tensor], trained: Iterable[torch.Tensor]
    ) -> None:
        self._tensors: list[_Tensor] = []
        self._buffers: list[torch.Tensor] = []
        # The buffers of each module, and its table of them.
        self._tables: list[tuple[dict[str, Any], dict[str, Any]]] = []
        of_storage: dict[int, list[torch.Tensor]] = {}
        for tensor in trained:
            of_storage.setdefault(tensor.untyped_storage().data_ptr(), []).append(tensor)
        seen: set[int] = set()

        def note(name: str, tensor: torch.Tensor, table: Mapping[str, Any], key: str) -> bool:
            if id(tensor) in seen:
                return False
            seen.add(id(tensor))
            entry = _Tensor(name, tensor, table, key) if not _is_trained(tensor, of_storage) else None
            if entry is not None:
                self._tensors.append(entry)
            return entry is not None

        for prefix, module in [] if model is None else model.named_modules():
            self._tables.append((module._buffers, dict(module._buffers)))
            for table in (module._parameters, module._buffers, vars(module)):
                for key, tensor in list(table.items()):
                    if isinstance(tensor, torch.Tensor):
                        noted = note(f"{prefix}.{key}" if prefix else key, tensor, table, key)
                        if noted and table is module._buffers:
                            self._buffers.append(tensor)
        for key, tensor in frozen.items():
            note(key, tensor, frozen, key)
        # The memory of each buffer, which a unit may move it from, its place there, and what it holds.
        self._homes = [buffer.data for buffer in self._buffers]
        self._places = [place(home) for home in self._homes]
        self._written = [compact(home) for home in self._homes]
        self._kept = [written.clone() for written in self._written]

    @torch.no_grad()
    def put_back(self) -> None:
        """Makes the buffers those of the start again: their tensors and their bytes."""
        for table, before in self._tables:
            if table.keys() != before.keys() or any(table[name] is not buffer for name, buffer in before.items()):
                table.clear()
                table.update(before)
        for buffer, home, before in zip(self._buffers, self._homes, self._places, strict=True):
            if place(buffer) != before:
                buffer.data = home
        if self._buffers:
            torch._foreach_copy_(self._written, self._kept)

    def changed(self) -> str | None:
        """The name of the first tensor whose fold is not that of the start."""
        return next((tensor.name for tensor in self._tensors if not tensor.is_unchanged()), None)

    def find(self, tensor: torch.Tensor) -> str | None:
        """The name of the tensor of the start that has this memory."""
        return next((found.name for found in self._tensors if found.memory == tensor.data_ptr()), None)

    def is_of_the_start(self, tensor: torch.Tensor) -> bool:
        """True if a tensor has the memory and the fold of one of the start."""
        found = [entry for entry in self._tensors if entry.memory == tensor.data_ptr()]
        return bool(found) and fold(tensor) in [entry.fold for entry in found]


def _is_trained(tensor: torch.Tensor, of_storage: Mapping[int, list[torch.Tensor]]) -> bool:
    """True if a tensor is a trained one, or a view of one."""
    if torch.nn.parameter.is_lazy(tensor) or tensor.is_meta or tensor.layout != torch.strided:
        return False
    found = of_storage.get(tensor.untyped_storage().data_ptr(), [])
    return any(tensor is trained or overlap(tensor, trained) for trained in found)
