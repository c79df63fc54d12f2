"""Accounting by privacy loss distributions."""

from undertone_dp.dp_accounting.pld import (
    accountant,
    common,
    pld_pmf,
    pld_privacy_accountant,
    privacy_loss_distribution,
    privacy_loss_mechanism,
)
from undertone_dp.dp_accounting.pld.pld_privacy_accountant import PLDAccountant

__all__ = [
    "PLDAccountant",
    "accountant",
    "common",
    "pld_pmf",
    "pld_privacy_accountant",
    "privacy_loss_distribution",
    "privacy_loss_mechanism",
]
