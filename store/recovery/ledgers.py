"""Deleted ledgers: their last metadata, what of their entries the bookies still hold, and their way back.

Upstream: a broker deletes a ledger's metadata (``BookKeeper.asyncDeleteLedger``), a bookie its entries when it collects garbage, which
frees disk a whole entry log at a time: until then the entries lie there (BookKeeper 4.17).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from pulsar_admin.store.changes.plan import ChangePart, Plan, Step, put_value_step
from pulsar_admin.store.codec.ledgermetadata import (
    LedgerMetadata,
    LedgerState,
    decode_ledger_metadata,
    encode_ledger_metadata,
    ledger_path,
)
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.owners import find_owners
from pulsar_admin.store.db.tree import find_node
from pulsar_admin.store.errors import LedgerNotFound, Refused
from pulsar_admin.store.facts.unlisted import Unlisted, UnlistedLedgers
from pulsar_admin.store.model.coverage import count_unseen
from pulsar_admin.store.model.ledger_owners import custom_text
from pulsar_admin.store.model.ledgers import Ledger, find_times, iter_gaps, iter_indexed_ids
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.names import shell_word
from pulsar_admin.store.recovery.metadata_index import Indexed, find_forgetful, read_indexed
from pulsar_admin.store.recovery.past import Fate, Past
from pulsar_admin.store.wording import counted, listed, plural

COMMAND = "ledgers restore"


class Returning(Struct, frozen=True):
    """A deleted ledger as it can come back. ``gaps``: entries that no file holds, both ends included; ``metadata`` ends in front of the
    first of them, and ``behind`` entries that are here lie behind that end, unless gaps are kept. ``base``: its value in the history.
    """

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


def find_returning(
    reader: EntryReader, ledger_id: int, fate: Fate | None, *, with_gaps: bool = False, last: int | None = None
) -> Returning:
    """Return LEDGER_ID as its metadata and its entries let it come back, closed; FATE: what the history has of it.

    WITH_GAPS: with its end of then, though entries before it are lost; LAST: its last entry is at most that. Raises LedgerNotFound where
    the history does not know it, and Refused where entries may be on bookies that are not imported.
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
    whole = metadata.last_entry_id if is_closed else held
    end = whole if last is None else min(whole, last)
    gaps = tuple(iter_gaps(txn, ledger_id, end))
    _check_seen(txn, ledger_id, metadata, gaps)
    cut = end if with_gaps or not gaps else gaps[0][0] - 1
    behind = end - cut - sum(b - a + 1 for a, b in gaps) if cut < end else 0
    if not is_closed or cut < whole:
        length = reader.read(ledger_id, cut).length if cut >= 0 else 0
        metadata = replace(metadata, state=LedgerState.CLOSED, last_entry_id=cut, length=length)
    gone_ms, written_ms = (None, 0) if fate is None else (fate.gone_ms, fate.written_ms)
    return Returning(ledger_id, metadata, value, gaps, behind, gone_ms, written_ms)


def _check_seen(txn: Txn, ledger_id: int, metadata: LedgerMetadata, gaps: tuple[tuple[int, int], ...]) -> None:
    """Raise Refused where a bookie that is not imported may have entries of GAPS: they are not seen, which is not lost."""
    count, bookies = count_unseen(txn, Ledger(ledger_id, metadata, None, -1, 0), gaps)
    if count:
        raise Refused(
            f"{counted(count, 'entry')} of ledger {ledger_id} may be on {', '.join(bookies)}, which {plural(len(bookies), 'is', 'are')}"
            " not imported",
            hint=f"bring them: pulsar-admin store add bookie {shell_word(bookies[0])}=DIR,DIR",
            ledgerId=ledger_id,
        )


def ranges_text(ranges: tuple[tuple[int, int], ...]) -> str:
    """Return ranges of entries for a person."""
    return listed(str(first) if first == last else f"{first}..{last}" for first, last in ranges)


def lost_text(found: Returning) -> str:
    """Say what of a ledger does not come back, entry range by entry range; "" when nothing."""
    if not found.gaps:
        return ""
    noun, verb = plural(found.lost, "entry", "entries"), plural(found.lost, "is", "are")
    text = f"ledger {found.ledger_id}: {noun} {ranges_text(found.gaps)} {verb} in no file"
    if found.behind:
        text += f"; {counted(found.behind, 'entry')} behind them {plural(found.behind, 'is', 'are')} left out"
    return text


# -- ledgers restore --deleted ----------------------------------------------------------------------------------------


def iter_deleted_ids(txn: Txn) -> Iterator[int]:
    """Yield the ledgers that have entries here, no metadata, and nothing that references them; none that is newer than the metadata."""
    unlisted = UnlistedLedgers(txn)
    for ledger_id in iter_indexed_ids(txn):
        is_orphan = find_node(txn, ledger_path(ledger_id)) is None and not find_owners(txn, ledger_id)
        if is_orphan and unlisted.why(ledger_id) is not Unlisted.NEWER:
            yield ledger_id


