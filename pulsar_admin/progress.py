"""Progress of long work, on stderr only: a bar on a terminal, JSON lines when asked, else nothing."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

_LINE_INTERVAL_S = 0.5


class Progress(Protocol):
    """What a long task calls as it goes."""

    def advance(self, amount: int) -> None:
        """AMOUNT more units are done."""

    def set_total(self, total: int) -> None:
        """The whole is TOTAL units (when it becomes known)."""


class NoProgress:
    """Shows nothing."""

    def advance(self, amount: int) -> None:
        pass

    def set_total(self, total: int) -> None:
        pass


class LineProgress:
    """JSON lines, at most two a second, and one at the end."""

    def __init__(self, total: int | None, unit: str, label: str) -> None:
        self._total = total
        self._unit = unit
        self._label = label
        self._done = 0
        self._started = self._shown = time.monotonic()

    def advance(self, amount: int) -> None:
        self._done += amount
        if time.monotonic() - self._shown >= _LINE_INTERVAL_S:
            self.show(finished=False)

    def set_total(self, total: int) -> None:
        self._total = total

    def show(self, *, finished: bool) -> None:
        self._shown = time.monotonic()
        elapsed = self._shown - self._started
        rate = self._done / elapsed if elapsed > 0 else 0.0
        left = (self._total - self._done) / rate if self._total is not None and rate > 0 else None
        line = {
            "progress": self._label,
            "done": self._done,
            "total": self._total,
            "unit": self._unit,
            "ratePerSecond": round(rate, 3),
            "secondsLeft": None if left is None else round(max(left, 0.0), 3),
            "finished": finished,
        }
        print(json.dumps(line), file=sys.stderr, flush=True)


class BarProgress:
    """A rich bar: done, rate and time left; bytes are shown in powers of 1024."""

    def __init__(self, total: int | None, unit: str, label: str) -> None:
        from rich.console import Console
        from rich.filesize import decimal
        from rich.progress import BarColumn, DownloadColumn, ProgressColumn, Task, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress
        from rich.text import Text

        class Rate(ProgressColumn):
            def render(self, task: Task) -> Text:
                rate = task.finished_speed or task.speed or 0
                return Text(f"{decimal(int(rate))}/s" if unit == "bytes" else f"{rate:,.0f} {unit}/s")

        done = DownloadColumn() if unit == "bytes" else TextColumn("{task.completed:,.0f}/{task.total}")
        self._bar = RichProgress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            done,
            Rate(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
            expand=True,
        )
        self._task = self._bar.add_task(label, total=total)
        self._bar.start()

    def advance(self, amount: int) -> None:
        self._bar.advance(self._task, amount)

    def set_total(self, total: int) -> None:
        self._bar.update(self._task, total=total)

    def stop(self) -> None:
        self._bar.stop()


@contextmanager
def open_progress(form: str, total: int | None, unit: str, label: str) -> Iterator[Progress]:
    """Show progress in FORM (``bar``, ``json``, ``none``) while the block runs; a bar needs a terminal on stderr."""
    if form == "json":
        lines = LineProgress(total, unit, label)
        yield lines
        lines.show(finished=True)
    elif form == "bar" and sys.stderr.isatty():
        bar = BarProgress(total, unit, label)
        try:
            yield bar
        finally:
            bar.stop()
    else:
        yield NoProgress()
