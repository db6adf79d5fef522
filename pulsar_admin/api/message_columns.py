"""The columns of messages as callers see them. Imports pyarrow."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from pulsar_admin.jsonify import camel_case
from pulsar_admin.store.db.delayed_entries import DelayedRows
from pulsar_admin.store.delayed.backlog import is_within
from pulsar_admin.store.model.extent import Intervals
from pulsar_admin.store.model.topics import Topic
from pulsar_admin.store.names import TopicName
from pulsar_admin.store.scan import messages
from pulsar_admin.store.scan.message_rows import timestamps
from pulsar_admin.store.scan.schemas import TIME

_TIMES = {"publish_time", "broker_time", "event_time", "deliver_at_time"}
_TEXTS = {"topic", "producer", "value", "value_error"}


def schema_of(columns: Sequence[str]) -> pa.Schema:
    """Return the schema of COLUMNS."""
    return pa.schema([(name, _type_of(name)) for name in columns])


def _type_of(name: str) -> pa.DataType:
    if name in _TIMES:
        return TIME
    return pa.string() if name in _TEXTS else messages.schema_of((camel_case(name),)).types[0]


def shown(batch: pa.RecordBatch, topic: TopicName, schema: pa.Schema) -> pa.RecordBatch:
    """Return the messages in BATCH, of TOPIC, with the columns of SCHEMA."""
    columns = []
    for field in schema:
        if field.name == "topic":
            columns.append(pa.repeat(pa.scalar(str(topic), field.type), len(batch)))
            continue
        found = batch.column(camel_case(field.name))
        columns.append(timestamps(found) if field.name in _TIMES else found.cast(field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def waiting(batch: pa.RecordBatch, topic: Topic, intervals: Intervals) -> pa.RecordBatch:
    """Return the rows of BATCH whose entries lie in INTERVALS of ranks."""
    ledgers, entries = (batch.column(name).to_numpy() for name in ("ledgerId", "entryId"))
    return batch.filter(pa.array(is_within(topic, DelayedRows(entries, ledgers, entries), intervals)))
