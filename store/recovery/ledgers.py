"""``ledgers restore``: metadata of ledgers from the history, from their entries, or from the bookies that have the entries.

``--deleted`` restores the last metadata of deleted ledgers. A broker deletes only the metadata (``BookKeeper.asyncDeleteLedger``); a bookie
frees entries in garbage collection, a whole entry log at a time, so until then they are still there (BookKeeper 4.17).

``--extend`` concerns closed ledgers whose recorded end is before acknowledged entries, as a client that closes or recovers a ledger may
record it (bookkeeper#4812). An entry was acknowledged if a later one has it as last add confirmed, or if it has as many copies as the ack
quorum; a broker writes unacknowledged entries again to the next ledger, with the same producer and sequence id (``ManagedLedgerImpl``,
Pulsar 4.0.8).

``--to-bookies`` concerns ledgers whose metadata names bookies without the entries, and names those that have them: a client asks only the
bookies of an entry's write set (``PendingReadOp``). Autorecovery and ``bookkeeper shell recover`` change ensembles in the same way, once
they have copied the entries (``LedgerFragmentReplicator``, BookKeeper 4.17).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice, permutations
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from pulsar_admin.store.changes.ledger_metadata import RESTORE_LEDGERS
from pulsar_admin.store.changes.log_writer import put_managed_ledger
from pulsar_admin.store.changes.plan import ChangePart, Plan, put_value_step
from pulsar_admin.store.codec.ledgermetadata import (
    LedgerMetadata,
    LedgerState,
    Segment,
    decode_ledger_metadata,
    encode_ledger_metadata,
    ledger_path,
)
from pulsar_admin.store.codec.message import decode_message_entry
from pulsar_admin.store.db.audit_log import Step
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.owners import OwnerKind, find_owners
from pulsar_admin.store.db.tree import find_node, read_node
from pulsar_admin.store.errors import LedgerNotFound, Refused, StoreError
from pulsar_admin.store.facts.indexes import Indexed, find_bookies_without_rows, read_indexed
from pulsar_admin.store.facts.unlisted import Unlisted, UnlistedLedgers
from pulsar_admin.store.model import broken, coverage
from pulsar_admin.store.model.cursors import iter_cursor_names, read_cursor
from pulsar_admin.store.model.ledger_owners import custom_text
from pulsar_admin.store.model.ledgers import (
    Ledger,
    find_metadata,
    find_times,
    iter_entry_ids,
    iter_gaps,
    iter_indexed_ids,
    read_ledger,
    sorted_ledger_ids,
)
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.topics import read_topic
from pulsar_admin.store.names import Position, TopicName, parse_owner
from pulsar_admin.store.recovery.closing import ORDERS_MAX, fit_ensembles
from pulsar_admin.store.recovery.deleted_nodes import Fate, is_ledger, read_own_past
from pulsar_admin.store.wording import counted, listed, plural

if TYPE_CHECKING:
    from pulsar_admin.store.aliases import Array


class RestorableLedger(Struct, frozen=True):
    """A deleted ledger that can be restored. ``gaps``: ranges of entries that no file has, both ends included.
    ``metadata`` ends before the first gap, and ``behind`` imported entries come after that end, unless gaps are kept.
    ``base``: its value in the history."""

    ledger_id: int
    metadata: LedgerMetadata
    base: bytes
    gaps: tuple[tuple[int, int], ...]
    behind: int
    gone_ms: int | None
    written_ms: int

    @property
    def entries(self) -> int:
        return self.metadata.last_entry_id + 1

    @property
    def lost(self) -> int:
        """Entries that no file holds."""
        return sum(last - first + 1 for first, last in self.gaps)


def find_restorable(
    reader: EntryReader, ledger_id: int, fate: Fate | None, *, with_gaps: bool = False, last: int | None = None
) -> RestorableLedger:
    """Return a deleted ledger, closed, as far as its metadata in the history (``fate``) and its imported entries allow.

    ``with_gaps``: keep its old end although entries before it are lost; ``last``: its last entry is at most this one.
    Raises LedgerNotFound if the history does not know it, and Refused if entries may be on bookies that are not
    imported.
    """
    txn = reader.txn
    node = find_node(txn, ledger_path(ledger_id))
    if node is None and fate is None:
        raise LedgerNotFound(
            f"the history does not know ledger {ledger_id}: its metadata was written before it begins, or elsewhere",
            hint="name older files of ZooKeeper with: --zookeeper DIR",
            ledgerId=ledger_id,
        )
    value = fate.value if node is None and fate is not None else (node.value if node is not None else b"")
    metadata = decode_ledger_metadata(value, ledger_path(ledger_id))
    times = find_times(txn, ledger_id)
    held = -1 if times is None else times.sums.last_entry
    is_closed = metadata.state is LedgerState.CLOSED
    # An open ledger's metadata does not say where it ends: its last imported entry counts.
    whole = metadata.last_entry_id if is_closed else held
    end = whole if last is None else min(whole, last)
    gaps = tuple(iter_gaps(txn, ledger_id, end))
    # What a bookie that is not imported may have would be unseen, not lost.
    count, bookies = coverage.count_unseen(txn, Ledger(ledger_id, metadata, None, -1, 0), gaps)
    if count:
        raise Refused(
            f"{counted(count, 'entry')} of ledger {ledger_id} may be on {', '.join(bookies)}, which {plural(len(bookies), 'is', 'are')}"
            " not imported",
            hint=coverage.bring_hint(bookies),
            ledgerId=ledger_id,
        )
    # A broker reads no further than a lost entry, so the ledger ends before the first, unless the caller wants the rest.
    cut = end if with_gaps or not gaps else gaps[0][0] - 1
    behind = end - cut - sum(b - a + 1 for a, b in gaps) if cut < end else 0
    if not is_closed or cut < whole:
        length = reader.read(ledger_id, cut).length if cut >= 0 else 0
        metadata = replace(metadata, state=LedgerState.CLOSED, last_entry_id=cut, length=length)
    gone_ms, written_ms = (None, 0) if fate is None else (fate.gone_ms, fate.written_ms)
    return RestorableLedger(ledger_id, metadata, value, gaps, behind, gone_ms, written_ms)


def lost_text(returning: RestorableLedger) -> str:
    """Return a sentence about the ranges of entries that cannot be restored; "" if there are none."""
    if not returning.gaps:
        return ""
    noun, verb = plural(returning.lost, "entry", "entries"), plural(returning.lost, "is", "are")
    gaps = listed(str(first) if first == last else f"{first}..{last}" for first, last in returning.gaps)
    text = f"ledger {returning.ledger_id}: {noun} {gaps} {verb} in no file"
    if returning.behind:
        text += (
            f"; {counted(returning.behind, 'entry')} after them {plural(returning.behind, 'is', 'are')} not restored"
        )
    return text


# -- ledgers restore --deleted ----------------------------------------------------------------------------------------


def iter_deleted_ids(txn: Txn) -> Iterator[int]:
    """Yield the ledgers with entries in the store that have no metadata and no reference, except those newer than the metadata."""
    unlisted = UnlistedLedgers(txn)
    for ledger_id in iter_indexed_ids(txn):
        is_orphan = find_node(txn, ledger_path(ledger_id)) is None and not find_owners(txn, ledger_id)
        if is_orphan and unlisted.why(ledger_id) is not Unlisted.NEWER:
            yield ledger_id


def plan_restore_deleted(
    reader: EntryReader, ledger_ids: Sequence[int], places: Sequence[str], with_gaps: bool, now_ms: int
) -> Plan:
    """Plan metadata from the history for these deleted ledgers, or for every one that has imported entries.

    No topic lists them; bookies keep their entries as long as they have metadata. Raises LedgerNotFound, Refused, SourceNotFound.
    """
    txn = reader.txn
    fates = dict(read_own_past(reader, places, lambda path, _: is_ledger(path)).ledgers())
    wanted = list(dict.fromkeys(ledger_ids)) or list(iter_deleted_ids(txn))
    unknown = [] if ledger_ids else [one for one in wanted if one not in fates]
    steps: list[Step] = []
    parts: list[ChangePart] = []
    lost: list[str] = []
    indexed, forgotten = read_indexed(txn.store.info), dict[int, list[str]]()
    for ledger_id in wanted:
        if ledger_id in unknown:
            continue
        _check_deleted(txn, ledger_id)
        returning = find_restorable(reader, ledger_id, fates.get(ledger_id), with_gaps=with_gaps)
        if returning.entries == 0 and not ledger_ids:
            unknown += [ledger_id] if returning.gaps else []
            continue
        steps.append(ledger_step(txn, returning, now_ms))
        parts.append(_deleted_part(returning))
        forgetful = find_bookies_without_rows(indexed, ledger_id, returning.metadata)
        forgotten.update({ledger_id: forgetful} if forgetful else {})
        lost += [text for text in (lost_text(returning),) if text]
    texts = index_texts(indexed, forgotten) if parts else ()
    return Plan(
        RESTORE_LEDGERS,
        txn.id,
        tuple(steps),
        tuple(parts),
        warnings=(*lost, *_deleted_warnings(parts, unknown), *texts),
    )


def ledger_step(txn: Txn, returning: RestorableLedger, now_ms: int, custom: Mapping[str, bytes] | None = None) -> Step:
    """Return the step that writes a ledger's metadata; ``custom`` replaces its custom metadata."""
    metadata = returning.metadata if custom is None else replace(returning.metadata, custom=custom)
    return put_value_step(
        txn, ledger_path(returning.ledger_id), encode_ledger_metadata(metadata, returning.base), now_ms
    )


