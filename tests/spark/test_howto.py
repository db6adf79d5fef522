"""The pages on Spark: their blocks run in order and print what they show."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pulsar_admin.store.scan.source_options import OPTIONS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGES = Path(__file__).resolve().parents[2] / "docs" / "howto"
_BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:\n^```text\n(.*?)^```$)?", re.DOTALL | re.MULTILINE)
_DATA_FRAME = re.compile(r"^\| `(?:[^|]*) \| `((?:entries|messages)[^`]*)`", re.MULTILINE)


@pytest.mark.spark
@pytest.mark.parametrize(("page", "outputs"), [("spark", 8), ("streaming", 1)])
def test_the_blocks_of_a_page_run(
    page: str,
    outputs: int,
    spark: SparkSession,
    demo_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(demo_folder)
    capsys.readouterr()
    names: dict[str, Any] = {}  # Any: what the page defines
    blocks = _BLOCK.findall((PAGES / f"{page}.md").read_text())
    assert sum(bool(shown) for _, shown in blocks) == outputs
    for code, shown in blocks:
        # The session was started elsewhere: its workers do not know this working directory.
        here = re.sub('"(standalone/|pulsar-store|checkpoint"|followed")', rf'"{demo_folder}/\1', code)
        exec(compile(here, page, "exec"), names)
        assert capsys.readouterr().out == shown, code
    for expression in _DATA_FRAME.findall((PAGES / f"{page}.md").read_text()):
        assert eval(expression, names).schema.names, expression


def test_a_notebook_needs_five_lines() -> None:
    code = _BLOCK.findall((PAGES / "spark.md").read_text())[0][0]
    assert len([line for line in code.splitlines() if line]) == 5


def test_the_table_of_options_is_the_one_that_is_read() -> None:
    section = (PAGES / "spark.md").read_text().split("## Options\n")[1].split("\n## ")[0]
    of_streams = {"maxFilesPerTrigger", "maxBytesPerTrigger", "failOnDataLoss"}  # streaming.md has them
    rows = [row.strip("|").split("|") for row in section.splitlines() if row.startswith("| `")]
    listed = [
        (name, default.strip().strip("`")) for first, default, *_ in rows for name in re.findall("`([^`]+)`", first)
    ]
    assert set(listed) == {
        (option.name, option.shown) for option in OPTIONS if option.name not in {"paths", *of_streams}
    }
