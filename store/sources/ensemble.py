"""A live ZooKeeper ensemble through its client protocol (kazoo): reads its nodes as of one moment, and writes to it.

A reading sets one persistent recursive watch (``AddWatchMode.PERSISTENT_RECURSIVE``, ZooKeeper 3.6) on the root, reads
every node, and then those again that the server named in events, until it names none. A server sends the event of a
change before any answer that shows the change, so the nodes are those of one zxid. They wait in a temporary file until
then; reading writes nothing to the ensemble.

A change is written as one transaction (``multi``), see ``Transaction``.
"""

from __future__ import annotations

import logging
import re
import struct
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import IO, Any, ClassVar, NamedTuple, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from pulsar_admin.store import errors
from pulsar_admin.store.codec.ledger_ids import LedgerIds
from pulsar_admin.store.codec.ledgermetadata import LEDGERS_ROOT
from pulsar_admin.store.codec.rocksvalue import NodeStat
from pulsar_admin.store.codec.zookeeper import is_of_session
from pulsar_admin.store.codec.zookeeper_reads import (
    GET_CHILDREN,
    GET_DATA,
    MULTI_READ,
    NO_AUTH,
    NO_NODE,
    Data,
    Failed,
    Read,
    decode_answers,
    encode_reads,
)
from pulsar_admin.store.db.ledger_ids import NextLedgerId
from pulsar_admin.store.db.tree import Node
from pulsar_admin.store.files import read_file
from pulsar_admin.store.sources.roots import ANY, Marks, Roots, Wanted, choose_roots
from pulsar_admin.store.sources.zookeeper import Notes
from pulsar_admin.store.wording import counted

_REQUEST_HEAD_BYTES = 8  # xid and type
_IDGEN = f"{LEDGERS_ROOT}/idgen"
_IDS_AT_ONCE = 1_000


class Write(Struct, frozen=True):
    """One operation of a transaction on a node: ``value`` None deletes it, ``version`` None creates it."""

    path: str
    value: bytes | None
    version: int | None


class Conflict(Exception):
    """The ensemble refused a transaction because one write did not fit. Nothing was written."""

    def __init__(self, write: Write, reason: str) -> None:
        super().__init__(reason)
        self.write = write
        self.reason = reason


class Transaction:
    """Writes as one transaction of a session, in their order; a new node gets the ACL of its nearest existing ancestor.

    Raises StalePlan if the parent, which existed when the transaction was planned, is gone.
    """

    def __init__(self, session: Session, writes: Sequence[Write]) -> None:
        self._session = session
        self._writes = writes
        self._request = session.client.transaction()
        acls: dict[str, Any] = {}  # Any: of kazoo
        for write in writes:
            path = session.address.full(write.path)
            if write.value is None:
                self._request.delete(path, write.version)
            elif write.version is None:
                parent = path.rpartition("/")[0] or "/"
                acls[path] = acls[parent] = acls.get(parent) or self._acl(parent)
                self._request.create(path, write.value, acls[path])
            else:
                self._request.set_data(path, write.value, write.version)

    def _acl(self, path: str) -> Any:  # Any: of kazoo
        from kazoo.exceptions import NoNodeError

        try:
            acl, _ = self._session.told(lambda: self._session.client.get_acls(path))
        except NoNodeError:
            raise errors.StalePlan(
                f"{self._session.address}: {path} was deleted meanwhile; nothing was written",
                hint="run the command again",
            ) from None
        return acl

    @property
    def size_bytes(self) -> int:
        """How long the request is, which a server compares with its ``jute.maxbuffer``."""
        from kazoo.protocol.serialization import Transaction as Request

        return _REQUEST_HEAD_BYTES + len(Request(self._request.operations).serialize())

    def commit(self) -> int:
        """Commit it and return its zxid; raises Conflict, Refused, and SourceBusy if it is unknown whether it was committed."""
        from kazoo.exceptions import NoAuthError, RolledBackError, RuntimeInconsistency

        try:
            results = self._session.answer(self._request.commit_async())
        except errors.SourceNotFound as error:
            raise errors.SourceBusy(
                f"{self._session.address}: the connection was lost while the change was written: whether it was "
                "applied is unknown",
                hint="run the command again: it checks the nodes; either all were written or none",
            ) from error
        for write, result in zip(self._writes, results, strict=False):
            if isinstance(result, NoAuthError):
                raise errors.Refused(f"{self._session.address}: this user may not write {write.path}", path=write.path)
            if isinstance(result, Exception) and not isinstance(result, (RolledBackError, RuntimeInconsistency)):
                raise Conflict(write, type(result).__name__.removesuffix("Error"))
        return self._session.zxid


