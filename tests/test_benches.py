"""The benches that ``python -m bench`` names are there, each is described, and what it is not given it says."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from bench.__main__ import MEASURES

REPOSITORY = Path(__file__).resolve().parent.parent


@pytest.mark.parametrize("name", MEASURES)
def test_every_bench_is_there_and_described(name: str) -> None:
    module, _, function = MEASURES[name].partition(":")
    assert callable(getattr(importlib.import_module(module), function))
    assert f"| `{name}` |" in (REPOSITORY / "docs" / "benchmarks.md").read_text()
