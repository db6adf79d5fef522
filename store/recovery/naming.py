"""Names of groups of ledgers: what entries say of topics by name, checked against what else is known of the group.

Upstream, Pulsar 4.0.8: ``TransactionMetadataEntry`` names the topics and subscriptions of a transaction, ``TransactionBufferSnapshot`` a
topic and a position of it, ``PulsarEvent`` topics of the namespace whose ``__change_events`` it is in, ``SchemaInfo`` its topic.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from msgspec import Struct

from pulsar_admin.store.codec.avro import avro_decoder
from pulsar_admin.store.codec.policyevent import GLOBAL_PREFIX, AvroSchema, builtin_schema, decode_policy_event
from pulsar_admin.store.codec.schema import SchemaEntry, decode_schema_entry
from pulsar_admin.store.codec.value import DECODE_ERRORS
from pulsar_admin.store.errors import StoreError
from pulsar_admin.store.model.ledgers import iter_entry_ids
from pulsar_admin.store.model.messages import Message, MessageReader, ReadOptions
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.transactions import log_topic
from pulsar_admin.store.names import EVENTS, NamespaceName, Position, TopicName, parse_topic
from pulsar_admin.store.recovery.chains import Chains, Group, find_subscriptions
from pulsar_admin.store.recovery.contents import MESSAGES, PENDING_ACKS, SCHEMA, TRANSACTIONS
from pulsar_admin.store.recovery.evidence import LedgerEvidence
from pulsar_admin.store.wording import counted

SNAPSHOTS = "__transaction_buffer_snapshot"
_PERSISTENT = "persistent://"
_EVENTS_LIMIT = 10_000
_VALUES = 20
"""Messages of a group that a schema is tried on."""


LOST_AND_FOUND = NamespaceName("lost-and-found", "ledgers")
"""Where topics are that nothing names."""


class Naming(Struct, frozen=True):
    """The name of a group, and what says so."""

    topic: TopicName
    witnesses: tuple[str, ...]


def name_of(group: Group, names: Mapping[Group, Naming], taken: Container[TopicName] = ()) -> TopicName:
    """Return the name of GROUP: the known one, else what entries say unless that is TAKEN, else one that says nothing."""
    if group.topic:
        return parse_topic(group.topic)
    naming = names.get(group)
    if naming is not None and naming.topic not in taken:
        return naming.topic
    return TopicName(LOST_AND_FOUND, f"from-{group.ledger_ids[0]}")


class _Names(Struct):
    """What names groups so far; of two names for a group, or two groups for a name, none is taken."""

    by_ledger: Mapping[int, Group]
    said: dict[Group, dict[TopicName, list[str]]]

    def say(self, group: Group, topic: str, witness: str) -> None:
        try:
            name = parse_topic(topic)
        except StoreError:
            return
        self.said.setdefault(group, {}).setdefault(name, []).append(witness)

    def taken(self) -> dict[Group, Naming]:
        """Return the groups that two witnesses name, and nothing else does."""
        one = {group: next(iter(names.items())) for group, names in self.said.items() if len(names) == 1}
        count: dict[TopicName, int] = defaultdict(int)
        for name, _ in one.values():
            count[name] += 1
        return {
            group: Naming(name, tuple(dict.fromkeys(said)))
            for group, (name, said) in one.items()
            if count[name] == 1 and len(dict.fromkeys(said)) > 1
        }


def find_names(reader: EntryReader, evidence: Iterable[LedgerEvidence], chains: Chains) -> dict[Group, Naming]:
    """Return the names of those GROUPS that the entries name."""
    found = {one.ledger_id: one for one in evidence}
    names = _Names({ledger: group for group in chains.groups for ledger in group.ledger_ids}, {})
    _name_coordinators(names, found, chains)
    _name_by_transactions(names, found, chains)
    _name_pending_acks(names, found, chains)
    schemas = _read_schemas(reader, found.values())
    for group in chains.groups:
        if group.kind == MESSAGES:
            _name_by_keys(names, group, _Sample(reader, group), schemas)
    _name_by_schema(names, reader, chains, found, schemas)
    return names.taken()


# -- transactions -----------------------------------------------------------------------------------------------------


def _name_coordinators(names: _Names, found: Mapping[int, LedgerEvidence], chains: Chains) -> None:
    for group in chains.groups:
        if group.kind == TRANSACTIONS:
            coordinators = {most for ledger in group.ledger_ids for most, _ in found[ledger].txns}
            count = sum(len(found[ledger].txns) for ledger in group.ledger_ids)
            for coordinator in coordinators if len(coordinators) == 1 else ():
                name = str(log_topic(coordinator))
                names.say(group, name, "its entries are steps of transactions")
                names.say(group, name, f"{counted(count, 'transaction')} are of coordinator {coordinator}")


def _name_by_transactions(names: _Names, found: Mapping[int, LedgerEvidence], chains: Chains) -> None:
    """Name groups by the one topic that coordinators say all of their transactions wrote to."""
    said = _said_of_transactions(found.values())
    for group in chains.groups:
        if group.kind != MESSAGES:
            continue
        known = [
            (txn, topics)
            for ledger in group.ledger_ids
            for txn in found[ledger].txns
            if (topics := frozenset(text for text in said.get(txn, ()) if "\0" not in text))
        ]
        common = frozenset.intersection(*(topics for _, topics in known)) if known else frozenset()
        for topic in common if len(common) == 1 else ():
            for txn, _ in known[:2]:
                names.say(group, topic, f"transaction {txn} wrote to it, and is in these ledgers")


def _said_of_transactions(evidence: Iterable[LedgerEvidence]) -> dict[tuple[int, int], set[str]]:
    said: dict[tuple[int, int], set[str]] = defaultdict(set)
    for one in evidence:
        for txn, texts in one.txns.items() if one.kind == TRANSACTIONS else ():
            said[txn].update(texts)
    return said


def _name_pending_acks(names: _Names, found: Mapping[int, LedgerEvidence], chains: Chains) -> None:
    logs = [one for one in found.values() if one.kind == TRANSACTIONS]
    for group in chains.groups:
        if group.kind != PENDING_ACKS:
            continue
        common = [frozenset(find_subscriptions(found[ledger], logs)) for ledger in group.ledger_ids]
        both = frozenset.intersection(*common)
        targets = {names.by_ledger.get(point) for ledger in group.ledger_ids for point in found[ledger].points}
        if len(both) != 1 or len(targets) != 1:
            continue
        topic, _, subscription = next(iter(both)).partition("\0")
        target = targets.pop()
        try:
            own = str(parse_topic(topic).pending_ack(subscription))
        except StoreError:
            continue
        names.say(group, own, f"its transactions acknowledge on {subscription} of {topic} alone")
        if target is not None:
            names.say(group, own, f"it names positions of ledger {target.ledger_ids[0]} and those that follow")
            names.say(target, topic, f"transactions acknowledge on {subscription} of {topic}")
            names.say(target, topic, f"ledger {group.ledger_ids[0]} of their acknowledgements names positions in it")


# -- messages ---------------------------------------------------------------------------------------------------------


class _Schema(Struct, frozen=True):
    topic: str
    entry: SchemaEntry


def _read_schemas(reader: EntryReader, evidence: Iterable[LedgerEvidence]) -> list[_Schema]:
    found = []
    for one in evidence:
        for entry_id in iter_entry_ids(reader.txn, one.ledger_id) if one.kind == SCHEMA else ():
            try:
                entry = decode_schema_entry(reader.read(one.ledger_id, entry_id).payload, f"{one.ledger_id}:{entry_id}")
            except StoreError:
                continue
            if not entry.deleted:
                found.append(_Schema(f"{_PERSISTENT}{entry.schema_id}", entry))
    return found


class _Sample(Struct, frozen=True):
    """The messages of a group, as far as they are asked for."""

    reader: EntryReader
    group: Group

    def messages(self, limit: int) -> Iterator[Message]:
        positions = (
            Position(ledger, entry)
            for ledger in self.group.ledger_ids
            for entry in iter_entry_ids(self.reader.txn, ledger)
        )
        reader = MessageReader(self.reader, ReadOptions(committed=False, whole=False))
        return islice(reader.iter_messages(islice(positions, limit)), limit)


def _name_by_keys(names: _Names, group: Group, sample: _Sample, schemas: list[_Schema]) -> None:
    """Name topics of the broker's own, whose keys are names of topics: policies, and snapshots of transaction buffers."""
    first = next(sample.messages(_VALUES), None)
    key = "" if first is None or first.encrypted else (first.key or "")
    if not key.removeprefix(GLOBAL_PREFIX).startswith(_PERSISTENT):
        return
    namespaces: set[NamespaceName] = set()
    kinds: set[str] = set()
    snapshot = next((one.entry.definition for one in schemas if one.topic.endswith("/" + SNAPSHOTS)), None)
    for message in sample.messages(_EVENTS_LIMIT):
        kind, topic = _read_own(message, snapshot)
        if topic is None:
            return
        kinds |= {kind} - {""}
        namespaces.add(topic.topic.namespace)
        if topic.position is not None and topic.position.ledger_id in names.by_ledger:
            target = names.by_ledger[topic.position.ledger_id]
            names.say(target, str(topic.topic), f"snapshot {message.position} of its transaction buffer has its name")
            names.say(target, str(topic.topic), f"snapshot {message.position} names position {topic.position} in it")
    if len(namespaces) == 1 and len(kinds) == 1:
        name = str(TopicName(namespaces.pop(), kinds.pop()))
        names.say(group, name, "its keys are names of topics of the namespace")
        names.say(group, name, "its values say the same names")


