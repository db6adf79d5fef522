"""What metadata nodes were before they were deleted, from ZooKeeper's snapshots and transaction logs.

Bounded: of each node its last value is kept and, where a time is asked for, the one it had then; of a topic every ledger it ever listed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from store.codec.ledgermetadata import LEDGERS_ROOT, ledger_id_of_path
from store.codec.managedledger import LedgerInfo, decode_managed_ledger
from store.codec.zookeeper import Delete, Transaction, decode_snapshot, decompress_snapshot, iter_transactions
from store.db.storeinfo import StoreInfo
from store.errors import Refused, SourceNotFound, StoreError
from store.names import TopicName, topic_of_path

_VERSION = "version-2"
_OTHERS = (f"{LEDGERS_ROOT}/idgen/", f"{LEDGERS_ROOT}/underreplication/")


@dataclass(slots=True)
class Fate:
    """A node's last value with the time it was written, when it was deleted (None: it was not), and its value as of the time asked."""

    value: bytes
    written_ms: int
    gone_ms: int | None = None
    then: bytes | None = None


@dataclass(slots=True)
class Past:
    """Fates by path; ``listed``: of each topic every ledger that it ever listed, as it was listed last; ``begins_ms``: when it begins."""

    fates: dict[str, Fate] = field(default_factory=dict)
    listed: dict[TopicName, dict[int, LedgerInfo]] = field(default_factory=dict)
    begins_ms: int | None = None

    def ledgers(self) -> Iterator[tuple[int, Fate]]:
        """Yield every ledger whose metadata was kept."""
        for path, fate in self.fates.items():
            ledger_id = ledger_id_of_path(path)
            if ledger_id is not None:
                yield ledger_id, fate

    def put(self, path: str, value: bytes | None, time_ms: int, at_ms: int | None) -> None:
        """Note that the node at PATH got VALUE, or was deleted (None)."""
        fate = self.fates.get(path)
        if value is None:
            if fate is not None:
                fate.gone_ms = time_ms
                if at_ms is not None and time_ms <= at_ms:
                    fate.then = None
            return
        if fate is None:
            fate = self.fates[path] = Fate(value, time_ms)
        fate.value, fate.written_ms, fate.gone_ms = value, time_ms, None
        if at_ms is not None and time_ms <= at_ms:
            fate.then = value
        name = topic_of_path(path)
        if name is not None:
            with suppress(StoreError):
                infos = decode_managed_ledger(value, path).ledgers
                self.listed.setdefault(name, {}).update((info.ledger_id, info) for info in infos)


Keep = Callable[[str, bytes], bool]


def read_past(directories: Sequence[Path], keep: Keep, at_ms: int | None = None) -> Past:
    """Return what DIRECTORIES (``version-2``) tell of the nodes of which KEEP(path, value) says so; AT_MS: the time asked for.

    Raises SourceNotFound, MetadataCorrupt.
    """
    past = Past()
    for path, value, time_ms in _iter_writes(directories):
        if past.begins_ms is None:
            past.begins_ms = time_ms
        if path in past.fates or (value is not None and keep(path, value)):
            past.put(path, value, time_ms, at_ms)
    return past


def is_ledger(path: str) -> bool:
    """Whether PATH is a ledger's metadata."""
    return path.startswith(LEDGERS_ROOT) and not path.startswith(_OTHERS) and ledger_id_of_path(path) is not None


def history_of(info: StoreInfo, more: Iterable[Path] = ()) -> tuple[Path, ...]:
    """Return the ZooKeeper directories of a store and MORE; raises Refused where there are none."""
    known = [
        Path(one[key]) for one in info.sources for key in ("path", "logs") if key in one and one.get("kind") != "bookie"
    ]
    own = (place for path in known for place in (path / "zookeeper" / _VERSION, path / _VERSION, path) if _holds(place))
    found = tuple(dict.fromkeys((*own, *map(_given, more))))
    if not found:
        raise Refused(
            "this store knows no ZooKeeper's files: what its nodes were before is in their snapshots and transaction logs",
            hint="name a server's dataDir, and its dataLogDir, with: --zookeeper DIR",
        )
    return found


def _holds(path: Path) -> bool:
    return any(path.glob("log.*")) or any(path.glob("snapshot.*"))


def _given(path: Path) -> Path:
    for found in (path / _VERSION, path):
        if _holds(found):
            return found
    raise SourceNotFound(f"{path} holds neither a ZooKeeper log nor a snapshot", path=str(path))


def _iter_writes(directories: Sequence[Path]) -> Iterator[tuple[str, bytes | None, int]]:
    """Yield (path, value or None, time) of every write, oldest first: those of the oldest snapshot, then what the logs have behind it."""
    last = -1
    for zxid, file in _numbered(directories, "snapshot")[:1]:
        raw = decompress_snapshot(file.read_bytes(), file.suffix.removeprefix("."), str(file))
        for node in decode_snapshot(raw, str(file)).nodes.values():
            if not node.ephemeral:
                yield node.path, node.data, node.modified_ms
        last = zxid
    for item in _iter_logged([file for _, file in _numbered(directories, "log")], last):
        for change in item.changes:
            yield change.path, None if isinstance(change, Delete) else change.data, item.time_ms


def _iter_logged(logs: Iterable[Path], last: int) -> Iterator[Transaction]:
    """Yield the transactions behind LAST."""
    for file in logs:
        data = file.read_bytes()
        for item in iter_transactions(data, str(file)) if data else ():
            if isinstance(item, Transaction) and item.zxid > last:
                last = item.zxid
                yield item


def _numbered(directories: Iterable[Path], kind: str) -> list[tuple[int, Path]]:
    files = [file for directory in directories for file in directory.glob(f"{kind}.*")]
    return sorted((int(file.name.split(".")[1], 16), file) for file in files)
