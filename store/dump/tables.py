"""Dumped rows as Arrow batches, as JSON lines, and their days. Format: docs/formats/dump.md."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from pulsar_admin.store.aliases import Array
from pulsar_admin.store.codec.value import json_text as json_text_of
from pulsar_admin.store.codec.value import plain
from pulsar_admin.store.db.clocks import Clock
from pulsar_admin.store.dump.columns import HELPERS
from pulsar_admin.store.dump.json_lines import compact, json_lines
from pulsar_admin.store.kernels.messages import HEAD, read_heads
from pulsar_admin.store.kernels.records import HAS_BROKER_TIME, UNFRAMED
from pulsar_admin.store.kernels.sha1 import sha1_spans
from pulsar_admin.store.names import LONG_MIN
from pulsar_admin.store.scan.arrow import column, nullable, numbers_of, scalar, spans_array
from pulsar_admin.store.scan.places import EntryBatch

DAY_MS = 86_400_000
LINES = 1 << 12  # in one piece of JSON text
NO_DAY = LONG_MIN
PIECE_BYTES = (
    3 << 20
)  # of a payload in one piece of JSON text; a multiple of three, so that base64 goes on without padding
ENTRY_SCHEMA = pa.schema(
    [
        pa.field("ledgerId", pa.int64()),
        pa.field("entryId", pa.int64()),
        pa.field("publishTime", pa.int64()),
        pa.field("brokerTime", pa.int64()),
        pa.field("brokerIndex", pa.int64()),
        pa.field("messages", pa.int32()),
        pa.field("ledgerTimestamp", pa.int64()),
        pa.field("size", pa.int64()),
        pa.field("sha1", pa.binary(20)),
        pa.field("payload", pa.binary()),
    ]
)
"""Columns of level ``entries``. ``ledgerTimestamp``: when the ledger was closed, null while it is open."""

# Members of JSON that are left out while they say nothing, as in ``topics read``; three of them say it by a word or a number.
_NOTHING = {"encrypted": False, "nullValue": False, "chunks": 1}
_QUIET = {
    "brokerIndex",
    "deliverAtTime",
    "markerType",
    "transaction",
    "schemaVersion",
    "value",
    "valueError",
    *_NOTHING,
}


class EntryColumns(Struct, frozen=True):
    """Of level ``entries``: ``closed_ms`` of each ledger (None: it is open); ``stripped``: without broker entry metadata."""

    closed_ms: Mapping[int, int | None]
    stripped: bool = False


def entry_batch(entries: EntryBatch, columns_of: EntryColumns) -> pa.RecordBatch:
    """Return ENTRIES as rows of level ``entries``."""
    starts = entries.offsets + 4 + 32 + entries.rows["digest_bytes"]
    sizes = entries.offsets + 4 + entries.held - starts
    heads = np.zeros(len(entries), HEAD)
    read_heads(entries.data, starts, starts + sizes, heads)
    framed = entries.rows["flags"] & UNFRAMED == 0
    stamped, broker_index = entries.rows["flags"] & HAS_BROKER_TIME != 0, heads["broker_index"]
    if columns_of.stripped:
        fronts = np.where(framed, heads["front_end"], starts)
        starts, sizes = fronts, sizes - (fronts - starts)
        stamped, broker_index = np.zeros_like(stamped), np.full_like(broker_index, -1)
    times = [columns_of.closed_ms[ledger_id] for ledger_id in entries.ledger_ids.tolist()]
    columns = [
        column(entries.ledger_ids),
        column(entries.entry_ids),
        nullable(entries.rows["publish_ms"], framed),
        nullable(entries.rows["broker_ms"], stamped),
        nullable(broker_index, broker_index >= 0),
        column(entries.rows["messages"]),
        nullable(
            np.array([time or 0 for time in times], np.int64), np.array([time is not None for time in times], bool)
        ),
        column(sizes),
        pa.Array.from_buffers(
            pa.binary(20), len(entries), [None, pa.py_buffer(sha1_spans(entries.data, starts, sizes))]
        ),
        spans_array(entries.data, starts, sizes, pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=ENTRY_SCHEMA)


def days_of(batch: pa.RecordBatch, clock: Clock) -> Array:
    """Return the day (since 1970, UTC) of each row on CLOCK; NO_DAY where it has no time there."""
    publish, published = numbers_of(batch.column("publishTime"))
    broker, stamped = numbers_of(batch.column("brokerTime"))
    times, present = {
        "publish": (publish, published),
        "broker": (broker, stamped),
        "auto": (np.where(stamped, broker, publish), stamped | published),
    }[clock]
    found: Array = np.where(present, times // DAY_MS, NO_DAY)
    return found


def split_by_day(batch: pa.RecordBatch, clock: Clock) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield (day, its rows in order) of BATCH."""
    days = days_of(batch, clock)
    if len(days) and (days == days[0]).all():
        yield int(days[0]), batch
        return
    order = np.argsort(days, kind="stable")
    batch, days = batch.take(column(order)), days[order]
    edges = np.append(np.flatnonzero(np.append(True, days[1:] != days[:-1])), len(days))
    for start, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        yield int(days[start]), batch.slice(start, end - start)


