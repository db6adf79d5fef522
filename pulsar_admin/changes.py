"""Reports of changes, and their text: the change, before → after, amounts, and how to undo it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from pulsar_admin.columns import Column, messages_of, render_cell
from pulsar_admin.store.changes import plan
from pulsar_admin.store.db import audit_log
from pulsar_admin.store.model.cursors import Extent, is_consumed
from pulsar_admin.store.model.redaction import hide_secrets_in
from pulsar_admin.store.timespec import moment
from pulsar_admin.store.wording import bracketed, counted, counted_messages, plural, text_html
from pulsar_admin.typable import typable
from pulsar_admin.visible import clean_text

SEVERAL = (
    Column("TOPIC", "topic"),
    Column("CHANGE", "change", "id"),
    Column("HORIZON", lambda row: row["after"] and row["after"]["markDeletePosition"]),
    Column("LEDGER", lambda row: row["after"] and row["after"]["compactedLedger"], "id"),
    Column("ENTRIES", "entries", "number"),
    Column("MESSAGES", messages_of, "number"),
    Column("BYTES", "bytes", "bytes", drop=1, sums=True),
    Column("SAVED", "bytesSaved", "bytes", sums=True),
)
"""The table of several changes at once: compactions."""
_SHOWN_LEDGERS = 10
_LINE = 80
_AGAIN, _READS = "consumers get", "a broker reads"
_UNITS = {
    "message_ttl_in_seconds": "s",
    "messageTTLInSeconds": "s",
    "limitTime": "s",
    "tickTime": "ms",
    "tickDuration": "ms",
    "timePartitionGranularity": "ms",
    "limit": "byte",
    "limitSize": "byte",
}
_TIMES = {"nextDeadline", "deleted"}
_IDS = {"compactedLedger"}


class ChangeReport(plan.ChangeReport, frozen=True):
    """What a plan would do (``dry_run``), or what a change did; as text it is what the command line prints.

    ``number`` of the change in the audit log; None for a plan, or if there was nothing to change. ``parts``: one for each cursor or
    other changed object.
    """

    def __repr__(self) -> str:
        return bracketed(title_of(self))

    def __str__(self) -> str:
        return render_change(self)

    def _repr_html_(self) -> str:
        return text_html(str(self))


class Change(Struct, frozen=True):
    """One line of the audit log. ``undoes``, ``undone_by``: numbers of other changes."""

    number: int
    time_ms: int
    command: str
    undoes: int | None
    undone_by: int | None
    _row: audit_log.Change

    def __repr__(self) -> str:
        return bracketed(f"change {self.number}: {self.command}")

    @property
    def time(self) -> datetime | None:
        """When it was made, in UTC."""
        return moment(self.time_ms)

    @property
    def reports(self) -> tuple[Mapping[str, Any], ...]:  # Any: JSON
        """The report of the change, as stored."""
        return self._row.reports

    @property
    def parts(self) -> tuple[plan.ChangePart, ...]:
        """What it did to each thing that it concerns; raises IndexCorrupt if the record is malformed."""
        return plan.parts_of(self._row)

    @property
    def steps(self) -> tuple[audit_log.Step, ...]:
        """The rows of the store that it wrote: ``database``, ``key``, and the bytes ``before`` and ``after``, None: no such row."""
        return self._row.steps


def report_of(report: plan.ChangeReport, store: Path | None = None) -> ChangeReport:
    """Return a change's report whose undo command names the store, because Python has no default store."""
    place = "" if store is None else str(store.absolute())
    return ChangeReport(**{**asdict(report), "store": place})


def change_of(row: audit_log.Change, undone: Mapping[int, int]) -> Change:
    """Return a row of the audit log; ``undone`` maps a change's number to that of the change that undid it."""
    return Change(row.change, row.time_ms, row.command, row.undoes, undone.get(row.change), row)


def render_change(report: plan.ChangeReport) -> str:
    """Return a change's report as text."""
    return "".join(iter_texts(report)).removesuffix("\n")


