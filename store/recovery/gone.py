"""What could come back: topics that were deleted, and those that lost ledgers whose entries are still here."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.owners import find_owners
from pulsar_admin.store.model.ledgers import find_times
from pulsar_admin.store.names import TopicName, topic_of_path
from pulsar_admin.store.recovery.past import Past


class GoneTopic(Struct, frozen=True):
    """A topic and the ledgers that it no longer lists. ``deleted_ms``: None where it is there, or nothing says when it was deleted.

    ``here``: of those ledgers, how many have entries here and nothing references them; ``entries``: how many entries those have.
    """

    topic: TopicName
    deleted_ms: int | None
    ledgers: int
    here: int
    entries: int


def keeps_topics(path: str, value: bytes) -> bool:
    """Keep of the history what topics listed, and nothing else, for ``store.recovery.past.read_past``."""
    return topic_of_path(path) is not None


def iter_gone(txn: Txn, past: Past) -> Iterator[GoneTopic]:
    """Yield every deleted topic of PAST, by name, and others that have lost ledgers of which entries are here."""
    for name in sorted(past.listed):
        deleted_ms = past.fates[name.path].gone_ms
        gone = [ledger_id for ledger_id, one in past.listed[name].items() if one.gone_ms is not None]
        here = [found for one in gone if not find_owners(txn, one) and (found := find_times(txn, one)) is not None]
        if here or deleted_ms is not None:
            entries = sum(one.sums.entries for one in here)
            yield GoneTopic(name, deleted_ms or None, len(gone), len(here), entries)
