"""Checks of data loaders and of noise: do the draws of a training earn the guarantee that is claimed?

A check names what it found and what it looked at. It never says that a training is private: clipping and everything else that a
guarantee rests on lie outside a loader and its noise.
"""

from __future__ import annotations

import math
import operator
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ._native import Event
from ._native import Sampler as _NativeSampler
from ._noise_draws import repeated as _repeated

__all__ = ["Finding", "Report", "draws", "loader", "noise"]

_FALSE_ALARM = 2e-7
"""Probability with which each of the tests of `draws` finds fault with honest draws; there are four."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One mistake: the rule it breaks, how bad it is, what was seen, and what to do.

    Examples
    --------
    >>> import undertone_dp as udp
    >>> udp.check.noise(noise_std=0.5, clip_norm=1.0, noise_multiplier=1.0)[0].rule
    'too-little-noise'
    """

    rule: str
    """Name of the rule."""
    severity: Literal["error", "warning"]
    """`error` where the claim does not hold; `warning` where it cannot be checked or wastes accuracy."""
    evidence: str
    """The values that were seen."""
    advice: str
    """A way to mend it."""

    def __str__(self) -> str:
        return f"{self.severity}: {self.rule}: {self.evidence}. {self.advice}."


@dataclass(frozen=True, slots=True)
class Report:
    """Findings about a loader, and the event that its draws earn.

    Examples
    --------
    >>> import undertone_dp as udp
    >>> report = udp.check.Report(findings=(), event=None, looked_at=("the sampler",))
    >>> print(report)
    no findings; looked at: the sampler; no event follows from the draws
    """

    findings: tuple[Finding, ...]
    """What was found; empty where nothing was."""
    event: Event | None
    """The honest event of one noisy step; `None` where none is known."""
    looked_at: tuple[str, ...]
    """What the check looked at. Nothing else was checked."""

    @property
    def errors(self) -> tuple[Finding, ...]:
        """The findings under which the claim does not hold."""
        return tuple(finding for finding in self.findings if finding.severity == "error")

    def raise_for_errors(self) -> None:
        """Raise `ValueError` with all errors, if there are any."""
        if self.errors:
            raise ValueError("\n".join(str(finding) for finding in self.errors))

    def __str__(self) -> str:
        event = "no event follows from the draws" if self.event is None else f"the draws earn {self.event!r}"
        found = "no findings" if not self.findings else "\n".join(str(finding) for finding in self.findings)
        return f"{found}; looked at: {', '.join(self.looked_at)}; {event}"

    def _repr_html_(self) -> str:
        import html

        rows = "".join(f"<tr><td>{html.escape(str(finding))}</td></tr>" for finding in self.findings)
        looked_at = html.escape(", ".join(self.looked_at))
        return f"<table>{rows}</table><p>looked at: {looked_at}; event: {html.escape(repr(self.event))}</p>"


@dataclass(frozen=True, slots=True)
class _Drawn:
    """How batches are drawn: one kind, with the rate of a round where there is one."""

    kind: Literal["poisson", "fixed-size", "users", "examples", "epochs", "shuffled", "other"]
    rate: float | None = None
    group_size: int = 1


