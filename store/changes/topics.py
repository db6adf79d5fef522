"""Creating topics and partitions, with their properties, in the metadata as a broker does (Pulsar 4.0.8); and writing
their ledgers' publish times there (PIP-345, ``store annotate``).

Upstream: ``PersistentTopicsBase``, ``AdminResource.internalCreatePartitionedTopic``. A topic created here has no ledger yet: a broker
creates one when it loads the topic, as it does for its own partitions that no client has opened.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from typing import Any

from msgspec.structs import replace

from pulsar_admin.store.changes.cursors import info_of_state
from pulsar_admin.store.changes.plan import AnnotationPart, ChangeKind, ChangePart, Plan, check_new_path, put_value_step
from pulsar_admin.store.codec import managedledger
from pulsar_admin.store.codec.cursor import CursorState, encode_cursor_info
from pulsar_admin.store.codec.java import in_hash_map_order, java_integer
from pulsar_admin.store.codec.policies import PartitionedTopic, decode_partitioned_topic, encode_partitioned_topic
from pulsar_admin.store.db.audit_log import Step
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.files import iter_metadata_damage
from pulsar_admin.store.db.tree import find_node, iter_children, tree_key
from pulsar_admin.store.errors import (
    AlreadyExists,
    IndexCorrupt,
    InvalidValue,
    MetadataCorrupt,
    NamespaceNotFound,
    Refused,
    StoreError,
    TopicNotFound,
    check_choice,
)
from pulsar_admin.store.facts.vanished import VanishedTopic, find_bare_namespaces, find_vanished
from pulsar_admin.store.model.cursors import REPLICATED_PROPERTY, is_subscription, iter_cursor_names, read_cursor
from pulsar_admin.store.model.publish_times import BEGIN, Form, annotated_value
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.topics import (
    PARTITIONS_MAX,
    check_namespace,
    iter_topic_texts,
    list_partitions,
    read_partitioned,
    read_topic,
)
from pulsar_admin.store.model.transactions import ASSIGN
from pulsar_admin.store.names import LONG_MAX, PARTITION_SUFFIX, Position, TopicName, managed_ledger_of_path, shell_word
from pulsar_admin.store.policies.values import read_namespace_json
from pulsar_admin.store.wording import counted, listed, plural

Properties = Mapping[str, str]
_SHOWN = 10
"""Partitions and subscriptions that a warning names."""


# -- making -----------------------------------------------------------------------------------------------------------


def plan_topic(
    reader: EntryReader, name: TopicName, partitions: int | None, properties: Properties, now_ms: int
) -> Plan:
    """Plan creating a topic, partitioned unless ``partitions`` is None.

    Raises AlreadyExists, NamespaceNotFound, and InvalidValue for a partition of a topic that is not partitioned.
    """
    kind = ChangeKind("topics create", "create {place}")
    if partitions is not None:
        kind = ChangeKind("topics create-partitioned-topic", "create partitioned topic {place}")
    return warned_of_lost(reader, _plan_topic(reader.txn, kind, name, partitions, properties, now_ms))


def warned_of_lost(reader: EntryReader, plan: Plan) -> Plan:
    """Return ``plan`` with warnings about topics and namespaces that it creates although lost ones of that name left data."""
    warnings = lost_warnings(reader, {step.key for step in plan.steps if step.before is None})
    return replace(plan, warnings=(*plan.warnings, *warnings)) if warnings else plan


def lost_warnings(reader: EntryReader, created: Set[bytes]) -> tuple[str, ...]:
    """Return warnings about lost topics and namespaces among those whose nodes, with the keys ``created``, are created."""
    if not created:
        return ()
    try:
        found, namespaces = find_vanished(reader), find_bare_namespaces(reader.txn)
    except IndexCorrupt as error:  # of anything in the store: no reason to refuse this change
        return (f"whether data of a lost topic of that name remain is unknown: {error.message}",)
    vanished = [one for one in found.topics if _is_under(one.name, created)]
    is_damaged = next(iter_metadata_damage(reader.txn), None) is not None  # which topics vanished is unknown then
    names = {path: managed_ledger_of_path(path) for path in found.owners.values()}
    unknown = [
        path for path, name in names.items() if name and (is_damaged or name != name.whole) and _is_under(name, created)
    ]
    counts, damaged = Counter(found.owners.values()), ", as metadata is damaged" if is_damaged else ""
    remaining = tuple(
        f"{counted(counts[path], 'ledger')} of {path} {plural(counts[path], 'remains', 'remain')}: nothing shows whether it was "
        f"deleted{damaged}; see them with: pulsar-admin ledgers orphans"
        for path in sorted(unknown)[:_SHOWN]
    )
    bare = [one for one in namespaces if tree_key(one.name.policies_path) in created]
    lost = [f"{one.name} was lost, not deleted; what remains of it: {_remains(one)}" for one in vanished]
    lost += [f"the policies of {one.name} were lost, but not its {counted(one.topics, 'topic')}" for one in bare]
    if not lost:
        return remaining
    shown = [*remaining, *lost[:_SHOWN], *([f"{len(lost) - _SHOWN:,} more like it"] if len(lost) > _SHOWN else [])]
    ledgers = bare or any(one.ledger_ids for one in vanished)
    command = "pulsar-admin store recover --level A" if ledgers else "pulsar-admin ledgers orphans"
    return (*shown, f"to restore it instead of creating it anew: {command}")


def _is_under(lost: TopicName, created: Set[bytes]) -> bool:
    """Whether ``created`` has the node of the topic, of its partitioned or scalable topic, or of its namespace."""
    paths = (lost.path, lost.partitioned_path, lost.scalable_path, lost.namespace.policies_path)
    return not created.isdisjoint(map(tree_key, paths))


def _remains(lost: VanishedTopic) -> str:
    ledgers, subscriptions = len(lost.ledger_ids), len(lost.subscriptions)
    return " and ".join(
        ([f"{counted(ledgers, 'ledger')} with {counted(lost.entries, 'entry')}"] if ledgers else [])
        + ([counted(subscriptions, "subscription")] if subscriptions else [])
    )


def _plan_topic(
    txn: Txn, kind: ChangeKind, name: TopicName, partitions: int | None, properties: Properties, now_ms: int
) -> Plan:
    if partitions is not None:
        return _plan_partitioned(txn, kind, name, partitions, properties, now_ms)
    _check_new(txn, name)
    whole, found, suffix = name.local_name.rpartition(PARTITION_SUFFIX)
    # Brokers read the number after the suffix as Java does: also -1, and one with zeros before it.
    index = java_integer(suffix, LONG_MAX) if found else None
    if index is not None:
        base = TopicName(name.namespace, whole, name.domain)
        count = read_partitioned(txn, base).partitions
        if not count or index >= count:
            raise InvalidValue(
                f'Can\'t create topic {name.local_name} with "-partition-" followed by '
                + (
                    f"a number smaller than number of partition of partitioned topic {base.local_name}"
                    if count
                    else f"numeric value if there isn't a partitioned topic {base.local_name} created."
                ),
                value=str(name),
            )
    _check_room(txn, name, 1)
    kept = in_hash_map_order(properties)
    part = ChangePart(topic=str(name), after={"properties": kept})
    return Plan(kind, txn.id, (_topic_step(txn, name, kept, now_ms),), (part,))


def _check_room(txn: Txn, name: TopicName, added: int) -> None:
    """Raise Refused if the namespace would have more topics and partitions than its policies allow; system topics are free."""
    most = None
    with suppress(MetadataCorrupt):  # what is allowed is unknown then
        most = read_namespace_json(txn, name.namespace).get("max_topics_per_namespace")
    if not isinstance(most, int) or most <= 0 or name.is_system:
        return
    there = sum(1 for _ in iter_topic_texts(txn, name.namespace, system=False))
    if there + added > most:
        raise Refused(
            "Exceed maximum number of topics in namespace.",
            hint=f"{name.namespace} has {there} of {most}; allow more with: pulsar-admin namespaces set-max-topics-per-namespace"
            f" {shell_word(name.namespace)} --max-topics-per-namespace {there + added}",
            topic=str(name),
        )


def _plan_partitioned(
    txn: Txn, kind: ChangeKind, name: TopicName, partitions: int, properties: Properties, now_ms: int
) -> Plan:
    if partitions <= 0:
        raise InvalidValue("Number of partitions should be more than 0", value=partitions)
    if PARTITION_SUFFIX in name.local_name:
        raise InvalidValue(f"Partitioned Topic Name should not contain '{PARTITION_SUFFIX}'", value=str(name))
    _check_new(txn, name)
    there = list_partitions(txn, name)
    if there and there[-1].partition_index >= partitions:
        most = there[-1].partition_index
        raise Refused(
            f"The topic has a max partition index of {most}, the number of partitions must be at least {most + 1}",
            hint=f"create it with --partitions {most + 1}; or delete partitions: pulsar-admin topics delete {shell_word(there[-1])}",
            topic=str(name),
        )
    _check_room(txn, name, partitions)
    kept = in_hash_map_order(properties)
    record = encode_partitioned_topic(PartitionedTopic(partitions, False, kept))
    steps = [put_value_step(txn, name.partitioned_path, record, now_ms), *_missing(txn, name, partitions, now_ms)]
    after: dict[str, Any] = {"partitions": partitions, "properties": kept}  # Any: JSON
    if there:
        after["adopted"] = [one.partition_index for one in there]
    part = ChangePart(topic=str(name), after=after, warnings=tuple(_adopted(txn, there, partitions)))
    return Plan(kind, txn.id, tuple(steps), (part,))


def _adopted(txn: Txn, there: Sequence[TopicName], partitions: int) -> Iterator[str]:
    """Yield warnings about existing topics that become partitions of the new topic, with a broker's log message."""
    if not there:
        return
    entries, subscriptions = 0, set[str]()
    for name in there:
        subscriptions.update(filter(is_subscription, iter_cursor_names(txn, name)))
        with suppress(StoreError):  # what reads the topic reports it
            entries += read_topic(txn, name).number_of_entries
    names = (
        f"{plural(len(subscriptions), 'subscription')} {listed(sorted(subscriptions), _SHOWN)}"
        if subscriptions
        else "no subscription"
    )
    which = listed((one.partition_index for one in there), _SHOWN)
    yield (
        f"{plural(len(there), 'partition')} {which} {plural(len(there), 'exists', 'exist')} and "
        f"{plural(len(there), 'becomes', 'become')} part of the topic, with {counted(entries, 'entry')} and {names}"
    )
    new = [index for index in range(partitions) if index not in {one.partition_index for one in there}]
    if new:
        yield (
            f"{plural(len(new), 'partition')} {listed(new, _SHOWN)} {plural(len(new), 'is', 'are')} created empty, without subscriptions"
        )
    yield "a broker of 4.0 answers 409 (This topic already exists) while partitions are there; one of 4.2 does the same as this"


