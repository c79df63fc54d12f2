"""Accounting by Renyi divergences."""

from undertone_dp.dp_accounting.rdp import rdp_privacy_accountant
from undertone_dp.dp_accounting.rdp.rdp_privacy_accountant import RdpAccountant, compute_delta, compute_epsilon

__all__ = ["RdpAccountant", "compute_delta", "compute_epsilon", "rdp_privacy_accountant"]
