"""Managed ledgers that are neither persistent topics nor segments of scalable topics: a newer Pulsar has other domains for them."""

from collections.abc import Sequence

from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.errors import StoreError
from pulsar_admin.store.model.nodes import iter_other_cursors, iter_other_ledgers
from pulsar_admin.store.model.topics import read_topic
from pulsar_admin.store.names import MANAGED_LEDGERS, SEGMENT
from pulsar_admin.store.wording import Answer, counted


class OtherLedger(Answer, frozen=True):
    """A managed ledger of a domain other than ``persistent``. ``domain``: the metadata path of that; ``ledgers``: how many it lists."""

    name: str
    domain: str
    ledgers: int
    entries: int
    bytes: int
    cursors: int


def other_ledgers(txn: Txn) -> tuple[OtherLedger, ...]:
    """Return the managed ledgers of unknown domains, by path; unreadable ones are left out, as other facts cover their nodes."""
    others = []
    for name in iter_other_ledgers(txn):
        if name.domain == SEGMENT:
            continue
        try:
            topic = read_topic(txn, name)
        except StoreError:
            continue
        others.append(
            OtherLedger(
                str(name),
                f"{MANAGED_LEDGERS}/{name.namespace}/{name.domain}",
                len(topic.ids),
                topic.number_of_entries,
                topic.total_size_bytes,
                sum(1 for _ in iter_other_cursors(txn, name)),
            )
        )
    return tuple(others)


class OtherSum(Answer, frozen=True):
    """Managed ledgers of other domains, summed up."""

    managed_ledgers: int
    ledgers: int
    entries: int
    bytes: int

    def __str__(self) -> str:
        return (
            f"{counted(self.managed_ledgers, 'managed ledger')} of a newer Pulsar: {counted(self.ledgers, 'ledger')}, "
            f"{counted(self.entries, 'entry')}, {counted(self.bytes, 'byte')}, kept as they are"
        )


def summed(found: Sequence[OtherLedger]) -> OtherSum:
    """Return the sums over managed ledgers."""
    return OtherSum(
        len(found),
        sum(one.ledgers for one in found),
        sum(one.entries for one in found),
        sum(one.bytes for one in found),
    )
