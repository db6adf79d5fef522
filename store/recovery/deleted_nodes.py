"""Metadata nodes before their deletion, from ZooKeeper's snapshots and transaction logs, and the topics that they describe.

Memory is bounded: each node keeps its last value and, if a time is given, its value then; each topic keeps every ledger it ever listed.
Upstream: ``PersistentTopic.delete`` removes the schema, then the cursors, then trims every ledger, then the topic's node
(``ManagedLedgerImpl.asyncDelete``, Pulsar 4.0.8); ledgers deleted within a minute before the node belong to its deletion.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

from msgspec import Struct, field

from pulsar_admin.store.codec.cursor import CursorInfo, CursorState, decode_cursor_info
from pulsar_admin.store.codec.ledgermetadata import LEDGERS_ROOT, ledger_id_of_path, ledger_path
from pulsar_admin.store.codec.managedledger import LedgerInfo, ManagedLedger, decode_managed_ledger
from pulsar_admin.store.errors import StoreError, TopicNotFound
from pulsar_admin.store.history.servers import find_servers
from pulsar_admin.store.history.versions import Flaw, iter_versions
from pulsar_admin.store.model.cursors import read_cursor_ledger
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.names import Position, TopicName, decode_name, topic_of_path
from pulsar_admin.store.sources.zookeeper import Gap, ServerFiles

_OTHERS = (f"{LEDGERS_ROOT}/idgen/", f"{LEDGERS_ROOT}/underreplication/")


class Fate(Struct):
    """A node's last value with the time it was written, when it was deleted (None: it was not), and its value at the given time.

    ``earlier``: the same for the previous node of this path, which was deleted before this one was created.
    """

    value: bytes
    written_ms: int
    gone_ms: int | None = None
    then: bytes | None = None
    earlier: Fate | None = None


class Listing(Struct, frozen=True):
    """A ledger's last ``LedgerInfo`` in a topic's list, and when the list no longer had it (None: it still does)."""

    info: LedgerInfo
    gone_ms: int | None


class Past(Struct):
    """Fates by path; ``listed``: for each topic every ledger that it ever listed, with its last entry of the list.

    ``begins_ms``: when the history begins; ``gaps``: its gaps, in words; ``witnesses``: if there is no history, the
    evidence that ledgers belong to a topic.
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
        """Record that the node at this path got a value, or was deleted (None)."""
        fate = self.fates.get(path)
        name = topic_of_path(path)
        if name is not None:
            with suppress(StoreError):
                infos = {info.ledger_id: info for info in decode_managed_ledger(value or b"", path).ledgers}
                known = self.listed.setdefault(name, {})
                for ledger_id, listing in known.items():
                    if ledger_id not in infos and listing.gone_ms is None:
                        known[ledger_id] = Listing(listing.info, time_ms)
                known.update((ledger_id, Listing(info, None)) for ledger_id, info in infos.items())
        if value is None:
            if fate is not None:
                fate.gone_ms = time_ms
                fate.then = None if at_ms is not None and time_ms <= at_ms else fate.then
            return
        if fate is None:
            fate = self.fates[path] = Fate(value, time_ms)
        elif fate.gone_ms is not None:
            deleted = Fate(fate.value, fate.written_ms, fate.gone_ms)
            fate = self.fates[path] = Fate(value, time_ms, None, fate.then, deleted)
        fate.value, fate.written_ms = value, time_ms
        if at_ms is not None and time_ms <= at_ms:
            fate.then = value


Keep = Callable[[str, bytes], bool]


def read_past(servers: Sequence[ServerFiles], keep: Keep, at_ms: int | None) -> Past:
    """Return the history of the nodes for which ``keep(path, value)`` is true, from the servers' files; ``at_ms``: the given time.

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


def read_own_past(reader: EntryReader, places: Iterable[str], keep: Keep, at_ms: int | None = None) -> Past:
    """Return the history as ``read_past`` does, from the ZooKeeper files of a store and at other places; raises Refused without any."""
    return read_past(find_servers(reader.txn.store.info.sources, places), keep, at_ms)


def is_ledger(path: str) -> bool:
    """Whether a path is that of a ledger's metadata node."""
    return path.startswith(LEDGERS_ROOT) and not path.startswith(_OTHERS) and ledger_id_of_path(path) is not None


# -- a topic: its ledgers, its subscriptions and where they stood -----------------------------------------------------


_SHOWN = 10
_ACT_MS = 60_000
"""How long the deletion of a topic takes at most."""


class PastCursor(Struct, frozen=True):
    """A cursor at an earlier time; ``problem``: why its state is older than that, in words."""

    info: CursorInfo
    state: CursorState
    value: bytes
    problem: str = ""


