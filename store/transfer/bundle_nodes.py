"""Metadata nodes as an incident bundle has them: values made again from what is known of them, with pseudonyms for names.

What is not decoded is not copied: of fields that this toolkit does not know only their numbers are there, of trees that it does not know
the nodes without their values; other nodes of which it knows nothing are left out. A value that cannot be decoded becomes one that cannot
be decoded either.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Mapping

from msgspec.structs import replace

from pulsar_admin.store.codec.bookie import Cookie, decode_cookie, encode_cookie
from pulsar_admin.store.codec.buffer import encode_varint
from pulsar_admin.store.codec.cursor import decode_cursor_info, encode_cursor_info
from pulsar_admin.store.codec.ledgermetadata import (
    COOKIES,
    LedgerMetadata,
    Segment,
    decode_ledger_metadata,
    encode_ledger_metadata,
)
from pulsar_admin.store.codec.managedledger import LedgerInfo, decode_managed_ledger, encode_managed_ledger
from pulsar_admin.store.codec.schema import IndexEntry, decode_schema_locator, encode_schema_locator
from pulsar_admin.store.codec.wrapper import MAGIC
from pulsar_admin.store.db.tree import Node
from pulsar_admin.store.errors import StoreError, Unsupported
from pulsar_admin.store.facts.trees import WRITERS, unknown_tree_of
from pulsar_admin.store.model.nodes import structure_of, unknown_in
from pulsar_admin.store.model.publish_times import BEGIN, END
from pulsar_admin.store.model.redaction import Pseudonyms

UNDECODABLE = b"\xff\xff\xff"
_ROOTS = re.compile(
    "/(managed-ledgers|schemas|ledgers|admin/(policies|local-policies|partitioned-topics|clusters))(/.*)?", re.DOTALL
)
_LEDGERS = re.compile(
    r"/ledgers(/[0-9]{1,19}|/L[0-9]{1,19}|/idgen|/idgen-long|/HOB[0-9]{1,10}|/ID-[0-9]{1,19}|/available|/cookies|/readonly)*"
)
_LAYOUT = "/ledgers/LAYOUT"
_NUMBER = re.compile("-?[0-9]{1,19}")
_FIELD = re.compile(r" field ([0-9]+)$")
_WRAPPER = struct.Struct(">2sI")
_LEDGER_METADATA = b"BookieMetadataFormatVersion\t3\n"
_LAST = 0x80  # no byte of a varint but its last is smaller
_BUCKET = re.compile(r"#pulsar\.internal\.delayed\.bucket_[0-9_]{1,60}")


def bundled_node(node: Node, names: Pseudonyms) -> Node | None:
    """Return NODE as it goes into a bundle, None where it does not: of trees that are not known only that they are there."""
    if unknown_tree_of(node.path):
        return Node(bundled_path(node.path, names) or "", node.stat, b"")
    if _ROOTS.fullmatch(node.path) is None:
        return None
    path = bundled_path(node.path, names)
    return None if path is None else Node(path, node.stat, _value(node, names))


def bundled_path(path: str, names: Pseudonyms) -> str | None:
    """Return what stands for the PATH of a node, None for one below /ledgers that says nothing."""
    if path.startswith(f"{COOKIES}/"):
        return f"{COOKIES}/" + names.whole(path.removeprefix(f"{COOKIES}/"))
    if path == "/ledgers" or path.startswith("/ledgers/"):
        return path if path == _LAYOUT or _LEDGERS.fullmatch(path) else None
    root, _, rest = path.removeprefix("/").partition("/")
    if unknown_tree_of(path) and root not in WRITERS:
        root = names.component(root)
    if root == "admin":
        below, _, rest = rest.partition("/")
        root = f"{root}/{below}"
    return f"/{root}/{names.path(rest)}" if rest else f"/{root}"


def _value(node: Node, names: Pseudonyms) -> bytes:
    structure = structure_of(node.path, node.value)
    if structure is None:
        return b""
    try:
        made = _MAKERS.get(structure[0], _json)(node, names)
    except Unsupported:
        return _head_of(node.value)
    except StoreError:
        return UNDECODABLE
    return _with_unknown(made, node)


def _head_of(value: bytes) -> bytes:
    """Return what says that VALUE is in a form that is not known here, and nothing else of it: its version, or its compression."""
    if value[: len(MAGIC)] == MAGIC:
        return value[: _WRAPPER.size + _WRAPPER.unpack_from(value)[1]]
    return value.partition(b"\n")[0] + b"\n"


def _with_unknown(made: bytes, node: Node) -> bytes:
    """Return MADE, which is protobuf, with the numbers of the fields that are not known in NODE's value, each with a 0."""
    _, what = unknown_in(node.path, node.value)
    numbers = sorted({int(found[1]) for text in what if (found := _FIELD.search(text))})
    fields = b"".join(encode_varint(number << 3) + b"\0" for number in numbers)
    if not fields or not made.startswith(_LEDGER_METADATA):
        return made + fields
    message = made[len(_LEDGER_METADATA) :]
    size = next(size for size in range(1, len(message)) if message[size - 1] < _LAST)
    return _LEDGER_METADATA + encode_varint(len(message) - size + len(fields)) + message[size:] + fields


