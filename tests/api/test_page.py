"""The page docs/api.md: its blocks run in order on the demo store and print what it shows."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

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
        assert capsys.readouterr().out == shown, code
