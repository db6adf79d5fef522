"""What has the name of a file and is none: a FIFO, a link that leads nowhere, a directory. It is told, and nothing waits for it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pulsar_admin.store.codec.journal import PADDED_HEADER_BYTES
from pulsar_admin.store.codec.journal import encode_header as encode_journal_header
from pulsar_admin.store.sources.bookies import read_bookie_directory
from pulsar_admin.store.sources.zookeeper import Notes, ServerFiles, read_tree
from tests.conftest import Cli
from tests.worlds import GOLDEN, scratch_copy, unpack

SECONDS = 60


def run(*words: object, config: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run the program in a process of its own: one that waits ends the test."""
    env = os.environ | ({"PULSAR_ADMIN_CONFIG": str(config)} if config else {})
    line = [sys.executable, "-m", "pulsar_admin", *map(str, words)]
    return subprocess.run(line, capture_output=True, text=True, check=False, timeout=SECONDS, env=env)


@pytest.mark.parametrize("kind", ["FIFO", "directory", "link to a FIFO"])
def test_settings(kind: str, tmp_path: Path) -> None:
    place = tmp_path / "config.toml"
    if kind == "directory":
        place.mkdir()
    elif kind == "FIFO":
        os.mkfifo(place)
    else:
        os.mkfifo(tmp_path / "fifo")
        place.symlink_to("fifo")
    ended = run("topics", "list", "public/default", config=place)
    assert ended.returncode == 2
    assert ended.stderr.splitlines() == [
        f"error: cannot read {place}: it is a {kind.removeprefix('link to a ')}, not a regular file",
        "hint: PULSAR_ADMIN_CONFIG names it",
    ]


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    """A bookie's directory with what is no log, and links to what is one."""
    source = scratch_copy("small", "clean", tmp_path)
    current = source / "bookkeeper" / "current"
    os.mkfifo(current / "f1.log")
    os.mkfifo(current / "f2.txn")
    (current / "f3.log").mkdir()
    (current / "f4.log").symlink_to("/nowhere/f4.log")
    (tmp_path / "elsewhere").mkdir()
    (current / "0.log").rename(tmp_path / "elsewhere" / "0.log")
    (current / "0.log").symlink_to(tmp_path / "elsewhere" / "0.log")
    return source


@pytest.mark.parametrize("how", [[], ["--copy"], ["--link"]])
def test_logs_and_journals(how: list[str], odd: Path, tmp_path: Path, cli: Cli) -> None:
    current = odd / "bookkeeper" / "current"
    answer = cli("--store", tmp_path / "s", "store", "import", "standalone", odd, *how, "-o", "json")
    assert (answer.exit_code, answer.json["entries"], answer.json["problems"]) == (1, 2566, 0)
    left_out = {
        "f1.log": "an entry log, and is not read: it is a FIFO, not a regular file",
        "f2.txn": "a journal, and is not read: it is a FIFO, not a regular file",
        "f3.log": "an entry log, and is not read: it is a directory, not a regular file",
        "f4.log": "an entry log, and is not read: it is a link to /nowhere/f4.log, and that is not there",
    }
    assert answer.json["doubts"] == [f"{current / name} has the name of {text}" for name, text in left_out.items()]
    link = f"{current / '0.log'} is a link: {tmp_path / 'elsewhere' / '0.log'} is read"
    assert {link, *answer.json["doubts"]} <= set(answer.json["warnings"])
    again = cli("--store", tmp_path / "s", "store", "refresh", "-o", "json")
    assert (again.exit_code, again.json["doubts"]) == (1, answer.json["doubts"])
    rows = {Path(row["path"]).name: row["header"] for row in cli("logs", "list", current, "-o", "json").json}
    assert {rows[name] for name in left_out} == {text.partition("not read: ")[2] for text in left_out.values()}
    verified = cli("logs", "verify", current, "-o", "json").ends(1)
    assert {Path(row["path"]).name for row in verified.json if row["problems"]} == left_out.keys()
    assert (
        cli("logs", "list", current / "f1.log", "-o", "json")
        .error["message"]
        .endswith("it is a FIFO, not a regular file")
    )


def test_a_disk_of_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "1.txn").write_bytes(encode_journal_header(6).ljust(PADDED_HEADER_BYTES, b"\0"))
    os.mkfifo(tmp_path / "2.txn")
    found = read_bookie_directory(tmp_path)
    assert [path.name for _, path in found.journals] == ["1.txn"]
    assert [path.name for path in found.others] == ["2.txn"]


def test_files_of_zookeeper(tmp_path: Path) -> None:
    unpack(GOLDEN / "zookeeper-version-2.tar.xz", tmp_path)
    directory = tmp_path / "version-2"
    whole = read_tree((ServerFiles(directory, directory),), [])
    os.mkfifo(directory / "log.7fffffff")
    os.mkfifo(directory / "snapshot.7ffffffe")
    (directory / "snapshot.1").symlink_to("nowhere")
    problems: list[str] = []
    notes = Notes()
    read = read_tree((ServerFiles(directory, directory),), problems, None, notes)
    assert (read.nodes, read.zxid) == (whole.nodes, whole.zxid)
    assert [text.partition(": ")[2] for text in problems] == ["it is a FIFO, not a regular file"] * 2
    assert [text.partition(": ")[2] for text in notes.not_needed] == ["it is a link to nowhere, and that is not there"]
