"""The page docs/api.md: its blocks run in order on the demo store and print what it shows."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

import pulsar_admin
from pulsar_admin import command_table
from pulsar_admin.upstream_list import upstream_commands
from tests.api.notebook import NOTEBOOKS, lay_out, run_cells, shown_text

PAGE = Path(__file__).resolve().parents[2] / "docs" / "api.md"
_BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:\n^```text\n(.*?)^```$)?", re.DOTALL | re.MULTILINE)


def test_the_blocks_of_the_page_run(
    demo_copy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(demo_copy)
    names: dict[str, Any] = {}  # Any: what the page defines
    blocks = _BLOCK.findall(PAGE.read_text())
    assert sum(bool(shown) for _, shown in blocks) >= 12
    capsys.readouterr()
    for code, shown in blocks:
        exec(compile(code, str(PAGE), "exec"), names)
        assert capsys.readouterr().out.replace(str(demo_copy), "/srv/demo") == shown, (
            code
        )  # undo commands name the store


def table_rows() -> list[list[str]]:
    section = PAGE.read_text().split("## Commands and calls\n")[1].split("\n## ")[0]
    return [row.strip("|").split("|") for row in section.splitlines() if row.startswith("| `")]


def test_the_table_has_every_command() -> None:
    listed = [name for first, _ in table_rows() for name in re.findall("`([^`]+)`", first)]
    there = {f"{group} {name}".strip() for group, rows in command_table.COMMANDS.items() for name in rows}
    left_out = set(re.findall("`([^`]+)`", PAGE.read_text().split("Not here, on purpose: ")[1].split("\n\n")[0]))
    assert len(listed) == len(set(listed))
    assert set(listed) <= there - left_out
    assert there - left_out - set(listed) <= set(upstream_commands()), "ours, and on the command line alone"
    assert left_out & there == {"completion"}


def test_the_calls_of_the_table_are_there() -> None:
    known = {name for one in pulsar_admin.__all__ for name in (one, *dir(getattr(pulsar_admin, one)))}
    called = {name for _, second in table_rows() for name in re.findall(r"([a-z_]+)\(", second)}
    assert len(called) > 60
    assert called <= known


# -- notebooks ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_notebook_runs(path: Path, demo_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(lay_out(tmp_path, demo_folder))
    monkeypatch.setattr("sys.path", sys.path[:])
    cells = json.loads(path.read_text())["cells"]
    outputs = run_cells(cells, path.name)
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert [text for text, _ in outputs] == [shown_text(cell) for cell in code]
    pictures = [picture for _, found in outputs for picture in found]
    assert len(pictures) == sum(output["output_type"] == "display_data" for cell in code for output in cell["outputs"])
    assert pictures
    assert all(picture.startswith(b"\x89PNG") and len(picture) > 2_000 for picture in pictures)
