"""Removing references to lost ledgers, so that a broker loads the topic and continues after them.

Upstream: ``ManagedLedgerImpl.maybeUpdateCursorBeforeTrimmingConsumedLedger`` moves cursors from a trimmed ledger to
the next one, ``ManagedCursorImpl.recoverFromLedger`` starts at the snapshot where the cursor ledger is lost (Pulsar
4.0.8). Also removes under-replication marks, and the metadata of unreferenced ledgers.
"""

import json
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain
from typing import NoReturn, assert_never

from msgspec import Struct, field
from msgspec.structs import replace

from pulsar_admin.store import errors
from pulsar_admin.store.changes import plan
from pulsar_admin.store.changes.cursors import info_of_state, state_json
from pulsar_admin.store.changes.log_writer import put_managed_ledger
from pulsar_admin.store.codec.claims import NAMING_KEYS
from pulsar_admin.store.codec.cursor import CursorState, Ranges, encode_cursor_info
from pulsar_admin.store.codec.ledgermetadata import ledger_path
from pulsar_admin.store.codec.policyevent import topic_of_key
from pulsar_admin.store.codec.schema import IndexEntry, SchemaLocator, encode_schema_locator
from pulsar_admin.store.codec.strict_values import parse_integer
from pulsar_admin.store.db.audit_log import Step
from pulsar_admin.store.db.delayed import find_index_ledgers
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.files import iter_metadata_damage
from pulsar_admin.store.db.owners import Owner, OwnerKind
from pulsar_admin.store.db.tree import find_node, iter_values, read_node, tree_key
from pulsar_admin.store.facts.trees import check_ledgers_seen, check_owners_seen
from pulsar_admin.store.facts.under_replication import iter_emptied, iter_marks
from pulsar_admin.store.facts.unlisted import find_newer
from pulsar_admin.store.facts.vanished import find_vanished
from pulsar_admin.store.model.broken import GONE, find_missing
from pulsar_admin.store.model.coverage import absent_of, bring_hint
from pulsar_admin.store.model.cursors import (
    COMPACTION_CURSOR,
    Cursor,
    Extent,
    extent_of,
    iter_cursor_names,
    read_cursor,
)
from pulsar_admin.store.model.ledger_owners import all_owners, custom_text, read_owners
from pulsar_admin.store.model.ledgers import find_metadata, find_times, is_damaged, iter_entry_ids
from pulsar_admin.store.model.messages import MessageReader, ReadOptions
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.references import BUCKET_PREFIX, NAMING_PREFIXES, read_namings
from pulsar_admin.store.model.schemas import find_locator
from pulsar_admin.store.model.topics import COMPACTED_LEDGER, Topic, read_topic
from pulsar_admin.store.names import EVENTS, Position, TopicName, parse_topic, shell_word
from pulsar_admin.store.wording import counted, listed, plural

_FORGET = plan.ChangeKind("ledgers forget", "forget lost ledgers of {place}")
_NAMED = 20
"""Topics whose policies are lost that a warning names."""

Ids = Collection[int]


class _Referring(Struct):
    """The owners that reference the ledgers to forget, each with the ids that it references."""

    topics: dict[TopicName, set[int]] = field(default_factory=dict)
    cursors: dict[tuple[TopicName, str], set[int]] = field(default_factory=dict)
    schemas: dict[TopicName, set[int]] = field(default_factory=dict)

    def add(self, ledger_id: int, owner: Owner) -> None:
        name = parse_topic(owner.topic)
        match owner.kind:
            case OwnerKind.TOPIC:
                self.topics.setdefault(name, set()).add(ledger_id)
            case OwnerKind.SCHEMA:
                self.schemas.setdefault(name, set()).add(ledger_id)
            case (
                OwnerKind.CURSOR
                | OwnerKind.COMPACTED
                | OwnerKind.BUCKET
                | OwnerKind.INDEX
                | OwnerKind.CLAIM
                | OwnerKind.PACKAGE
            ):
                self.cursors.setdefault((name, owner.cursor or COMPACTION_CURSOR), set()).add(ledger_id)
            case _:
                assert_never(owner.kind)


