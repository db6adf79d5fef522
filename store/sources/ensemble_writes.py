"""One transaction of a live ensemble (``multi``): what it writes, how long it is, and what did not fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from pulsar_admin.store.codec.ledgermetadata import LEDGERS_ROOT
from pulsar_admin.store.errors import Refused, SourceBusy, SourceNotFound, StalePlan
from pulsar_admin.store.sources.ensemble import Session

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
            found, _ = self._session.told(lambda: self._session.client.get_acls(path))
        except NoNodeError:
            raise StalePlan(
                f"{self._session.address}: {path} was deleted meanwhile; nothing was written",
                hint="run the command again",
            ) from None
        return found

    @property
    def size_bytes(self) -> int:
        """How long the request is, which a server compares with its ``jute.maxbuffer``."""
        from kazoo.protocol.serialization import Transaction as Request

        return _REQUEST_HEAD_BYTES + len(Request(self._request.operations).serialize())

    def commit(self) -> int:
        """Commit it and return its zxid; raises Conflict, Refused, and SourceBusy when nobody knows whether it was taken."""
        from kazoo.exceptions import NoAuthError, RolledBackError, RuntimeInconsistency

        try:
            found = self._session.answer(self._request.commit_async())
        except SourceNotFound as error:
            raise SourceBusy(
                f"{self._session.address}: the connection was lost while the change was written: whether it was taken is not known",
                hint="run the command again: it checks the nodes; either all were written or none",
            ) from error
        for write, result in zip(self._writes, found, strict=False):
            if isinstance(result, NoAuthError):
                raise Refused(f"{self._session.address}: this user may not write {write.path}", path=write.path)
            if isinstance(result, Exception) and not isinstance(result, (RolledBackError, RuntimeInconsistency)):
                raise Conflict(write, type(result).__name__.removesuffix("Error"))
        return self._session.zxid


def ledger_sequence(session: Session) -> int:
    """Return the next ledger id that the ensemble gives: how many nodes were made below ``/ledgers/idgen`` (``PrepRequestProcessor``)."""
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
    found: list[Any] = session.answer(request.commit_async())  # Any: as above
    failed = next((one for one in found if isinstance(one, Exception)), None)
    if failed is not None:
        raise Refused(f"{session.address}: {_IDGEN} gives no ids ({type(failed).__name__})", path=_IDGEN)
    return found
