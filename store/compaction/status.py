"""The state of a topic's compaction: the horizon, the compacted ledger, and their problems.

A broker writes two positions (upstream ``AbstractTwoPhaseCompactor``, 2.11 to 4.2): the cursor's is the last entry that
it read, the ledger's ``pulsar/compactedTo`` the last entry that it did not consider deleted. Null values, keyless
messages and markers at the end are between the two. 2.11.0 considers a batch with one null value deleted, though it may
be in the ledger. Positions are compared by their places in the topic, because 4.2 leaves the cursor at (next ledger, −1).

Upstream (4.0.8): ``PersistentTopic`` takes the horizon from the mark-delete position of ``__compaction`` and the ledger
from the cursor's property without comparing them. So the cursor must be at the end of the ledger: if it is before,
readers get messages that were compacted out, and if it is after, they miss entries that the ledger lacks.
"""

from collections.abc import Iterator
from contextlib import suppress
from functools import partial

from msgspec import field

from pulsar_admin.store.codec.batch import iter_batch
from pulsar_admin.store.codec.claims import COMPACTED_TO
from pulsar_admin.store.codec.compactedentry import decode_original_id
from pulsar_admin.store.codec.compression import decompress
from pulsar_admin.store.codec.ledgermetadata import LedgerMetadata, LedgerState
from pulsar_admin.store.codec.message import is_batch, is_encrypted
from pulsar_admin.store.compaction.forms import INDEXED, LEGACY, REDUCED
from pulsar_admin.store.compaction.heads import lacking_is_corrupt, read_compacted_head
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.owners import find_owners
from pulsar_admin.store.errors import EntryCorrupt, LedgerNotFound, MetadataCorrupt, Refused, StoreError
from pulsar_admin.store.model import ledgers
from pulsar_admin.store.model.broken import find_missing
from pulsar_admin.store.model.broken_beside import unseen_position
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
from pulsar_admin.store.model.ledgers import Ledger, find_metadata, read_ledger
from pulsar_admin.store.model.messages import ENTRY_ERRORS, Message, MessageReader, ReadOptions
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.topics import COMPACTED_LEDGER, Topic
from pulsar_admin.store.names import Position
from pulsar_admin.store.wording import Answer, counted


def compacted_floor(reader: EntryReader, topic: Topic, view: CompactedView) -> Position:
    """Return the last position that a view's compacted ledger covers; raises EntryCorrupt.

    That is the horizon, unless the cursor was moved since: entries that it skipped must still be compacted, and entries
    in the ledger must not be read twice.
    """
    stated = _stated_end(view.ledger_id, find_metadata(reader.txn, view.ledger_id))
    with lacking_is_corrupt():
        floor = with_last_entry(reader, view, view.horizon if stated is None else stated)
    skipped = find_skipped(reader, topic, floor, view.horizon)
    end = topic.place(view.horizon) if skipped is None else topic.rank(skipped)
    return topic.at_rank(end - 1) if end > topic.place(floor) else floor


def _stated_end(ledger_id: int, metadata: LedgerMetadata | None) -> Position | None:
    """Return ``pulsar/compactedTo`` in the metadata of a compacted ledger, None without it; raises EntryCorrupt."""
    raw = None if metadata is None else metadata.custom.get(COMPACTED_TO)
    return None if raw is None else decode_original_id(raw, f"ledger {ledger_id}, {COMPACTED_TO}")


def readable_floor(reader: EntryReader, topic: Topic, view: CompactedView) -> Position:
    """Return ``compacted_floor``, or the horizon if the last entry of the compacted ledger cannot be read."""
    try:
        return compacted_floor(reader, topic, view)
    except EntryCorrupt:
        return view.horizon


def with_last_entry(reader: EntryReader, view: CompactedView, floor: Position) -> Position:
    """Return the later of ``floor`` and the view's last entry; raises EntryNotFound, EntryCorrupt."""
    if view.last_entry_id < 0:
        return floor
    return max(floor, read_compacted_head(reader, view, view.last_entry_id).position)


def find_skipped(reader: EntryReader, topic: Topic, floor: Position, horizon: Position) -> Position | None:
    """Return the first entry after ``floor`` up to ``horizon`` that compaction would have kept, or that is unreadable.

    None: there is no such entry, so compacted reads miss nothing.
    """
    first = topic.place(floor)
    markers = partial(map, topic.at_rank, range(first, topic.number_of_entries))
    messages = MessageReader(reader, ReadOptions(), markers)
    for place in map(topic.at_rank, range(first, topic.place(horizon))):
        if not all(map(_is_deleted, messages.iter_messages((place,)))) or messages.errors:
            return place
    return None


def _is_deleted(message: Message) -> bool:
    """Whether compaction considers a message deleted: it has no key, or a null value."""
    return message.key is None or message.null_value or not len(message.payload)