def _check_deleted(txn: Txn, ledger_id: int) -> None:
    if find_node(txn, ledger_path(ledger_id)) is not None:
        raise Refused(f"ledger {ledger_id} has metadata: it is not deleted", ledgerId=ledger_id)
    # Referenced and without a node: brokers never leave that behind, so it was lost.
    if find_owners(txn, ledger_id):
        raise Refused(
            f"ledger {ledger_id} is not deleted, its metadata is lost: something references it",
            hint=f"restore it with: pulsar-admin ledgers restore {ledger_id}",
            ledgerId=ledger_id,
        )
    if find_times(txn, ledger_id) is not None and UnlistedLedgers(txn).why(ledger_id) is Unlisted.NEWER:
        raise Refused(
            f"ledger {ledger_id} is not deleted: it is newer than the metadata, which never assigned its id",
            hint="provide newer metadata (pulsar-admin store refresh), or roll this metadata forward: pulsar-admin "
            "store recover --level B",
            ledgerId=ledger_id,
        )


def _deleted_warnings(parts: Sequence[ChangePart], unknown: Sequence[int]) -> Iterator[str]:
    if parts:
        whole = [part.after for part in parts if part.after and not part.after["lost"]]
        entries = sum(int(part.after["entries"]) for part in parts if part.after)
        yield (
            f"{counted(len(parts), 'deleted ledger')} of {counted(entries, 'entry')} {plural(len(parts), 'is', 'are')} restored,"
            f" {len(whole):,} complete"
        )
        yield (
            "no topic lists these ledgers: bookies keep their entries once the metadata is exported, and topics "
            "undelete puts them into a topic"
        )
    if unknown:
        yield (
            f"{counted(len(unknown), 'ledger')} that {plural(len(unknown), 'has', 'have')} entries here {plural(len(unknown), 'is', 'are')}"
            f" not in the history or {plural(len(unknown), 'has', 'have')} lost entry 0: {listed(unknown)}"
        )


