"""Changes of metadata nodes in words: of a topic's ledger list, a cursor, a ledger, a schema, policies."""

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from pulsar_admin.store.codec.cursor import NO_CURSOR_LEDGER, CursorInfo
from pulsar_admin.store.codec.ledgermetadata import LedgerMetadata, LedgerState, ledger_id_of_path
from pulsar_admin.store.codec.managedledger import LedgerInfo, ManagedLedger
from pulsar_admin.store.codec.schema import SchemaLocator
from pulsar_admin.store.errors import StoreError
from pulsar_admin.store.model.nodes import cursor_of_path, decode_structure
from pulsar_admin.store.model.redaction import hide_secrets_in
from pulsar_admin.store.names import MANAGED_LEDGERS, Position, decode_name, topic_of_path
from pulsar_admin.store.timespec import format_time_ms
from pulsar_admin.store.wording import counted

_SHOWN = 90  # characters of a value that is not a structure
_IDS = 6


def subject_of(path: str) -> str:
    """Return an operator's name for what the node at a path describes, such as ``ledger 5``; "" if only the path names
    it."""
    topic, cursor, ledger_id = topic_of_path(path), cursor_of_path(path), ledger_id_of_path(path)
    if topic is not None:
        return f"topic {topic}"
    if cursor is not None:
        return f"subscription {cursor[1]} of {cursor[0]}"
    if ledger_id is not None:
        return f"ledger {ledger_id}"
    for prefix, depth, noun in _PLACES:
        names = path.removeprefix(prefix).split("/")
        if path.startswith(prefix) and all(names) and len(names) in depth:
            return f"{noun} {'/'.join(map(decode_name, names))}"
    return ""


_PLACES = (
    ("/admin/policies/", (2, 3), "namespace"),
    ("/admin/policies/", (1,), "tenant"),
    ("/admin/local-policies/", (2, 3), "bundles of"),
    ("/admin/partitioned-topics/", (4,), "partitioned topic"),
    ("/schemas/", (3,), "schema of"),
    ("/admin/clusters/", (1,), "cluster"),
    ("/ledgers/cookies/", (1,), "cookie of bookie"),
    ("/ledgers/available/readonly/", (1,), "read-only bookie"),
    ("/ledgers/available/", (1,), "bookie"),
    ("/loadbalance/brokers/", (1,), "broker"),
    ("/ledgers/underreplication/ledgers/", range(1, 8), "under-replicated"),
)


def describe(path: str, old: bytes | None, new: bytes | None) -> str:
    """Return in words how the value of a node changed from ``old`` to ``new``; None: the node does not exist."""
    if new is None:
        return "; ".join(_deleted(path, old))
    try:
        structure, now = decode_structure(path, new)
    except StoreError as error:
        return f"a value that cannot be read: {error.message}"
    before: object = None
    if old is not None:
        try:
            was, before = decode_structure(path, old)
        except StoreError:
            return f"a value that could not be read was replaced: {describe(path, None, new)}"
        if was != structure:
            return f"{_shown(before)} → {_shown(now)}"
        if old == new:
            return "written again with the same value"
    words_of = next((words for kind, words in _WORDS if isinstance(now, kind)), _value_words)
    return "; ".join(words_of(before, now)) or "the same, in other bytes"


def _deleted(path: str, old: bytes | None) -> Iterator[str]:
    if old is None:
        yield "deleted"
        return
    try:
        _, before = decode_structure(path, old)
    except StoreError:
        yield "deleted"
        return
    if isinstance(before, ManagedLedger):
        listed = f", which had {_ledgers(before.ledgers)}" if before.ledgers else ""
        yield f"topic deleted{listed}"
    elif isinstance(before, CursorInfo):
        yield f"subscription deleted; {_place(before)}"
    elif isinstance(before, LedgerMetadata):
        yield f"ledger deleted: {_ledger_text(before)}"
    else:
        yield f"deleted; it was {_shown(before)}" if before is not None else "deleted"


# -- topics -----------------------------------------------------------------------------------------------------------


def _topic_words(before: ManagedLedger | None, now: ManagedLedger) -> Iterator[str]:
    if before is None:
        yield f"topic created with {_ledgers(now.ledgers)}" if now.ledgers else "topic created"
        before = ManagedLedger()
    else:
        yield from _list_words(before.ledgers, now.ledgers)
    if before.terminated != now.terminated:
        yield f"terminated at {now.terminated}" if now.terminated is not None else "no longer terminated"
    yield from _json_words(dict(before.properties), dict(now.properties), "property ")


