"""Reports of every kind of change: JSON as audit logs have it reads back to the same bytes, and as a part of its own class."""

from __future__ import annotations

import json

import pytest

from pulsar_admin.store.changes.plan import (
    AnnotationPart,
    ChangePart,
    CompactionPart,
    CursorPart,
    DelayedPart,
    NacksPart,
    PolicyPart,
    decode_part,
)

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
_REPORTS: list[tuple[type[ChangePart], dict[str, object]]] = [
    (ChangePart, {"resource": "tenant acme", "before": None, "after": {"admins": []}}),
    (ChangePart, {"namespace": "acme/orders", **_SIDES, **_EXTENT, "unreferencedLedgers": [], "warnings": ["w"]}),
    (CursorPart, {**_MOVE, "rule": "position", "position": "9:6"}),
    (CursorPart, {**_MOVE, "rule": "broker", "time": 1795243002970, "broker": None}),
    (
        CursorPart,
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
    (CursorPart, {**_MOVE, **_EXPIRY, "ledgers": [], "futureDated": None, "notDue": _NOT_DUE}),
    (CursorPart, {**_MOVE, **_EXPIRY, "ledgers": [], "futureDated": None}),
    (PolicyPart, {**_TOPIC, **_SIDES, "events": None, "position": None}),
    (
        PolicyPart,
        {**_TOPIC, **_SIDES, "events": "persistent://acme/orders/__change_events", "position": "7:3", **_EXTENT},
    ),
    (
        CompactionPart,
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
        DelayedPart,
        {
            "namespace": "acme/orders",
            **_SIDES,
            "split": [{**_TOPIC, "subscription": "s", "messages": 5, "partitionsBefore": 1, "partitionsAfter": 3}],
        },
    ),
    (NacksPart, {**_TOPIC, "subscription": "s", "precisionBits": 8, **_SIDES, "entries": 0, "alreadyTracked": 4}),
    (NacksPart, {**_TOPIC, "subscription": "s", **_SIDES, "entries": 4}),
    (AnnotationPart, {**_TOPIC, "form": "fields", **_SIDES, "annotated": [1, 2]}),
]


@pytest.mark.parametrize(("kind", "document"), _REPORTS)
def test_a_report_of_each_kind_reads_back(kind: type[ChangePart], document: dict[str, object]) -> None:
    part = decode_part(document)
    assert type(part) is kind
    assert not part.more
    assert json.dumps(part.as_json()) == json.dumps(document)


def test_what_undoes_a_move_says_nothing_of_moving_forward() -> None:
    undone = decode_part(_REPORTS[4][1]).undone().as_json()
    assert undone == {
        **_TOPIC,
        "subscription": "s",
        "before": _SIDES["after"],
        "after": _SIDES["before"],
        **_EXTENT,
        **_EXPIRY,
    }


def test_a_report_of_what_is_no_change_of_rows_keeps_its_keys() -> None:
    """Such as an export's: keys of the same names as in other reports mean nothing there."""
    document = {
        "before": None,
        "after": None,
        "directory": "/copy",
        "ledgers": 3,
        "time": 5,
        "position": "there",
        "files": 2,
    }
    part = decode_part(document)
    assert (part.basis, part.expiry) == (None, None)
    assert part.as_json() == document
