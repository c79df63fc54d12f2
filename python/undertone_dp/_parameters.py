"""The parameters of an optimizer as a session sees them: trained ones in one flat buffer, masters of half precision, and frozen ones."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from ._kept import Kept, equal, overlap, span, views

__all__ = ["Parameters"]

_HALVES = (torch.bfloat16, torch.float16)
# The attribute of a master that has its parameter.
_PARAMETER = "_undertone_parameter"


class Parameters:
    """The parameters of `inner`. Those that ask for no gradient now are frozen: no release moves them.

    A trained parameter in half precision has a float32 master, which takes its place in `inner`. The parameter is the master's rounding.
    """

    def __init__(self, inner: torch.optim.Optimizer) -> None:
        self._inner = inner
        named = _named(inner)
        self.frozen = {name: parameter for name, parameter in named.items() if not parameter.requires_grad}
        self.trained = {name: parameter for name, parameter in named.items() if parameter.requires_grad}
        if not self.trained:
            raise ValueError("inner: expected a parameter that asks for a gradient, got none")
        self.device = next(iter(self.trained.values())).device
        for name, parameter in self.trained.items():
            if parameter.dtype not in (torch.float32, *_HALVES) or parameter.device != self.device:
                raise TypeError(
                    f"{name}: expected a float32, bfloat16 or float16 parameter on {self.device} as the others, got {parameter.dtype} "
                    f"on {parameter.device}"
                )
        _refuse_overlaps(named)
        shapes = list(self.trained.values())
        self.dim = sum(parameter.numel() for parameter in shapes)
        # The gradients, which are views of this memory.
        self.flat = torch.zeros(self.dim, dtype=torch.float32, device=self.device)
        self._views = dict(zip(self.trained, views(self.flat, shapes), strict=True))
        # The parameters that `inner` steps. An earlier session may have left masters there.
        listed = [parameter for group in inner.param_groups for parameter in group["params"]]
        left = {id(getattr(master, _PARAMETER)): master for master in listed if hasattr(master, _PARAMETER)}
        self.stepped = dict(self.trained)
        for name, parameter in self.trained.items():
            if parameter.dtype in _HALVES:
                self.stepped[name] = left[id(parameter)] if id(parameter) in left else _master(parameter)
        self.masters = {name: self.stepped[name] for name, parameter in self.trained.items() if parameter.dtype in _HALVES}
        self._grads = dict(self._views)
        self._half_flats: list[torch.Tensor] = []
        self._kept = [Kept(self.stepped, self.flat)]
        for dtype in _HALVES:
            found = {name: parameter for name, parameter in self.trained.items() if parameter.dtype == dtype}
            if found:
                flat = torch.zeros(sum(parameter.numel() for parameter in found.values()), dtype=dtype, device=self.device)
                self._half_flats.append(flat)
                self._grads |= dict(zip(found, views(flat, list(found.values())), strict=True))
                self._kept.append(Kept(found, flat))

    def attach(self) -> None:
        """Puts masters in the place of their parameters, each parameter once, and makes the gradients views of the flat buffer."""
        of_parameter = {id(self.trained[name]): master for name, master in self.masters.items()}
        seen: set[int] = set()
        for group in self._inner.param_groups:
            names = group.get("param_names")
            listed = [of_parameter.get(id(parameter), parameter) for parameter in group["params"]]
            places = [place for place, parameter in enumerate(listed) if id(parameter) not in seen and not seen.add(id(parameter))]
            # In place: some optimizers keep the list.
            group["params"][:] = [listed[place] for place in places]
            if names is not None:
                group["param_names"] = [names[place] for place in places]
        for name, master in self.masters.items():
            if (state := self._inner.state.pop(self.trained[name], None)) is not None:
                self._inner.state[master] = {key: _wide(value) for key, value in state.items()}
        self.share()

    def share(self) -> None:
        """Makes the gradients views of the memory of the session."""
        for name, parameter in self.trained.items():
            parameter.grad = self._grads[name]
        for name, master in self.masters.items():
            master.grad = self._views[name]
        for parameter in self.frozen.values():
            parameter.grad = None

    def zero(self) -> None:
        """Sets the gradients to zero."""
        self.flat.zero_()
        for flat in self._half_flats:
            flat.zero_()

    def check(self) -> None:
        """Refuses parameters that were frozen or thawed, or came into the optimizer, after the session was made."""
        for frozen, parameters in ((True, self.frozen), (False, self.trained)):
            for name, parameter in parameters.items():
                if parameter.requires_grad == frozen:
                    raise RuntimeError(
                        f"{name}: requires_grad was {not frozen} when the session was made, and is {frozen} now: make a new "
                        "PrivateOptimizer for other parameters"
                    )
        known = {id(parameter) for parameter in (*self.stepped.values(), *self.frozen.values())}
        for group in self._inner.param_groups:
            for place, parameter in enumerate(group["params"]):
                if id(parameter) not in known:
                    name = (group.get("param_names") or {place: f"parameter {place}"})[place]
                    raise RuntimeError(
                        f"{name}: came into the optimizer after the session was made: make a new PrivateOptimizer for it"
                    )

    def check_shared(self) -> None:
        """Refuses gradients that are elsewhere: the session would read zeros in their place."""
        for name, parameter in self.trained.items():
            if parameter.grad is None or parameter.grad.data_ptr() != self._grads[name].data_ptr():
                raise RuntimeError(
                    f"{name}.grad is no longer the memory of the session: leave zero_grad() to the units, which set it to zero"
                )

    @torch.no_grad()
    def widen(self) -> None:
        """Copies gradients in half precision to the flat buffer."""
        if self.masters:
            torch._foreach_copy_([self._views[name] for name in self.masters], [self._grads[name] for name in self.masters])

    @torch.no_grad()
    def round(self) -> None:
        """Makes each parameter with a master the rounding of it."""
        if self.masters:
            torch._foreach_copy_([self.trained[name] for name in self.masters], list(self.masters.values()))

    @torch.no_grad()
    def take(self) -> None:
        """Keeps the values at the start of a round. A master whose parameter was loaded anew follows it."""
        for name, master in self.masters.items():
            parameter = self.trained[name]
            if not equal(master.to(parameter.dtype), parameter):
                master.copy_(parameter)
        for kept in self._kept:
            kept.take()

    def put_back(self) -> None:
        """Makes the bytes of all parameters those of the start of the round."""
        for kept in self._kept:
            kept.put_back()

    def changed(self) -> str | None:
        """The name of the first parameter whose bytes are not those of the start of the round."""
        return next((name for kept in self._kept if (name := kept.changed()) is not None), None)

    def differences(self) -> torch.Tensor:
        """For each type of parameters the index of a value with other bytes, or -1; on the device, and without waiting."""
        return torch.stack([kept.difference() for kept in self._kept])

    def name_of(self, differences: torch.Tensor) -> str | None:
        """The name of a parameter with other bytes, from `differences` on the CPU."""
        found = zip(self._kept, differences.tolist(), strict=True)
        return next((name for kept, index in found if (name := kept.name_at(index)) is not None), None)

    def gradients_beside(self, flat: torch.Tensor) -> Iterator[tuple[str, torch.Tensor, torch.Tensor]]:
        """The gradients by their names, each with the values of other flat memory in its place."""
        others = views(flat, list(self._views.values()))
        for (name, view), other in zip(self._views.items(), others, strict=True):
            yield name, view, other


def _named(inner: torch.optim.Optimizer) -> dict[str, torch.nn.Parameter]:
    """The parameters of an optimizer by their names, or by their numbers where it has none. One object counts once."""
    named: dict[str, torch.nn.Parameter] = {}
    seen: set[int] = set()
    count = 0
    for group in inner.param_groups:
        names = group.get("param_names") or [f"parameters.{count + place}" for place in range(len(group["params"]))]
        count += len(group["params"])
        for name, parameter in zip(names, group["params"], strict=True):
            # What has a master is that master in an optimizer of an earlier session.
            parameter = getattr(parameter, _PARAMETER, parameter)
            if id(parameter) in seen:
                continue
            seen.add(id(parameter))
            # PRIVACY: the optimizer would step both, but the session would bound and noise one of them alone.
            if name in named:
                raise ValueError(f"{name}: two parameters of the optimizer have this name: give them names of their own")
            named[name] = parameter
    return named


def _master(parameter: torch.nn.Parameter) -> torch.nn.Parameter:
    """A float32 master of a parameter in half precision."""
    master = torch.nn.Parameter(parameter.detach().float())
    setattr(master, _PARAMETER, parameter)
    return master


def _wide(value: object) -> object:
    """A state of an optimizer in float32."""
    return value.float() if isinstance(value, torch.Tensor) and value.dtype in _HALVES else value


def _refuse_overlaps(named: dict[str, torch.nn.Parameter]) -> None:
    """Refuses parameters that share memory: what a release gives to one would move the other."""
    order = {name: place for place, name in enumerate(named)}
    for name, parameter in named.items():
        if torch._debug_has_internal_overlap(parameter) == 1:
            raise ValueError(f"{name}: shares memory with itself: give the parameter memory of its own")
    # Sorted by their addresses, a tensor can only share memory with one that has not ended yet.
    starts = sorted((str(parameter.device), parameter.data_ptr(), name) for name, parameter in named.items() if parameter.numel())
    open_: list[str] = []
    for _, _, name in starts:
        open_ = [other for other in open_ if _reaches(named[other], named[name])]
        for other in open_:
            if overlap(named[other], named[name]):
                first, second = sorted((other, name), key=order.__getitem__)
                raise ValueError(f"{second}: shares memory with {first}: give the optimizer one of them")
        open_.append(name)


def _reaches(one: torch.Tensor, other: torch.Tensor) -> bool:
    """True if a tensor ends behind the first address of another one."""
    return one.device == other.device and span(one)[1] > other.data_ptr()
