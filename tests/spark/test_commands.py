"""``--spark`` and ``--jobs`` on commands: the answers of one process, and no JVM where the index answers."""

from __future__ import annotations

import os
import pickle
import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pulsar_admin.context import FEW_MESSAGES
from pulsar_admin.store.db.entry_files import EntryFiles
from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.db.files import iter_logs
from pulsar_admin.store.engine.local import LocalEngine
from pulsar_admin.store.model.ledgers import find_place
from pulsar_admin.without_spark import WITHOUT_SPARK, reason_without_spark
from tests.conftest import Cli
from tests.test_docs import COMMANDS
from tests.worlds import oracle, world

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
import json

from tests.conftest import CliResult

FEW_TOPICS = (
    "acme/orders/codecs",
    "acme/orders/compacted",
    "acme/delayed/reminders",
    "acme/iot/skewed",
    "acme/secure/compacted-secret",
    "public/default/avro",
    "public/default/txn-out",
)
"""What Spark reads in place of all topics, which processes read: each is a job of its own."""
_ADDED_UP = """select topic, key is null, count(*), sum(size), avg(sequence_id), min(publish_time), max(sha1(payload)), max(value)
from messages group by all having count(*) > 1 order by all"""
NEEDS_A_SCAN = [
    ("store", "check", "--deep"),
    ("doctor", "--deep"),
    ("store", "index"),
    ("ledgers", "verify", "-o", "json"),
    ("topics", "read", "acme/iot/skewed", "--start-time", "@1795253000", "--end-time", "@1795260000", "-o", "jsonl"),
    ("topics", "read", "--all-topics", "--payload", "-o", "jsonl"),
    ("topics", "search", "--all-topics", "--regex", "[0-9]{3}", "--payload", "-C", "1", "-o", "jsonl"),
    ("topics", "search", "--all-topics", "--key-prefix", "k000", "-n", "40", "-o", "jsonl"),
    ("topics", "find-by-time", "public/default/batched", "--time", "@1795230000", "--clock", "event"),
    ("topics", "skew", "--all-topics", "-o", "json"),
    ("topics", "timeline", "--all-topics", "--bucket", "10ms", "-o", "json"),
    ("topics", "describe", "--all-topics", "--now", "2026-11-21T10:00:00Z", "-o", "json"),
    ("topics", "why", "acme/delayed/reminders", "-s", "workers", "--now", "2026-11-21T10:00:00Z", "-o", "json"),
    ("topics", "search", "--all-topics", "--text", "1", "--value", "-n", "400", "-o", "jsonl"),
    ("topics", "subscriptions", "--all-topics", "--table", "--now", "2026-11-21T10:00:00Z", "-o", "json"),
    ("topics", "find-by-index", "public/default/batched", "--index", "99999"),
    ("topics", "expire", "acme/delayed/reminders", "-s", "audit", "-t", "2026-11-21T09:30:00Z", "--dry-run"),
    ("topics", "expire-all-subscriptions", "acme/delayed/reminders", "-t", "2026-11-21T09:30:00Z", "--dry-run"),
    ("delayed", "due", "--all-topics", "--until", "2027-01-01T00:00:00Z", "-o", "jsonl"),
    ("delayed", "status", "--all-topics", "--now", "2026-11-21T10:00:00Z", "-o", "json"),
    ("delayed", "replay", "--all-topics", "--until", "2027-01-01T00:00:00Z", "-o", "jsonl"),
    ("compaction", "read", *FEW_TOPICS, "--payload", "--value", "-o", "jsonl"),
    ("compaction", "read", "--all-topics", "--redact", "-o", "csv"),
    ("compaction", "find-by-time", "--all-topics", "--time", "@1795253002970", "-o", "jsonl"),
    ("topics", "dump", *FEW_TOPICS, "--payload"),
    ("sql", _ADDED_UP, "-o", "jsonl"),
    ("sql", "select * replace (md5(payload) as payload) from messages order by all", "-o", "jsonl"),
    ("topics", "dump", "--all-topics", "--level", "entries", "--start-time", "@1795253000", "--clock", "publish"),
]
OF_OPERATIONS = {
    "ScanRuns": NEEDS_A_SCAN[0],
    "ReadHeads": NEEDS_A_SCAN[12],
    "ReduceEntries to lengths": NEEDS_A_SCAN[3],
    "ReduceEntries to clocks": NEEDS_A_SCAN[9],
    "ReduceEntries to parts of a statement": NEEDS_A_SCAN[-3],
    "MakeRows of messages": NEEDS_A_SCAN[6],
    "MakeRows of entries": NEEDS_A_SCAN[-1],
    "RowsOfTopics": NEEDS_A_SCAN[13],
    "MakeRows of compacted topics": ("compaction", "read", "--all-topics", "--redact", "-o", "csv"),
    "ReadDelays": ("delayed", "status", "--all-topics", "--now", "2026-11-21T10:00:00Z", "-o", "json"),
    "FindPublished": ("compaction", "find-by-time", "--all-topics", "--time", "@1795253002970", "-o", "jsonl"),
    "MessagesAt": NEEDS_A_SCAN[-2],
}
"""A command for each operation that commands give to an engine, which Spark and processes run."""
_BY_SPARK = [NEEDS_A_SCAN[number] for number in (6, 13, 22, -2, -1)]
"""Those of them that are further forms of a command."""
INDEX_ANSWERS = [
    ("sql", "select count(*) from topics"),
    ("store", "check"),
    ("doctor", "--severity", "note"),
    ("store", "usage", "--by", "log"),
    ("topics", "analyze-backlog", "public/default/plain", "-s", "holes"),
    ("topics", "timeline", "public/default/plain", "--bucket", "365d", "-o", "table"),
]

