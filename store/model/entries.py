"""Looking at single entries of a topic: the last one's id, one by its id, the n-th from either end."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from pulsar_admin.store.codec.brokerentry import MAGIC as BROKER_MAGIC
from pulsar_admin.store.codec.message import CHECKSUM_MAGIC, decode_message_entry, is_batch, message_count
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.errors import EntryNotFound, NothingMatches, StoreError
from pulsar_admin.store.model.messages import ENTRY_ERRORS, Message, MessageReader, explode, located, opened
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.topics import Topic, read_topic
from pulsar_admin.store.names import Position, TopicName, shell_word
from pulsar_admin.store.wording import counted


class LastMessageId(Struct, frozen=True):
    """A message id as upstream's REST interface writes it; a batch's has two keys more."""

    JSON_OPTIONAL = (
        "outstanding_acks_in_same_batch",
        "original_batch_size",
    )

    ledger_id: int
    entry_id: int
    partition_index: int
    batch_index: int = -1
    batch_size: int = 0
    outstanding_acks_in_same_batch: int | None = None
    original_batch_size: int | None = None


def read_last_id(reader: EntryReader, name: TopicName, problems: list[StoreError]) -> LastMessageId:
    """Return the id of the last message of a topic: entry −1 when it has none; raises TopicNotFound.

    A last entry that cannot be read is reported in PROBLEMS: then whether it is a batch stays unknown.
    """
    position = read_topic(reader.txn, name).last_confirmed
    plain = LastMessageId(position.ledger_id, position.entry_id, name.partition_index)
    if position.entry_id < 0:
        return plain
    try:
        payload = reader.read(position.ledger_id, position.entry_id).payload
        # Entries of transaction logs are not messages.
        if bytes(payload[:2]) not in (BROKER_MAGIC, CHECKSUM_MAGIC):
            return plain
        metadata = decode_message_entry(payload, f"entry {position}").metadata
    except ENTRY_ERRORS as error:
        problems.append(located(reader, position, error))
        return plain
    if not is_batch(metadata):
        return plain
    last = message_count(metadata) - 1
    return LastMessageId(position.ledger_id, position.entry_id, name.partition_index, last, 0, 0, 0)


def read_message(reader: EntryReader, position: Position) -> Message:
    """Return the first message of the entry at POSITION; raises what is wrong with it, naming file and offset, or EncryptedPayload.

    Raises NothingMatches for a batch out of which compaction took every message.
    """
    try:
        header = opened(reader, MessageReader(reader).read_header(position), position)
        message = next(explode(header, position), None)
    except ENTRY_ERRORS as error:
        raise located(reader, position, error) from error
    if message is None:
        raise NothingMatches(f"entry {position} holds no message: compaction took all of them out")
    return message


def as_admin_shows(reader: EntryReader, message: Message) -> Message:
    """Return MESSAGE with what upstream's admin client (``TopicsImpl``, 4.0.8) shows of it.

    Of a message in a batch that is the event time and the index of the entry, and one map of properties for all of them: the
    entry's, those of every message, and two of the REST interface.
    """
    position = message.position.entry
    if not message.batch_size or message.encrypted:
        return message
    shown = reader.txn.memo.get("as admin shows")
    if shown is None or shown[0] != position:
        shown = reader.txn.memo["as admin shows"] = position, _shown_of_batch(reader, position)
    return replace(message, **shown[1])


def _shown_of_batch(reader: EntryReader, position: Position) -> dict[str, object]:
    entry = reader.read(position.ledger_id, position.entry_id)
    header = opened(reader, decode_message_entry(entry.payload, f"entry {position}"), position)
    found = {pair.key: pair.value for pair in header.metadata.properties}
    for each in explode(header, position):
        found |= each.properties
    found |= {
        "X-Pulsar-batch-size": str(len(entry.payload) - header.metadata.ByteSize()),
        "X-Pulsar-num-batch-message": str(header.metadata.num_messages_in_batch),
    }
    index = header.broker.index if header.broker else None
    return {"event_ms": header.metadata.event_time, "broker_index": index, "properties": dict(sorted(found.items()))}


def find_topic_of(txn: Txn, names: Iterable[TopicName], position: Position) -> TopicName:
    """Return the one of the topics NAMES that lists the entry at POSITION; raises EntryNotFound in upstream's words."""
    name = next((name for name in names if read_topic(txn, name).is_entry(position)), None)
    if name is None:
        raise EntryNotFound(
            f"Cannot find any messages based on ledgerId:{position.ledger_id} entryId:{position.entry_id}",
            hint="list a topic's ledgers with: pulsar-admin topics stats-internal TOPIC",
            ledgerId=position.ledger_id,
            entryId=position.entry_id,
        )
    return name


def nth_position(topic: Topic, number: int, *, from_end: bool) -> Position:
    """Return the NUMBER-th entry (1-based) from either end, markers counted; raises NothingMatches beyond the other one."""
    total = topic.number_of_entries
    number = max(number, 1)
    if number > total:
        raise NothingMatches(
            "Could not examine messages due to the total message is zero"
            if not total
            else f"Could not examine message {number}: {topic.name} has {counted(total, 'entry')}",
            hint=f"see: pulsar-admin topics stats-internal {shell_word(topic.name)}",
            topic=str(topic.name),
        )
    return topic.at_rank(total - number if from_end else number - 1)
