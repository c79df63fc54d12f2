"""Private training and samplers for PyTorch."""

from __future__ import annotations

import os
import secrets
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Literal

import torch
from torch.utils.data import Sampler as _TorchSampler

from . import _generators
from ._gpu import Audit, GpuSum
from ._kept import equal
from ._native import ClipReport, Released, Round, Sampler, Session
from ._parameters import Parameters
from ._recurrent import WordModel, load
from ._run import Run
from ._untrained import Untrained

__all__ = ["BatchSampler", "PrivateOptimizer", "WordModel", "allow_empty", "load"]


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


# The check of each optimizer that it steps between rounds alone.
_guards: weakref.WeakKeyDictionary[torch.optim.Optimizer, Any] = weakref.WeakKeyDictionary()


class PrivateOptimizer:
    """A session around a PyTorch optimizer: the gradients of each unit go to the session, and its average comes back as the gradient.

    The gradients of all parameters become views of one flat buffer. A unit's gradient is read from there and the average is
    written to there, so nothing is copied on the way, but for the private copy that the session bounds.

    Where the parameters are on another device than the CPU, such as a GPU, that device measures each unit and adds it up, in
    integers by the rule of the session. So the sum has the bits that the CPU would give. It goes to the CPU once in a round, and
    the average comes back. `privacy.json` then says what the guarantee assumes of the device. `sum_on_gpu=False` copies each
    unit to the CPU in place of that, and `True` makes the sum by the operations of torch on the CPU too. Without clipping the sum
    is always made by the CPU. The sum takes 8 bytes of the device's memory for each parameter, and on a GPU the last unit takes 4 more.

    A unit may change the parameters, to train locally. At its end their bytes are copied back, whatever changed them, so that the next
    unit and `step` start from what the last `step` released. Their bytes are compared before each unit and before `step`. A round
    keeps one copy of the parameters for that. With `model`, the buffers of the model are put back too, to what they were before the
    first round. Before each `step` all tensors of the model that are not trained are compared with those of the start.

    Parameters that ask for no gradient are frozen: they have no part in the sum and the noise, and no release moves them. A
    parameter in bfloat16 or float16 gets a float32 master in `inner`. The master is stepped, the parameter is its rounding, and `finish`
    writes the master. Save `state_dict()` in place of that of `inner` then.

    Each unit has random generators of its own: those of torch, of numpy and of Python's `random` are set by bytes of the system when it
    begins, and get their states back when it ends. `rng="caller"` leaves the generators alone, as the key `unit_rng` of the session
    does, and `privacy.md` says so. `replay` finds what else a unit takes from the units before it.

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
    >>> dp = undertone_dp.torch.PrivateOptimizer(inner, out=tempfile.mkdtemp(), config=config, users=100, model=model)
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
        sum_on_gpu: bool | None = None,
        model: torch.nn.Module | None = None,
        rng: Literal["own", "caller"] | None = None,
    ) -> None:
        if rng not in ("own", "caller", None):
            raise ValueError(f'rng: expected "own" or "caller", got {rng!r}')
        self.inner = inner
        self._optimizer = _inside(inner)
        self._parameters = Parameters(inner)
        device = self._parameters.device
        generators = None if rng == "caller" else _generators.Generators(device)
        layout = {name: tuple(parameter.shape) for name, parameter in self._parameters.trained.items()}
        self.session = Session.create(
            out,
            config,
            users=users,
            dim=self._parameters.dim,
            layout=layout,
            examples=examples,
            resume=resume,
            unit_rng=rng,
        )
        self._parameters.attach()
        self._guard()
        self._flat = self._parameters.flat
        self._model = model
        # What is not trained, as it was before the first round.
        self._untrained: Untrained | None = None
        # The generators that each unit has for itself.
        self._generators = generators if self.session.unit_rng == "own" else None
        self._inside = False
        self._round: Round | None = None
        on_cpu = device.type == "cpu"
        self._sums_on_gpu = not on_cpu if sum_on_gpu is None else sum_on_gpu
        self._sum: GpuSum | None = None
        # Where the average is written: copies to a GPU are faster from memory that the system does not move.
        pinned = device.type == "cuda"
        self._out = self._flat if on_cpu else torch.zeros(self._parameters.dim, pin_memory=pinned)
        self._audit = Audit(self._out)
        # The unit whose norms a GPU may still compute, and what it found in the parameters before that unit.
        self._pending: tuple[Round, int] | None = None
        self._compared: torch.Tensor | None = None
        self._found: torch.Tensor | None = None
        self._pinned = pinned
        self._last: ClipReport | None = None

    def _guard(self) -> None:
        """Lets `inner` step between rounds alone. In a round its gradients are those of a person."""
        guarded = self._optimizer
        if (handle := _guards.pop(guarded, None)) is not None:
            handle.remove()
        weak = weakref.ref(self)

        def only_between_rounds(inner: torch.optim.Optimizer, *_: Any) -> None:
            owner = weak()
            if owner is not None and owner._round is not None:
                raise RuntimeError("inner: a round is open, and its gradients are those of a person: train locally with another optimizer")

        _guards[guarded] = guarded.register_step_pre_hook(only_between_rounds)

    def _start(self) -> Untrained:
        if self._untrained is None:
            parameters = self._parameters
            trained = [*parameters.trained.values(), *parameters.masters.values()]
            self._untrained = Untrained(self._model, parameters.frozen, trained)
        return self._untrained

    def __iter__(self) -> Iterator[Round]:
        """The rounds that are left. Each has to end with `step`."""
        for round in self.session:
            self._start()
            self._parameters.check()
            self._round = round
            self._parameters.take()
            groups = round._gpu_groups() if self._sums_on_gpu else None
            if self._sum is None and groups is not None:
                self._sum = GpuSum(self._flat, groups)
            yield round

    def _open(self) -> Round:
        if self._round is None:
            raise RuntimeError("expected an open round: iterate over the optimizer")
        return self._round

    def _check_released(self) -> None:
        """Refuses parameters that were changed between units: without noise, such a change shows in the model."""
        _refuse(self._parameters.changed())

    def _check_untrained(self) -> None:
        """Refuses tensors that were changed though no release trains them."""
        if (name := self._start().changed()) is not None:
            raise RuntimeError(f"{name}: a unit changed a tensor that no release trains")

    @contextmanager
    def _alone(self, generators: AbstractContextManager[None]) -> Iterator[None]:
        """Sets the gradients to zero, and leaves nothing behind but what they hold at the end."""
        if self._inside:
            raise RuntimeError("expected no open unit: a unit ends before the next one begins")
        self._parameters.check()
        self._parameters.share()
        self._parameters.zero()
        self._inside = True
        try:
            with generators:
                yield
        finally:
            self._inside = False
            self._parameters.put_back()
            self._start().put_back()
        self._parameters.check()
        self._parameters.check_shared()
        self._parameters.widen()

    @contextmanager
    def unit(self, unit: int) -> Iterator[None]:
        """Sets the gradients to zero, and adds what they hold at the end as the update of `unit`.

        The parameters are then those of the start of the round again, whatever the body did to them. Where the body raises, nothing
        is added.

        On a GPU the sum takes each unit when the next one ends, or with `step` or `last`, so that the program never waits. An error
        in the norms of a unit comes then, too, with a note that names the unit. So does the error of a parameter that was changed
        before the unit.
        """
        round = self._open()
        if self._sum is not None and self._sum.defers:
            self._compared = self._parameters.differences()
        else:
            self._check_released()
        own = None if self._generators is None else self._generators.seeded(_generators.entropy(unit))
        with self._alone(own or nullcontext()):
            yield
        self._add(round, unit)

    def replay(self, unit: int, body: Callable[[int], object]) -> None:
        """Makes a unit twice, before and after another one of the round, and compares the gradients by their bytes. Adds nothing.

        `body` takes a unit and makes its gradients, as in the `with` of `unit`. Both times the generators have one state. A
        `RuntimeError` names the parameter whose gradient is another one after the other unit, so that the unit depends on more
        than itself and the released model. Call it once per round, for a unit that was drawn at random.

        Examples
        --------
        >>> import tempfile
        >>> import torch
        >>> import undertone_dp.torch
        >>> config = {"name": "mean", "rounds": 1, "cohort": {"users_per_round": 20},
        ...           "privacy": {"noise_multiplier": 2.0, "delta": 1e-5}}
        >>> model, seen = torch.nn.Linear(1, 1), []
        >>> dp = undertone_dp.torch.PrivateOptimizer(
        ...     torch.optim.SGD(model.named_parameters(), lr=0.1), out=tempfile.mkdtemp(), config=config, users=40)
        >>> round = next(iter(dp))
        >>> def body(unit):
        ...     seen.append(unit)
        ...     (model(torch.ones(1)) * len(seen)).backward()
        >>> try:
        ...     dp.replay(3, body)
        ... except RuntimeError as error:
        ...     print(error)
        unit 3 depends on the units before it: weight differs
        """
        round = self._open()
        count = len(round.users if round.examples is None else round.examples)
        if not 0 <= unit < count:
            raise ValueError(f"unit: expected a unit from 0 to {count - 1}, got {unit}")
        # Any other unit; the same one where there is no other.
        other = (unit + 1 + secrets.randbelow(max(count - 1, 1))) % count
        generators = self._generators or _generators.Generators(self._flat.device)
        seed = _generators.entropy(unit)

        def make(unit: int, seed: bytes) -> None:
            with self._alone(generators.seeded(seed)):
                body(unit)

        self._check_released()
        try:
            make(unit, seed)
            first = self._flat.clone()
            make(other, _generators.entropy(other))
            make(unit, seed)
            differ = [
                name
                for name, one, again in self._parameters.gradients_beside(first)
                if not equal(one, again)
            ]
        finally:
            self._parameters.zero()
        if differ:
            error = RuntimeError(f"unit {unit} depends on the units before it: {differ[0]} differs")
            if self._flat.device.type != "cpu":
                error.add_note("A kernel that is not deterministic shows so too: try torch.use_deterministic_algorithms(True) first.")
            raise error

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

    def _keep(self, round: Round, unit: int, sum_: GpuSum) -> None:
        """Keeps the gradient of a unit on the GPU, which measures it while the program goes on."""
        round._announce(unit)
        if self._compared is not None:
            if self._found is None:
                self._found = torch.full(self._compared.shape, -1, dtype=torch.int64, pin_memory=self._pinned)
            # It is there with the norms, which are copied after it.
            self._found.copy_(self._compared, non_blocking=self._pinned)
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

    def _count(self, round: Round, unit: int, sum_: GpuSum) -> None:
        """Adds the unit that is kept. The one unit of a round that the session audits is copied to the CPU."""
        report, factors = round._add_on_gpu(unit, sum_.norms())
        if round._audits(unit):
            self._audit.start(sum_.kept, round._audit)
        if self._found is not None:
            # The unit began from other parameters. It has contributed, and counts as zero.
            _refuse(self._parameters.name_of(self._found))
        sum_.add(factors)
        self._last = report

    def step(self) -> Released:
        """Releases the round into the gradients, and steps the inner optimizer."""
        round = self._open()
        self._parameters.check()
        self._check_released()
        self._check_untrained()
        if self._sum is not None:
            self._settle()
            self._audit.wait()
            for first, part in self._sum.parts():
                round._merge_gpu(first, part)
        self._parameters.zero()
        released = round.release(self._out)
        self._round = None
        if self._out is not self._flat:
            self._flat.copy_(self._out)
        self._step_inner()
        return released

    def _step_inner(self) -> None:
        """Steps the inner optimizer by the average in the flat buffer."""
        self._parameters.share()
        self.inner.step()
        self._parameters.round()

    def state_dict(self) -> dict[str, Any]:
        """The state of `inner`, and the float32 masters of parameters in half precision. Nothing of it is private."""
        masters = {name: master.detach().clone() for name, master in self._parameters.masters.items()}
        return {"inner": self.inner.state_dict(), "masters": masters}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Loads a state of `state_dict`, between rounds. Parameters with masters become their roundings."""
        if self._round is not None:
            raise RuntimeError("expected no open round: load a state before the first one")
        masters = self._parameters.masters
        if state["masters"].keys() != masters.keys():
            raise ValueError(f"masters: expected those of {sorted(masters)}, got those of {sorted(state['masters'])}")
        self.inner.load_state_dict(state["inner"])
        with torch.no_grad():
            for name, master in masters.items():
                master.copy_(state["masters"][name])
        self._parameters.round()

    def finish(self, tensors: Mapping[str, torch.Tensor] | None = None) -> Run:
        """Writes the model and ends the session. Returns the finished run.

        `tensors` may be the state of the model: each of its tensors has to be a parameter of the optimizer, or a tensor of the model
        whose values are those before the first round. Anything else, such as the running statistics of a batch normalisation, was
        computed from the users' data without noise, and is refused. The file has the parameters that were trained.
        """
        if tensors is not None:
            trained = {parameter.data_ptr() for parameter in self._parameters.trained.values()}
            untrained = self._start()
            for name, tensor in tensors.items():
                if tensor.data_ptr() in trained or untrained.is_of_the_start(tensor):
                    continue
                if untrained.find(tensor) is not None:
                    raise ValueError(f"tensors: {name!r} is not what it was before the first round, and no release trains it: leave it out")
                raise ValueError(
                    f"tensors: {name!r} is no parameter of the optimizer: leave it out, since only what the session trained "
                    "follows from its releases"
                )
        if self._sum is not None:
            # An open round is dropped.
            self._pending = None
            self._sum.forget()
        run = self.session.finish(
            {name: stepped.detach().cpu().contiguous() for name, stepped in self._parameters.stepped.items()}
        )
        self._round = None
        return run


def _inside(inner: Any) -> torch.optim.Optimizer:
    """The optimizer that steps. A wrapper such as that of Accelerate has no hooks of its own."""
    found = inner
    while not hasattr(found, "_optimizer_step_pre_hooks"):
        found = getattr(found, "optimizer", None)
        if found is None:
            raise TypeError(f"inner: expected an optimizer of torch.optim or a wrapper of one, got {type(inner).__name__}")
    return found


def _refuse(name: str | None) -> None:
    """Refuses a parameter with other bytes than those of the last release, by its name."""
    if name is not None:
        raise RuntimeError(
            f"{name}: expected the parameter that the last step released, got another: change parameters in a unit, which puts "
            "them back at its end"
        )
