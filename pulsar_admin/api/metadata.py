"""Nodes of the metadata, decoded, and what a cluster's metadata was, from the snapshots and transaction logs of its ZooKeeper servers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pulsar_admin.api.given import given_flags, given_places, wanted_of
from pulsar_admin.api.session import Caller, Session, Time, moment_of, warn_partial
from pulsar_admin.jsonify import to_json
from pulsar_admin.store.wording import Answer

if TYPE_CHECKING:
    from pulsar_admin.store.db.tree import Node
    from pulsar_admin.store.history.as_of import Moment
    from pulsar_admin.store.history.differences import Changed
    from pulsar_admin.store.history.events import Event, Question, Span
    from pulsar_admin.store.history.versions import Flaw
    from pulsar_admin.store.model.reader import EntryReader
    from pulsar_admin.store.sources.zookeeper import Gap, ServerFiles


class MetadataChange(Answer, frozen=True):
    """One change of a metadata node: at ``time_ms``, by transaction ``zxid`` of ``session`` (None: only a snapshot has it) and ``who``, the
    broker or bookie of that session. ``kind``: create, set, delete, snapshot; ``what`` in words; ``old`` and ``new`` are exact bytes."""

    time_ms: int
    zxid: int
    session: int | None
    who: str
    kind: str
    path: str
    what: str
    old: bytes | None
    new: bytes | None


def history(
    zookeeper: Iterable[Path | str],
    what: str | None = None,
    *,
    since: Time | None = None,
    until: Time | None = None,
    chroot: str | None = None,
) -> Iterator[MetadataChange]:
    """Yield the changes of WHAT (a path, topic, tenant/namespace or ledger id; None: everything), oldest first, as they are read.

    ZOOKEEPER: the files of servers of one ensemble, each ``dataDir`` or ``dataDir,dataLogDir``; CHROOT: the path that the cluster takes
    for its root, where there are several. SINCE and UNTIL are times, or zxids such as
    "0x4a1". What is missing or damaged is a PartialData warning at the end. Raises SourceNotFound, InvalidValue, MetadataCorrupt.
    """
    from pulsar_admin.store.history.events import Event, Span, parse_question
    from pulsar_admin.store.history.servers import find_servers

    problems: list[str] = []
    span = Span(*(None if one is None else moment_of(one) for one in (since, until)))
    servers = find_servers((), given_places("zookeeper", zookeeper), wanted_of(chroot, None).chroot)
    for item in iter_history(Caller(), servers, parse_question(what), span):
        if not isinstance(item, Event):
            problems.append(item.text)
            continue
        version = item.version
        where = (version.time_ms, version.zxid, version.session, item.who, version.kind, version.path)
        yield MetadataChange(*where, item.what, item.before, version.value)
    warn_partial(problems)


def iter_history(
    caller: Caller, servers: Sequence[ServerFiles], question: Question, span: Span
) -> Iterator[Event | Gap | Flaw]:
    """Yield the changes that QUESTION asks for within SPAN, and what SERVERS lack."""
    from pulsar_admin.store.history.events import iter_events
    from pulsar_admin.store.history.versions import log_bytes

    with caller.progress(log_bytes(servers), "bytes", "history") as advance:
        yield from iter_events(servers, question, span, advance)


def diff(
    zookeeper: Iterable[Path | str],
    *,
    since: Time,
    until: Time | None = None,
    passing: bool = False,
    chroot: str | None = None,
) -> tuple[Changed, ...]:
    """Return what is another UNTIL a moment (None: now) than at SINCE, by topic, in words and ``nodes``, as ``Store.diff`` does.

    ZOOKEEPER, CHROOT, and moments: as of ``history``. Subscriptions are compared as far as the metadata has their positions. What is
    missing is a PartialData warning. Raises SourceNotFound, NothingMatches, InvalidValue, MetadataCorrupt.
    """
    from pulsar_admin.store.history.servers import find_servers

    given_flags(passing=passing)
    last = None if until is None else moment_of(until)
    return diff_of(
        Caller(),
        find_servers((), given_places("zookeeper", zookeeper), wanted_of(chroot, None).chroot),
        moment_of(since),
        last,
        passing=passing,
    )


def diff_of(
    caller: Caller, servers: Sequence[ServerFiles], since: Moment, until: Moment | None, *, passing: bool
) -> tuple[Changed, ...]:
    """Return what ``diff`` returns of SERVERS."""
    from pulsar_admin.store.history.stores import compare_moments

    problems: list[str] = []
    found = tuple(compare_moments(servers, since, until, problems, passing=passing))
    caller.partial(dict.fromkeys(problems))
    return found


def decoded_node(session: Session, path: str) -> dict[str, Any]:  # Any: JSON
    """Return what ``Store.decoded`` returns."""
    from pulsar_admin.store.db.tree import read_node
    from pulsar_admin.store.model.nodes import decode_structure

    with session.reader() as reader:
        node = read_node(reader.txn, path)
        structure, value = decode_structure(node.path, node.value)
        document = {
            "path": node.path,
            "version": node.stat.version,
            "created": node.stat.created_ms,
            "modified": node.stat.modified_ms,
            "bytes": len(node.value),
            "structure": structure,
            "value": _readable(value),
        }
        if structure == "ManagedCursorInfo":
            document["truth"] = _truth(session, reader, node)
        return document


def readable_node(path: str, value: bytes | None) -> dict[str, Any] | None:  # Any: JSON
    """Return what VALUE of the node at PATH is, decoded, with secrets hidden; in hexadecimal where it cannot be read; None for none."""
    from pulsar_admin.store.errors import StoreError
    from pulsar_admin.store.model.nodes import decode_structure
    from pulsar_admin.store.model.redaction import hide_secrets_in

    if value is None:
        return None
    try:
        structure, found = decode_structure(path, value)
    except StoreError as error:
        return {"structure": "unreadable", "error": error.message, "value": value.hex()}
    return {"structure": structure, "value": hide_secrets_in(_readable(found))}


def _readable(value: object) -> object:
    """Return VALUE as JSON with names for upstream's numbers, text for custom metadata, and short ranges."""
    from pulsar_admin.store.codec.cursor import CursorInfo
    from pulsar_admin.store.codec.ledgermetadata import LedgerMetadata
    from pulsar_admin.store.model.cursors import range_text
    from pulsar_admin.store.model.ledger_owners import custom_text

    document = to_json(value)
    if isinstance(value, LedgerMetadata):
        digest = None if value.digest_type is None else value.digest_type.name
        document |= {"state": value.state.name, "digestType": digest, "custom": custom_text(value)}
    elif isinstance(value, CursorInfo):
        document |= {
            "markDelete": None if value.mark_delete is None else str(value.mark_delete),
            "ranges": range_text(value.ranges),
        }
    return document