COMPARED_ELSEWHERE = {
    "store import standalone": "test_engines.py::test_an_import_writes_the_same_bytes",
    "store import cluster": "test_engines.py::test_an_import_of_a_cluster_writes_the_same_bytes",
    "store add bookie": "test_engines.py::test_an_import_of_a_cluster_writes_the_same_bytes",
    "store refresh": "test_commands.py::test_refresh_and_rebuild",
    "store export tables": "test_tables.py::test_spark_writes_the_rows_of_this_process",
    "store recover": "../recovery/test_chains.py::test_engines_say_the_same",
    "logs dump": "../commands/test_logs.py::test_slices_say_what_one_scan_says",
    "logs verify": "../commands/test_logs.py::test_slices_say_what_one_scan_says",
    "compaction run": "test_compaction.py::test_commands_in_processes",
    "compaction verify": "test_compaction.py::test_commands_in_processes",
    "delayed build": "test_delayed.py::test_index_is_the_same",
    "delayed histogram": "test_delayed.py::test_answers_are_the_same",
    "delayed verify": "test_delayed.py::test_answers_are_the_same",
}
"""Commands that need no store, change one, or have their own tests of engines."""


@pytest.fixture(autouse=True)
def nothing_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """However little there is to scan, it is scanned."""
    monkeypatch.setattr("pulsar_admin.store.search.window.SMALL_MESSAGES", -1)


@pytest.fixture(scope="module")
def damaged_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of the directory with every kind of damage."""
    from pulsar_admin.store.transfer.imports import ImportOptions
    from tests.stores import import_standalone

    path = tmp_path_factory.mktemp("damaged") / "store"
    import_standalone(world("nometa") / "mutated", path, ImportOptions(), lambda _: None)
    return path


@pytest.fixture
def operations(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kinds of operations that commands gave to the local engine."""
    asked: list[str] = []
    run = LocalEngine.run

    def watched(engine: LocalEngine, operation: Any, pieces: Any, finished: Any) -> Any:  # Any: as LocalEngine.run
        asked.append(type(operation).__name__)
        return run(engine, operation, pieces, finished)

    monkeypatch.setattr(LocalEngine, "run", watched)
    return asked


Answer = tuple[int, str, str]
Alone = Callable[[Path, tuple[str, ...]], Answer]


def _answer(cli: Cli, store: Path, words: tuple[str, ...], *more: str) -> Answer:
    result = cli("--store", str(store), *words, *more)
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture(scope="module")
def known_answers() -> dict[tuple[Path, tuple[str, ...]], Answer]:
    """What ``alone`` was told, for all tests."""
    return {}


@pytest.fixture
def alone(cli: Cli, known_answers: dict[tuple[Path, tuple[str, ...]], Answer]) -> Alone:
    """Return the answer of one process, which starts no other."""

    def ask(store: Path, words: tuple[str, ...]) -> Answer:
        if (store, words) not in known_answers:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(LocalEngine, "run", lambda *_: pytest.fail("other processes were started"))
                known_answers[store, words] = _answer(cli, store, words)
        return known_answers[store, words]

    return ask


