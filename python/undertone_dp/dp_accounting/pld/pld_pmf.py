"""Probabilities of privacy losses on a grid, under the names of `dp_accounting.pld.pld_pmf`."""

from __future__ import annotations

import abc
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import undertone_dp as udp

# Distributions of more points are kept as arrays.
_MAX_SPARSE = 1000


class PLDPmf(metaclass=abc.ABCMeta):
    """Probabilities of the losses that are multiples of `discretization`, and of an infinite loss."""

    def __init__(self, discretization: float, infinity_mass: float, pessimistic_estimate: bool) -> None:
        self._discretization = discretization
        self._infinity_mass = infinity_mass
        self._pessimistic_estimate = pessimistic_estimate

    @property
    @abc.abstractmethod
    def size(self) -> int:
        """The number of points."""

    @abc.abstractmethod
    def _grid(self) -> udp.GridPld:
        """The same distribution in Rust."""

    @abc.abstractmethod
    def _like(self, grid: udp.GridPld) -> PLDPmf:
        """A distribution of the same class."""

    @abc.abstractmethod
    def self_compose(self, num_times: int, tail_mass_truncation: float = 1e-15) -> PLDPmf:
        """The loss of `num_times` releases."""

    def compose(self, other: PLDPmf, tail_mass_truncation: float = 0) -> Any:
        """The loss of both releases together, without tails of at most half of the given mass."""
        return self._like(self._grid().compose(other._grid(), tail_mass_truncation))

    def get_delta_for_epsilon(self, epsilon: float | Sequence[float]) -> float | np.ndarray:
        """Delta at one epsilon, or at each of several in ascending order."""
        if np.ndim(epsilon) == 0:
            return self._grid().delta(float(epsilon))  # type: ignore[arg-type]
        epsilons = np.ascontiguousarray(epsilon, float)
        if (np.diff(epsilons) < 0).any():
            raise ValueError("Epsilons in get_delta_for_epsilon must be sorted in ascending order")
        return np.asarray(self._grid().deltas(epsilons))

    def get_epsilon_for_delta(self, delta: float) -> float:
        """The smallest epsilon of at least 0 at `delta`; infinity if there is none."""
        return max(0.0, self._grid().epsilon(delta))

    def get_delta_for_epsilon_for_composed_pld(self, other: PLDPmf, epsilon: float) -> float:
        """Delta at `epsilon` of both releases together, without their composition."""
        return self._grid().delta_of_composition(other._grid(), epsilon)

    def validate_composable(self, other: PLDPmf) -> None:
        """Refuses a distribution with another interval, or of another kind of bound."""
        if self._discretization != other._discretization:
            raise ValueError(f"Discretization intervals are different: {self._discretization} != {other._discretization}")
        if self._pessimistic_estimate != other._pessimistic_estimate:
            raise ValueError(
                f"Estimation types are different: {self._pessimistic_estimate} != {other._pessimistic_estimate}"
            )

    def compute_mixture(self, other: PLDPmf, self_weight: float) -> DensePLDPmf:
        """The loss of a mechanism that runs this release with probability `self_weight`, else `other`, and says which."""
        if not 0 <= self_weight <= 1:
            raise ValueError(f"weight should be in [0, 1], got {self_weight}")
        return _dense(self._grid().mixture(other._grid(), self_weight))

    @abc.abstractmethod
    def to_dense_pmf(self) -> DensePLDPmf:
        """The same distribution as an array."""


def _dense(grid: udp.GridPld) -> DensePLDPmf:
    probs = np.asarray(grid.probabilities)
    return DensePLDPmf(grid.step, grid.lower, probs, grid.infinity, grid.pessimistic)


def _sparse(grid: udp.GridPld) -> SparsePLDPmf:
    probs = np.asarray(grid.probabilities)
    places = np.flatnonzero(probs)
    losses = dict(zip((places + grid.lower).tolist(), probs[places].tolist(), strict=True))
    return SparsePLDPmf(losses, grid.step, grid.infinity, grid.pessimistic)


class DensePLDPmf(PLDPmf):
    """Probabilities in an array, from the loss `discretization * lower_loss` on."""

    def __init__(
        self,
        discretization: float,
        lower_loss: int,
        probs: np.ndarray,
        infinity_mass: float,
        pessimistic_estimate: bool,
    ) -> None:
        super().__init__(discretization, infinity_mass, pessimistic_estimate)
        self._lower_loss = lower_loss
        self._probs = probs

    @property
    def size(self) -> int:
        return len(self._probs)

    def _grid(self) -> udp.GridPld:
        probs = np.ascontiguousarray(self._probs, float)
        mass = float(self._infinity_mass)
        return udp.GridPld(self._discretization, int(self._lower_loss), probs, mass, self._pessimistic_estimate)

    def _like(self, grid: udp.GridPld) -> DensePLDPmf:
        return _dense(grid)

    def self_compose(self, num_times: int, tail_mass_truncation: float = 1e-15) -> DensePLDPmf:
        return _dense(self._grid().self_compose(num_times, tail_mass_truncation))

    def to_dense_pmf(self) -> DensePLDPmf:
        return self


