"""Wrong clocks as far as the index tells: publish times beside broker times, or beside the times at which ledgers were closed."""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct

from pulsar_admin.store.db.blocks import LedgerSums
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.model.ledgers import WholeLedger, find_sums
from pulsar_admin.store.model.topics import Topic


class Clocks(Struct, frozen=True):
    """One topic's clocks. ``ahead_ms`` and ``behind_ms``: how far publish times are off at most; 0: not more than the tolerance.

    ``future_now``: a publish time is after now. ``late_ledgers``: closed at a time that is yet to come, by the broker's clock.
    ``is_stamped``: every entry has a broker's time, by which brokers search and expire, whatever producers say.
    """

    TOLERANCE_MS: ClassVar[int] = 300_000

    future_ledgers: int = 0
    past_ledgers: int = 0
    ahead_ms: int = 0
    behind_ms: int = 0
    future_now: bool = False
    late_ledgers: int = 0
    late_bytes: int = 0
    latest_close_ms: int = 0
    is_stamped: bool = False


def _off_by(sums: LedgerSums, closed_ms: int, opened_ms: int, now_ms: int) -> tuple[int, int]:
    """Return how far publish times of a ledger are after, and before, what is possible; CLOSED_MS 0: it is open."""
    stamped = sums.is_stamped
    not_after = sums.broker_max_ms if stamped else (closed_ms or now_ms)
    not_before = sums.broker_min_ms if stamped else opened_ms
    return sums.publish_max_ms - not_after, not_before - sums.publish_min_ms


def is_on_time(ledger: WholeLedger, closed_ms: int, opened_ms: int, now_ms: int) -> bool:
    """Whether ``read_clocks`` has nothing to tell of a ledger."""
    latest_ms = now_ms + Clocks.TOLERANCE_MS
    smallest, largest = ledger.publish_min_ms, ledger.publish_max_ms
    if closed_ms > latest_ms or smallest > largest:
        return closed_ms <= latest_ms
    off_ms = max(largest - (closed_ms or now_ms), opened_ms - smallest) if ledger.off_ms is None else ledger.off_ms
    return off_ms <= Clocks.TOLERANCE_MS and largest <= latest_ms


def read_clocks(txn: Txn, topic: Topic, now_ms: int) -> Clocks:
    """Return what the time rows of TOPIC say; a retry of a producer takes less than the tolerance.

    An entry cannot have been published after its ledger was closed, nor before the one in front of it was (a broker closes a ledger
    before it opens the next).
    """
    future = past = ahead = behind = late = late_bytes = latest = 0
    future_now, is_stamped = False, True
    opened_ms = 0
    for ledger in topic.ledgers:
        closed_ms = ledger.info.timestamp_ms or 0
        sums = find_sums(txn, ledger.ledger_id)
        if closed_ms > now_ms + Clocks.TOLERANCE_MS:
            late, late_bytes, latest = late + 1, late_bytes + ledger.size_bytes, max(latest, closed_ms)
        if sums is not None and sums.begin_publish_ms is not None:
            is_stamped &= sums.is_stamped
            over, under = _off_by(sums, closed_ms, opened_ms, now_ms)
            if over > Clocks.TOLERANCE_MS:
                future, ahead = future + 1, max(ahead, over)
            if under > Clocks.TOLERANCE_MS:
                past, behind = past + 1, max(behind, under)
            future_now |= sums.publish_max_ms > now_ms + Clocks.TOLERANCE_MS
        opened_ms = closed_ms or opened_ms
    return Clocks(future, past, ahead, behind, future_now, late, late_bytes, latest, is_stamped)
