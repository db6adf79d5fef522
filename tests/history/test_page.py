"""The how-to page's commands print what it shows, on the recorded cluster; and the same from Python."""

import re
import shlex
from pathlib import Path

import pytest

import pulsar_admin as pa
from tests.conftest import Cli
from tests.history.files import linked, unpack_zookeeper
from tests.history.test_import_at import values_as_of
from tests.test_howto import commands_of
from tests.worlds import world


def test_the_page(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cluster").symlink_to(world("cluster") / "crashed")
    monkeypatch.chdir(tmp_path)
    commands = commands_of("history.md")
    assert len(commands) == 5
    for line, shown in commands:
        found = cli(*shlex.split(line))
        assert re.sub(r"seconds +.*", "", found.stdout) == re.sub(r"seconds +.*", "", shown), line


def test_python(tmp_path: Path) -> None:
    (tmp_path / "whole").mkdir()
    folder = unpack_zookeeper(tmp_path / "whole")
    path = "/managed-ledgers/public/default/persistent/plain"
    changes = list(pa.history([folder], "public/default/plain", since="0xc0", until="0x120"))
    listed = [change for change in changes if change.path == path]
    assert listed[-1].new == values_as_of(0x120)[path]
    assert listed[-1].old == listed[-2].new
    assert listed[1].what == "listed: ledger 8; property index: none → -1"
    assert {change.who for change in changes} == {"broker 127.0.0.1:8082"}
    before, after = values_as_of(0xC0), values_as_of(0x120)
    rows = pa.diff([folder], since="0xc0", until="0x120", passing=True)
    assert {(node.path, node.before, node.after) for row in rows for node in row.nodes} == {
        (path, before.get(path), after.get(path)) for path in {*before, *after} if before.get(path) != after.get(path)
    }
    cut = linked(folder, tmp_path / "cut", "log.35e")
    with pytest.warns(pa.PartialData, match="292 transactions"):
        with_gap = list(pa.history([cut]))
    assert with_gap[-1] == list(pa.history([folder]))[-1]
    with pytest.warns(pa.PartialData, match="0 of 3 bookies"):
        made = pa.import_cluster(tmp_path / "then", metadata=folder, at="0x2a1")
    assert made.nodes == len(values_as_of(0x2A1)) + 3  # /zookeeper and two nodes below it
    with pytest.raises(pa.NothingMatches):
        pa.import_cluster(tmp_path / "never", metadata=folder, at="0x9999")
