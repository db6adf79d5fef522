"""``topics find-by-time``: the question, its three rules, its proof."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from commands.topics.answers import selected, size_of
from commands.topics.broker import BROKER_VERSION, warn_of_broker_clock
from pulsar_admin.columns import Column, time_text
from pulsar_admin.context import FEW_MESSAGES, App
from pulsar_admin.jsonify import position_json
from pulsar_admin.options import TIME_POINT, TopicSelection, command, gather, pass_app, topics_argument
from store.dump.finding import (
    BEFORE,
    BROKER,
    EVENT,
    FIRST,
    FindRule,
    TimeAnswer,
    TimeQuestion,
    explain_answer,
    find_as_broker,
    gaps_before,
)
from store.dump.finding import find_by_time as answer_by_time
from store.errors import NothingMatches, TopicNotFound
from store.frozen import frozen
from store.model.reader import EntryReader, open_reader
from store.model.topics import Topic, read_topic
from store.names import Position, TopicName
from store.search.broker_setup import READ_FROM, BrokerSetup, BrokerVersion
from store.search.by_time import Found
from store.wording import counted, plural

if TYPE_CHECKING:
    from store.search.broker_setup import Probe


@frozen
class FindOptions:
    """The question."""

    time_ms: int
    rule: FindRule
    broker_version: BrokerVersion
    batch_index: bool
    explained: bool


COLUMNS = (
    Column("TOPIC", lambda row: row["topic"]),
    Column("POSITION", lambda row: _text(row["position"])),
    Column("ENTRY TIME", lambda row: row["entryTime"], "time"),
    Column("READ", "entriesRead", "number"),
)


@command(
    "find-by-time",
    uses=["clock", "spark", "tables"],
    examples=[
        "pulsar-admin topics find-by-time public/default/plain --time 2026-11-20T00:00:00Z",
        "pulsar-admin topics find-by-time acme/iot/skewed --time @1795260000000 --clock publish --explain",
        "pulsar-admin topics find-by-time --pattern 'acme/iot/*' --time @1795253000 -o jsonl",
    ],
    output="One object a topic; `position` is null when nothing is at or after the time (exit code 5). Where ledgers or entries "
    "that could hold an earlier answer are not readable, the exit code is 1. With --explain the proof as text.",
    errors=[TopicNotFound, NothingMatches],
)
@topics_argument
@click.option("-d", "--time", "--datetime", "time_ms", type=TIME_POINT, required=True, help="The point in time.")
@click.option(
    "--rule",
    type=click.Choice([FIRST, BEFORE, BROKER]),
    default=FIRST,
    show_default=True,
    help="first-at-or-after: exact. all-before: the last entry before it, with nothing younger in front. "
    "broker: what a live broker would answer, by its own clock.",
)
@BROKER_VERSION
@click.option("--batch-index", is_flag=True, help="Name the message in its batch, not only the entry.")
@click.option("--explain", "explained", is_flag=True, help="Show the proof, and whether the broker agrees.")
@gather(FindOptions)
@pass_app
def find_by_time(app: App, selection: TopicSelection, options: FindOptions) -> None:
    """Find the first entry at or after a point in time.

    Exact on clocks that run backwards: the first entry in topic order whose time is the one given or later. --clock chooses
    the clock: auto (broker time where the entry carries one, else publish time), publish, broker, or event (reads messages
    until one matches, on Spark or in processes where there are many).
    """
    with open_reader(app.store) as reader:
        topics = selected(app, reader.txn, selection)
        if options.rule == BROKER and app.settings.clock != "auto":
            app.warn(
                f"--rule broker goes by the broker's own clock: --clock {app.settings.clock} plays no part in its answer"
            )
        with _engine(app, reader, topics, options):
            rows = list(app.each(topics, lambda topic: _find(app, reader, topic, options)))
    if len(topics) == 1 and rows:
        app.emit(rows[0], plain=_render if options.explained else None)
    else:
        app.emit_rows(rows, COLUMNS)


@contextmanager
def _engine(app: App, reader: EntryReader, topics: Sequence[TopicName], options: FindOptions) -> Iterator[None]:
    """Give READER the engine: event times are in no index, all others are, unless ledgers are not."""
    if app.settings.clock == EVENT and (options.rule != BROKER or options.explained):
        with app.scan(reader, size_of(reader, topics), "find-by-time", unused=FEW_MESSAGES):
            yield
        return
    with app.bulk() as engine:
        reader.engine = engine
        yield


def _question(app: App, options: FindOptions) -> TimeQuestion:
    broker = BrokerSetup(options.broker_version)
    return TimeQuestion(options.time_ms, app.settings.clock, options.rule, broker, options.batch_index)


def _find(app: App, reader: EntryReader, name: TopicName, options: FindOptions) -> dict[str, Any]:  # Any: JSON
    topic = read_topic(reader.txn, name)
    if options.rule == BROKER:
        return _find_as_broker(app, reader, topic, options)
    warn_of_broker_clock(app, reader, topic)
    answer = _answer(app, reader, topic, options)
    found = answer.found
    if answer.position is None:
        app.nothing_matches()
        when = "before" if options.rule == BEFORE else "at or after"
        app.warn(f"{name}: no entry is {when} {time_text(options.time_ms)} by the clock {app.settings.clock}")
    for text in gaps_before(topic, found):
        app.warn(text)
    app.problems(len(found.ledgers_without_index) + found.unreadable)
    document = {
        "topic": str(name),
        "time": options.time_ms,
        "clock": app.settings.clock,
        "rule": options.rule,
        "position": _position(name, answer.position, batch=options.batch_index),
        "entryTime": answer.entry_time_ms,
        "entriesRead": found.entries_read,
        "ledgersPruned": found.ledgers_pruned,
        "ledgersScanned": found.ledgers_scanned,
        "ledgersWithoutIndex": list(found.ledgers_without_index),
    }
    if options.explained:
        document |= _explanation(app, reader, topic, options, found)
    return document


def _find_as_broker(app: App, reader: EntryReader, topic: Topic, options: FindOptions) -> dict[str, Any]:  # Any: JSON
    """Return the broker's answer with what its own search read; the proof sets the exact one beside it."""
    name = topic.name
    answer = find_as_broker(reader, topic, _question(app, options))
    if answer.forgotten is not None:
        app.warn(f"{name}: a broker that loads it forgets ledger {answer.forgotten}: BookKeeper has no metadata of it")
    document = {
        "topic": str(name),
        "time": options.time_ms,
        "clock": "auto" if answer.compacted_ledger is None else "publish",
        "rule": options.rule,
        "brokerVersion": READ_FROM[options.broker_version],
        "position": _position(name, answer.position, batch=options.batch_index),
        "entryTime": answer.entry_time_ms,
        "entriesRead": answer.entries_read,
        "ledgersPruned": 0,
        "ledgersScanned": len({probe.position.ledger_id for probe in answer.probes}),
        "ledgersWithoutIndex": [],
        "compactedLedger": answer.compacted_ledger,
        "probes": _probes(name, answer.probes),
    }
    if options.explained:
        found = _answer(app, reader, topic, options).found
        document |= _explanation(app, reader, topic, options, found)
    return document


