"""There is a manual page a command, and it is roff that mandoc takes."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.test_docs import COMMANDS, DOCS

pytestmark = pytest.mark.deep


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("man")
    subprocess.run([sys.executable, DOCS / "manpages.py", folder], check=True)
    return folder


def test_every_command_has_a_page_with_its_options(pages: Path) -> None:
    expected = {f"pulsar-admin-{name.replace(' ', '-')}.1" for name in COMMANDS}
    assert {path.name for path in pages.iterdir()} == expected | {"pulsar-admin.1"}
    for name, command in COMMANDS.items():
        text = (pages / f"pulsar-admin-{name.replace(' ', '-')}.1").read_text().replace("\\-", "-")
        assert all(option.opts[0] in text for option in command.params if not getattr(option, "hidden", True))


@pytest.mark.skipif(shutil.which("mandoc") is None, reason="mandoc")
def test_mandoc_finds_no_error(pages: Path) -> None:
    done = subprocess.run(
        ["mandoc", "-T", "lint", "-W", "error", *sorted(pages.iterdir())], capture_output=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, b"")


@pytest.mark.skipif(shutil.which("man") is None, reason="man")
def test_man_shows_lines_as_the_help_has_them(pages: Path) -> None:
    done = subprocess.run(
        ["man", "-l", pages / "pulsar-admin-store-undo.1"],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": "/usr/bin:/bin", "MANWIDTH": "80", "LC_ALL": "C.UTF-8"},
    )
    assert "       --dry-run    Show what would change; write nothing.\n" in done.stdout
    assert "       $ pulsar-admin store undo 17\n" in done.stdout