def plan_forget(
    reader: EntryReader, ledger_ids: Iterable[int], force: bool, accepted: Collection[str], now_ms: int
) -> plan.Plan:
    """Plan removing every reference to the ledgers: from lists of topics, cursors, compacted views and schemas.

    ``accepted`` names unknown metadata trees that do not reference the ledgers either. Raises LedgerNotFound, and
    Refused for a ledger that is unreferenced or (without ``force``) complete.
    """
    txn, ids = reader.txn, tuple(dict.fromkeys(ledger_ids))
    check_ledgers_seen(txn, accepted)
    referring = _Referring()
    for ledger_id in ids:
        for owner in _check(txn, ledger_id, force=force):
            referring.add(ledger_id, owner)
    steps: list[Step] = []
    parts: list[plan.ChangePart] = []
    # A topic whose last ledger has damaged metadata cannot be read with it.
    hidden = {tree_key(ledger_path(ledger_id)): None for ledger_id in ids if is_damaged(txn, ledger_id)}
    view = reader.seeing(txn.with_rows("tree", hidden)) if hidden else reader
    names = dict.fromkeys([*referring.topics, *(name for name, _ in referring.cursors)])
    for name in names:
        topic_steps, topic_parts = _forget_in_topic(view, name, referring, now_ms)
        steps += topic_steps
        parts += topic_parts
    for name, gone in referring.schemas.items():
        step, part = _forget_in_schema(txn, name, gone, now_ms)
        steps.append(step)
        parts.append(part)
    paths = (ledger_path(ledger_id) for ledger_id in ids)
    steps += [plan.delete_step(txn, path) for path in paths if find_node(txn, path) is not None]
    return plan.Plan(_FORGET, txn.id, tuple(steps), tuple(parts))


def _check(txn: Txn, ledger_id: int, *, force: bool) -> tuple[Owner, ...]:
    owners = read_owners(txn, ledger_id).owners
    if not owners:
        raise errors.Refused(
            f"nothing references ledger {ledger_id}: there is nothing to forget",
            hint=f"see its remaining entries with: pulsar-admin ledgers info {ledger_id}",
            ledgerId=ledger_id,
        )
    other = next((owner for owner in owners if owner.is_of_newer), None)
    if other is not None:
        raise errors.Refused(
            f"ledger {ledger_id} is of {other}, "
            + (
                "which brokers alone change"
                if other.kind is OwnerKind.PACKAGE
                else "which a newer version wrote: this version does not change it"
            ),
            hint=f"see its remaining entries with: pulsar-admin ledgers info {ledger_id}",
            ledgerId=ledger_id,
        )
    try:
        find_metadata(txn, ledger_id)
    except errors.Unsupported as error:
        raise errors.Refused(
            f"ledger {ledger_id} has metadata that a newer BookKeeper wrote, which would go with it: {error.message}",
            hint=f"see it with: pulsar-admin store cat {ledger_path(ledger_id)} --hex",
            ledgerId=ledger_id,
        ) from error
    except errors.Corrupt:
        pass  # damaged metadata counts as missing
    missing = find_missing(txn, ledger_id)
    if not force and missing is not None and missing.unseen_entries:
        raise errors.Refused(
            f"{counted(missing.unseen_entries, 'entry')} of ledger {ledger_id} may be on {', '.join(missing.bookies)}, which"
            f" {plural(len(missing.bookies), 'is', 'are')} not imported",
            hint=f"{bring_hint(missing.bookies)}; or add --force to forget the entries anyway",
            ledgerId=ledger_id,
        )
    if not force and missing is not None and missing.absent:
        state = "was never closed" if missing.reason == GONE else "has no readable metadata"
        raise errors.Refused(
            f"ledger {ledger_id} {state}, and {', '.join(missing.absent)}, which {plural(len(missing.absent), 'is', 'are')} not"
            " imported, may have entries of it",
            hint=f"{bring_hint(missing.absent)}; or add --force to forget the ledger anyway",
            ledgerId=ledger_id,
        )
    if not force and missing is not None and missing.outside is not None:
        beyond, are = missing.outside, plural(missing.outside.entries, "is", "are")
        raise errors.Refused(
            f"{counted(beyond.entries, 'entry')} of ledger {ledger_id} {are} on {', '.join(beyond.bookies)}, which "
            "clients do not ask for them",
            hint=f"restore them: {missing.cure}; or add --force to forget them anyway",
            ledgerId=ledger_id,
        )
    absent = absent_of(txn, ledger_id) if not force and missing is None else ()
    if absent:
        raise errors.Refused(
            f"the store has every entry of ledger {ledger_id}; whether clients get them is unknown, because "
            f"{', '.join(absent)}, which it names, {plural(len(absent), 'is', 'are')} not imported",
            hint="add --force to forget it anyway",
            ledgerId=ledger_id,
        )
    if not force and missing is None:
        raise errors.Refused(
            f"ledger {ledger_id} is complete: the store has its metadata and every entry",
            hint="add --force to forget it anyway",
            ledgerId=ledger_id,
        )
    return owners


