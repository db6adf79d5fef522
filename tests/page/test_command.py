"""``doctor --html``: the page beside the findings, written whole or not at all."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.conftest import Cli
from tests.hostile import FORGED, make_hostile_store
from tests.page.test_page import Parsed
from tests.stores import imported

NOW = "2026-11-21T12:00:00Z"


def test_the_page_has_every_finding_and_changes_no_answer(cli: Cli, tmp_path: Path) -> None:
    words = ("--store", imported("small", "crashed"), "--now", NOW, "-o", "json", "doctor")
    plain, beside = cli(*words), cli(*words, "--html", tmp_path / "doctor.html")
    assert (beside.exit_code, beside.stdout) == (plain.exit_code, plain.stdout)
    assert "doctor.html" in beside.stderr
    texts = Parsed((tmp_path / "doctor.html").read_bytes()).texts
    said = [re.sub(r" --(store|now) \S+", "", text) for text in texts]  # commands name what the command line did
    found = json.loads(plain.stdout)
    assert len(found) > 5
    for finding in found:
        assert {finding["message"], finding["where"], finding["mend"].removesuffix(" --dry-run")} <= set(said)
    assert [file.name for file in tmp_path.iterdir()] == ["doctor.html"]


@pytest.mark.parametrize("name", [".", "there", "there/folder", "link", "nowhere/doctor.html"])
def test_what_is_there_is_not_touched(cli: Cli, tmp_path: Path, name: str) -> None:
    (tmp_path / "there" / "folder").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "there" / "new.html")
    result = cli("--store", imported("small", "clean"), "doctor", "--html", tmp_path / name)
    assert result.exit_code in (3, 5)
    assert result.stdout == ""
    assert sorted(file.name for file in tmp_path.rglob("*")) == ["folder", "link", "there"]


def test_names_of_a_hostile_store_are_text(cli: Cli, tmp_path: Path) -> None:
    store = make_hostile_store(tmp_path / "store")
    assert cli("--store", store, "doctor", "--html", tmp_path / "doctor.html").exit_code in (0, 1)
    page = (tmp_path / "doctor.html").read_text()
    assert FORGED in page
    assert not any(line.startswith(FORGED) for line in page.splitlines())
    assert not set("\x00\x1b\x07\r\x9b\u202e\u2066\u200b\u2028") & set(page)
    assert "</html>" in page
