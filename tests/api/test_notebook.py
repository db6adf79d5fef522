"""The notebook in docs/examples runs from its first cell to its last and prints what it shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.api.notebook import lay_out, read_notebook, run_cells, shown_text


def test_the_notebook_runs(demo_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(lay_out(tmp_path, demo_folder))
    cells = read_notebook()["cells"]
    outputs = run_cells(cells)
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert [text for text, _ in outputs] == [shown_text(cell) for cell in code]
    pictures = [picture for _, found in outputs for picture in found]
    assert len(pictures) >= 4
    assert all(picture.startswith(b"\x89PNG") and len(picture) > 2_000 for picture in pictures)
