"""The part that both accountants share: events of this package become events of Undertone."""

import math
from typing import Any, Literal

import undertone_dp as udp
from undertone_dp.dp_accounting import dp_event, privacy_accountant

Relation = privacy_accountant.NeighboringRelation
_ADJACENCY: dict[Any, Literal["add-or-remove-one", "replace-one", "zero-out"]] = {
    Relation.ADD_OR_REMOVE_ONE: "add-or-remove-one",
    Relation.REPLACE_ONE: "replace-one",
    Relation.REPLACE_SPECIAL: "zero-out",
}
_REFUSALS = {"unsupported-event", "unsupported-adjacency", "unsupported-curve", "unsupported-inner", "adjacency-mismatch"}
# No epsilon holds at this delta, or no delta below 1 at this epsilon.
_NOTHING_HOLDS = {"no-finite-guarantee", "delta-below-stated"}
_NON_PRIVATE = udp.Event.NonPrivate()


class Unsupported(Exception):
    """An event that has no event of Undertone."""


def kind(event: dp_event.DpEvent) -> str:
    return type(event).__name__


def _noise(z: float) -> float:
    if not z >= 0:
        raise ValueError(f"Noise multiplier must be non-negative: {z}; standard deviation is not a positive real number")
    return z


def effective_noise(event: dp_event.DpEvent) -> float | None:
    """The noise multiplier of one Gaussian that is equal to all releases of `event`; `None` where one is no Gaussian."""
    inverse = _inverse_variance(event)
    if inverse is None:
        return None
    return 1 / math.sqrt(inverse) if inverse > 0 else math.inf


def _inverse_variance(event: Any) -> float | None:
    match kind(event):
        case "NoOpDpEvent":
            return 0.0
        case "NonPrivateDpEvent":
            return math.inf
        case "GaussianDpEvent":
            z = _noise(event.noise_multiplier)
            return 1 / z**2 if z**2 > 0 else math.inf
        case "SelfComposedDpEvent":
            once = _inverse_variance(event.event)
            return None if once is None else event.count * once
        case "ComposedDpEvent":
            parts = [_inverse_variance(part) for part in event.events]
            return None if None in parts else sum(part for part in parts if part is not None)
        case _:
            return None


def gaussian(z: float, make: Any) -> udp.Event | None:
    """The event of a noise multiplier: none for infinite noise, a non-private one for zero noise."""
    if z == math.inf:
        return None
    return make(z) if z > 0 else _NON_PRIVATE


def _sampled(event: Any) -> udp.Event | None:
    q = event.sampling_probability
    if not 0 <= q <= 1:
        raise ValueError(f"Sampling rate must be in [0, 1], got {q}; probability {q} is out of range")
    if q == 0:
        return None
    if q == 1 and kind(event.event) != "ComposedDpEvent":
        return leaf(event.event)
    z = effective_noise(event.event)
    if z is not None:
        return gaussian(z, lambda z: udp.Event.PoissonGaussian(sampling_probability=q, noise_multiplier=z))
    if kind(event.event) in ("LaplaceDpEvent", "DiscreteLaplaceDpEvent"):
        inner = leaf(event.event)
        if inner is None or inner == _NON_PRIVATE:
            return inner
        return udp.Event.PoissonSampled(sampling_probability=q, event=inner)
    raise Unsupported("Subevent of `PoissonSampledDpEvent` must be a (composed) Gaussian, Laplace or discrete Laplace.")


def _tree(event: Any) -> udp.Event | None:
    counts = [event.step_counts] if isinstance(event.step_counts, int) else list(event.step_counts)
    if any(count < 0 for count in counts):
        raise ValueError(f"Step counts must be non-negative, got {counts}")
    depth = max((count.bit_length() for count in counts), default=0)
    if depth == 0:
        return None
    return gaussian(
        _noise(event.noise_multiplier),
        lambda z: udp.Event.CorrelatedGaussian(sensitivity_squared=depth, noise_multiplier=z),
    )


def _repeated(event: Any) -> udp.Event | None:
    if event.mean == 0:
        return None
    z = effective_noise(event.event)
    inner = leaf(event.event) if z is None else gaussian(z, lambda z: udp.Event.Gaussian(noise_multiplier=z))
    if inner is None or inner == _NON_PRIVATE:
        return inner
    if event.shape == math.inf:
        repetitions = udp.Repetitions.poisson(mean=event.mean)
    else:
        repetitions = udp.Repetitions.truncated_negative_binomial(shape=event.shape, mean=event.mean)
    return udp.Event.RepeatAndSelect(event=inner, repetitions=repetitions)


