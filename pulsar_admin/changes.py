"""A change as text: before → after, how much, and how to undo it. The JSON of the same object is in product terms."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pulsar_admin.columns import render_cell
from pulsar_admin.visible import clean_document, clean_text
from store.changes.report import ChangeReport
from store.wording import counted, plural

_COUNTS = (("entries", "entry"), ("messages", "message"), ("bytes", "byte"))
_SHOWN_LEDGERS = 10


def render_change(report: ChangeReport) -> str:
    """Return the report of a change (done, or of a dry run) as lines of text."""
    return "\n".join(_render(clean_document(document)) for document in report.documents())


def _render(value: dict[str, Any]) -> str:  # Any: a JSON object
    done = "no change" if value["change"] is None else f"change {value['change']}"
    head = "dry run, nothing was written" if value["dryRun"] else done
    what = [render_cell(value[key]) for key in ("kind", "namespace", "topic", "subscription") if value.get(key)]
    lines = [f"{head}: {' '.join(what)}" if what else head]
    lines += [f"  {line}" for line in _differences(*_sides(value))] or ["  nothing to change"]
    if _amount(value):
        lines.append(f"  {_amount(value)}")
    lines += [f"  {line}" for line in _cursor_details(value)]
    lines += [f"  warning: {clean_text(text)}" for text in value.get("warnings", ())]
    if value.get("undo"):
        lines.append(f"  undo: {clean_text(value['undo'])}")
    return "\n".join(lines)


def _cursor_details(value: dict[str, Any]) -> Iterator[str]:  # Any: a JSON object
    """Yield what a moved cursor's report says beyond before and after; other reports have none of these keys."""
    replayed, skipped = value.get("replayed") or {}, value.get("skipped") or {}
    if replayed.get("entries"):
        yield f"given again: {_amount(replayed)}"
        if skipped.get("entries"):
            yield f"no more given: {_amount(skipped)}"
    rows = value.get("ledgers") or []
    for row in rows[:_SHOWN_LEDGERS]:
        yield f"ledger {row['ledgerId']}: {_amount(row)}"
    if len(rows) > _SHOWN_LEDGERS:
        yield f"and {counted(len(rows) - _SHOWN_LEDGERS, 'more ledger')}"
    yield from _deletable_details(value)
    broker = value.get("broker")
    if broker and not broker["agrees"]:
        yield f"a broker would move to {broker['markDeletePosition']}: {_broker_difference(broker['entries'])}"
    future = value.get("futureDated")
    if future:
        producers = clean_text(", ".join(future["producers"]))
        yield (
            f"never expire by age: {_amount(future)} from {future['first']} on, dated up to "
            f"{render_cell(future['latestTime'], 'time')}, sent by {producers}"
        )


def _deletable_details(value: dict[str, Any]) -> Iterator[str]:  # Any: a JSON object
    """Yield what a broker may delete once cursors have moved forward, and what keeps the rest."""
    deletable = value.get("deletable") or {}
    if value["after"] is not None and not value.get("skipped", {}).get("entries"):
        return
    if deletable.get("ledgers"):
        yield f"then deletable: {_ledgers(deletable['ledgers'])} ({_amount(deletable)})"
    if deletable.get("keptByRetention"):
        yield f"kept by retention: {_ledgers(deletable['keptByRetention'])}"
    if deletable.get("blockedBy"):
        blocker = deletable["blockedBy"]
        yield f"the rest is kept for {clean_text(blocker['subscription'])}, at {blocker['markDeletePosition']}"


def _broker_difference(entries: int) -> str:
    if not entries:
        return "as many entries"
    return f"{counted(abs(entries), 'entry')} {'more' if entries > 0 else 'fewer'}"


def _amount(value: dict[str, Any]) -> str:  # Any: a JSON object
    return ", ".join(counted(value[key], one) for key, one in _COUNTS if isinstance(value.get(key), int))


def _ledgers(ids: list[int]) -> str:
    if len(ids) <= _SHOWN_LEDGERS:
        return f"{plural(len(ids), 'ledger')} {', '.join(map(str, ids))}"
    return f"ledgers {ids[0]} to {ids[-1]}, {len(ids):,} in all,"


def _sides(value: dict[str, Any]) -> tuple[Any, Any]:  # Any: JSON values
    """Return before and after; a side that is not there (made, removed) has none of the other's keys."""
    before, after = value["before"], value["after"]
    if isinstance(before, dict) != isinstance(after, dict):
        return before or {}, after or {}
    return before, after


def _differences(before: Any, after: Any, prefix: str = "") -> list[str]:  # Any: JSON values
    """Return ``key  old -> new`` lines of what differs."""
    if isinstance(before, dict) and isinstance(after, dict):
        lines = []
        for key in [*before, *(key for key in after if key not in before)]:
            name = f"{prefix}.{key}" if prefix else str(key)
            lines += _differences(before.get(key), after.get(key), name)
        return lines
    if before == after:
        return []
    return [f"{clean_text(prefix or 'value')}: {_shown(before)} -> {_shown(after)}"]


def _shown(value: object) -> str:
    text = render_cell(value)
    return text if text else "none"
