"""The short form of ``make fuzz-lines``, in a process of its own: its children may not come from one that has opened RocksDB."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("count", [12, pytest.param(2000, marks=pytest.mark.deep)])
def test_hostile_command_lines(count: int) -> None:
    command = [sys.executable, "-m", "tests.fuzz.command_lines", "--lines", str(count), "--seed", "7"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    assert f"{count:,} lines" in done.stdout
