"""What the planner and the simulator share: tables as text, charts in files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from io import StringIO
from pathlib import Path

from pulsar_admin.columns import Column
from pulsar_admin.plot import Chart, save_chart


def table_text(rows: Iterable[object], columns: Sequence[Column]) -> str:
    """Return ROWS as a table without colors."""
    from pulsar_admin.output import Style, Writer, emit_records

    text = StringIO()
    emit_records(Writer(text), rows, Style("table", "never", tuple(columns)))
    return text.getvalue().rstrip("\n")


def save_charts(paths: Iterable[Path | None], charts: Sequence[Chart], heading: str) -> None:
    """Draw CHARTS into each of PATHS that is given; raises InvalidValue, AlreadyExists."""
    for path in paths:
        if path is not None:
            save_chart(path, charts, heading)