def loader(
    loader: Any,
    *,
    claimed: Event | None = None,
    optimizer: Any = None,
    accumulation: int = 1,
    user_of_example: Sequence[int] | None = None,
    size_is_public: bool = False,
    draw: Callable[[], Any] | None = None,
) -> Report:
    """Compare a loader with the event that is claimed for each noisy step.

    `loader` is a `torch.utils.data.DataLoader` or anything with its `dataset`, `batch_sampler` and `sampler`. `optimizer` may
    be Opacus's: its noise multiplier and its normaliser are read. `accumulation` is the number of batches per noisy step.
    With `user_of_example` the claim is one for users. `size_is_public` says that neighbours have equally many examples, as
    under replace-one. `draw` is your own function that draws the noise of a step, and is checked as `noise` checks it. Without it the
    report ends with the warning `noise-not-looked-at`.

    Examples
    --------
    >>> import undertone_dp as udp
    >>> class Shuffled:
    ...     dataset = range(100)
    ...     sampler = type("RandomSampler", (), {"replacement": False})()
    ...     batch_sampler = type("BatchSampler", (), {"batch_size": 10, "drop_last": False, "sampler": sampler})()
    >>> claim = udp.Event.PoissonGaussian(sampling_probability=0.1, noise_multiplier=1.0)
    >>> [finding.rule for finding in udp.check.loader(Shuffled(), claimed=claim).findings]
    ['shuffling-is-not-poisson', 'noise-not-looked-at']
    """
    if accumulation < 1:
        raise ValueError(f"accumulation must be at least 1, got {accumulation}")
    findings: list[Finding] = []
    looked_at = ["the sampler"]
    size = _size(loader, findings)
    drawn = _drawn(loader, size, findings)
    multiplier = _multiplier(claimed)
    if optimizer is not None:
        looked_at.append("the optimizer")
        own = getattr(optimizer, "noise_multiplier", None)
        if own is not None and multiplier is not None and own != multiplier:
            findings.append(
                Finding(
                    "noise-multiplier",
                    "error" if own < multiplier else "warning",
                    f"the optimizer adds noise of multiplier {own}, the claim has {multiplier}",
                    "Claim the noise that is added",
                )
            )
        multiplier = own if own is not None else multiplier
        _normaliser(loader, optimizer, drawn, size, size_is_public, findings)
    group = 1
    if user_of_example is not None:
        looked_at.append("the users of the examples")
        group = _group(drawn, user_of_example, findings)
    event = _event(drawn, multiplier, accumulation, group, size, loader)
    if accumulation > 1 and drawn.kind in ("poisson", "users", "examples"):
        looked_at.append("accumulation")
        _accumulation(drawn, claimed, accumulation, event, findings)
    elif claimed is not None and not findings:
        _claim(claimed, event, drawn, findings)
    if draw is None:
        findings.append(
            Finding(
                "noise-not-looked-at",
                "warning",
                "nothing was said about the noise, and no claim holds without noise that nobody can repeat",
                "Pass draw=, your own function that draws the noise of a step",
            )
        )
    else:
        looked_at.append("two draws of the noise")
        findings.extend(_drawn_noise(draw))
    return Report(tuple(findings), event, tuple(looked_at))


def noise(
    *,
    noise_std: float,
    clip_norm: float,
    noise_multiplier: float,
    normaliser: float = 1.0,
    draw: Callable[[], Any] | None = None,
) -> list[Finding]:
    """Compare the standard deviation of the noise with the claim, where the sum is divided by `normaliser` before noise is
    added; 1 where noise is added to the sum.

    `draw` is your own function that draws the noise. It returns an array, or a list or a mapping of arrays. It is called twice after
    equal seeds of torch, numpy and random, as far as they are loaded, and must give other values the second time. Their generators are
    left as they were. A generator that was made beforehand from a known seed goes on from call to call, so this check does not see it.

    Examples
    --------
    >>> import random
    >>> import undertone_dp as udp
    >>> udp.check.noise(noise_std=0.01, clip_norm=1.0, noise_multiplier=1.0, normaliser=100)
    []
    >>> udp.check.noise(noise_std=1.0, clip_norm=1.0, noise_multiplier=1.0, normaliser=100)[0].rule
    'noise-of-the-sum-on-the-mean'
    >>> of_random = lambda: [random.gauss(0.0, 1.0) for _ in range(100)]
    >>> udp.check.noise(noise_std=1.0, clip_norm=1.0, noise_multiplier=1.0, draw=of_random)[0].rule
    'noise-from-a-global-generator'
    >>> of_system = lambda: [random.SystemRandom().gauss(0.0, 1.0) for _ in range(100)]
    >>> udp.check.noise(noise_std=1.0, clip_norm=1.0, noise_multiplier=1.0, draw=of_system)
    []
    """
    for name, value in (
        ("noise_std", noise_std),
        ("clip_norm", clip_norm),
        ("noise_multiplier", noise_multiplier),
        ("normaliser", normaliser),
    ):
        if not (value > 0 and math.isfinite(value)):
            raise ValueError(f"{name} must be positive and finite, got {value}")
    spread = _spread(noise_std, noise_multiplier * clip_norm, normaliser)
    return spread if draw is None else spread + _drawn_noise(draw)


