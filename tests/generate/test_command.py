"""``store generate`` on the command line: what it says, refuses and leaves."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from store.errors import DiskFull
from store.generate import cluster
from store.generate.spec import ClusterSpec, TopicSpec
from store.names import parse_topic
from store.sources import rocksopen
from tests.conftest import Cli


@pytest.fixture(autouse=True)
def _in_tmp_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_generate_import_and_look(cli: Cli) -> None:
    made = cli(
        "-o", "json", "store", "generate", "made", "--entries", 500, "--batch", 4, "--entries-per-ledger", 200
    ).json
    assert {key: made[key] for key in ("topics", "ledgers", "entries", "messages", "cursors", "logs")} == {
        "topics": 1, "ledgers": 3, "entries": 500, "messages": 2000, "cursors": 0, "logs": 1,
    }  # fmt: skip
    assert made["bytes"] == sum(path.stat().st_size for path in Path("made/bookkeeper/current").glob("*.log"))
    assert cli("--store", "s", "store", "import", "standalone", "made").exit_code == 0
    stats = cli("--store", "s", "-o", "json", "topics", "stats-internal", "generated").json
    assert (stats["numberOfEntries"], stats["lastConfirmedEntry"]) == (500, "3:99")
    assert cli("--store", "s", "store", "check").exit_code == 0


def test_a_table_for_people(cli: Cli) -> None:
    result = cli("store", "generate", "made", "--entries", 10)
    assert result.exit_code == 0
    assert "10 " not in result.stderr
    assert "entries             10" in result.stdout


def test_an_existing_directory_is_refused(cli: Cli) -> None:
    Path("made").mkdir()
    result = cli("-o", "json", "store", "generate", "made")
    assert (result.exit_code, result.error["code"]) == (3, "already-exists")
    assert list(Path("made").iterdir()) == []


def test_dry_run_writes_nothing(cli: Cli) -> None:
    shown = cli("-o", "json", "store", "generate", "made", "--topics", 2, "--entries", 7, "--dry-run").json
    assert (shown["entries"], shown["dryRun"], len(shown["topics"])) == (14, True, 2)
    assert list(Path().iterdir()) == []


@pytest.mark.parametrize("error", [DiskFull("full"), KeyboardInterrupt()])
def test_what_was_begun_is_removed(error: BaseException, monkeypatch: pytest.MonkeyPatch, cli: Cli) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(cluster, "write_bookie", fail)
    assert cli("store", "generate", "made", "--entries", 10).exit_code == (8 if isinstance(error, DiskFull) else 130)
    assert list(Path().iterdir()) == []


def test_progress_counts_every_entry(cli: Cli) -> None:
    result = cli("--progress", "json", "store", "generate", "made", "--topics", 3, "--entries", 1000)
    last = json.loads(result.stderr.splitlines()[-1])
    assert (last["progress"], last["done"], last["total"], last["unit"]) == ("generate", 3000, 3000, "entries")


def test_a_wrong_value_names_its_option(cli: Cli) -> None:
    result = cli("store", "generate", "made", "--clocks", "quick")
    assert result.exit_code == 2
    assert "--clocks" in result.stderr
    assert "jumping" in result.stderr


def test_the_commands_of_the_how_to_page_work(cli: Cli) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "howto" / "generate.md").read_text()
    (topics,) = re.findall(r"^```json\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    Path("topics.jsonl").write_text(topics)
    blocks = re.findall(r"^```console\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    lines = [line.removeprefix("$ pulsar-admin ") for block in blocks for line in block.splitlines()]
    assert len(lines) >= 9
    for line in lines:
        assert cli("-q", *shlex.split(line)).exit_code == 0, line


def test_of_two_at_once_one_is_done(tmp_path: Path, cli: Cli) -> None:
    """A second one, begun when the first has written entries, is told so and takes nothing away."""
    path = tmp_path / "made"
    seconds: list[int] = []

    def another(_: int) -> None:
        if not seconds:
            seconds.append(cli("store", "generate", path, "--entries", 10).exit_code)

    topic = TopicSpec(parse_topic("generated"), entries=10)
    cluster.apply_generate(cluster.plan_generate(path, ClusterSpec(1, (topic,), "/data")), another)
    assert seconds == [4]
    assert cli("--store", tmp_path / "s", "store", "import", "standalone", path).exit_code == 0


def test_the_first_error_of_a_full_disk_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """RocksDB's close tells less than the write that failed before it."""

    class Full:
        def __init__(self, *_: object, **__: object) -> None:
            pass

        def close(self) -> None:
            raise Exception("IO error: Writer has previous error.")

    monkeypatch.setattr("rocksdict.Rdict", Full)
    with pytest.raises(DiskFull), rocksopen.open_database(tmp_path, None, None, tmp_path):
        raise Exception(f"IO error: No space left on device: While appending to file: {tmp_path}/000004.log")


def test_a_full_disk_where_rocksdict_keeps_its_own_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says so in an OSError that has the number in its text alone."""

    def full(*_: object, **__: object) -> None:
        raise OSError("No space left on device (os error 28)")

    monkeypatch.setattr("rocksdict.Rdict", full)
    with pytest.raises(DiskFull), rocksopen.open_database(tmp_path, None, None, tmp_path):
        pass
