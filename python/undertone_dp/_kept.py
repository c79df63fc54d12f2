"""The values of tensors at one moment: to compare tensors with them by their bytes, and to put them back.

PRIVACY: only bytes decide. PyTorch's version counter stands still where a fused optimizer, `.data`, numpy or DLPack writes a tensor,
and memory can be replaced without it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

__all__ = ["Kept", "bits", "compact", "equal", "fold", "overlap", "place", "span", "views"]

_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """The bits of the values as integers, in the memory of the tensor."""
    tensor = tensor.detach()
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    return tensor.view(_INTEGERS[tensor.element_size()])


def equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    """True if two tensors of one type and shape have the same bytes."""
    one, other = bits(one), bits(other)
    if one.is_contiguous() and other.is_contiguous():
        # Eight bytes at once, where both stand so.
        one, other, width = one.flatten(), other.flatten(), 8 // one.element_size()
        if not any(number % width for number in (one.numel(), one.storage_offset(), other.storage_offset())):
            one, other = one.view(torch.int64), other.view(torch.int64)
    return torch.equal(one, other)


def compact(tensor: torch.Tensor) -> torch.Tensor:
    """The part of an expanded tensor that its memory holds, in which each value stands once."""
    for axis, (size, stride) in enumerate(zip(tensor.shape, tensor.stride(), strict=True)):
        if stride == 0 and size > 1:
            tensor = tensor.narrow(axis, 0, 1)
    return tensor


def _folded_at_once(device: torch.device) -> int:
    """Values whose sums are made at once, each of which takes some 24 bytes meanwhile: on the CPU those that its caches hold."""
    return 1 << 16 if device.type == "cpu" else 1 << 22


def fold(tensor: torch.Tensor) -> tuple[tuple[int, ...], torch.dtype, int]:
    """The shape, the type, and the sum of (bits + 1) times odd places modulo 2^64. It finds faults, and no forger."""
    values = bits(compact(tensor)).contiguous().flatten()
    mask = (1 << 8 * values.element_size()) - 1
    total = torch.zeros((), dtype=torch.int64, device=values.device)
    size = _folded_at_once(values.device)
    odd = 2 * torch.arange(min(values.numel(), size), dtype=torch.int64, device=values.device) + 1
    for number, chunk in enumerate(values.split(size)):
        # All products and sums wrap, as they do modulo 2^64.
        wide = chunk.to(torch.int64, copy=True)
        if values.element_size() in (2, 4):
            wide &= mask
        wide += 1
        total += (wide * odd[: len(wide)]).sum() + 2 * number * size * wide.sum()
    return tuple(tensor.shape), tensor.dtype, int(total)


def span(tensor: torch.Tensor) -> tuple[int, int]:
    """The first and the last-but-one address of a tensor's memory."""
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.data_ptr(), tensor.data_ptr() + (last + 1) * tensor.element_size()


def _addresses(tensor: torch.Tensor) -> torch.Tensor:
    """The address of each value."""
    found = torch.tensor([tensor.data_ptr()])
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        found = found[..., None] + torch.arange(size) * (stride * tensor.element_size())
    return found.flatten()


def overlap(one: torch.Tensor, other: torch.Tensor) -> bool:
    """True if two tensors share memory. Two columns of a matrix do not."""
    if one.device != other.device or not one.numel() or not other.numel():
        return False
    (start, end), (first, last) = span(one), span(other)
    if end <= first or last <= start:
        return False
    if one.is_contiguous() or other.is_contiguous():
        # One of them fills its span. The other has a value there, unless it steps over all of it.
        dense, sparse = (one, other) if one.is_contiguous() else (other, one)
        if sparse.is_contiguous():
            return True
        start, end = span(dense)
        found = _addresses(sparse)
        return bool(((found > start - sparse.element_size()) & (found < end)).any())
    if one.element_size() != other.element_size():
        return True
    return bool(torch.isin(_addresses(one), _addresses(other)).any())


class Kept:
    """Copies of tensors of one type and device, by their names.

    `scratch` is flat memory of as many values of that type. A device that the program does not wait for compares through it.
    """

    def __init__(self, tensors: Mapping[str, torch.Tensor], scratch: torch.Tensor) -> None:
        self._names = list(tensors)
        self._tensors = list(tensors.values())
        self._values = torch.zeros_like(scratch)
        self._scratch = scratch
        self._kept = views(self._values, self._tensors)
        self._compared = views(scratch, self._tensors)
        # The memory of each tensor, which a unit may move it from, and its place there.
        self._homes = [tensor.data for tensor in self._tensors]
        self._places = [place(home) for home in self._homes]

    @torch.no_grad()
    def take(self) -> None:
        """Keeps the values that the tensors have now, where they are now."""
        self._homes = [tensor.data for tensor in self._tensors]
        self._places = [place(home) for home in self._homes]
        torch._foreach_copy_(self._kept, self._homes)

    @torch.no_grad()
    def put_back(self) -> None:
        """Makes the bytes of the tensors those that were kept, in the memory where they were."""
        for name, tensor, home, before in zip(self._names, self._tensors, self._homes, self._places, strict=True):
            if place(tensor) != before:
                tensor.data = home
                if tensor.numel() and not tensor.data_ptr():
                    raise RuntimeError(f"{name}: a unit took the memory of the parameter away")
        # PRIVACY: all of them, whatever any counter says.
        torch._foreach_copy_(self._tensors, self._kept)

    def changed(self) -> str | None:
        """The name of the first tensor whose bytes are not those that were kept."""
        if (name := self._other_form()) is not None:
            return name
        if self._values.device.type == "cpu":
            for name, tensor, kept in zip(self._names, self._tensors, self._kept, strict=True):
                if not equal(tensor, kept):
                    return name
            return None
        return self.name_at(int(self.difference()))

    def _other_form(self) -> str | None:
        """The name of the first tensor that has another shape, type or device."""
        for name, tensor, before in zip(self._names, self._tensors, self._places, strict=True):
            found = place(tensor)
            if found != before and (found[1], found[3:]) != (before[1], before[3:]):
                return name
        return None

    @torch.no_grad()
    def difference(self) -> torch.Tensor:
        """The index of a value with other bytes than those that were kept, as a number on the device; -1 where there is none.

        The program does not wait for it. The scratch memory is overwritten.
        """
        if (name := self._other_form()) is not None:
            raise RuntimeError(f"{name}: expected the shape, the type and the device of the last release, got others")
        torch._foreach_copy_(self._compared, [tensor.data for tensor in self._tensors])
        differs = bits(self._scratch) != bits(self._values)
        if not differs.numel():
            return torch.full((), -1, dtype=torch.int64, device=differs.device)
        return torch.where(differs.any(), differs.view(torch.uint8).argmax(), -1)

    def name_at(self, index: int) -> str | None:
        """The name of the tensor with a value; none for -1."""
        for name, tensor in zip(self._names, self._kept, strict=True) if index >= 0 else ():
            if index < tensor.numel():
                return name
            index -= tensor.numel()
        return None

    def __repr__(self) -> str:
        return f"<Kept values of {len(self._names)} tensors>"


def place(tensor: torch.Tensor) -> tuple[object, ...]:
    """The memory of a tensor and its form."""
    return tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype, tensor.device


def views(flat: torch.Tensor, like: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Views of flat memory, one after the other, in the shapes of tensors."""
    found: list[torch.Tensor] = []
    start = 0
    for tensor in like:
        found.append(flat[start : start + tensor.numel()].view(tensor.shape))
        start += tensor.numel()
    return found
