"""Creating and removing subscriptions, and their properties.

Upstream: ``PersistentTopicsBase.internalCreateSubscription``, ``PersistentTopic.unsubscribe``."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from msgspec import Struct
from msgspec.structs import replace

from pulsar_admin.store.changes.cursors import (
    CursorMove,
    check_removal,
    deletable_of,
    end_warnings,
    info_of_state,
    is_unreadable,
    plan_moves,
    state_json,
    unreadable_text,
)
from pulsar_admin.store.changes.plan import (
    ChangeKind,
    ChangePart,
    CursorPart,
    Plan,
    check_new_path,
    delete_step,
    put_value_step,
)
from pulsar_admin.store.changes.resets import check_position, start_state
from pulsar_admin.store.codec.cursor import INTERNAL_PROPERTY_PREFIX, CursorState, encode_cursor_info
from pulsar_admin.store.codec.strict_values import parse_integer
from pulsar_admin.store.db.audit_log import Step
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.tree import find_node, read_node
from pulsar_admin.store.errors import AlreadyExists, InvalidValue, MetadataCorrupt, Refused
from pulsar_admin.store.facts.backlogs import extent_of_messages
from pulsar_admin.store.model.broken_beside import unseen_position
from pulsar_admin.store.model.cursors import (
    COMPACTION_CURSOR,
    DEDUP_CURSOR,
    REPLICATED_PROPERTY,
    REPLICATOR_PREFIX,
    Cursor,
    is_replicated,
    is_subscription,
    iter_cursor_names,
    pending_intervals,
)
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.references import BUCKET_PREFIX
from pulsar_admin.store.model.topics import COMPACTED_LEDGER, Topic, find_pending_ack
from pulsar_admin.store.names import EARLIEST, LATEST, Position, TopicName, shell_word
from pulsar_admin.store.policies.retention import freed_ledgers, read_mark_deletes
from pulsar_admin.store.policies.table import policies_by_name
from pulsar_admin.store.policies.values import value_in_force


class NewSubscription(Struct, frozen=True):
    """A subscription to create: its start position, whether its position is replicated to other clusters, its properties."""

    name: str
    start: Position
    replicated: bool
    properties: Mapping[str, str]

    @property
    def long_properties(self) -> dict[str, int]:
        """The LongProperties that upstream stores with the cursor's position."""
        return {REPLICATED_PROPERTY: 1} if self.replicated else {}


def plan_create(reader: EntryReader, topics: Sequence[Topic], new: NewSubscription, now_ms: int) -> Plan:
    """Plan creating a subscription on topics, all or none.

    Raises AlreadyExists, LedgerNotFound, EntryNotFound (no entry at the start), Refused and InvalidValue as
    ``check_new``, and InvalidValue for a start other than earliest and latest on several topics.
    """
    check_new(new)
    if new.start not in (EARLIEST, LATEST) and len(topics) > 1:
        raise InvalidValue(f"position {new.start} is in one of {len(topics)} topics", hint="use earliest or latest")
    for topic in topics:
        check_position(topic, new.start, "")
    steps: list[Step] = []
    parts: list[ChangePart] = []
    for topic in topics:
        path = topic.name.cursor_path(new.name)
        check_new_path(path)
        if find_node(reader.txn, path) is not None:
            raise AlreadyExists(
                f"Subscription already exists for topic: {topic.name} has {new.name!r}",
                hint=f"move it with: pulsar-admin topics reset-cursor {shell_word(topic.name)} -s {shell_word(new.name)} -m POSITION",
                topic=str(topic.name),
                subscription=new.name,
            )
        _check_room(reader.txn, topic.name)
        state = start_state(reader, topic, new.start, exclude=False)
        state = replace(state, properties=new.long_properties)
        info = info_of_state(state, dict(new.properties), now_ms)
        steps.append(put_value_step(reader.txn, path, encode_cursor_info(info), now_ms))
        parts.append(creation_part(reader, topic, new, state))
    kind = ChangeKind("topics create-subscription", "create subscription {subscription} on {place}")
    return Plan(kind, reader.txn.id, tuple(steps), tuple(parts))


def _check_room(txn: Txn, name: TopicName) -> None:
    """Raise Refused if the topic has as many subscriptions as its policies or its namespace's allow."""
    most = None
    with suppress(MetadataCorrupt):  # what is allowed is unknown then
        most, _ = value_in_force(txn, name.base, policies_by_name()["max-subscriptions-per-topic"], {})
    if isinstance(most, int) and 0 < most <= sum(map(is_subscription, iter_cursor_names(txn, name))):
        raise Refused(f"Exceed the maximum number of subscriptions of the topic: {name}", topic=str(name))


def creation_part(reader: EntryReader, topic: Topic, new: NewSubscription, state: CursorState) -> ChangePart:
    """Return the report of creating a subscription that starts in ``state``."""
    extent = extent_of_messages(reader, topic, pending_intervals(topic, state), at_ends=True)
    after = {**state_json(topic, state), "replicated": new.replicated, "properties": dict(new.properties)}
    is_at_end = state.mark_delete == topic.last_confirmed
    warnings = end_warnings(reader.txn, topic, "stays in the backlog") if is_at_end else ()
    return ChangePart(topic=str(topic.name), subscription=new.name, after=after, extent=extent, warnings=warnings)


def check_new(new: NewSubscription) -> None:
    """Raise InvalidValue for an empty name or a reserved property, Refused for the name of one of the broker's own cursors."""
    if not new.name:
        raise InvalidValue("a subscription needs a name", value=new.name)
    if new.name in (COMPACTION_CURSOR, DEDUP_CURSOR) or new.name.startswith(REPLICATOR_PREFIX):
        raise Refused(f"{new.name!r} is a name of the broker's own cursors", hint="choose another", value=new.name)
    _check_properties(new.properties)