def index_texts(indexed: Indexed, forgotten: Mapping[int, Sequence[str]]) -> Iterator[str]:
    """Yield sentences on what bookies' indexes mean for restored ledgers; ``forgotten``: ledger → bookies that got entries
    of the ledger and whose index lacks it."""
    if forgotten:
        bookies = ", ".join(sorted({bookie for some in forgotten.values() for bookie in some}))
        yield (
            f"{bookies} collected garbage since: no index there names {counted(len(forgotten), 'ledger')} "
            f"({listed(forgotten)}), whose entries are still in the entry logs; readers would find nothing there: "
            "topics undelete --copy copies the entries into new ledgers"
        )
    unread = sorted(bookie for bookie, ids in indexed.items() if ids is None)
    if len(unread) == len(indexed):
        yield (
            "no bookie's index was read, or not with its journal: a bookie that collected garbage since the deletion"
            " would not find these ledgers"
        )
    elif unread:
        yield (
            f"the index of {listed(unread)} was not read, or not with its journal: if {plural(len(unread), 'it', 'they')}"
            " collected garbage since the deletion, readers would find nothing of these ledgers there"
        )
    yield (
        "a running bookie deletes these entries in its next garbage collection (gcWaitTime, 15 minutes): export before "
        "that, or stop it"
    )


