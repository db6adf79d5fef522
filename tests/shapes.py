"""The recorded world ``shapes``: topics of every schema type, and what their producer sent (tests/golden/Produce.java)."""

from functools import cache
from pathlib import Path
from typing import Any

from pulsar_admin.store.model.schemas import TopicSchemas, read_schemas
from pulsar_admin.store.names import parse_topic
from tests.stores import imported, read_store
from tests.worlds import oracle, world

PREFIX = "persistent://acme/shapes/"
Row = dict[str, Any]  # as Produce.java wrote it


def logs() -> Path:
    """The folder of the world's entry logs."""
    return world("shapes") / "clean" / "bookkeeper" / "current"


def store() -> Path:
    """The world's store."""
    return imported("shapes", "clean")


def sent(topic: str | None = None) -> list[Row]:
    """What was sent to TOPIC, or to all: ``id`` (ledger, entry, batch index), ``value`` as JSON, ``why`` there is none."""
    rows: list[Row] = oracle("shapes")["sent"]
    return [row for row in rows if topic is None or row["topic"] == PREFIX + topic]


TOPICS = sorted({row["topic"].removeprefix(PREFIX) for row in sent()})


@cache
def schemas(topic: str) -> TopicSchemas:
    """The schemas of TOPIC, from the store."""
    return read_store(store(), lambda reader: read_schemas(reader, parse_topic(PREFIX + topic)))
