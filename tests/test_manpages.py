"""There is a manual page a command, and it is roff that mandoc takes."""

import runpy
import shutil
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest

from tests.test_docs import COMMANDS, DOCS


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("man")
    subprocess.run([sys.executable, DOCS / "manpages.py", folder], check=True)
    return folder


def dashed(name: str) -> str:
    return f"pulsar-admin-{name.replace(' ', '-')}"


def unnamed(name: str, page: str) -> list[str]:
    """Return the options of the command NAME that its PAGE does not have."""
    options = [option.opts[0] for option in COMMANDS[name].params if not getattr(option, "hidden", True)]
    assert options
    return [option for option in options if option not in page.replace("\\-", "-")]


def test_the_page_of_the_program_names_all_and_the_first_command_has_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    (program, whole), (first, page) = islice(runpy.run_path(str(DOCS / "manpages.py"))["pages"](), 2)
    names = {f"{dashed(name)}.1": name for name in COMMANDS}
    assert program == "pulsar-admin.1"
    assert all(f"{dashed(name)}(1)" in whole.replace("\\-", "-") for name in COMMANDS)
    assert page.startswith(f'.TH "{dashed(names[first]).upper()}" "1"')
    assert unnamed(names[first], page) == []


@pytest.mark.deep
def test_every_command_has_a_page_with_its_options(pages: Path) -> None:
    assert {path.name for path in pages.iterdir()} == {f"{dashed(name)}.1" for name in COMMANDS} | {"pulsar-admin.1"}
    assert [name for name in COMMANDS if unnamed(name, (pages / f"{dashed(name)}.1").read_text())] == []


@pytest.mark.deep
@pytest.mark.skipif(shutil.which("mandoc") is None, reason="mandoc")
def test_mandoc_finds_no_error(pages: Path) -> None:
    done = subprocess.run(
        ["mandoc", "-T", "lint", "-W", "error", *sorted(pages.iterdir())], capture_output=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, b"")


@pytest.mark.deep
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
