"""Private training and samplers for PyTorch."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils.data import Sampler as _TorchSampler

from ._device import Audit, DeviceSum
from ._native import ClipReport, Released, Round, Sampler, Session
from ._run import Run

__all__ = ["BatchSampler", "PrivateOptimizer", "allow_empty"]


class BatchSampler(_TorchSampler[list[int]]):
    """The draws of a sampler as batches for `DataLoader(dataset, batch_sampler=...)`.

    Draws happen in the process that iterates over the loader, never in its workers. A Poisson sample may be empty: then the
    batch is the empty list, and `allow_empty` makes a batch of no examples of it.

    Examples
    --------
    >>> import undertone_dp as udp
    >>> import undertone_dp.torch
    >>> from torch.utils.data import DataLoader
    >>> sampler = udp.FixedSizeUsers(10, 4, rounds=2)
    >>> loader = DataLoader(range(10), batch_sampler=udp.torch.BatchSampler(sampler))
    >>> [len(batch) for batch in loader]
    [4, 4]
    """

    def __init__(self, sampler: Sampler) -> None:
        if not isinstance(sampler, Sampler):
            raise TypeError(f"sampler: expected a sampler of undertone_dp, got {type(sampler).__name__}")
        self.sampler = sampler

    def __iter__(self) -> Iterator[list[int]]:
        for drawn in self.sampler:
            yield drawn.tolist()

    def __len__(self) -> int:
        return len(self.sampler)

    def state_dict(self) -> dict[str, Any]:
        """The next round and the name of the key."""
        return self.sampler.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue after the rounds of a state of this key."""
        self.sampler.load_state_dict(state)


def allow_empty(collate_fn: Callable[[list[Any]], Any], like: Any) -> Callable[[list[Any]], Any]:
    """A function that collates as `collate_fn` does, and an empty list to a batch of no examples in the form of `like`.

    `like` is one example of the dataset; only the shapes of its batch are used. It may be made up, so that no user's data
    decides about them.

    Examples
    --------
    >>> import torch
    >>> from torch.utils.data import default_collate
    >>> from undertone_dp.torch import allow_empty
    >>> collate = allow_empty(default_collate, like=(torch.zeros(3), 0))
    >>> [part.shape for part in collate([])]
    [torch.Size([0, 3]), torch.Size([0])]
    """
    empty = _without_examples(collate_fn([like]))

    def collate(examples: list[Any]) -> Any:
        return collate_fn(examples) if examples else empty

    return collate


def _without_examples(batch: Any) -> Any:
    """A batch of one example, without it."""
    if isinstance(batch, torch.Tensor):
        return batch[:0].clone()
    if isinstance(batch, Mapping):
        return {key: _without_examples(value) for key, value in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(_without_examples(part) for part in batch))
    if isinstance(batch, (list, tuple)):
        if all(isinstance(part, (str, bytes)) for part in batch):
            return type(batch)()
        return type(batch)(_without_examples(part) for part in batch)
    raise TypeError(
        f"like: expected a batch of tensors in lists, tuples and dicts, got a part of type {type(batch).__name__}"
    )


