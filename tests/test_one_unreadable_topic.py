"""One topic that cannot be read keeps no question about all topics from its answer: the others answer, and the exit code is 1."""

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from pulsar_admin.store.changes.log_writer import last_broker_entry
from pulsar_admin.store.changes.resets import batch_size
from pulsar_admin.store.codec.managedledger import LedgerInfo, decode_managed_ledger, encode_managed_ledger
from pulsar_admin.store.compaction.heads import Transactions, read_transactions
from pulsar_admin.store.db.environment import Txn, open_store
from pulsar_admin.store.db.tree import read_node, tree_key
from pulsar_admin.store.model.cursors import iter_cursor_names
from pulsar_admin.store.model.ledgers import sorted_ledger_ids
from pulsar_admin.store.model.reader import open_reader
from pulsar_admin.store.model.references import index_owners
from pulsar_admin.store.model.topics import iter_topics, read_topic
from pulsar_admin.store.names import Position, parse_topic
from tests.conftest import Cli
from tests.stores import change_value, copied, narrow_copy, put_node, read_rows, write_rows

READABLE, UNREADABLE = parse_topic("public/default/plain"), parse_topic("public/default/json")
TIME = "2026-11-20T00:00Z"


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = narrow_copy(tmp_path_factory.mktemp("unreadable"))
    change_value(path, UNREADABLE.path, lambda _: b"\xff\xff")
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
    exported = cli.on(broken, f"store export tables {tmp_path / 't'} --only messages --columns pulsar-spark")
    read = cli("--tables", tmp_path / "t", "sql", question, "-o", "json")
    assert (asked.exit_code, exported.exit_code, read.exit_code) == (1, 1, 0)
    assert asked.json == read.json == [{"topic": str(READABLE), "n": count}]
    for answer in (asked, exported):
        assert f"{UNREADABLE.path}: no ManagedLedgerInfo" in answer.stdout + answer.stderr


def test_the_cursors_of_the_other_topics_move(cli: Cli, broken: Path) -> None:
    words = ("namespaces", "clear-backlog", "public/default", "--dry-run", "-o", "json")
    together = cli("--store", broken, *words).ends(1)
    assert {row["topic"] for row in together.json} == {str(READABLE)}
    assert f"{UNREADABLE.path}: no ManagedLedgerInfo" in together.stderr


def test_the_other_topics_answer_beside_damaged_blocks(cli: Cli, tmp_path: Path, damages_stores: None) -> None:
    path = narrow_copy(tmp_path)

    def cut(txn: Txn) -> None:
        for ledger_id in read_topic(txn, UNREADABLE).ids:
            for key, row in [*txn.items("entries", ledger_id.to_bytes(8, "big"))]:
                txn.put("entries", key, row[:-1])

    write_rows(path, cut)
    reads = ["last-message-id", "examine-messages", "find-by-index --index 1", "skew", "timeline", "timeline -o json"]
    for words in (*reads, f"find-by-time -d {TIME}"):
        together = cli("--store", path, "topics", *words.split(), "--all-topics")
        assert (together.exit_code, str(READABLE) in together.stdout) == (1, True), words
        assert "is damaged" in together.stderr


SNAPSHOTS = parse_topic("public/default/__transaction_buffer_snapshot")


@pytest.mark.usefixtures("damages_stores")
def test_a_lost_ledger_of_transaction_snapshots_keeps_no_topic_from_its_answer(cli: Cli, tmp_path: Path) -> None:
    """Closed, of three entries, and nothing of it is here: passed over as lost entries are."""
    path = copied("small", "clean", tmp_path)
    asked = [
        f"{words} -o json"
        for words in ("topics stats txn-out", "compaction last-id plain", "compaction run plain --dry-run")
    ]
    before = [cli.on(path, words) for words in asked]
    with open_store(path) as store, store.read() as txn:
        nodes = [read_node(txn, name.path) for name in (SNAPSHOTS, parse_topic("public/default/txn-in"))]
    for (path_of, _, value), ledger_id in zip(nodes, (0, 1_000_000), strict=True):  # behind all others in the second
        managed = decode_managed_ledger(value, path_of)
        ledgers = sorted((*managed.ledgers, LedgerInfo(ledger_id, 3, 100, 5)))
        put_node(path, path_of, encode_managed_ledger(replace(managed, ledgers=tuple(ledgers)), value))
    for words, expected in zip(asked, before, strict=True):
        answer = cli.on(path, words)
        assert (answer.exit_code, answer.stdout) == (expected.exit_code, expected.stdout), answer.stderr
    with open_store(path) as store, open_reader(store) as reader:
        topic = read_topic(reader.txn, parse_topic("public/default/txn-in"))
        assert (topic.ids[-1], topic.last_confirmed) == (1_000_000, Position(1_000_000, 2))
        assert (last_broker_entry(reader, topic), batch_size(reader, topic.last_confirmed)) == (None, 0)
        assert read_transactions(reader, topic, None) == Transactions(frozenset(), None)


