"""The benches that ``python -m bench`` names are there, each is described, and what it is not given it says."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from bench.__main__ import MEASURES
from bench.data import Bench
from bench.growth import axes

REPOSITORY = Path(__file__).resolve().parent.parent


@pytest.mark.parametrize("name", MEASURES)
def test_every_bench_is_there_and_described(name: str) -> None:
    module, _, function = MEASURES[name].partition(":")
    assert callable(getattr(importlib.import_module(module), function))
    assert f"| `{name}` |" in (REPOSITORY / "docs" / "benchmarks.md").read_text()


@pytest.mark.parametrize(
    ("words", "said"), [(("nosuch",), "no bench is called nosuch"), (("peers",), "--peers FOLDER")]
)
def test_wrong_names_are_refused(words: tuple[str, ...], said: str) -> None:
    command = [sys.executable, "-m", "bench", "--only", *words]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert said in done.stderr


def test_growth_has_four_sizes_on_each_axis() -> None:
    found = axes(Bench(1, ("1M",)))
    assert [len({point.name for point in points}) for points in found.values()] == [4, 4, 4, 4]
