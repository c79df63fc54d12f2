"""Samplers of this package as batch samplers of PyTorch's `DataLoader`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch.utils.data import Sampler as _TorchSampler

from ._native import Sampler

__all__ = ["BatchSampler", "allow_empty"]


class BatchSampler(_TorchSampler[list[int]]):
    """The draws of a sampler as batches for `DataLoader(dataset, batch_sampler=...)`.

    Draws happen in the process that iterates over the loader, never in its workers. A Poisson sample may be empty: then the
    batch is the empty list, and `allow_empty` makes a batch of no examples of it.

    Examples
    --------
    >>> import undertone_dp as udp
    >>> import undertone_dp.torch
    >>> from torch.utils.data import DataLoader
    >>> sampler = udp.FixedSizeUsers(10, 4, rounds=2)
    >>> loader = DataLoader(range(10), batch_sampler=udp.torch.BatchSampler(sampler))
    >>> [len(batch) for batch in loader]
    [4, 4]
    """

    def __init__(self, sampler: Sampler) -> None:
        if not isinstance(sampler, Sampler):
            raise TypeError(f"sampler: expected a sampler of undertone_dp, got {type(sampler).__name__}")
        self.sampler = sampler

    def __iter__(self) -> Iterator[list[int]]:
        for drawn in self.sampler:
            yield drawn.tolist()

    def __len__(self) -> int:
        return len(self.sampler)

    def state_dict(self) -> dict[str, Any]:
        """The next round and the name of the key."""
        return self.sampler.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue after the rounds of a state of this key."""
        self.sampler.load_state_dict(state)


def allow_empty(collate_fn: Callable[[list[Any]], Any], like: Any) -> Callable[[list[Any]], Any]:
    """A function that collates as `collate_fn` does, and an empty list to a batch of no examples in the form of `like`.

    `like` is one example of the dataset; only the shapes of its batch are used. It may be made up, so that no user's data
    decides about them.

    Examples
    --------
    >>> import torch
    >>> from torch.utils.data import default_collate
    >>> from undertone_dp.torch import allow_empty
    >>> collate = allow_empty(default_collate, like=(torch.zeros(3), 0))
    >>> [part.shape for part in collate([])]
    [torch.Size([0, 3]), torch.Size([0])]
    """
    empty = _without_examples(collate_fn([like]))

    def collate(examples: list[Any]) -> Any:
        return collate_fn(examples) if examples else empty

    return collate


def _without_examples(batch: Any) -> Any:
    """A batch of one example, without it."""
    if isinstance(batch, torch.Tensor):
        return batch[:0].clone()
    if isinstance(batch, Mapping):
        return {key: _without_examples(value) for key, value in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(_without_examples(part) for part in batch))
    if isinstance(batch, (list, tuple)):
        if all(isinstance(part, (str, bytes)) for part in batch):
            return type(batch)()
        return type(batch)(_without_examples(part) for part in batch)
    raise TypeError(
        f"like: expected a batch of tensors in lists, tuples and dicts, got a part of type {type(batch).__name__}"
    )
