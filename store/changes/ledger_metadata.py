"""Rebuilding lost ledger metadata from the entries, the bookies that hold them and the references to the ledger; also
putting ledgers that have metadata back into their topic's list.

Upstream: ``LedgerMetadataBuilder``, ``LedgerMetadataUtils`` of BookKeeper and of Pulsar 4.0.8. A plan needs two sources
that agree: entries must be on the bookies where round robin over an ensemble puts them, and end where the topic's list says.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import chain, islice
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple, assert_never

from msgspec.structs import replace

from pulsar_admin.store.changes.log_writer import put_managed_ledger
from pulsar_admin.store.changes.plan import ChangeKind, ChangePart, Plan, put_value_step
from pulsar_admin.store.codec import ledgermetadata
from pulsar_admin.store.codec.claims import APPLICATION, bucket_claims, cursor_claims, schema_claims, topic_claims
from pulsar_admin.store.db.audit_log import Step
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.owners import Owner, OwnerKind, find_owners, iter_owners
from pulsar_admin.store.db.tree import find_node, tree_key
from pulsar_admin.store.errors import LedgerNotFound, Refused, StoreError, Unsupported
from pulsar_admin.store.facts.unlisted import Unlisted, UnlistedLedgers
from pulsar_admin.store.facts.vanished import find_place_in_list, find_vanished
from pulsar_admin.store.model.coverage import bring_hint, read_disks, read_held, unseen_places
from pulsar_admin.store.model.cursors import COMPACTION_CURSOR, is_subscription, iter_cursor_names, read_cursor
from pulsar_admin.store.model.ledger_owners import custom_text, read_owners
from pulsar_admin.store.model.ledgers import find_times, iter_gaps
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.references import BUCKET_PREFIX
from pulsar_admin.store.model.topics import TopicLedger, read_topic
from pulsar_admin.store.names import Position, TopicName, parse_owner, shell_word
from pulsar_admin.store.wording import counted, listed, plural

if TYPE_CHECKING:
    from pulsar_admin.store.aliases import Array

RESTORE_LEDGERS = ChangeKind("ledgers restore", "restore {place}")
_SIBLINGS = 1000
"""Ledgers of others that are looked at for quorums."""


class LedgerEnd(NamedTuple):
    """A ledger's last entry, and its length: the payload bytes of all entries."""

    last_entry_id: int
    length: int


def plan_restore(reader: EntryReader, ledger_ids: Iterable[int], now_ms: int) -> Plan:
    """Plan the metadata of a closed ledger for each of ``ledger_ids``, or a ledger's return to its topic's list if only
    that lacks it.

    Raises LedgerNotFound, and Refused for a ledger that has metadata and is listed, that nothing references, or whose
    copies disagree.
    """
    steps: list[Step] = []
    parts: list[ChangePart] = []
    off_list: dict[TopicName, list[int]] = {}
    for ledger_id in dict.fromkeys(ledger_ids):
        path = ledgermetadata.ledger_path(ledger_id)
        if find_node(reader.txn, path) is not None and ledger_id in find_vanished(reader).off_list:
            off_list.setdefault(find_place_in_list(reader.txn, ledger_id)[0].name, []).append(ledger_id)
            continue
        owner = _check(reader.txn, ledger_id)
        is_damaged = find_node(reader.txn, path) is not None  # which counts as missing
        view = reader.seeing(reader.txn.with_rows("tree", {tree_key(path): None})) if is_damaged else reader
        metadata = restored_metadata(view, ledger_id, owner)
        steps.append(put_value_step(reader.txn, path, ledgermetadata.encode_ledger_metadata(metadata), now_ms))
        parts.append(_part(ledger_id, owner, metadata))
    warning = (
        "a bookie that ran after the metadata was lost may have collected these entries as garbage: after the export, "
        "try to read them there: bookkeeper shell readledger -l LEDGER -b BOOKIE"
    )
    warnings = (warning,) if steps else ()
    for ids in off_list.values():
        step, part = _listed_again(reader, ids, now_ms)
        steps.append(step)
        parts.append(part)
    return Plan(RESTORE_LEDGERS, reader.txn.id, tuple(steps), tuple(parts), warnings=warnings)


