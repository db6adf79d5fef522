"""``compaction verify`` compares compacted ledgers with topics; ``compaction explain`` shows what compaction does to a key."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from pulsar_admin.api.topics import explain_key
from pulsar_admin.columns import Column
from pulsar_admin.commands.topics.answers import one_or_rows, selected
from pulsar_admin.context import App, Result, Shown
from pulsar_admin.jsonify import partition_json, to_json
from pulsar_admin.options import TopicSelection, choice_option, command, topics_argument
from pulsar_admin.store.compaction.forms import RULE_4_0, RULE_4_2, CompactionFinding
from pulsar_admin.store.errors import EntryCorrupt, MetadataCorrupt, NothingMatches, NotSeen, TopicNotFound
from pulsar_admin.store.model.topics import scan_bytes
from pulsar_admin.store.names import TopicName, shell_word
from pulsar_admin.store.wording import counted
from pulsar_admin.visible import clean_text

if TYPE_CHECKING:
    from pulsar_admin.api.topics import Rule
    from pulsar_admin.store.compaction.occurrences import KeyHistory


_COLUMNS = (
    Column("TOPIC", "topic"),
    Column("LEDGER", "compactedLedger", "id"),
    Column("HORIZON", "horizon"),
    Column("ENTRIES", "entries", "number"),
    Column("MESSAGES", "messages", "number"),
    Column("PROBLEMS", "problems", "number"),
)


@command(
    "compaction verify",
    uses=("spark",),
    examples=["acme/orders/compacted", "--pattern 'acme/*/compacted*' -o table"],
    output="What was compared, and every problem with the position of its message; exit code 1 if there is one.",
    errors=[TopicNotFound, MetadataCorrupt, EntryCorrupt, NotSeen],
)
@topics_argument
def verify(app: App, selection: TopicSelection) -> Result:
    """Check compacted ledgers against their topic's messages.

    The latest value of every key must be present with the same bytes, nothing that was replaced or deleted may be,
    entries must be in order, and batch indexes must ascend and be in range. Trimmed parts of the topic cannot be
    compared; encrypted batches are compared as bytes only.
    """
    with app.session.reader() as reader:
        names = selected(app, reader.txn, selection)
        with app.bulk(scan_bytes(reader.txn, names)) as engine, app.session.asked_of(reader.scanning_on(engine)):
            rows = list(app.each(names, lambda name: _verify(app, name)))
    app.problems(sum(row["problems"] for row in rows))
    return one_or_rows(rows, _COLUMNS, one=_COLUMNS, plain=_render, alone=len(names) == 1)


def _verify(app: App, name: TopicName) -> dict[str, Any]:  # Any: JSON
    view = app.topic(name).compaction()
    verification = view.verify()
    findings = [CompactionFinding("status", None, text) for text in view.status(leaked=False).problems]
    head: dict[str, Any] = {"topic": str(name), "compacted": verification is not None}  # Any: JSON
    if verification is None:
        return {**head, "problems": len(findings), "findings": to_json(findings)}
    shown, problems = partition_json(verification, name.partition_index), verification.total + len(findings)
    tail = {key: shown.pop(key) for key in ("keyless", "encryptedEntries", "lostEntries")}
    said = partition_json([*findings, *verification.findings], name.partition_index)
    return {**head, **shown, "rule": verification.rule, **tail, "problems": problems, "findings": said}


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


_MESSAGE_COLUMNS = (
    Column("TOPIC", "topic"),
    Column("POSITION", "position"),
    Column("PUBLISHED", "publishTime", "time"),
    Column("BYTES", "size", "number", drop=1),
    Column("COMPACTED", lambda row: "yes" if row["compacted"] else "no"),
    Column("WHY", "why"),
)


@command(
    "compaction explain",
    examples=["acme/orders/compacted --key k0003", "acme/orders/compacted-last-null --key k0000 -o json"],
    output="One row per message of the key, in order: COMPACTED says whether the compacted ledger holds it, WHY by "
    "which rule. `fate` is its fate in compaction so far, `next` its fate if the topic is compacted now. Exit code 1 "
    "if the ledger lacks a message that it should hold.",
    errors=[TopicNotFound, NothingMatches, MetadataCorrupt, EntryCorrupt],
)
@topics_argument
@click.option("--key", required=True, help="The key.")
@choice_option(
    "--rule", words=[RULE_4_2, RULE_4_0], help="What counts as a null value outside batches, as in `compaction run`."
)
def explain(app: App, selection: TopicSelection, key: str, rule: Rule) -> Iterator[Shown]:
    """Show every message of a key, whether compaction keeps it, and why.

    The reasons are the rules of compaction: a later value, a null value, the horizon, an aborted transaction.
    """
    with app.session.reader() as reader:
        names = selected(app, reader.txn, selection)
        histories = list(app.each(names, lambda name: (name, explain_key(app.session, name, key, rule))))
    rows = [
        {"topic": str(name), "key": history.key, **partition_json(one, name.partition_index)}
        for name, history in histories
        for one in history.occurrences
    ]
    if rows:
        yield Result(rows=rows, columns=_MESSAGE_COLUMNS[len(names) == 1 :])
    for name, history in histories:
        _tell(app, name, history)
    if histories and not rows and app.exit_code == 0:  # else it may be in what could not be read
        hint = f"to search by the beginning of a key: pulsar-admin topics search {shell_word(names[0])} --key-prefix PREFIX"
        raise NothingMatches(f"no message has the key {key!r}", hint=hint)


def _tell(app: App, name: TopicName, history: KeyHistory) -> None:
    """Print on stderr how far the topic is compacted, and how many entries may hide more messages of the key."""
    if history.horizon is None:
        app.note(f"{name} was never compacted")
    else:
        app.note(f"{name} is compacted through {history.horizon}, into ledger {history.compacted_ledger}")
    if history.sealed:
        app.tell(
            f"{counted(history.sealed, 'encrypted batch', 'encrypted batches')} may hold the key too; they are kept whole"
        )
    if history.undecodable:
        app.tell(f"{counted(history.undecodable, 'entry')} cannot be decoded and are kept whole")
    app.problems(sum(one.is_wrong for one in history.occurrences) + history.lost)
    if history.lost:
        app.warn(f"{name}: {counted(history.lost, 'entry', 'entries')} cannot be read and may hold the key")
