"""Our commands against upstream's command tree: names, options, what they take, defaults."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "docs"))

from compatibility import DIFFERENCES, Line, Status, differences, lines, page


@pytest.fixture(scope="module")
def found() -> list[Line]:
    """What became of each command of upstream."""
    return list(lines())


def test_commands_have_upstreams_options_or_a_reason(found: list[Line]) -> None:
    here = [line.path for line in found if line.status in (Status.SAME, Status.ELSEWHERE)]
    compared = [path for path in here if path != "documents generate"]
    differing = {path: said for path in compared if (said := differences(path))}
    assert len(compared) > 400
    assert {
        path: said for path, said in differing.items() if path.replace("persistent ", "topics ") not in DIFFERENCES
    } == {}


def test_every_command_of_upstream_is_on_the_page_once(found: list[Line]) -> None:
    assert len(found) == len({line.path for line in found}) > 500
    text = page()
    assert all(f"`{line.path.partition(' ')[2]}`" in text for line in found)


def test_no_command_is_open(found: list[Line]) -> None:
    assert [line.path for line in found if line.status is Status.OPEN] == []
