"""One topic that cannot be read keeps no question about all topics from its answer: the others answer, and the exit code is 1."""

from __future__ import annotations

from pathlib import Path

import pytest

from pulsar_admin.store.db.environment import Txn, open_store
from pulsar_admin.store.db.tree import put_nodes, read_node
from pulsar_admin.store.model.references import index_owners
from pulsar_admin.store.model.topics import read_topic
from pulsar_admin.store.names import parse_topic
from tests.conftest import Cli
from tests.stores import narrow_copy

READABLE, UNREADABLE = parse_topic("public/default/plain"), parse_topic("public/default/json")
TIME = "2026-11-20T00:00Z"


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = narrow_copy(tmp_path_factory.mktemp("unreadable"))

    def work(txn: Txn) -> None:
        put_nodes(txn, [read_node(txn, UNREADABLE.path)._replace(value=b"\xff\xff")])
        index_owners(store, txn)

    with open_store(path, writable=True) as store:
        store.write(work)
    return path


@pytest.mark.parametrize(
    "words",
    [
        "topics stats",
        "topics stats-internal",
        "topics info-internal",
        "topics subscriptions --table",
        "topics describe",
        "topics last-message-id",
        "topics get-message-by-id -l {ledger} -e 0",
        "topics examine-messages",
        "topics read -n 1",
        "topics search --text a",
        "topics get-backlog-size",
        f"topics find-by-time -d {TIME}",
        "topics find-by-index --index 1",
        "topics skew",
        "topics timeline",
        "topics timeline -o json",
        "compaction last-id",
        "compaction status",
        "compaction verify",
        "delayed due",
        "delayed histogram",
        "delayed status",
    ],
)
def test_the_other_topics_answer(cli: Cli, broken: Path, words: str) -> None:
    with open_store(broken) as store, store.read() as txn:
        ledger = next(one.ledger_id for one in read_topic(txn, READABLE).ledgers if one.entries)
    asked = words.format(ledger=ledger).split()
    alone = cli("--store", broken, *asked, "--pattern", str(READABLE))
    together = cli("--store", broken, *asked, "--all-topics")
    assert alone.exit_code in (0, 5)
    assert (together.exit_code, alone.stdout == "") == (1, together.stdout == "")
    assert f"{UNREADABLE.path}: no ManagedLedgerInfo" in together.stdout + together.stderr


def test_tables_have_the_messages_of_the_other_topics(cli: Cli, broken: Path, tmp_path: Path) -> None:
    question = "select topic, count(*) n from messages group by topic"
    count = len(cli.on(broken, f"topics read {READABLE} -o jsonl").json_lines)
    asked = cli("--store", broken, "sql", question, "-o", "json")
    exported = cli(
        "--store",
        broken,
        "store",
        "export",
        "tables",
        tmp_path / "t",
        "--only",
        "messages",
        "--columns",
        "pulsar-spark",
    )
    read = cli("--tables", tmp_path / "t", "sql", question, "-o", "json")
    assert (asked.exit_code, exported.exit_code, read.exit_code) == (1, 1, 0)
    assert asked.json == read.json == [{"topic": str(READABLE), "n": count}]
    for answer in (asked, exported):
        assert f"{UNREADABLE.path}: no ManagedLedgerInfo" in answer.stdout + answer.stderr


def test_the_cursors_of_the_other_topics_move(cli: Cli, broken: Path) -> None:
    words = ("namespaces", "clear-backlog", "public/default", "--dry-run", "-o", "json")
    together = cli("--store", broken, *words)
    assert together.exit_code == 1
    assert {row["topic"] for row in together.json} == {str(READABLE)}
    assert f"{UNREADABLE.path}: no ManagedLedgerInfo" in together.stderr


def test_the_other_topics_answer_beside_damaged_blocks(cli: Cli, tmp_path: Path, damages_stores: None) -> None:
    path = narrow_copy(tmp_path)

    def cut(txn: Txn) -> None:
        for ledger_id in read_topic(txn, UNREADABLE).ids:
            for key, row in [*txn.items("entries", ledger_id.to_bytes(8, "big"))]:
                txn.put("entries", key, row[:-1])

    with open_store(path, writable=True) as store:
        store.write(cut)
    reads = ["last-message-id", "examine-messages", "find-by-index --index 1", "skew", "timeline", "timeline -o json"]
    for words in (*reads, f"find-by-time -d {TIME}"):
        together = cli("--store", path, "topics", *words.split(), "--all-topics")
        assert (together.exit_code, str(READABLE) in together.stdout) == (1, True), words
        assert "is damaged" in together.stderr
