"""Accounting by privacy loss distributions."""

from undertone_dp.dp_accounting.pld import pld_privacy_accountant
from undertone_dp.dp_accounting.pld.pld_privacy_accountant import PLDAccountant

__all__ = ["PLDAccountant", "pld_privacy_accountant"]
