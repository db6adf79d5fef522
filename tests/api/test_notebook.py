"""The notebooks in docs/examples run from the first cell to the last and print what they show."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.api.notebook import NOTEBOOKS, lay_out, run_cells, shown_text


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
