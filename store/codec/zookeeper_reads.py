"""Many reads in one request of ZooKeeper's client protocol, and its answer (``multiRead``, since 3.6: ``MultiOperationRecord``,
``MultiResponse``).

A request is (type i32, done u8, error i32) and path, watch u8 for each read; an answer the same head and a record: ``getData`` buffer and
``Stat``, ``getChildren`` a vector of names, an error i32. A head whose ``done`` is 1 ends both.
"""

import struct
from collections.abc import Iterable
from typing import NamedTuple

from pulsar_admin.store.codec.buffer import Reader
from pulsar_admin.store.codec.jute import read_buffer, read_text
from pulsar_admin.store.errors import MetadataCorrupt

MULTI_READ, GET_DATA, GET_CHILDREN = 22, 4, 8
NO_NODE, NO_AUTH = -101, -102
_FAILED = -1
_HEAD = struct.Struct(
    ">i"  # type of the operation
    "?"  #  whether this is the end
    "i"  #  error
)
_END = _HEAD.pack(-1, True, -1)
_STAT = struct.Struct(
    ">q"  # czxid
    "q"  #  mzxid
    "q"  #  ctime
    "q"  #  mtime
    "i"  #  version
    "i"  #  cversion
    "i"  #  aversion
    "q"  #  ephemeral owner
    "i"  #  bytes of the value
    "i"  #  children
    "q"  #  pzxid
)


class Read(NamedTuple):
    """One read: GET_DATA or GET_CHILDREN of a node."""

    kind: int
    path: str


class Data(NamedTuple):
    """Value and stat of a node; ``children_made``: number of nodes ever created directly below it. A tuple, as there
    may be millions."""

    value: bytes
    version: int
    created_ms: int
    modified_ms: int
    owner: int
    children: int
    children_made: int


class Failed(NamedTuple):
    """A read that the server refused: NO_NODE, NO_AUTH or another of its error codes."""

    error: int


def encode_reads(reads: Iterable[Read]) -> bytes:
    """Return the body of a ``multiRead``, without watches."""
    parts = []
    for kind, path in reads:
        raw = path.encode()
        parts.append(_HEAD.pack(kind, False, -1) + len(raw).to_bytes(4, "big") + raw + b"\0")
    return b"".join(parts) + _END


def decode_answers(data: bytes | memoryview, where: str) -> list[Data | list[str] | Failed]:
    """Return the answers of a ``multiRead`` in the order of its reads; raises MetadataCorrupt."""
    reader = Reader(data, where, MetadataCorrupt)
    answers: list[Data | list[str] | Failed] = []
    while True:
        kind, done, _ = _HEAD.unpack(reader.take(_HEAD.size))
        if done:
            return answers
        if kind == GET_DATA:
            value = read_buffer(reader)
            stat = _STAT.unpack(reader.take(_STAT.size))
            _, _, created_ms, modified_ms, version, children_changes, _, owner, _, children, _ = stat
            made = (children_changes + children) // 2  # ``DataNode.copyStat``: made and deleted ones
            answers.append(Data(value, version, created_ms, modified_ms, owner, children, made))
        elif kind == GET_CHILDREN:
            answers.append([read_text(reader) for _ in range(max(reader.i32(), 0))])
        elif kind == _FAILED:
            answers.append(Failed(reader.i32()))
        else:
            raise MetadataCorrupt(f"{where}: an answer of type {kind} to a read", where=where)