def _listed_again(reader: EntryReader, ledger_ids: Sequence[int], now_ms: int) -> tuple[Step, ChangePart]:
    """Return the step that puts ledgers back into their topic's list, and its report."""
    txn = reader.txn
    places = [find_place_in_list(txn, ledger_id) for ledger_id in ledger_ids]
    topic, infos = places[0][0], [info for _, info in places]
    after = replace(topic.managed, ledgers=tuple(sorted([*topic.managed.ledgers, *infos], key=attrgetter("ledger_id"))))
    first, past, singly = min(info.ledger_id for info in infos), list[str](), list[str]()
    for name in filter(is_subscription, sorted(iter_cursor_names(txn, topic.name))):
        with suppress(StoreError):  # where one that cannot be read stands is unknown
            cursor = read_cursor(txn, reader, topic, name)
            past += [name] * ((cursor.ahead or cursor.mark_delete) >= Position(first, 0))
            acknowledged = {last.ledger_id for _, last in cursor.state.ranges}.union(
                position.ledger_id for position in cursor.state.batch_deletes
            )
            singly += [name] * (not acknowledged.isdisjoint(ledger_ids))
    part = ChangePart(
        topic=str(topic.name),
        before={"ledgers": topic.ids, "entries": topic.number_of_entries},
        after={
            "ledgers": [info.ledger_id for info in after.ledgers],
            "entries": topic.number_of_entries + sum(info.entries for info in infos),
        },
        warnings=(
            f"{listed(past, 5)} {plural(len(past), 'is', 'are')} past entry {first}:0: what is before a subscription's position counts as "
            "consumed, unless topics reset-cursor moves it back",
        )
        * bool(past)
        + (f"{listed(singly, 5)} acknowledged messages of these ledgers one by one: those are not delivered again",)
        * bool(singly),
    )
    return put_managed_ledger(txn, topic.name, after, now_ms), part


def _check(txn: Txn, ledger_id: int) -> Owner:
    referenced = read_owners(txn, ledger_id) if find_node(txn, ledgermetadata.ledger_path(ledger_id)) is None else None
    if referenced is None:
        node = find_node(txn, ledgermetadata.ledger_path(ledger_id))
        assert node is not None
        try:
            ledgermetadata.decode_ledger_metadata(node.value, node.path)
        except Unsupported as error:
            raise Refused(
                f"ledger {ledger_id} has metadata that a newer BookKeeper wrote: there is nothing to restore",
                hint=f"see it with: pulsar-admin store cat {shell_word(node.path)} --hex",
                ledgerId=ledger_id,
            ) from error
        except StoreError:
            found_owners = find_owners(txn, ledger_id)
        else:
            raise Refused(
                f"ledger {ledger_id} has metadata: there is nothing to restore",
                hint=f"see the losses with: pulsar-admin ledgers missing {ledger_id}",
                ledgerId=ledger_id,
            )
    else:
        found_owners = referenced.owners
    if not found_owners:
        raise Refused(
            f"nothing references ledger {ledger_id}: no topic would read it",
            hint=_hint_unreferenced(txn, ledger_id),
            ledgerId=ledger_id,
        )
    if found_owners[0].kind is OwnerKind.PACKAGE:
        raise Refused(
            f"ledger {ledger_id} is of {found_owners[0]}, and no entry says what brokers wrote in its metadata",
            hint="upload the package again, or restore ZooKeeper's copy",
            ledgerId=ledger_id,
        )
    return found_owners[0]


def _hint_unreferenced(txn: Txn, ledger_id: int) -> str:
    why = UnlistedLedgers(txn).why(ledger_id)
    if why is Unlisted.NEWER:
        return "it is newer than the metadata: roll that forward with: pulsar-admin store recover --level B"
    said = "a broker deleted it" if why is Unlisted.DELETED else "if a broker deleted it"
    return f"{said}: see what can be restored: pulsar-admin ledgers restore --deleted {ledger_id} --dry-run"