def plan_restore_deleted(
    reader: EntryReader, ledger_ids: Sequence[int], past: Past, now_ms: int, *, with_gaps: bool = False
) -> Plan:
    """Plan the metadata of deleted ledgers as the history PAST has it: of LEDGER_IDS, or of all that have entries here.

    No topic lists them; bookies keep their entries as long as they have metadata. Raises LedgerNotFound, Refused.
    """
    txn = reader.txn
    fates = dict(past.ledgers())
    found = list(dict.fromkeys(ledger_ids)) or list(iter_deleted_ids(txn))
    unknown = [] if ledger_ids else [one for one in found if one not in fates]
    steps: list[Step] = []
    parts: list[ChangePart] = []
    lost: list[str] = []
    indexed, forgotten = read_indexed(txn.store.info), dict[int, list[str]]()
    for ledger_id in found:
        if ledger_id in unknown:
            continue
        _check_deleted(txn, ledger_id)
        returning = find_returning(reader, ledger_id, fates.get(ledger_id), with_gaps=with_gaps)
        if returning.entries == 0 and not ledger_ids:
            unknown += [ledger_id] if returning.gaps else []
            continue
        steps.append(ledger_step(txn, returning, now_ms))
        parts.append(_part(returning))
        forgetful = find_forgetful(indexed, ledger_id, returning.metadata)
        forgotten.update({ledger_id: forgetful} if forgetful else {})
        lost += [text for text in (lost_text(returning),) if text]
    texts = index_texts(indexed, forgotten) if parts else ()
    return Plan(COMMAND, txn.id, tuple(steps), tuple(parts), warnings=(*lost, *_warnings(parts, unknown), *texts))


def ledger_step(txn: Txn, found: Returning, now_ms: int, custom: Mapping[str, bytes] | None = None) -> Step:
    """Return the step that gives a ledger its metadata again; CUSTOM: what it says of itself, in place of what it said."""
    metadata = found.metadata if custom is None else replace(found.metadata, custom=custom)
    return put_value_step(txn, ledger_path(found.ledger_id), encode_ledger_metadata(metadata, found.base), now_ms)


def _check_deleted(txn: Txn, ledger_id: int) -> None:
    if find_node(txn, ledger_path(ledger_id)) is not None:
        raise Refused(f"ledger {ledger_id} has metadata: it is not deleted", ledgerId=ledger_id)
    if find_owners(txn, ledger_id):
        raise Refused(
            f"ledger {ledger_id} is not deleted, its metadata is lost: something references it",
            hint=f"make it again with: pulsar-admin ledgers restore {ledger_id}",
            ledgerId=ledger_id,
        )
    if find_times(txn, ledger_id) is not None and UnlistedLedgers(txn).why(ledger_id) is Unlisted.NEWER:
        raise Refused(
            f"ledger {ledger_id} is not deleted: it is newer than the metadata, which never gave its id",
            hint="bring newer metadata (pulsar-admin store refresh), or roll this forward: pulsar-admin store recover --level B",
            ledgerId=ledger_id,
        )


def _warnings(parts: Sequence[ChangePart], unknown: Sequence[int]) -> Iterator[str]:
    if parts:
        whole = [part.after for part in parts if part.after and not part.after["lost"]]
        entries = sum(int(part.after["entries"]) for part in parts if part.after)
        yield (
            f"{counted(len(parts), 'deleted ledger')} of {counted(entries, 'entry')} {plural(len(parts), 'comes', 'come')} back,"
            f" {len(whole):,} of them whole"
        )
        yield (
            "no topic lists these ledgers: bookies keep their entries from the export on, and topics undelete puts them into a topic"
        )
    if unknown:
        yield (
            f"{counted(len(unknown), 'ledger')} that {plural(len(unknown), 'has', 'have')} entries here {plural(len(unknown), 'is', 'are')}"
            f" not in the history or {plural(len(unknown), 'has', 'have')} lost entry 0: {listed(unknown)}"
        )


def index_texts(indexed: Indexed, forgotten: Mapping[int, Sequence[str]]) -> Iterator[str]:
    """Yield what bookies' indexes mean for ledgers that come back; FORGOTTEN: ledger → bookies that have its entries in no index."""
    if forgotten:
        bookies = ", ".join(sorted({bookie for some in forgotten.values() for bookie in some}))
        yield (
            f"{bookies} collected garbage since: no index there names {counted(len(forgotten), 'ledger')}"
            f" ({listed(forgotten)}), whose entries still lie in the entry logs; readers would find"
            " nothing: topics undelete --copy puts the entries into new ledgers"
        )
    if not indexed:
        yield "no index of a bookie was read: one that collected garbage since the deletion would find nothing of these ledgers"
    yield "a bookie that runs collects these entries with its next garbage (gcWaitTime, 15 minutes): export before, or stop it"


def _part(found: Returning) -> ChangePart:
    metadata, claims = found.metadata, custom_text(found.metadata)
    return ChangePart(
        resource=f"ledger {found.ledger_id}",
        before={"state": "DELETED", "deleted": found.gone_ms},
        after={
            "state": metadata.state.name,
            "entries": found.entries,
            "length": metadata.length,
            "lost": [list(pair) for pair in found.gaps],
            "leftOut": found.behind,
            "ensembles": {str(segment.first_entry_id): list(segment.members) for segment in metadata.segments},
            "customMetadata": claims,
        },
    )