def leaf(event: Any) -> udp.Event | None:
    """The event of Undertone; `None` for one that releases nothing."""
    match kind(event):
        case "NoOpDpEvent":
            return None
        case "NonPrivateDpEvent":
            return _NON_PRIVATE
        case "GaussianDpEvent":
            return gaussian(_noise(event.noise_multiplier), lambda z: udp.Event.Gaussian(noise_multiplier=z))
        case "LaplaceDpEvent":
            return gaussian(_noise(event.noise_multiplier), lambda scale: udp.Event.Laplace(scale=scale))
        case "DiscreteLaplaceDpEvent":
            if event.noise_parameter == 0:
                return _NON_PRIVATE
            return udp.Event.DiscreteLaplace(parameter=event.noise_parameter, sensitivity=event.sensitivity)
        case "DiscreteGaussianDpEvent":
            if event.sigma == 0:
                return _NON_PRIVATE
            if event.dimension in (None, 1) and event.sensitivity == int(event.sensitivity):
                return udp.Event.DiscreteGaussian(sigma=event.sigma, sensitivity=int(event.sensitivity))
            return udp.Event.ZeroConcentrated(rho=0.5 * (event.sensitivity / event.sigma) ** 2)
        case "RandomizedResponseDpEvent":
            if not 0 <= event.noise_parameter <= 1:
                raise ValueError(f"noise_parameter must be in [0, 1], got {event.noise_parameter}")
            if event.num_buckets < 1:
                raise ValueError(f"num_buckets must be >= 1, got {event.num_buckets}")
            if event.noise_parameter == 1 or event.num_buckets == 1:
                return None
            if event.noise_parameter == 0:
                return _NON_PRIVATE
            return udp.Event.RandomizedResponse(num_buckets=event.num_buckets, noise_parameter=event.noise_parameter)
        case "PoissonSampledDpEvent":
            return _sampled(event)
        case "SampledWithoutReplacementDpEvent":
            z = effective_noise(event.event)
            if z is None:
                raise Unsupported("Subevent of `SampledWithoutReplacementDpEvent` must be a (composed) Gaussian.")
            if event.sample_size == 0:
                return None
            return gaussian(
                z,
                lambda z: udp.Event.FixedSizeGaussian(
                    population=event.source_dataset_size, cohort_size=event.sample_size, noise_multiplier=z
                ),
            )
        case "SingleEpochTreeAggregationDpEvent":
            return _tree(event)
        case "RepeatAndSelectDpEvent":
            return _repeated(event)
        case "MixtureOfGaussiansDpEvent":
            if not any(distance * chance for distance, chance in zip(event.sensitivities, event.sampling_probs, strict=True)):
                return None
            return gaussian(
                _noise(event.standard_deviation),
                lambda z: udp.Event.MixtureOfGaussians(
                    noise_multiplier=z, sensitivities=event.sensitivities, probabilities=event.sampling_probs
                ),
            )
        case "ZCDpEvent":
            return udp.Event.ZeroConcentrated(rho=event.rho, xi=event.xi)
        case "EpsilonDeltaDpEvent":
            return _approximate(event.epsilon, event.delta)
        case "ExponentialMechanismDpEvent":
            return udp.Event.BoundedRange(epsilon=event.epsilon)
        case "PermuteAndFlipDpEvent":
            return udp.Event.ApproximateDp(epsilon=event.epsilon)
        case "TruncatedSubsampledGaussianDpEvent":
            if event.sampling_probability == 0 or event.truncated_batch_size == 0:
                return None
            return gaussian(
                _noise(event.noise_multiplier),
                lambda z: udp.Event.TruncatedPoissonGaussian(
                    population=event.dataset_size,
                    sampling_probability=event.sampling_probability,
                    max_cohort_size=event.truncated_batch_size,
                    noise_multiplier=z,
                ),
            )
        case _:
            raise Unsupported("Unsupported event.")


def _approximate(epsilon: float, delta: float) -> udp.Event | None:
    if delta == 1 or epsilon == math.inf:
        return _NON_PRIVATE
    if delta == 0:
        return udp.Event.ApproximateDp(epsilon=epsilon) if epsilon > 0 else None
    return udp.Event.ApproximateDp(epsilon=epsilon, delta=delta)


