"""For JAX: samplers as arrays of one shape, as `jit` needs them, and correlated noise for optax."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from ._native import Mechanism, NoiseKey, Sampler

__all__ = ["batch_iterator", "privatizer"]


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


def privatizer(mechanism: Mechanism, *, clip_norm: float, key: NoiseKey | None = None) -> Any:
    """Adds the noise of `mechanism` to each sum of clipped updates, as an `optax.GradientTransformation`. It needs jax and optax.

    The updates are the sum over a round's contributions, of which each has a norm of at most `clip_norm`. Put it before the division by
    a number of contributions. It works under `jit`. The host refuses a state that was used before: the same noise on two sums would
    give their difference away.

    The sums and the noise are float32 numbers, so nothing is proved about their rounding. Real training adds its noise to integers.

    Examples
    --------
    >>> import undertone_dp as udp
    >>> from undertone_dp.jax import privatizer
    >>> schema = udp.Participation.at_least(gap=10, max_participation=5)
    >>> blt = udp.Mechanism("blt", rounds=50, participation=schema, noise_multiplier=4.0)
    >>> noise = privatizer(blt, clip_norm=1.0)  # doctest: +SKIP
    >>> chain = optax.chain(noise, optax.scale(1 / 100), optax.sgd(0.1))  # doctest: +SKIP
    """
    from ._privatizer import make

    return make(mechanism, clip_norm, key)
