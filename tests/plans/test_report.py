"""The reports of changes as values and as JSON: what one says, the other does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pulsar_admin.changes import render_change
from pulsar_admin.store.changes.cursors import CLEAR_NAMESPACE
from pulsar_admin.store.changes.plan import ChangePart, ChangeReport, CursorPart, decode_part, parts_of
from pulsar_admin.store.db.changes import Change
from pulsar_admin.store.errors import IndexCorrupt
from pulsar_admin.store.model.cursors import Extent

TRANSCRIPT = Path(__file__).parent.parent / "transcript"
_AROUND = ("change", "dryRun", "undo")


def recorded_reports() -> list[dict[str, object]]:
    """Return every report of a change that the transcript has as JSON."""
    found = []
    decoder = json.JSONDecoder()
    for path in sorted(TRANSCRIPT.glob("*.txt")):
        text = path.read_text("utf-8")
        start = text.find("{")
        while start >= 0:
            try:
                document, _ = decoder.raw_decode(text, start)
            except ValueError:
                document = None
            if isinstance(document, dict) and {"before", "after", "dryRun"} <= document.keys():
                found.append(document)
            start = text.find("{", start + 1)
    return found


def test_json_of_a_part_reads_back_as_that_part() -> None:
    """On what commands printed: the same values under the same keys in the same order, and nothing that is not declared."""
    reports = recorded_reports()
    assert len(reports) > 10
    for document in reports:
        own = {key: value for key, value in document.items() if key not in _AROUND}
        part = decode_part(own)
        assert json.dumps(part.as_json()) == json.dumps(own)
        assert not part.more


def test_a_key_of_another_version_stays() -> None:
    part = decode_part({"before": None, "after": {}, "colour": "red"})
    assert part.as_json() == {"before": None, "after": {}, "colour": "red"}
    assert part.undone().as_json() == {"before": {}, "after": None, "colour": "red"}


def test_an_audit_record_of_another_form_is_told() -> None:
    with pytest.raises(IndexCorrupt, match="change 7"):
        parts_of(Change(7, 0, "topics skip", ({"before": {}, "after": {}, "deletable": 3},), ()))


def test_totals_are_over_all_parts() -> None:
    parts = (CursorPart(skipped=Extent(1, 2, 3)), ChangePart(), CursorPart(skipped=Extent(10, 20, 30)))
    report = ChangeReport("test", "test", 3, False, parts, untouched=frozenset({1}))
    assert report.skipped == Extent(11, 22, 33)
    assert [(one["change"], one["undo"]) for one in report.documents()] == [
        (3, "pulsar-admin store undo 3"),
        (None, None),
        (3, "pulsar-admin store undo 3"),
    ]


def test_one_name_on_two_topics_is_two_subscriptions() -> None:
    def said(*names: tuple[str, str]) -> str:
        parts = tuple(ChangePart(topic=topic, subscription=name) for topic, name in names)
        return render_change(
            ChangeReport(CLEAR_NAMESPACE.command, CLEAR_NAMESPACE.words, 3, False, parts)
        ).splitlines()[0]

    assert said(("a", "s"), ("a", "t"), ("b", "s")) == "change 3: clear the backlog of 3 subscriptions on 2 topics"
    assert said(("a", "s"), ("b", "s")) == "change 3: clear the backlog of s on 2 topics"
    assert said(("a", "s"), ("a", "t")) == "change 3: clear the backlog of 2 subscriptions on a"
