"""Correlated noise as a transformation of optax."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.experimental import io_callback
from jax.flatten_util import ravel_pytree

from ._native import Mechanism, NoiseKey, NoiseStream


class PrivatizerState(NamedTuple):
    """The number of sums that were noised before this state."""

    round: Any


class _Rows:
    """Rows of one stream on the host; each round's row is given out once."""

    def __init__(self, mechanism: Mechanism, clip_norm: float, key: NoiseKey) -> None:
        self._make = lambda dim: mechanism.noise(dim, clip_norm=clip_norm, key=key)
        self._stream: NoiseStream | None = None

    def row(self, round: Any, dim: int) -> np.ndarray:
        if self._stream is None:
            self._stream = self._make(dim)
        if self._stream.dim != dim:
            raise ValueError(f"updates: expected {self._stream.dim} numbers as in the first round, got {dim}")
        if self._stream.round != int(round):
            raise ValueError(
                f"state: expected the state after round {self._stream.round}, got the one after round {int(round)}; "
                "a state that is used twice would put the same noise on two sums"
            )
        row = np.empty(dim, dtype=np.float32)
        self._stream.next_into(row)
        return row


def make(mechanism: Mechanism, clip_norm: float, key: NoiseKey | None) -> Any:
    rows = _Rows(mechanism, clip_norm, NoiseKey.random() if key is None else key)

    def init(params: Any) -> PrivatizerState:
        del params
        return PrivatizerState(round=jnp.zeros((), dtype=jnp.int32))

    def update(updates: Any, state: PrivatizerState, params: Any = None) -> tuple[Any, PrivatizerState]:
        del params
        for path, leaf in jax.tree_util.tree_leaves_with_path(updates):
            if leaf.dtype != jnp.float32:
                raise TypeError(f"updates{jax.tree_util.keystr(path)}: expected float32 numbers, got {leaf.dtype}")
        flat, unravel = ravel_pytree(updates)
        shape = jax.ShapeDtypeStruct(flat.shape, jnp.float32)
        noise = io_callback(lambda round: rows.row(round, flat.size), shape, state.round, ordered=True)
        return unravel(flat + noise), PrivatizerState(round=state.round + 1)

    return optax.GradientTransformation(init, update)
