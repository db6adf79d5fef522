"""Pulsar's metadata tree inside the store: path → stat + the exact value bytes.

Row layout (database ``tree``, also ``base``):

| off | size | field |
|---|---|---|
| 0 | 1 | flags: 1 = the full path follows the header |
| 1 | 8 × 4 | version, owner, created ms, modified ms (i64, big-endian) |
| 33 | 2 + n | with flag 1: path length u16 and path (UTF-8) |
| … | rest | value, as Pulsar stores it |

LMDB keys hold at most 511 bytes. A longer path's key is its first 400 bytes, 0xff (never in UTF-8) and its SHA-256,
so that prefixes still list in order.
"""

import struct
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple

from pulsar_admin.store.codec.rocksvalue import NodeStat
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.errors import IndexCorrupt, InvalidValue, PathNotFound, reason_of
from pulsar_admin.store.names import shell_word
from pulsar_admin.store.wording import one_line

_HEADER = struct.Struct(">Bqqqq")
_LENGTH = struct.Struct(">H")
_MODIFIED = struct.Struct(">25xq")
_KEY_MAX_BYTES = 500
_KEY_HEAD_BYTES = 400
PATH_MAX_BYTES = 2**16 - 1
ROW_OF_NODE = "the row of metadata node "
"""Begins the message about a damaged row of the tree."""


Row = tuple[bytes, bytes]
"""What the databases ``tree`` and ``base`` hold of a node: key and value."""


class Node(NamedTuple):
    """One metadata node: its path, stat and exact value bytes. A tuple, as there may be millions."""

    path: str
    stat: NodeStat
    value: bytes

    def __repr__(self) -> str:
        return one_line(self)


def tree_key(path: str) -> bytes:
    """Return the LMDB key of a metadata path; raises InvalidValue for one that is too long or not Unicode."""
    raw = _encoded(path)
    if len(raw) <= _KEY_MAX_BYTES:
        return raw
    if len(raw) > PATH_MAX_BYTES:
        raise InvalidValue(
            f"a metadata path of {len(raw)} bytes, at most {PATH_MAX_BYTES} are possible: {path[:100]}…",
            hint="name an existing node, or a shorter prefix",
        )
    from hashlib import sha256  # 2 ms; hardly any path is so long

    return raw[:_KEY_HEAD_BYTES] + b"\xff" + sha256(raw).digest()


def _encoded(path: str) -> bytes:
    try:
        return path.encode()
    except UnicodeEncodeError as error:
        raise InvalidValue(f"{path!r} is not Unicode", hint="metadata paths are UTF-8", value=path) from error


def iter_upwards(path: str) -> Iterator[str]:
    """Yield a path and its ancestors, without the root."""
    while path:
        yield path
        path = path.rpartition("/")[0]


def encode_node(node: Node) -> bytes:
    """Return the row of a node (its key is ``tree_key(node.path)``)."""
    raw = node.path.encode()
    stat = node.stat
    long = len(raw) > _KEY_MAX_BYTES
    head = _HEADER.pack(long, stat.version, stat.owner, stat.created_ms, stat.modified_ms)
    return head + _LENGTH.pack(len(raw)) + raw + node.value if long else head + node.value


def row_of(node: Node) -> Row:
    """Return the row of a node."""
    return tree_key(node.path), encode_node(node)


def row_of_packed(path: bytes, stat: bytes, value: bytes) -> Row | None:
    """Return the row of a persistent node whose stat is packed as in a row; None for a path that is not its own key.

    For passes over millions of nodes: ``row_of`` costs five times as much.
    """
    if len(path) > _KEY_MAX_BYTES or not path.isascii():
        return None
    return path, b"\0" + stat + value


def modified_ms(row: bytes | memoryview) -> int:
    """Return when the node of a row was modified last, epoch ms; for passes over millions of rows."""
    time_ms: int = _MODIFIED.unpack_from(row)[0]
    return time_ms


def path_and_value(key: bytes, row: bytes | memoryview) -> tuple[str, bytes]:
    """Return path and value of the node of a row; raises IndexCorrupt. For passes over millions of rows."""
    if len(row) >= _HEADER.size and row[0] == 0 and key.isascii() and len(key) <= _KEY_MAX_BYTES:
        return key.decode(), bytes(row[_HEADER.size :])
    path, _, value = decode_node(key, row)
    return path, value


def decode_node(key: bytes, row: bytes | memoryview) -> Node:
    """Return the node of a row; raises IndexCorrupt."""
    try:
        flags, version, owner, created_ms, modified_ms = _HEADER.unpack_from(row)
        start = _HEADER.size
        raw = key
        if flags & 1:
            (length,) = _LENGTH.unpack_from(row, start)
            start += _LENGTH.size
            raw = bytes(row[start : start + length])
            start += length
        path = raw.decode()
        if flags > 1 or (tree_key(path) != key if flags else len(key) > _KEY_MAX_BYTES):
            raise ValueError(f"flags {flags}, path {raw[:60]!r}")
    except (struct.error, ValueError) as error:
        raise IndexCorrupt(
            f"{ROW_OF_NODE}{key[:_KEY_HEAD_BYTES].decode(errors='backslashreplace')} is damaged: {reason_of(error)}",
            hint="keep this store; a back-up of its database may have the node (backups/), or import into another directory"
            " (--store NEW) and look there",
        ) from error
    return Node(path, NodeStat(version, owner, created_ms, modified_ms, False), bytes(row[start:]))


def plain_value(row: bytes | memoryview) -> bytes:
    """Return the value in the row of a node whose path is its key, b"" for other nodes and damaged rows: for passes over millions."""
    return bytes(row[_HEADER.size :]) if len(row) >= _HEADER.size and row[0] == 0 else b""