def ledger_sequence(session: Session) -> int:
    """Return the next ledger id that the ensemble assigns: how many nodes were created below ``/ledgers/idgen``
    (``PrepRequestProcessor``)."""
    stat = session.told(lambda: session.client.exists(session.address.full(_IDGEN)))
    return 0 if stat is None else (int(stat.cversion) + int(stat.numChildren)) // 2  # ``DataNode.copyStat``


def raise_ledger_sequence(session: Session, to: int) -> None:
    """Make the ensemble allocate ledger ids from ``to`` on: sequential nodes are created and deleted, as brokers do for each id."""
    path = session.address.full(_IDGEN)
    session.told(lambda: session.client.ensure_path(path))
    while (now := ledger_sequence(session)) < to:
        request = session.client.transaction()
        for _ in range(min(_IDS_AT_ONCE, to - now)):
            request.create(f"{path}/ID-", ephemeral=True, sequence=True)
        made = _committed(session, request)
        request = session.client.transaction()
        for name in made:
            request.delete(name)
        _committed(session, request)


def _committed(session: Session, request: Any) -> list[Any]:  # Any: of kazoo
    results: list[Any] = session.answer(request.commit_async())  # Any: as above
    failed = next((one for one in results if isinstance(one, Exception)), None)
    if failed is not None:
        raise errors.Refused(f"{session.address}: {_IDGEN} gives no ids ({type(failed).__name__})", path=_IDGEN)
    return results


_HOST = r"(?:\[[0-9a-fA-F:.]+\]|[^\s/,:;\[\]]+):[0-9]{1,5}"
_ADDRESS = re.compile(rf"(?:zk:)?({_HOST}(?:[,;]{_HOST})*)(/[^\0]*)?")
_BATCH = 200  # reads in one request
_WINDOW = 4  # requests under way: enough that the ensemble never waits for this side
_ROUNDS = 200  # of reading changed nodes again; each reads only what changed during the one before
_ROW = struct.Struct(
    ">I"  # bytes of the path
    "I"  #  bytes of the value
    "q"  #  version
    "q"  #  created, ms
    "q"  #  modified, ms
)
_FIELDS = {
    "user": str,
    "password": str,
    "password-file": str,
    "scheme": str,
    "ca": str,
    "certificate": str,
    "key": str,
    "key-password": str,
    "verify-hostname": bool,
    "timeout-seconds": int,
}
Answer = TypeVar("Answer")


class Address(Struct, frozen=True):
    """The address of an ensemble: ``HOST:PORT,HOST:PORT`` and the path that is its root, "" for the whole tree.

    ``ledgers``: the whole path of BookKeeper's root, "" if it is ``/ledgers`` below the chroot; ``shared``: as in
    ``Roots``.
    """

    hosts: str
    chroot: str
    ledgers: str = ""
    shared: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.hosts + self.chroot

    @property
    def roots(self) -> Roots:
        """Where in the ensemble's tree the cluster is."""
        return Roots(self.chroot, self.ledgers or self.chroot + LEDGERS_ROOT, self.shared)

    def at(self, roots: Roots) -> Address:
        """Return the same ensemble with the cluster at these roots."""
        return Address(self.hosts, roots.chroot, roots.ledgers if roots.is_apart else "", roots.shared)

    def full(self, path: str) -> str:
        """Return the path in the ensemble of a node of the cluster."""
        return self.chroot or path if path == "/" else self.roots.outer(path)


def is_address(text: str) -> bool:
    """Whether a text names an ensemble rather than a directory: every host has a port."""
    return _ADDRESS.fullmatch(text) is not None


def parse_address(text: str) -> Address:
    """Return the ensemble in a text, also in the form of Pulsar's ``metadataStoreUrl`` (``zk:…``); raises InvalidValue."""
    match = _ADDRESS.fullmatch(text)
    if match is None or any(int(host.rpartition(":")[2]) > 65_535 for host in re.split("[,;]", match[1])):
        raise errors.InvalidValue(
            f"{text!r} names no ensemble", hint="write HOST:PORT[,HOST:PORT][/CHROOT]", value=text
        )
    return Address(match[1].replace(";", ","), (match[2] or "").rstrip("/"))


