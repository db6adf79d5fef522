"""Progress of long work, on stderr only: a bar on a terminal, JSON lines if requested, otherwise nothing."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pulsar_admin.visible import clean_text, write_error

if TYPE_CHECKING:
    from rich.progress import ProgressColumn

_LINE_INTERVAL_S = 0.5
_BAR_WIDTH, _LABEL_WIDTH = 6, 8
"""The least columns of a bar, and of the label before it."""
_NARROW = 64
"""Columns of a terminal that has no room for a bar and a rate."""


class Progress:
    """Counts the progress of a long task without showing it.

    ``failed`` returns the number of slices that failed so far.
    """

    def __init__(self, total: int | None, unit: str, label: str, failed: Callable[[], int]) -> None:
        self.total, self.unit, self.label, self.failed = total, unit, label, failed
        self.done = 0

    def advance(self, amount: int) -> None:
        """Count ``amount`` more units as done."""
        self.done += amount

    def finish(self) -> None:
        """End after success."""

    def stop(self) -> None:
        """End after success or failure."""


class LineProgress(Progress):
    """Prints JSON lines, at most two per second, and one at the end."""

    def __init__(self, *what: Any) -> None:  # Any: what Progress takes
        super().__init__(*what)
        self._started = self._shown = time.monotonic()

    def advance(self, amount: int) -> None:
        self.done += amount
        if time.monotonic() - self._shown >= _LINE_INTERVAL_S:
            self._show(finished=False)

    def finish(self) -> None:
        self.total = self.done  # it was an estimate: what an index answers is not read
        self._show(finished=True)

    def _show(self, *, finished: bool) -> None:
        self._shown = time.monotonic()
        elapsed = self._shown - self._started
        rate = self.done / elapsed if elapsed > 0 else 0.0
        left = (self.total - self.done) / rate if self.total is not None and rate > 0 else None
        line = {
            "progress": self.label,
            "done": self.done,
            "total": self.total,
            "unit": self.unit,
            "ratePerSecond": round(rate, 3),
            "secondsLeft": None if left is None else round(max(left, 0.0), 3),
            "failedSlices": self.failed(),
            "finished": finished,
        }
        write_error(json.dumps(line))


class BarProgress(Progress):
    """A rich bar: done, rate, time left, and slices that failed; sizes have units of 1024.

    If there is little room, the bar shrinks first, then the label is cut at its front. A narrow terminal shows neither
    bar nor rate.
    """

    def __init__(self, *what: Any) -> None:  # Any: what Progress takes
        from rich.cells import cell_len
        from rich.console import Console
        from rich.progress import BarColumn, ProgressColumn, Task
        from rich.progress import Progress as RichProgress
        from rich.table import Column
        from rich.text import Text

        super().__init__(*what)
        console = Console(stderr=True)
        is_narrow = console.width < _NARROW
        bar_width, label_width = (0, 0) if is_narrow else (_BAR_WIDTH + 1, _LABEL_WIDTH)
        numbers = _number_columns(self.unit, self.failed, has_rate=not is_narrow)
        label = clean_text(self.label).replace("persistent://", "")

        class Label(ProgressColumn):
            def render(self, task: Task) -> Text:
                taken = sum(cell_len(str(number(task))) + 1 for number in numbers)
                room = max(console.width - taken - bar_width, label_width)
                shown = label
                while cell_len(shown) > room:
                    shown = f"…{shown.removeprefix('…')[1:]}" if room else ""
                return Text(shown)

        self._bar = RichProgress(
            Label(table_column=Column(no_wrap=True)),
            *([] if is_narrow else [BarColumn(bar_width=None, table_column=Column(ratio=1))]),
            *numbers,
            console=console,
            transient=True,
            # Else rich sends to stderr what is written to stdout (a file or a pipe) while it shows the bar.
            redirect_stdout=sys.stdout.isatty(),
            expand=not is_narrow,
        )
        self._task = self._bar.add_task("", total=self.total)
        self._bar.start()

    def advance(self, amount: int) -> None:
        self.done += amount
        self._bar.advance(self._task, amount)

    def stop(self) -> None:
        self._bar.stop()


def _number_columns(unit: str, failed: Callable[[], int], *, has_rate: bool) -> list[ProgressColumn]:
    """Return the columns after a progress bar: units done, rate, time left, and the count of ``failed``."""
    from rich.progress import ProgressColumn, Task, TimeRemainingColumn
    from rich.table import Column
    from rich.text import Text

    from pulsar_admin.columns import size_text

    shown, noun = (size_text, "") if unit == "bytes" else ("{:,.0f}".format, f" {unit}")

    class Count(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(shown(task.completed) + ("" if task.total is None else f"/{shown(task.total)}"))

    class Rate(ProgressColumn):
        def render(self, task: Task) -> Text:
            rate = task.finished_speed or task.speed
            return Text("" if rate is None else f"{shown(rate)}{noun}/s")

    class Failed(ProgressColumn):
        def render(self, task: Task) -> Text:
            count = failed()
            return Text(f"{count} failed" if count else "", "red")

    kinds = (Count, *([Rate] if has_rate else []), TimeRemainingColumn, Failed)
    return [kind(table_column=Column(no_wrap=True)) for kind in kinds]


@contextmanager
def open_progress(form: str, total: int | None, unit: str, label: str, failed: Callable[[], int]) -> Iterator[Progress]:
    """Show progress as ``bar``, ``json`` or ``none`` while the block runs; a bar needs a terminal on stderr.

    A ``total`` of 0 is unknown: only the units done are counted.
    """
    kind: type[Progress] = Progress
    if form == "json":
        kind = LineProgress
    elif form == "bar" and sys.stderr.isatty():
        kind = BarProgress
    progress = kind(total or None, unit, label, failed)
    try:
        yield progress
        progress.finish()
    finally:
        progress.stop()