class SparsePLDPmf(PLDPmf):
    """Probabilities by the loss as a multiple of `discretization`."""

    def __init__(
        self,
        loss_probs: Mapping[int, float],
        discretization: float,
        infinity_mass: float,
        pessimistic_estimate: bool,
    ) -> None:
        super().__init__(discretization, infinity_mass, pessimistic_estimate)
        self._loss_probs = loss_probs

    @property
    def size(self) -> int:
        return len(self._loss_probs)

    def _grid(self) -> udp.GridPld:
        losses = np.fromiter(self._loss_probs.keys(), np.int64, self.size)
        first, last = (int(losses.min()), int(losses.max())) if self.size else (0, -1)
        if last - first >= 1 << 27:
            raise ValueError(f"losses: expected a span of less than 2^27 intervals, got {last - first + 1}")
        probs = np.zeros(last - first + 1)
        probs[losses - first] = np.fromiter(self._loss_probs.values(), float, self.size)
        mass = float(self._infinity_mass)
        return udp.GridPld(self._discretization, first, probs, mass, self._pessimistic_estimate)

    def _like(self, grid: udp.GridPld) -> SparsePLDPmf:
        return _sparse(grid)

    def self_compose(self, num_times: int, tail_mass_truncation: float = 1e-15) -> PLDPmf:
        if self.size <= 1 or num_times * math.log(self.size) <= math.log(_MAX_SPARSE):
            return _sparse(self._grid().self_compose(num_times, tail_mass_truncation))
        return self.to_dense_pmf().self_compose(num_times, tail_mass_truncation)

    def to_dense_pmf(self) -> DensePLDPmf:
        return _dense(self._grid())


def create_pmf(
    loss_probs: Mapping[int, float], discretization: float, infinity_mass: float, pessimistic_estimate: bool
) -> PLDPmf:
    """The distribution in the class that suits its size."""
    pmf = SparsePLDPmf(loss_probs, discretization, infinity_mass, pessimistic_estimate)
    return pmf if pmf.size <= _MAX_SPARSE else pmf.to_dense_pmf()


def create_pmf_pessimistic_connect_dots(discretization: float, rounded_epsilons: Any, deltas: Any) -> PLDPmf:
    """The distribution whose curve connects these points of a convex curve, and so lies above it."""
    epsilons = np.ascontiguousarray(rounded_epsilons, np.int64)
    grid = udp.GridPld.connect_the_dots(discretization, epsilons, np.ascontiguousarray(deltas, float))
    return _sparse(grid) if len(epsilons) <= _MAX_SPARSE else _dense(grid)


def create_pmf_pessimistic_connect_dots_fixed_gap(
    discretization: float, rounded_epsilon_lower: int, rounded_epsilon_upper: int, deltas: Any
) -> PLDPmf:
    """The distribution whose curve connects the points of a convex curve at all multiples from the lower to the upper."""
    if rounded_epsilon_upper < rounded_epsilon_lower:
        raise ValueError(f"rounded_epsilon_upper {rounded_epsilon_upper} is smaller than {rounded_epsilon_lower}")
    epsilons = np.arange(rounded_epsilon_lower, rounded_epsilon_upper + 1)
    if len(epsilons) != len(deltas):
        raise ValueError(f"Length of deltas is not equal to number of epsilons: {len(deltas)} != {len(epsilons)}")
    return create_pmf_pessimistic_connect_dots(discretization, epsilons, deltas)


def compose_pmfs(pmf1: PLDPmf, pmf2: PLDPmf, tail_mass_truncation: float = 0) -> PLDPmf:
    """The loss of both releases together, in the class that suits its size."""
    is_sparse = isinstance(pmf1, SparsePLDPmf) and isinstance(pmf2, SparsePLDPmf)
    if is_sparse and pmf1.size * pmf2.size <= _MAX_SPARSE:
        return pmf1.compose(pmf2, tail_mass_truncation)
    return pmf1.to_dense_pmf().compose(pmf2.to_dense_pmf(), tail_mass_truncation)
