"""A change as text: before → after, how much, and how to undo it. The JSON of the same object is in product terms."""

from __future__ import annotations

from typing import Any

from pulsar_admin.columns import clean_text, render_cell
from pulsar_admin.jsonify import to_json

_COUNTS = (("entries", "entry", "entries"), ("messages", "message", "messages"), ("bytes", "byte", "bytes"))
_KEYS = {"change", "before", "after", "dryRun"}


def is_change(document: object) -> bool:
    """Return whether DOCUMENT, as JSON, is the report of a change, or a list of such reports."""
    value = to_json(document)
    if isinstance(value, list):
        return bool(value) and all(is_change(item) for item in value)
    return isinstance(value, dict) and value.keys() >= _KEYS


def render_change(document: object) -> str:
    """Return the report of a change (done, or of a dry run) as lines of text."""
    value = to_json(document)
    head = "dry run, nothing was written" if value["dryRun"] else f"change {value['change']}"
    what = [render_cell(value[key]) for key in ("kind", "namespace", "topic", "subscription") if value.get(key)]
    lines = [f"{head}: {' '.join(what)}" if what else head]
    lines += [f"  {line}" for line in _differences(value["before"], value["after"])] or ["  nothing to change"]
    counts = [
        f"{value[key]:,} {one if value[key] == 1 else many}" for key, one, many in _COUNTS if _counted(value, key)
    ]
    if counts:
        lines.append(f"  {', '.join(counts)}")
    lines += [f"  warning: {clean_text(text)}" for text in value.get("warnings", ())]
    if value.get("undo"):
        lines.append(f"  undo: {clean_text(value['undo'])}")
    return "\n".join(lines)


def _counted(value: dict[str, Any], key: str) -> bool:  # Any: a JSON object
    return isinstance(value.get(key), int)


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