def restored_metadata(reader: EntryReader, ledger_id: int, owner: Owner) -> ledgermetadata.LedgerMetadata:
    """Return the metadata that a ledger of ``owner`` had when it was closed; raises Refused, LedgerNotFound."""
    txn = reader.txn
    name = parse_owner(owner.topic)
    listed = _listed(txn, name, ledger_id) if owner.kind is OwnerKind.TOPIC else None
    end = _find_end(reader, ledger_id, listed)
    held = read_bookies_of(txn, ledger_id)
    sibling = _find_sibling(txn, ledger_id, owner)
    absent = [*unseen_places(txn).values()]
    hint = bring_hint(absent) if absent else _IMPORT
    write_quorum, segments = find_ensembles(ledger_id, held, end.last_entry_id, sibling, hint)
    # Fewer copies than its quorum look like a smaller quorum, and what only the others have at the end looks like nothing.
    if absent and (listed is None or sibling is None or write_quorum < sibling.write_quorum):
        raise Refused(
            f"{', '.join(absent)}, which {plural(len(absent), 'is', 'are')} not imported, may have more entries of "
            f"ledger {ledger_id}, or copies of these",
            hint=hint,
            ledgerId=ledger_id,
        )
    digest_type, custom = reader.read(ledger_id, 0).digest_type, _claims(reader, name, owner, ledger_id)
    ack_quorum = ack_quorum_like(sibling, write_quorum)
    return ledgermetadata.closed_over(
        segments, write_quorum, end.last_entry_id, end.length, custom, digest_type, ack_quorum
    )


def ack_quorum_like(sibling: ledgermetadata.LedgerMetadata | None, write_quorum: int) -> int:
    """Return the ack quorum of ``sibling`` if it has the same write quorum, otherwise 0."""
    return sibling.ack_quorum if sibling is not None and sibling.write_quorum == write_quorum else 0


def read_bookies_of(txn: Txn, ledger_id: int) -> Mapping[str, Array]:
    """Return bookie → entry ids of a ledger on it; raises Refused if the bookies of some entries are unknown."""
    held = read_held(txn, ledger_id, read_disks(txn))
    if held is None:
        raise Refused(f"ledger {ledger_id} was written by this toolkit: undo the change that deleted its metadata")
    if "" in held:
        raise Refused(
            f"it is unknown which bookie has the entries of ledger {ledger_id}: its ensemble cannot be determined",
            hint="import the bookie with its cookie (the file VERSION), or name it: --bookie ID=DIR,DIR",
            ledgerId=ledger_id,
        )
    return held


# -- the end ----------------------------------------------------------------------------------------------------------


def _listed(txn: Txn, name: TopicName, ledger_id: int) -> TopicLedger | None:
    """Return the ledger's row in the topic's list; None if not listed, or listed as open and so without a size."""
    listed = read_topic(txn, name).ledger(ledger_id)
    return None if listed is None or listed.is_open else listed


def _find_end(reader: EntryReader, ledger_id: int, listed: TopicLedger | None) -> LedgerEnd:
    """Return where the ledger ends by its entries; raises Refused if entries are missing or the topic's row ``listed``
    differs."""
    times, absent = find_times(reader.txn, ledger_id), [*unseen_places(reader.txn).values()]
    if times is None:
        raise LedgerNotFound(
            f"no file has an entry of ledger {ledger_id}: there is nothing to restore it from",
            hint=f"remove it with: pulsar-admin ledgers forget {ledger_id}" if not absent else bring_hint(absent),
            ledgerId=ledger_id,
        )
    last = times.sums.last_entry if listed is None else listed.entries - 1
    gap = next(iter_gaps(reader.txn, ledger_id, last), None)
    if gap is not None:
        raise Refused(
            f"entries {gap[0]} to {gap[1]} of ledger {ledger_id} are in no file: the ledger would be incomplete"
            + ("" if listed is None else f", {counted(listed.entries, 'entry')} by its topic's list"),
            hint=f"import the other bookies: pulsar-admin store add bookie ID=DIR,DIR; or: pulsar-admin ledgers forget {ledger_id}"
            if not absent
            else bring_hint(absent),
            ledgerId=ledger_id,
        )
    length = reader.read(ledger_id, last).length if last >= 0 else 0
    if listed is not None and length != listed.size_bytes:
        raise Refused(
            f"ledger {ledger_id}: {counted(length, 'byte')} by its last entry, {listed.size_bytes:,} by its topic's list",
            hint=f"see: pulsar-admin ledgers info {ledger_id}; or remove it: pulsar-admin ledgers forget {ledger_id}",
            ledgerId=ledger_id,
        )
    return LedgerEnd(last, length)


# -- where it lies ----------------------------------------------------------------------------------------------------


