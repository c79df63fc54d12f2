"""The sum of a round in the memory of a GPU, by the rule of the session, in integers.

For each value `g` of a unit, `q = trunc(g 2^40)`. The GPU measures the sum of `q^2` of each group of values. Rust computes the factor
`f <= 2^30` from it, and the GPU adds `trunc(q f / 2^30)`. All of that is exact, so the sum has the bits of the processor's.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from threading import Thread
from typing import NoReturn

import torch

__all__ = ["Audit", "GpuSum"]

# Values that are worked on at once: each takes some 60 bytes beside the sum meanwhile.
_CHUNK = 1 << 22
# Values that go to the CPU at once.
_PART = 1 << 22
# The biased exponent of the largest values with |q| below 2^62, and the bits of an infinity.
_MAX_EXPONENT = 148
_INFINITY = 0x7F800000
_DIGIT = 0xFFFFFFFF


def _halvings(largest: int) -> int:
    """How often values up to this magnitude are divided by two, so that |q| stays below 2^62."""
    return max((largest >> 23) - _MAX_EXPONENT, 0)


def _magnitudes(bits: torch.Tensor, halvings: int) -> torch.Tensor:
    """|q| of the values with these bits, as int64."""
    # Values without the leading bit are below 2^-126: all of their bits are shifted out, this one too.
    mantissas = ((bits & 0x7FFFFF) | 0x800000).to(torch.int64) << 38
    shifts = (_MAX_EXPONENT + halvings - ((bits >> 23) & 0xFF)).clamp_(0, 63)
    return mantissas >> shifts


def measure(bits: torch.Tensor, halvings: int, into: torch.Tensor) -> None:
    """Adds the digits of all q^2 to `into[1:]`, and puts the largest magnitude into `into[0]`."""
    for chunk in bits.split(_CHUNK):
        into[0] = torch.maximum(into[0], (chunk & 0x7FFFFFFF).max())
        q = _magnitudes(chunk, halvings)
        low, high = q & _DIGIT, q >> 32
        # q^2 = low^2 + 2^32 (2 low high) + 2^64 high^2, where high is below 2^30. The first square fills 64 bits, and its sign is one.
        first = low * low
        second = 2 * low * high + ((first >> 32) & _DIGIT)
        third = high * high + (second >> 32)
        into[1] += (first & _DIGIT).sum()
        into[2] += (second & _DIGIT).sum()
        into[3] += (third & _DIGIT).sum()
        into[4] += (third >> 32).sum()


def add(bits: torch.Tensor, factor: int, halvings: int, total: torch.Tensor) -> None:
    """Adds trunc(q f / 2^30) to `total`."""
    for chunk, place in zip(bits.split(_CHUNK), total.split(_CHUNK), strict=True):
        q = _magnitudes(chunk, halvings)
        # With q = high 2^31 + low this is floor(q f / 2^30) exactly. Both products stay below 2^62.
        length = (((q >> 31) * factor) << 1) + (((q & 0x7FFFFFFF) * factor) >> 30)
        place += torch.where(chunk < 0, -length, length)


_Measure = Callable[[torch.Tensor, int, torch.Tensor], None]
_Add = Callable[[torch.Tensor, int, int, torch.Tensor], None]


def _functions(device: torch.device, kernels: bool) -> tuple[_Measure, _Add]:
    """`measure` and `add`, as kernels with one pass over the memory each where the GPU has them, after a test with known answers."""
    found = (measure, add)
    if kernels and device.type == "cuda":
        try:
            from . import _triton

            _test(device, _triton.measure, _triton.add)
            found = (_triton.measure, _triton.add)
        except ImportError:
            pass
        except _Faulty:
            raise
        except Exception as error:
            # Triton needs a compiler for C, which a machine may lack.
            warnings.warn(f"Triton cannot be used, so sums on {device} are slower: {error}", stacklevel=4)
    if found == (measure, add) and device.type != "cpu":
        _test(device, measure, add)
    return found


class _Faulty(RuntimeError):
    pass


def _test(device: torch.device, measured: _Measure, added: _Add) -> None:
    """Refuses a GPU that does not give the integers of the CPU."""
    # Numbers of all magnitudes, and some that are none.
    bits = (torch.arange(3001) * 2_654_435_761 % 2**32 - 2**31).to(torch.int32)
    there = bits.to(device)
    for halvings in (0, 107):
        norms, total = torch.zeros(5, dtype=torch.int64), torch.arange(3001) << 40
        others, sums = norms.to(device, copy=True), total.to(device, copy=True)
        measure(bits, halvings, norms)
        measured(there, halvings, others)
        for factor in (1 << 30, 987_654_321):
            add(bits, factor, halvings, total)
            added(there, factor, halvings, sums)
        if not torch.equal(norms, others.cpu()) or not torch.equal(total, sums.cpu()):
            raise _Faulty(f"{device}: expected the integers that the CPU computes, got others: the GPU or its memory is faulty")


def _defers(device: torch.device) -> bool:
    """True where the program goes on while a GPU measures a unit."""
    return device.type == "cuda"


class GpuSum:
    """The sum of the units of a round where the gradients are. It has no noise, so nothing shows it, and it is set to zero once taken.

    `values` is the float32 memory that each unit writes its update to, and `groups` has the spans that are bounded together. With
    `kernels=False` the sum uses the operations of torch also where it has kernels.

    Each unit takes three calls: `keep` when its update is whole, then `norms`, and then `add`. On a GPU `keep` copies the update to
    memory of its own and waits for nothing, so that the next unit can write its update to `values` before `norms` is called.
    """

    def __init__(self, values: torch.Tensor, groups: Sequence[Sequence[tuple[int, int]]], *, kernels: bool = True) -> None:
        self._values = values
        self.defers = _defers(values.device)
        # The update of the unit that is measured and added.
        self.kept = torch.zeros_like(values) if self.defers else values
        self._bits = self.kept.view(torch.int32)
        self._groups = [[slice(*span) for span in group if span[0] < span[1]] for group in groups]
        self._total = torch.zeros(values.shape, dtype=torch.int64, device=values.device)
        self._norms = torch.zeros((len(groups), 5), dtype=torch.int64, device=values.device)
        self._measure, self._add = _functions(values.device, kernels)
        # Two parts, since one is merged while the other is copied; fast where the system does not move their memory.
        size = min(_PART, values.numel())
        pinned = values.device.type == "cuda"
        self._hosts = [torch.zeros(size, dtype=torch.int64, pin_memory=pinned) for _ in range(2)]
        self._pinned = pinned
        self._found = torch.zeros(self._norms.shape, dtype=torch.int64, pin_memory=pinned)
        self._measured: torch.cuda.Event | None = None

    def keep(self, after: torch.cuda.Event | None = None) -> None:
        """Measures the unit in `values`, and keeps its update until the next call. Before the event `after` nothing writes `kept`."""
        if after is not None:
            torch.cuda.current_stream(self.kept.device).wait_event(after)
        if self.kept is not self._values:
            self.kept.copy_(self._values)
        self._norms.zero_()
        for group, norm in zip(self._groups, self._norms, strict=True):
            for span in group:
                self._measure(self._bits[span], 0, norm)
        self._found.copy_(self._norms, non_blocking=self._pinned)
        if self._pinned:
            self._measured = torch.cuda.Event()
            self._measured.record(torch.cuda.current_stream(self.kept.device))

    def norms(self) -> torch.Tensor:
        """The norms of the unit that is kept, on the CPU: for each group the largest magnitude as bits, and the sums of four digits."""
        if self._measured is not None:
            self._measured.synchronize()
        norms = self._found.clone()
        for place, largest in enumerate(norms[:, 0].tolist()):
            halvings = _halvings(largest)
            # Values that are too large for q were measured wrongly above. Those that are not finite have no norm.
            if halvings and largest < _INFINITY:
                self._norms[place] = 0
                for span in self._groups[place]:
                    self._measure(self._bits[span], halvings, self._norms[place])
                norms[place] = self._norms[place].cpu()
        return norms.flatten()

    def add(self, factors: Sequence[tuple[int, int]]) -> None:
        """Adds the unit that is kept, by a factor and a number of halvings for each group."""
        for group, (factor, halvings) in zip(self._groups, factors, strict=True):
            for span in group if factor else ():
                self._add(self._bits[span], factor, halvings, self._total[span])

    def parts(self) -> Iterator[tuple[int, torch.Tensor]]:
        """The sum, part by part on the CPU, each with its first place. A part is gone with the next, and the sum with the last."""
        try:
            copied: tuple[int, torch.Tensor, torch.cuda.Event | None] | None = None
            for number, part in enumerate(self._total.split(_PART)):
                host = self._hosts[number % 2][: part.numel()]
                event = torch.cuda.Event() if self._total.is_cuda else None
                host.copy_(part, non_blocking=event is not None)
                if event is not None:
                    event.record(torch.cuda.current_stream(self._total.device))
                if copied is not None:
                    yield self._ready(*copied)
                copied = (number * _PART, host, event)
            if copied is not None:
                yield self._ready(*copied)
        finally:
            self.forget()

    def forget(self) -> None:
        """Sets the sum and the unit that is kept to zero."""
        self._total.zero_()
        if self.kept is not self._values:
            self.kept.zero_()
        self._norms.zero_()
        if self._total.is_cuda:
            # No copy arrives after the zeros.
            torch.cuda.current_stream(self._total.device).synchronize()
        for host in [self._found, *self._hosts]:
            host.zero_()

    @staticmethod
    def _ready(first: int, host: torch.Tensor, event: torch.cuda.Event | None) -> tuple[int, torch.Tensor]:
        if event is not None:
            event.synchronize()
        return first, host

    def __repr__(self) -> str:
        return f"<GpuSum of {self._total.numel()} values on {self._total.device}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("the sum of a GPU has no noise, and stays where it is")


class Audit:
    """The copy of one unit of a round to the CPU, whose norm is computed there again.

    Where the unit lies on a GPU, this happens beside the work on the units after it. `host` is memory of the CPU that is free meanwhile.
    """

    def __init__(self, host: torch.Tensor) -> None:
        # Marks the end of the last copy, before which the unit must not be overwritten.
        self.copied: torch.cuda.Event | None = None
        self._host = host
        self._thread: Thread | None = None
        self._failed: BaseException | None = None

    def start(self, values: torch.Tensor, audit: Callable[[torch.Tensor], None]) -> None:
        """Copies `values` and calls `audit` on the copy. An error may come with `wait`."""
        if not values.is_cuda:
            return audit(values.detach().cpu())
        current, beside = torch.cuda.current_stream(values.device), torch.cuda.Stream(values.device)
        beside.wait_stream(current)
        with torch.cuda.stream(beside):
            self._host.copy_(values.detach(), non_blocking=True)
            values.record_stream(beside)
            self.copied = copied = torch.cuda.Event()
            copied.record(beside)

        def run() -> None:
            try:
                copied.synchronize()
                audit(self._host)
            except BaseException as error:
                self._failed = error

        self._thread = Thread(target=run, name="undertone-audit", daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Waits for the end of the audit, and raises its error."""
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join()
        failed, self._failed = self._failed, None
        if failed is not None:
            raise failed