def _deleted_part(returning: RestorableLedger) -> ChangePart:
    metadata, claims = returning.metadata, custom_text(returning.metadata)
    return ChangePart(
        resource=f"ledger {returning.ledger_id}",
        before={} if returning.gone_ms is None else {"state": "DELETED", "deleted": returning.gone_ms},
        after={
            "state": metadata.state.name,
            "entries": returning.entries,
            "length": metadata.length,
            "lost": [list(pair) for pair in returning.gaps],
            "leftOut": returning.behind,
            "ensembles": {str(segment.first_entry_id): list(segment.members) for segment in metadata.segments},
            "customMetadata": claims,
        },
    )


# -- ledgers restore --extend -----------------------------------------------------------------------------------------


class Behind(Struct, frozen=True):
    """The entries after a ledger's recorded end: ``first`` to ``last`` were acknowledged to a producer, up to
    ``proven`` by a later entry's last add confirmed.

    ``again``: how many entries after ``last`` the next ledger repeats; ``unsure``: how many are on too few bookies.
    """

    ledger_id: int
    topic: TopicName
    first: int
    last: int
    proven: int
    again: int
    unsure: int

    @property
    def entries(self) -> int:
        return self.last - self.first + 1


def iter_behind(reader: EntryReader, ledger_ids: Iterable[int]) -> Iterator[Behind]:
    """Yield the entries after the recorded end of these ledgers, or of every closed ledger of a topic."""
    for ledger_id in ledger_ids or sorted_ledger_ids(reader.txn):
        metadata, times = find_metadata(reader.txn, ledger_id), find_times(reader.txn, ledger_id)
        # A ledger that is not closed has no recorded end: its recovery decides what belongs to it.
        if metadata is None or metadata.state is not LedgerState.CLOSED or times is None:
            continue
        owners = [owner for owner in find_owners(reader.txn, ledger_id) if owner.kind is OwnerKind.TOPIC]
        if times.sums.last_entry > metadata.last_entry_id and owners:
            yield _judge_behind(reader, ledger_id, metadata, parse_owner(owners[0].topic), times.sums.max_lac)


def _judge_behind(
    reader: EntryReader, ledger_id: int, metadata: LedgerMetadata, name: TopicName, max_lac: int
) -> Behind:
    """Return how far the entries after the end were acknowledged, up to the first that was not, or was not imported."""
    first = metadata.last_entry_id + 1
    held = coverage.read_held(reader.txn, ledger_id, coverage.read_disks(reader.txn)) or {}
    copies = {bookie: {*entries.tolist()} for bookie, entries in held.items()}
    ledgers = read_topic(reader.txn, name).ledgers
    # A producer without an acknowledgement sends again, into the next ledger: such entries must not be added here as well.
    following = next((one.ledger_id for one in ledgers if one.ledger_id > ledger_id and one.entries), None)
    sent: set[tuple[str, int] | None] = set()
    if following is not None:
        sent = {_key(reader, following, one) for one in iter_entry_ids(reader.txn, following)} - {None}

    def was_acknowledged(entry_id: int) -> bool:
        return entry_id <= max_lac or sum(entry_id in entries for entries in copies.values()) >= metadata.ack_quorum

    ids = list(iter_entry_ids(reader.txn, ledger_id, first))
    again = {one for one in ids if one > max_lac and _key(reader, ledger_id, one) in sent}
    last = first - 1
    for entry_id in ids:
        # Ends at the first doubt: an end beyond an entry that nobody serves would block readers there.
        if entry_id != last + 1 or entry_id in again or not was_acknowledged(entry_id):
            break
        last = entry_id
    unsure = sum(one > last and one not in again for one in ids)
    return Behind(ledger_id, name, first, last, min(max_lac, last), len(again), unsure)


def _key(reader: EntryReader, ledger_id: int, entry_id: int) -> tuple[str, int] | None:
    try:
        where = f"{ledger_id}:{entry_id}"
        metadata = decode_message_entry(reader.read(ledger_id, entry_id).payload, where, verify=False).metadata
    except StoreError:
        return None
    return metadata.producer_name, metadata.sequence_id


# -- the change -------------------------------------------------------------------------------------------------------


