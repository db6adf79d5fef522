"""``compaction last-id``. Imports little, so that it is about as fast as starting the interpreter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pulsar_admin.columns import Column, time_text
from pulsar_admin.commands.topics.answers import answer_each
from pulsar_admin.context import App, Result
from pulsar_admin.jsonify import position_json
from pulsar_admin.options import TopicSelection, command, flag, topics_argument
from pulsar_admin.store.errors import EntryCorrupt, MetadataCorrupt, TopicNotFound
from pulsar_admin.store.names import Position

if TYPE_CHECKING:
    from pulsar_admin.api.topics import Topic
    from pulsar_admin.store.compaction.last_id import LastId

_LAST_ID_COLUMNS = (
    Column("TOPIC", "topic"),
    Column("POSITION", lambda row: _text(row)),
    Column("PUBLISHED", lambda row: row["publishTime"] or None, "time"),
    Column("RULE", "rule"),
)


@command(
    "compaction last-id",
    examples=[
        "acme/orders/compacted",
        "acme/secure/compacted-secret --explain",
        "--pattern 'acme/orders/compacted*' -o jsonl",
    ],
    output="One object per topic: position, publish time and the rule that found it; ids -1 when nothing remains.",
    errors=[TopicNotFound, MetadataCorrupt, EntryCorrupt],
)
@topics_argument
@flag("--verify", help="Read the whole entry too and verify its digest and checksum.")
@flag(
    "--explain", "explained", help="Show each rejected batch index (1000 per batch at most) and why, and what was read."
)
def last_id(app: App, selection: TopicSelection, verify: bool, explained: bool) -> Result:
    """Show the last message of a topic's compacted view.

    Read from metadata alone if that is enough (compacted_batch_indexes, PIP-429): lengths and ids are checked, but
    not the digest and checksum, which cover the payload; --verify checks those too. Batches that older brokers
    compacted are decompressed and their compacted_out flags read; for an encrypted one the answer is its last index.
    """
    return answer_each(
        app,
        selection,
        lambda topic: _document(topic, topic.compaction().last_id(verify=verify), explained),
        _LAST_ID_COLUMNS,
        plain=_render_last_id if explained else None,
    )


def _document(topic: Topic, found: LastId, explained: bool) -> dict[str, Any]:  # Any: JSON
    document = {"topic": topic.name, **_ids(found.position), "publishTime": found.publish_ms, "rule": found.rule}
    return document | _explanation(found) if explained else document


def _explanation(found: LastId) -> dict[str, Any]:  # Any: JSON
    place = found.compacted_entry
    return {
        "horizon": None if found.horizon is None else position_json(found.horizon),
        "compactedEntry": None if place is None else {"ledgerId": place[0], "entryId": place[1]},
        "batchSize": found.batch_size,
        "payloadBytes": found.payload_bytes,
        "bytesRead": found.bytes_read,
        "verified": found.verified,
        "rejected": [{**_ids(row.position), "why": row.reason} for row in found.rejected],
    }


def _ids(position: Position) -> dict[str, int]:
    return {
        "ledgerId": position.ledger_id,
        "entryId": position.entry_id,
        "batchIndex": position.batch_index,
    }


def _render_last_id(document: Any) -> str:  # Any: the JSON of ``_document``
    place = _text(document)
    when = f", published {time_text(document['publishTime'])}" if document["publishTime"] else ""
    lines = [f"{document['topic']}: {place}{when} ({document['rule']})"]
    if "rejected" not in document:
        return lines[0]
    entry = document["compactedEntry"]
    source = "the topic itself" if entry is None else f"compacted ledger entry {entry['ledgerId']}:{entry['entryId']}"
    lines.append(
        f"  from {source}: {document['bytesRead']:,} bytes read, {document['payloadBytes']:,} bytes of payload, "
        f"{document['verified']} verified"
    )
    for row in document["rejected"]:
        lines.append(f"  not {_text(row)}: {row['why']}")
    return "\n".join(lines)


def _text(ids: Any) -> str:  # Any: JSON
    return str(Position(ids["ledgerId"], ids["entryId"], ids["batchIndex"]))
