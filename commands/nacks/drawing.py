"""What the planner and the simulator share: tables as text, charts in files."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from pulsar_admin.columns import Column
from pulsar_admin.plot import Chart, save_chart


def table_text(rows: Iterable[object], columns: Sequence[Column]) -> str:
    """Return ROWS as a table without colors, as wide as the terminal, if it goes to one."""
    from pulsar_admin.output import render_table

    room = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    return render_table(rows, columns, room)


def save_charts(paths: Iterable[Path | None], charts: Sequence[Chart], heading: str) -> None:
    """Draw CHARTS into each of PATHS that is given; raises InvalidValue, AlreadyExists."""
    for path in paths:
        if path is not None:
            save_chart(path, charts, heading)