class _Own(Struct, frozen=True):
    topic: TopicName
    position: Position | None = None


def _read_own(message: Message, snapshot: bytes | None) -> tuple[str, _Own | None]:
    """Return (what topic a message of the broker's own belongs into, what it names); None where key and value differ."""
    try:
        topic = parse_topic((message.key or "").removeprefix(GLOBAL_PREFIX))
        if message.null_value or not len(message.payload):
            return "", _Own(topic)  # deleted: either may be
        if snapshot is not None:
            record = avro_decoder(snapshot)(bytes(message.payload))
            if isinstance(record, dict) and record.get("topicName") == message.key:
                at = Position(int(record["maxReadPositionLedgerId"]), int(record["maxReadPositionEntryId"]))
                return SNAPSHOTS, _Own(topic, at)
    except (*DECODE_ERRORS, StoreError, KeyError, TypeError):
        pass
    try:
        event = decode_policy_event(message.payload, AvroSchema(builtin_schema()), "event")
        topic = parse_topic((message.key or "").removeprefix(GLOBAL_PREFIX))
    except StoreError:
        return "", None
    return EVENTS, _Own(topic) if event is not None and event.topic.base == topic.base else None


def _name_by_schema(
    names: _Names,
    reader: EntryReader,
    chains: Chains,
    found: Mapping[int, LedgerEvidence],
    schemas: list[_Schema],
) -> None:
    """Name groups by the one schema that their values fit, where no other group fits it."""
    own = [one for one in schemas if not one.topic.endswith(("/" + EVENTS, "/" + SNAPSHOTS))]
    decoders = {one.topic: made for one in own if (made := _decoder_of(one.entry)) is not None}
    fits: dict[Group, set[str]] = {}
    for group in chains.groups:
        if group.kind != MESSAGES or all(found[ledger].schema_version < 0 for ledger in group.ledger_ids):
            continue
        values = [bytes(one.payload) for one in _Sample(reader, group).messages(_VALUES) if not one.encrypted]
        fits[group] = {topic for topic, fit in decoders.items() if values and all(fit(value) for value in values)}
    for group, topics in fits.items():
        for topic in topics if len(topics) == 1 else ():
            if sum(topic in others for others in fits.values()) == 1:
                names.say(group, topic, "its values fit the schema of this topic and no other one")
                names.say(group, topic, "no other ledgers have values of this schema")


def _decoder_of(entry: SchemaEntry) -> Callable[[bytes], bool] | None:
    """Return what says whether a value is of the schema; None for a kind of schema that nearly every value fits."""
    import json

    if entry.type_name == "AVRO":
        try:
            decode = avro_decoder(entry.definition)
        except (*DECODE_ERRORS, StoreError):
            return None
        return lambda value: _decodes(decode, value)
    if entry.type_name == "JSON":
        try:
            fields = {field["name"] for field in json.loads(entry.definition)["fields"]}
        except (ValueError, KeyError, TypeError):
            return None
        return lambda value: _has_fields(value, fields)
    return None


def _decodes(decode: Callable[[bytes], Any], value: bytes) -> bool:  # Any: by the schema
    try:
        decode(value)
    except (*DECODE_ERRORS, StoreError):
        return False
    return True


def _has_fields(value: bytes, fields: set[str]) -> bool:
    import json

    try:
        record = json.loads(value)
    except (ValueError, RecursionError):
        return False
    return isinstance(record, dict) and bool(record) and set(record) <= fields
