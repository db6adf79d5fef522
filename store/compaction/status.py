"""How far a topic is compacted, what its compacted ledger holds, and what is wrong with either."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from msgspec import field

from pulsar_admin.store.codec.batch import iter_batch
from pulsar_admin.store.codec.claims import COMPACTED_TO
from pulsar_admin.store.codec.compactedentry import decode_original_id
from pulsar_admin.store.codec.compression import NONE, decompress
from pulsar_admin.store.codec.ledgermetadata import LedgerState
from pulsar_admin.store.codec.message import is_batch, is_encrypted
from pulsar_admin.store.compaction.floor import find_skipped, with_last_entry
from pulsar_admin.store.compaction.forms import INDEXED, LEGACY, REDUCED
from pulsar_admin.store.compaction.heads import read_compacted_head
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.owners import find_owners
from pulsar_admin.store.errors import EntryCorrupt, LedgerNotFound, MetadataCorrupt
from pulsar_admin.store.model import ledgers
from pulsar_admin.store.model.compacted_view import (
    CompactedView,
    compacted_where,
    find_compaction_cursor,
    is_compacted_ledger,
    read_compacted_entry,
    stranger_text,
)
from pulsar_admin.store.model.coverage import count_unseen
from pulsar_admin.store.model.cursors import Cursor, CursorSource, extent_of
from pulsar_admin.store.model.messages import ENTRY_ERRORS
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.topics import COMPACTED_LEDGER, Topic
from pulsar_admin.store.names import Position
from pulsar_admin.store.wording import Answer, counted

_LOOKED_AT_ENTRIES = 100  # from the end of a compacted ledger, for a batch that tells its form


class CompactedLedgerFacts(Answer, frozen=True):
    """The ledger that the cursor names.

    ``unread_entries``: those after its recorded end, which no reader gets (2.11.0 closes some ledgers before their
    last add). ``compacted_to``: the last position that its writer did not treat as deleted, None if the ledger does
    not say. ``form``: of its last batch (``store.compaction.forms``), None if there is no batch among the last
    entries, or it cannot be read.
    """

    ledger_id: int
    entries: int
    size_bytes: int
    missing_entries: int
    unread_entries: int
    compacted_to: Position | None
    form: str | None = field(name="format")


class LeakedLedger(Answer, frozen=True):
    """A compacted ledger of this topic that nothing references: a compaction or a deletion that did not end."""

    ledger_id: int
    entries: int
    size_bytes: int
    state: str


class CompactionStatus(Answer, frozen=True):
    """``horizon`` None: no ``__compaction`` cursor. ``since``: the entries after the horizon; ``uncounted_since`` of them are not here, and
    their messages and bytes in no sum. ``problems``: sentences."""

    JSON_OPTIONAL = ("uncounted_since",)

    topic: str
    compacted: bool
    horizon: Position | None
    cursor_source: str | None
    ledger: CompactedLedgerFacts | None
    entries_since: int
    messages_since: int
    uncounted_since: int | None
    bytes_since: int = field(name="bytesSince")
    leaked: tuple[LeakedLedger, ...]
    problems: tuple[str, ...]


def read_status(reader: EntryReader, topic: Topic, leaked: tuple[LeakedLedger, ...] | None = None) -> CompactionStatus:
    """Return the state of a topic's compaction; ``leaked`` avoids another pass over all ledgers (``find_leaked``)."""
    cursor = find_compaction_cursor(reader, topic)
    ledger_id = None if cursor is None else cursor.state.properties.get(COMPACTED_LEDGER)
    horizon = None if cursor is None else cursor.state.mark_delete
    problems = list(_cursor_problems(topic, cursor))
    facts = None
    if ledger_id is not None and horizon is not None:
        facts, more = _ledger_facts(reader, topic, ledger_id, horizon)
        problems += more
    if leaked is None:
        leaked = find_leaked(reader.txn, topic)
    problems += (f"ledger {row.ledger_id}: a compacted ledger of this topic that nothing references" for row in leaked)
    first = 0 if horizon is None else topic.place(horizon)
    since = extent_of(reader.txn, topic, ((first, topic.number_of_entries),))
    return CompactionStatus(
        str(topic.name),
        facts is not None,
        horizon,
        None if cursor is None else cursor.source,
        facts,
        since.entries,
        since.messages,
        since.uncounted_entries,
        since.bytes,
        leaked,
        tuple(problems),
    )


def _cursor_problems(topic: Topic, cursor: Cursor | None) -> Iterator[str]:
    if cursor is None:
        return
    if cursor.source is CursorSource.FALLBACK:
        yield (
            f"the cursor ledger {cursor.info.cursors_ledger_id} of __compaction cannot be read: the answer is the "
            "state recorded when that ledger was created, and may be stale"
        )
    elif cursor.skipped_entries:
        yield f"{cursor.skipped_entries} newer states of __compaction in its cursor ledger cannot be read: it may be stale"
    stored = cursor.info.mark_delete
    # (ledger, −1) is not an entry, but the place behind those before it: 4.2 leaves the cursor at the beginning of an empty ledger.
    if (
        cursor.source is CursorSource.METADATA
        and stored is not None
        and stored.entry_id >= 0
        and stored > topic.last_confirmed
    ):
        yield f"__compaction is at {stored}, after the end of the topic ({topic.last_confirmed})"
    if cursor.state.ranges:
        yield "__compaction has individually deleted entries: compaction only moves its mark"


