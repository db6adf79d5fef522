"""The commands of tutorial, runbooks and night tasks say what the pages show, on the data that the pages name."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import Cli
from tests.pages import NOW, PAGES, parts_of, prepare, replayed

PARTS = [(page, number) for page in PAGES for number in range(1, len(parts_of(page)))]


@pytest.mark.parametrize(("page", "number"), PARTS)
def test_page(page: str, number: int, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    part = parts_of(page)[number]
    prepare(part, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PULSAR_ADMIN_NOW", NOW)
    lines = []

    def run(words: list[str]) -> str:
        lines.append(words)
        result = cli(*words)
        assert result.exit_code in (0, 1), (words, result.stderr)
        return result.stdout + result.stderr

    assert replayed(part, run) == part
    assert lines


def test_every_page_runs() -> None:
    assert {page for page, _ in PARTS} == set(PAGES)
    assert not [page for page in PAGES if "$ pulsar-admin" in parts_of(page)[0]]