def _asked(words: tuple[str, ...]) -> tuple[str, ...]:
    if "skew" in words:  # one job for all topics
        return words
    return tuple(topic for word in words for topic in (FEW_TOPICS if word == "--all-topics" else (word,)))


@pytest.mark.spark
@pytest.mark.parametrize("words", OF_OPERATIONS.values(), ids=OF_OPERATIONS)
def test_spark_answers_as_one_process(
    cli: Cli, alone: Alone, damaged_store: Path, on_spark: list[int], words: tuple[str, ...]
) -> None:
    answer = alone(damaged_store, _asked(words))
    assert answer[0] in (0, 1, 5)
    assert _answer(cli, damaged_store, _asked(words), "--spark") == answer
    assert on_spark


@pytest.mark.parametrize(
    ("name", "given"), [("MakeRows of messages", "MakeRows"), ("MakeRows of entries", "RowsOfTopics")]
)
def test_processes_answer_as_one(
    cli: Cli, alone: Alone, damaged_store: Path, operations: list[str], name: str, given: str
) -> None:
    """With many topics, which are read as one."""
    words = OF_OPERATIONS[name]
    assert _answer(cli, damaged_store, words, "--jobs", "2") == alone(damaged_store, words)
    assert operations == [given]


@pytest.mark.parametrize(
    "words",
    [pytest.param(words, marks=pytest.mark.deep) if words in _BY_SPARK else words for words in NEEDS_A_SCAN],
    ids=" ".join,
)
def test_every_command_asks_an_engine(
    cli: Cli,
    alone: Alone,
    demo_store: Path,
    monkeypatch: pytest.MonkeyPatch,
    operations: list[str],
    words: tuple[str, ...],
) -> None:
    """With what an engine is given, as it would arrive in another process; all its operations are among those that every engine runs."""

    def arrived(
        engine: LocalEngine, operation: Any, pieces: Any, finished: Any, jobs: int
    ) -> Any:  # Any: as LocalEngine.run
        here = LocalEngine(jobs=1, failed=engine.failed)
        operation, copies = pickle.loads(pickle.dumps((operation, pieces)))
        given = dict(zip(map(id, copies), pieces, strict=True))
        return ((given[id(copy)], table) for copy, table in here.run(operation, copies, finished))

    monkeypatch.setattr(LocalEngine, "_run_in_processes", arrived)
    assert _answer(cli, demo_store, words, "--jobs", "2") == alone(demo_store, words)
    assert operations, "--jobs was accepted and ignored"
    assert {*operations} <= {name.split()[0] for name in OF_OPERATIONS}


def _command_of(words: tuple[str, ...]) -> str:
    return next(name for name in (" ".join(words[:2]), words[0]) if name in COMMANDS)


def test_every_command_runs_on_every_engine_or_says_why_not() -> None:
    """What takes --spark is compared with one process; all others have a reason in the table of commands."""
    listed = [name for names in WITHOUT_SPARK.values() for name in names]
    on_spark = {name for name, command in COMMANDS.items() if "spark" in command.uses}
    assert len(listed) == len(set(listed))
    assert {name for name in listed if "*" not in name} <= set(COMMANDS)
    assert on_spark == {name for name in COMMANDS if reason_without_spark(name) is None}
    compared = {_command_of(words) for words in (*NEEDS_A_SCAN, *INDEX_ANSWERS)} | set(COMPARED_ELSEWHERE)
    assert on_spark == compared
    for place in COMPARED_ELSEWHERE.values():
        module, name = place.split("::")
        assert f"def {name}(" in (Path(__file__).parent / module).read_text()


ENTRIES_MAX = 300
"""``compaction status`` reads up to three entries of each of a dozen topics, ``overview`` some six of each of forty: those on both sides of
where a subscription's messages begin and of its first acknowledged ranges, of 500 backlogs at most."""
SMALL_REASONS = [reason for reason in WITHOUT_SPARK if not {"copies", "other"} & set(reason.replace(",", "").split())]


