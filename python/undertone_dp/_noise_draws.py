"""Two draws of noise that begin from equal seeds: noise that comes out twice is no secret.

PRIVACY: a program that seeds a framework's generator, or a library that does so for it, makes the noise a constant. A guarantee that
counts on such noise is false for everybody who knows the seed.
"""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast

_ENOUGH = 32
"""Fewer values may be equal by chance, if they are whole numbers. They are drawn again until there are so many."""


@dataclass(frozen=True, slots=True)
class Repeated:
    """An array that was drawn twice."""

    place: str
    """Its place in what the function returns, such as `['bias']`; empty for the whole."""
    size: int
    """The number of its values."""
    generators: tuple[str, ...]
    """The libraries whose generators began from equal seeds."""


class _Generators:
    """The global generators of the process, as they were before the first draw."""

    def __init__(self) -> None:
        self._kept: dict[str, Any] = {}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name in self._kept if "." not in name)

    def begin_again(self) -> bool:
        """Puts every generator back. Returns true if some are new, because a draw has loaded their library."""
        known = len(self._kept)
        for name, (read, write) in _global_generators().items():
            if name in self._kept:
                write(self._kept[name])
            else:
                self._kept[name] = read()
        return len(self._kept) > known


def _global_generators() -> dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]]:
    """Reads and writes the state of each global generator, by its name. A library that is not loaded has drawn nothing."""
    found: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {"random": (random.getstate, random.setstate)}
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None:
        found["numpy"] = (lambda: numpy.random.get_state(legacy=False), numpy.random.set_state)
    torch: Any = sys.modules.get("torch")
    if torch is None:
        return found
    found["torch"] = (torch.get_rng_state, torch.set_rng_state)
    for name in ("cuda", "xpu"):
        devices = getattr(torch, name, None)
        if devices is not None and devices.is_available():
            # A forked process cannot use them, and then no draw does.
            with suppress(RuntimeError):
                devices.init()
                found[f"torch.{name}"] = (devices.get_rng_state_all, devices.set_rng_state_all)
    if torch.backends.mps.is_available():
        found["torch.mps"] = (torch.mps.get_rng_state, torch.mps.set_rng_state)
    return found


@dataclass(frozen=True, slots=True)
class _Array:
    octets: bytes
    size: int


def repeated(draw: Callable[[], Any]) -> list[Repeated]:
    """The arrays of `draw` that come out twice if the global generators begin from equal seeds.

    The generators are left as they were. `TypeError` for a return that holds no array, `ValueError` for one without values or of
    another form than before.
    """
    generators = _Generators()
    generators.begin_again()

    def times(count: int) -> list[dict[str, _Array]]:
        return [dict(_arrays(draw(), "")) for _ in range(count)]

    def pairs(count: int) -> Iterator[tuple[dict[str, _Array], dict[str, _Array]]]:
        first = times(count)
        while generators.begin_again():
            first = times(count)
        second = times(count)
        generators.begin_again()
        return zip(first, second, strict=True)

    try:
        ((first, second),) = pairs(1)
        sizes = {place: array.size for place, array in first.items()}
        if sum(sizes.values()) == 0:
            raise ValueError("draw: expected an array with at least one value, got none")
        other = {place: array.size for place, array in second.items()}
        if sizes != other:
            raise ValueError(f"draw: expected arrays of one form in every call, got {sizes} and {other} values")
        equal = {place for place in sizes if sizes[place] and first[place] == second[place]}
        few = {place for place in equal if sizes[place] < _ENOUGH}
        if few:
            more = list(pairs(math.ceil(_ENOUGH / min(sizes[place] for place in few))))
            equal -= {place for place in few if any(one.get(place) != two.get(place) for one, two in more)}
    finally:
        generators.begin_again()
    return [Repeated(place, sizes[place], generators.names) for place in sizes if place in equal]


def _arrays(value: Any, place: str) -> Iterator[tuple[str, _Array]]:
    """The arrays in `value` with their places, copied: a function may write each draw into the same memory."""
    parts: Iterable[tuple[Any, Any]]
    kind = type(value).__name__
    if isinstance(value, Mapping):
        parts = cast("Mapping[Any, Any]", value).items()
    elif isinstance(value, list | tuple) and not _is_of_numbers(cast("Sequence[Any]", value)):
        parts = enumerate(cast("Sequence[Any]", value))
    else:
        array = _array(value)
        if array is None:
            of = f" in its return{place}" if place else ""
            raise TypeError(
                f"draw: expected an array of the noise, or a list or a mapping of arrays, got {kind}{of}"
            )
        yield place, array
        return
    for key, part in parts:
        yield from _arrays(part, f"{place}[{key!r}]")


def _is_of_numbers(values: Sequence[Any]) -> bool:
    return all(isinstance(value, int | float) for value in values)


def _array(value: Any) -> _Array | None:
    if isinstance(value, list | tuple):
        numbers = cast("Sequence[float]", value)
        return _Array(repr(list(numbers)).encode(), len(numbers))
    if hasattr(value, "detach") and hasattr(value, "numel"):
        octets = value.detach().cpu().contiguous().flatten().view(sys.modules["torch"].uint8)
        try:
            return _Array(octets.numpy().tobytes(), value.numel())
        except RuntimeError:
            # PyTorch without numpy.
            return _Array(bytes(octets.tolist()), value.numel())
    if hasattr(value, "__array__"):
        import numpy as np

        values = np.asarray(value)
        return None if values.dtype.hasobject or values.dtype.kind in "SUmM" else _Array(values.tobytes(), values.size)
    try:
        view = memoryview(value)
    except TypeError:
        return None
    return _Array(view.tobytes(), view.nbytes // view.itemsize)
