"""What a topic was: its ledgers, its subscriptions and where they stood, before it was deleted or trimmed.

Upstream: ``PersistentTopic.delete`` removes the schema, then the cursors, then trims every ledger, then the topic's node
(``ManagedLedgerImpl.asyncDelete``, Pulsar 4.0.8); what went within a minute before the node belongs to its deletion.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from pulsar_admin.store.codec.cursor import CursorInfo, CursorState, decode_cursor_info
from pulsar_admin.store.codec.ledgermetadata import ledger_path
from pulsar_admin.store.codec.managedledger import LedgerInfo, ManagedLedger, decode_managed_ledger
from pulsar_admin.store.errors import StoreError, TopicNotFound
from pulsar_admin.store.model.cursors import read_cursor_ledger
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.names import Position, TopicName, decode_name
from pulsar_admin.store.recovery.past import Fate, Listing, Past

_SHOWN = 10
ACT_MS = 60_000
"""How long the deletion of a topic takes at most."""


class CursorThen(Struct, frozen=True):
    """A cursor as it was; ``problem``: why its state is older than that, in words."""

    info: CursorInfo
    state: CursorState
    value: bytes
    problem: str = ""


class TopicThen(Struct, frozen=True):
    """A topic as it was: how each of its ledgers was listed, its cursors by name; ``value``: its node's.

    ``gone_ms``: when it was deleted, None where only ledgers of it were. ``ends``: the last entry then, of a ledger that has more now.
    """

    name: TopicName
    value: bytes
    infos: tuple[LedgerInfo, ...]
    cursors: Mapping[str, CursorThen] = field(default_factory=dict)
    gone_ms: int | None = None
    ends: Mapping[int, int] = field(default_factory=dict)

    @property
    def managed(self) -> ManagedLedger:
        """Its node's value, decoded; raises MetadataCorrupt."""
        return decode_managed_ledger(self.value, self.name.path)


def read_deleted(reader: EntryReader, name: TopicName, past: Past, *, trimmed: bool = False) -> TopicThen:
    """Return NAME as it was when it was deleted; of a topic that is there, the ledgers that it no longer lists.

    TRIMMED: of a deleted one also the ledgers that were trimmed before. Raises TopicNotFound where the history has nothing of it that
    was deleted.
    """
    fate = past.fates.get(name.path)
    listings = past.listed.get(name, {})
    if fate is None or (fate.gone_ms is None and all(one.gone_ms is None for one in listings.values())):
        some = ", ".join(str(one).removeprefix("persistent://") for one in list(past.witnesses)[:_SHOWN])
        raise TopicNotFound(
            f"nothing says of {name} that it was deleted",
            hint=f"the evidence has: {some}"
            if some
            else "name files of ZooKeeper that reach further back with --zookeeper DIR; or go by the entries: --by-evidence",
            topic=str(name),
        )
    begin_ms = None if fate.gone_ms is None else fate.gone_ms - ACT_MS
    every = trimmed or begin_ms is None
    infos = [one.info for one in listings.values() if one.gone_ms is not None and (every or _went_with(one, begin_ms))]
    cursors = {} if begin_ms is None else _cursors(reader, name, past, begin_ms)
    return TopicThen(name, fate.value, tuple(sorted(infos)), cursors, fate.gone_ms)


def _went_with(found: Listing | Fate, begin_ms: int | None) -> bool:
    return found.gone_ms is not None and begin_ms is not None and found.gone_ms >= begin_ms


def _cursors(reader: EntryReader, name: TopicName, past: Past, begin_ms: int) -> dict[str, CursorThen]:
    prefix = name.path + "/"
    found = {}
    for path, fate in past.fates.items():
        if path.startswith(prefix) and _went_with(fate, begin_ms):
            found[decode_name(path.removeprefix(prefix))] = read_cursor_then(reader, path, fate.value)
    return dict(sorted(found.items()))


def read_cursor_then(reader: EntryReader, path: str, value: bytes) -> CursorThen:
    """Return the cursor whose node at PATH had VALUE: its state is that of its cursor ledger's last entry, wherever that lies."""
    info = decode_cursor_info(value, path)
    snapshot = CursorState(info.mark_delete or Position(-1, -1), info.ranges, info.batch_deletes, info.properties)
    if info.cursors_ledger_id < 0:
        return CursorThen(info, snapshot, value)
    try:
        state, skipped = read_cursor_ledger(reader.txn, reader, info.cursors_ledger_id)
    except StoreError as error:
        return CursorThen(info, snapshot, value, error.message)
    if state is None:
        return CursorThen(
            info,
            snapshot,
            value,
            f"its cursor ledger {info.cursors_ledger_id} is in no file: as it was when that began",
        )
    problem = f"{skipped} newer entries of its cursor ledger {info.cursors_ledger_id} cannot be read" if skipped else ""
    return CursorThen(info, state, value, problem)


def find_fate(past: Past, ledger_id: int) -> Fate | None:
    """Return what the history has of a ledger."""
    return past.fates.get(ledger_path(ledger_id))