def _check_properties(properties: Mapping[str, str]) -> None:
    """Raise InvalidValue for a property whose name a broker reserves."""
    reserved = [key for key in properties if key.startswith(INTERNAL_PROPERTY_PREFIX)]
    if reserved:
        raise InvalidValue(
            f"property {reserved[0]!r} is the broker's own: names beginning with {INTERNAL_PROPERTY_PREFIX} are reserved",
            value=reserved[0],
        )


UNSUBSCRIBE = ChangeKind("topics unsubscribe", "remove subscription {subscription} from {place}")
UNSUBSCRIBE_NAMESPACE = ChangeKind("namespaces unsubscribe", UNSUBSCRIBE.words)


def plan_unsubscribe(
    reader: EntryReader, kind: ChangeKind, cursors: Iterable[tuple[Topic, Cursor]], now_ms: int, *, force: bool = False
) -> Plan:
    """Plan removing subscriptions, all or none; raises Refused for the broker's own cursors, unless ``force``."""
    steps: list[Step] = []
    parts: list[ChangePart] = []
    for topic, cursor in cursors:
        check_removal(cursor, force=force)
        steps.append(delete_step(reader.txn, topic.name.cursor_path(cursor.name)))
        parts.append(_removal_part(reader, topic, cursor, now_ms))
    return Plan(kind, reader.txn.id, tuple(steps), tuple(parts))


def _removal_part(reader: EntryReader, topic: Topic, cursor: Cursor, now_ms: int) -> ChangePart:
    before = read_mark_deletes(reader, topic)
    after = {name: position for name, position in before.items() if name != cursor.name}
    pending_ack = find_pending_ack(reader.txn, topic.name, cursor.name)
    warnings: tuple[str, ...] = ()
    if pending_ack is not None:
        warnings = (f"the topic {pending_ack} of its transactions stays; a broker would delete it too",)
    if is_unreadable(cursor):
        warnings += (unreadable_text(cursor),)
    if unseen := unseen_position(reader.txn, cursor):
        warnings += (unseen,)
    return CursorPart(
        topic=str(topic.name),
        subscription=cursor.name,
        before={} if is_unreadable(cursor) else state_json(topic, cursor.state),
        extent=extent_of_messages(reader, topic, pending_intervals(topic, cursor.state), at_ends=True),
        deletable=deletable_of(freed_ledgers(reader, topic, before, after, now_ms)),
        unreferenced_ledgers=own_ledgers(cursor),
        warnings=warnings,
    )


def own_ledgers(cursor: Cursor) -> tuple[int, ...]:
    """Return the ledgers that only the cursor references: its cursor ledger, delayed buckets and compacted ledger."""
    ledgers = [cursor.info.cursors_ledger_id] if cursor.info.is_in_ledger else []
    properties = cursor.info.cursor_properties
    buckets = (parse_integer(value) for key, value in properties.items() if key.startswith(BUCKET_PREFIX))
    ledgers += [ledger_id for ledger_id in buckets if ledger_id is not None]
    compacted = cursor.state.properties.get(COMPACTED_LEDGER)
    return (*ledgers, *([compacted] if compacted is not None else []))


# -- properties and replication ---------------------------------------------------------------------------------------


def plan_subscription_properties(
    reader: EntryReader, properties: Mapping[str, str], cursors: Iterable[tuple[Topic, Cursor]], now_ms: int
) -> Plan:
    """Plan replacing the properties of subscriptions, except the broker's own.

    Raises InvalidValue for a reserved name.
    """
    _check_properties(properties)
    steps, parts = [], []
    for topic, cursor in cursors:
        own = {k: v for k, v in cursor.info.cursor_properties.items() if k.startswith(INTERNAL_PROPERTY_PREFIX)}
        path = topic.name.cursor_path(cursor.name)
        info = replace(cursor.info, cursor_properties={**properties, **own})
        if info != cursor.info:
            value = encode_cursor_info(info, read_node(reader.txn, path).value)
            steps.append(put_value_step(reader.txn, path, value, now_ms))
        before = {"properties": cursor.info.shown_properties}
        after = {"properties": dict(properties)}
        parts.append(ChangePart(topic=str(topic.name), subscription=cursor.name, before=before, after=after))
    words = "update subscription properties of {subscription} of {place}"
    return Plan(ChangeKind("topics update-subscription-properties", words), reader.txn.id, tuple(steps), tuple(parts))


def plan_replicated(
    reader: EntryReader, replicated: bool, cursors: Iterable[tuple[Topic, Cursor]], now_ms: int
) -> Plan:
    """Plan enabling or disabling the replication of subscriptions' positions between clusters."""
    words = "set replicated subscription status of {subscription} of {place}"
    kind = ChangeKind("topics set-replicated-subscription-status", words)
    moves, parts = [], []
    for topic, cursor in cursors:
        others = {key: value for key, value in cursor.state.properties.items() if key != REPLICATED_PROPERTY}
        properties = {**others, **({REPLICATED_PROPERTY: 1} if replicated else {})}
        moves.append(CursorMove(topic, cursor, replace(cursor.state, properties=properties)))
        before, after = {"replicated": is_replicated(cursor)}, {"replicated": replicated}
        parts.append(ChangePart(topic=str(topic.name), subscription=cursor.name, before=before, after=after))
    return replace(plan_moves(reader, kind, moves, now_ms), parts=tuple(parts))