@pytest.mark.parametrize("reason", SMALL_REASONS)
def test_what_takes_no_spark_reads_no_topic(
    reason: str, cli: Cli, demo_copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reason is true: the examples of these commands read few entries of the demo, many topics or not."""
    reads: list[int] = []
    read = EntryFiles.read

    def counted(files: EntryFiles, file_id: int, offset: int, length: int) -> bytes:
        reads.append(length)
        return read(files, file_id, offset, length)

    monkeypatch.setattr(EntryFiles, "read", counted)
    monkeypatch.chdir(demo_copy)
    for name in (name for name in COMMANDS if reason_without_spark(name) == reason):
        for example in COMMANDS[name].details.examples:
            reads.clear()
            dry = ("--dry-run",) if COMMANDS[name].changes else ()
            cli(*shlex.split(example.split(" > ")[0].split(" | ")[0])[1:], *dry)
            assert len(reads) <= ENTRIES_MAX, example


def test_spark_is_refused_with_the_reason(cli: Cli) -> None:
    cli("topics", "list", "public/default", "--spark").ends(2, "it answers from metadata")


@pytest.mark.parametrize("words", INDEX_ANSWERS, ids=" ".join)
def test_no_spark_where_the_index_answers(
    cli: Cli, demo_store: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.setattr("pulsar_admin.engine.open_engine", lambda settings: pytest.fail("Spark was started"))
    code, out, told = _answer(cli, demo_store, words, "--spark")
    assert (code, out) == _answer(cli, demo_store, words)[:2]
    reason = FEW_MESSAGES if words[0] == "sql" else "the index answers this: nothing was scanned"
    assert told == f"note: {reason}, Spark was not started\n"


SKEWED = ("topics", "find-by-time", "acme/iot/skewed", "--time", "@1795253000000", "-o", "json")


def forget_index_of_skewed(path: Path) -> None:
    """Delete what the store at PATH, of the demo, has of the ledgers of acme/iot/skewed in its indexes."""
    from pulsar_admin.store.db.blocks import ledger_of_key
    from pulsar_admin.store.db.environment import Txn, open_store

    ledgers = {
        ledger["ledgerId"] for ledger in oracle("small")["topics"]["acme/iot/skewed"]["internal_stats"]["ledgers"]
    }

    def forget(txn: Txn) -> None:
        for name in ("entries", "times"):
            for key in [key for key, _ in txn.items(name) if ledger_of_key(key) in ledgers]:
                txn.delete(name, key)

    with open_store(path, writable=True) as store:
        store.write(forget)


def test_a_time_is_found_in_ledgers_without_an_index(cli: Cli, demo_copy: Path, demo_store: Path) -> None:
    expected = cli("--store", str(demo_store), *SKEWED).json
    copy = demo_copy / "pulsar-store"
    forget_index_of_skewed(copy)
    assert cli("--store", str(copy), *SKEWED).json["position"] != expected["position"]
    scanned = cli("--store", str(copy), *SKEWED, "--jobs", "2")
    assert (scanned.json["position"], scanned.json["entryTime"]) == (expected["position"], expected["entryTime"])
    assert "entries of these ledgers found" in scanned.stderr


@pytest.mark.spark
def test_refresh_and_rebuild(cli: Cli, demo_copy: Path, tmp_path: Path, on_spark: list[int]) -> None:
    source = tmp_path / "source"
    shutil.copytree(world("small") / "clean", source)
    logs = sorted((source / "bookkeeper" / "current").glob("*.log"), key=lambda file: file.stat().st_size)
    whole = logs[-1].read_bytes()
    logs[-1].write_bytes(whole[: len(whole) // 2])
    stores = [tmp_path / "one", tmp_path / "spark"]
    for store in stores:
        cli.on(store, f"store import standalone {source}")
    logs[-1].write_bytes(whole)
    for store, more in zip(stores, [(), ("--spark",)], strict=True):
        code, _, told = _answer(cli, store, ("store", "refresh"), *more)
        assert (code, told) == (0, "")
        assert _answer(cli, store, ("store", "check", "--deep"))[0] == 0
        assert _answer(cli, store, ("store", "index", "--rebuild", "-o", "json"), *more)[0] == 0
    assert len(on_spark) == 2
    assert _rows(stores[0]) == _rows(stores[1])


def _rows(path: Path) -> list[tuple[bytes, bytes]]:
    from pulsar_admin.store.db.environment import open_store

    with open_store(path) as store, store.read() as txn:
        return [(key, bytes(row)) for name in ("entries", "times") for key, row in txn.items(name)]


# -- what Spark says --------------------------------------------------------------------------------------------------


@pytest.mark.spark
def test_jobs_have_names_and_count_what_they_read(
    cli: Cli, tmp_path: Path, on_spark: list[int], spark: SparkSession
) -> None:
    """The UI has the step and the topic, or how many; the last byte of an entry's payload is another one."""
    source, store, topic = tmp_path / "source", tmp_path / "store", "acme/iot/skewed"
    shutil.copytree(world("small") / "clean", source)
    assert cli.on(store, f"store import standalone {source}").exit_code == 0
    stats = oracle("small")["topics"][topic]["internal_stats"]
    with open_store(store) as opened, opened.read() as txn:
        place = find_place(txn, stats["ledgers"][0]["ledgerId"], 3)
        assert place is not None
        (log,) = [one.locate(store) for one in iter_logs(txn) if one.file_id == place[0]]
    with log.open("r+b") as file:
        file.seek(place[1] + 4 + place[2] - 1)
        last = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([last ^ 1]))
    jobs = spark.sparkContext._jsc.sc().statusStore()

    def names(count: int) -> set[str]:
        """Return what the last jobs are called, up to their first file."""
        newest = jobs.jobsList(None)
        return {newest.apply(index).description().get().partition(",")[0] for index in range(count)}

    told = cli.on(store, f"topics skew {topic} --spark --verbose").stderr
    assert re.search(
        rf"^note: Spark read {stats['entriesAddedCounter']} entries, [\d,]+ bytes, 1 bad digest, in \d",
        told,
        re.MULTILINE,
    )
    assert names(2) == {f"SumClocks of persistent://{topic}: 1 slice"}
    cli.on(store, f"topics skew {topic} acme/orders/codecs --spark")
    assert names(2) == {"SumClocks of 2 topics: 1 slice"}