# -- topics and their cursors -----------------------------------------------------------------------------------------


def _forget_in_topic(
    reader: EntryReader, name: TopicName, referring: _Referring, now_ms: int
) -> tuple[list[Step], list[plan.ChangePart]]:
    """Return the steps and reports of removing lost ledgers from a topic's list and from its cursors."""
    topic = read_topic(reader.txn, name)
    gone = referring.topics.get(name, set())
    after = without(topic, gone)
    steps, parts = [], []
    if gone:
        steps.append(put_managed_ledger(reader.txn, name, after.managed, now_ms))
        parts.append(_topic_part(reader, topic, after, gone))
    for cursor_name in sorted(iter_cursor_names(reader.txn, name)):
        cursor = read_cursor(reader.txn, reader, topic, cursor_name)
        lost = referring.cursors.get((name, cursor_name), set())
        state = forgotten_state(after, cursor.state, gone)
        if COMPACTED_LEDGER in state.properties and state.properties[COMPACTED_LEDGER] in lost:
            # Without its view, compaction starts over: a view of the later entries alone would lack older keys.
            state = CursorState(after.first_position)
        # A broker stores the beginning of an empty last ledger for the end: that would be ahead of the topic without the ledger.
        ahead = read_cursor(reader.txn, reader, after, cursor_name).ahead if gone and cursor.ahead is None else None
        if state != cursor.state or lost or ahead is not None:
            steps.append(_cursor_step(reader.txn, cursor, state, lost, now_ms))
            part = _cursor_part(topic, after, cursor, state, lost)
            stored = {} if ahead is None else {"storedMarkDeletePosition": str(ahead)}
            parts.append(replace(part, before={**(part.before or {}), **stored}))
    return steps, parts


def without(topic: Topic, gone: Ids) -> Topic:
    """Return the topic without the ledgers in ``gone``; a topic that was terminated in one of them is terminated before it."""
    infos = tuple(info for info in topic.managed.ledgers if info.ledger_id not in gone)
    ledgers = tuple(ledger for ledger in topic.ledgers if ledger.ledger_id not in gone)
    end = topic.managed.terminated
    after = Topic(topic.name, topic.stat, replace(topic.managed, ledgers=infos, terminated=None), ledgers)
    if end is not None and end.ledger_id in gone and infos:
        end = after.last_confirmed
    return Topic(topic.name, topic.stat, replace(after.managed, terminated=end), ledgers)


