"""Builds an event from a sequence of releases."""

from numbers import Integral

from undertone_dp.dp_accounting import dp_event


class DpEventBuilder:
    """Collects releases; equal ones in a row are counted."""

    def __init__(self) -> None:
        self._entries: list[tuple[dp_event.DpEvent, int]] = []

    def compose(self, event: dp_event.DpEvent, count: int = 1) -> None:
        """Adds `count` releases of `event`."""
        if not isinstance(event, dp_event.DpEvent):
            raise TypeError(f"`event` must be a subclass of `DpEvent`. Found {type(event)}.")
        if not isinstance(count, Integral):
            raise TypeError(f"`count` must be an integer. Found {type(count)}.")
        if count < 1:
            raise ValueError(f"`count` must be positive. Found {count}.")
        if isinstance(event, dp_event.NoOpDpEvent):
            return
        if isinstance(event, dp_event.SelfComposedDpEvent):
            return self.compose(event.event, count * event.count)
        if self._entries and self._entries[-1][0] == event:
            count += self._entries.pop()[1]
        self._entries.append((event, count))

    def build(self) -> dp_event.DpEvent:
        """The event of everything composed so far."""
        parts = [dp_event.SelfComposedDpEvent(event, count) if count > 1 else event for event, count in self._entries]
        if not parts:
            return dp_event.NoOpDpEvent()
        return parts[0] if len(parts) == 1 else dp_event.ComposedDpEvent(parts)