def plan_extend(reader: EntryReader, ledger_ids: Sequence[int], now_ms: int) -> Plan:
    """Plan moving the end of ledgers after the last entry acknowledged to a producer, in their metadata and in topics' lists.

    Raises LedgerNotFound if no entry comes after an end, Refused if none of these entries was acknowledged.
    """
    extensible = list(iter_behind(reader, ledger_ids))
    if not extensible:
        what = f"ledger {ledger_ids[0]}" if len(ledger_ids) == 1 else "any ledger of a topic"
        raise LedgerNotFound(f"no entry comes after the end of {what}", hint="see: pulsar-admin ledgers list")
    steps: list[Step] = []
    parts: list[ChangePart] = []
    warnings: list[str] = []
    topics: dict[TopicName, list[Behind]] = {}
    for one in extensible:
        warnings += _behind_texts(reader, one)
        if one.entries:
            node = read_node(reader.txn, ledger_path(one.ledger_id))
            metadata = find_metadata(reader.txn, one.ledger_id)
            assert metadata is not None
            length = reader.read(one.ledger_id, one.last).length
            longer = replace(metadata, last_entry_id=one.last, length=length)
            steps.append(put_value_step(reader.txn, node.path, encode_ledger_metadata(longer, node.value), now_ms))
            topics.setdefault(one.topic, []).append(one)
            before, after = {"lastEntryId": one.first - 1}, {"lastEntryId": one.last, "topic": str(one.topic)}
            parts.append(ChangePart(resource=f"ledger {one.ledger_id}", before=before, after=after))
    if not steps:
        raise Refused(
            "no entry after an end was acknowledged: " + "; ".join(warnings), hint="there is nothing to extend"
        )
    steps += [_listed_step(reader, name, some, now_ms) for name, some in topics.items()]
    return Plan(RESTORE_LEDGERS, reader.txn.id, tuple(steps), tuple(parts), warnings=tuple(warnings))


def _listed_step(reader: EntryReader, name: TopicName, extensible: Iterable[Behind], now_ms: int) -> Step:
    ends = {one.ledger_id: one.last for one in extensible}
    managed = read_topic(reader.txn, name).managed
    infos = tuple(
        replace(
            info, entries=ends[info.ledger_id] + 1, size_bytes=reader.read(info.ledger_id, ends[info.ledger_id]).length
        )
        if info.ledger_id in ends and info.timestamp_ms
        else info
        for info in managed.ledgers
    )
    return put_managed_ledger(reader.txn, name, replace(managed, ledgers=infos), now_ms)


def _behind_texts(reader: EntryReader, extension: Behind) -> Iterator[str]:
    where = f"ledger {extension.ledger_id} of {extension.topic}"
    if extension.entries:
        proven, were = max(extension.proven - extension.first + 1, 0), plural(extension.entries, "was", "were")
        yield (
            f"{where}: {counted(extension.entries, 'entry')} after its end {were} acknowledged: {proven:,} by a later entry,"
            f" {extension.entries - proven:,} by copies on as many bookies as the ack quorum"
        )
        topic, behind = read_topic(reader.txn, extension.topic), Position(extension.ledger_id + 1, -1)
        names = iter_cursor_names(reader.txn, extension.topic)
        passed = sorted(name for name in names if read_cursor(reader.txn, reader, topic, name).mark_delete >= behind)
        if passed:
            yield f"{where}: subscriptions that are past them do not get them unless they are reset: {', '.join(passed)}"
    for count, why in (
        (extension.again, "in the next ledger again"),
        (extension.unsure, "not proven to be acknowledged"),
    ):
        if count:
            yield f"{where}: {counted(count, 'entry')} more {plural(count, 'is', 'are')} {why}, and not restored"


# -- ledgers restore --to-bookies -------------------------------------------------------------------------------------


_ENSEMBLES_MORE = 8
"""Ensembles of the ledger's size are kept if that adds at most this many; else the size that fits the bookies'
entries."""
_FIRST_ENTRIES = 64
"""This many entries are looked at first for an ensemble that serves most of them, then twice as many, as long as one serves all."""