def find_node(txn: Txn, path: str) -> Node | None:
    """Return the node at a path, or None."""
    key = tree_key(path)
    row = txn.view("tree", key)
    return None if row is None else decode_node(key, row)


def find_imported(txn: Txn, path: str) -> Node | None:
    """Return the node at a path as the source had it when it was read or written last, without changes made here since; or None."""
    key = tree_key(path)
    row = txn.get("base", key)
    if row is None:
        return find_node(txn, path)
    return decode_node(key, row) if row else None


def put_imported(txn: Txn, path: str, node: Node | None) -> None:
    """Record the node that the source has at a path; None: it has none."""
    txn.put("base", tree_key(path), b"" if node is None else encode_node(node))


def has_row(txn: Txn, path: str) -> bool:
    """Whether a node exists at a path, even if its row is damaged."""
    return txn.view("tree", tree_key(path)) is not None


def read_node(txn: Txn, path: str) -> Node:
    """Return the node at a path; raises PathNotFound."""
    node = find_node(txn, path)
    if node is None:
        parent = path.rpartition("/")[0] or "/"
        hint = f"list its parent with: pulsar-admin store ls {shell_word(parent)}"
        raise PathNotFound(f"no metadata node {path}", hint=hint, path=path)
    return node


def put_nodes(txn: Txn, nodes: Iterable[Node]) -> None:
    """Write many metadata nodes."""
    txn.put_all("tree", ((tree_key(node.path), encode_node(node)) for node in nodes))


def iter_nodes(txn: Txn, prefix: str) -> Iterator[Node]:
    """Yield the nodes whose path begins with a prefix, in path order."""
    head = _encoded(prefix)[:_KEY_HEAD_BYTES]
    for key, row in txn.items("tree", head):
        node = decode_node(key, row)
        if node.path.startswith(prefix):
            yield node


def iter_values(txn: Txn, prefix: str) -> Iterator[tuple[str, bytes]]:
    """Yield (path, value) of the nodes whose path begins with a prefix, in path order: for passes over millions of nodes."""
    for key, row in txn.items("tree", _encoded(prefix)[:_KEY_HEAD_BYTES]):
        value = path_and_value(key, row)
        if value[0].startswith(prefix):
            yield value


def iter_children(txn: Txn, path: str, first: str = "") -> Iterator[str]:
    """Yield the names directly below a path in order, from ``first`` on; intermediate nodes need no key of their own."""
    return (name for name, _ in iter_children_and_keys(txn, path, first))


def iter_children_like(txn: Txn, path: str, beginning: str) -> Iterator[str]:
    """Yield the names directly below a path that begin with ``beginning``."""
    head = _encoded(f"{path}/{beginning}")[:_KEY_HEAD_BYTES]
    for name in iter_children(txn, path, beginning):
        if name.startswith(beginning):
            yield name
        elif not _encoded(f"{path}/{name}").startswith(head):  # paths that share a head of this length are in no order
            return


def list_children(txn: Txn, path: str) -> tuple[str, ...]:
    """Return the names directly below a path; raises PathNotFound if there is neither a node nor anything below it."""
    names = tuple(iter_children(txn, path))
    if not names and path.strip("/"):
        read_node(txn, path)
    return names


def iter_children_and_keys(txn: Txn, path: str, first: str = "") -> Iterator[tuple[str, bytes]]:
    """Yield (name, key) as ``iter_children``: the child node's own key if that is its path, else the first below."""
    prefix = path.rstrip("/") + "/"
    raw = _encoded(prefix)
    if len(raw) > _KEY_HEAD_BYTES:
        names = dict.fromkeys(node.path[len(prefix) :].split("/", 1)[0] for node in iter_nodes(txn, prefix))
        yield from ((name, b"") for name in names)
        return
    # The names since the one that all parts after it have begun with: there may be millions.
    seen, start = set[str](), b""
    for part, key in txn.parts("tree", raw, (raw + first.encode())[:_KEY_HEAD_BYTES], _KEY_HEAD_BYTES):
        if not seen or not part.startswith(start):
            seen, start = set(), part[: _KEY_HEAD_BYTES - len(raw)]
        if len(key) <= _KEY_HEAD_BYTES and part.isascii():
            name = part.decode()
        else:
            path = path_of_key(txn, key)
            if not path:
                continue
            name = path[len(prefix) :].partition("/")[0]
        if name not in seen:  # "x", "x-partition-0", "x/cursor": "x" comes up twice
            seen.add(name)
            yield name, key


def path_of_key(txn: Txn, key: bytes) -> str:
    """Return the path of the node with a key, "" for a key that is not UTF-8; raises IndexCorrupt for the row of a long path."""
    if len(key) <= _KEY_HEAD_BYTES:
        with suppress(UnicodeDecodeError):  # ``store.rules.nodes`` tells of it
            return key.decode()
        return ""
    return decode_node(key, txn.get("tree", key) or b"").path


def iter_paths(txn: Txn, prefix: str) -> Iterator[str]:
    """Yield the paths that begin with a prefix, in path order."""
    head = _encoded(prefix)[:_KEY_HEAD_BYTES]
    for key in txn.keys("tree", head):
        path = path_of_key(txn, key)
        if path and path.startswith(prefix):
            yield path


def has_children(txn: Txn, path: str) -> bool:
    """Whether nodes exist directly below a path; for a path of fewer than 400 bytes."""
    raw = _encoded(path) + b"/"
    return any(b"/" not in key[len(raw) :] for key in txn.keys("tree", raw))
