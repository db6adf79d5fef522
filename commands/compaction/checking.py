"""``compaction verify``: the compacted ledger against the log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pulsar_admin.columns import Column
from pulsar_admin.commands.topics.answers import selected
from pulsar_admin.context import App
from pulsar_admin.jsonify import position_json
from pulsar_admin.options import TopicSelection, command, pass_app, topics_argument
from pulsar_admin.store.errors import EntryCorrupt, MetadataCorrupt, TopicNotFound
from pulsar_admin.store.model.topics import topics_bytes
from pulsar_admin.store.names import TopicName
from pulsar_admin.store.wording import counted
from pulsar_admin.visible import clean_text

if TYPE_CHECKING:
    from pulsar_admin.store.compaction.forms import Verification

_COLUMNS = (
    Column("TOPIC", "topic"),
    Column("LEDGER", "compactedLedger", "id"),
    Column("HORIZON", "horizon"),
    Column("ENTRIES", "entries", "number"),
    Column("MESSAGES", "messages", "number"),
    Column("PROBLEMS", "problems", "number"),
)


@command(
    "verify",
    uses=("spark",),
    examples=[
        "pulsar-admin compaction verify acme/orders/compacted",
        "pulsar-admin compaction verify --pattern 'acme/*/compacted*' -o table",
    ],
    output="What was compared, and every problem with the position of its message; exit code 1 when there is one.",
    errors=[TopicNotFound, MetadataCorrupt, EntryCorrupt],
)
@topics_argument
@pass_app
def verify(app: App, selection: TopicSelection) -> None:
    """Check compacted ledgers against the topic they were made from.

    The latest value of every key must be present with the same bytes, nothing that was replaced or deleted may be,
    entries must be in order, and batch indexes must ascend and be in range. Trimmed parts of the topic cannot be
    compared; encrypted batches are compared as bytes only.
    """
    with app.session.reader() as reader:
        names = selected(app, reader.txn, selection)
        with app.bulk(topics_bytes(reader.txn, names)) as reader.engine:
            rows = list(app.each(names, lambda name: _verify(app, name)))
    app.problems(sum(row["problems"] for row in rows))
    if len(names) == 1 and rows:
        app.emit(rows[0], _COLUMNS, plain=_render)
    else:
        app.emit_rows(rows, _COLUMNS)


def _verify(app: App, name: TopicName) -> dict[str, Any]:  # Any: JSON
    view = app.session.topic(name).compaction()
    found = view.verify()
    findings = [{"kind": "status", "position": None, "message": text} for text in view.status(leaked=False).problems]
    if found is None:
        return {"topic": str(name), "compacted": False, "problems": len(findings), "findings": findings}
    return _document(name, found, findings)


def _document(name: TopicName, found: Verification, findings: list[dict[str, Any]]) -> dict[str, Any]:  # Any: JSON
    for row in found.findings:
        place = None if row.position is None else position_json(row.position, name.partition_index)
        findings.append({"kind": row.kind, "position": place, "message": row.message})
    before = found.trimmed_before
    trimmed = None if before is None else position_json(before, name.partition_index)
    return {
        "topic": str(name),
        "compacted": True,
        "compactedLedger": found.ledger_id,
        "horizon": position_json(found.horizon, name.partition_index),
        "entries": found.entries,
        "messages": found.messages,
        "topicEntries": found.topic_entries,
        "topicMessages": found.topic_messages,
        "trimmedBefore": trimmed,
        "formats": found.forms,
        "rule": found.rule,
        "keyless": found.keyless,
        "encryptedEntries": found.unchecked,
        "lostEntries": found.lost,
        "problems": found.total + len(findings) - len(found.findings),
        "findings": findings,
    }


def _render(document: Any) -> str:  # Any: the JSON of ``_verify``
    if not document["compacted"]:
        return f"{document['topic']}: never compacted"
    lines = [
        f"{document['topic']}: compacted ledger {document['compactedLedger']}, {counted(document['entries'], 'entry')}, "
        f"{counted(document['messages'], 'message')}; compared with {counted(document['topicEntries'], 'entry', 'entries')} of the topic",
        f"  {counted(document['problems'], 'problem')}",
    ]
    lines += [f"  {row['kind']}: {clean_text(row['message'])}" for row in document["findings"]]
    if document["lostEntries"]:
        lines.append(
            f"  {counted(document['lostEntries'], 'entry')} of the topic cannot be read: problems may be due to that"
        )
    return "\n".join(lines)