def _ledger_facts(
    reader: EntryReader, topic: Topic, ledger_id: int, horizon: Position
) -> tuple[CompactedLedgerFacts | None, list[str]]:
    txn = reader.txn
    try:
        ledger = ledgers.read_ledger(txn, ledger_id)
    except LedgerNotFound:
        return None, [f"the compacted ledger {ledger_id} is gone: readers of the compacted view fail"]
    problems = []
    stranger = stranger_text(txn, topic.name, ledger_id)
    if stranger:
        problems.append(f"{COMPACTED_LEDGER} names ledger {ledger_id}, {stranger}")
    if ledger.metadata is None:
        problems.append(f"the compacted ledger {ledger_id} has no metadata: a broker cannot open it")
    missing = ledgers.count_missing(txn, ledger)
    if missing:
        unseen, bookies = count_unseen(txn, ledger, ledgers.missing_ranges(txn, ledger))
        why = f"on {', '.join(bookies)}, not imported" if unseen == missing else "lost or damaged"
        problems.append(
            f"the compacted ledger {ledger_id} lacks {missing:,} of its {counted(ledger.entries, 'entry')}: {why}"
        )
    is_closed = ledger.metadata is not None and ledger.metadata.state is LedgerState.CLOSED
    unread = ledger.sums.entries - (ledger.entries - missing) if is_closed and ledger.sums is not None else 0
    if unread:
        problems.append(
            f"the compacted ledger {ledger_id} was closed at entry {ledger.last_entry_id}: "
            f"{counted(unread, 'entry', 'entries')} after it, which readers do not get; compaction verify names what they miss"
        )
    compacted_to, problem = _compacted_to(reader, topic, ledger, horizon)
    problems += [problem] if problem else []
    form = _find_form(reader, CompactedView(horizon, ledger_id, ledger.last_entry_id))
    facts = CompactedLedgerFacts(ledger_id, ledger.entries, ledger.size_bytes, missing, unread, compacted_to, form)
    return facts, problems


def _find_form(reader: EntryReader, view: CompactedView) -> str | None:
    try:
        for entry_id in range(view.last_entry_id, max(view.last_entry_id - _LOOKED_AT_ENTRIES, -1), -1):
            metadata = read_compacted_head(reader, view, entry_id).metadata
            if not is_batch(metadata) or is_encrypted(metadata):
                continue
            count, listed = metadata.num_messages_in_batch, metadata.compacted_batch_indexes
            if not listed:
                return LEGACY
            # Its payload tells whether placeholders stand for removed messages.
            plain: bytes | memoryview = read_compacted_entry(reader, view, entry_id).header.payload
            where = compacted_where(view, entry_id)
            if metadata.compression != NONE:
                plain = decompress(metadata.compression, plain, metadata.uncompressed_size, where=where)
            held = sum(1 for _ in iter_batch(plain, count, where, listed, placeholders=True))
            return INDEXED if held == count else REDUCED
    except ENTRY_ERRORS:
        pass  # reading the entry reports it
    return None


def _compacted_to(
    reader: EntryReader, topic: Topic, ledger: ledgers.Ledger, horizon: Position
) -> tuple[Position | None, str]:
    """Return the horizon in the ledger's own metadata, and how the cursor contradicts it."""
    raw = None if ledger.metadata is None else ledger.metadata.custom.get(COMPACTED_TO)
    if raw is None:
        return None, ""
    try:
        compacted_to = decode_original_id(raw, f"ledger {ledger.ledger_id}, {COMPACTED_TO}")
    except EntryCorrupt as error:
        return None, error.message
    if topic.place(horizon) < topic.place(compacted_to):
        return compacted_to, (
            f"__compaction went backward: it is at {horizon}, but its ledger is compacted to {compacted_to}; readers "
            "that start between the two get every message there, compacted or not"
        )
    floor = compacted_to
    with suppress(*ENTRY_ERRORS):  # reading that entry reports it
        floor = with_last_entry(reader, CompactedView(horizon, ledger.ledger_id, ledger.last_entry_id), compacted_to)
    skipped = find_skipped(reader, topic, floor, horizon)
    if skipped is not None:
        return compacted_to, (
            f"__compaction is ahead: it is at {horizon}, but its ledger is compacted to {floor}; compacted reads miss "
            f"the messages between the two, {skipped} first"
        )
    return compacted_to, ""


def find_leaked(txn: Txn, topic: Topic) -> tuple[LeakedLedger, ...]:
    """Return the compacted ledgers of a topic that nothing references; reads the metadata of every ledger."""
    leaked = []
    for ledger_id in ledgers.iter_ledger_ids(txn):
        try:
            metadata = ledgers.find_metadata(txn, ledger_id)
        except MetadataCorrupt:
            continue  # `ledgers list` and `store check` name it
        if metadata is None or not is_compacted_ledger(metadata, topic.name) or find_owners(txn, ledger_id):
            continue
        ledger = ledgers.read_ledger(txn, ledger_id)
        leaked.append(LeakedLedger(ledger_id, ledger.entries, ledger.size_bytes, metadata.state.name))
    return tuple(leaked)
