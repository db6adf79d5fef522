"""Results as JSON values: fields in snake_case become upstream's camelCase keys.

Keys lack the unit suffixes ``_ms`` and ``_bytes``: ``publish_time_ms`` is ``publishTime``, ``size_bytes`` is ``size``.
A field chooses another key with ``field(name="bytes")``. Of a class, ``JSON_HIDDEN`` names the fields that are left
out, ``JSON_OPTIONAL`` those that are left out if None (as are fields of a ``Sparse`` record with the default None),
``JSON_WITH`` those that are left out if another field is None; with ``JSON_OF_TOPIC`` its positions belong to the
partition that its ``topic`` is. Times stay integers of milliseconds.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping, Set
from contextlib import suppress
from enum import Enum
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from pulsar_admin.store.errors import InvalidValue, StoreError
from pulsar_admin.store.names import MessagePosition, NamespaceName, Position, TopicName, parse_topic
from pulsar_admin.store.wording import camel_case, json_keys, optional_fields
from pulsar_admin.typable import OWN_TEXT, is_carrying, own_text

if TYPE_CHECKING:
    from pulsar_admin.store.db.tree import Node

_HTML = {ord(char): f"\\u{ord(char):04x}" for char in "<>&='\u2028\u2029"}
"""What Gson escapes where it makes JSON that HTML may hold."""


def position_json(position: Position, partition_index: int = -1) -> dict[str, int]:
    """Return a position as Pulsar writes a message id, with ``batchIndex`` inside a batch or for a ``MessagePosition``."""
    value = {"ledgerId": position.ledger_id, "entryId": position.entry_id, "partitionIndex": partition_index}
    if position.batch_index >= 0 or isinstance(position, MessagePosition):
        value["batchIndex"] = position.batch_index
    return value


def redacted_json(record: object) -> Any:  # Any: JSON values
    """Return a record as JSON after ``redact_metadata``."""
    from pulsar_admin.store.model.redaction import redact_metadata

    return redact_metadata(to_json(record))


def _no_answer(kind: type) -> InvalidValue:
    return InvalidValue(
        f"a {kind.__name__} is not an answer",
        hint="give what its methods return, as plan.preview(); of messages what json_rows() yields, not rows() or records()",
    )


@functools.cache
def _fields(cls: type[Struct]) -> tuple[tuple[str, str, str], ...]:
    """Return (name, key, condition) of a class's fields: the field is left out if the field named ``condition`` is None."""
    if cls.__module__ == "pulsar_admin.api.plan":
        raise _no_answer(cls)
    shown_with = {name: name for name in optional_fields(cls)} | getattr(cls, "JSON_WITH", {})
    return tuple((name, key, shown_with.get(name, "")) for name, key in json_keys(cls).items())


@functools.cache
def _has_own_text(cls: type[Struct]) -> bool:
    return not OWN_TEXT.isdisjoint(json_keys(cls))


_LONG = 1 << 16  # letters
_PLAIN = frozenset({type(None), bool, int, float, str})


