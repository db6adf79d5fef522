"""Results as JSON values: dataclass fields in snake_case become upstream's camelCase keys.

The unit suffixes ``_ms`` and ``_bytes`` are Python's names, not JSON's: ``publish_time_ms`` is ``publishTime``,
``size_bytes`` is ``size``. A field says otherwise with ``field(metadata={"json": "bytes"})``; ``{"json": None}`` leaves
it out, ``{"json_optional": True}`` leaves it out while it is None. Times stay integers of milliseconds.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Mapping, Set
from enum import Enum
from pathlib import PurePath
from typing import Any

from store.names import NamespaceName, Position, TopicName


def camel_case(name: str) -> str:
    """Return the JSON key of the Python field NAME."""
    for suffix in ("_ms", "_bytes"):
        name = name.removesuffix(suffix) or name
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def position_json(position: Position, partition_index: int = -1) -> dict[str, int]:
    """Return POSITION as Pulsar writes a message id; ``batchIndex`` only inside a batch."""
    value = {"ledgerId": position.ledger_id, "entryId": position.entry_id, "partitionIndex": partition_index}
    if position.batch_index >= 0:
        value["batchIndex"] = position.batch_index
    return value


@functools.cache
def _fields(cls: type) -> tuple[tuple[str, str, bool], ...]:
    rows = []
    for field in dataclasses.fields(cls):
        key = field.metadata.get("json", camel_case(field.name))
        if key is not None:
            rows.append((field.name, key, bool(field.metadata.get("json_optional"))))
    return tuple(rows)


def json_keys(value: object) -> Set[str]:
    """Return the keys of VALUE's JSON object, optional ones too, without making it; nothing for what is no object."""
    if isinstance(value, Mapping):
        return {str(key) for key in value}
    if dataclasses.is_dataclass(value) and not isinstance(value, (type, Position, TopicName, NamespaceName)):
        return {key for _, key, _ in _fields(type(value))}
    return frozenset()


_PLAIN = frozenset({type(None), bool, int, float, str})


def to_json(value: object) -> Any:  # Any: a JSON value
    """Return VALUE as JSON values: dataclasses and mappings as objects, positions as message ids, bytes as hex."""
    if type(value) in _PLAIN or (isinstance(value, (bool, int, float, str)) and not isinstance(value, Enum)):
        return value
    if isinstance(value, Position):
        return position_json(value)
    if isinstance(value, (TopicName, NamespaceName, PurePath)):
        return str(value)
    if isinstance(value, Enum):
        return to_json(value.value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value).hex()
    if isinstance(value, Mapping):
        return {str(key): item if type(item) in _PLAIN else to_json(item) for key, item in value.items()}
    if isinstance(value, Set):
        return [to_json(item) for item in sorted(value)]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        pairs = [(key, getattr(value, name), optional) for name, key, optional in _fields(type(value))]
        return {
            key: item if type(item) in _PLAIN else to_json(item)
            for key, item, optional in pairs
            if not (optional and item is None)
        }
    if hasattr(value, "__iter__"):
        return [to_json(item) for item in value]
    return str(value)


def dump_json(value: object, *, pretty: bool) -> str:
    """Return VALUE (anything ``to_json`` takes) as JSON text; pretty is pulsar-admin's two blanks and `` : ``."""
    plain = to_json(value)
    if pretty:
        return json.dumps(plain, indent=2, separators=(",", " : "), ensure_ascii=False)
    return json.dumps(plain, separators=(",", ":"), ensure_ascii=False)