def forgotten_state(after: Topic, state: CursorState, gone: Ids) -> CursorState:
    """Return a cursor's state once the ledgers in ``gone`` are removed; ``after`` is the topic without them.

    A position in a removed ledger moves to before the next ledger, as when a broker trims, or to the end.
    Acknowledgements in other ledgers stay.
    """
    mark_delete = _moved(after, state.mark_delete, gone)
    ranges = tuple(_moved_ranges(after, state.ranges, gone))
    batches = {entry: words for entry, words in state.batch_deletes.items() if entry.ledger_id not in gone}
    moved = replace(state, mark_delete=mark_delete, ranges=ranges, batch_deletes=batches)
    if moved == state:
        return state
    # As in a broker, the mark-delete position takes in acknowledged ranges that now follow it without a gap.
    for lower, upper in sorted(ranges):
        if after.place(lower) > after.place(mark_delete):
            break
        mark_delete = max(mark_delete, upper)
    return replace(moved, mark_delete=mark_delete, ranges=tuple(pair for pair in ranges if pair[1] > mark_delete))


def _moved(after: Topic, position: Position, gone: Ids) -> Position:
    if position.ledger_id not in gone:
        return position
    index = bisect_right(after.ids, position.ledger_id)
    return Position(after.ids[index], -1) if index < len(after.ids) else after.last_confirmed


def _moved_ranges(after: Topic, ranges: Ranges, gone: Ids) -> Iterator[tuple[Position, Position]]:
    for lower, upper in ranges:
        end = after.previous(Position(upper.ledger_id, 0)) if upper.ledger_id in gone and after.ids else upper
        begin = _moved(after, lower, gone)
        if begin < end and not (lower.ledger_id in gone and upper.ledger_id in gone):
            yield begin, end


def _cursor_step(txn: Txn, cursor: Cursor, state: CursorState, lost: Ids, now_ms: int) -> Step:
    path = cursor.topic.cursor_path(cursor.name)
    kept = {key: value for key, value in cursor.info.cursor_properties.items() if not _is_lost_bucket(key, value, lost)}
    info = info_of_state(state, kept, cursor.info.last_active_ms)
    return plan.put_value_step(txn, path, encode_cursor_info(info, read_node(txn, path).value), now_ms)


def _is_lost_bucket(key: str, value: str, lost: Ids) -> bool:
    return key.startswith(BUCKET_PREFIX) and parse_integer(value) in lost


# -- schemas ----------------------------------------------------------------------------------------------------------


def _forget_in_schema(txn: Txn, name: TopicName, gone: Ids, now_ms: int) -> tuple[Step, plan.ChangePart]:
    """Return the step and report of removing schema versions stored in the ledgers ``gone``.

    If the newest version is lost, the one before it is stored again under a new number: messages carry the lost
    number, so no other schema may have it.
    """
    locator = find_locator(txn, name)
    assert locator is not None
    lost = [item.version for item in locator.index if item.position.ledger_id in gone]
    left = tuple(item for item in locator.index if item.version not in lost)
    texts = [
        f"{plural(len(lost), 'version')} {', '.join(map(str, lost))} of the schema: messages sent with it cannot be decoded"
    ]
    if not left:
        step = plan.delete_step(txn, name.schema_path)
        texts.append(
            "no version is left: the topic has no schema until a producer registers one or one is uploaded, as version 0"
        )
    else:
        newest = locator.newest
        if newest.version in lost:
            newest = IndexEntry(newest.version + 1, left[-1].position, left[-1].hash)
            texts.append(
                f"version {newest.version} repeats version {left[-1].version}, so that no other schema gets a lost "
                "number"
            )
            left = (*left, newest)
        value = encode_schema_locator(SchemaLocator(newest, left), read_node(txn, name.schema_path).value)
        step = plan.put_value_step(txn, name.schema_path, value, now_ms)
    part = plan.ChangePart(
        topic=str(name),
        before={"schemaVersions": [item.version for item in locator.index]},
        after={"schemaVersions": [item.version for item in left]},
        unreferenced_ledgers=tuple(sorted(gone)),
        warnings=tuple(f"lost: {text}" if place == 0 else text for place, text in enumerate(texts)),
    )
    return step, part


# -- reports ----------------------------------------------------------------------------------------------------------