def read_detached(reader: EntryReader, topic: Topic, ledger_id: int) -> CompactedView:
    """Return the view that a topic would have with ``ledger_id`` as its compacted ledger.

    Raises LedgerNotFound, MetadataCorrupt and EntryCorrupt, and Refused for another kind of ledger, or an incomplete
    one.
    """
    ledger = read_ledger(reader.txn, ledger_id)
    reason = _unfit(reader.txn, topic, ledger)
    if not reason and ledger.metadata is not None:
        view = CompactedView(topic.first_position, ledger_id, ledger.last_entry_id)
        last = with_last_entry(reader, view, Position(-1, -1))
        stated = _stated_end(ledger_id, ledger.metadata)
        horizon = last if stated is None else max(last, stated)
        missed = find_skipped(reader, topic, last, horizon)
        if missed is None:
            return CompactedView(horizon, ledger_id, ledger.last_entry_id)
        reason = f"it ends at {last}, but its compaction was to reach {horizon}: {missed} is missing from it"
    raise Refused(
        f"readers would not get all of the compacted view in ledger {ledger_id} of {topic.name}: {reason}",
        hint=f"list its entries: pulsar-admin ledgers entries {ledger_id}",
        topic=str(topic.name),
        ledgerId=ledger_id,
    )


def unfit_text(reader: EntryReader, topic: Topic, ledger_id: int) -> str:
    """Return why ``read_detached`` refuses a ledger, "" if it does not."""
    try:
        read_detached(reader, topic, ledger_id)
    except StoreError as error:
        return error.message
    return ""


def _unfit(txn: Txn, topic: Topic, ledger: Ledger) -> str:
    if ledger.metadata is None:
        return "BookKeeper has no metadata for it"
    if not is_compacted_ledger(ledger.metadata, topic.name):
        return f"it is {stranger_text(txn, topic.name, ledger.ledger_id) or 'not known as a compacted ledger of this topic'}"
    if ledger.metadata.state is not LedgerState.CLOSED:
        return "it was never closed, so its compaction did not finish"
    if ledger.last_entry_id < 0:
        return "it has no entries"
    missing = find_missing(txn, ledger.ledger_id)
    if missing is not None:
        return f"clients do not get all its entries ({missing.reason})"
    return ""


_LOOKED_AT_ENTRIES = 100  # entries at the end of a compacted ledger that are searched for a batch, which shows the form


class CompactedLedgerFacts(Answer, frozen=True):
    """The compacted ledger that the cursor references.

    ``unread_entries``: entries after its recorded end, which no reader gets (2.11.0 closes some ledgers before their
    last add). ``compacted_to``: the last position that its writer did not consider deleted, None if not recorded.
    ``form``: of its last batch (``store.compaction.forms``), None if there is no readable batch among the last entries.
    """

    ledger_id: int
    entries: int
    size_bytes: int
    missing_entries: int
    unread_entries: int
    compacted_to: Position | None
    form: str | None = field(name="format")


class LeakedLedger(Answer, frozen=True):
    """A compacted ledger of this topic that nothing references, left by an interrupted compaction or deletion."""

    ledger_id: int
    entries: int
    size_bytes: int
    state: str


class CompactionStatus(Answer, frozen=True):
    """The state of a topic's compaction. ``horizon`` None: no ``__compaction`` cursor.

    ``…_since``: entries after the horizon; the store lacks ``uncounted_since`` of them, whose messages and bytes are
    not counted. ``problems``: sentences.
    """

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
    """Return the state of a topic's compaction; ``leaked``: the result of ``find_leaked`` if known, as it reads all
    ledgers."""
    cursor = find_compaction_cursor(reader, topic)
    ledger_id = None if cursor is None else cursor.state.properties.get(COMPACTED_LEDGER)
    horizon = None if cursor is None else cursor.state.mark_delete
    unseen = "" if cursor is None else unseen_position(reader.txn, cursor)
    problems = [unseen] if unseen else [*_cursor_problems(topic, cursor)]
    facts = None
    if ledger_id is not None and horizon is not None:
        facts, more = _ledger_facts(reader, topic, ledger_id, horizon)
        problems += more
    if leaked is None or unseen:
        leaked = () if unseen else find_leaked(reader.txn, topic)  # an unseen state may name any of them
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
            stored = read_compacted_entry(reader, view, entry_id).header.payload
            where = compacted_where(view, entry_id)
            plain = decompress(metadata.compression, stored, metadata.uncompressed_size, where=where)
            held = sum(1 for _ in iter_batch(plain, count, where, listed, placeholders=True))
            return INDEXED if held == count else REDUCED
    except ENTRY_ERRORS:
        pass  # reading the entry reports it
    return None


def _compacted_to(
    reader: EntryReader, topic: Topic, ledger: ledgers.Ledger, horizon: Position
) -> tuple[Position | None, str]:
    """Return the horizon in the ledger's metadata, and a sentence about how the cursor contradicts it, "" if it does not."""
    try:
        compacted_to = _stated_end(ledger.ledger_id, ledger.metadata)
    except EntryCorrupt as error:
        return None, error.message
    if compacted_to is None:
        return None, ""
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
