"""A ZooKeeper server of a dictionary, in this process: for what a real one does not do when asked, drop a client or move under it.

What real servers answer is in ``tests/live``. Sources of the frames: ``zookeeper.jute``, ``NIOServerCnxn``.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType

from msgspec import Struct, field
from msgspec.structs import replace

NO_NODE, NODE_EXISTS, BAD_VERSION, NO_AUTH, NOT_EMPTY, RUNTIME = -101, -110, -103, -102, -111, -2
CREATED, DELETED, CHANGED = 1, 2, 3
SEQUENTIAL = 2


class Znode(Struct):
    """A node, of a session when it has an OWNER; CHILDREN_MADE: how many were ever made below it."""

    value: bytes
    version: int = 0
    owner: int = 0
    created_ms: int = 1_700_000_000_000
    modified_ms: int = 1_700_000_000_000
    children_made: int = 0


class FakeZooKeeper(Struct, dict=True):
    """Serves NODES; BEFORE is called with the number of each request and its type; True drops the connection."""

    nodes: dict[str, Znode]
    before: Callable[[FakeZooKeeper, int, int], bool | None] = lambda server, number, kind: None
    after: Callable[[FakeZooKeeper, int], bool | None] = lambda server, kind: None
    """Called when a request was done, before its answer; True drops the connection."""
    unreadable: frozenset[str] = frozenset()
    requests: list[int] = field(default_factory=list)
    multis: list[list[tuple[int, str]]] = field(default_factory=list)
    zxid: int = 100
    port: int = 0

    def __enter__(self) -> FakeZooKeeper:
        self.nodes.setdefault("/", Znode(b""))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._watching: socket.socket | None = None
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(10)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def put(self, path: str, value: bytes) -> None:
        """Create or set a node, as another client would."""
        node = self.nodes.get(path)
        self.zxid += 1
        self.nodes[path] = Znode(value, 0 if node is None else node.version + 1)
        self._tell(CREATED if node is None else CHANGED, path)

    def delete(self, path: str) -> None:
        """Delete a node, as another client would."""
        self.zxid += 1
        del self.nodes[path]
        self._tell(DELETED, path)

    def _tell(self, kind: int, path: str) -> None:
        if self._watching:
            _send(self._watching, struct.pack(">iqi", -1, -1, 0) + struct.pack(">ii", kind, 3) + _text(path))

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._attend, args=[connection], daemon=True).start()

    def _attend(self, connection: socket.socket) -> None:
        with connection, suppress(OSError, EOFError):
            self._talk(connection)
        if self._watching is connection:
            self._watching = None

    def _talk(self, connection: socket.socket) -> None:
        _frame(connection)  # ConnectRequest
        _send(connection, struct.pack(">iiqi", 0, 10_000, 1, 16) + bytes(16) + b"\0")
        while True:
            body = _Body(_frame(connection))
            xid, kind = body.take(">ii")
            self.requests.append(kind)
            if self.before(self, len(self.requests), kind):
                return
            if kind == 106:
                self._watching = connection
            with self._lock:
                answer, error = self._answer(kind, body)
            if self.after(self, kind):
                return
            _send(connection, struct.pack(">iqi", xid, self.zxid, error) + answer)
            if kind == -11:
                return

    def _answer(self, kind: int, body: _Body) -> tuple[bytes, int]:
        if kind in (11, 100, 106, -11):
            return b"", 0
        if kind == 9:
            return _text(body.text()), 0
        if kind == 22:
            return self._multi_read(body), 0
        if kind == 14:
            return self._multi(body), 0
        path = body.text()
        node = self.nodes.get(path)
        if node is None:
            return b"", NO_NODE
        if kind == 4:
            return _text(node.value) + self._stat(path, node), 0
        if kind == 3:
            return self._stat(path, node), 0
        if kind == 6:
            return struct.pack(">ii", 1, 31) + _text("world") + _text("anyone") + self._stat(path, node), 0
        assert kind in (8, 12), f"the fake has no request {kind}"
        names = self._children(path)
        return struct.pack(">i", len(names)) + b"".join(map(_text, names)), 0

    def _multi_read(self, body: _Body) -> bytes:
        found = b""
        while True:
            kind, done, _ = body.take(">i?i")
            if done:
                return found + struct.pack(">i?i", -1, True, -1)
            path, _ = body.text(), body.take(">?")
            node = self.nodes.get(path)
            if node is None or path in self.unreadable:
                found += struct.pack(">i?ii", -1, False, 0, NO_NODE if node is None else NO_AUTH)
            elif kind == 4:
                found += struct.pack(">i?i", 4, False, 0) + _text(node.value) + self._stat(path, node)
            else:
                names = self._children(path)
                found += struct.pack(">i?ii", 8, False, 0, len(names)) + b"".join(map(_text, names))

    def _multi(self, body: _Body) -> bytes:
        """All operations or none, as ``PrepRequestProcessor``."""
        nodes = {path: replace(node) for path, node in self.nodes.items()}
        kinds: list[tuple[int, str]] = []
        errors: list[int] = []
        while True:
            kind, done, _ = body.take(">i?i")
            if done:
                break
            path = body.text()
            value = body.text().encode("latin-1") if kind in (1, 5) else b""
            if kind == 1:
                for _ in range(body.take(">i")[0]):
                    body.take(">i"), body.text(), body.text()
            (number,) = body.take(">i")  # flags of a create, else the version
            if kind == 1 and number & SEQUENTIAL:
                parent = nodes[path.rpartition("/")[0]]
                path = f"{path}{parent.children_made:010d}"
                parent.children_made += 1
            kinds.append((kind, path))
            errors.append(self._do(nodes, kind, path, value, number))
        self.multis.append(kinds)
        bad = next((place for place, error in enumerate(errors) if error), None)
        if bad is not None:
            codes = [0 if place < bad else errors[bad] if place == bad else RUNTIME for place in range(len(errors))]
            return b"".join(struct.pack(">i?ii", -1, False, code, code) for code in codes) + struct.pack(
                ">i?i", -1, True, -1
            )
        self.nodes = nodes
        self.zxid += 1
        heads = [struct.pack(">i?i", kind, False, 0) for kind, _ in kinds]
        bodies = [
            _text(path) if kind == 1 else self._stat(path, nodes[path]) if kind == 5 else b"" for kind, path in kinds
        ]
        return b"".join(map(bytes.__add__, heads, bodies)) + struct.pack(">i?i", -1, True, -1)

    def _do(self, nodes: dict[str, Znode], kind: int, path: str, value: bytes, number: int) -> int:
        node = nodes.get(path)
        if kind == 1:
            if node is not None:
                return NODE_EXISTS
            if (path.rpartition("/")[0] or "/") not in nodes:
                return NO_NODE
            nodes[path] = Znode(value)
            return 0
        if node is None:
            return NO_NODE
        if number not in (-1, node.version):
            return BAD_VERSION
        if kind == 5:
            nodes[path] = replace(node, value=value, version=node.version + 1)
        elif kind == 2:
            if any(other.startswith(path + "/") for other in nodes):
                return NOT_EMPTY
            del nodes[path]
        return 0

    def _children(self, path: str) -> list[str]:
        below = path.rstrip("/") + "/"
        inner = (other[len(below) :] for other in self.nodes if other.startswith(below))
        return sorted(name for name in inner if name and "/" not in name)

    def _stat(self, path: str, node: Znode) -> bytes:
        zxid, times, children = self.zxid, (node.created_ms, node.modified_ms), len(self._children(path))
        changes = max(2 * node.children_made - children, 0)  # ``DataNode.copyStat``
        return struct.pack(
            ">qqqqiiiqiiq",
            1, zxid, *times, node.version, changes, 0, node.owner, len(node.value), children, zxid,
        )  # fmt: skip


def _frame(connection: socket.socket) -> bytes:
    (length,) = struct.unpack(">i", _read(connection, 4))
    return _read(connection, length)


def _send(connection: socket.socket, body: bytes) -> None:
    connection.sendall(struct.pack(">i", len(body)) + body)


class _Body:
    """What is left of a request."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._pos = 0

    def take(self, form: str) -> tuple[int, ...]:
        found = struct.unpack_from(form, self._data, self._pos)
        self._pos += struct.calcsize(form)
        return found

    def text(self) -> str:
        (length,) = self.take(">i")
        self._pos += max(length, 0)
        return self._data[self._pos - max(length, 0) : self._pos].decode("latin-1")


def _text(value: str | bytes) -> bytes:
    raw = value if isinstance(value, bytes) else value.encode("latin-1")
    return struct.pack(">i", len(raw)) + raw


def _read(connection: socket.socket, length: int) -> bytes:
    found = b""
    while len(found) < length:
        chunk = connection.recv(length - len(found))
        if not chunk:
            raise EOFError
        found += chunk
    return found
