"""What ZooKeeper's history has of cursors: every version of their metadata, and when their ledgers were made and ended."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from pulsar_admin.store.codec.claims import CURSOR_KEY
from pulsar_admin.store.codec.cursor import decode_cursor_info
from pulsar_admin.store.codec.ledgermetadata import LEDGERS_ROOT, LedgerState, decode_ledger_metadata, ledger_id_of_path
from pulsar_admin.store.errors import MetadataCorrupt, Refused, SubscriptionNotFound, Unsupported
from pulsar_admin.store.history.servers import find_servers
from pulsar_admin.store.history.versions import Version, iter_versions
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.topics import Topic
from pulsar_admin.store.names import shell_word
from pulsar_admin.store.recovery.acks import AckState, CursorVersion, LedgerLife, imported_versions, iter_ack_states
from pulsar_admin.store.sources.zookeeper import ServerFiles

_CURSOR_KEY = CURSOR_KEY.encode()


class CursorHistory(Struct):
    """Versions by the path of a cursor, lives by the id of a cursor ledger, and what could not be read."""

    versions: dict[str, list[CursorVersion]] = field(default_factory=dict)
    lives: dict[int, LedgerLife] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def states(self, reader: EntryReader, topic: Topic, subscription: str) -> Iterator[AckState]:
        """Yield every state of a subscription that is left; raises SubscriptionNotFound where nothing ever had its name."""
        found = self.versions.get(topic.name.cursor_path(subscription), [])
        last = found[-1] if found else None
        imported = imported_versions(reader.txn, topic, subscription)
        new = [one for one in imported if last is None or (one.time_ms >= last.time_ms and one.info != last.info)]
        if not found and not new:
            raise SubscriptionNotFound(
                f"topic {topic.name} had no subscription {subscription!r}",
                hint=f"list them with: pulsar-admin topics subscriptions {shell_word(topic.name)}",
                topic=str(topic.name),
                subscription=subscription,
            )
        return iter_ack_states(reader, topic, [*found, *new], self.lives)


def find_cursor_history(
    sources: Iterable[Mapping[str, Any]], places: Iterable[str], paths: Iterable[str]
) -> CursorHistory:  # Any: JSON
    """Return what the ZooKeeper files in the SOURCES of a store and at PLACES have of the cursors at PATHS; empty where there are none.

    Raises SourceNotFound for a place that is none, and as ``read_cursor_history``.
    """
    try:
        servers = find_servers(sources, places)
    except Refused:
        return CursorHistory()
    return read_cursor_history(servers, paths)


def read_cursor_history(servers: Sequence[ServerFiles], paths: Iterable[str]) -> CursorHistory:
    """Return what SERVERS, copies of one ensemble, have of the cursors at PATHS; raises as ``iter_versions``."""
    history = CursorHistory()
    cursors = dict.fromkeys(paths, -1)  # the last version's number, by which a missing one shows
    ledgers = _CursorLedgers(history.lives)
    for item in iter_versions(servers, lambda path: path in cursors or path.startswith(LEDGERS_ROOT)):
        if isinstance(item, Version):
            if item.path in cursors:
                follows = item.kind != "snapshot" or item.version == cursors[item.path] + 1
                cursors[item.path] = -1 if item.version is None else item.version
                _take(history, item, follows)
            else:
                ledgers.take(item)
        else:
            history.problems.append(item.text)
    return history


def _take(history: CursorHistory, item: Version, follows: bool) -> None:
    try:
        info = None if item.value is None else decode_cursor_info(item.value, item.path)
    except (MetadataCorrupt, Unsupported) as error:
        history.problems.append(f"transaction {item.zxid:#x}: {error.message}")
        return
    history.versions.setdefault(item.path, []).append(CursorVersion(item.time_ms, info, item.zxid, follows))


class _CursorLedgers:
    """Keeps the lives of cursor ledgers: only they have a cursor's name in their metadata."""

    def __init__(self, lives: dict[int, LedgerLife]) -> None:
        self._lives = lives

    def take(self, item: Version) -> None:
        ledger_id = ledger_id_of_path(item.path)
        if ledger_id is None:
            return
        life = self._lives.get(ledger_id)
        if item.value is None:
            if life is not None and life.ended_ms is None:
                self._lives[ledger_id] = replace(life, ended_ms=item.time_ms)
        elif _CURSOR_KEY in item.value:
            life = life or LedgerLife()
            if item.kind == "create":
                life = replace(life, made_ms=item.time_ms)
            elif life.ended_ms is None and _is_closed(item):
                life = replace(life, ended_ms=item.time_ms)
            self._lives[ledger_id] = life


def _is_closed(item: Version) -> bool:
    assert item.value is not None
    try:
        return decode_ledger_metadata(item.value, item.path).state is LedgerState.CLOSED
    except (MetadataCorrupt, Unsupported):
        return False
