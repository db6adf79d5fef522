"""Divides all topics into parts, which processes examine and count."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import deepcopy
from itertools import chain
from typing import Any, Protocol

from msgspec import Struct

from pulsar_admin.store.db.environment import Txn, once
from pulsar_admin.store.errors import StoreError
from pulsar_admin.store.facts.numbers import PlainTopics, TopicNumbers, numbers_of
from pulsar_admin.store.facts.topics import TopicFacts
from pulsar_admin.store.facts.values import read_ahead
from pulsar_admin.store.model.cursors import iter_cursor_names
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.topics import count_topics, iter_all_namespaces, iter_topics_between, read_topic
from pulsar_admin.store.names import NamespaceName, TopicName

PART_TOPICS, LEAST_PARTS = 10_000, 20
"""Topics in a part at most, which take about a second, and how many parts there are where these are fewer."""


class Tally(Protocol):
    """Sums over topics. A copy made before any topic was added can count another part of them, to be merged later."""

    def add(self, numbers: TopicNumbers) -> None:
        """Add a topic."""

    def add_unreadable(self, name: TopicName, cursors: Iterable[str]) -> None:
        """Add a topic that cannot be read, with the names of its cursors."""

    def merge(self, later: Any) -> None:  # Any: one of its own kind
        """Add the sums of ``later``, whose topics come after these."""


class Counting:
    """Collects the sums over all topics at ``now_ms`` part by part; ``tallies`` receive them by ``end``, once all parts are added."""

    def __init__(self, tallies: Sequence[Tally], now_ms: int) -> None:
        self.tallies, self.now_ms = tallies, now_ms
        self.is_done = False
        self._sums: tuple[Tally, ...] | None = self.fresh()

    def fresh(self) -> tuple[Tally, ...]:
        """Return empty copies of ``tallies``."""
        return deepcopy(tuple(self.tallies))

    def add(self, part: Sequence[Tally] | None) -> None:
        """Add the tallies of the next part; None: some of its topics could not be counted."""
        if part is None or self._sums is None:
            self._sums = None
            return
        for tally, more in zip(self._sums, part, strict=True):
            tally.merge(more)

    def end(self) -> None:
        """Merge the sums into ``tallies`` after the last part; do nothing if some part could not be counted."""
        if self._sums is not None:
            self.is_done = True
            for tally, more in zip(self.tallies, self._sums, strict=True):
                tally.merge(more)


class TopicsPart(Struct, frozen=True):
    """Part ``number`` of all topics, ``topics`` of them in each part. ``now_ms``: see ``QuietTopics``; ``tallies``: empty ones."""

    number: int
    topics: int
    now_ms: int | None
    tallies: tuple[Tally, ...]

    def iter_topics(self, txn: Txn) -> Iterator[TopicName]:
        """Yield the topics, in order."""
        return chain.from_iterable(
            iter_topics_between(txn, *each) for each in _ranges_of(txn, self.topics)[self.number]
        )

    def count(self, txn: Txn) -> int:
        """Return how many topics the part has."""
        return sum(end - start for _, start, end in _ranges_of(txn, self.topics)[self.number])

    def fresh_tallies(self) -> tuple[Tally, ...]:
        """Return empty tallies for this part."""
        return deepcopy(self.tallies)


def parts_of(txn: Txn, now_ms: int | None, counting: Counting | None = None) -> list[TopicsPart]:
    """Return all topics in parts of about as many, in the order of ``iter_topics``."""
    tallies = () if counting is None else counting.fresh()
    topics = min(PART_TOPICS, count_topics(txn) // LEAST_PARTS + 1)
    return [TopicsPart(number, topics, now_ms, tallies) for number in range(len(_ranges_of(txn, topics)))]


@once
def _ranges_of(txn: Txn, topics: int) -> list[list[tuple[NamespaceName, int, int]]]:
    """Return, for each part of ``topics`` topics, its ranges: namespace, first and end (excluded) index in the order of names.

    Each process lists them itself: the topics of many namespaces would fill the pipe, and both processes would wait for each other.
    """
    parts: list[list[tuple[NamespaceName, int, int]]] = [[]]
    room = topics
    for namespace in iter_all_namespaces(txn):
        count, start = count_topics(txn, namespace), 0
        while start < count:
            end = min(count, start + room)
            parts[-1].append((namespace, start, end))
            room -= end - start
            start = end
            if not room:
                parts.append([])
                room = topics
    return [ranges for ranges in parts if ranges]


def tally_part(reader: EntryReader, part: TopicsPart) -> tuple[Tally, ...]:
    """Return the tallies of the topics in ``part``; run in another process by ``store.facts.processes``."""
    tallies = part.fresh_tallies()
    tally_topics(reader, read_ahead(reader.txn, part.iter_topics(reader.txn)), tallies, part.now_ms or 0)
    if not reader.txn.passes_altered:
        reader.txn.check_met()  # of altered rows the process tells that asked
    return tallies


def tally_topics(
    reader: EntryReader,
    names: Iterable[TopicName],
    tallies: Sequence[Tally],
    now_ms: int,
    advance: Callable[[int], None] = lambda count: None,
) -> None:
    """Add every topic of ``names`` to ``tallies``, unreadable ones by ``add_unreadable``; ``advance`` gets 1 for each that was read."""
    plain = PlainTopics(reader.txn, now_ms)
    for name in names:
        numbers = plain.find(name)
        if numbers is None:
            try:
                topic = read_topic(reader.txn, name)
            except StoreError:
                for tally in tallies:
                    tally.add_unreadable(name, iter_cursor_names(reader.txn, name))
                continue
            numbers = numbers_of(TopicFacts(reader, topic, now_ms))
        for tally in tallies:
            tally.add(numbers)
        advance(1)