class Client(Struct, frozen=True):
    """How to log in. ``scheme``: "digest", "sasl" (DIGEST-MD5), "gssapi" (the ticket of this process), or "" for no login."""

    scheme: str = ""
    user: str = ""
    password: str = ""
    ca: str | None = None  # PEM files; any of the three asks for TLS
    certificate: str | None = None
    key: str | None = None
    key_password: str | None = None
    verify_hostname: bool = True
    timeout_seconds: int = 30


def read_client(file: Path | None) -> Client:
    """Return the login that a TOML file describes; raises InvalidValue, SourceNotFound."""
    if file is None:
        return Client()
    import tomllib

    try:
        values = tomllib.loads(read_file(file).decode())
    except OSError as error:
        raise errors.SourceNotFound(f"{file} cannot be read: {error.strerror}", path=str(file)) from error
    except (ValueError, RecursionError) as error:
        raise errors.InvalidValue(
            f"{file} is not TOML: {error}", hint='write lines such as scheme = "digest"'
        ) from error
    for name, value in values.items():
        if type(value) is not _FIELDS.get(name):
            raise errors.InvalidValue(f"{file} sets {name}, which is none of {', '.join(_FIELDS)}, or of another type")
    if values.get("scheme", "digest") not in ("digest", "sasl", "gssapi"):
        raise errors.InvalidValue(f"{file}: scheme {values['scheme']!r}", hint="one of digest, sasl, gssapi")
    secret = values.pop("password-file", None)
    if secret is not None:
        values["password"] = read_client_secret(file.parent / secret)
    if "user" in values:
        values.setdefault("scheme", "digest")
    return Client(**{name.replace("-", "_"): value for name, value in values.items()})


def read_client_secret(file: Path) -> str:
    """Return the password in a file, without the newline at its end."""
    try:
        return read_file(file).decode().rstrip("\r\n")
    except (OSError, ValueError) as error:
        raise errors.SourceNotFound(f"{file}: no password can be read from it", path=str(file)) from error


# -- the session ------------------------------------------------------------------------------------------------------


class _AddWatch(Struct, frozen=True):
    """The request ``AddWatchRequest``, which kazoo 2.11 lacks."""

    path: str
    type: ClassVar[int] = 106
    mode: ClassVar[int] = 1  # PERSISTENT_RECURSIVE

    def serialize(self) -> bytes:
        from kazoo.protocol.serialization import int_struct, write_string

        return bytes(write_string(self.path) + int_struct.pack(self.mode))

    @classmethod
    def deserialize(cls, _buffer: bytes, _offset: int) -> None:
        return None


class _MultiRead(Struct, frozen=True):
    """The request ``multiRead``, which kazoo lacks: several reads in one request."""

    reads: tuple[Read, ...]
    type: ClassVar[int] = MULTI_READ

    def serialize(self) -> bytes:
        return encode_reads(self.reads)

    @classmethod
    def deserialize(cls, buffer: bytes, offset: int) -> list[Data | list[str] | Failed]:
        return decode_answers(memoryview(buffer)[offset:], "an answer of the ensemble")


class _Events(dict[str, set[Callable[..., None]]]):
    """Takes the place of kazoo's table of watches: kazoo looks up the path of every event here, in its own thread,
    before it handles the next answer."""

    def __init__(self) -> None:
        super().__init__()
        self._paths: SimpleQueue[str] = SimpleQueue()

    def pop(self, path: str, *_: object) -> set[Callable[..., None]]:
        self._paths.put(path)
        return set()

    def take(self) -> set[str]:
        """Return the paths that events named since the last call."""
        changed = set()
        while True:
            try:
                changed.add(self._paths.get_nowait())
            except Empty:
                return changed


