"""Conversions of zero-concentrated differential privacy."""

from undertone_dp._native import zcdp_epsilon as epsilon
from undertone_dp._native import zcdp_epsilon_of_gaussians as epsilon_of_gaussians

__all__ = ["epsilon", "epsilon_of_gaussians"]
