"""Tables in terminals: what goes first when there is no room."""

from __future__ import annotations

import pytest

from pulsar_admin.columns import Column
from pulsar_admin.narrow import choose_layout, fold
from pulsar_admin.output import render_table

COLUMNS = (
    Column("TOPIC", "topic"),
    Column("NOTE", "note"),
    Column("FIRST SEEN", "first", "time"),
    Column("LAST SEEN", "last", "time", drop=2),
    Column("ENTRY COUNT", "entries", "number"),
    Column("SIZE", "size", "number", drop=1),
)
ROW = {
    "topic": "persistent://public/default/orders",
    "note": "",
    "first": 1_700_000_000_123,
    "last": 1_700_000_000_456,
    "entries": 12,
    "size": 34,
}


def _shown(room: int, *rows: dict[str, object]) -> list[str]:
    return render_table(rows or (ROW,), COLUMNS, room).splitlines()


def test_everything_where_there_is_room() -> None:
    assert _shown(200) == [
        "TOPIC                               NOTE  FIRST SEEN                LAST SEEN                 ENTRY COUNT  SIZE",
        "persistent://public/default/orders        2023-11-14T22:13:20.123Z  2023-11-14T22:13:20.456Z           12    34",
    ]
    assert render_table([ROW], COLUMNS) == "\n".join(_shown(200))


def test_what_is_empty_goes_and_names_and_headers_get_shorter_first() -> None:
    assert _shown(91) == [
        "                                                                           ENTRY",
        "TOPIC                  FIRST SEEN                LAST SEEN                 COUNT  SIZE",
        "public/default/orders  2023-11-14T22:13:20.123Z  2023-11-14T22:13:20.456Z     12    34",
    ]


def test_then_milliseconds() -> None:
    assert _shown(80)[-1] == "public/default/orders  2023-11-14T22:13:20Z  2023-11-14T22:13:20Z     12    34"


def test_then_texts_are_folded() -> None:
    assert _shown(73)[-2:] == [
        "public/default/   2023-11-14T22:13:20Z  2023-11-14T22:13:20Z     12    34",
        "orders",
    ]


def test_then_columns_go_in_their_order_and_are_named() -> None:
    assert _shown(70)[-3:] == [
        "public/default/      2023-11-14T22:13:20Z  2023-11-14T22:13:20Z     12",
        "orders",
        "(SIZE: in a wider terminal, or with -o json)",
    ]
    assert _shown(56)[-2:] == [
        "public/default/orders  2023-11-14T22:13:20.123Z     12",
        "(LAST SEEN, SIZE: in a wider terminal, or with -o json)",
    ]


def test_at_last_one_below_the_other() -> None:
    assert choose_layout(COLUMNS, [[column.cell(ROW) for column in COLUMNS]], 30, len) is None
    assert "SIZE         34" in _shown(30)


def test_other_names_keep_their_scheme() -> None:
    row = {**ROW, "topic": "non-persistent://a/b/c"}
    assert any(line.startswith("non-persistent://a/b/c") for line in _shown(85, row))


def test_a_column_that_gets_a_value_later_is_shown() -> None:
    rows = [ROW] * 1000 + [{**ROW, "note": "late"}]
    lines = _shown(91, *rows)
    assert [line.split()[-1] for line in lines if "late" in line] == ["34"]


@pytest.mark.parametrize(
    ("text", "width", "lines"),
    [
        ("", 5, [""]),
        ("short", 5, ["short"]),
        ("see: pulsar-admin ledgers orphans", 16, ["see:", "pulsar-admin", "ledgers orphans"]),
        ("acme/iot/skewed-batched", 16, ["acme/iot/skewed-", "batched"]),
        ("x" * 25, 10, ["x" * 10, "x" * 10, "x" * 5]),
        ("a b " + "x" * 12 + " c", 10, ["a b", "x" * 10, "xx c"]),
    ],
)
def test_fold(text: str, width: int, lines: list[str]) -> None:
    assert fold(text, width, len) == lines