def _topic_part(reader: EntryReader, topic: Topic, after: Topic, gone: Ids) -> plan.ChangePart:
    ranks = [(topic.ranks[place], topic.ranks[place + 1]) for place, one in enumerate(topic.ids) if one in gone]
    return plan.ForgottenPart(
        topic=str(topic.name),
        before={"ledgers": topic.ids, "entries": topic.number_of_entries},
        after={"ledgers": after.ids, "entries": after.number_of_entries},
        extent=extent_of(reader.txn, topic, ranks),
        unreferenced_ledgers=tuple(sorted(gone)),
        warnings=tuple(_topic_warnings(reader, topic, gone)),
    )


def _topic_warnings(reader: EntryReader, topic: Topic, gone: Ids) -> Iterator[str]:
    for ledger_id in sorted(gone):
        here = sum(1 for _ in iter_entry_ids(reader.txn, ledger_id))
        if here:
            lost = find_node(reader.txn, ledger_path(ledger_id)) is None
            keep = (
                f"keep {plural(here, 'it', 'them')} with: pulsar-admin ledgers restore {ledger_id}"
                if lost
                else f"dump {plural(here, 'it', 'them')} before: pulsar-admin topics dump {shell_word(topic.name)} --directory DIR"
            )
            yield f"{counted(here, 'entry')} of ledger {ledger_id} can be read and {plural(here, 'goes', 'go')} with it; {keep}"
    if topic.name.local_name == EVENTS:
        yield _lost_policies(reader, topic, gone)


def _lost_policies(reader: EntryReader, topic: Topic, gone: Ids) -> str:
    """Return the warning that names the topics whose policy events were in ``gone``, as far as entries can still be read."""
    events = sum(ledger.entries for ledger in topic.ledgers if ledger.ledger_id in gone)
    topics: dict[str, None] = {}
    positions = (Position(one, entry) for one in sorted(gone) for entry in iter_entry_ids(reader.txn, one))
    for message in MessageReader(reader, ReadOptions(committed=False)).iter_messages(positions):
        try:
            topics[str(topic_of_key(message.key or "")[0])] = None
        except errors.InvalidValue:
            continue
    lost = f"{counted(events, 'event')} of topic policies {plural(events, 'is', 'are')} lost: "
    if not topics:
        return f"{lost}which topics' policies they set is unknown"
    return f"{lost}these topics have policies from before them, or none: {listed(topics, _NAMED)}"


def _cursor_part(topic: Topic, after: Topic, cursor: Cursor, state: CursorState, lost: Ids) -> plan.ChangePart:
    warnings = []
    if cursor.info.cursors_ledger_id in lost:
        warnings.append(
            f"acknowledgements in the cursor ledger {cursor.info.cursors_ledger_id} are lost: messages are "
            f"redelivered from {state.mark_delete} on, as by a broker that loads it"
        )
    if cursor.state.properties.get(COMPACTED_LEDGER) in lost:
        warnings.append(
            f"the compacted view in ledger {cursor.state.properties[COMPACTED_LEDGER]} is lost: its readers get the "
            "uncompacted topic until the topic is compacted again"
        )
    if any(_is_lost_bucket(key, value, lost) for key, value in cursor.info.cursor_properties.items()):
        warnings.append("an index of delayed messages is lost: a broker rebuilds it from the messages")
    return plan.ChangePart(
        topic=str(topic.name),
        subscription=cursor.name,
        before=state_json(topic, cursor.state),
        after=state_json(after, state),
        warnings=tuple(warnings),
    )


# -- marks -------------------------------------------------------------------------------------------------------------
# Removing under-replication marks of ledgers that are gone or complete.


_NAMED_MARKS = 10


