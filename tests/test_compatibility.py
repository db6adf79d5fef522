"""Our commands against upstream's command tree: names, options, what they take, defaults."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "docs"))

from compatibility import DIFFERENCES, Line, Status, differences, lines, page

LINES = list(lines())
HERE = [line for line in LINES if line.status in (Status.SAME, Status.ELSEWHERE) and line.path != "documents generate"]


@pytest.mark.parametrize("line", HERE, ids=lambda line: line.path)
def test_a_command_has_upstreams_options_or_a_reason(line: Line) -> None:
    assert not differences(line.path) or line.path.replace("persistent ", "topics ") in DIFFERENCES


def test_every_command_of_upstream_is_on_the_page_once() -> None:
    assert len(LINES) == len({line.path for line in LINES}) > 500
    text = page()
    assert all(f"`{line.path.partition(' ')[2]}`" in text for line in LINES)


def test_no_command_is_open() -> None:
    assert [line.path for line in LINES if line.status is Status.OPEN] == []
