"""Tables in terminals: what goes first when there is no room."""

import io
import os
from collections.abc import Iterable, Sequence
from unittest import mock

import pytest
from rich.cells import cell_len

from pulsar_admin.columns import Column
from pulsar_admin.output import Style, Writer, emit_records
from pulsar_admin.table_layout import choose_layout, fold

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


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def _render_table(records: Iterable[object], columns: Sequence[Column], room: int | None = None) -> str:
    """Return the table that a terminal of ``room`` columns shows; None: a pipe."""
    text = io.StringIO() if room is None else _Terminal()
    with mock.patch.dict(os.environ, COLUMNS=str(room)):
        emit_records(Writer(text), records, Style(color="never", columns=tuple(columns)))
    return text.getvalue().rstrip("\n")


def _shown(room: int, *rows: dict[str, object]) -> list[str]:
    return _render_table(rows or (ROW,), COLUMNS, room).splitlines()


def test_then_columns_go_in_their_order_and_are_named() -> None:
    assert _shown(73)[-2:] == [
        "public/default/orders  2023-11-14T22:13:20Z  2023-11-14T22:13:20Z     12",
        "(SIZE: in a wider terminal, or with -o json)",
    ]
    assert _shown(56)[-2:] == [
        "public/default/orders  2023-11-14T22:13:20.123Z     12",
        "(LAST SEEN, SIZE: in a wider terminal, or with -o json)",
    ]


def test_zeros_go_before_all() -> None:
    assert _shown(73, {**ROW, "last": 0, "size": 0})[-1].startswith("(SIZE:")
    assert _shown(84, {**ROW, "entries": 1_000_000_000, "size": 0})[-1].startswith("(SIZE:")


def test_names_are_folded_where_no_column_can_go() -> None:
    assert "public/default/   2023-11-14T22:13:20Z     12" in _shown(45)


def test_wide_characters_take_two_columns() -> None:
    rows = [{"name": name, "n": 1} for name in ("日本語", "🚀 launch", "plain", "e\u0301te\u0301")]
    lines = _render_table(rows, (Column("NAME", "name"), Column("N", "n", "number")), 40).splitlines()
    assert {cell_len(line) for line in lines} == {cell_len("🚀 launch") + 3}


def test_at_last_one_below_the_other() -> None:
    assert choose_layout(COLUMNS, [[column.cell(ROW) for column in COLUMNS]], 30, len) is None
    assert "SIZE         34" in _shown(30)
    assert _shown(14)[4:8] == ["       /orders", "NOTE", "FIRST SEEN", "       2023-"]
    assert max(map(len, _shown(14))) == 14


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