def iter_texts(report: plan.ChangeReport, plan_file: Path | None = None) -> Iterator[str]:
    """Yield the lines of ``render_change``, those of one part together: there may be millions of parts.

    ``plan_file``: the file that a plan was written to.
    """
    yield f"{title_of(report, plan_file)}\n"
    is_alone = len(report.parts) == 1
    for part in report.parts:
        body = list(_body(report, part))
        first = "" if is_alone or _changes(part) else f": {body.pop(0)}"
        head = [] if is_alone else [f"{_subject(part)}{first}\n"]
        yield "".join((*head, *(f"  {line}\n" for line in body)))
    if not is_alone:
        yield from (f"{line}\n" for line in _totals(report))
    margin = "  " if is_alone else ""
    yield from (f"{margin}warning: {clean_text(typable(text))}\n" for text in report.plan_warnings)
    if report.number is not None:
        yield f"{margin}undo: {typable(plan.undo_command(report.number, report.store))}\n"


def title_of(report: plan.ChangeReport, plan_file: Path | None = None) -> str:
    """Return the first line of ``render_change``."""
    return f"{_head(report, plan_file)}: {_action(report)}"


def change_words(report: plan.ChangeReport) -> str:
    """Return the words for a change; for a single object also its position before and after."""
    sides = [*_sides(report.parts[0])] if len(report.parts) == 1 else []
    return ", ".join((_action(report), *sides[:1]))


def _head(report: plan.ChangeReport, plan_file: Path | None) -> str:
    if plan_file is not None:
        return f"plan written to {clean_text(str(plan_file))}, nothing was changed"
    if report.dry_run:
        return "dry run, nothing was written"
    return "no change" if report.number is None else f"change {report.number}"


def _action(report: plan.ChangeReport) -> str:
    """Return the change and its object as text: a name if there is one, otherwise the number of objects."""
    if "{" not in report.words:
        return report.words
    parts = report.parts
    places = [place for place in map(_place, parts) if place]
    cursors = [(part.topic, part.subscription) for part in parts if part.subscription]
    return report.words.format(
        place=_named(places, places, _counted(parts)),
        first=_named(places[:1], places[:1], _counted(parts)),
        # One name on two topics is two subscriptions.
        subscription=_named([name for _, name in cursors], cursors, "subscription"),
        cursor=_named([f"cursor {name}" for _, name in cursors], cursors, "cursor"),
    )


def _named(names: Sequence[str], things: Sequence[object], what: str) -> str:
    """Return the name that all objects share, otherwise their number."""
    distinct = set(names)
    return clean_text(distinct.pop()) if len(distinct) == 1 else counted(len(set(things)), what)


def _place(part: plan.ChangePart) -> str:
    return part.topic or part.namespace or part.resource or ""


def _counted(parts: Sequence[plan.ChangePart]) -> str:
    return "node" if parts and not any(part.topic or part.namespace for part in parts) else "topic"


def _subject(part: plan.ChangePart) -> str:
    place = clean_text(_place(part))
    return f"{clean_text(part.subscription)} of {place}" if part.subscription else place


def _changes(part: plan.ChangePart) -> bool:
    return part.before != part.after


# -- one part ---------------------------------------------------------------------------------------------------------


def _body(report: plan.ChangeReport, part: plan.ChangePart) -> Iterator[str]:
    yield from _sides(part) if _changes(part) else ["nothing to change"]
    yield from _amounts(report, part)
    if isinstance(part, plan.CursorPart):
        yield from _details(part)
    told = (text for text in part.warnings if text not in report.plan_warnings)
    yield from (f"warning: {clean_text(typable(text))}" for text in told)


