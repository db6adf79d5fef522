"""The directory of a delayed message index: its partitions, the entries that it covers, and the index cursor.

Row (database ``delayed``): key ``index\\0<topic>\\0<subscription>``; value zlib-compressed JSON, the fields of ``Index``. It is written
in the transaction that makes the ledgers it names known, so that a process that is killed leaves the old row and its ledgers.
"""

import json
import zlib
from collections.abc import Iterator

from msgspec import Struct, field

from pulsar_admin.store.db.delayed_rules import IndexRules
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.owners import Owner, OwnerKind
from pulsar_admin.store.errors import IndexCorrupt, StoreError, Unsupported, reason_of
from pulsar_admin.store.names import NamespaceName, Position, TopicName, parse_topic, shell_word

FORMAT = 1
_PREFIX = b"index\0"
Part = tuple[int, int, int]
"""Entries of one ledger: (ledger id, first entry, last entry)."""


class Partition(Struct, frozen=True):
    """Messages due from ``start_ms`` on for ``width_ms``. ``ledgers``: (ledger id, messages, payload bytes) of each."""

    start_ms: int
    width_ms: int
    ledgers: tuple[tuple[int, int, int], ...]

    @property
    def end_ms(self) -> int:
        """The end of the partition; messages due then are in the next one."""
        return self.start_ms + self.width_ms

    @property
    def messages(self) -> int:
        """Messages in all ledgers."""
        return sum(count for _, count, _ in self.ledgers)

    @property
    def bytes(self) -> int:
        """Payload bytes in all ledgers."""
        return sum(size for _, _, size in self.ledgers)


class Index(Struct, frozen=True):
    """The index of one topic and subscription. ``covered``: the entries that were examined for it."""

    topic: TopicName
    subscription: str
    rules: IndexRules
    cursor: Position
    built_ms: int
    covered: tuple[Part, ...] = ()
    partitions: tuple[Partition, ...] = field(default=())

    @property
    def messages(self) -> int:
        """Messages in all partitions."""
        return sum(partition.messages for partition in self.partitions)

    @property
    def bytes(self) -> int:
        """Payload bytes of all partitions' ledgers."""
        return sum(partition.bytes for partition in self.partitions)

    @property
    def ledger_ids(self) -> tuple[int, ...]:
        """The ledgers of all partitions."""
        return tuple(ledger_id for partition in self.partitions for ledger_id, _, _ in partition.ledgers)


def index_key(topic: TopicName, subscription: str) -> bytes:
    """Return the key of an index's row."""
    return _PREFIX + f"{topic}\0{subscription}".encode()


def find_index(txn: Txn, topic: TopicName, subscription: str) -> Index | None:
    """Return the index, None when it was never built; raises IndexCorrupt, Unsupported."""
    row = txn.get("delayed", index_key(topic, subscription))
    return None if row is None else decode_index(row, topic, subscription)


def iter_indexes(txn: Txn) -> Iterator[Index]:
    """Yield every index in key order; raises IndexCorrupt, Unsupported."""
    for key, row in txn.items("delayed", _PREFIX):
        yield _decode_row(key, row)


def _decode_row(key: bytes, row: bytes) -> Index:
    topic, _, subscription = key.removeprefix(_PREFIX).decode("utf-8", "replace").partition("\0")
    return decode_index(row, parse_topic(topic), subscription)


def find_index_ledgers(txn: Txn) -> dict[int, Owner]:
    """Return ledger id → the topic and subscription to whose index it belongs; damaged directories are skipped."""
    owners: dict[int, Owner] = {}
    for key, row in txn.items("delayed", _PREFIX):
        try:
            index = _decode_row(key, row)
        except StoreError:
            continue
        owner = Owner(OwnerKind.INDEX, str(index.topic), index.subscription)
        owners |= dict.fromkeys(index.ledger_ids, owner)
    return owners


def iter_wide(txn: Txn, namespace: NamespaceName, rules: IndexRules) -> Iterator[Index]:
    """Yield the indexes of a namespace that have partitions wider than the rules allow; raises IndexCorrupt, Unsupported.

    Without those whose times are rounded more coarsely than the rules' tick: the next build makes them anew from the
    entries.
    """
    for index in iter_indexes(txn):
        is_wide = any(part.width_ms > rules.granularity_ms for part in index.partitions)
        if index.topic.namespace == namespace and is_wide and index.rules.tick_ms <= rules.tick_ms:
            yield index


def put_index(txn: Txn, index: Index) -> None:
    """Write the index's row."""
    txn.put("delayed", index_key(index.topic, index.subscription), encode_index(index))


def encode_index(index: Index) -> bytes:
    """Return an index as a row."""
    fields = {
        "format": FORMAT,
        "granularity": index.rules.granularity_ms,
        "tick": index.rules.tick_ms,
        "cursor": [index.cursor.ledger_id, index.cursor.entry_id],
        "built": index.built_ms,
        "covered": index.covered,
        "partitions": [(part.start_ms, part.width_ms, part.ledgers) for part in index.partitions],
    }
    return zlib.compress(json.dumps(fields, separators=(",", ":")).encode())


def decode_index(row: bytes, topic: TopicName, subscription: str) -> Index:
    """Return the index in a row; raises IndexCorrupt, and Unsupported for one that a newer toolkit wrote."""
    try:
        fields = json.loads(zlib.decompress(row))
        if fields["format"] > FORMAT:
            raise Unsupported(
                f"the delayed index of {topic} {subscription} has format {fields['format']}, this toolkit knows up to {FORMAT}",
                hint="use the toolkit that wrote it, or: pulsar-admin delayed build "
                f"{shell_word(topic)} -s {shell_word(subscription)} --rebuild",
            )
        return Index(
            topic,
            subscription,
            IndexRules(int(fields["granularity"]), int(fields["tick"])),
            Position(*map(int, fields["cursor"])),
            int(fields["built"]),
            tuple((int(ledger), int(first), int(last)) for ledger, first, last in fields["covered"]),
            tuple(
                Partition(int(start), int(width), tuple((int(a), int(b), int(c)) for a, b, c in ledgers))
                for start, width, ledgers in fields["partitions"]
            ),
        )
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError, zlib.error) as error:
        raise IndexCorrupt(
            f"the delayed index of {topic} {subscription} is damaged: {reason_of(error)}",
            hint=f"rebuild it: pulsar-admin delayed build {shell_word(topic)} -s {shell_word(subscription)} --rebuild",
        ) from error