def _find_sibling(txn: Txn, ledger_id: int, owner: Owner) -> ledgermetadata.LedgerMetadata | None:
    """Return the metadata of the ledger that is most similar in kind of owner, topic and id: its quorums are probably
    the same."""
    listed = ((other, (Owner(OwnerKind.TOPIC, owner.topic),)) for other in _ids(txn, parse_owner(owner.topic)))
    best: tuple[tuple[bool, bool, int], int] | None = None
    for other, owners in chain(listed, islice(iter_owners(txn), _SIBLINGS)):
        if other != ledger_id and find_node(txn, ledgermetadata.ledger_path(other)) is not None:
            kind = all(one.kind != owner.kind for one in owners)
            rank = (kind, all(one.topic != owner.topic for one in owners), abs(other - ledger_id))
            best = min(best or (rank, other), (rank, other))
    if best is None:
        return None
    node = find_node(txn, ledgermetadata.ledger_path(best[1]))
    assert node is not None
    try:
        return ledgermetadata.decode_ledger_metadata(node.value, node.path)
    except StoreError:
        return None


def _ids(txn: Txn, name: TopicName) -> list[int]:
    return read_topic(txn, name).ids if find_node(txn, name.path) is not None else []


_IMPORT = "import the missing bookies: pulsar-admin store add bookie ID=DIR,DIR"


def find_ensembles(
    ledger_id: int,
    held: Mapping[str, Array],
    last_entry_id: int,
    sibling: ledgermetadata.LedgerMetadata | None,
    hint: str = _IMPORT,
) -> tuple[int, tuple[ledgermetadata.Segment, ...]]:
    """Return (write quorum, ensembles) that place every entry by round robin on exactly the bookies that have it in ``held``.

    Returns as few ensembles as possible, if possible of the size of those of ``sibling``. Raises Refused if entries
    have different numbers of copies.
    """
    holders = holders_of(held, last_entry_id)
    if not any(holders):
        raise Refused(f"ledger {ledger_id} is empty: nothing shows which bookies it was on", ledgerId=ledger_id)
    write_quorum = max(len(one) for one in holders)
    few = next((entry for entry, one in enumerate(holders) if len(one) != write_quorum), None)
    if few is not None:
        raise Refused(
            f"ledger {ledger_id}: entry {few} is on {_names(holders[few])} alone, others on {counted(write_quorum, 'bookie')}: "
            "its ensemble is ambiguous",
            hint=hint,
            ledgerId=ledger_id,
        )
    sizes = [sibling.ensemble_size] if sibling is not None and sibling.ensemble_size >= write_quorum else []
    here = sorted({bookie for one in holders for bookie in one})
    others = () if sibling is None else sibling.segments[-1].members
    tried = dict.fromkeys([*sizes, *range(write_quorum, len(here) + 1)])
    # Ensembles of one entry each always fit. The first of those with as few ensembles counts.
    fits = (_fit(holders, size, write_quorum, [*here, *others]) for size in tried)
    return write_quorum, min((fit for fit in fits if fit is not None), key=len)


def _names(bookies: Iterable[str]) -> str:
    return ", ".join(sorted(bookies)) or "no bookie"


def holders_of(held: Mapping[str, Array], last_entry_id: int) -> list[frozenset[str]]:
    """Return the bookies that have each entry, in the order of entries 0 to ``last_entry_id``."""
    holders: list[set[str]] = [set() for _ in range(last_entry_id + 1)]
    for bookie, entries in held.items():
        for entry in entries[entries <= last_entry_id].tolist():
            holders[entry].add(bookie)
    alike: dict[frozenset[str], frozenset[str]] = {}
    return [alike.setdefault(one, one) for one in map(frozenset, holders)]


def _fit(
    holders: Sequence[frozenset[str]], size: int, write_quorum: int, known: Sequence[str]
) -> tuple[ledgermetadata.Segment, ...] | None:
    """Return the fewest ensembles of ``size`` bookies that place each entry on its holders; None if impossible.

    A member that no entry determines is taken from the preceding ensemble, otherwise from ``known``.
    """
    segments: list[ledgermetadata.Segment] = []
    start = 0
    while start < len(holders):
        before = segments[-1].members if segments else ()
        end, members = _longest(holders, start, size, write_quorum, before)
        spare = (bookie for bookie in dict.fromkeys([*before, *known]) if bookie not in members)
        filled = tuple(bookie or next(spare, "") for bookie in members)
        if not filled or "" in filled:
            return None
        segments.append(ledgermetadata.Segment(start, filled))
        start = end
    return tuple(segments)