def to_json(value: object) -> Any:  # Any: a JSON value
    """Return a value as JSON: records, named tuples and mappings as objects, positions as message ids, bytes as hex."""
    if type(value) in _PLAIN or (isinstance(value, (bool, int, float, str)) and not isinstance(value, Enum)):
        return value
    if isinstance(value, Position):
        return position_json(value)
    if isinstance(value, (TopicName, NamespaceName, PurePath)):
        return str(value)
    if isinstance(value, Struct):
        kind = type(value)
        get: Any = own_text if is_carrying() and _has_own_text(kind) else getattr
        document = {
            key: item if type(item := get(value, name)) in _PLAIN else to_json(item)
            for name, key, other in _fields(kind)
            if not other or getattr(value, other) is not None
        }
        return (
            _in_partition(document, parse_topic(document["topic"]).partition_index)
            if hasattr(kind, "JSON_OF_TOPIC")
            else document
        )
    if isinstance(value, Enum):
        return to_json(value.value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value).hex()
    if isinstance(value, Mapping):
        return {str(key): item if type(item) in _PLAIN else to_json(item) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return {camel_case(name): to_json(own_text(value, name)) for name in value._fields}
    if isinstance(value, Set):
        return [to_json(item) for item in sorted(value)]
    if type(value).__module__.startswith("pulsar_admin.api."):
        raise _no_answer(type(value))
    if hasattr(value, "__iter__"):
        return [to_json(item) for item in value]
    return str(value)


def node_json(path: str, value: bytes | None) -> dict[str, Any] | None:  # Any: a JSON value
    """Return a metadata node's decoded value with secrets hidden, as hexadecimal if it cannot be decoded; None if empty."""
    from pulsar_admin.store.model.nodes import decode_structure
    from pulsar_admin.store.model.redaction import hide_secrets_in

    if value is None:
        return None
    try:
        structure, decoded = decode_structure(path, value)
    except StoreError as error:
        return {"structure": "unreadable", "error": error.message, "value": value.hex()}
    return {"structure": structure, "value": hide_secrets_in(_decoded_json(decoded))}


def stored_json(node: Node) -> dict[str, Any]:  # Any: a JSON value
    """Return a metadata node's stat (times in ms), the name of its structure and its value; raises MetadataCorrupt."""
    from pulsar_admin.store.model.nodes import decode_structure

    structure, value = decode_structure(node.path, node.value)
    return {
        "path": node.path,
        "version": node.stat.version,
        "created": node.stat.created_ms,
        "modified": node.stat.modified_ms,
        "bytes": len(node.value),
        "structure": structure,
        "value": _decoded_json(value),
    }


def _decoded_json(value: object) -> Any:  # Any: a JSON value
    """Return ``to_json`` of a decoded node, with enum names for numbers, text for custom metadata, and compact ranges."""
    from pulsar_admin.store.codec.cursor import CursorInfo
    from pulsar_admin.store.codec.ledgermetadata import LedgerMetadata
    from pulsar_admin.store.model.cursors import range_text
    from pulsar_admin.store.model.ledger_owners import custom_text

    document = to_json(value)
    if isinstance(value, LedgerMetadata):
        digest = None if value.digest_type is None else value.digest_type.name
        document |= {"state": value.state.name, "digestType": digest, "custom": custom_text(value)}
    elif isinstance(value, CursorInfo):
        mark_delete = None if value.mark_delete is None else str(value.mark_delete)
        document |= {"markDelete": mark_delete, "ranges": range_text(value.ranges)}
    return document


def partition_json(value: object, partition_index: int) -> Any:  # Any: a JSON value
    """Return ``to_json`` of a value whose positions belong to the given partition."""
    return _in_partition(to_json(value), partition_index)


def _in_partition(value: Any, partition_index: int) -> Any:  # Any: a JSON value
    if isinstance(value, list):
        return [_in_partition(item, partition_index) for item in value]
    if isinstance(value, dict):
        document = {key: _in_partition(item, partition_index) for key, item in value.items()}
        return document | {"partitionIndex": partition_index} if "partitionIndex" in document else document
    return value


def dump_json(value: object, *, pretty: bool) -> str:
    """Return a value (anything ``to_json`` takes) as JSON text; ``pretty`` is pulsar-admin's layout, two blanks and `` : ``."""
    plain = to_json(value)
    if pretty:
        out: list[str] = []
        _pretty(plain, "\n", out)
        return "".join(out)
    return json.dumps(plain, separators=(",", ":"), ensure_ascii=False)


def dump_gson(value: object) -> str:
    """Return a value as Gson writes it, pretty-printed and HTML-safe, without fields in ``JSON_OPTIONAL`` that are None."""
    return json.dumps(to_json(value), indent=2, ensure_ascii=False).translate(_HTML)


class _Number(str):
    """A JSON number in its original spelling."""


def parse_schema_text(text: str) -> Any:  # Any: JSON
    """Return the JSON in a text, keeping the spelling of numbers; the text itself if it is not JSON."""
    with suppress(ValueError, RecursionError):
        return json.loads(text, parse_float=_Number, parse_int=_Number)
    return text


def dump_schema(value: object, *, pretty: bool = True) -> str:
    """Return a value as pulsar-admin prints schemas: Gson's format without nulls, on one line unless ``pretty``."""
    return "".join(_gson_parts(value, "\n" if pretty else "", "  " if pretty else "", ": " if pretty else ":"))


def _gson_parts(value: Any, margin: str, step: str, colon: str) -> Iterator[str]:  # Any: JSON
    inner = margin + step
    if isinstance(value, Mapping):
        kept = [(f"{_gson_string(key)}{colon}", one) for key, one in value.items() if one is not None]
        opening, closing = "{", "}"
    elif isinstance(value, list):
        kept = [("", one) for one in value]
        opening, closing = "[", "]"
    else:
        yield str(value) if isinstance(value, _Number) else _gson_string(value)
        return
    yield opening
    for place, (name, one) in enumerate(kept):
        yield f"{',' if place else ''}{inner}{name}"
        yield from _gson_parts(one, inner, step, colon)
    yield f"{margin}{closing}" if kept else closing


def _gson_string(value: object) -> str:
    return json.dumps(value, ensure_ascii=False).translate(_HTML)


def message_id_json(position: Position, partition_index: int) -> dict[str, int]:
    """Return the id of an unbatched message as pulsar-admin prints ``MessageIdImpl``."""
    return {**position_json(position.entry, partition_index), "batchIndex": -1, "batchSize": 0}


def _pretty(value: Any, margin: str, out: list[str]) -> None:  # Any: a JSON value
    """Add a value as Jackson's ``DefaultPrettyPrinter`` writes it: ``[ 1, 2 ]``, ``{ }``.

    ``margin`` is a line break and blanks. Containers without containers inside are written by one call of the C
    encoder, whose separator contains the margin. Pieces are joined once: a text of megabytes is copied no more often.
    """
    if not isinstance(value, (dict, list)):
        out.append(_text(value))
        return
    if not value:
        out.append("{ }" if isinstance(value, dict) else "[ ]")
        return
    inner = margin + "  "
    if isinstance(value, dict):
        texts = (one for one in value.values() if type(one) is str)
        if _PLAIN.issuperset(map(type, value.values())) and not any(len(text) > _LONG for text in texts):
            out += f"{{{inner}", _flat(value, inner)[1:-1], f"{margin}}}"
            return
        before = f"{{{inner}"
        for key, item in value.items():
            out.append(f"{before}{_text(key)} : ")
            _pretty(item, inner, out)
            before = f",{inner}"
        out.append(f"{margin}}}")
        return
    if all(type(item) is dict and item and _PLAIN.issuperset(map(type, item.values())) for item in value):
        # No text has a line break in JSON, so this is where one object ends and the next begins.
        objects = _flat(value, inner)[2:-2].replace(f"}},{inner}{{", f"{margin}}}, {{{inner}")
        out += f"[ {{{inner}", objects, f"{margin}}} ]"
        return
    before = "[ "
    for item in value:
        out.append(before)
        _pretty(item, margin, out)
        before = ", "
    out.append(" ]")


def _flat(value: Any, margin: str) -> str:  # Any: a JSON value
    return _encoder("," + margin).encode(value)


@functools.cache
def _encoder(between: str) -> json.JSONEncoder:
    """Return a cached JSON encoder: ``json.dumps`` makes one per value, which takes as long as encoding it."""
    return json.JSONEncoder(separators=(between, " : "), ensure_ascii=False)


def _text(value: Any) -> str:  # Any: a JSON value without others in it
    if type(value) is int:
        return str(value)
    if type(value) is str and len(value) > _LONG and value.isascii():
        found = msgspec.json.encode(value)  # in a tenth of the time
        if len(found) == len(value) + 2:  # nothing is escaped
            return found.decode()
    return "null" if value is None else _encoder(",").encode(value)