def _answer(app: App, reader: EntryReader, topic: Topic, options: FindOptions) -> TimeAnswer:
    """Return the exact answer; says on stderr what was scanned for it."""

    @contextmanager
    def progress(size_bytes: int) -> Iterator[Callable[[int], None]]:
        with app.progress(size_bytes, "bytes", "find-by-time") as shown:
            yield shown.advance

    answer = answer_by_time(reader, topic, _question(app, options), progress)
    if answer.scanned is not None:
        scanned = f"{counted(answer.scanned.files, 'file')}, {counted(answer.scanned.bytes, 'byte')}"
        app.warn(f"scanned {scanned}: {counted(answer.scanned.entries, 'entry')} of these ledgers found")
    return answer


def _probes(name: TopicName, probes: Sequence[Probe]) -> list[dict[str, Any]]:  # Any: JSON
    return [
        {"position": _position(name, probe.position), "time": probe.time_ms, "earlier": probe.matches}
        for probe in probes
    ]


def _position(name: TopicName, position: Position | None, *, batch: bool = False) -> dict[str, int] | None:
    if position is None:
        return None
    found = position_json(position.entry, name.partition_index)
    return found | {"batchIndex": position.batch_index} if batch else found


def _text(position: dict[str, int] | None) -> str:
    if position is None:
        return "-"
    index = position.get("batchIndex", -1)
    return f"{position['ledgerId']}:{position['entryId']}" + (f":{index}" if index >= 0 else "")


# -- the proof --------------------------------------------------------------------------------------------------------


def _explanation(
    app: App, reader: EntryReader, topic: Topic, options: FindOptions, found: Found
) -> dict[str, Any]:  # Any: JSON
    proof = explain_answer(reader, topic, _question(app, options), found)
    name = topic.name
    return {
        "broker": {
            "position": _position(name, proof.broker.position),
            "agrees": proof.broker.agrees,
            "why": proof.broker.why,
            "version": READ_FROM[options.broker_version],
            "exact": _position(name, found.position),
            "probes": _probes(name, proof.broker.probes),
        },
        "ledgers": [
            {"ledgerId": row.ledger_id, "entries": row.entries, "newestTime": row.newest_ms, "verdict": row.verdict}
            for row in proof.ledgers
        ],
        "block": None if proof.block is None else {"first": _position(name, proof.block[0]), "entries": proof.block[1]},
        "neighbours": [
            {
                "position": _position(name, row.position),
                "time": row.time_ms,
                "publishTime": row.publish_ms,
                "brokerTime": row.broker_ms,
                "producer": row.producer,
                "backwards": row.backwards,
            }
            for row in proof.neighbours
        ],
    }


def _render(document: Any) -> str:  # Any: the JSON of ``_find`` with its explanation
    def when(time_ms: int | None) -> str:
        return "-" if time_ms is None else time_text(time_ms)

    answer = _text(document["position"])
    lines = [
        f"{document['topic']}",
        f"{document['rule']} {when(document['time'])} on the {document['clock']} clock: {answer}",
        "",
        "Ledgers:",
    ]
    for row in document["ledgers"]:
        entries = f"{row['entries']:>7} {plural(row['entries'], 'entry')}"
        lines.append(f"  {row['ledgerId']:>8}  {entries}, newest {when(row['newestTime'])}: {row['verdict']}")
    lines.append(f"  ({document['ledgersPruned']} pruned, {counted(document['entriesRead'], 'entry header')} read)")
    lines += ["", "Around the answer:"]
    for row in document["neighbours"]:
        mark = ">" if row["position"] == document["position"] else " "
        note = "  clock runs backwards" if row["backwards"] else ""
        lines.append(f"{mark} {_text(row['position']):>10}  {when(row['time'])}  {row['producer']}{note}")
    broker = document["broker"]
    verdict = "agrees" if broker["agrees"] else "does not agree"
    lines += ["", f"Broker ({broker['version']}): {_text(broker['position'])}, {verdict}."]
    if broker["why"]:
        lines.append(f"  Why: {broker['why']}.")
    return "\n".join(lines)