def day_name(day: int) -> str:
    """Return YYYY-MM-DD; a day that no calendar holds stays ``day<n>``, rows without a time get Hive's name for null."""
    if day == NO_DAY:
        return "__HIVE_DEFAULT_PARTITION__"
    if not -719162 <= day <= 2932896:
        return f"day{day}"
    return str(np.datetime64(day, "D"))


def json_text(topic: str, batch: pa.RecordBatch) -> Iterator[str]:
    """Yield the rows of BATCH as ``topics read -o jsonl`` writes them: bytes in base64, digests in hex.

    A piece of text is lines; a line with a large payload comes in several pieces, of which only the last ends with a newline.
    """
    if "payload" not in batch.schema.names or not _large_values(batch.column("payload")):
        for start in range(0, len(batch), LINES):
            part = batch.slice(start, LINES)
            yield json_lines(
                topic,
                pa.RecordBatch.from_arrays(list(map(_spoken, part.schema, part.columns)), schema=part.schema),
                _QUIET,
            )
        return
    columns = json_columns(batch)
    for values in zip(*columns.values(), strict=True):
        row: dict[str, Any] = {"topic": topic}  # Any: JSON values
        row.update(
            (name, value)
            for name, value in zip(columns, values, strict=True)
            if value is not None or name not in _QUIET
        )
        if isinstance(row.get("payload"), pa.Buffer):
            yield from _pieces(row)
        else:
            yield compact(row) + "\n"


def known_text(batch: pa.RecordBatch) -> Iterator[str]:
    """Yield rows under another tool's names as JSON lines: bytes in base64, times as text, HELPERS left out."""
    shown = batch.drop_columns([helper.name for helper in HELPERS if helper.name in batch.schema.names])
    for start in range(0, len(shown), LINES):
        for row in shown.slice(start, LINES).to_pylist(maps_as_pydicts="lossy"):
            yield json_text_of(plain(row)) + "\n"


def whole_lines(pieces: Iterable[str]) -> Iterator[str]:
    """Put the pieces of ``json_text`` together to lines, without their newlines."""
    line: list[str] = []
    for piece in pieces:
        line.append(piece)
        if piece.endswith("\n"):
            yield from "".join(line)[:-1].split("\n")
            line.clear()


def _pieces(row: dict[str, Any]) -> Iterator[str]:  # Any: JSON values
    """Yield the line of ROW, whose payload is a buffer: as one text it would be in memory several times."""
    names = list(row)
    at = names.index("payload")
    yield compact({name: row[name] for name in names[:at]})[:-1] + ',"payload":"'
    payload = memoryview(row["payload"])
    for start in range(0, len(payload), PIECE_BYTES):
        yield b64encode(payload[start : start + PIECE_BYTES]).decode()
    rest = compact({name: row[name] for name in names[at + 1 :]})
    yield ('",' if len(rest) > len("{}") else '"') + rest[1:] + "\n"


def json_columns(batch: pa.RecordBatch) -> dict[str, list[Any]]:  # Any: JSON values
    """Return the columns of BATCH as values of JSON, None for what says nothing; large payloads as buffers, not yet base64."""
    return {field.name: _json_values(field, batch.column(index)) for index, field in enumerate(batch.schema)}


def _json_values(field: pa.Field, column: pa.Array) -> list[Any]:  # Any: JSON values
    column = _spoken(field, column)
    if field.name == "payload" and (large := _large_values(column)):
        return large
    values: list[Any] = column.to_pylist()
    if field.name == "sha1":
        return [None if value is None else value.hex() for value in values]
    if field.name == "value":
        return [None if value is None else json.loads(value) for value in values]
    if field.name == "properties":
        return [dict(value) for value in values]
    if pa.types.is_binary(field.type):
        return [None if value is None else b64encode(value).decode() for value in values]
    return values


def _spoken(field: pa.Field, column: pa.Array) -> pa.Array:
    """Return COLUMN with null for what says nothing."""
    if field.name not in _NOTHING:
        return column
    nothing = scalar(_NOTHING[field.name], field.type)
    return pc.if_else(pc.equal(column, nothing), scalar(None, field.type), column)


def _large_values(column: pa.Array) -> list[pa.Buffer]:
    """Return the values of a binary column without nulls, not copied; nothing when all of them are small."""
    if not len(column) or column.null_count:
        return []
    _, ends, data = column.buffers()
    offsets = np.frombuffer(ends, np.int32)[column.offset :][: len(column) + 1]
    if np.diff(offsets).max() <= PIECE_BYTES:
        return []
    return [data.slice(start, end - start) for start, end in pairwise(offsets.tolist())]