class NativeAccountant(privacy_accountant.PrivacyAccountant):
    """An accountant that asks Undertone's."""

    def __init__(self, neighboring_relation: Any, recipe: Literal["pld", "rdp"], orders: list[float] | None) -> None:
        super().__init__(neighboring_relation)
        # The relation of the original package is the one of this package with the same name.
        self._adjacency = _ADJACENCY[Relation[neighboring_relation.name]]
        self._recipe, self._asked_orders = recipe, orders
        self._accountant = self._fresh()
        self._is_non_private = False
        # The original's Renyi accountant takes noise relative to the replace-one sensitivity; its other one does not.
        self._is_replaced = recipe == "rdp" and self._adjacency == "replace-one"

    def _fresh(self) -> udp.Accountant:
        """An accountant of Undertone that has composed nothing."""
        return udp.Accountant(self._recipe, adjacency=self._adjacency, orders=self._asked_orders)

    def _refusal(self, event: dp_event.DpEvent) -> str | None:
        """The reason why this accountant does not take an event that Undertone's could; `None` where it does."""
        return None

    def _maybe_compose(
        self, event: dp_event.DpEvent, count: int, do_compose: bool
    ) -> privacy_accountant.PrivacyAccountant.CompositionErrorDetails | None:
        parts: Any = event
        if kind(event) == "SelfComposedDpEvent":
            return self._maybe_compose(parts.event, count * parts.count, do_compose)
        if kind(event) == "ComposedDpEvent":
            details = (self._maybe_compose(part, count, do_compose) for part in parts.events)
            return next((detail for detail in list(details) if detail is not None), None)
        try:
            reason = self._refusal(event)
            if reason is not None:
                raise Unsupported(reason)
            native = leaf(event)
            if native == _NON_PRIVATE:
                self._is_non_private |= do_compose
            elif native is not None:
                if self._is_replaced:
                    native = _of_half_sensitivity(native)
                (self._accountant if do_compose else self._fresh()).compose(native, count)
        except Unsupported as error:
            return self.CompositionErrorDetails(event, str(error))
        except udp.AccountingError as error:
            if error.kind not in _REFUSALS:
                raise
            return self.CompositionErrorDetails(event, str(error))
        return None

    def _pure_epsilon(self) -> float:
        """Epsilon at delta 0."""
        return self._accountant._pure_epsilon()

    def get_epsilon(self, target_delta: float) -> float:
        """An epsilon that holds at `target_delta`; infinite where none does."""
        if self._is_non_private:
            return math.inf
        if self._accountant.rounds == 0 or target_delta >= 1:
            return 0
        if target_delta <= 0:
            return self._pure_epsilon()
        # The sum of all epsilons holds without any delta.
        enough = self._pure_epsilon()
        try:
            return min(self._accountant.epsilon(target_delta), enough)
        except udp.AccountingError as error:
            if error.kind not in _NOTHING_HOLDS:
                raise
            return enough

    def get_delta(self, target_epsilon: float) -> float:
        """A delta that holds at `target_epsilon`, which may be negative; 1 where none below does."""
        if self._is_non_private or target_epsilon == -math.inf:
            return 1
        if self._accountant.rounds == 0:
            return max(0.0, -math.expm1(target_epsilon))
        if target_epsilon == math.inf or target_epsilon >= self._pure_epsilon():
            return 0
        try:
            return self._accountant.delta(target_epsilon)
        except udp.AccountingError as error:
            if error.kind not in _NOTHING_HOLDS:
                raise
            return 1.0


def exchanged(target_epsilon: float, delta: float) -> float:
    """Delta at a negative epsilon, from the delta at its size: the roles of the neighbours are exchanged."""
    return min(1.0, -math.expm1(target_epsilon) + math.exp(target_epsilon) * delta)


def _of_half_sensitivity(event: Any) -> udp.Event:
    """The event whose parameters are relative to the add-or-remove sensitivity, from those relative to twice that: the replace-one one.

    Undertone doubles the sensitivity of these events under replace-one. Other kinds have none, or state it for replace-one.
    """
    match event:
        case udp.Event.Gaussian(z):
            return event.replace(noise_multiplier=2 * z)
        case udp.Event.Laplace(scale):
            return event.replace(scale=2 * scale)
        case udp.Event.DiscreteGaussian(sigma, _):
            return event.replace(sigma=2 * sigma)
        case udp.Event.DiscreteLaplace(_, sensitivity):
            if sensitivity % 2:
                raise Unsupported("Half of an odd sensitivity is no whole number; udp.Accountant takes the add-or-remove sensitivity.")
            return event.replace(sensitivity=sensitivity // 2)
        case udp.Event.RepeatAndSelect(inner, _):
            return event.replace(event=_of_half_sensitivity(inner))
        case _:
            return event