def _spread(noise_std: float, of_sum: float, normaliser: float) -> list[Finding]:
    """Compares the standard deviation of the noise with the one that the sum needs."""
    wanted = of_sum / normaliser
    if noise_std < wanted * (1 - 1e-6):
        return [
            Finding(
                "too-little-noise",
                "error",
                f"the noise has standard deviation {noise_std}, the claim needs {wanted}",
                "Multiply the noise multiplier by the clip norm, and divide by what the sum is divided by",
            )
        ]
    if noise_std > wanted * (1 + 1e-6):
        is_of_sum = math.isclose(noise_std, of_sum, rel_tol=1e-6)
        return [
            Finding(
                "noise-of-the-sum-on-the-mean" if is_of_sum else "too-much-noise",
                "warning",
                f"the noise has standard deviation {noise_std}, the claim needs {wanted}",
                "Add the noise to the sum and divide afterwards" if is_of_sum else "Claim the noise that is added",
            )
        ]
    return []


def _drawn_noise(draw: Callable[[], Any]) -> list[Finding]:
    """Noise that comes out twice after equal seeds, whether a global generator gives it or one that `draw` seeds itself."""
    found = _repeated(draw)
    if not found:
        return []
    others = f" and {len(found) - 1} other arrays" if len(found) > 1 else ""
    values = sum(array.size for array in found)
    return [
        Finding(
            "noise-from-a-global-generator",
            "error",
            f"draw(){found[0].place}{others} gave the same values twice ({values} of them), after equal seeds of "
            f"{_and(found[0].generators)}",
            "Draw from a generator that 32 bytes of the system seed at each start, or let udp.Session or udp.NoiseKey.random() draw",
        )
    ]


