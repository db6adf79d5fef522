"""Running commands as whole processes and saying on what machine: wall time, processor time and memory of each run."""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

BIN = Path(sys.executable).parent
ADMIN = str(BIN / "pulsar-admin")
CLICK = [sys.executable, "-c", "import click"]
# What is installed has its bytecode beside it: a process that compiles its modules anew would be measured compiling.
_ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


class Run(Struct, frozen=True):
    """One process: seconds on the clock, seconds of processor time, peak resident bytes."""

    seconds: float
    processor_seconds: float
    peak_bytes: int


class Row(Struct, frozen=True):
    """One line of the result: medians of the subject and, in the same run, of its peer; RATIO is subject / peer."""

    what: str
    seconds: float
    processor_seconds: float
    peer: str = ""
    peer_seconds: float = 0.0
    goal: str = ""
    note: str = ""
    runs: int = 0
    peer_processor_seconds: float = 0.0

    @property
    def ratio(self) -> float | None:
        """How many times the peer's time; below 1 the subject is the faster."""
        return self.seconds / self.peer_seconds if self.peer_seconds else None

    @property
    def processor_ratio(self) -> float | None:
        """How many times the peer's processor time, which other processes disturb less than the clock's."""
        return self.processor_seconds / self.peer_processor_seconds if self.peer_processor_seconds else None

    def as_json(self) -> dict[str, Any]:
        """The row as JSON values."""
        found = {key: round(value, 4) if isinstance(value, float) else value for key, value in asdict(self).items()}
        ratios = {"ratio": self.ratio, "processor_ratio": self.processor_ratio}
        return found | {name: None if ratio is None else round(ratio, 3) for name, ratio in ratios.items()}


def run(command: Sequence[object], **environment: str) -> Run:
    """Run ``command`` to its end, output thrown away; it must succeed (or find nothing, exit code 5)."""
    begin = time.perf_counter()
    process = subprocess.Popen(
        list(map(str, command)),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        env={**_ENVIRONMENT, **environment},
    )
    assert process.stderr is not None
    said = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - begin
    process.returncode = code = os.waitstatus_to_exitcode(status)
    assert code in (0, 5), f"{command}: {code} {said.decode(errors='replace')[-2000:]}"
    return Run(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024)


def median(runs: Sequence[Run]) -> Run:
    """The medians of each part; the largest memory."""
    return Run(
        statistics.median(one.seconds for one in runs),
        statistics.median(one.processor_seconds for one in runs),
        max(one.peak_bytes for one in runs),
    )


def side_by_side(subject: Sequence[object], peer: Sequence[object], runs: int) -> tuple[Run, Run]:
    """Medians of ``subject`` and ``peer``, run in turn so that both meet the same machine; a first round is not counted."""
    pairs = [(run(subject), run(peer)) for _ in range(runs + 1)][1:]
    return median([pair[0] for pair in pairs]), median([pair[1] for pair in pairs])


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    model = next(
        (line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line),
        platform.processor(),
    )
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "processor": model,
        "cores": os.cpu_count(),
        "memoryGiB": round(pages / 2**30, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "loadAverageBefore": round(os.getloadavg()[0], 2),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
    }
