"""The two functions of `_gpu` as kernels of Triton. They use integers alone, and give the same bits."""

# Triton reads annotations of kernels: no import from __future__ here.
import torch
import triton
import triton.language as tl

__all__ = ["add", "measure"]

_BLOCK = 1024
_WARPS = 8
# Programs of `measure`: each adds up many blocks before it adds its digits to those of others.
_PROGRAMS = 2112


@triton.jit(do_not_specialize=["halvings"])
def _magnitudes(bits, halvings):
    """|q| of the values with these bits, as `_magnitudes` of `_gpu` computes it."""
    mantissas = ((bits & 0x7FFFFF) | 0x800000).to(tl.uint64) << 38
    shifts = 148 + halvings - ((bits >> 23) & 0xFF).to(tl.int32)
    shifts = tl.minimum(tl.maximum(shifts, 0), 63)
    return mantissas >> shifts.to(tl.uint64)


@triton.jit(do_not_specialize=["halvings"])
def _measure(values, into, count, halvings, BLOCK: tl.constexpr):
    largest = tl.zeros([BLOCK], tl.uint32)
    zeroth = tl.zeros([BLOCK], tl.uint64)
    first = tl.zeros([BLOCK], tl.uint64)
    second = tl.zeros([BLOCK], tl.uint64)
    third = tl.zeros([BLOCK], tl.uint64)
    start = tl.program_id(0).to(tl.int64) * BLOCK
    step = tl.num_programs(0).to(tl.int64) * BLOCK
    for begin in range(start, count, step):
        places = begin + tl.arange(0, BLOCK)
        bits = tl.load(values + places, mask=places < count, other=0).to(tl.uint32, bitcast=True)
        largest = tl.maximum(largest, bits & 0x7FFFFFFF)
        q = _magnitudes(bits, halvings)
        # Both halves as 64 bits of which the upper 32 are zero: each product is then one instruction.
        low = q.to(tl.uint32).to(tl.uint64)
        high = (q >> 32).to(tl.uint32).to(tl.uint64)
        double = (q >> 31).to(tl.uint32) & 0xFFFFFFFE
        # q^2 = low^2 + 2^32 (2 low high) + 2^64 high^2, where high is below 2^30.
        a = low * low
        b = low * double.to(tl.uint64) + (a >> 32)
        c = high * high + (b >> 32)
        zeroth += a.to(tl.uint32).to(tl.uint64)
        first += b.to(tl.uint32).to(tl.uint64)
        second += c.to(tl.uint32).to(tl.uint64)
        third += c >> 32
    tl.atomic_max(into, tl.max(largest, axis=0).to(tl.int64))
    tl.atomic_add(into + 1, tl.sum(zeroth, axis=0).to(tl.int64))
    tl.atomic_add(into + 2, tl.sum(first, axis=0).to(tl.int64))
    tl.atomic_add(into + 3, tl.sum(second, axis=0).to(tl.int64))
    tl.atomic_add(into + 4, tl.sum(third, axis=0).to(tl.int64))


@triton.jit(do_not_specialize=["factor", "halvings"])
def _add(values, total, count, factor, halvings, BLOCK: tl.constexpr):
    places = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = places < count
    bits = tl.load(values + places, mask=inside, other=0).to(tl.uint32, bitcast=True)
    before = tl.load(total + places, mask=inside, other=0)
    q = _magnitudes(bits, halvings)
    f = factor.to(tl.uint32).to(tl.uint64)
    # With q = high 2^31 + low this is floor(q f / 2^30) exactly. Both products stay below 2^62.
    high = (q >> 31).to(tl.uint32).to(tl.uint64)
    low = (q.to(tl.uint32) & 0x7FFFFFFF).to(tl.uint64)
    length = (((high * f) << 1) + ((low * f) >> 30)).to(tl.int64)
    sign = bits.to(tl.int32, bitcast=True) >> 31
    # -length is ~length + 1.
    added = (length ^ sign.to(tl.int64)) - sign.to(tl.int64)
    tl.store(total + places, before + added, mask=inside)


def measure(bits: torch.Tensor, halvings: int, into: torch.Tensor) -> None:
    """Adds the digits of all q^2 to `into[1:]`, and puts the largest magnitude into `into[0]`."""
    programs = min(triton.cdiv(bits.numel(), _BLOCK), _PROGRAMS)
    _measure[(programs,)](bits, into, bits.numel(), halvings, BLOCK=_BLOCK, num_warps=_WARPS)


def add(bits: torch.Tensor, factor: int, halvings: int, total: torch.Tensor) -> None:
    """Adds trunc(q f / 2^30) to `total`."""
    programs = triton.cdiv(bits.numel(), _BLOCK)
    _add[(programs,)](bits, total, bits.numel(), factor, halvings, BLOCK=_BLOCK, num_warps=_WARPS)