def plan_repoint(reader: EntryReader, ledger_ids: Sequence[int], now_ms: int) -> Plan:
    """Plan to name, in the ledgers' metadata, the imported bookies that have the entries, and to close ledgers that no broker can close;
    at damaged entries, only ledgers given by id are closed.

    Raises LedgerNotFound, and Refused for a ledger that no other bookie would serve better.
    """
    txn, disks = reader.txn, coverage.read_disks(reader.txn)
    if disks.unknown is not None:
        raise Refused(disks.unknown[0], hint=disks.unknown[1])
    chosen = list(dict.fromkeys(ledger_ids))
    for ledger_id in chosen:
        _check_astray(txn, ledger_id)
    if not chosen:
        astray = {missing.ledger_id for missing in broken.iter_unreadable(txn) if missing.is_astray}
        chosen = sorted(astray | {thinned.ledger_id for thinned in broken.iter_thinned(txn) if thinned.spare})
    if not chosen:
        raise LedgerNotFound(
            "no ledger names bookies that are gone or lack its entries while other imported bookies have them",
            hint="see the losses with: pulsar-admin ledgers missing",
        )
    steps: list[Step] = []
    parts: list[ChangePart] = []
    refusals: list[Refused] = []
    for ledger_id in chosen:
        try:
            repointed = _repointed(reader, disks, ledger_id, at_damage=bool(ledger_ids))
        except Refused as refusal:
            if ledger_ids:
                raise
            refusals.append(refusal)
            continue
        node = read_node(txn, ledger_path(ledger_id))
        if repointed.after != repointed.before:
            steps.append(put_value_step(txn, node.path, encode_ledger_metadata(repointed.after, node.value), now_ms))
            parts.append(_repointed_part(repointed, ledger_id))
    if not steps:
        if refusals:
            raise refusals[0]
        ledger_id = chosen[0]
        raise Refused(
            f"no ensemble of the imported bookies serves more of {plural(len(chosen), 'ledger', 'ledgers')} {listed(chosen)}",
            hint=f"see where the entries are: pulsar-admin ledgers info {ledger_id}",
        )
    bookies = sorted({one for part in parts if part.after for some in part.after["ensembles"].values() for one in some})
    text = f"{counted(len(parts), 'ledger')} {plural(len(parts), 'names', 'name')} {listed(bookies)} from the export on"
    warnings = [text]
    if refusals:
        more = f", and so are {len(refusals) - 1:,} more" if len(refusals) > 1 else ""
        warnings.append(f"left as it is: {refusals[0].message}{more}; {refusals[0].hint}")
    return Plan(RESTORE_LEDGERS, txn.id, tuple(steps), tuple(parts), warnings=tuple(warnings))


def _check_astray(txn: Txn, ledger_id: int) -> None:
    ledger = read_ledger(txn, ledger_id)
    missing, thinned = broken.find_missing(txn, ledger_id), broken.find_thinned(txn, ledger_id)
    if (missing is not None and missing.is_astray) or (thinned is not None and thinned.spare):
        return
    end = coverage.read_open_end(txn, ledger)
    if end is not None and end.verdict == "damaged":
        return
    hint = f"see its remaining entries with: pulsar-admin ledgers info {ledger_id}"
    if missing is None:
        text = f"ledger {ledger_id} is served by the bookies that its metadata names"
    elif missing.reason == broken.NO_METADATA:
        text, hint = f"ledger {ledger_id} has no metadata", f"restore it: pulsar-admin ledgers restore {ledger_id}"
    elif missing.reason == broken.GONE:
        text = f"no imported bookie has an entry of ledger {ledger_id}"
        hint = f"remove the reference to it: pulsar-admin ledgers forget {ledger_id}"
    elif missing.reason == broken.NOT_SERVED:
        text = f"ledger {ledger_id} names the bookies that have its entries, in records that they do not serve"
        hint = "put them back: pulsar-admin store salvage ID=DIR,DIR"
    else:
        text = f"no imported bookie has the missing entries of ledger {ledger_id}"
    raise Refused(text, hint=hint, ledgerId=ledger_id)


class _Repointed(Struct, frozen=True):
    before: LedgerMetadata
    after: LedgerMetadata
    nowhere: int
    later: int


