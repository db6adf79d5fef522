"""Fuzz targets, one process each: ``python -m tests.fuzz [--targets a,b] [--seconds N] [--seed N] …``; ``make fuzz`` calls it.

Guided by coverage (atheris) where that is installed; else mutations alone. Ends with 1 when anything was found.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

WORK, SHARED = Path(".fuzz"), Path("/dev/shm")
_COLUMNS = ("target", "executions", "perSecond", "coverage", "slowestMs", "mostMiB", "findings")


def main() -> int:
    options = _options()
    rows = []
    for name in options.targets.split(",") if options.targets else _names():
        command = [
            sys.executable,
            "-m",
            "tests.fuzz.one",
            name,
            str(options.seconds),
            str(options.executions),
            str(options.seed),
        ]
        # libFuzzer ends its process without a last word: what it made in this directory, in memory if there is one, goes here.
        with tempfile.TemporaryDirectory(prefix="fuzz-", dir=SHARED if os.access(SHARED, os.W_OK) else None) as folder:
            environment = os.environ | {"TMPDIR": folder}
            quiet = subprocess.DEVNULL
            subprocess.run(
                [*command, options.engine, str(WORK)], check=False, env=environment, stdout=quiet, stderr=quiet
            )
        rows.append(_row(name))
        print(_line([rows[-1][column] for column in _COLUMNS]), flush=True)
    with open(WORK / "results.jsonl", "a") as out:
        out.writelines(json.dumps(row) + "\n" for row in rows)
    total = sum(row["executions"] for row in rows)
    print(f"{total:,} executions of {len(rows)} targets; findings are in {WORK / 'findings'}")
    return int(any(row["findings"] for row in rows))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--targets", default="", help="names, separated by commas; all by default")
    parser.add_argument("--seconds", type=int, default=60, help="for each target")
    parser.add_argument(
        "--executions", type=int, default=0, help="for each target at most; 0: as many as there is time for"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--engine", choices=["auto", "atheris", "plain"], default="auto")
    return parser.parse_args()


def _names() -> list[str]:
    from tests.fuzz.targets import TARGETS

    return list(TARGETS)


def _row(name: str) -> dict[str, Any]:  # Any: JSON
    """Return what the process of a target left; a process that died is a finding."""
    file = WORK / f"{name}.json"
    row: dict[str, Any] = dict.fromkeys(_COLUMNS, 0) | {"target": name, "findings": 1, "died": True}
    if file.exists():
        row |= json.loads(file.read_text())
        file.unlink()
    return row


def _line(values: list[object]) -> str:
    return "  ".join(f"{value!s:<20}" if at == 0 else f"{value!s:>10}" for at, value in enumerate(values))


if __name__ == "__main__":
    sys.exit(main())
