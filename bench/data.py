"""Generated data to measure on, made when first asked for and kept in ``.benchmarks`` between runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from msgspec import Struct

from bench.generate import generate
from bench.generate.spec import parse_count
from bench.measuring import ADMIN, run

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / ".benchmarks"
TOPIC = "public/default/generated"


class Bench(Struct, frozen=True):
    """What to measure with. ``sizes``: entries of topics; ``logs``: entries of the sets of logs; every count is divided by ``shrink``."""

    runs: int
    sizes: tuple[str, ...]
    logs: tuple[str, ...] = ("1M", "4M")
    peers: Path | None = None
    shrink: int = 1

    def count(self, text: str | int) -> int:
        """Return a count such as 4M, shrunk."""
        return max((parse_count(text) if isinstance(text, str) else text) // self.shrink, 1)

    def generated(self, entries: int, *options: str) -> Path:
        """Return a generated directory of ``entries`` entries of 1 KB a topic, with broker metadata, unless ``options`` say otherwise."""
        name = "-".join(["generated", str(entries), *(option.strip("-") for option in options)])
        target = WORK / name.replace("/", "-")
        if not target.exists():
            WORK.mkdir(exist_ok=True)
            kind = ("--interceptors", "timestamp,index", "--subscriptions", "2", "--holes", "20", *options)
            generate(target, "--entries", entries, *kind)
        return target

    def imported(self, entries: int) -> Path:
        """Return the store of a generated topic."""
        target = WORK / f"store-{entries}"
        if not target.exists():
            run([ADMIN, "-q", "--store", target, "store", "import", "standalone", self.generated(entries)])
        return target

    def index_only(self, entries: int) -> Path:
        """Return a store of ``entries`` entries of which only the index exists."""
        target = WORK / f"index-only-{entries}"
        if not target.exists():
            WORK.mkdir(exist_ok=True)
            command = [sys.executable, "-m", "bench.index_only", str(target), "--entries", str(entries)]
            subprocess.run(command, cwd=ROOT, check=True)
        return target


def logs_of(directory: Path) -> list[Path]:
    """Return the entry logs of a standalone data directory that hold anything."""
    return sorted(path for path in (directory / "bookkeeper" / "current").glob("*.log") if path.stat().st_size)


def size_of(files: list[Path]) -> int:
    """Return the bytes of ``files``."""
    return sum(file.stat().st_size for file in files)


def middle_time(entries: int) -> str:
    """Return the time of the entry in the middle of a generated topic: one a millisecond."""
    return f"@{1_700_000_000_000 + entries // 2}"
