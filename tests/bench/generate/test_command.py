"""``python -m bench.generate``: what it says, refuses and leaves."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from bench.generate import generate
from tests.conftest import Cli

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(autouse=True)
def _in_tmp_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_generate_import_and_look(cli: Cli) -> None:
    made = generate("made", "--entries", 500, "--batch", 4, "--entries-per-ledger", 200)
    assert (made.topics, made.ledgers, made.entries, made.messages, made.cursors, made.logs) == (1, 3, 500, 2000, 0, 1)
    assert made.bytes == sum(path.stat().st_size for path in Path("made/bookkeeper/current").glob("*.log"))
    assert cli("--store", "s", "store", "import", "standalone", "made").exit_code == 0
    stats = cli("--store", "s", "-o", "json", "topics", "stats-internal", "generated").json
    assert (stats["numberOfEntries"], stats["lastConfirmedEntry"]) == (500, "3:99")
    assert cli("--store", "s", "store", "check").exit_code == 0


def _program(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bench.generate", *map(str, words)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.deep
def test_the_program(tmp_path: Path) -> None:
    done = _program(tmp_path / "made", "--entries", 10)
    assert (done.returncode, done.stderr) == (0, "")
    assert "entries             10\n" in done.stdout
    again = _program(tmp_path / "made")
    assert (again.returncode, again.stdout) == (1, "")
    assert again.stderr == f"error: {tmp_path / 'made'} exists\nhint: name a directory that does not exist\n"
    assert (_program().returncode, _program("--help").returncode) == (2, 0)


@pytest.mark.deep
def test_the_commands_of_the_how_to_page_work(cli: Cli) -> None:
    page = (ROOT / "docs" / "howto" / "generate.md").read_text()
    (topics,) = re.findall(r"^```json\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    Path("topics.jsonl").write_text(topics)
    lines = [
        line
        for block in re.findall(r"^```sh\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
        for line in block.splitlines()
    ]
    assert len(lines) >= 9
    for line in lines:
        if line.startswith("python -m bench.generate "):
            generate(*shlex.split(line)[3:])
        else:
            assert cli("-q", *shlex.split(line.removeprefix("pulsar-admin "))).exit_code == 0, line
