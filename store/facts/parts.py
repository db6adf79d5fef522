"""All topics in parts, which processes look at and count."""

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
    """What adds up something of topics; a copy of one that has nothing yet adds up the same."""

    def add(self, numbers: TopicNumbers) -> None:
        """Add a topic."""

    def add_unreadable(self, name: TopicName, cursors: Iterable[str]) -> None:
        """Add a topic that cannot be read, with the names of its cursors."""

    def merge(self, later: Any) -> None:  # Any: one of its own kind
        """Add the sums of ``later``, whose topics come after these."""


class Counting:
    """What ``tallies`` add up of all topics at ``now_ms``, part by part; they are given nothing until all parts are added."""

    def __init__(self, tallies: Sequence[Tally], now_ms: int) -> None:
        self.tallies, self.now_ms = tallies, now_ms
        self.is_done = False
        self._sums: tuple[Tally, ...] | None = self.fresh()

    def fresh(self) -> tuple[Tally, ...]:
        """Return tallies that add up the same, and have nothing yet."""
        return deepcopy(tuple(self.tallies))

    def add(self, part: Sequence[Tally] | None) -> None:
        """Add the tallies of the next part; None: some of its topics could not be counted."""
        if part is None or self._sums is None:
            self._sums = None
            return
        for tally, more in zip(self._sums, part, strict=True):
            tally.merge(more)

    def end(self) -> None:
        """Give ``tallies`` the sums, after the last part; nothing where a part was not counted."""
        if self._sums is not None:
            self.is_done = True
            for tally, more in zip(self.tallies, self._sums, strict=True):
                tally.merge(more)


class TopicsPart(Struct, frozen=True):
    """The part ``number`` of all topics in parts of ``topics``; ``now_ms``: as of ``QuietTopics``; ``tallies``: what is to count them."""

    number: int
    topics: int
    now_ms: int | None
    tallies: tuple[Tally, ...] = ()

    def iter_topics(self, txn: Txn) -> Iterator[TopicName]:
        """Yield the topics, in order."""
        return chain.from_iterable(
            iter_topics_between(txn, *each) for each in _ranges_of(txn, self.topics)[self.number]
        )

    def count(self, txn: Txn) -> int:
        """Return how many topics these are."""
        return sum(end - start for _, start, end in _ranges_of(txn, self.topics)[self.number])

    def fresh_tallies(self) -> tuple[Tally, ...]:
        """Return tallies for this part alone."""
        return deepcopy(self.tallies)


def parts_of(txn: Txn, now_ms: int | None, counting: Counting | None = None) -> list[TopicsPart]:
    """Return all topics in parts of about as many, in the order of ``iter_topics``."""
    tallies = () if counting is None else counting.fresh()
    topics = min(PART_TOPICS, count_topics(txn) // LEAST_PARTS + 1)
    return [TopicsPart(number, topics, now_ms, tallies) for number in range(len(_ranges_of(txn, topics)))]


@once
def _ranges_of(txn: Txn, topics: int) -> list[list[tuple[NamespaceName, int, int]]]:
    """Return the topics of each part of ``topics`` by namespace and their places there in the order of names.

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
    """Return tallies of the topics in ``part``: for ``store.facts.processes``."""
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
    """Give every topic of ``names`` that can be read to ``tallies``, and tell them of one that cannot; ``advance`` is told each."""
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