def _and(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _size(loader: Any, findings: list[Finding]) -> int | None:
    try:
        return len(loader.dataset)
    except (AttributeError, TypeError):
        findings.append(
            Finding(
                "stream",
                "error",
                "the dataset has no length",
                "Sample from a dataset of known size: a stream gives no sampling probability",
            )
        )
        return None


def _multiplier(claimed: Event | None) -> float | None:
    """The noise multiplier of a claim, relative to adding one contribution."""
    own = getattr(claimed, "noise_multiplier", None)
    # Replacing a contribution moves a sum twice as far as adding one.
    return 2 * own if own is not None and isinstance(claimed, Event.FixedSizeGaussian) else own


def _name(of: Any) -> str:
    return type(of).__name__


def _drawn(loader: Any, size: int | None, findings: list[Finding]) -> _Drawn:
    """Recognise the sampler, and find fault with those that amplify nothing."""
    batches = getattr(loader, "batch_sampler", None)
    native = batches if isinstance(batches, _NativeSampler) else getattr(batches, "sampler", None)
    if isinstance(native, _NativeSampler):
        kinds: dict[str, Literal["poisson", "fixed-size", "users", "examples", "epochs"]] = {
            "PoissonUsers": "poisson",
            "FixedSizeUsers": "fixed-size",
            "ShuffledEpochs": "epochs",
            "UserLevelSampling": "users",
            "ExampleLevelSampling": "examples",
        }
        kind = kinds[_name(native)]
        if kind == "epochs":
            return _Drawn(kind)
        event = native.event(1.0)
        rate = getattr(event, "sampling_probability", None)
        return _Drawn(kind, rate, getattr(event, "group_size", 1))
    if _name(batches) in ("UniformWithReplacementSampler", "DistributedUniformWithReplacementSampler"):
        return _of_opacus(loader, batches, size, findings)
    sampler = getattr(loader, "sampler", None)
    batch_size = getattr(batches, "batch_size", None) or getattr(loader, "batch_size", None)
    if getattr(batches, "drop_last", False):
        findings.append(
            Finding(
                "drop-last",
                "error",
                f"the last batch of each epoch is dropped unless it has {batch_size} examples",
                "Let the draws decide how many examples a batch has",
            )
        )
    if batches is not None:
        # A loader with a batch sampler of its own still has a sampler, which nobody asks.
        sampler = getattr(batches, "sampler", batches)
    return _of_torch(sampler, batch_size, size, findings)


def _of_opacus(loader: Any, batches: Any, size: int | None, findings: list[Finding]) -> _Drawn:
    rate = float(batches.sample_rate)
    drawn_from = getattr(batches, "num_samples", getattr(batches, "total_size", size))
    if size is not None and drawn_from != size:
        findings.append(
            Finding(
                "rate-of-another-size",
                "error",
                f"the sampler draws from {drawn_from} examples, the dataset has {size}",
                "Take the sampling probability from the dataset, not from the length of a sampler",
            )
        )
    stated = getattr(loader, "sample_rate", rate)
    if stated != rate:
        findings.append(
            Finding(
                "rate",
                "error",
                f"the loader states the rate {stated}, its sampler draws at {rate}",
                "State the rate of the draws",
            )
        )
    return _Drawn("poisson", rate)


def _of_torch(sampler: Any, batch_size: int | None, size: int | None, findings: list[Finding]) -> _Drawn:
    name = _name(sampler)
    shuffled = Finding(
        "shuffling-is-not-poisson",
        "error",
        f"{name} walks through all examples in batches of {batch_size}: each joins once per epoch",
        "Draw with udp.torch.BatchSampler(udp.PoissonUsers(...)), or account for one Gaussian per epoch",
    )
    mistakes = {
        "RandomSampler": shuffled,
        "SubsetRandomSampler": shuffled,
        "SequentialSampler": Finding(
            "order-is-known",
            "error",
            "SequentialSampler draws the same batches in every epoch",
            "Draw with udp.torch.BatchSampler(udp.PoissonUsers(...)), or account for one Gaussian per epoch",
        ),
        "WeightedRandomSampler": Finding(
            "weighted-draws",
            "error",
            "WeightedRandomSampler draws some examples more often than others, and with replacement",
            "Sample at one rate; a weighted example needs the rate of its weight, which the batch size does not tell",
        ),
        "DistributedSampler": Finding(
            "distributed-shuffling",
            "error",
            "DistributedSampler deals shuffled examples out to the ranks and repeats some to fill up",
            "Draw one Poisson sample for all ranks",
        ),
    }
    if getattr(sampler, "replacement", False) and name == "RandomSampler":
        findings.append(
            Finding(
                "drawn-with-replacement",
                "error",
                f"RandomSampler draws batches of {batch_size} with replacement: an example may join twice",
                "Draw with udp.torch.BatchSampler(udp.PoissonUsers(...))",
            )
        )
        return _Drawn("other")
    found = mistakes.get(name)
    if found is None:
        found = Finding(
            "unknown-sampler",
            "warning",
            f"{name} is not a sampler that this check knows",
            "Test its draws with udp.check.draws, and read how it draws",
        )
    findings.append(found)
    return _Drawn("shuffled" if found is shuffled else "other")


def _normaliser(
    loader: Any, optimizer: Any, drawn: _Drawn, size: int | None, size_is_public: bool, findings: list[Finding]
) -> None:
    """A normaliser that follows from the number of examples differs between neighbours."""
    expected = getattr(optimizer, "expected_batch_size", None)
    mean = getattr(optimizer, "loss_reduction", "mean") == "mean"
    if expected is None or not mean or size is None or size_is_public or drawn.rate is None:
        return
    steps = round(1 / drawn.rate)
    batch = math.ceil(size / steps)

    def floored(neighbours: int) -> int:
        # As Opacus: the rate of the neighbour's own number of batches, and the expected size cut to an integer.
        return int(neighbours / max(1, math.ceil(neighbours / batch)))

    if expected != int(size * drawn.rate):
        return
    others = {neighbours: floored(neighbours) for neighbours in (size - 1, size + 1) if neighbours > 0}
    differing = {neighbours: value for neighbours, value in others.items() if value != expected}
    if differing:
        neighbours, value = next(iter(differing.items()))
        findings.append(
            Finding(
                "normaliser-follows-the-data",
                "error",
                f"with {size} examples sums are divided by {expected}, with {neighbours} by {value}",
                "Divide by a number that is fixed without the data, or use loss_reduction='sum'",
            )
        )


def _group(drawn: _Drawn, user_of_example: Sequence[int], findings: list[Finding]) -> int:
    """The largest number of a user's examples that one batch may hold."""
    if drawn.kind in ("users", "examples"):
        return drawn.group_size
    most = max(Counter(user_of_example).values(), default=1)
    if most > 1 and drawn.kind in ("poisson", "fixed-size"):
        findings.append(
            Finding(
                "several-examples-of-a-user",
                "error",
                f"a user has {most} examples, and a batch may hold all of them",
                "Draw with udp.UserLevelSampling, or claim udp.Event.ExampleLevelSampling for the user",
            )
        )
    return most


def _event(
    drawn: _Drawn, multiplier: float | None, accumulation: int, group: int, size: int | None, loader: Any
) -> Event | None:
    """The event of one noisy step that the draws earn."""
    if multiplier is None:
        return None
    if drawn.kind == "fixed-size" and accumulation == 1 and group == 1:
        batches = loader.batch_sampler
        native = batches if isinstance(batches, _NativeSampler) else batches.sampler
        return native.event(multiplier)
    if drawn.rate is None or drawn.kind not in ("poisson", "users", "examples"):
        return None
    # Each of the batches of a step draws anew, so a contribution may be in several of them.
    contributions = accumulation * (group if drawn.kind == "poisson" else drawn.group_size)
    if contributions == 1:
        return Event.PoissonGaussian(sampling_probability=drawn.rate, noise_multiplier=multiplier)
    return Event.ExampleLevelSampling(
        group_size=contributions, sampling_probability=drawn.rate, noise_multiplier=multiplier
    )


def _accumulation(
    drawn: _Drawn, claimed: Event | None, accumulation: int, event: Event | None, findings: list[Finding]
) -> None:
    if claimed is None or claimed == event:
        return
    findings.append(
        Finding(
            "accumulation-multiplies-the-rate",
            "error",
            f"{accumulation} batches at rate {drawn.rate} make one noisy step, and the claim is {claimed!r}",
            f"Claim {event!r}, or draw one batch per step and split it",
        )
    )


def _claim(claimed: Event, event: Event | None, drawn: _Drawn, findings: list[Finding]) -> None:
    if event is None or claimed == event:
        return
    findings.append(
        Finding(
            "claim",
            "error",
            f"the claim is {claimed!r}, the draws earn {event!r}",
            "Claim what the draws earn",
        )
    )


def draws(loader: Any, *, rate: float, rounds: int = 200) -> Report:
    """Draw `rounds` batches of examples' numbers and test that every example joins independently at `rate`, and once per batch.

    The data is not read. An example that stands twice in one batch is an error. Four tests look at the number of draws, at the sizes,
    at each example, and at examples that join two rounds in a row. Honest draws fail with a probability below 1e-6, by Chernoff's bound.

    Examples
    --------
    >>> import undertone_dp as udp
    >>> class Loader:
    ...     dataset = range(500)
    ...     batch_sampler = [list(range(first, first + 50)) for first in range(0, 500, 50)]
    >>> sorted(finding.rule for finding in udp.check.draws(Loader(), rate=0.1).findings)
    ['fixed-size', 'repeats']
    """
    if not 0 < rate < 1:
        raise ValueError(f"rate must be in (0, 1), got {rate}")
    if rounds < 2:
        raise ValueError(f"rounds must be at least 2, got {rounds}")
    size = len(loader.dataset)
    listed = [[_number(example, size) for example in batch] for batch in _take(loader.batch_sampler, rounds)]
    findings = _repeats_inside(listed)
    batches = [set(batch) for batch in listed]
    total = sum(len(batch) for batch in batches)
    if _unlikely(total, size * rounds, rate):
        findings.append(_drawn_at("rate", total, size * rounds, rate, "examples were drawn"))
    sizes = {len(batch) for batch in batches}
    # The likeliest size of a Poisson sample has at most this probability (the mass at the mode of a binomial).
    likeliest = min(1.0, 1 / math.sqrt(2 * size * rate * (1 - rate)))
    if len(sizes) == 1 and likeliest ** (rounds - 1) < _FALSE_ALARM:
        findings.append(
            Finding(
                "fixed-size",
                "error",
                f"all {rounds} batches have {sizes.pop()} examples",
                "Poisson samples differ in size; account for cohorts of fixed size, or draw Poisson samples",
            )
        )
    counts = Counter(example for batch in batches for example in batch)
    extreme = max(counts.values(), default=0)
    if _unlikely(extreme, rounds, rate, among=size) and extreme > rate * rounds:
        findings.append(_drawn_at("weights", extreme, rounds, rate, "rounds had one example"))
    pairs = sum(len(first & second) for first, second in zip(batches[::2], batches[1::2], strict=False))
    trials = size * (len(batches) // 2)
    if _unlikely(pairs, trials, rate * rate):
        findings.append(_drawn_at("repeats", pairs, trials, rate * rate, "examples joined both rounds of a pair"))
    return Report(tuple(findings), None, (f"{rounds} draws of the batch sampler",))


def _number(example: Any, size: int) -> Any:
    """The number of an example, from a number of any library; a place that is counted from the end is that from the start."""
    try:
        number = operator.index(example)
    except TypeError:
        return example
    return number + size if -size <= number < 0 else number


def _repeats_inside(batches: Sequence[Sequence[Any]]) -> list[Finding]:
    """An example that stands several times in a batch moves the sum as often."""
    counts = [Counter(batch) for batch in batches]
    doubled = [number for number, batch in enumerate(batches) if len(counts[number]) < len(batch)]
    if not doubled:
        return []
    worst = max(doubled, key=lambda number: max(counts[number].values()))
    example, times = counts[worst].most_common(1)[0]
    return [
        Finding(
            "drawn-more-than-once",
            "error",
            f"example {example} stands {times} times in one batch, number {worst + 1} of {len(batches)}; "
            f"{len(doubled)} batches hold an example more than once",
            f"Draw every example at most once per batch: {times} times it moves the sum {times} times as far",
        )
    ]


def _drawn_at(rule: str, count: int, trials: int, rate: float, what: str) -> Finding:
    return Finding(
        rule,
        "error",
        f"{count} {what}, and {rate * trials:.1f} are expected of independent draws",
        "Draw every example independently at the stated rate",
    )


def _take(batches: Iterable[Sequence[int]], rounds: int) -> Iterator[Sequence[int]]:
    """The first `rounds` batches, epoch after epoch."""
    left = rounds
    while left > 0:
        before = left
        for batch in batches:
            yield batch
            left -= 1
            if left == 0:
                return
        if left == before:
            raise ValueError(
                f"the batch sampler gives {rounds - left} batches and no more; a sampler of one run is tested by another "
                "one of as many rounds"
            )


def _unlikely(count: int, trials: int, rate: float, among: int = 1) -> bool:
    """True if `count` of `trials` independent draws at `rate`, in one of `among` places, is less likely than the false-alarm
    rate: by Chernoff's bound, for both sides."""
    share = count / trials

    def term(a: float, b: float) -> float:
        return a * math.log(a / b) if a > 0 else 0.0

    divergence = term(share, rate) + term(1 - share, 1 - rate)
    return 2 * among * math.exp(-trials * divergence) < _FALSE_ALARM