def _list_words(before: Sequence[LedgerInfo], now: Sequence[LedgerInfo]) -> Iterator[str]:
    was, left = {one.ledger_id: one for one in before}, {one.ledger_id: one for one in now}
    came = [one for one in now if one.ledger_id not in was]
    gone = [one for one in before if one.ledger_id not in left]
    for ledger_id, one in left.items():
        if ledger_id in was and one != was[ledger_id]:
            yield from _entry_words(was[ledger_id], one)
    entries = sum(one.entries for one in gone)
    extent = counted(entries, "entry") if entries else "open" if gone and not gone[-1].timestamp_ms else "empty"
    rolled = bool(before) and all(one.ledger_id > before[-1].ledger_id for one in came)
    if came and gone and rolled and not entries:
        yield f"rolled over: {extent} {_ids([one.ledger_id for one in gone])} replaced by {_ids([one.ledger_id for one in came])}"
        return
    if came:
        yield f"{'rolled over to' if rolled else 'listed:'} {_ids([one.ledger_id for one in came])}"
    if gone:
        trimmed = all(one.ledger_id < other for one in gone for other in left)
        yield f"{'trimmed' if trimmed and entries else 'no longer listed:'} {_ids([one.ledger_id for one in gone])} ({extent})"


def _entry_words(was: LedgerInfo, one: LedgerInfo) -> Iterator[str]:
    name = f"ledger {one.ledger_id}"
    if not was.timestamp_ms and one.timestamp_ms:
        yield f"{name} closed with {_extent(one)}"
    elif (was.entries, was.size_bytes) != (one.entries, one.size_bytes):
        yield f"{name}: {_extent(was)} → {_extent(one)}"
    if one.offloaded != was.offloaded:
        yield f"{name} {'offloaded' if one.offloaded else 'no longer offloaded'}"
    elif one.offload_uuid != was.offload_uuid:
        yield f"{name}: offload {'started' if was.offload_uuid is None else 'started again'}"
    if one.bookkeeper_deleted != was.bookkeeper_deleted:
        yield f"{name}: {'deleted from bookies, tiered storage has it' if one.bookkeeper_deleted else 'on bookies again'}"
    yield from _json_words(dict(was.properties), dict(one.properties), f"{name}, property ")


def _extent(one: LedgerInfo) -> str:
    return f"{counted(one.entries, 'entry')} ({counted(one.size_bytes, 'byte')})"


def _ledgers(ledgers: Sequence[LedgerInfo]) -> str:
    entries = sum(one.entries for one in ledgers)
    return _ids([one.ledger_id for one in ledgers]) + (f" ({counted(entries, 'entry')})" if entries else "")


def _ids(ids: Sequence[int]) -> str:
    """Return ledger ids in words: ``ledger 5``, ``ledgers 5, 7`` or ``38 ledgers, 5 to 90``."""
    if len(ids) > _IDS:
        return f"{len(ids):,} ledgers, {min(ids)} to {max(ids)}"
    return f"ledger{'s' * (len(ids) != 1)} {', '.join(map(str, ids))}"


def entries_between(ledgers: Sequence[LedgerInfo], low: Position, high: Position) -> int:
    """Return how many entries a cursor passes on its way from ``low`` to ``high``; negative if it moves back."""
    if high < low:
        return -entries_between(ledgers, high, low)
    between = sum(one.entries for one in ledgers if low.ledger_id <= one.ledger_id < high.ledger_id)
    return between + high.entry_id - low.entry_id


# -- subscriptions ----------------------------------------------------------------------------------------------------


def _cursor_words(before: CursorInfo | None, now: CursorInfo) -> Iterator[str]:
    if before is None:
        yield f"subscription created; {_place(now)}"
        before = CursorInfo(NO_CURSOR_LEDGER)
    elif before.cursors_ledger_id != now.cursors_ledger_id and now.is_in_ledger:
        known = f", before in ledger {before.cursors_ledger_id}" if before.is_in_ledger else ""
        yield f"its position is in ledger {now.cursors_ledger_id} from here on{known}"
    elif before.cursors_ledger_id != now.cursors_ledger_id:
        yield f"closed; {_place(now)}"
    elif before.mark_delete != now.mark_delete:
        yield f"mark-delete {before.mark_delete} → {now.mark_delete}"
    elif before.ranges != now.ranges or before.batch_deletes != now.batch_deletes:
        yield _place(now)
    elif before.last_active_ms != now.last_active_ms and now.last_active_ms is not None:
        yield f"last active {format_time_ms(now.last_active_ms)}"
    yield from _json_words(dict(before.properties), dict(now.properties), "position property ")
    yield from _json_words(dict(before.cursor_properties), dict(now.cursor_properties), "property ")


