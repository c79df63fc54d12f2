"""The interface of accountants."""

import abc
import dataclasses
import enum
from numbers import Integral
from typing import Self

from undertone_dp.dp_accounting import dp_event, dp_event_builder


class NeighboringRelation(enum.Enum):
    """The relation between the two data sets that a guarantee compares. `REPLACE_SPECIAL` zeroes one record."""

    ADD_OR_REMOVE_ONE = 1
    REPLACE_ONE = 2
    REPLACE_SPECIAL = 3


class UnsupportedEventError(Exception):
    """An event that the accountant cannot account for."""


class PrivacyAccountant(metaclass=abc.ABCMeta):
    """Composes events; subclasses define `_maybe_compose` and `get_epsilon`, and `get_delta` where they can."""

    @dataclasses.dataclass(frozen=True)
    class CompositionErrorDetails:
        """The event that was refused, and why."""

        invalid_event: dp_event.DpEvent | None
        error_message: str | None

    def __init__(self, neighboring_relation: NeighboringRelation) -> None:
        self._neighboring_relation = neighboring_relation
        self._ledger = dp_event_builder.DpEventBuilder()

    @property
    def neighboring_relation(self) -> NeighboringRelation:
        """The relation of the guarantee."""
        return self._neighboring_relation

    @property
    def ledger(self) -> dp_event.DpEvent:
        """The event of everything composed."""
        return self._ledger.build()

    @abc.abstractmethod
    def _maybe_compose(self, event: dp_event.DpEvent, count: int, do_compose: bool) -> CompositionErrorDetails | None:
        """Composes the event if `do_compose`, and says what is not supported; `None` if everything is."""

    def supports(self, event: dp_event.DpEvent) -> bool:
        """True if the event can be composed."""
        return self._maybe_compose(event, 1, False) is None

    def compose(self, event: dp_event.DpEvent, count: int = 1) -> Self:
        """Adds `count` releases of `event` and returns the accountant itself."""
        if not isinstance(event, dp_event.DpEvent):
            raise TypeError(f"`event` must be `DpEvent`. Found {type(event)}.")
        if not isinstance(count, Integral):
            raise TypeError(f"`count` must be an integer. Found {type(count)}.")
        if count < 1:
            raise ValueError(f"`count` must be positive. Found {count}.")
        details = self._maybe_compose(event, int(count), False)
        if details is not None:
            raise UnsupportedEventError(
                f"Unsupported event: {event}. Error: [{details.error_message}] caused by subevent {details.invalid_event}."
            )
        self._maybe_compose(event, int(count), True)
        self._ledger.compose(event, count)
        return self

    @abc.abstractmethod
    def get_epsilon(self, target_delta: float) -> float:
        """An epsilon that holds at `target_delta`."""

    def get_delta(self, target_epsilon: float) -> float:
        """A delta that holds at `target_epsilon`."""
        raise NotImplementedError()