def _longest(
    holders: Sequence[frozenset[str]], start: int, size: int, write_quorum: int, before: Sequence[str]
) -> tuple[int, Sequence[str]]:
    """Return (end, members) of the longest ensemble that begins at entry ``start``; no members if not even one entry fits."""
    pattern: dict[int, frozenset[str]] = {}
    members: Sequence[str] = ()
    for entry in range(start, len(holders)):
        if pattern.setdefault(entry % size, holders[entry]) != holders[entry]:
            return entry, members
        fitting = _members(pattern, size, write_quorum, before) if entry - start < size else members
        if fitting is None:
            return entry, members
        members = fitting
    return len(holders), members


def _members(
    pattern: Mapping[int, frozenset[str]], size: int, write_quorum: int, before: Sequence[str]
) -> list[str] | None:
    """Return the bookies of an ensemble from ``pattern`` (entry id modulo ``size`` → holders); "" for an
    undetermined place.

    ``before`` is the preceding ensemble: one change replaces one bookie, so the others keep their places.
    """
    wanted: dict[frozenset[int], list[int]] = {}
    for place in range(size):
        residues = frozenset(one for one in pattern if (place - one) % size < write_quorum)
        wanted.setdefault(residues, []).append(place)
    there: dict[frozenset[int], list[str]] = {}
    for bookie in sorted({bookie for one in pattern.values() for bookie in one}):
        there.setdefault(frozenset(one for one in pattern if bookie in pattern[one]), []).append(bookie)
    members = [""] * size
    for residues, places in wanted.items():
        fitting = there.pop(residues, [])
        if residues and len(fitting) != len(places):
            return None
        kept = {place: before[place] for place in places if place < len(before) and before[place] in fitting}
        rest = iter([bookie for bookie in fitting if bookie not in kept.values()])
        for place in places:
            members[place] = kept.get(place) or next(rest, "")
    return None if there else members


# -- what it is -------------------------------------------------------------------------------------------------------


def _claims(reader: EntryReader, name: TopicName, owner: Owner, ledger_id: int) -> dict[str, bytes]:
    """Return the custom metadata that a broker gives a ledger of this owner."""
    match owner.kind:
        case OwnerKind.TOPIC:
            claims = topic_claims(name)
        case OwnerKind.CURSOR:
            claims = cursor_claims(name, owner.cursor)
        case OwnerKind.SCHEMA:
            claims = schema_claims(name)
        case OwnerKind.COMPACTED:
            topic = read_topic(reader.txn, name)
            # It needs numpy, which a list of ledgers does not.
            from pulsar_admin.store.compaction.compactor import view_claims

            claims = view_claims(topic, read_cursor(reader.txn, reader, topic, COMPACTION_CURSOR).mark_delete)
        case OwnerKind.BUCKET:
            claims = bucket_claims(name, owner.cursor, _bucket_key(reader, name, owner, ledger_id))
        case OwnerKind.INDEX | OwnerKind.CLAIM | OwnerKind.PACKAGE:
            claims = {}  # no broker has any; a claim is of a ledger that has metadata
        case _:
            assert_never(owner.kind)
    return {**APPLICATION, **claims}


def _bucket_key(reader: EntryReader, name: TopicName, owner: Owner, ledger_id: int) -> str:
    cursor = read_cursor(reader.txn, reader, read_topic(reader.txn, name), owner.cursor)
    keys = (key for key, value in cursor.info.cursor_properties.items() if value == str(ledger_id))
    return next(key for key in keys if key.startswith(BUCKET_PREFIX))


def _part(ledger_id: int, owner: Owner, metadata: ledgermetadata.LedgerMetadata) -> ChangePart:
    return ChangePart(
        resource=f"ledger {ledger_id}",
        before={},
        after={
            "state": "CLOSED",
            "owner": " ".join(text for text in (owner.kind, owner.topic, owner.cursor) if text),
            "entries": metadata.last_entry_id + 1,
            "length": metadata.length,
            "ensembleSize": metadata.ensemble_size,
            "writeQuorumSize": metadata.write_quorum,
            "ackQuorumSize": metadata.ack_quorum,
            "digestType": None if metadata.digest_type is None else metadata.digest_type.name,
            "ensembles": {str(segment.first_entry_id): list(segment.members) for segment in metadata.segments},
            "customMetadata": custom_text(metadata),
        },
    )