class Session:
    """A connection to an ensemble. A lost one is not renewed: nodes read before and after would belong to different moments."""

    def __init__(self, address: Address, client: Any, timeout_seconds: int) -> None:  # Any: a KazooClient
        self.address = address
        self.client = client
        self._timeout_seconds = timeout_seconds

    @property
    def zxid(self) -> int:
        """The newest zxid that the server has sent."""
        return int(self.client.last_zxid)

    def send(self, request: _AddWatch | _MultiRead) -> Any:  # Any: a result of kazoo
        """Send a request for which kazoo has no method."""
        result = self.client.handler.async_result()
        self.client._call(request, result)
        return result

    def answer(self, result: Any) -> Any:  # Any: of kazoo
        """Return the answer to a sent request; raises StoreError, and kazoo's NoNodeError."""
        return self.told(lambda: result.get(timeout=self._timeout_seconds))

    def answers(self, reads: Sequence[Read]) -> Iterator[Data | list[str] | Failed]:
        """Yield the answers to reads, in their order."""
        for start in range(0, len(reads), _BATCH):
            yield from self.answer(self.send(_MultiRead(tuple(reads[start : start + _BATCH]))))

    def find_nodes(self, paths: Iterable[str]) -> dict[str, Node]:
        """Return path → node for the existing nodes among ``paths``; raises Refused for a node that the user may not
        read."""
        asked = list(paths)
        reads = [Read(GET_DATA, self.address.full(path)) for path in asked]
        answers = {path: self.data(path, answer) for path, answer in zip(asked, self.answers(reads), strict=True)}
        return {path: node_of(path, data) for path, data in answers.items() if data is not None}

    def list_children(self, path: str) -> list[str]:
        """Return the names of a node's children, empty if the node does not exist."""
        (names,) = self.answers([Read(GET_CHILDREN, self.address.full(path))])
        return names if isinstance(names, list) else []

    def data(self, path: str, found: Data | list[str] | Failed) -> Data | None:
        """Return the data of a node, None if it no longer exists; raises Refused, SourceNotFound."""
        if isinstance(found, Data):
            return found
        assert isinstance(found, Failed)
        if found.error == NO_AUTH:
            raise errors.Refused(
                f"{self.address}: this user may not read {path}",
                hint="give the login with --zookeeper-client FILE; unreadable nodes would be missing silently",
                path=path,
            )
        if found.error != NO_NODE:
            raise errors.SourceNotFound(f"{self.address}: {path} cannot be read (error {found.error})", path=path)
        return None

    def told(self, ask: Callable[[], Answer]) -> Answer:
        """Return the result of ``ask``, a call of kazoo; kazoo's errors, except NoNodeError, become StoreErrors."""
        from kazoo.exceptions import KazooException, NoNodeError
        from kazoo.handlers.threading import KazooTimeoutError

        try:
            return ask()
        except NoNodeError:
            raise
        except (KazooException, KazooTimeoutError, OSError) as error:
            raise self._explained(error) from error

    def _explained(self, error: Exception) -> errors.StoreError:
        from kazoo.exceptions import AuthFailedError, NoAuthError, UnimplementedError

        if isinstance(error, (NoAuthError, AuthFailedError)):
            return errors.Refused(
                f"{self.address}: the ensemble does not let this user read every node ({type(error).__name__})",
                hint="say how to log in with --zookeeper-client FILE",
            )
        if isinstance(error, UnimplementedError):
            return errors.Unsupported(
                f"{self.address}: this ZooKeeper knows no recursive watches; 3.6 or newer is needed (Pulsar 2.8 has it)",
                hint="import its version-2 directory",
            )
        return errors.SourceNotFound(
            f"{self.address}: the connection was lost ({type(error).__name__}{f': {error}' if str(error) else ''})",
            hint="nothing was imported; run the command again when the ensemble answers",
            address=str(self.address),
        )


@contextmanager
def open_session(address: Address, login: Client) -> Iterator[Session]:
    """Connect to an ensemble; raises SourceNotFound if no server answers, Refused for a wrong password."""
    from kazoo.client import KazooClient  # 60 ms, and few commands talk to an ensemble
    from kazoo.handlers.threading import KazooTimeoutError
    from kazoo.retry import KazooRetry

    logger = logging.Logger("zookeeper")
    logger.addHandler(logging.NullHandler())
    client = KazooClient(
        address.hosts,
        timeout=login.timeout_seconds,
        logger=logger,
        connection_retry=KazooRetry(max_tries=3, delay=0.1, max_delay=1),
        command_retry=KazooRetry(max_tries=0),
        **_login_arguments(login),
    )
    session = Session(address, client, login.timeout_seconds)
    try:
        try:
            client.start(timeout=login.timeout_seconds)
        except KazooTimeoutError as error:
            raise errors.SourceNotFound(
                f"no ZooKeeper answers at {address.hosts} within {login.timeout_seconds} s, or it refuses the login",
                hint="check HOST:PORT, and TLS and user in the file of --zookeeper-client",
                address=str(address),
            ) from error
        yield session
    finally:
        client.stop()
        client.close()


