"""What docs/howto/fleet.md shows is what it gives."""

import re
import shlex
from pathlib import Path

import pytest

from tests.conftest import Cli
from tests.stores import imported

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "howto" / "fleet.md"


def test_one_query_over_two_clusters(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    page = PAGE.read_text()
    commands = re.findall(r"^\$ pulsar-admin (store export tables .*)$", page, re.MULTILINE)
    assert len(commands) == 4
    for line in commands:
        assert cli("--store", imported("small", "clean"), *shlex.split(line)).exit_code == 0
    programs = re.findall(r"^```python\n(.*?)^```\n\n```text\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    assert programs
    for program, shown in programs:
        capsys.readouterr()
        exec(compile(program, str(PAGE), "exec"), {})
        assert capsys.readouterr().out.strip() == shown.strip()