class PrivateOptimizer:
    """A session around a PyTorch optimizer: the gradients of each unit go to the session, and its average comes back as the gradient.

    The gradients of all parameters become views of one flat buffer. A unit's gradient is read from there and the average is
    written to there, so nothing is copied on the way, but for the private copy that the session bounds.

    Where the parameters are on another device than the CPU, such as a GPU, that device measures each unit and adds it up, in
    integers by the rule of the session. So the sum has the bits that the CPU would give. It goes to the CPU once in a round, and
    the average comes back. `privacy.json` then says what the guarantee assumes of the device. `sum_on_device=False` copies each
    unit to the CPU in place of that, and `True` makes the sum by the operations of torch on the CPU too. Without clipping the sum
    is always made by the CPU. The sum takes 8 bytes of the device's memory for each parameter, and on a GPU the last unit takes 4 more.

    A unit may change the parameters, to train locally. They are put back at its end, so that the next unit and `step` start from what
    the last `step` released. A round keeps one copy of the parameters for that.

    Use `torch.optim.SGD(model.named_parameters(), ...)` to keep the names of the parameters in the model file. `config`, `users`,
    `examples` and `resume` are those of `Session.create`. To go on with `resume=True`, load what you saved of the model and of
    `inner` after the last `step`.

    Examples
    --------
    >>> import tempfile
    >>> import torch
    >>> import undertone_dp.torch
    >>> config = {"name": "line", "rounds": 3, "cohort": {"users_per_round": 5},
    ...           "privacy": {"noise_multiplier": 2.0, "delta": 1e-5}}
    >>> model = torch.nn.Linear(2, 1)
    >>> inner = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> dp = undertone_dp.torch.PrivateOptimizer(inner, out=tempfile.mkdtemp(), config=config, users=100)
    >>> for round in dp:
    ...     for unit, user in enumerate(round.users):
    ...         with dp.unit(unit):
    ...             model(torch.ones(4, 2)).square().mean().backward()
    ...     released = dp.step()
    >>> released.round, dp.session.rounds
    (2, 3)
    >>> run = dp.finish(model.state_dict())
    """

    def __init__(
        self,
        inner: torch.optim.Optimizer,
        *,
        out: str | os.PathLike[str],
        config: Mapping[str, Any] | str | os.PathLike[str],
        users: int,
        examples: Any = None,
        resume: bool = False,
        sum_on_device: bool | None = None,
    ) -> None:
        self.inner = inner
        self._parameters = _named(inner)
        first = next(iter(self._parameters.values()))
        for name, parameter in self._parameters.items():
            if parameter.dtype != torch.float32 or parameter.device != first.device:
                raise TypeError(
                    f"{name}: expected a float32 parameter on {first.device} as the others, got {parameter.dtype} on "
                    f"{parameter.device}"
                )
        dim = sum(parameter.numel() for parameter in self._parameters.values())
        layout = {name: tuple(parameter.shape) for name, parameter in self._parameters.items()}
        self.session = Session.create(
            out, config, users=users, dim=dim, layout=layout, examples=examples, resume=resume
        )
        self._flat = torch.zeros(dim, dtype=torch.float32, device=first.device)
        self._views: list[torch.Tensor] = []
        start = 0
        for parameter in self._parameters.values():
            self._views.append(self._flat[start : start + parameter.numel()].view(parameter.shape))
            start += parameter.numel()
        self._round: Round | None = None
        on_cpu = first.device.type == "cpu"
        self._sums_on_device = not on_cpu if sum_on_device is None else sum_on_device
        self._sum: DeviceSum | None = None
        # Where the average is written: copies to a device are faster from memory that the system does not move.
        self._out = self._flat if on_cpu else torch.zeros(dim, pin_memory=first.device.type == "cuda")
        self._audit = Audit(self._out)
        # The unit whose norms a device may still compute.
        self._pending: tuple[Round, int] | None = None
        self._last: ClipReport | None = None
        # The parameters at the start of the round, and where they stood.
        self._kept: list[torch.Tensor] = []
        self._places: list[tuple[int, int]] = []
        self._share()

    def _share(self) -> None:
        """Make the gradients views of the flat buffer."""
        for parameter, view in zip(self._parameters.values(), self._views, strict=True):
            parameter.grad = view

    def _check_shared(self) -> None:
        """Refuse gradients that are elsewhere: the session would read zeros in their place."""
        for (name, parameter), view in zip(self._parameters.items(), self._views, strict=True):
            if parameter.grad is None or parameter.grad.data_ptr() != view.data_ptr():
                raise RuntimeError(
                    f"{name}.grad is no longer the memory of the session: leave zero_grad() to the units, which set it to zero"
                )

    def __iter__(self) -> Iterator[Round]:
        """The rounds that are left. Each has to end with `step`."""
        for round in self.session:
            self._round = round
            self._kept = [parameter.detach().clone() for parameter in self._parameters.values()]
            self._places = self._states()
            groups = round._device_groups() if self._sums_on_device else None
            if self._sum is None and groups is not None:
                self._sum = DeviceSum(self._flat, groups)
            yield round

    def _open(self) -> Round:
        if self._round is None:
            raise RuntimeError("expected an open round: iterate over the optimizer")
        return self._round

    def _states(self) -> list[tuple[int, int]]:
        """Where each parameter stands, and how often it was written."""
        return [(parameter.data_ptr(), parameter._version) for parameter in self._parameters.values()]

    def _check_released(self) -> None:
        """Refuse parameters that were changed between units: without noise, such a change shows in the model."""
        states = self._states()
        if states == self._places:
            return
        for (name, _), now, before in zip(self._parameters.items(), states, self._places, strict=True):
            if now != before:
                raise RuntimeError(
                    f"{name}: expected the parameter that the last step released, got another: change parameters in a unit, which puts "
                    "them back at its end"
                )

    def _put_back(self) -> None:
        """Put back the parameters that a unit changed."""
        states = self._states()
        if states == self._places:
            return
        with torch.no_grad():
            for parameter, kept, now, before in zip(
                self._parameters.values(), self._kept, states, self._places, strict=True
            ):
                if now != before:
                    parameter.copy_(kept)
        self._places = self._states()

    @contextmanager
    def unit(self, unit: int) -> Iterator[None]:
        """Sets the gradients to zero, and adds what they hold at the end as the update of `unit`.

        The parameters are then those of the start of the round again, whatever the body did to them. Where the body raises, nothing
        is added.

        On a GPU the sum takes each unit when the next one ends, or with `step` or `last`, so that the program never waits. An error
        in the norms of a unit comes then, too, with a note that names the unit.
        """
        round = self._open()
        self._check_released()
        self._share()
        self._flat.zero_()
        try:
            yield
        finally:
            self._put_back()
        self._check_shared()
        self._add(round, unit)

    @property
    def last(self) -> ClipReport:
        """The report of the last unit. On a GPU this waits until the unit is computed. PRIVACY: it is an exact statistic of a user."""
        self._settle()
        if self._last is None:
            raise AttributeError("last: expected a unit that was added before")
        return self._last

    def _add(self, round: Round, unit: int) -> None:
        """Adds the gradient as the update of a unit, or keeps it until its norms are there."""
        if self._sum is None:
            self._last = round.add(unit, self._flat.detach().cpu())
            return
        if not self._sum.defers:
            self._sum.keep()
            self._count(round, unit, self._sum)
            return
        try:
            self._settle()
        except Exception as error:
            # The error is that of the unit before. This one counts all the same.
            try:
                self._keep(round, unit, self._sum)
            except Exception as other:
                error.add_note(f"Unit {unit}, which has just ended, was not added either: {other}")
            raise
        self._keep(round, unit, self._sum)

    def _keep(self, round: Round, unit: int, sum_: DeviceSum) -> None:
        """Keeps the gradient of a unit on the device, which measures it while the program goes on."""
        round._announce(unit)
        sum_.keep(self._audit.copied)
        self._pending = (round, unit)

    def _settle(self) -> None:
        """Adds the unit that is kept, if there is one."""
        if self._pending is None or self._sum is None:
            return
        round, unit = self._pending
        try:
            self._count(round, unit, self._sum)
        except Exception as error:
            error.add_note(f"This came with unit {unit} of round {round.index}, which is added when the next one ends.")
            self._pending = None
            raise
        self._pending = None

    def _count(self, round: Round, unit: int, sum_: DeviceSum) -> None:
        """Adds the unit that is kept. The one unit of a round that the session audits is copied to the CPU."""
        report, factors = round._add_on_device(unit, sum_.norms())
        if round._audits(unit):
            self._audit.start(sum_.kept, round._audit)
        sum_.add(factors)
        self._last = report

    def step(self) -> Released:
        """Releases the round into the gradients, and steps the inner optimizer."""
        round = self._open()
        self._check_released()
        if self._sum is not None:
            self._settle()
            self._audit.wait()
            for first, part in self._sum.parts():
                round._merge_device(first, part)
        self._flat.zero_()
        released = round.release(self._out)
        self._round = None
        if self._out is not self._flat:
            self._flat.copy_(self._out)
        self._share()
        self.inner.step()
        return released

    def finish(self, tensors: Mapping[str, torch.Tensor] | None = None) -> Run:
        """Writes the model and ends the session. Returns the finished run.

        `tensors` may be the state of the model: each of its tensors has to be a parameter of the optimizer. Anything else, such as
        the running statistics of a batch normalisation, was computed from the users' data without noise, and is refused.
        """
        if tensors is not None:
            known = {parameter.data_ptr() for parameter in self._parameters.values()}
            for name, tensor in tensors.items():
                if tensor.data_ptr() not in known:
                    raise ValueError(
                        f"tensors: {name!r} is no parameter of the optimizer: leave it out, since only what the session trained "
                        "follows from its releases"
                    )
        if self._sum is not None:
            # An open round is dropped.
            self._pending = None
            self._sum.forget()
        return self.session.finish(
            {name: parameter.detach().cpu().contiguous() for name, parameter in self._parameters.items()}
        )


def _named(inner: torch.optim.Optimizer) -> dict[str, torch.nn.Parameter]:
    """The parameters of an optimizer by their names, or by their numbers where it has none."""
    named: dict[str, torch.nn.Parameter] = {}
    for group in inner.param_groups:
        names = group.get("param_names") or [f"parameters.{len(named) + place}" for place in range(len(group["params"]))]
        for name, parameter in zip(names, group["params"], strict=True):
            named[name] = parameter
    return named
