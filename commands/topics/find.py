"""``topics find-by-time``, with its three rules and the explanation of its answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click
from msgspec.structs import astuple, replace

from pulsar_admin.api.topics import find_by_time as find_entry
from pulsar_admin.columns import Column, time_text
from pulsar_admin.commands.topics.answers import bulk_on, one_or_rows, selected
from pulsar_admin.commands.topics.broker import BROKER_VERSION
from pulsar_admin.context import FEW_MESSAGES, App, Result
from pulsar_admin.options import TIME_POINT, TopicSelection, choice_option, command, flag, topics_argument
from pulsar_admin.store.dump.find_by_time import BEFORE, BROKER, EVENT, FIRST, FindRule, FoundEntry, TimeQuestion
from pulsar_admin.store.errors import NothingMatches, TopicNotFound
from pulsar_admin.store.model.topics import scan_bytes
from pulsar_admin.store.names import MessagePosition, TopicName
from pulsar_admin.store.search.broker_setup import BrokerSetup, BrokerVersion, version_of
from pulsar_admin.store.wording import counted, plural

if TYPE_CHECKING:
    from pulsar_admin.store.model.reader import EntryReader
    from pulsar_admin.store.search.explain import LedgerAnswer, LedgersLeftOut

COLUMNS = (
    Column("TOPIC", "topic"),
    Column("POSITION", lambda found: found.position or "-"),
    Column("ENTRY TIME", "entry_time_ms", "time"),
    Column("READ", "entries_read", "number"),
)


@command(
    "topics find-by-time",
    uses=["clock", "spark"],
    examples=[
        "public/default/plain --time 2026-11-20T00:00:00Z",
        "acme/iot/skewed --time @1795260000000 --clock publish --explain",
        "--pattern 'acme/iot/*' --time @1795253000 -o jsonl",
    ],
    output=(
        "One object per topic; `position` is null when nothing is at or after the time (exit code 5). `exact`: true; "
        "false if a lost entry could be an earlier answer; null if one that was not imported could. The exit code is "
        "then 1. With --rule broker: true if a broker is certain to give this answer, whatever is lost before it; null "
        "if data that was not imported may change it. With --explain the proof as text."
    ),
    errors=[TopicNotFound, NothingMatches],
)
@topics_argument
@click.option("-d", "--time", "--datetime", "time_ms", type=TIME_POINT, required=True, help="The point in time.")
@choice_option(
    "--rule",
    words=[FIRST, BEFORE, BROKER],
    help="first-at-or-after: exact. all-before: the last entry before the time that has no newer entry before it. "
    "broker: the answer of a live broker, by its own clock.",
)
@BROKER_VERSION
@flag("--batch-index", help="Name the message in its batch, not only the entry.")
@flag("--explain", help="Show the proof, and whether the broker agrees.")
def find_by_time(
    app: App,
    selection: TopicSelection,
    time_ms: int,
    rule: FindRule,
    broker_version: BrokerVersion | None,
    batch_index: bool,
    explain: bool,
) -> Result:
    """Find the first entry at or after a point in time.

    Exact even if clocks run backwards: the first entry in topic order with the given time or a later one. --clock
    chooses the clock: auto (broker time if the entry has one, otherwise publish time), publish, broker, or event (reads
    messages until one matches, on Spark or in processes if there are many).
    """
    if rule == BROKER and app.settings.clock != "auto":
        app.warn(
            f"--rule broker goes by the broker's own clock: --clock {app.settings.clock} plays no part in its answer"
        )
    rows = []
    with app.session.reader() as reader:
        broker = BrokerSetup(app.session.ask(version_of, broker_version))
        question = TimeQuestion(time_ms, app.settings.clock, rule, broker, batch_index)
        names = selected(app, reader.txn, selection, broken=False)
        with _engine(app, reader, names, by_broker=rule == BROKER and not explain):
            for name in names:
                with app.one_item(alone=len(names) == 1):
                    entry = find_entry(app.session, name, question, explain=explain)
                    _tell(app, entry)
                    rows.append(_placed(entry, in_batch=batch_index))
    return one_or_rows(rows, COLUMNS, plain=_render if explain else None, alone=len(names) == 1)


@contextmanager
def _engine(app: App, reader: EntryReader, topics: Sequence[TopicName], *, by_broker: bool) -> Iterator[None]:
    """Let ``reader`` scan on the chosen engine in the block; event times always need a scan, others only without an index.

    ``by_broker``: the broker's rule, which never uses event times.
    """
    if app.settings.clock == EVENT and not by_broker:
        with app.scan(reader, scan_bytes(reader.txn, topics), "find-by-time", unused=FEW_MESSAGES):
            yield
        return
    with bulk_on(app, reader):
        yield


def _placed(found: FoundEntry, *, in_batch: bool) -> FoundEntry:
    """Return the answer with its position as a message id (``in_batch``) or without the batch index."""
    position = found.position
    if position is None:
        return found
    return replace(found, position=MessagePosition(*astuple(position)) if in_batch else position.entry)


def _tell(app: App, found: FoundEntry) -> None:
    """Print on stderr what was scanned for an answer, and why nothing was found."""
    name = found.topic
    if found.forgotten is not None:
        app.warn(f"{name}: a broker that loads it drops ledger {found.forgotten}: BookKeeper has no metadata for it")
    if found.scanned is not None:
        scanned = f"{counted(found.scanned.files, 'file')}, {counted(found.scanned.bytes, 'byte')}"
        app.warn(f"scanned {scanned}: {counted(found.scanned.entries, 'entry')} of these ledgers found")
    if found.position is None and found.rule != BROKER:
        app.nothing_matches()
        when = "before" if found.rule == BEFORE else "at or after"
        app.warn(f"{name}: no entry is {when} {time_text(found.time_ms)} on the {found.clock} clock")


def _render(found: FoundEntry) -> str:
    """Return the explanation of an answer as text."""

    def when(time_ms: int | None) -> str:
        return "-" if time_ms is None else time_text(time_ms)

    def rest(row: LedgerAnswer | LedgersLeftOut) -> str:
        parts = [f"{count:,} {words}" for count, words in ((row.lost, "lost"), (row.unseen, "not seen")) if count]
        return f" ({', '.join(parts)})" if parts else ""

    exact = {True: "exact", False: "not exact", None: "not known to be exact"}[found.exact]
    lines = [
        found.topic,
        f"{found.rule} {when(found.time_ms)} on the {found.clock} clock: {found.position or '-'}, {exact}",
        "",
        "Ledgers:",
    ]
    for row in found.ledgers:
        entries = f"{row.entries:>7} {plural(row.entries, 'entry')}{rest(row)}"
        lines.append(f"  {row.ledger_id:>8}  {entries}, newest {when(row.newest_ms)}: {row.verdict}")
    for left in found.ledgers_left_out:
        ledgers = f"{counted(left.ledgers, 'more ledger')} with {counted(left.entries, 'entry')}{rest(left)}"
        lines.append(f"  {ledgers}: {left.verdict}")
    lines.append(f"  ({found.ledgers_pruned} pruned, {counted(found.entries_read, 'entry header')} read)")
    lines += ["", "Around the answer:"]
    for entry in found.neighbours:
        mark = ">" if found.position is not None and entry.position.entry == found.position.entry else " "
        note = "  clock runs backwards" if entry.backwards else ""
        lines.append(f"{mark} {entry.position!s:>10}  {when(entry.time_ms)}  {entry.producer}{note}")
    broker = found.broker
    assert broker is not None  # of every proof
    verdict = {True: "agrees", False: "does not agree", None: "not known"}[broker.agrees]
    lines += ["", f"Broker ({broker.version}): {broker.position or '-'}, {verdict}."]
    if broker.why:
        lines.append(f"  Why: {broker.why}.")
    return "\n".join(lines)
