"""Cells that were written to a temporary file come back as they were, and columns that say nothing are known in the end."""

import random
from collections.abc import Iterator

import pytest

from pulsar_admin import spool
from pulsar_admin.columns import Column, telling
from pulsar_admin.spool import CellSpool
from pulsar_admin.store.names import Position

_COLUMNS = (
    Column("NAME", "name"),
    Column("COUNT", "count", "number", drop=2),
    Column("AT", "at"),
    Column("AGE", "age", "age"),
    Column("NEVER", "never", "number"),
    Column("LATE", lambda row: row["late"], "number"),
)


def _records(count: int) -> Iterator[dict[str, object]]:
    draw = random.Random(count)
    for number in range(count):
        yield {
            "name": draw.choice(["a", "b\n", "é", ""]),
            "count": draw.choice([0, 1, 12345]),
            "at": draw.choice([None, Position(1, 2), Position(7, -1)]),
            "age": draw.choice([None, 5_000, -1]),
            "never": draw.choice([0, None, ""]),
            "late": 1 if number == count - 1 else 0,
        }


@pytest.mark.parametrize("bare", [False, True])
@pytest.mark.parametrize("held_bytes", [0, 50_000, 1 << 30])
@pytest.mark.parametrize("count", [0, 1, 999, 5_001])
def test_cells_are_those_of_the_records(
    count: int, held_bytes: int, bare: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool, "_HELD_BYTES", held_bytes)
    records = [*_records(count)]
    expected = telling(_COLUMNS, records)
    with CellSpool(_COLUMNS, bare=bare) as cells:
        for start in range(0, count, 7):
            cells.add(records[start : start + 7])
        told, rows = cells.telling(), [*cells.rows()]
    assert [(one.header, one.kind, one.drop) for one in told] == [(one.header, one.kind, one.drop) for one in expected]
    assert len(rows) == count == cells.count
    for row, record in zip(rows, records, strict=True):
        assert [one.cell(row) for one in told] == [one.cell(record, bare=bare) for one in expected]
