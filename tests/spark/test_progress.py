"""One progress display for every engine: bytes of the whole, and slices that failed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Cli, CliResult
from tests.spark.test_commands import on_spark
from tests.worlds import world

__all__ = ["on_spark"]

SCANS = [
    ("store", "check", "--deep"),
    ("store", "index"),
    ("ledgers", "verify"),
    ("topics", "skew", "--all-topics"),
    ("topics", "timeline", "--all-topics", "--bucket", "10ms", "-o", "csv"),
    ("topics", "dump", "--all-topics"),
    ("topics", "read", "--all-topics", "--start-time", "@1000000000"),
]


def _progress(result: CliResult) -> list[dict[str, Any]]:  # Any: JSON values
    lines = [json.loads(line) for line in result.stderr.splitlines() if line.startswith('{"progress"')]
    assert lines
    assert lines == sorted(lines, key=lambda line: line["done"])
    return lines


def _check(cli: Cli, store: Path, words: tuple[str, ...], *more: str) -> None:
    result = cli("--store", store, "--progress", "json", *words, *more)
    assert result.exit_code == 0, result.stderr
    *_, last = _progress(result)
    assert last["unit"] == "bytes"
    assert last["finished"] is True
    assert last["failedSlices"] == 0
    assert 0.5 * last["total"] < last["done"] < 1.5 * last["total"]


@pytest.mark.parametrize("words", SCANS, ids=" ".join)
def test_a_scan_shows_bytes(cli: Cli, demo_store: Path, words: tuple[str, ...]) -> None:
    _check(cli, demo_store, words)


def test_processes_show_bytes(cli: Cli, demo_store: Path) -> None:
    _check(cli, demo_store, SCANS[0], "--jobs", "2")


@pytest.mark.spark
def test_a_scan_on_spark_shows_bytes(cli: Cli, demo_store: Path, on_spark: list[int]) -> None:
    _check(cli, demo_store, SCANS[0], "--spark")
    assert on_spark


def test_failed_slices_are_counted(cli: Cli, tmp_path: Path) -> None:
    source = tmp_path / "source"
    shutil.copytree(world("small") / "clean", source)
    cli("--store", tmp_path / "store", "--quiet", "store", "import", "standalone", source)
    max((source / "bookkeeper" / "current").glob("*.log"), key=lambda path: path.stat().st_size).unlink()
    words = ("--progress", "json", "-o", "json", "topics", "skew", "--all-topics", "--jobs", "2")
    result = cli("--store", tmp_path / "store", *words)
    assert result.exit_code == 1
    failed = [line for line in result.stderr.splitlines() if '"slice-failed"' in line]
    assert _progress(result)[-1]["failedSlices"] == len(failed) > 0
