"""What metadata nodes were before they were deleted, from ZooKeeper's snapshots and transaction logs.

Bounded: of each node its last value is kept and, where a time is asked for, the one it had then; of a topic every ledger it ever listed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

from msgspec import Struct, field

from pulsar_admin.store.codec.ledgermetadata import LEDGERS_ROOT, ledger_id_of_path
from pulsar_admin.store.codec.managedledger import LedgerInfo, decode_managed_ledger
from pulsar_admin.store.errors import StoreError
from pulsar_admin.store.history.versions import Flaw, iter_versions
from pulsar_admin.store.names import TopicName, topic_of_path
from pulsar_admin.store.sources.zookeeper import Gap, ServerFiles

_OTHERS = (f"{LEDGERS_ROOT}/idgen/", f"{LEDGERS_ROOT}/underreplication/")


class Fate(Struct):
    """A node's last value with the time it was written, when it was deleted (None: it was not), and its value as of the time asked."""

    value: bytes
    written_ms: int
    gone_ms: int | None = None
    then: bytes | None = None


class Listing(Struct, frozen=True):
    """How a topic listed a ledger last, and when it no longer did (None: it still does)."""

    info: LedgerInfo
    gone_ms: int | None


class Past(Struct):
    """Fates by path; ``listed``: of each topic every ledger that it ever listed, as it was listed last.

    ``begins_ms``: when the history begins; ``gaps``: what it lacks, in words; ``witnesses``: without a history, what
    says that a topic's ledgers are its.
    """

    fates: dict[str, Fate] = field(default_factory=dict)
    listed: dict[TopicName, dict[int, Listing]] = field(default_factory=dict)
    begins_ms: int | None = None
    gaps: list[str] = field(default_factory=list)
    witnesses: dict[TopicName, list[str]] = field(default_factory=dict)

    def ledgers(self) -> Iterator[tuple[int, Fate]]:
        """Yield every ledger whose metadata was kept."""
        for path, fate in self.fates.items():
            ledger_id = ledger_id_of_path(path)
            if ledger_id is not None:
                yield ledger_id, fate

    def put(self, path: str, value: bytes | None, time_ms: int, at_ms: int | None) -> None:
        """Note that the node at PATH got VALUE, or was deleted (None)."""
        fate = self.fates.get(path)
        name = topic_of_path(path)
        if name is not None:
            self._list(name, path, value or b"", time_ms)
        if value is None:
            if fate is not None:
                fate.gone_ms = time_ms
                fate.then = None if at_ms is not None and time_ms <= at_ms else fate.then
            return
        if fate is None:
            fate = self.fates[path] = Fate(value, time_ms)
        fate.value, fate.written_ms, fate.gone_ms = value, time_ms, None
        if at_ms is not None and time_ms <= at_ms:
            fate.then = value

    def _list(self, name: TopicName, path: str, value: bytes, time_ms: int) -> None:
        with suppress(StoreError):
            infos = {info.ledger_id: info for info in decode_managed_ledger(value, path).ledgers}
            known = self.listed.setdefault(name, {})
            for ledger_id, listing in known.items():
                if ledger_id not in infos and listing.gone_ms is None:
                    known[ledger_id] = Listing(listing.info, time_ms)
            known.update((ledger_id, Listing(info, None)) for ledger_id, info in infos.items())


Keep = Callable[[str, bytes], bool]


def read_past(servers: Sequence[ServerFiles], keep: Keep, at_ms: int | None = None) -> Past:
    """Return what the files of SERVERS tell of the nodes of which KEEP(path, value) says so; AT_MS: the time asked for.

    Raises SourceNotFound, MetadataCorrupt.
    """
    past = Past()
    for item in iter_versions(servers):
        if isinstance(item, Flaw):
            past.gaps.append(item.text)
        elif isinstance(item, Gap):
            past.gaps.append(f"transactions {item.after + 1:#x} to {item.before - 1:#x} are in no file")
        elif not item.ephemeral:
            if past.begins_ms is None and item.kind != "snapshot":
                past.begins_ms = item.time_ms
            if item.path in past.fates or (item.value is not None and keep(item.path, item.value)):
                past.put(item.path, item.value, item.time_ms, at_ms)
    return past


def is_ledger(path: str) -> bool:
    """Whether PATH is a ledger's metadata."""
    return path.startswith(LEDGERS_ROOT) and not path.startswith(_OTHERS) and ledger_id_of_path(path) is not None