class PastTopic(Struct, frozen=True):
    """A topic at an earlier time: how each of its ledgers was listed, and its cursors by name; ``value``: its node's.

    ``gone_ms``: when it was deleted, None if only ledgers were. ``ends``: the last entry at that time of each ledger
    that has more now.
    """

    name: TopicName
    value: bytes
    infos: tuple[LedgerInfo, ...]
    cursors: Mapping[str, PastCursor] = field(default_factory=dict)
    gone_ms: int | None = None
    ends: Mapping[int, int] = field(default_factory=dict)

    @property
    def managed(self) -> ManagedLedger:
        """The topic's ManagedLedgerInfo, decoded from ``value``; raises MetadataCorrupt."""
        return decode_managed_ledger(self.value, self.name.path)


def find_deletion(past: Past, name: TopicName) -> Fate | None:
    """Return the node of a topic that was deleted last, None if it was never deleted.

    If the topic was created again, that is the earlier node, unless the new topic lists the ledgers of that node again.
    """
    fate = past.fates.get(name.path)
    if fate is None or fate.gone_ms is not None or fate.earlier is None:
        return fate if fate is not None and fate.gone_ms is not None else None
    return fate.earlier if any(_went_with(one, fate.earlier) for one in past.listed.get(name, {}).values()) else None


def read_deleted(reader: EntryReader, name: TopicName, past: Past, *, trimmed: bool) -> PastTopic:
    """Return a topic as it was when it was last deleted, even if it was created again since; for any other existing topic, the
    ledgers that it no longer lists.

    ``trimmed``: for a deleted topic also the ledgers that were trimmed before or since. Raises TopicNotFound if the history
    records no deletion.
    """
    fate = past.fates.get(name.path)
    listings = past.listed.get(name, {})
    if fate is None or (fate.gone_ms is None and all(one.gone_ms is None for one in listings.values())):
        some = ", ".join(str(one).removeprefix("persistent://") for one in list(past.witnesses)[:_SHOWN])
        raise TopicNotFound(
            f"nothing shows that {name} was deleted",
            hint=f"the evidence has: {some}"
            if some
            else (
                "name older files of ZooKeeper with --zookeeper DIR; or use the evidence of the entries: --by-evidence"
            ),
            topic=str(name),
        )
    deletion = find_deletion(past, name)
    if deletion is None:
        infos = sorted(one.info for one in listings.values() if one.gone_ms is not None)
        return PastTopic(name, fate.value, tuple(infos))
    infos = [
        one.info for one in listings.values() if one.gone_ms is not None and (trimmed or _went_with(one, deletion))
    ]
    prefix = name.path + "/"
    cursors = {
        decode_name(path.removeprefix(prefix)): _read_cursor_then(reader, path, one.value)
        for path, last in past.fates.items()
        if path.startswith(prefix)
        for one in (last, last.earlier)
        if one is not None and _went_with(one, deletion)
    }
    return PastTopic(name, deletion.value, tuple(sorted(infos)), dict(sorted(cursors.items())), deletion.gone_ms)


def _went_with(record: Listing | Fate, deletion: Fate) -> bool:
    assert deletion.gone_ms is not None
    return record.gone_ms is not None and deletion.gone_ms - _ACT_MS <= record.gone_ms <= deletion.gone_ms


def _read_cursor_then(reader: EntryReader, path: str, value: bytes) -> PastCursor:
    """Return a cursor from an earlier value of its node: its state is that of its cursor ledger's last entry, wherever that is stored."""
    info = decode_cursor_info(value, path)
    snapshot = CursorState(info.mark_delete or Position(-1, -1), info.ranges, info.batch_deletes, info.properties)
    if not info.is_in_ledger:
        return PastCursor(info, snapshot, value)
    try:
        state, skipped = read_cursor_ledger(reader.txn, reader, info.cursors_ledger_id)
    except StoreError as error:
        return PastCursor(info, snapshot, value, error.message)
    if state is None:
        return PastCursor(
            info,
            snapshot,
            value,
            f"its cursor ledger {info.cursors_ledger_id} is in no file: its state is that of the beginning of that "
            "ledger",
        )
    problem = f"{skipped} newer entries of its cursor ledger {info.cursors_ledger_id} cannot be read" if skipped else ""
    return PastCursor(info, state, value, problem)


def find_fate(past: Past, ledger_id: int) -> Fate | None:
    """Return the history of a ledger's metadata node, None if the history does not have it."""
    return past.fates.get(ledger_path(ledger_id))
