"""What the real Spark connector read of the recorded worlds (tests/golden/README.md), and our rows as that file writes them."""

import gzip
import json
from base64 import b64encode
from collections.abc import Iterable
from datetime import date, datetime
from decimal import Decimal
from functools import cache
from hashlib import sha1
from typing import Any

import pyarrow as pa

from tests.worlds import GOLDEN

Recorded = dict[str, Any]  # options, schema and rows, or ids of messages alone, or an error


@cache
def recorded() -> Any:
    """``rows``: world → readings of whole topics; ``options``: readings of ``small`` with options."""
    return json.loads(gzip.decompress((GOLDEN / "pulsar-spark-3.4.1.json.gz").read_bytes()))


def readings(world: str) -> list[Recorded]:
    """Readings of the topics of WORLD that the connector could read to their end: it has no keys of encrypted ones."""
    found: list[Recorded] = recorded()["rows"][world]
    return [one for one in found if one.get("rows")]


def written(batches: Iterable[pa.RecordBatch]) -> list[list[Any]]:
    """The rows of BATCHES as the recording has them: digests of ``value`` where it is bytes, and of long texts."""
    return [
        [_value(row[name], digest=name == "value" and batch.schema.field(name).type == pa.binary()) for name in row]
        for batch in batches
        for row in batch.to_pylist(maps_as_pydicts="lossy")
    ]


def _value(value: Any, *, digest: bool = False) -> Any:
    if isinstance(value, bytes):
        return _digest(value) if digest else b64encode(value).decode()
    if isinstance(value, datetime):
        return value.replace(tzinfo=None).isoformat()
    if isinstance(value, date):
        return value.isoformat()
    if (isinstance(value, float) and (value != value or abs(value) == float("inf"))) or isinstance(value, Decimal):
        return str(value)
    if isinstance(value, dict):
        return {name: _value(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_value(part) for part in value]
    return _digest(value.encode()) if isinstance(value, str) and len(value) > 200 else value


def _digest(data: bytes) -> str:
    return f"sha1:{sha1(data, usedforsecurity=False).hexdigest()}"


def as_here(one: Recorded) -> list[list[Any]]:
    """The rows of a reading; a number that a message left out, which the connector's not nullable column has as 0, is null here."""
    fields = [field["name"] for field in one["schema"]["fields"]]
    rows: list[list[Any]] = one["rows"]
    if not one["options"].get("topic", "").endswith("/orders-json"):
        return rows
    left_out = [row[fields.index("id")] < 100 for row in rows]  # the first version has no qty
    return [
        [None if gone and name == "qty" else value for name, value in zip(fields, row, strict=True)]
        for gone, row in zip(left_out, rows, strict=True)
    ]