def plan_unmark(txn: Txn, ledgers: Sequence[int], *, force: bool) -> plan.Plan:
    """Plan removing the under-replication marks of ``ledgers``, if empty of all ledgers that are deleted or complete.

    Raises NotFound for a ledger without a mark, and, unless ``force``, Refused for one that lacks copies or whose
    copies are not all known.
    """
    marks = {mark.ledger_id: mark for mark in iter_marks(txn)}
    unmarked = [one for one in ledgers if one not in marks]
    if unmarked:
        raise errors.NotFound(
            f"no under-replication mark of {plural(len(unmarked), 'ledger')} {listed(unmarked, _NAMED_MARKS)}",
            hint="list the marks with: pulsar-admin bookkeeper listunderreplicated",
        )
    chosen = [marks[one] for one in dict.fromkeys(ledgers)] or [mark for mark in marks.values() if mark.is_stale]
    needed = [mark.ledger_id for mark in chosen if not mark.is_stale]
    if needed and not force:
        raise errors.Refused(
            f"{plural(len(needed), 'ledger')} {listed(needed, _NAMED_MARKS)} {plural(len(needed), 'lacks', 'lack')} copies,"
            f" or may lack some: the {plural(len(needed), 'mark has', 'marks have')} a reason",
            hint="see: pulsar-admin ledgers underreplicated; add --force to remove the marks anyway",
            ledgerIds=needed,
        )
    paths = frozenset(mark.path for mark in chosen)
    steps = tuple(plan.delete_step(txn, path) for path in (*sorted(paths), *iter_emptied(txn, paths)))
    parts = tuple(
        plan.ChangePart(
            resource=f"mark of ledger {mark.ledger_id}",
            before={"ledgerId": mark.ledger_id, "missingReplicas": list(mark.bookies), "isGone": mark.is_gone},
        )
        for mark in sorted(chosen, key=lambda mark: mark.ledger_id)
    )
    nothing = (plan.ChangePart(resource="marks", before={"marks": len(marks)}, after={"marks": len(marks)}),)
    kind = plan.ChangeKind("ledgers unmark", "remove under-replication {place}")
    return plan.Plan(kind, txn.id, steps, parts or nothing)


# -- orphans -----------------------------------------------------------------------------------------------------------
# Deleting the metadata of ledgers that nothing references; their bookies collect the entries then.
#
# A ledger is given up only where everything that could reference it was read.


UNREFERENCED = "unreferenced"
"""Why a ledger with metadata is an orphan, as ``ledgers orphans`` says it."""


def plan_delete_orphans(
    reader: EntryReader, ledger_ids: Iterable[int], *, force: bool, accepted: Collection[str]
) -> plan.Plan:
    """Plan deleting the metadata of ledgers; raises LedgerNotFound, and Refused for a ledger that is, or may be, referenced.

    ``force`` also accepts ledgers that unreadable or unknown nodes or newer metadata could reference, and ledgers that
    may be the only copy of their entries. ``accepted`` names unknown metadata trees that do not reference the ledgers.
    """
    txn = reader.txn
    check_owners_seen(txn, accepted)
    indexes = find_index_ledgers(txn)
    ids = tuple(dict.fromkeys(ledger_ids))
    _check_references(txn, set(ids), force=force)
    vanished = find_vanished(reader)
    kept = set() if force else (vanished.kept | vanished.off_list.keys()) & set(ids)
    parts = tuple(_part(txn, ledger_id, indexes, force=force) for ledger_id in ids)
    newer = None if force else find_newer(txn)
    if newer is not None:
        raise errors.Refused(
            f"the metadata is older than the bookies, which hold {counted(newer.ledgers, 'ledger')} up to "
            f"{newer.largest} with ids that it never assigned: newer metadata may reference these ledgers",
            hint="provide newer metadata and run: pulsar-admin store refresh; if none exists: pulsar-admin store "
            "recover --level B; --force deletes them anyway",
            ledgerIds=sorted(ids),
        )
    if kept:
        raise errors.Refused(
            f"{plural(len(kept), 'ledger')} {listed(sorted(kept))} may be the only copy of a topic's data: its node "
            "or schema was lost without a deletion, or belongs to another Pulsar on this BookKeeper, or the topic "
            "lost its compacted view, or should list it and does not",
            hint="see: pulsar-admin doctor; --force deletes them anyway",
            ledgerIds=sorted(kept),
        )
    steps = tuple(plan.delete_step(txn, ledger_path(one)) for one in ids)
    return plan.Plan(plan.ChangeKind("ledgers delete", "delete the metadata of {place}"), txn.id, steps, parts)


