"""One Gaussian release, exactly."""

from undertone_dp._native import gaussian_delta as delta
from undertone_dp._native import gaussian_epsilon as epsilon
from undertone_dp._native import gaussian_noise_multiplier as noise_multiplier

__all__ = ["delta", "epsilon", "noise_multiplier"]
