"""Samplers of this package as arrays of one shape, as `jit` needs them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from ._native import Sampler

__all__ = ["batch_iterator"]


def batch_iterator(
    sampler: Sampler, *, pad_to: int | None = None
) -> Iterator[tuple[npt.NDArray[np.int32], npt.NDArray[np.bool_]]]:
    """Each round's draw as int32 indices and a mask that is true where an index counts.

    With `pad_to`, all arrays have that length, padded with index 0 and a false mask. A larger draw is an error: to cut it
    would be another way of sampling, with another event.

    Examples
    --------
    >>> import undertone_dp as udp
    >>> from undertone_dp.jax import batch_iterator
    >>> sampler = udp.FixedSizeUsers(10, 3, rounds=1)
    >>> indices, mask = next(batch_iterator(sampler, pad_to=5))
    >>> indices.shape, mask.tolist()
    ((5,), [True, True, True, False, False])
    """
    for drawn in sampler:
        own = np.asarray(drawn)
        size = len(own) if pad_to is None else pad_to
        if len(own) > size:
            raise ValueError(
                f"pad_to: expected at least the {len(own)} indices that round {sampler.round - 1} drew, got {size}; "
                "account for udp.Event.TruncatedPoissonGaussian to cut cohorts"
            )
        indices = np.zeros(size, dtype=np.int32)
        indices[: len(own)] = own
        yield indices, np.arange(size) < len(own)
