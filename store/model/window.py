"""Which messages of a topic: a part of it by positions, times and key."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from pulsar_admin.store.codec.buffer import signed
from pulsar_admin.store.errors import InvalidValue
from pulsar_admin.store.model.messages import Message
from pulsar_admin.store.names import EARLIEST, LATEST, LONG_MAX, Position
from pulsar_admin.store.timespec import shown_time

EVENT = "event"


def check_times(start_ms: int | None, end_ms: int | None) -> None:
    """Raise InvalidValue when what begins at START_MS ends before it begins; None: it has no such bound."""
    if start_ms is not None and end_ms is not None and start_ms > end_ms:
        times = f"{shown_time(start_ms)} to {shown_time(end_ms)}"
        raise InvalidValue(f"the window of time ends before it begins: {times}", hint="swap start and end")


class Window(Struct, frozen=True):
    """Which messages: positions FIRST to LAST, times from ``start_ms`` on and before ``end_ms``, on CLOCK; one KEY or any.

    A position with a batch index begins or ends inside that batch. ``latest`` as the first is the last entry.
    """

    first: Position = EARLIEST
    last: Position = LATEST
    start_ms: int | None = None
    end_ms: int | None = None
    clock: str = "auto"
    key: str | None = None

    def checked(self) -> Window:
        """Return it; raises InvalidValue when it ends before it begins: start and end are the wrong way round."""
        check_times(self.start_ms, self.end_ms)
        if self.last < self.first != LATEST:
            raise InvalidValue(f"{self.last} lies in front of {self.first}", hint="swap start and end")
        return self

    @property
    def is_timed(self) -> bool:
        """Whether entries are chosen by their time."""
        return self.clock != EVENT and (self.start_ms is not None or self.end_ms is not None)

    @property
    def by_entry(self) -> Window:
        """The same entries, whole: without what chooses among their messages."""
        if self.clock == EVENT:
            return Window(self.first.entry, self.last.entry)
        return replace(self, first=self.first.entry, last=self.last.entry, key=None)

    @property
    def chooses(self) -> bool:
        """Whether messages are chosen by what is in them."""
        return self.key is not None or (self.clock == EVENT and self.times != (-LONG_MAX, LONG_MAX))

    @property
    def times(self) -> tuple[int, int]:
        """The window's times, half-open, ms."""
        return (-LONG_MAX if self.start_ms is None else self.start_ms, LONG_MAX if self.end_ms is None else self.end_ms)

    def holds(self, message: Message) -> bool:
        """Whether MESSAGE, of an entry in the window, is in it too."""
        if self.key is not None and message.key != self.key:
            return False
        if self.clock == EVENT and (self.start_ms is not None or self.end_ms is not None):
            start_ms, end_ms = self.times
            if not message.event_ms or not start_ms <= signed(message.event_ms) < end_ms:
                return False
        index, entry = message.position.batch_index, message.position.entry
        if index < 0:
            return True
        if entry == self.first.entry and index < self.first.batch_index:
            return False
        return not (entry == self.last.entry and 0 <= self.last.batch_index < index)