def plan_missing_partitions(reader: EntryReader, name: TopicName, now_ms: int) -> Plan:
    """Plan creating a topic's missing partitions; raises TopicNotFound unless it is partitioned."""
    txn = reader.txn
    count = read_partitioned(txn, name).partitions
    if not count:
        raise TopicNotFound(f"Topic {name} does not exist", hint="it is not a partitioned topic", topic=str(name))
    steps = tuple(_missing(txn, name, count, now_ms))
    part = ChangePart(topic=str(name), before={"partitions": count - len(steps)}, after={"partitions": count})
    kind = ChangeKind("topics create-missed-partitions", "create the missing partitions of {place}")
    return warned_of_lost(reader, Plan(kind, txn.id, steps, (part,)))


def plan_partitions(reader: EntryReader, name: TopicName, partitions: int, now_ms: int) -> Plan:
    """Plan adding partitions, which get the subscriptions of the first one; raises InvalidValue, Refused, AlreadyExists."""
    txn = reader.txn
    if partitions <= 0:
        raise InvalidValue("Number of partitions must be more than 0", value=partitions)
    node = None if name.is_partition else find_node(txn, name.partitioned_path)
    if node is None:
        raise Refused(f"Topic {name} is not the partitioned topic.", hint="name a partitioned one", topic=str(name))
    before = decode_partitioned_topic(node.value, node.path)
    if partitions < before.partitions:
        raise Refused(
            f"Desired partitions {partitions} can't be less than the current partitions {before.partitions}.",
            hint="keys would go to other partitions, and the messages of the last partitions would be lost",
            topic=str(name),
        )
    steps: list[Step] = []
    if partitions > before.partitions:
        record = encode_partitioned_topic(replace(before, partitions=partitions), node.value)
        steps = [put_value_step(txn, node.path, record, now_ms), *_missing(txn, name, partitions, now_ms)]
        new = [name.partition(index) for index in range(before.partitions, partitions)]
        steps += _copied_subscriptions(reader, name.partition(0), new, now_ms)
    part = ChangePart(topic=str(name), before={"partitions": before.partitions}, after={"partitions": partitions})
    kind = ChangeKind("topics update-partitioned-topic", "add partitions to {place}")
    return warned_of_lost(reader, Plan(kind, txn.id, tuple(steps), (part,)))