def _login_arguments(login: Client) -> Mapping[str, Any]:  # Any: arguments of KazooClient
    arguments: dict[str, Any] = {}  # Any: as above
    if login.ca or login.certificate or login.key:
        arguments |= {"use_ssl": True, "ca": login.ca, "certfile": login.certificate, "keyfile": login.key}
        arguments |= {"keyfile_password": login.key_password, "check_hostname": login.verify_hostname}
    if login.scheme == "digest":
        arguments["auth_data"] = [("digest", f"{login.user}:{login.password}")]
    elif login.scheme:
        from importlib.util import find_spec

        if find_spec("puresasl") is None:
            raise errors.MissingComponent("SASL needs the package pure-sasl", hint="pip install 'kazoo[sasl]'")
        by_password = {"mechanism": "DIGEST-MD5", "username": login.user, "password": login.password}
        arguments["sasl_options"] = by_password if login.scheme == "sasl" else {"mechanism": "GSSAPI"}
    return arguments


# -- reading ----------------------------------------------------------------------------------------------------------


class LiveEnsemble:
    """The metadata of a running ensemble as a source. ``zxid``: the transaction as of which its nodes were read, 0
    before.

    An address without a chroot means the root, as for every client; if no cluster is there, the wanted cluster or the
    only one is read. ``address`` has its roots once the nodes were read.
    """

    def __init__(self, address: Address, login: Client, login_file: Path | None = None, wanted: Wanted = ANY) -> None:
        if wanted.chroot and address.chroot not in ("", wanted.chroot):
            raise errors.InvalidValue(
                f"{address} names a chroot, and so does --chroot {wanted.chroot}", hint="name it once"
            )
        chroot = wanted.chroot or address.chroot
        self.address = address.at(Roots(chroot, wanted.ledgers or chroot + LEDGERS_ROOT))
        self.login_file = login_file
        self.login = login
        self.zxid = 0
        self._name = str(address)
        self._wanted = wanted
        self._chroot = chroot or wanted.chroot  # None: none is named

    @property
    def name(self) -> str:
        return self._name

    @property
    def roots(self) -> Roots:
        return self.address.roots

    def row(self) -> dict[str, Any]:  # Any: JSON
        """Return its row in ``store.json``: where its login file is, never a password, and the moment at which it was read."""
        login = {} if self.login_file is None else {"client": str(self.login_file.resolve())}
        read = {"zxid": self.zxid} if self.zxid else {}
        return {"kind": "ensemble", "path": self.name} | login | read | self.roots.row()

    def holder(self) -> int | None:
        """Return None: servers write while they are read, and changed nodes are read again."""
        return None

    def nodes(self, problems: list[str], notes: Notes | None = None) -> Iterator[Node | NextLedgerId]:
        """Yield every node but the ephemeral ones, then the next ledger id; raises StoreError, before the first node, when the ensemble
        is lost or moves on."""
        with self._read(self._places()) as reading:
            self.address = self.address.at(self._choose_roots(reading))
            for node in reading.nodes():
                path = self.roots.inner(node.path)
                if path is not None:
                    yield node if path == node.path else node._replace(path=path)
            next_id = reading.ledger_ids.next_id(self.roots.ledgers, whole=True)
            if next_id is not None:
                yield NextLedgerId(next_id)

    def whole_nodes(self, problems: list[str]) -> Iterator[Node]:
        with self._read(["/"]) as reading:
            yield from reading.nodes()

    def next_ledger_id(self) -> int | None:
        """Return the next ledger id, reading only BookKeeper's counter; None if no id was assigned yet."""
        root = self.roots.ledgers
        try:
            with self._read([f"{root}/idgen", f"{root}/idgen-long"]) as reading:
                return reading.ledger_ids.next_id(root, whole=False)
        except errors.SourceNotFound:
            return None  # it gave none yet

    @contextmanager
    def _read(self, places: Sequence[str]) -> Iterator[_Reading]:
        with tempfile.TemporaryFile(prefix="pulsar-admin-") as spool:
            with open_session(self.address, self.login) as session:
                reading = _Reading(session, spool, places)
                reading.run()
                self.zxid = session.zxid
            yield reading

    def _choose_roots(self, reading: _Reading) -> Roots:
        """Return the roots of the cluster among the nodes read; raises SourceNotFound, Refused."""
        marks = Marks()
        for node in reading.nodes():
            marks.see(node.path, node.value)
        chroot = self._chroot
        if chroot is None and ("" in marks.chroots() or LEDGERS_ROOT in marks.ledgers()):
            chroot = ""
        if chroot not in marks.chroots() and (chroot is not None or not (marks.chroots() or marks.ledgers())):
            return self.roots  # of a BookKeeper alone, or nothing that is known
        return choose_roots(marks, self.name, replace(self._wanted, chroot=chroot))

    def _places(self) -> list[str]:
        """Return the paths to read with all nodes below: the chroot, and where else BookKeeper's root may be."""
        chroot = self.address.chroot
        said = dict.fromkeys((*filter(None, (self.address.ledgers,)), *self._wanted.hints))
        return [chroot or "/", *(path for path in said if not path.startswith(f"{chroot}/"))]