def _amounts(report: plan.ChangeReport, part: plan.ChangePart) -> Iterator[str]:
    """Yield the effects of the change, each as a verb and an amount."""
    if isinstance(part, plan.CursorPart) and part.replayed is not None and part.skipped is not None:
        if part.replayed.entries:
            yield _amount(_again(part), part.replayed)
        if part.skipped.entries:
            yield _amount(_never(part), part.skipped)
    elif isinstance(part, plan.PolicyPart):
        if part.event and part.event.position and part.extent:
            yield f"writes the event {part.event.position} to {part.event.topic} ({part.extent.bytes:,} bytes)"
    elif part.extent is not None and part.extent.entries:
        yield f"{_verb(report, part)} {_extent(part.extent)}"
    if part.unreferenced_ledgers and isinstance(part, plan.DeletedPart):
        yield f"once exported, a broker and its bookies destroy {_ledgers(part.unreferenced_ledgers)}"
    if isinstance(part, plan.NacksPart) and part.entries:
        verb = "affects" if report.is_undo else "pops" if part.precision_bits is None else "tracks"
        yield f"{verb} {counted(part.entries, 'entry')}"
    if isinstance(part, plan.NacksPart) and part.already_tracked:
        yield f"{counted(part.already_tracked, 'entry is', 'entries are')} tracked already"


def _amount(verb: str, extent: Extent) -> str:
    return f"{verb} {_extent(extent, ' again' if verb in (_AGAIN, _READS) else '')}"


def _again(part: plan.CursorPart) -> str:
    """Return the phrase for redelivery: to consumers, or to the broker for a cursor that is not a subscription's."""
    return _AGAIN if is_consumed(part.subscription or "") else _READS


def _never(part: plan.CursorPart) -> str:
    """Return the phrase for skipped messages: consumers, or a broker for its own cursor, never get them."""
    if not is_consumed(part.subscription or ""):
        return "a broker skips"
    return "consumers skip" if part.expiry is None else "consumers lose"


def _verb(report: plan.ChangeReport, part: plan.ChangePart) -> str:
    if report.is_undo or part.VERB:
        return "affects" if report.is_undo else part.VERB
    if part.before is None:
        return "starts with a backlog of"
    if part.after is not None:
        return "adds"
    return "consumers lose a backlog of" if is_consumed(part.subscription or "") else "drops a backlog of"


def _extent(extent: Extent, again: str = "") -> str:
    if extent.entries and extent.entries == extent.uncounted_entries:
        return f"{counted(extent.entries, 'entry')}{again} ({counted(extent.bytes, 'byte')}; not here)"
    messages = counted_messages(extent.messages, extent.uncounted_entries) + again
    if extent.messages != extent.entries:
        messages += f" in {counted(extent.entries, 'entry')}"
    hidden = f"; {counted(extent.uncounted_entries, 'entry')} not here" if extent.uncounted_entries else ""
    return f"{messages} ({counted(extent.bytes, 'byte')}{hidden})"


def _details(part: plan.CursorPart) -> Iterator[str]:
    """Yield further lines about a moved or removed cursor, beyond before and after."""
    for row in part.ledgers[:_SHOWN_LEDGERS]:
        yield f"ledger {row.ledger_id}: {_extent(row.extent)}"
    if len(part.ledgers) > _SHOWN_LEDGERS:
        yield f"and {counted(len(part.ledgers) - _SHOWN_LEDGERS, 'more ledger')}"
    yield from _deletable(part)
    broker = part.broker
    if broker is not None and not broker.agrees:
        verb = "redeliver" if part.expiry is None else "expire"
        more = f" and {verb} {_difference(broker.entries)} than this change" if broker.entries else ""
        yield f"a broker would move it to {broker.mark_delete}{more}"
    future = part.future_dated
    if future is not None:
        messages = counted(future.extent.messages, "message never expires", "messages never expire")
        latest = render_cell(future.latest_time_ms, "time")
        producers = clean_text(", ".join(future.producers))
        yield f"{messages} by age: from {future.first} on, dated up to {latest}, sent by {producers}"


def _difference(entries: int) -> str:
    return f"{abs(entries):,} {'more' if entries > 0 else 'fewer'} {plural(abs(entries), 'entry')}"


