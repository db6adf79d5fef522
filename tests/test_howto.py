"""The commands in how-to pages work on the demo store and print what the page shows."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from pulsar_admin.store.changes.resets import iter_reset_rows
from tests.conftest import Cli
from tests.stores import copied
from tests.worlds import CLUSTER

HOWTO = Path(__file__).resolve().parent.parent / "docs" / "howto"
PAGES = (
    "administer.md",
    "clocks.md",
    "delayed-messages.md",
    "dump-and-load.md",
    "expire.md",
    "find-a-message.md",
    "lost-ledgers.md",
    "monitor.md",
    "negative-acks.md",
    "reset-a-cursor.md",
    "sql.md",
    "why.md",
    "tables.md",
)
_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_COMMAND = re.compile(r"^\$ pulsar-admin (.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)


def commands_of(page: str) -> list[tuple[str, str]]:
    """Return (arguments, output shown) of every command of PAGE, in order."""
    blocks = _BLOCK.findall((HOWTO / page).read_text())
    return [found for block in blocks for found in _COMMAND.findall(block)]


@pytest.mark.parametrize("page", PAGES)
def test_page(page: str, cli: Cli, demo_copy: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(demo_copy)
    check(page, cli)


def test_the_program_of_the_page_on_sql(
    demo_copy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(demo_copy)
    page = (HOWTO / "sql.md").read_text()
    ((program, shown),) = re.findall(r"^```python\n(.*?)^```\n\n```text\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    exec(compile(program, "sql.md", "exec"), {})
    assert capsys.readouterr().out == shown


def test_page_on_a_cluster(cli: Cli, tmp_path: Path, monkeypatch: Any) -> None:
    copied(CLUSTER, "crashed", tmp_path)
    monkeypatch.chdir(tmp_path)
    check("undelete.md", cli)


def check(page: str, cli: Cli) -> None:
    """Run the commands of PAGE and compare what they print."""
    commands = commands_of(page)
    assert len(commands) >= 5
    for line, shown in commands:
        arguments, pipe, _ = line.partition(" | ")
        result = cli(*shlex.split(arguments))
        if not pipe:
            assert "--where" not in line or not re.fullmatch("[A-Z ]+\n", shown), f"{line}: shows no row"
            assert (result.stdout or result.stderr) == shown, line


def test_rows_of_the_file_are_read() -> None:
    """Every row that the page shows is a change."""
    (block,) = re.findall(r"^```json\n(.*?)^```$", (HOWTO / "reset-a-cursor.md").read_text(), re.DOTALL | re.MULTILINE)
    rows = list(iter_reset_rows(block.splitlines(), "page", None, lambda text: 1))
    assert [str(row.topic).removeprefix("persistent://") for row in rows] == [
        json.loads(line)["topic"] for line in block.splitlines()
    ]
