"""Progress of long work, on stderr only: a bar on a terminal, JSON lines when asked, else nothing."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pulsar_admin.visible import clean_text, write_error

_LINE_INTERVAL_S = 0.5


def _none() -> int:
    return 0


@dataclass(slots=True)
class Progress:
    """What a long task calls as it goes; this one shows nothing. ``failed`` tells how many slices have failed so far."""

    total: int | None
    unit: str
    label: str
    failed: Callable[[], int] = _none
    done: int = 0

    def advance(self, amount: int) -> None:
        """AMOUNT more units are done."""
        self.done += amount

    def finish(self) -> None:
        """The task ended well."""

    def stop(self) -> None:
        """The task ended, well or not."""


class LineProgress(Progress):
    """JSON lines, at most two a second, and one at the end."""

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
    """A rich bar: done, rate, time left, and slices that failed; bytes are shown in powers of 1024."""

    def __init__(self, *what: Any) -> None:  # Any: what Progress takes
        from rich.console import Console
        from rich.filesize import decimal
        from rich.progress import BarColumn, DownloadColumn, ProgressColumn, Task, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress
        from rich.text import Text

        super().__init__(*what)
        failed, unit = self.failed, self.unit

        class Rate(ProgressColumn):
            def render(self, task: Task) -> Text:
                rate = task.finished_speed or task.speed or 0
                return Text(f"{decimal(int(rate))}/s" if unit == "bytes" else f"{rate:,.0f} {unit}/s")

        class Count(ProgressColumn):
            def render(self, task: Task) -> Text:
                return Text(f"{task.completed:,.0f}" + ("" if task.total is None else f"/{task.total:,.0f}"))

        class Failed(ProgressColumn):
            def render(self, task: Task) -> Text:
                count = failed()
                return Text(f"{count} failed" if count else "", "red")

        done = DownloadColumn() if unit == "bytes" else Count()
        self._bar = RichProgress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=None),
            done,
            Rate(),
            TimeRemainingColumn(),
            Failed(),
            console=Console(stderr=True),
            transient=True,
            expand=True,
        )
        self._task = self._bar.add_task(clean_text(self.label), total=self.total)
        self._bar.start()

    def advance(self, amount: int) -> None:
        self.done += amount
        self._bar.advance(self._task, amount)

    def stop(self) -> None:
        self._bar.stop()


@contextmanager
def open_progress(
    form: str, total: int | None, unit: str, label: str, failed: Callable[[], int] = _none
) -> Iterator[Progress]:
    """Show progress in FORM (``bar``, ``json``, ``none``) while the block runs; a bar needs a terminal on stderr."""
    kind: type[Progress] = Progress
    if form == "json":
        kind = LineProgress
    elif form == "bar" and sys.stderr.isatty():
        kind = BarProgress
    progress = kind(total, unit, label, failed)
    try:
        yield progress
        progress.finish()
    finally:
        progress.stop()
