"""``compaction explain``: what compaction made of the messages of one key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from pulsar_admin.columns import Column
from pulsar_admin.commands.topics.answers import selected
from pulsar_admin.context import App
from pulsar_admin.jsonify import position_json, to_json
from pulsar_admin.options import TopicSelection, command, pass_app, topics_argument
from pulsar_admin.store.compaction.forms import RULE_4_0, RULE_4_2
from pulsar_admin.store.errors import EntryCorrupt, MetadataCorrupt, NothingMatches, TopicNotFound
from pulsar_admin.store.names import TopicName, shell_word
from pulsar_admin.store.wording import counted

if TYPE_CHECKING:
    from pulsar_admin.api.compaction import Rule
    from pulsar_admin.store.compaction.occurrences import KeyHistory, Occurrence

_COLUMNS = (
    Column("TOPIC", "topic"),
    Column("POSITION", "position"),
    Column("PUBLISHED", "publishTime", "time"),
    Column("BYTES", "size", "number", drop=1),
    Column("COMPACTED", lambda row: "yes" if row["compacted"] else "no"),
    Column("WHY", "why"),
)


@command(
    "explain",
    examples=[
        "pulsar-admin compaction explain acme/orders/compacted --key k0003",
        "pulsar-admin compaction explain acme/orders/compacted-last-null --key k0000 -o json",
    ],
    output="One row per message of the key, in order: COMPACTED says whether the compacted ledger holds it, WHY by which rule. "
    "`fate` is that of compaction so far, `next` what compacting now would make of it. Exit code 1 where the ledger does not "
    "hold what it should.",
    errors=[TopicNotFound, NothingMatches, MetadataCorrupt, EntryCorrupt],
)
@topics_argument
@click.option("--key", required=True, help="The key.")
@click.option(
    "--rule",
    type=click.Choice([RULE_4_2, RULE_4_0]),
    default=RULE_4_2,
    show_default=True,
    help="What counts as a null value outside batches, as in `compaction run`.",
)
@pass_app
def explain(app: App, selection: TopicSelection, key: str, rule: Rule) -> None:
    """Show every message of a key, whether compaction keeps it, and why.

    The reasons are the rules of compaction: a later value, a null value, the horizon, an aborted transaction.
    """
    with app.session.reader() as reader:
        names = selected(app, reader.txn, selection)
        found = list(app.each(names, lambda name: (name, app.session.topic(name).compaction().explain(key, rule=rule))))
    rows = [row for name, history in found for row in _rows(name, history)]
    if rows:
        app.emit_rows(rows, _COLUMNS[len(names) == 1 :])
    for name, history in found:
        _tell(app, name, history)
    if found and not rows and app.exit_code == 0:  # else it may be in what could not be read
        raise NothingMatches(f"no message has the key {key!r}", hint=_hint(names[0]))


def _hint(name: TopicName) -> str:
    return f"look for keys that begin alike: pulsar-admin topics search {shell_word(name)} --key-prefix PREFIX"


def _rows(name: TopicName, history: KeyHistory) -> list[dict[str, Any]]:  # Any: JSON
    return [{"topic": str(name), "key": history.key, **_members(name, one)} for one in history.occurrences]


def _members(name: TopicName, one: Occurrence) -> dict[str, Any]:  # Any: JSON
    plain = to_json(one)
    assert isinstance(plain, dict)
    compacted = plain.pop("inView")
    return {**plain, "position": position_json(one.position, name.partition_index), "compacted": compacted}


def _tell(app: App, name: TopicName, history: KeyHistory) -> None:
    """Say on stderr what the rows do not: how far compaction came, and what may hide more of the key."""
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
