"""The Gaussian mechanism, exactly."""

import math

import undertone_dp as udp


def get_epsilon_gaussian(sigma: float, delta: float, tol: float = 1e-12) -> float:
    """The smallest epsilon of Gaussian noise `sigma` at `delta`. The answer is exact, whatever `tol` is."""
    if sigma < 0:
        raise ValueError(f"sigma must be non-negative, got sigma={sigma}.")
    if not 0 <= delta <= 1:
        raise ValueError(f"delta must be in [0, 1], got delta={delta}.")
    if delta == 1 or sigma == math.inf:
        return 0
    if delta == 0 or sigma == 0:
        return math.inf
    return udp.gaussian.epsilon(sigma, delta)


def get_sigma_gaussian(epsilon: float, delta: float, tol: float = 1e-12) -> float:
    """The smallest Gaussian noise that holds `(epsilon, delta)`. The answer is exact, whatever `tol` is."""
    if epsilon < 0:
        raise ValueError(f"epsilon must be non-negative, got epsilon={epsilon}.")
    if not 0 <= delta <= 1:
        raise ValueError(f"delta must be in [0, 1], got delta={delta}.")
    if delta == 1 or epsilon == math.inf:
        return 0
    if delta == 0:
        return math.inf
    return udp.gaussian.noise_multiplier(epsilon, delta)