def plan_shadow(reader: EntryReader, name: TopicName, source: TopicName, properties: Properties, now_ms: int) -> Plan:
    """Plan creating a shadow topic with as many partitions as ``source``; raises TopicNotFound, AlreadyExists (PIP-180)."""
    partitions = read_partitioned(reader.txn, source).partitions
    if not partitions:
        read_topic(reader.txn, source)
    kept = {managedledger.SHADOW_SOURCE: str(source), **properties}
    kind = ChangeKind("topics create-shadow-topic", "create shadow topic of {place}")
    return warned_of_lost(reader, _plan_topic(reader.txn, kind, name, partitions or None, kept, now_ms))


def _check_new(txn: Txn, name: TopicName) -> None:
    check_new_path(name.path)
    try:
        check_namespace(txn, name.namespace)
    except NamespaceNotFound as error:
        raise NamespaceNotFound(f"Namespace not found: {error.message}", hint=error.hint, **error.context) from error
    record = read_partitioned(txn, name)
    if find_node(txn, name.path) is not None or record.partitions > 0:
        hint = f"see it with: pulsar-admin topics stats {shell_word(name)}"
        if record.partitions:
            hint = f"see it with: pulsar-admin topics partitioned-stats {shell_word(name)}"
        if record.deleted:
            hint = f"end its deletion, which began: pulsar-admin topics delete-partitioned-topic {shell_word(name)}"
        said = f", with {counted(record.partitions, 'partition')}" if record.partitions else ""
        raise AlreadyExists(
            f"This topic already exists: {name}{said}{' and marked as deleted' if record.deleted else ''}",
            hint=hint,
            topic=str(name),
        )


