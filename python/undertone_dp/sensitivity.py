"""Sensitivity of strategy matrices under a participation schema, each with a bool that says if the value is exact."""

from undertone_dp._native import sensitivity_banded as banded
from undertone_dp._native import sensitivity_general as general
from undertone_dp._native import sensitivity_toeplitz as toeplitz
from undertone_dp._native import sensitivity_tree as tree

__all__ = ["banded", "general", "toeplitz", "tree"]