def _place(cursor: CursorInfo) -> str:
    if cursor.is_in_ledger:
        return f"its position is in ledger {cursor.cursors_ledger_id}"
    acked = f", {counted(len(cursor.ranges), 'range')} acknowledged after it" if cursor.ranges else ""
    return f"mark-delete {cursor.mark_delete}{acked}"


# -- ledgers ----------------------------------------------------------------------------------------------------------


def _ledger_words(before: LedgerMetadata | None, now: LedgerMetadata) -> Iterator[str]:
    if before is None:
        yield f"ledger created {_claim(now)}: {_ledger_text(now)}"
        return
    if before.segments != now.segments:
        for segment in now.segments:
            if segment not in before.segments:
                yield f"from entry {segment.first_entry_id} on bookies {', '.join(segment.members)}"
    if before.state != now.state:
        yield {
            LedgerState.CLOSED: f"closed with last entry {now.last_entry_id}, {counted(now.length, 'byte')}",
            LedgerState.IN_RECOVERY: "recovery begun: no more entries are taken",
            LedgerState.OPEN: "open again",
        }[now.state]
    elif (before.last_entry_id, before.length) != (now.last_entry_id, now.length):
        yield f"last entry {before.last_entry_id} → {now.last_entry_id}, bytes {before.length:,} → {now.length:,}"
    was = {key: value.decode("utf-8", "replace") for key, value in before.custom.items()}
    yield from _json_words(was, {key: value.decode("utf-8", "replace") for key, value in now.custom.items()}, "custom ")


def _ledger_text(ledger: LedgerMetadata) -> str:
    members = ", ".join(ledger.segments[-1].members) if ledger.segments else "no bookie"
    extent = ""
    if ledger.state is LedgerState.CLOSED:
        extent = f", last entry {ledger.last_entry_id}, {counted(ledger.length, 'byte')}"
    return f"{ledger.state.name.lower().replace('_', ' ')}{extent}, on {members}"


def _claim(ledger: LedgerMetadata) -> str:
    named = {key.rpartition("/")[2]: value.decode("utf-8", "replace") for key, value in ledger.custom.items()}
    topic = topic_of_path(f"{MANAGED_LEDGERS}/{named.get('managed-ledger')}")
    name = str(topic or named.get("compactedTopic") or named.get("schemaId") or "")
    if "cursor" in named:
        return f"for cursor {decode_name(named['cursor'])} of {name}"
    kind = named.get("component", "managed-ledger")
    return f"for {name if kind == 'managed-ledger' else f'{kind} of {name}'}" if name else "for no owner that it names"


# -- the rest ---------------------------------------------------------------------------------------------------------


def _schema_words(before: SchemaLocator | None, now: SchemaLocator) -> Iterator[str]:
    known = set() if before is None else {entry.version for entry in before.index}
    for entry in now.index:
        if entry.version not in known:
            yield f"schema version {entry.version} in ledger {entry.position.ledger_id}"
    if gone := known - {entry.version for entry in now.index}:
        yield f"schema versions {', '.join(map(str, sorted(gone)))} taken out"


def _value_words(before: object, now: object) -> Iterator[str]:
    if isinstance(now, dict) and isinstance(before, dict):
        yield from _json_words(before, now, "")
    elif before is None:
        yield "created" if now is None else f"created: {_shown(now)}"
    elif before != now:
        yield f"{_shown(before)} → {_shown(now)}"


def _json_words(before: dict[str, Any], now: dict[str, Any], prefix: str) -> Iterator[str]:  # Any: JSON
    """Yield each property whose value changed, as name, old and new value; secrets are hidden."""
    was, left = hide_secrets_in(before), hide_secrets_in(now)
    for key in dict.fromkeys([*was, *left]):
        old, new = was.get(key), left.get(key)
        if old == new:
            continue
        if isinstance(old, dict) and isinstance(new, dict):
            yield from _json_words(old, new, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}: {_shown(old)} → {_shown(new)}"


def _shown(value: object) -> str:
    if value is None or value == b"":
        return "none"
    if isinstance(value, bytes):
        return counted(len(value), "byte")
    try:
        text = value if isinstance(value, str) else json.dumps(hide_secrets_in(value), ensure_ascii=False)
    except TypeError:
        text = str(value)
    text = " ".join(text.split())
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


_WORDS: tuple[tuple[type, Callable[[Any, Any], Iterator[str]]], ...] = (  # Any: the type before it
    (ManagedLedger, _topic_words),
    (CursorInfo, _cursor_words),
    (LedgerMetadata, _ledger_words),
    (SchemaLocator, _schema_words),
)
