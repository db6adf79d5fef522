"""Where a time is in a topic, as callers see it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Literal

from pulsar_admin.api.session import moment, warn_partial
from store.dump.finding import TimeQuestion, explain_answer, find_as_broker, find_by_time, gaps_before
from store.model.reader import EntryReader
from store.model.topics import Topic as TopicModel
from store.names import Position

if TYPE_CHECKING:
    from store.search.broker_setup import Probe
    from store.search.explain import BrokerAnswer, Explanation, LedgerVerdict, Neighbour

Clock = Literal["auto", "publish", "broker", "event"]
"""Which time of a message counts: the broker's where the entry carries one, else the publish time (auto); or always one of them."""


@dataclass(frozen=True, slots=True)
class FoundEntry:
    """Where a time is in a topic, and what was read to know it.

    ``position``: None where nothing is at or after the time. ``entry_time_ms``: the entry's own time on the clock.
    ``ledgers_without_index`` and ``unreadable``: ledgers and entries in front of the answer that could hold an earlier one.
    ``probes``: the entries that a broker looked at (rule ``broker``, and with a proof). The rest is the proof that
    ``explain=True`` asks for: ``broker``, what one would answer and why; ``ledgers``, ``neighbours``, ``block``.
    """

    topic: str
    time_ms: int
    clock: str
    rule: str
    position: Position | None
    entry_time_ms: int | None
    entries_read: int
    ledgers_pruned: int
    ledgers_scanned: int
    ledgers_without_index: tuple[int, ...] = ()
    unreadable: int = 0
    probes: tuple[Probe, ...] = ()
    broker: BrokerAnswer | None = None
    ledgers: tuple[LedgerVerdict, ...] = ()
    neighbours: tuple[Neighbour, ...] = ()
    block: tuple[Position, int] | None = None

    @property
    def entry_time(self) -> datetime | None:
        """The entry's time in UTC; None where it has none, or one that no calendar holds."""
        return moment(self.entry_time_ms)


def found_by_time(reader: EntryReader, topic: TopicModel, question: TimeQuestion, *, explain: bool) -> FoundEntry:
    """Return the exact answer; what it could not read is warned of."""
    answer = find_by_time(reader, topic, question)
    found = answer.found
    proof = explain_answer(reader, topic, question, found) if explain else None
    warn_partial(gaps_before(topic, found))
    return FoundEntry(
        str(topic.name),
        question.time_ms,
        question.clock,
        question.rule,
        answer.position,
        answer.entry_time_ms,
        found.entries_read,
        found.ledgers_pruned,
        found.ledgers_scanned,
        found.ledgers_without_index,
        found.unreadable,
        () if proof is None else proof.broker.probes,
        *_proof(proof),
    )


def found_by_broker(reader: EntryReader, topic: TopicModel, question: TimeQuestion, *, explain: bool) -> FoundEntry:
    """Return the answer of a live broker."""
    answer = find_as_broker(reader, topic, question)
    proof = None
    if explain:
        proof = explain_answer(reader, topic, question, find_by_time(reader, topic, question).found)
    return FoundEntry(
        str(topic.name),
        question.time_ms,
        "auto" if answer.compacted_ledger is None else "publish",
        question.rule,
        answer.position,
        answer.entry_time_ms,
        answer.entries_read,
        0,
        len({probe.position.ledger_id for probe in answer.probes}),
        (),
        0,
        answer.probes,
        *_proof(proof),
    )


def _proof(
    proof: Explanation | None,
) -> tuple[BrokerAnswer | None, tuple[LedgerVerdict, ...], tuple[Neighbour, ...], tuple[Position, int] | None]:
    return (None, (), (), None) if proof is None else (proof.broker, proof.ledgers, proof.neighbours, proof.block)