# -- progress -------------------------------------------------------------------------------------------------------


SCANS = [
    ("store", "check", "--deep"),
    ("store", "index"),
    ("ledgers", "verify"),
    ("topics", "skew", "--all-topics"),
    ("topics", "timeline", "--all-topics", "--bucket", "10ms", "-o", "csv"),
    ("topics", "dump", "--all-topics"),
    ("topics", "read", "--all-topics", "--start-time", "@1000000000"),
]


def _progress(result: CliResult) -> list[dict[str, Any]]:  # Any: JSON values
    lines = [json.loads(line) for line in result.stderr.splitlines() if line.startswith('{"progress"')]
    assert lines
    assert lines == sorted(lines, key=lambda line: line["done"])
    return lines


def _check(cli: Cli, store: Path, words: tuple[str, ...], *more: str) -> None:
    result = cli.done("--store", store, "--progress", "json", *words, *more)
    *_, last = _progress(result)
    assert last["unit"] == "bytes"
    assert last["finished"] is True
    assert last["failedSlices"] == 0
    assert 0.5 * last["total"] < last["done"] < 1.5 * last["total"]


@pytest.mark.parametrize("words", SCANS, ids=" ".join)
def test_a_scan_shows_bytes(cli: Cli, demo_store: Path, words: tuple[str, ...]) -> None:
    _check(cli, demo_store, words)


def test_processes_show_bytes(cli: Cli, demo_store: Path) -> None:
    _check(cli, demo_store, SCANS[0], "--jobs", "2")


@pytest.mark.spark
def test_a_scan_on_spark_shows_bytes(cli: Cli, demo_store: Path, on_spark: list[int]) -> None:
    _check(cli, demo_store, SCANS[0], "--spark")
    assert on_spark


def test_failed_slices_are_counted(cli: Cli, tmp_path: Path) -> None:
    source = tmp_path / "source"
    shutil.copytree(world("small") / "clean", source)
    cli.on(tmp_path / "store", f"--quiet store import standalone {source}")
    max((source / "bookkeeper" / "current").glob("*.log"), key=lambda path: path.stat().st_size).unlink()
    words = ("--progress", "json", "-o", "json", "topics", "skew", "--all-topics", "--jobs", "2")
    result = cli("--store", tmp_path / "store", *words).ends(1)
    failed = [line for line in result.stderr.splitlines() if '"slice-failed"' in line]
    assert _progress(result)[-1]["failedSlices"] == len(failed) > 0