def _topic_step(txn: Txn, name: TopicName, properties: Properties, now_ms: int) -> Step:
    value = (
        managedledger.encode_managed_ledger(managedledger.ManagedLedger(properties=properties)) if properties else b""
    )
    return put_value_step(txn, name.path, value, now_ms)


def _missing(txn: Txn, name: TopicName, partitions: int, now_ms: int) -> Iterable[Step]:
    if partitions > PARTITIONS_MAX:
        raise InvalidValue(
            f"{partitions:,} partitions of {name}: expected at most {PARTITIONS_MAX:,}",
            hint="each is a topic of its own, with a metadata node",
            value=partitions,
        )
    for part in map(name.partition, range(partitions)):
        if find_node(txn, part.path) is None:
            yield _topic_step(txn, part, {}, now_ms)


def _copied_subscriptions(
    reader: EntryReader, source: TopicName, targets: Iterable[TopicName], now_ms: int
) -> list[Step]:
    """Return the steps that create the subscriptions of ``source`` on ``targets``, at their end, ``__compaction`` included."""
    if find_node(reader.txn, source.path) is None:
        return []
    topic = read_topic(reader.txn, source)
    steps = []
    for cursor_name in sorted(filter(is_subscription, iter_cursor_names(reader.txn, source))):
        cursor = read_cursor(reader.txn, reader, topic, cursor_name)
        properties = {key: 1 for key in cursor.state.properties if key == REPLICATED_PROPERTY}
        shown = cursor.info.shown_properties
        for target in targets:
            if next(iter_children(reader.txn, target.path), None) is None:  # one that was there already keeps its own
                # A topic without ledgers has no entry to name: a broker stores -1:-1 for it.
                state = CursorState(Position(-1, -1), properties=properties)
                value = encode_cursor_info(info_of_state(state, shown, now_ms))
                steps.append(put_value_step(reader.txn, target.cursor_path(cursor_name), value, now_ms))
    return steps


# -- properties -------------------------------------------------------------------------------------------------------


def read_properties(txn: Txn, name: TopicName) -> Properties:
    """Return the properties of a topic or partitioned topic in the order in which a broker returns them.

    Raises TopicNotFound.
    """
    partitioned = read_partitioned(txn, name)
    if partitioned.partitions:
        return partitioned.properties or {}
    return in_hash_map_order(read_topic(txn, name).managed.properties)


