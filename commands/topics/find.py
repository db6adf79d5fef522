"""``topics find-by-time``: the question, its three rules, its proof."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from pulsar_admin.columns import Column, time_text
from pulsar_admin.commands.topics.answers import answer_each, bulk_on, size_of
from pulsar_admin.commands.topics.broker import BROKER_VERSION
from pulsar_admin.context import FEW_MESSAGES, App, Result
from pulsar_admin.jsonify import partition_json
from pulsar_admin.options import TIME_POINT, TopicSelection, command, pass_app, topics_argument
from pulsar_admin.store.dump.finding import BEFORE, BROKER, EVENT, FIRST
from pulsar_admin.store.errors import NothingMatches, TopicNotFound
from pulsar_admin.store.names import TopicName, parse_topic
from pulsar_admin.store.wording import counted, plural

if TYPE_CHECKING:
    from pulsar_admin.api.topics import Topic
    from pulsar_admin.store.dump.finding import FoundEntry
    from pulsar_admin.store.model.reader import EntryReader

Json = dict[str, Any]  # Any: JSON values


COLUMNS = (
    Column("TOPIC", lambda row: row["topic"]),
    Column("POSITION", lambda row: _text(row["position"])),
    Column("ENTRY TIME", lambda row: row["entryTime"], "time"),
    Column("READ", "entriesRead", "number"),
)


@command(
    "find-by-time",
    uses=["clock", "spark"],
    examples=[
        "pulsar-admin topics find-by-time public/default/plain --time 2026-11-20T00:00:00Z",
        "pulsar-admin topics find-by-time acme/iot/skewed --time @1795260000000 --clock publish --explain",
        "pulsar-admin topics find-by-time --pattern 'acme/iot/*' --time @1795253000 -o jsonl",
    ],
    output="One object a topic; `position` is null when nothing is at or after the time (exit code 5). `exact`: true; false where "
    "a lost entry could be an earlier answer; null where one that is not imported could. The exit code is then 1. With --rule "
    "broker: true where a broker is certain to give this answer, whatever is lost before it; null where more than is imported may "
    "change it. With --explain the proof as text.",
    errors=[TopicNotFound, NothingMatches],
)
@topics_argument
@click.option("-d", "--time", "--datetime", "time_ms", type=TIME_POINT, required=True, help="The point in time.")
@click.option(
    "--rule",
    type=click.Choice([FIRST, BEFORE, BROKER]),
    default=FIRST,
    show_default=True,
    help="first-at-or-after: exact. all-before: the last entry before the time that has no newer entry before it. "
    "broker: the answer of a live broker, by its own clock.",
)
@BROKER_VERSION
@click.option("--batch-index", is_flag=True, help="Name the message in its batch, not only the entry.")
@click.option("--explain", is_flag=True, help="Show the proof, and whether the broker agrees.")
@pass_app
def find_by_time(app: App, selection: TopicSelection, time_ms: int, **question: Any) -> Result:  # Any: of Topic.find
    """Find the first entry at or after a point in time.

    Exact even if clocks run backwards: the first entry in topic order with the given time or a later one. --clock
    chooses the clock: auto (broker time if the entry has one, otherwise publish time), publish, broker, or event (reads
    messages until one matches, on Spark or in processes if there are many).
    """
    if question["rule"] == BROKER and app.settings.clock != "auto":
        app.warn(
            f"--rule broker goes by the broker's own clock: --clock {app.settings.clock} plays no part in its answer"
        )
    return answer_each(
        app,
        selection,
        lambda topic: _find(app, topic, time_ms, question),
        COLUMNS,
        broken=False,
        plain=_render if question["explain"] else None,
        scan=lambda reader, topics: _engine(
            app, reader, topics, by_broker=question["rule"] == BROKER and not question["explain"]
        ),
    )


@contextmanager
def _engine(app: App, reader: EntryReader, topics: Sequence[TopicName], *, by_broker: bool) -> Iterator[None]:
    """Give ``reader`` the engine: event times are in no index, all others are, unless ledgers are not. ``by_broker``: by its clock
    alone."""
    if app.settings.clock == EVENT and not by_broker:
        with app.scan(reader, size_of(reader, topics), "find-by-time", unused=FEW_MESSAGES):
            yield
        return
    with bulk_on(app, reader):
        yield


_ANSWER = ("position", "exact", "entryTime", "entriesRead", "ledgersPruned", "ledgersScanned", "ledgersWithoutIndex")
_PROOF = ("broker", "ledgers", "ledgersLeftOut", "block", "neighbours")


def _find(app: App, topic: Topic, time_ms: int, question: Json) -> Json:
    name = parse_topic(topic.name)
    found = topic.find(time_ms, clock=app.settings.clock, **question)
    _tell(app, found)
    keys = ["topic", "time", "clock", "rule", *_ANSWER]
    if found.rule == BROKER:
        keys[4:4] = ["brokerVersion"]
        keys += ["compactedLedger", "probes"]
    if question["explain"]:
        keys += _PROOF
    whole = partition_json(found, name.partition_index)
    if found.position is not None:
        whole["position"].pop("batchIndex", None)
        whole["position"] |= {"batchIndex": found.position.batch_index} if question["batch_index"] else {}
    return {key: whole[key] for key in keys}


def _tell(app: App, found: FoundEntry) -> None:
    """Say on stderr what the answer does not: what was scanned for it, and why there is none."""
    name = found.topic
    if found.forgotten is not None:
        app.warn(f"{name}: a broker that loads it drops ledger {found.forgotten}: BookKeeper has no metadata for it")
    if found.scanned is not None:
        scanned = f"{counted(found.scanned.files, 'file')}, {counted(found.scanned.bytes, 'byte')}"
        app.warn(f"scanned {scanned}: {counted(found.scanned.entries, 'entry')} of these ledgers found")
    if found.position is None and found.rule != BROKER:
        app.nothing_matches()
        when = "before" if found.rule == BEFORE else "at or after"
        app.warn(f"{name}: no entry is {when} {time_text(found.time_ms)} by the clock {found.clock}")


def _text(position: dict[str, int] | None) -> str:
    if position is None:
        return "-"
    index = position.get("batchIndex", -1)
    return f"{position['ledgerId']}:{position['entryId']}" + (f":{index}" if index >= 0 else "")


# -- the proof --------------------------------------------------------------------------------------------------------


def _render(document: Any) -> str:  # Any: the JSON of ``_find`` with its explanation
    def when(time_ms: int | None) -> str:
        return "-" if time_ms is None else time_text(time_ms)

    def rest(row: Json) -> str:
        parts = [f"{row[key]:,} {words}" for key, words in (("lost", "lost"), ("unseen", "not seen")) if row[key]]
        return f" ({', '.join(parts)})" if parts else ""

    answer = _text(document["position"])
    exact = {True: "exact", False: "not exact", None: "not known to be exact"}[document["exact"]]
    lines = [
        f"{document['topic']}",
        f"{document['rule']} {when(document['time'])} on the {document['clock']} clock: {answer}, {exact}",
        "",
        "Ledgers:",
    ]
    for row in document["ledgers"]:
        entries = f"{row['entries']:>7} {plural(row['entries'], 'entry')}{rest(row)}"
        lines.append(f"  {row['ledgerId']:>8}  {entries}, newest {when(row['newestTime'])}: {row['verdict']}")
    for row in document["ledgersLeftOut"]:
        ledgers = f"{counted(row['ledgers'], 'more ledger')} with {counted(row['entries'], 'entry')}{rest(row)}"
        lines.append(f"  {ledgers}: {row['verdict']}")
    lines.append(f"  ({document['ledgersPruned']} pruned, {counted(document['entriesRead'], 'entry header')} read)")
    lines += ["", "Around the answer:"]
    for row in document["neighbours"]:
        mark = ">" if row["position"] == document["position"] else " "
        note = "  clock runs backwards" if row["backwards"] else ""
        lines.append(f"{mark} {_text(row['position']):>10}  {when(row['time'])}  {row['producer']}{note}")
    broker = document["broker"]
    verdict = {True: "agrees", False: "does not agree", None: "not known"}[broker["agrees"]]
    lines += ["", f"Broker ({broker['version']}): {_text(broker['position'])}, {verdict}."]
    if broker["why"]:
        lines.append(f"  Why: {broker['why']}.")
    return "\n".join(lines)