def parse_ledger_ids(lines: Iterable[str], where: str) -> Iterator[int]:
    """Yield ledger ids from lines: numbers, or JSON objects with ``ledgerId`` as ``ledgers orphans -o jsonl``
    prints them.

    Objects of ledgers without metadata are left out. Raises InvalidValue, which names ``where`` and the line.
    """
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            ledger_id = row["ledgerId"] if isinstance(row, dict) else row
        except (ValueError, KeyError, RecursionError):
            row, ledger_id = None, None
        if isinstance(row, dict) and row.get("reason", UNREFERENCED) != UNREFERENCED:
            continue
        if type(ledger_id) is not int or ledger_id < 0:
            raise errors.InvalidValue(
                f"{where}, line {number}: no ledger id: {line.strip()[:60]!r}",
                hint='one per line: 7, or {"ledgerId":7}',
            )
        yield ledger_id


def _check_references(txn: Txn, ledger_ids: Collection[int], *, force: bool) -> None:
    """Raise Refused if a node references one of the ledgers or, without ``force``, cannot be read and so might.

    Reads the nodes themselves, because rows of ``owners`` are derived data that an older version may have written.
    """
    problem = next((damage.reason for damage in iter_metadata_damage(txn)), None)
    for path, value in chain.from_iterable(iter_values(txn, prefix) for prefix in NAMING_PREFIXES):
        try:
            namings = read_namings(path, value)
        except errors.StoreError as error:
            problem = problem or error.message
            continue
        for kind, name, cursor, named in namings:
            for ledger_id in named:
                if ledger_id in ledger_ids:
                    _refuse(ledger_id, Owner(kind, name, cursor))
    if problem is not None and not force:
        raise errors.Refused(
            f"what references ledgers cannot be read whole: {problem}",
            hint="see: pulsar-admin store check; --force deletes them anyway",
        )


def _refuse(ledger_id: int, owner: Owner) -> NoReturn:
    raise errors.Refused(
        f"ledger {ledger_id} is referenced: {owner}",
        hint="to list unreferenced ledgers: pulsar-admin ledgers orphans",
        ledgerId=ledger_id,
    )


def _part(txn: Txn, ledger_id: int, indexes: Collection[int], *, force: bool) -> plan.ChangePart:
    if find_node(txn, ledger_path(ledger_id)) is None:
        raise errors.LedgerNotFound(
            f"ledger {ledger_id} has no metadata: there is nothing to delete",
            hint="ledgers without an owner: pulsar-admin ledgers orphans",
            ledgerId=ledger_id,
        )
    owners = all_owners(txn, ledger_id)
    if owners or ledger_id in indexes:
        _refuse(ledger_id, owners[0] if owners else Owner(OwnerKind.INDEX, ""))
    try:
        metadata = find_metadata(txn, ledger_id)
    except errors.MetadataCorrupt:
        metadata = None
    claims = {} if metadata is None else custom_text(metadata)
    if (claims.get("application") != "pulsar" or not claims.keys() & NAMING_KEYS) and not force:
        raise errors.Refused(
            f"the metadata of ledger {ledger_id} does not name a topic, cursor or schema: other programs may use it",
            hint="packages of functions and other programs also keep ledgers; --force deletes it anyway",
            ledgerId=ledger_id,
        )
    times = find_times(txn, ledger_id)
    extent = Extent() if times is None else Extent(times.sums.entries, times.sums.messages, times.sums.payload_bytes)
    before = {"state": "UNREADABLE" if metadata is None else metadata.state.name, "customMetadata": claims}
    return plan.DeletedPart(
        resource=f"ledger {ledger_id}", before=before, extent=extent, unreferenced_ledgers=(ledger_id,)
    )