def _repointed(reader: EntryReader, disks: coverage.Disks, ledger_id: int, *, at_damage: bool) -> _Repointed:
    txn, ledger = reader.txn, read_ledger(reader.txn, ledger_id)
    metadata, held = ledger.metadata, coverage.read_held(txn, ledger.ledger_id, disks)
    assert metadata is not None
    assert held is not None
    everything = coverage.read_served(txn, ledger.ledger_id, disks, held)
    everything = {bookie: entries for bookie, entries in everything.items() if bookie in disks.imported}
    served = {bookie: entries[entries <= ledger.last_entry_id] for bookie, entries in everything.items()}
    # An open ledger whose bookies can still answer is closed by its next reader, with an end that it proves.
    open_end = coverage.read_open_end(txn, ledger)
    is_closed = open_end is None or open_end.verdict not in ("gone", *(["damaged"] if at_damage else []))
    later = set[int]()
    if not is_closed:
        # A bookie that may run, and is not imported, may have more of a ledger that is to be closed.
        absent = coverage.absent_in(txn, metadata.segments[-1].members)
        if absent:
            raise Refused(
                f"ledger {ledger.ledger_id} was never closed, and {', '.join(absent)}, which "
                f"{plural(len(absent), 'is', 'are')} not imported, may have more entries",
                hint=coverage.bring_hint(absent),
                ledgerId=ledger.ledger_id,
            )
    write_quorum, segments = name_bookies(metadata, ledger.last_entry_id, served, disks.imported, disks.gone)
    after = replace(
        metadata,
        segments=segments,
        write_quorum=write_quorum,
        ack_quorum=min(metadata.ack_quorum, write_quorum),
        ensemble_size=len(segments[0].members),
    )
    if not is_closed:
        end = _served_end(after, ledger.last_entry_id, served)
        if end < 0:
            raise Refused(
                f"no imported bookie serves entry 0 of ledger {ledger.ledger_id}",
                hint=(
                    "remove it from its topic, with the entries after that: pulsar-admin ledgers forget "
                    f"{ledger.ledger_id} --force"
                ),
                ledgerId=ledger.ledger_id,
            )
        later = set().union(*(entries[entries > end].tolist() for entries in everything.values()))
        length = reader.read(ledger.ledger_id, end).length
        after = replace(after, state=LedgerState.CLOSED, last_entry_id=end, length=length)
        # A segment beyond the end would be an ensemble of no entry.
        after = replace(after, segments=tuple(one for one in segments if one.first_entry_id <= end))
    left = coverage.read_coverage(txn, replace(ledger, metadata=after, last_entry_id=after.last_entry_id))
    return _Repointed(metadata, after, 0 if left is None else left.lost + left.outside, len(later))


def _served_end(metadata: LedgerMetadata, last_entry_id: int, served: Mapping[str, Array]) -> int:
    """Return the last entry up to which the bookies named by the metadata serve every entry; −1 if not even the first."""
    import numpy as np

    parts = [np.empty(0, np.int64)]
    for stripe in coverage.stripes_of(metadata, last_entry_id):
        parts += [served[one][stripe.holds(one, served[one])] for one in set(stripe.members) if one in served]
    ids = np.unique(np.concatenate(parts))
    gaps = np.flatnonzero(ids != np.arange(len(ids)))
    return int(gaps[0]) - 1 if len(gaps) else len(ids) - 1


# -- ensembles --------------------------------------------------------------------------------------------------------


def name_bookies(
    metadata: LedgerMetadata,
    last_entry_id: int,
    served: Mapping[str, Array],
    imported: frozenset[str],
    gone: frozenset[str],
) -> tuple[int, tuple[Segment, ...]]:
    """Return (write quorum, ensembles) in which bookies that serve entries replace those that do not.

    ``served``: bookie → ids of the entries it serves (i64, ascending). A member of an ensemble keeps its place if it
    serves an entry of the segment and every entry still has a bookie, or if it may run and is not imported. A place that
    no bookie fills keeps the lost bookie, so that autorecovery sees the missing copies.
    """
    import numpy as np

    everything = np.unique(np.concatenate([np.empty(0, np.int64), *served.values()]))
    nowhere = np.setdiff1d(np.arange(last_entry_id + 1), everything, assume_unique=True)
    # Bookies that replaced each other often make many ensembles; if nearly every entry is known, others may explain them better.
    most = len(metadata.segments) + _ENSEMBLES_MORE if len(nowhere) < len(everything) else last_entry_id + 1
    segments: list[Segment] = []
    starts = [segment.first_entry_id for segment in metadata.segments]
    for segment, end in zip(metadata.segments, [*starts[1:], last_entry_id + 1], strict=True):
        inside = {
            bookie: entries[slice(*np.searchsorted(entries, (segment.first_entry_id, end)))]
            for bookie, entries in served.items()
        }
        for one in _name_in(segment, metadata.write_quorum, inside, imported, gone):
            if not segments or segments[-1].members != one.members:
                segments.append(one)
            if len(segments) > most:
                write_quorum, ensembles, _ = fit_ensembles(-1, served, last_entry_id, None)
                return write_quorum, ensembles
    return metadata.write_quorum, tuple(segments)


