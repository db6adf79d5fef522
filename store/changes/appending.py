"""What every appending to a topic shares: broker metadata that goes on."""

from __future__ import annotations

from store.codec.brokerentry import BrokerEntry, encode_broker_entry, strip
from store.codec.interceptors import Append, InterceptorChain
from store.codec.message import decode_message_entry, message_count, transaction_id
from store.db.tree import find_node
from store.errors import EntryCorrupt, EntryNotFound
from store.model.reader import EntryReader
from store.model.topics import Topic, read_topic
from store.names import TopicName


def append_payload(payload: bytes | memoryview, chain: InterceptorChain, now_ms: int) -> bytes:
    """Return the entry as a broker with CHAIN would append it; what is not a message gets no header there."""
    try:
        metadata = decode_message_entry(payload, "entry", verify=False).metadata
    except EntryCorrupt:
        return bytes(payload)
    # A batch of a transaction is appended as one message, see docs/formats/message.md.
    told = 1 if transaction_id(metadata) is not None else message_count(metadata)
    broker = chain.intercept(Append(now_ms, told))
    front = b"" if broker is None else encode_broker_entry(broker)
    return front + bytes(strip(memoryview(payload), "entry"))


def recover_chain(reader: EntryReader, name: TopicName, chain: InterceptorChain) -> None:
    """Let CHAIN go on where the topic in the store ends."""
    if find_node(reader.txn, name.path) is None:
        return
    topic = read_topic(reader.txn, name)
    chain.recover(topic.managed.properties, last_broker_entry(reader, topic))


def last_broker_entry(reader: EntryReader, topic: Topic) -> BrokerEntry | None:
    """Return the broker metadata of the last entry of TOPIC, None when it has none or cannot be read."""
    last = topic.last_confirmed
    if last.entry_id < 0:
        return None
    try:
        return decode_message_entry(reader.read(last.ledger_id, last.entry_id).payload, f"entry {last}").broker
    except (EntryNotFound, EntryCorrupt):
        return None
