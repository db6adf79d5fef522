"""What an answer to "why" is made of: reasons, each with a code that is for ever, a sentence, evidence and the next command."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from store.frozen import frozen
from store.names import Position
from store.timespec import format_age_ms, shown_time


@frozen
class Code:
    """A kind of reason. ``holds``: it explains why something does not move, or stays; else it says what bears on it."""

    name: str
    holds: bool
    means: str


CODES: Mapping[str, Code] = {
    code.name: code
    for code in (
        Code("cursor-lost", True, "the cursor's newest state cannot be read, so a broker starts from an older one"),
        Code("lost-entries", True, "the entry to be given next is lost: a broker gets no further"),
        Code("open-transaction", True, "the entry to be given next is of a transaction that is open, or behind one"),
        Code("delayed", True, "the oldest entry that is not acknowledged waits for its time"),
        Code("ack-holes", True, "entries behind the oldest one are acknowledged, it is not"),
        Code("unreadable", True, "the oldest entry that is not acknowledged cannot be read"),
        Code("compaction", True, "it is compaction's cursor, which moves when compaction runs"),
        Code("replicator", True, "it is a replicator's cursor, which moves when the other cluster takes messages"),
        Code("pending-acks", True, "acknowledgements wait for the end of their transaction"),
        Code("open-transaction-ahead", True, "an entry further on is of an open transaction: a broker gets so far"),
        Code("lost-ahead", True, "an entry further on is lost: a broker gets so far"),
        Code("backlog", False, "nothing in the store holds it: what is left waits for a consumer"),
        Code("consumed", False, "nothing holds it: all is acknowledged"),
        Code("not-imported", False, "bookies that are not imported may have what is not seen here"),
        Code("transactions-unknown", False, "entries that say which transactions are open here cannot be read"),
        Code("ack-ranges-limit", False, "it stores as many ranges as a broker keeps: later acknowledgements are lost"),
        Code(
            "aborted-transactions", False, "messages of aborted transactions count in the backlog, nobody is given them"
        ),
        Code("delayed-later", False, "other entries of the backlog wait for their time"),
        Code("ttl-future", False, "publish times lie in the future: no TTL reaches them before"),
        Code("ttl-overdue", False, "the TTL has passed; a broker drops entries only of topics that it has loaded"),
        Code("ttl-later", False, "the TTL reaches the oldest entry later"),
        Code("ttl-none", False, "no TTL is in force"),
        Code("ttl-never", False, "brokers expire nothing of this cursor, or of this topic"),
        Code("ttl-drops-delayed", False, "the TTL drops delayed messages before they are due"),
        Code("ttl-unknown", False, "the policies, or the times of entries, cannot be read"),
        Code("quota-reached", False, "the backlog quota is reached"),
        Code("quota-left", False, "the backlog quota is not reached"),
        Code("cursor", True, "ledgers that a subscription still needs: the slowest one is named"),
        Code("retention", True, "ledgers that every cursor has left, and retention keeps"),
        Code("open-ledger", True, "the last ledger of a topic, which no broker deletes"),
        Code("trim-due", False, "ledgers that nothing keeps: a broker deletes them once it has the topic loaded"),
        Code("offloaded", True, "ledgers that are in tiered storage as well, until the deletion lag is over"),
        Code("compacted-ledger", True, "the compacted ledger of a topic"),
        Code("schema-ledger", True, "schemas of a topic"),
        Code("cursor-ledger", True, "the ledger that says where a cursor stands"),
        Code("delayed-bucket", True, "a broker's snapshot of delayed messages"),
        Code("delayed-index", True, "this store's own index of delayed messages"),
        Code("topic-unreadable", True, "ledgers of a topic whose metadata cannot be read"),
        Code(
            "other-domain", True, "managed ledgers that only a newer Pulsar reads, such as segments of scalable topics"
        ),
        Code("orphan", True, "ledgers with metadata that nothing references"),
        Code("unlisted", True, "ledgers that the metadata does not list, and that nothing shows to be deleted"),
        Code("dead-in-log", True, "deleted ledgers in an entry log in which others live"),
        Code("dead-log", False, "entry logs in which nothing lives: the next garbage collection deletes them"),
        Code("journal", True, "journals"),
        Code("overhead", True, "headers and maps of entry logs, damage, unwritten space"),
    )
}
"""By name, the one to be told first before the others."""
_ORDER = {name: index for index, name in enumerate(CODES)}


@frozen
class Reason:
    """Why. ``evidence``: the figures that the sentence is made of; ``command``: what to type next, empty where nothing is to be done."""

    code: str
    sentence: str
    evidence: Mapping[str, Any]  # Any: JSON values
    command: str = ""

    @property
    def holds(self) -> bool:
        """Whether it explains why something does not move."""
        return CODES[self.code].holds


def in_order(reasons: Iterable[Reason]) -> tuple[Reason, ...]:
    """Return REASONS, the one to be told first before the others."""
    return tuple(sorted(reasons, key=lambda reason: _ORDER[reason.code]))


def when(time_ms: int, now_ms: int) -> str:
    """Return a time with how far it is from now: ``2026-11-21T09:23:24.483Z (2h36m ago)``."""
    age_ms = now_ms - time_ms
    return (
        f"{shown_time(time_ms)} ({f'{format_age_ms(age_ms)} ago' if age_ms >= 0 else f'in {format_age_ms(-age_ms)}'})"
    )


def span(first: Position, last: Position) -> str:
    """Return a run of entries: ``9:3``, or ``9:3 to 9:7``."""
    return str(first) if first == last else f"{first} to {last}"
