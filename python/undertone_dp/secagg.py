"""Secure aggregation (SecAgg+): a whole session in one process, and the graph that a session needs.

>>> from undertone_dp import secagg
>>> list(secagg.sum({1: [3, -1], 2: [4, 1], 3: [5, 0]}))
[12, 0]
"""

from dataclasses import dataclass
from typing import Literal

from undertone_dp import _native
from undertone_dp._native import _secagg_sum as sum

__all__ = ["Parameters", "parameters", "sum"]


@dataclass(frozen=True)
class Parameters:
    """The graph of a session, and what it promises under its assumptions.

    >>> from undertone_dp import secagg
    >>> secagg.parameters(1000, drop_out_rate=0.1, corrupt_rate=0.1).privacy_bits >= 40
    True
    """

    clients: int
    """Clients that join."""
    neighbours: int
    """Neighbours of each client."""
    threshold: int
    """Shares that open a secret."""
    privacy_bits: float
    """Privacy fails with a probability of at most `2 ** -privacy_bits`."""
    failure_bits: float
    """The session ends without a sum with a probability of at most `2 ** -failure_bits`."""


def parameters(
    clients: int,
    *,
    drop_out_rate: float = 0.25,
    corrupt_rate: float = 0.25,
    threat: Literal["honest-but-curious", "active"] = "honest-but-curious",
) -> Parameters:
    """The sparsest graph on which privacy fails with probability at most 2^-40, and the session with at most 2^-20.

    At most these fractions of the clients drop out and are corrupt.

    >>> from undertone_dp import secagg
    >>> found = secagg.parameters(1000, drop_out_rate=0.1, corrupt_rate=0.1)
    >>> found.neighbours, found.threshold
    (48, 27)
    """
    if threat not in ("honest-but-curious", "active"):
        raise ValueError(f"threat: expected 'honest-but-curious' or 'active', got {threat!r}")
    found = _native._secagg_parameters(clients, drop_out_rate, corrupt_rate, threat == "active")
    return Parameters(clients, *found)