class _Sent(NamedTuple):
    """A request that was sent and whose answer was not read yet."""

    reads: tuple[Read, ...]
    result: Any  # of kazoo


class _Reading:
    """Reads all nodes at and below some places into a temporary file, and those that change meanwhile into memory;
    paths are whole.

    The first place must exist.
    """

    def __init__(self, session: Session, spool: IO[bytes], places: Sequence[str]) -> None:
        self._session = session
        self._spool = spool
        self._places = places
        self._moved: dict[str, Node | None] = {}
        self.ledger_ids = LedgerIds()

    def run(self) -> None:
        session, client = self._session, self._session.client
        client._data_watchers = events = _Events()
        for place in self._places:
            session.answer(session.send(_AddWatch(place)))
        session.answer(client.sync_async(self._places[0]))  # the server may lag behind its leader
        waiting, under_way = [Read(GET_DATA, place) for place in reversed(self._places)], deque[_Sent]()
        while waiting or under_way:
            while waiting and len(under_way) < _WINDOW:
                reads = tuple(waiting[-_BATCH:][::-1])
                del waiting[-_BATCH:]
                under_way.append(_Sent(reads, self._session.send(_MultiRead(reads))))
            sent = under_way.popleft()
            for read, found in zip(sent.reads, self._session.answer(sent.result), strict=True):
                self._take(read, found, waiting)
        for _ in range(_ROUNDS):
            if not (paths := events.take()):
                return
            moved = sorted(paths - {"/"})
            for path, found in zip(moved, self._session.answers([Read(GET_DATA, path) for path in moved]), strict=True):
                data = self._session.data(path, found)
                self.ledger_ids.see(path, 0 if data is None else data.children_made)
                self._moved[path] = None if data is None or is_of_session(data.owner) else node_of(path, data)
        raise errors.SourceChanged(
            f"{session.address} changes faster than it can be read: {counted(len(self._moved), 'node')} moved while the others were read",
            hint="use a nearer server, or an observer",
        )

    def _take(self, read: Read, found: Data | list[str] | Failed, waiting: list[Read]) -> None:
        if isinstance(found, list):
            below = read.path.rstrip("/") + "/"
            waiting += (Read(GET_DATA, below + name) for name in sorted(found, reverse=True))
            return
        data = self._session.data(read.path, found)
        if data is None:
            if read.path == self._places[0]:
                raise errors.SourceNotFound(f"{self._session.address}: there is no node {read.path}", path=read.path)
            return  # deleted since its parent was read: an event tells of it
        if data.children:
            waiting.append(Read(GET_CHILDREN, read.path))
        if read.path != "/" and not is_of_session(data.owner):
            self.ledger_ids.see(read.path, data.children_made)
            raw = read.path.encode()
            self._spool.write(
                _ROW.pack(len(raw), len(data.value), data.version, data.created_ms, data.modified_ms) + raw + data.value
            )

    def nodes(self) -> Iterator[Node]:
        """Yield the nodes, as of the end of the reading."""
        self._spool.seek(0)
        while head := self._spool.read(_ROW.size):
            path_bytes, value_bytes, version, created_ms, modified_ms = _ROW.unpack(head)
            raw_path, value = self._spool.read(path_bytes), self._spool.read(value_bytes)
            if len(value) != value_bytes:
                raise errors.MetadataCorrupt("the temporary file of nodes was cut", hint="run the command again")
            path = raw_path.decode()
            if path not in self._moved:
                yield Node(path, NodeStat(version, 0, created_ms, modified_ms, False), value)
        yield from (node for _, node in sorted(self._moved.items()) if node is not None)


def node_of(path: str, data: Data) -> Node:
    """Return a node of the ensemble as a node of a store's tree."""
    return Node(path, NodeStat(data.version, 0, data.created_ms, data.modified_ms, False), data.value)
