"""Subscriptions of a generated topic: how far each one is, and what it acknowledged one by one behind that."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from bench.generate import draws
from bench.generate.spec import SUBSCRIPTIONS_MAX
from bench.generate.topic import TopicWriter, WrittenLedger
from pulsar_admin.store.codec.cursor import NO_CURSOR_LEDGER, CursorInfo
from pulsar_admin.store.names import Position

_STREAMS = 1 << 40  # topics have the streams below
_RUN_MAX = 8

Range = tuple[Position, Position]


def cursors_of(seed: int, topic: TopicWriter) -> Iterator[tuple[str, CursorInfo]]:
    """Yield (subscription, state) of every subscription of a topic that is written.

    Subscription ``sub-<k>`` of n has acknowledged everything in the first ``acked`` × (k + 1) / n of the topic's entries, and
    behind that ``holes`` runs of 1 to 8 entries, each after a gap of 1 to 8 unacknowledged ones.
    """
    spec = topic.spec
    for number in range(spec.subscriptions):
        acked = topic.entries * spec.acked * (number + 1) // (draws.PERMYRIAD * spec.subscriptions)
        source = draws.stream(seed, _STREAMS + topic.number * SUBSCRIPTIONS_MAX + number)
        runs = iter_runs(source, spec.holes, acked, topic.entries)
        ranges = tuple(part for first, last in runs for part in _ranges(topic.ledgers, first, last))
        yield f"sub-{number}", CursorInfo(NO_CURSOR_LEDGER, _mark_delete(topic.ledgers, acked), ranges)


def iter_runs(source: int, holes: int, acked: int, entries: int) -> Iterator[tuple[int, int]]:
    """Yield (first, last) entry numbers of the runs acknowledged after the first ``acked`` entries of a topic of ``entries``."""
    at = acked
    for number in range(holes):
        first = at + draws.between(draws.draw(source, number, draws.GAP), 1, _RUN_MAX)
        last = first + draws.between(draws.draw(source, number, draws.RUN), 1, _RUN_MAX) - 1
        if last >= entries:
            return
        yield first, last
        at = last + 1


def _mark_delete(ledgers: list[WrittenLedger], acked: int) -> Position:
    """Return the position of the last of the first ``acked`` entries."""
    if acked == 0:
        return Position(ledgers[0].ledger_id, -1)
    return _position(ledgers, acked - 1)


def _position(ledgers: list[WrittenLedger], entry: int) -> Position:
    ledger = ledgers[_ledger_of(ledgers, entry)]
    return Position(ledger.ledger_id, entry - ledger.first)


def _ledger_of(ledgers: list[WrittenLedger], entry: int) -> int:
    return bisect_right(ledgers, entry, key=lambda ledger: ledger.first) - 1


def _ranges(ledgers: list[WrittenLedger], first: int, last: int) -> Iterator[Range]:
    """Yield the open-closed ranges of entries ``first`` to ``last``, cut at ledgers as the broker's sets are."""
    while first <= last:
        ledger = ledgers[_ledger_of(ledgers, first)]
        end = min(last, ledger.first + ledger.entries - 1)
        lower, upper = first - ledger.first - 1, end - ledger.first
        yield Position(ledger.ledger_id, lower), Position(ledger.ledger_id, upper)
        first = end + 1
