"""Calibration: the value of a parameter that reaches a target guarantee. Every result holds the target."""

from undertone_dp._native import noise_multiplier, parameter, rounds, sampling_probability

__all__ = ["noise_multiplier", "parameter", "rounds", "sampling_probability"]
