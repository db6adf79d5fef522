"""What a store knows of ledgers, for scans that see none: which topic each belongs to, and the topics' schemas."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from pulsar_admin.store.db.environment import Txn, open_store
from pulsar_admin.store.model.reader import open_reader
from pulsar_admin.store.model.schemas import TopicSchemas, read_schemas
from pulsar_admin.store.model.topics import read_topic, select_topics
from pulsar_admin.store.names import TopicName, TopicSelection, parse_topic


def topics_option(store: Path | str, topics: Sequence[str] = (), *, pattern: str | None = None) -> str:
    """Return the option ``topics`` of ``pulsar_entries``: JSON, ledger id → topic.

    Of the store at STORE all topics, or the TOPICS named, or those that match PATTERN. Raises StoreNotFound, TopicNotFound.
    """
    return json.dumps(read_topics(store, topics if pattern is None else (*topics, pattern))[0])


def read_topics(
    store: Path | str, names: Sequence[str] = (), *, schemas: bool = False
) -> tuple[dict[int, str], dict[str, TopicSchemas]]:
    """Return ledger id → topic, and with SCHEMAS topic → its schemas, of the store at STORE.

    NAMES are topics, globs or namespaces; none are all topics but the system's. Raises StoreNotFound, TopicNotFound.
    """
    with open_store(Path(store)) as opened, open_reader(opened) as reader:
        chosen = dict.fromkeys(topic for name in names or ("*",) for topic in named_topics(reader.txn, name))
        ledgers = {ledger: str(topic) for topic in chosen for ledger in read_topic(reader.txn, topic).ids}
        return ledgers, {str(topic): read_schemas(reader, topic) for topic in chosen} if schemas else {}


def named_topics(txn: Txn, name: str) -> tuple[TopicName, ...]:
    """Return the topics that NAME means: a topic, partitions of one, a glob, or a namespace. Raises TopicNotFound, InvalidValue."""
    if name.removeprefix("persistent://").count("/") == 1:
        name = f"{name}/*"
    if any(sign in name for sign in "*?["):
        return select_topics(txn, TopicSelection(pattern=name))
    return select_topics(txn, TopicSelection((parse_topic(name),)))