def _truth(session: Session, reader: EntryReader, node: Node) -> dict[str, Any] | None:  # Any: JSON
    """Return where the cursor really stands, or None (and a warning) when that cannot be read."""
    from pulsar_admin.store.errors import StoreError
    from pulsar_admin.store.model.cursors import range_text, read_cursor
    from pulsar_admin.store.model.nodes import managed_node
    from pulsar_admin.store.model.topics import read_topic

    found = managed_node(node.path, node.value)
    assert found is not None
    assert found.cursor is not None
    if found.ledger is None:
        return None
    try:
        cursor = read_cursor(reader.txn, reader, read_topic(reader.txn, found.ledger), found.cursor)
    except StoreError as error:
        session.warn([f"the position of this cursor cannot be read: {error.message}"])
        return None
    return {
        "source": cursor.source,
        "markDeletePosition": str(cursor.mark_delete),
        **({} if cursor.ahead is None else {"storedMarkDeletePosition": str(cursor.ahead)}),
        "individuallyDeletedMessages": range_text(cursor.state.ranges),
        "batchDeletes": {str(position): list(words) for position, words in cursor.state.batch_deletes.items()},
        "properties": dict(cursor.state.properties),
        "skippedEntries": cursor.skipped_entries,
        "recoverableMarkDeletePosition": None if cursor.recoverable is None else str(cursor.recoverable.mark_delete),
    }
