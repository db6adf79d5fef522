"""The reports of changes as values and as JSON: what one says, the other does."""

import json
from pathlib import Path

import pytest

from pulsar_admin.store.changes import plan as plans
from pulsar_admin.store.db.audit_log import Change
from pulsar_admin.store.errors import IndexCorrupt

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
        part = plans.decode_part(own)
        assert json.dumps(part.as_json()) == json.dumps(own)
        assert not part.more


def test_an_audit_record_of_another_form_is_told() -> None:
    with pytest.raises(IndexCorrupt, match="change 7"):
        plans.parts_of(Change(7, 0, "topics skip", ({"before": {}, "after": {}, "deletable": 3},), ()))


# -- reports of every kind ------------------------------------------------------------------------------------------

_TOPIC = {"topic": "persistent://acme/orders/eu"}
_SIDES = {"before": {"markDeletePosition": "9:-1"}, "after": {"markDeletePosition": "9:6"}}
_EXTENT = {"entries": 7, "messages": 70, "bytes": 700}
_MOVE = {
    **_TOPIC,
    "subscription": "s",
    **_SIDES,
    **_EXTENT,
    "replayed": {"entries": 0, "messages": 0, "bytes": 0},
    "skipped": _EXTENT,
    "deletable": {
        "ledgers": [3, 4],
        "entries": 8,
        "bytes": 80,
        "keptByRetention": [],
        "blockedBy": {"subscription": "slow", "markDeletePosition": "4:1"},
    },
}
_NOT_DUE = {"messages": 2, "first": [{"position": "9:5:1", "dueTime": 1795253002970}]}
_FUTURE = {"entries": 1, "messages": 1, "first": "9:9", "latestTime": 1795263002970, "producers": ["p"]}
_EXPIRY = {"rule": "all-before", "limit": 1795243002970, "ttl": 60, "ttlSource": "namespace"}
_COUNTS = {"format": "pip-429", "keys": None, "deletedKeys": None, "entriesRead": 9, "bytesRead": 90, "bytesSaved": 20}
_REPORTS: list[tuple[type[plans.ChangePart], dict[str, object]]] = [
    (plans.ChangePart, {"resource": "tenant acme", "before": None, "after": {"admins": []}}),
    (plans.ChangePart, {"namespace": "acme/orders", **_SIDES, **_EXTENT, "unreferencedLedgers": [], "warnings": ["w"]}),
    (plans.CursorPart, {**_MOVE, "rule": "position", "position": "9:6"}),
    (plans.CursorPart, {**_MOVE, "rule": "broker", "time": 1795243002970, "broker": None}),
    (
        plans.CursorPart,
        {
            **_MOVE,
            "deletable": {**_MOVE["deletable"], "blockedBy": None},  # type: ignore[dict-item]
            **_EXPIRY,
            "broker": {"markDeletePosition": "9:4", "agrees": False, "entries": -2},
            "ledgers": [{"ledgerId": 9, **_EXTENT}],
            "futureDated": _FUTURE,
            "notDue": None,
            "ttlConflict": _NOT_DUE,
            "evictingQuotas": [],
        },
    ),
    (plans.CursorPart, {**_MOVE, **_EXPIRY, "ledgers": [], "futureDated": None, "notDue": _NOT_DUE}),
    (plans.CursorPart, {**_MOVE, **_EXPIRY, "ledgers": [], "futureDated": None}),
    (plans.PolicyPart, {**_TOPIC, **_SIDES, "events": None, "position": None}),
    (
        plans.PolicyPart,
        {**_TOPIC, **_SIDES, "events": "persistent://acme/orders/__change_events", "position": "7:3", **_EXTENT},
    ),
    (
        plans.CompactionPart,
        {
            **_TOPIC,
            "subscription": "__compaction",
            **_SIDES,
            **_EXTENT,
            **_COUNTS,
            "payloadBytes": {"before": 9, "after": 7},
            "messagesByReason": {"retained": 3, "nullValues": 1},
            "damaged": 0,
        },
    ),
    (
        plans.DelayedPart,
        {
            "namespace": "acme/orders",
            **_SIDES,
            "split": [{**_TOPIC, "subscription": "s", "messages": 5, "partitionsBefore": 1, "partitionsAfter": 3}],
        },
    ),
    (plans.NacksPart, {**_TOPIC, "subscription": "s", "precisionBits": 8, **_SIDES, "entries": 0, "alreadyTracked": 4}),
    (plans.NacksPart, {**_TOPIC, "subscription": "s", **_SIDES, "entries": 4}),
    (plans.AnnotationPart, {**_TOPIC, "form": "fields", **_SIDES, "annotated": [1, 2]}),
]


@pytest.mark.parametrize(("kind", "document"), _REPORTS)
def test_a_report_of_each_kind_reads_back(kind: type[plans.ChangePart], document: dict[str, object]) -> None:
    part = plans.decode_part(document)
    assert type(part) is kind
    assert not part.more
    assert json.dumps(part.as_json()) == json.dumps(document)


def test_a_key_of_another_version_stays() -> None:
    part = plans.decode_part({"before": None, "after": {}, "colour": "red"})
    assert part.as_json() == {"before": None, "after": {}, "colour": "red"}
    assert part.undone().as_json() == {"before": {}, "after": None, "colour": "red"}
