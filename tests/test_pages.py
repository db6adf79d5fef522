"""The commands of tutorial, runbooks and night tasks say what the pages show, on the data that the pages name."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import Cli
from tests.pages import DOCS, NOW, PAGES, prepare, replayed


@pytest.mark.parametrize("page", PAGES)
def test_page(page: str, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare(page, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PULSAR_ADMIN_NOW", NOW)
    lines = []

    def run(words: list[str]) -> str:
        lines.append(words)
        result = cli(*words)
        assert result.exit_code in (0, 1), (words, result.stderr)
        return result.stdout + result.stderr

    assert replayed(page, run) == (DOCS / page).read_text()
    assert len(lines) >= 3
