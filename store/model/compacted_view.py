"""Read model of a topic's compacted view: horizon, compacted ledger, its entries (pulsar.md §4)."""

from msgspec import Struct

from pulsar_admin.store.codec.claims import COMPACTED_COMPONENT, COMPACTED_TOPIC, COMPONENT
from pulsar_admin.store.codec.compactedentry import decode_compacted_entry
from pulsar_admin.store.codec.ledgermetadata import LedgerMetadata
from pulsar_admin.store.codec.message import EntryHeader, decode_message_entry
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.errors import LedgerNotFound, MetadataCorrupt, StoreError, SubscriptionNotFound
from pulsar_admin.store.model.cursors import COMPACTION_CURSOR, Cursor, read_cursor
from pulsar_admin.store.model.ledgers import find_metadata, read_ledger
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.topics import COMPACTED_LEDGER, Topic
from pulsar_admin.store.names import Position, TopicName, shell_word


class CompactedView(Struct, frozen=True):
    """The view that the ``__compaction`` cursor names. ``last_entry_id``: of the compacted ledger, −1 if it is empty."""

    horizon: Position
    ledger_id: int
    last_entry_id: int


class CompactedMessageEntry(Struct, frozen=True):
    """One entry of a compacted ledger, and its original position in the topic."""

    entry_id: int
    position: Position
    header: EntryHeader


def find_compaction_cursor(reader: EntryReader, topic: Topic) -> Cursor | None:
    """Return the ``__compaction`` cursor of a topic, or None."""
    try:
        return read_cursor(reader.txn, reader, topic, COMPACTION_CURSOR)
    except SubscriptionNotFound:
        return None


def find_compacted_view(reader: EntryReader, topic: Topic) -> CompactedView | None:
    """Return the compacted view of a topic, None if it was never compacted; raises LedgerNotFound if its ledger is gone."""
    cursor = find_compaction_cursor(reader, topic)
    ledger_id = None if cursor is None else cursor.state.properties.get(COMPACTED_LEDGER)
    if cursor is None or ledger_id is None:
        return None
    try:
        ledger = read_ledger(reader.txn, ledger_id)
    except LedgerNotFound as error:
        raise LedgerNotFound(
            f"the compacted ledger {ledger_id} of {topic.name} is gone",
            hint="compact the topic again; until then readers of the compacted view fail",
            ledgerId=ledger_id,
            topic=str(topic.name),
        ) from error
    return CompactedView(cursor.state.mark_delete, ledger_id, ledger.last_entry_id)


def open_view(reader: EntryReader, topic: Topic, problems: list[StoreError] | None = None) -> CompactedView | None:
    """Return the compacted view of a topic as ``find_compacted_view``, after checking that its ledger belongs to the topic.

    Raises MetadataCorrupt if the cursor names a missing ledger, or one that claims to be something else. A ledger
    without metadata is read anyway, and noted in ``problems``.
    """
    try:
        view = find_compacted_view(reader, topic)
    except LedgerNotFound as error:
        raise MetadataCorrupt(error.message, hint=error.hint, **error.context) from error
    if view is not None:
        stranger = stranger_text(reader.txn, topic.name, view.ledger_id)
        if stranger:
            raise MetadataCorrupt(
                f"{COMPACTED_LEDGER} of {topic.name} names ledger {view.ledger_id}, {stranger}",
                hint=f"look at it with: pulsar-admin compaction status {shell_word(topic.name)}; then compact the topic again",
                topic=str(topic.name),
                ledgerId=view.ledger_id,
            )
    if view is not None and problems is not None and find_metadata(reader.txn, view.ledger_id) is None:
        problems.append(
            MetadataCorrupt(
                f"{topic.name}: BookKeeper's metadata of the compacted ledger {view.ledger_id} is gone: a broker "
                "cannot open it; the answer comes from its entries, which no reader gets",
                hint="compact the topic again; until then readers of the compacted view fail",
                topic=str(topic.name),
                ledgerId=view.ledger_id,
            )
        )
    return view


def parts_of_view(view: CompactedView) -> tuple[tuple[int, int, int], ...]:
    """Return the entries of a view's ledger as parts (ledger id, first, last): one, or none if it is empty."""
    return ((view.ledger_id, 0, view.last_entry_id),) if view.last_entry_id >= 0 else ()


def stranger_text(txn: Txn, topic: TopicName, ledger_id: int) -> str:
    """Return what a ledger claims to be if that is not a compacted ledger of the topic, else "".

    A ledger without metadata, or without claims, passes: its entries are checked as they are read.
    """
    metadata = find_metadata(txn, ledger_id)
    if metadata is None:
        return ""
    component, owner = metadata.custom.get(COMPONENT), metadata.custom.get(COMPACTED_TOPIC)
    if owner is not None and owner != str(topic).encode():
        return f"the compacted ledger of {owner.decode('utf-8', 'replace')}"
    if component is not None and component != COMPACTED_COMPONENT:
        return f"a ledger with component={component.decode('utf-8', 'replace')}"
    return ""


def is_compacted_ledger(metadata: LedgerMetadata, topic: TopicName) -> bool:
    """Whether a ledger's own metadata claims to be a compacted ledger of the topic."""
    return (
        metadata.custom.get(COMPONENT) == COMPACTED_COMPONENT
        and metadata.custom.get(COMPACTED_TOPIC) == str(topic).encode()
    )


def read_compacted_entry(reader: EntryReader, view: CompactedView, entry_id: int) -> CompactedMessageEntry:
    """Return one entry of the compacted ledger; raises EntryNotFound, EntryCorrupt."""
    where = compacted_where(view, entry_id)
    entry = decode_compacted_entry(reader.read(view.ledger_id, entry_id).payload, where)
    return CompactedMessageEntry(entry_id, entry.position, decode_message_entry(entry.headers_and_payload, where))


def compacted_where(view: CompactedView, entry_id: int) -> str:
    """Return how messages name an entry of the compacted ledger."""
    return f"compacted ledger entry {view.ledger_id}:{entry_id}"
