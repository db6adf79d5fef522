"""Driving time wheels over what subscriptions wait for: one stream in order of time, which stops and goes on."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator

from msgspec import Struct

from pulsar_admin.store.db.delayed_entries import DelayedRows
from pulsar_admin.store.delayed.waiting import Waiting
from pulsar_admin.store.delayed.wheel import Dispatch, Source, TimeWheel
from pulsar_admin.store.model.messages import check_times


class Replayed(Struct, frozen=True):
    """One slot of one subscription's wheel."""

    topic: str
    subscription: str
    dispatch: Dispatch


class After(Struct, frozen=True):
    """A source without what is due before ``start_ms``: how a replay goes on."""

    source: Source
    start_ms: int

    def load(self, start_ms: int, end_ms: int) -> DelayedRows:
        """Return what is due in that time."""
        return self.source.load(max(start_ms, self.start_ms), max(end_ms, self.start_ms))

    def next_time_ms(self, start_ms: int) -> int | None:
        """Return a time at or before the next message's."""
        return self.source.next_time_ms(max(start_ms, self.start_ms))


def iter_replay(waitings: Iterable[Waiting], from_ms: int | None, until_ms: int) -> Iterator[Replayed]:
    """Yield every slot due up to UNTIL_MS, in time order over all subscriptions; FROM_MS leaves out what is due before it.

    In memory are two windows a subscription. Raises InvalidValue for times that are the wrong way round.
    """
    check_times(from_ms, until_ms)
    streams = [_stream(number, waiting, from_ms, until_ms) for number, waiting in enumerate(waitings)]
    for _, _, found in heapq.merge(*streams, key=lambda row: row[:2]):
        yield found


def _stream(number: int, waiting: Waiting, from_ms: int | None, until_ms: int) -> Iterator[tuple[int, int, Replayed]]:
    source = waiting.source if from_ms is None else After(waiting.source, from_ms)
    for dispatch in TimeWheel(waiting.rules, source).advance(until_ms):
        yield dispatch.tick_ms, number, Replayed(waiting.topic, waiting.subscription, dispatch)