@pytest.mark.parametrize("value", [b"\xff\xff", bytes.fromhex("4778000000040807101600")], ids=["damaged", "unknown"])
def test_the_topics_after_it_are_judged(value: bytes, cli: Cli, store: Path, damages_stores: None) -> None:
    first, *others = read_rows(store, lambda txn: [*iter_topics(txn)])
    put_node(store, others[-1].path, b"\xff\xff")
    judged = {*map(str, others), *(one.path for one in others)}

    def told() -> list[list[str]]:
        findings = cli("--store", store, "doctor", "-o", "json", "--each", "99").json
        held = cli("--store", store, "store", "usage", "--why", "-o", "json").json["held"]
        rows = [(row["code"], row["where"]) for row in findings if row["where"].partition(" ")[0] in judged]
        return [sorted(map(str, rows)), sorted(str(row) for row in held if row["topic"] in judged)]

    before = told()
    put_node(store, first.path, value)
    assert told() == before
    assert min(map(len, before)) > 3


def test_a_summary_counts_what_follows(cli: Cli, tmp_path: Path, damages_stores: None) -> None:
    path = copied("small", "clean", tmp_path)
    with open_store(path) as store, store.read() as txn:
        first = next(iter_topics(txn))
        cursors = len([*iter_cursor_names(txn, first)])
        ledgers = sorted_ledger_ids(txn)

    def told() -> tuple[int, int, int]:
        found = cli("--store", path, "store", "info", "-o", "json").json
        return found["unreadableTopics"], sum(found["cursors"].values()), found["topics"]

    unreadable, count, topics = told()
    rows = cli("--store", path, "ledgers", "list", "-o", "json").json
    put_node(path, first.path, b"\xff\xff")
    assert told() == (unreadable + 1, count - cursors, topics)
    key = ledgers[0].to_bytes(8, "big")
    write_rows(path, lambda txn: txn.put("times", key, b"damaged"))
    found = cli("--store", path, "ledgers", "list", "-o", "json").ends(6)
    assert [row["ledgerId"] for row in found.json] == [row["ledgerId"] for row in rows if row["ledgerId"] != ledgers[0]]


def test_a_damaged_row_of_a_cursor_hides_no_other(cli: Cli, tmp_path: Path, damages_stores: None) -> None:
    path = narrow_copy(tmp_path)
    names = [row["subscription"] for row in cli.rows(path, f"topics subscriptions {READABLE} --table")]
    write_rows(path, lambda txn: txn.put("tree", tree_key(READABLE.cursor_path("half")), b"x"))
    found = cli.on(path, f"topics subscriptions {READABLE} --table -o jsonl")
    left = [row["subscription"] for row in found.json_lines]
    assert (found.exit_code, left) == (1, [name for name in names if name != "half"])
    assert "half" in names


_DAMAGED = (
    *("/managed-ledgers/acme/delayed/persistent/reminders", "/managed-ledgers/acme/iot/persistent/skewed/expire-me"),
    *(
        "/admin/policies/acme",
        "/admin/policies/acme/orders",
        "/admin/local-policies/acme/orders",
        "/ledgers/00/0000/L0001",
    ),
    *("/admin/partitioned-topics/acme/orders/persistent/parts", "/schemas/public/default/json"),
    "/managed-ledgers/acme/orders/persistent/compacted/__compaction",
)
_OF_ALL = """
topics stats; topics stats-internal; topics subscriptions; topics describe; topics policies; topics why; topics skew; topics timeline
compaction status; compaction verify; compaction run --dry-run; delayed status; delayed verify; delayed build --dry-run; delayed histogram
doctor --each 99; store check; store check --deep; store usage; store usage --why; store usage --by log; store log; store info
ledgers list; ledgers orphans; ledgers missing; ledgers underreplicated; overview; metrics; store recover --dry-run; store preflight
topics list public/default
"""


def test_nine_damaged_nodes_hide_nothing_of_a_topic_after_them(cli: Cli, tmp_path: Path, damages_stores: None) -> None:
    """Of each kind one, all before the topic in name and number: every answer has of it what it had."""
    path, last = copied("small", "clean", tmp_path), "public/default/steady-batched"
    lines = [line for lines in _OF_ALL.strip().splitlines() for line in lines.split("; ")]

    def told(line: str) -> tuple[bool, list[str]]:
        every = () if not line.startswith(("topics ", "compaction ", "delayed ")) or "/" in line else ("--all-topics",)
        done = cli("--store", path, "--now", "@1795253057132", *line.split(), *every, "-o", "json")
        found = done.json if done.stdout else []
        rows = found if isinstance(found, list) else found.get("held", [])
        return done.exit_code in (0, 1), sorted(text for row in rows if last in (text := json.dumps(row)))

    before = [told(line) for line in lines]
    for node in _DAMAGED:
        put_node(path, node, b"\xff\xff")
    with open_store(path, writable=True) as store:
        store.write(lambda txn: index_owners(store, txn))
    assert [(line, told(line)) for line in lines] == list(zip(lines, before, strict=True))
    assert sum(len(rows) > 0 for _, rows in before) > 12
    described = cli("--store", path, "topics", "describe", "acme/orders/compacted", "-o", "json").json
    assert (described["compaction"], len(described["ledgers"])) == (None, 1)
