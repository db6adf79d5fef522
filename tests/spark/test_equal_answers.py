"""Every command that reads on Spark, and SQL, on executors that are processes of their own: answers and files of one process."""

import random
import shlex
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import pulsar_admin as pa
from bench.generate import generate
from bench.spark_jobs import COMMANDS, answer_of
from pulsar_admin.store.engine.spark import SparkEngine
from pulsar_admin.store.engine.spark_session import SparkOptions, open_session
from pulsar_admin.store.transfer.imports import ImportOptions
from tests.conftest import Cli
from tests.stores import import_standalone

pytestmark = pytest.mark.cluster
TOPIC, COMPACTED = "public/default/generated-0", "public/default/generated-1"
KINDS = (
    "--topics 3 --entries 20000 --rate 100 --keys 1000 --message-size 64..512 --producers 3 --clocks steady,fast,future "
    "--interceptors timestamp,index --subscriptions 1 --delayed 1% --event-time --tombstones 5 --log-size-limit 8M"
)
STATEMENTS = (
    "select count(*), count(key), count(event_time) from messages",
    "select topic, sum(size) as bytes, avg(size), min(publish_time), max(broker_time) from messages group by topic order by topic",
    "select distinct producer from messages order by 1",
    "select count(distinct key) from messages",
    "select key, count(*) as n from messages group by key having count(*) > 120 order by n desc, key",
    "select null_value, deliver_at_time is null as now, count(*) from messages group by all order by all",
    "select ledger_id, entry_id, batch_index from messages order by size desc, ledger_id, entry_id, batch_index limit 10",
    "select key, ledger_id, entry_id from messages order by key nulls first, ledger_id, entry_id, batch_index limit 7 offset 5",
    "select upper(substr(key, 1, 5)) as k, length(producer) as n, count(*) from messages group by all order by all",
    "select producer || '/' || coalesce(key, '?') as name from messages where key like '%7' group by 1 order by 1 limit 20",
    "select regexp_replace(producer, '[0-9]+', 'N') as p, count(*) filter (where null_value) from messages group by 1 order by 1",
    "select date_trunc('minute', publish_time) as m, count(*) from messages group by 1 order by 1 limit 15",
    "select count(*) from messages where key = 'nobody'",
    "select max(size) from messages where size < 0",
    "select topic, key from messages where key = 'nobody' order by 1",
    "select key, row_number() over (partition by producer order by ledger_id, entry_id, batch_index) as n from messages "
    "qualify n <= 2 order by producer, n, key",
    "with k as (select distinct topic, key, size % 2 as odd from messages) "
    "select a.key, count(*) from k a join k b on a.key = b.key and a.topic < b.topic group by 1 order by 2 desc, 1 limit 5",
    "with big as (select * from messages where size > 400) select topic, count(*) from big group by 1 order by 1",
    "select topic, (select count(*) from messages where null_value) as n from messages group by 1 order by 1",
    "select producer, median(size), stddev(size) > 0, string_agg(distinct topic, ',' order by topic) from messages group by 1 order by 1",
    "select sum(size / 3.0) > 0, sum(size)::hugeint, bit_xor(entry_id), bool_or(null_value) from messages",
    "select size % 7 as r, min(key), max(key) from messages group by 1 order by 1",
    "select count(*) from messages where payload is null",
    "select md5(string_agg(key, ',' order by ledger_id, entry_id, batch_index)) from messages",
)


def _damage(folder: Path) -> None:
    """Turn bits of entries, their sizes and heads, and write zeros over a stretch of each log."""
    drawn = random.Random(2)
    for log in sorted(folder.glob("*.log"), key=lambda log: int(log.stem)):
        data = bytearray(log.read_bytes())
        for _ in range(6):
            data[drawn.randrange(2048, len(data))] ^= 1 << drawn.randrange(8)
        start = drawn.randrange(2048, len(data) - 40_000)
        data[start : start + 20_000] = bytes(20_000)
        log.write_bytes(data)


@pytest.fixture(scope="module", params=["whole", "damaged"])
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with Pulsar's data, a store of it with a compacted topic, and one of its logs alone.

    Damage comes after the first import: the store's index leads to places that no longer have the entries.
    """
    folder = tmp_path_factory.mktemp("equal")
    generate(folder / "data", *KINDS.split())
    import_standalone(folder / "data", folder / "store", ImportOptions(), lambda _: None)
    with pa.open_store(folder / "store", writable=True) as store:
        store.apply(store.topic(COMPACTED).compaction().run())
    logs = folder / "data" / "bookkeeper" / "current"
    if request.param == "damaged":
        _damage(logs)
    with warnings.catch_warnings(action="ignore", category=pa.PartialData):
        pa.import_cluster(folder / "lost", bookies=[str(logs)])
    return folder


@pytest.fixture(scope="module")
def engine() -> Iterator[SparkEngine]:
    """Two executors of one core."""
    with open_session(SparkOptions(master="local-cluster[2,1,1024]")) as session:
        yield SparkEngine(session)


QUESTIONS = [*COMMANDS, *(shlex.join(["sql", "-o", "jsonl", statement]) for statement in STATEMENTS)]


@pytest.mark.parametrize("command", QUESTIONS, ids=["-".join(command.split()[:2]) for command in QUESTIONS])
def test_a_command_answers_as_one_process(
    whole_cli: Cli, made: Path, engine: SparkEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    opened: list[object] = []

    @contextmanager
    def open_engine(settings: object) -> Iterator[SparkEngine]:
        opened.append(settings)
        yield engine

    monkeypatch.setattr("pulsar_admin.engine.open_engine", open_engine)
    out, stdout = tmp_path / "out", tmp_path / "stdout"
    names = {
        "topic": COMPACTED if "compaction verify" in command else TOPIC,
        "out": str(out),
        "logs": str(made / "data" / "bookkeeper" / "current"),
    }
    words = [word.format_map(names) if word.startswith("{") else word for word in shlex.split(command)]
    store = made / "store"
    if "recover" in command:
        store, words = made / "lost", [*words, "--cluster", "eu"]
    answers = []
    for how in (("--jobs", "1"), ("--spark",)):
        shutil.rmtree(out, ignore_errors=True)
        found = whole_cli("--store", store, *words, *how)
        stdout.write_text(found.stdout)
        answers.append((found.exit_code, answer_of(stdout, out)))
    assert opened or answers[0][0] == 6  # as the compaction that refuses
    assert answers[0][0] in (0, 1, 5, 6)
    assert answers[1] == answers[0]