def _name_in(
    segment: Segment, write_quorum: int, served: Mapping[str, Array], imported: frozenset[str], gone: frozenset[str]
) -> Iterator[Segment]:
    """Yield the ensembles that replace one segment, given which entries each bookie serves."""
    import numpy as np

    entries = np.unique(np.concatenate([np.empty(0, np.int64), *served.values()]))
    size = len(segment.members)
    has = {bookie: np.isin(entries, served_ids, assume_unique=True) for bookie, served_ids in served.items()}
    asked = [(place - entries) % size < write_quorum for place in range(size)]
    kept = {
        place: bookie
        for place, bookie in enumerate(segment.members)
        if (bookie in has and (has[bookie] & asked[place]).any()) or (bookie not in imported and bookie not in gone)
    }
    running = {place: bookie for place, bookie in kept.items() if bookie not in imported}
    total = {bookie: int(there.sum()) for bookie, there in has.items()}
    start, first, most = 0, segment.first_entry_id, _FIRST_ENTRIES
    while start < len(entries) or first == segment.first_entry_id:
        best: tuple[int, int, int, tuple[str, ...]] | None = None
        end = min(start + most, len(entries))
        # An imported bookie loses its place only where it would leave entries out.
        for stay in (kept, running):
            free = [place for place in range(size) if place not in stay]
            others = sorted(
                (one for one in has if one not in stay.values() and total[one]), key=lambda one: -total[one]
            )
            spare: list[str | None] = [*others, *([None] * len(free))]  # None: the place stays as it is
            for chosen in islice(permutations(spare, len(free)), ORDERS_MAX) if free else [()]:
                members = list(segment.members)
                for place, bookie in zip(free, chosen, strict=True):
                    if bookie in members:  # twice in one ensemble it would count as two copies
                        members[members.index(bookie)] = members[place]
                    members[place] = bookie or members[place]
                counts = np.zeros(end - start, np.int64)
                for place, bookie in enumerate(members):
                    if bookie in has:
                        counts += has[bookie][start:end] & asked[place][start:end]
                lost = np.flatnonzero(counts == 0)
                prefix = int(lost[0]) if len(lost) else len(counts)
                rank = (prefix, int(counts[:prefix].sum()), chosen.count(None), tuple(members))
                best = rank if best is None or rank[:3] > best[:3] else best
                if prefix == len(counts) and (counts == write_quorum).all():
                    break
            if best is not None and best[0] == end - start:
                break
        assert best is not None
        if start + best[0] == end < len(entries):  # it may serve more than were looked at
            most *= 2
            continue
        yield Segment(first, best[3])
        start, most = start + max(best[0], 1), _FIRST_ENTRIES
        first = int(entries[start]) if start < len(entries) else -1


# -- messages ---------------------------------------------------------------------------------------------------------


def _repointed_part(repointed: _Repointed, ledger_id: int) -> ChangePart:
    warnings = []
    if repointed.nowhere:
        warnings.append(
            f"{counted(repointed.nowhere, 'entry')} of ledger {ledger_id} {plural(repointed.nowhere, 'is', 'are')} on no imported bookie"
        )
    if repointed.before.state is not repointed.after.state:
        warnings.append(
            f"ledger {ledger_id} is closed at entry {repointed.after.last_entry_id}, the last up to which imported bookies serve all: "
            "entries after it that only lost bookies had, or damaged records, are lost"
        )
    if repointed.later:
        warnings.append(
            f"{counted(repointed.later, 'entry')} of ledger {ledger_id} after one that no imported bookie serves "
            f"{plural(repointed.later, 'is', 'are')} no longer in it: see them with `ledgers entries {ledger_id}`"
        )
    return ChangePart(
        resource=f"ledger {ledger_id}",
        before=_shown_ensembles(repointed.before),
        after=_shown_ensembles(repointed.after),
        warnings=tuple(warnings),
    )


def _shown_ensembles(metadata: LedgerMetadata) -> dict[str, object]:
    return {
        "state": metadata.state.name,
        "entries": metadata.last_entry_id + 1,
        "writeQuorum": metadata.write_quorum,
        "ensembles": {str(segment.first_entry_id): list(segment.members) for segment in metadata.segments},
    }