def _deletable(part: plan.CursorPart) -> Iterator[str]:
    """Yield lines about the ledgers that a broker may delete after the move, and about what retains the others."""
    deletable = part.deletable
    if deletable is None or (part.after is not None and not (part.skipped and part.skipped.entries)):
        return
    if deletable.ledgers:
        amount = f"{counted(deletable.entries, 'entry')}, {counted(deletable.bytes, 'byte')}"
        yield f"then deletable: {_ledgers(deletable.ledgers)} ({amount})"
    if deletable.kept_by_retention:
        yield f"retained by the retention policy: {_ledgers(deletable.kept_by_retention)}"
    if deletable.blocked_by is not None:
        what = f"{_ledgers(deletable.retained)} " if deletable.retained else ""
        yield f"{what}retained by subscription {clean_text(deletable.blocked_by)} at {deletable.blocked_at}"


def _ledgers(ids: tuple[int, ...]) -> str:
    if len(ids) <= _SHOWN_LEDGERS:
        return f"{plural(len(ids), 'ledger')} {', '.join(map(str, ids))}"
    return f"{len(ids):,} ledgers from {ids[0]} to {ids[-1]}"


def _totals(report: plan.ChangeReport) -> Iterator[str]:
    amounts: dict[str, Extent] = {}
    for part in report.parts:
        if isinstance(part, plan.CursorPart) and part.replayed is not None:
            moved = [(_again(part), part.replayed), (_never(part), part.skipped)]
        else:
            moved = [] if isinstance(part, plan.PolicyPart) else [(_verb(report, part), part.extent)]
        for verb, extent in moved:
            if extent is not None:
                amounts[verb] = amounts.get(verb, Extent()) + extent
    said = [_amount(verb, extent) for verb, extent in amounts.items() if extent.entries]
    if said:
        yield f"total: {', '.join(said)}"


# -- before and after -------------------------------------------------------------------------------------------------


def _sides(part: plan.ChangePart) -> Iterator[str]:
    """Yield ``key: old -> new`` for each difference, or ``key: value`` for a created or removed object."""
    if part.before is None or part.after is None:
        for key, value in _leaves(hide_secrets_in(part.before or part.after or {})):
            if isinstance(value, list) and value and isinstance(value[0], dict):
                yield f"{clean_text(key)}:"
                yield from (f"  {clean_text(_item(item))}" for item in value)
            elif value and value != "[]":
                yield f"{clean_text(key)}: {_shown(key, value)}"
            elif value is None and key.startswith("backlogMessages."):
                yield f"{clean_text(key)}: unknown"
        return
    before, after = (dict(_leaves(hide_secrets_in(side))) for side in (part.before, part.after))
    for key in {**before, **after}:
        old, new = (_shown(key, side.get(key)) or "none" for side in (before, after))
        if key == "compactedLedger" and isinstance(part, plan.CompactionPart) and after[key] is None:
            new = "a new ledger"  # which one is known once it is written
        if old != new:
            yield f"{clean_text(key)}: {old} -> {new}"


def _item(item: plan.Json) -> str:
    """Return an item of a list in a report as text: for a join of ledgers, the ledgers and the evidence."""
    return ": ".join(", ".join(map(str, value)) if isinstance(value, list) else str(value) for value in item.values())


def _leaves(value: plan.Json, prefix: str = "") -> Iterator[tuple[str, Any]]:  # Any: JSON values
    for key, item in value.items():
        if isinstance(item, dict):
            yield from _leaves(item, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", item


def _shown(key: str, value: object) -> str:
    name = key.rpartition(".")[2]
    if name == "individuallyDeletedMessages" and isinstance(value, str) and len(value) > _LINE:
        return counted(value.count(".."), "range")
    if isinstance(value, bool) or not isinstance(value, int):
        return render_cell(value)
    if name in _TIMES:
        return render_cell(value, "time")
    if name in _IDS:
        return str(value)
    unit = _UNITS.get(name, "")
    if not unit or value < 0:
        return f"{value:,}"
    return counted(value, unit, "" if unit == "byte" else unit)