def plan_properties(txn: Txn, name: TopicName, given: Properties | Collection[str], now_ms: int) -> Plan:
    """Plan setting or removing properties of a topic and keeping the others; raises TopicNotFound, MetadataCorrupt."""
    verb = "update" if isinstance(given, Mapping) else "remove"
    kind = ChangeKind(f"topics {verb}-properties", f"{verb} properties of {{place}}")

    def change(found: Properties) -> dict[str, str]:
        if isinstance(given, Mapping):
            return {**found, **given}
        return {key: value for key, value in found.items() if key not in given}

    node = None if name.is_partition else find_node(txn, name.partitioned_path)
    if node is None:
        read_topic(txn, name)
        node = find_node(txn, name.path)
        assert node is not None
        managed = managedledger.decode_managed_ledger(node.value, node.path)
        before = dict(managed.properties)
        after = in_hash_map_order(change(before))
        value = managedledger.encode_managed_ledger(replace(managed, properties=after), node.value)
    else:
        record = decode_partitioned_topic(node.value, node.path)
        before = dict(record.properties or {})
        after = change(before)
        value = encode_partitioned_topic(replace(record, properties=after), node.value)
    steps = () if after == before else (put_value_step(txn, node.path, value, now_ms),)
    part = ChangePart(topic=str(name), before={"properties": before}, after={"properties": after})
    return Plan(kind, txn.id, steps, (part,))


def plan_coordinators(reader: EntryReader, count: int, now_ms: int) -> Plan:
    """Plan raising the number of transaction coordinators to ``count``; raises InvalidValue, Refused.

    They are the partitions, without nodes of their own, of the topic that assigns coordinators. Upstream:
    ``TransactionsBase.internalScaleTransactionCoordinators``.
    """
    if count <= 0:
        raise InvalidValue("Number of transaction coordinators must be more than 0", value=count)
    node = find_node(reader.txn, ASSIGN.partitioned_path)
    record = PartitionedTopic(0) if node is None else decode_partitioned_topic(node.value, node.path)
    if count <= record.partitions:
        raise Refused(
            "Number of transaction coordinators should be more than the current number of transaction coordinator",
            hint=f"there are {record.partitions}",
        )
    value = encode_partitioned_topic(replace(record, partitions=count), b"" if node is None else node.value)
    step = put_value_step(reader.txn, ASSIGN.partitioned_path, value, now_ms)
    part = ChangePart(topic=str(ASSIGN), before={"partitions": record.partitions}, after={"partitions": count})
    kind = ChangeKind("transactions scale-transactionCoordinators", "scale transactionCoordinators of {place}")
    return Plan(kind, reader.txn.id, (step,), (part,))


def plan_annotate(txn: Txn, names: Iterable[TopicName], form: Form, now_ms: int) -> Plan:
    """Plan writing the first and last publish time, in ``form``, of every closed ledger whose entries are all present.

    Raises InvalidValue, MetadataCorrupt, IndexCorrupt.
    """
    check_choice("form", form, Form)
    steps: list[Step] = []
    parts: list[ChangePart] = []
    untouched: set[int] = set()
    for name in names:
        node = find_node(txn, name.path)
        if node is None:  # only its subscriptions exist: no list to write to
            continue
        value = annotated_value(txn, node.path, node.value, form)
        before, after = (managedledger.decode_managed_ledger(one, node.path).ledgers for one in (node.value, value))
        changed = [info for info, old in zip(after, before, strict=True) if info != old]
        if changed:
            steps.append(put_value_step(txn, name.path, value, now_ms))
        else:
            untouched.add(len(parts))
        parts.append(
            AnnotationPart(
                topic=str(name),
                form=form,
                before={"annotatedLedgers": _count(before, form)},
                after={"annotatedLedgers": _count(after, form)},
                annotated=tuple(info.ledger_id for info in changed),
            )
        )
    kind = ChangeKind("store annotate", "annotate the ledgers of {place}")
    return Plan(kind, txn.id, tuple(steps), tuple(parts), untouched=frozenset(untouched))


def _count(infos: Iterable[managedledger.LedgerInfo], form: Form) -> int:
    return sum(
        (info.begin_publish_ms is not None) if form == "fields" else (BEGIN in info.properties) for info in infos
    )
