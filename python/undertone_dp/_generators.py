"""Random generators of a unit's own: what one unit draws says nothing about the units before it."""

from __future__ import annotations

import random
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

__all__ = ["Generators", "entropy"]


def entropy(unit: int) -> bytes:
    """Bytes of the system for the generators of a unit, whose place in the round says nothing about them."""
    return secrets.token_bytes(16)


class Generators:
    """The global generators of torch on the CPU and on a device, of numpy where it is loaded, and of Python's `random`."""

    def __init__(self, device: torch.device) -> None:
        self._torch = [torch.default_generator]
        if device.type != "cpu":
            self._torch.append(_of_device(device))

    @contextmanager
    def seeded(self, seed: bytes) -> Iterator[None]:
        """Sets all generators by these 16 bytes, and gives them their states back at the end."""
        numpy: Any = sys.modules.get("numpy.random")
        states = [generator.get_state() for generator in self._torch]
        of_numpy, of_python = numpy and numpy.get_state(legacy=False), random.getstate()
        try:
            for generator in self._torch:
                generator.manual_seed(int.from_bytes(seed[:8], "little"))
            if numpy:
                numpy.seed([int.from_bytes(seed[place : place + 4], "little") for place in range(0, 16, 4)])
            random.seed(seed)
            yield
        finally:
            for generator, state in zip(self._torch, states, strict=True):
                generator.set_state(state)
            if numpy:
                numpy.set_state(of_numpy)
            random.setstate(of_python)


def _of_device(device: torch.device) -> torch.Generator:
    """The global generator of a device."""
    module = torch.get_device_module(device)
    if device.type == "mps":
        return module._get_default_mps_generator()
    if not hasattr(module, "default_generators"):
        raise TypeError(f'rng: expected a device whose generator can be set, got {device}: rng="caller" leaves generators alone')
    if device.type == "cuda":
        torch.cuda.init()
    return module.default_generators[device.index or 0]
