"""Runs the code cells of the notebooks in order, without Jupyter; ``python -m tests.api.notebook`` writes their outputs into them again."""

import json
import os
import sys
from base64 import b64encode
from contextlib import redirect_stdout
from io import BytesIO, StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

NOTEBOOKS = sorted((Path(__file__).resolve().parents[2] / "docs" / "examples").glob("*.ipynb"))
Cell = dict[str, Any]  # Any: JSON values


def run_cells(cells: list[Cell], name: str) -> list[tuple[str, list[bytes]]]:
    """Return (text, pictures as PNG) of every code cell, run in the working directory."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    pictures: list[bytes] = []

    def show() -> None:
        out = BytesIO()
        pyplot.savefig(out, format="png", dpi=70, metadata={"Software": None})
        pyplot.close("all")
        pictures.append(out.getvalue())

    names: dict[str, Any] = {}  # Any: what the notebook defines
    outputs = []
    with patch.object(pyplot, "show", show):
        for number, cell in enumerate(cells):
            if cell["cell_type"] == "code":
                text = StringIO()
                with redirect_stdout(text):
                    exec(compile("".join(cell["source"]), f"{name}, cell {number}", "exec"), names)
                outputs.append((text.getvalue(), pictures[:]))
                pictures.clear()
    return outputs


def lay_out(folder: Path, demo: Path) -> Path:
    """Put a demo folder where notebooks, run in the folder returned, look for it."""
    (folder / ".demo").symlink_to(demo)
    working = folder / "docs" / "examples"
    working.mkdir(parents=True)
    return working


def shown_text(cell: Cell) -> str:
    """The text that the notebook shows below CELL."""
    return "".join(line for output in cell["outputs"] if output["output_type"] == "stream" for line in output["text"])


def rewrite(path: Path) -> None:
    """Write the outputs into the notebook at PATH."""
    from tests.stores import imported

    notebook = json.loads(path.read_text())
    with TemporaryDirectory() as folder:
        (Path(folder) / "demo").mkdir()
        (Path(folder) / "demo" / "pulsar-store").symlink_to(imported("small", "clean"))
        os.chdir(lay_out(Path(folder), Path(folder) / "demo"))
        outputs = run_cells(notebook["cells"], path.name)
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for number, (cell, (text, pictures)) in enumerate(zip(code, outputs, strict=True), 1):
        cell["execution_count"] = number
        lines = text.splitlines(keepends=True)
        cell["outputs"] = [{"name": "stdout", "output_type": "stream", "text": lines}] if lines else []
        for picture in pictures:
            data = {"image/png": b64encode(picture).decode(), "text/plain": ["<Figure>"]}
            cell["outputs"].append({"data": data, "metadata": {}, "output_type": "display_data"})
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    for path in NOTEBOOKS:
        if len(sys.argv) == 1 or path.stem in sys.argv[1:]:
            rewrite(path)