def _managed_ledger(node: Node, names: Pseudonyms) -> bytes:
    if not node.value:
        return b""
    found = decode_managed_ledger(node.value, node.path, as_stored=True)
    ledgers = tuple(_ledger_info(info, names) for info in found.ledgers)
    return encode_managed_ledger(replace(found, ledgers=ledgers, properties=_properties(found.properties, names)))


def _ledger_info(info: LedgerInfo, names: Pseudonyms) -> LedgerInfo:
    if not info.properties:
        return info
    # Brokers alone write these; of a topic's properties, which users write, a number says as much as a text.
    times = {key: value for key, value in info.properties.items() if key in (BEGIN, END) and _NUMBER.fullmatch(value)}
    return info._replace(properties=_properties(info.properties, names) | times)


def _properties(found: Mapping[str, str], names: Pseudonyms) -> dict[str, str]:
    return {names.word(key): names.text(value) for key, value in found.items()}


def _cursor(node: Node, names: Pseudonyms) -> bytes:
    found = decode_cursor_info(node.value, node.path)
    properties = {names.same_length(key): value for key, value in found.properties.items()}
    cursor_properties = dict(
        (key, value) if _BUCKET.fullmatch(key) and _NUMBER.fullmatch(value) else (names.whole(key), names.whole(value))
        for key, value in found.cursor_properties.items()
    )
    return encode_cursor_info(replace(found, properties=properties, cursor_properties=cursor_properties))


def _ledger(node: Node, names: Pseudonyms) -> bytes:
    found: LedgerMetadata = decode_ledger_metadata(node.value, node.path)
    segments = tuple(
        Segment(segment.first_entry_id, tuple(names.whole(member) for member in segment.members))
        for segment in found.segments
    )
    custom = {names.word(key): _custom(value, names) for key, value in found.custom.items()}
    password = None if found.password is None else b""
    return encode_ledger_metadata(replace(found, segments=segments, custom=custom, password=password, ctoken=None))


def _custom(value: bytes, names: Pseudonyms) -> bytes:
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return b""
    if not text.isprintable():  # such as MessageIdData
        return b""
    return (text if _BUCKET.fullmatch(text) else names.text(text)).encode()


def _schema(node: Node, names: Pseudonyms) -> bytes:
    found = decode_schema_locator(node.value, node.path)

    def hidden(entry: IndexEntry) -> IndexEntry:
        return replace(entry, hash=names.digest(entry.hash))

    return encode_schema_locator(replace(found, newest=hidden(found.newest), index=tuple(map(hidden, found.index))))


def _cookie(node: Node, names: Pseudonyms) -> bytes:
    found = decode_cookie(node.value, node.path)
    return encode_cookie(
        Cookie(
            found.layout_version,
            names.whole(found.bookie_id),
            tuple(map(names.path, found.journal_dirs)),
            tuple(map(names.path, found.ledger_dirs)),
            None if found.instance_id is None else names.whole(found.instance_id),
            None if found.index_dirs is None else tuple(map(names.path, found.index_dirs)),
        )
    )


def _json(node: Node, names: Pseudonyms) -> bytes:
    if not node.value:
        return b""
    try:
        return json.dumps(names.json(json.loads(node.value)), separators=(",", ":")).encode()
    except (ValueError, RecursionError):
        return UNDECODABLE


_MAKERS = {
    "ManagedLedgerInfo": _managed_ledger,
    "ManagedCursorInfo": _cursor,
    "LedgerMetadata": _ledger,
    "SchemaLocator": _schema,
    "Cookie": _cookie,
}
