"""This package's accountant inside Opacus."""

from __future__ import annotations

import math
from typing import Any

from . import Accountant
from ._native import Event

__all__ = ["register"]


def register(name: str = "undertone", *, force: bool = False) -> None:
    """Register the accountant with Opacus, for `PrivacyEngine(accountant="undertone")` and
    `get_noise_multiplier(accountant="undertone")`.

    It answers with loss distributions under add-or-remove. `get_epsilon_bounds(delta)` of the accountant also gives the epsilon
    that is certainly spent. `force` replaces an accountant of this name.

    Examples
    --------
    >>> import undertone_dp.opacus  # doctest: +SKIP
    >>> undertone_dp.opacus.register()  # doctest: +SKIP
    >>> from opacus import PrivacyEngine  # doctest: +SKIP
    >>> engine = PrivacyEngine(accountant="undertone")  # doctest: +SKIP
    """
    from opacus.accountants import IAccountant
    from opacus.accountants.registry import register_accountant

    class UndertoneAccountant(IAccountant):
        """Poisson-sampled Gaussians by loss distributions."""

        def __init__(self) -> None:
            self.history: list[tuple[float, float, int]] = []

        def step(self, *, noise_multiplier: float, sample_rate: float) -> None:
            """Count one step of the optimizer."""
            step = (noise_multiplier, sample_rate)
            if self.history and self.history[-1][:2] == step:
                self.history[-1] = (*step, self.history[-1][2] + 1)
            else:
                self.history.append((*step, 1))

        def get_epsilon(self, delta: float, **_: Any) -> float:
            """The smallest epsilon that certainly holds at `delta`; infinite after a step without noise."""
            composed = self._composed()
            return math.inf if composed is None else composed.epsilon(delta)

        def get_epsilon_bounds(self, delta: float) -> tuple[float, float]:
            """The epsilon that is certainly spent at `delta`, and one that is certainly enough."""
            composed = self._composed()
            return (math.inf, math.inf) if composed is None else composed.bounds(delta)

        def _composed(self) -> Accountant | None:
            """Everything counted; `None` after a step without noise."""
            accountant = Accountant("pld")
            for noise_multiplier, sample_rate, steps in self.history:
                if noise_multiplier == 0 and sample_rate > 0:
                    return None
                if sample_rate > 0:
                    event = Event.PoissonGaussian(
                        sampling_probability=sample_rate, noise_multiplier=noise_multiplier
                    )
                    accountant.compose(event, steps)
            return accountant

        def __len__(self) -> int:
            return sum(steps for _, _, steps in self.history)

        @classmethod
        def mechanism(cls) -> str:
            return name

    register_accountant(name, UndertoneAccountant, force=force)
