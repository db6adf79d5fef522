"""Ledgers that were never closed: last ledgers of topics, and ledgers of cursors, as a kill or a copy of a running cluster leaves them."""

from msgspec import Struct, field

from pulsar_admin.store.codec.ledgermetadata import LedgerState
from pulsar_admin.store.db.blocks import LedgerSums
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.errors import StoreError
from pulsar_admin.store.facts.topics import TopicFacts
from pulsar_admin.store.model.ledgers import find_metadata, find_sums, find_whole
from pulsar_admin.store.names import TopicName

NAMED = 5


class Unclosed(Struct):
    """Topics and subscriptions whose last ledger is open: how many, the first of them by name, and the time of the last imported write."""

    topics: int = 0
    last_write_ms: int = 0
    examples: list[str] = field(default_factory=list)
    subscriptions: int = 0
    named: list[str] = field(default_factory=list)

    def add(self, facts: TopicFacts) -> None:
        """Count the topic if its last ledger is open, and those of its cursors whose ledger is open."""
        txn, topic = facts.reader.txn, facts.topic
        if topic.ids and _is_open(txn, topic.ids[-1]):
            self.add_topic(facts.topic.name, last_write_ms(find_sums(txn, topic.ids[-1])))
        for cursor in facts.cursors:
            if cursor.info.is_in_ledger and _is_open(txn, cursor.info.cursors_ledger_id):
                self.subscriptions += 1
                if len(self.named) < NAMED:
                    self.named.append(f"{cursor.name} of {facts.where}")

    def add_topic(self, name: TopicName, written_ms: int) -> None:
        """Count a topic whose last ledger is open and was written last at ``written_ms``, 0 where that is not known."""
        self.topics += 1
        if len(self.examples) < NAMED or str(name) < self.examples[-1]:
            self.examples = sorted([*self.examples, str(name)])[:NAMED]
        self.last_write_ms = max(self.last_write_ms, written_ms)


def last_write_ms(sums: LedgerSums | None) -> int:
    """Return the time of the last write to a ledger, from its sums in the index; 0 if they have no time."""
    if sums is None or sums.end_publish_ms is None:
        return 0
    return sums.broker_max_ms if sums.broker_count > 0 else sums.publish_max_ms


def _is_open(txn: Txn, ledger_id: int) -> bool:
    whole = find_whole(txn, ledger_id)
    if whole is not None:
        return not whole.is_closed
    try:
        metadata = find_metadata(txn, ledger_id)
    except StoreError:
        return False
    return metadata is not None and metadata.state is not LedgerState.CLOSED
