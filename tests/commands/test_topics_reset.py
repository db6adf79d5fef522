"""``topics reset-cursor``: by time, position, distance, other subscription; several topics and files as one change."""

import json
from pathlib import Path
from typing import Any

import pytest

from pulsar_admin.store.changes.resets import bit_words
from pulsar_admin.store.codec.cursor import CursorInfo, CursorState
from pulsar_admin.store.codec.wrapper import MAGIC
from pulsar_admin.store.db.environment import Txn, open_store
from pulsar_admin.store.db.tree import put_nodes, read_node
from pulsar_admin.store.model.cursors import COMPACTION_CURSOR, read_cursor
from pulsar_admin.store.model.reader import open_reader
from pulsar_admin.store.model.topics import read_topic
from pulsar_admin.store.names import Position, parse_topic
from pulsar_admin.store.proto.managed_ledger_pb2 import ManagedCursorInfoMetadata
from tests.altering import flip
from tests.commands.changing import check_undo, rows_of
from tests.conftest import Cli
from tests.plans.test_expiry import put_json
from tests.synthetic import CREATED_MS, Made, MadeTopic, make_store
from tests.worlds import assert_unchanged, oracle

BATCHED = "public/default/batched"
T = CREATED_MS


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """a/b/t: ledgers 10 (0, 9, 3 s, a batch of 3) and 11 (12, 15 s); a/b/p in two partitions; a/b/empty."""
    first = [Made(T), Made(T + 9_000), Made(T + 3_000, batch=3)]
    second = [Made(T + 12_000), Made(T + 15_000)]
    holes = ((Position(10, 0), Position(10, 1)),)
    cursors = {
        "sub": CursorInfo(-1, Position(11, 0)),
        "other": CursorInfo(-1, Position(10, -1), holes, {Position(10, 2): bit_words([1, 2])}, {"repl": 1}),
    }
    parts = {
        f"a/b/p-partition-{number}": MadeTopic([first], cursors={"sub": CursorInfo(-1, Position(12 + number, 2))})
        for number in range(2)
    }
    empty = MadeTopic([[]], cursors={"sub": CursorInfo(-1, Position(14, -1))})
    path = make_store(
        tmp_path / "made", {"a/b/t": MadeTopic([first, second], cursors=cursors), **parts, "a/b/empty": empty}
    )
    put_json(path, "/admin/partitioned-topics/a/b/persistent/p", {"partitions": 2, "deleted": False})
    return path


def state_of(store: Path, topic: str, cursor: str) -> CursorState:
    with open_store(store) as opened, open_reader(opened) as reader:
        found = read_topic(reader.txn, parse_topic(topic))
        return read_cursor(reader.txn, reader, found, cursor).state


def reset(cli: Cli, store: Path, *arguments: object) -> Any:  # Any: JSON
    result = cli.done("--store", store, "topics", "reset-cursor", *arguments, "-o", "json")
    return result.json


# -- where to ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "mark", "backlog"),
    [
        (("-t", f"@{T}"), "10:-1", 5),
        (("-t", f"@{T + 2_000}"), "10:0", 4),  # 10:1 of 9 s is the first at or after 2 s
        (("-t", f"@{T + 2_000}", "-e"), "10:1", 3),
        (("-t", f"@{T + 12_000}"), "10:2", 2),
        (("-t", f"@{T + 20_000}", "--force"), "11:1", 0),
        (("-m", "earliest"), "10:-1", 5),
        (("-m", "latest"), "11:1", 0),
        (("-m", "10:1"), "10:0", 4),
        (("-m", "10:1", "-e"), "10:1", 3),
        (("-m", "10:2", "-e"), "10:2", 2),
        (("-m", "11:0"), "10:2", 2),
        (("-m", "10:3"), "10:2", 2),
        (("-m", "10:1", "-t", "junk-is-still-parsed"), None, 0),
        (("-m", "10:1", "-t", "3h"), "10:0", 4),  # -m wins, as in pulsar-admin
        (("--shift-by", "-2"), "10:1", 3),
        (("--shift-by", "+1"), "11:1", 0),
        (("--shift-by", "-100"), "10:-1", 5),
        (("--shift-by", "100"), "11:1", 0),
        (("-m", "9:4", "--rule", "broker"), "10:-1", 5),
        (("-m", "10:77", "--rule", "broker"), "10:2", 2),
        (("-m", "99:0", "--rule", "broker"), "11:1", 0),
    ],
    ids=str,
)
def test_where_to(cli: Cli, made: Path, options: tuple[str, ...], mark: str | None, backlog: int) -> None:
    arguments = ("--store", made, "topics", "reset-cursor", "a/b/t", "-s", "sub", *options, "-o", "json")
    if mark is None:
        assert cli(*arguments).exit_code == 2
        return
    before = rows_of(made)
    done = cli(*arguments).json
    assert (done["after"]["markDeletePosition"], done["after"]["backlogEntries"]) == (mark, backlog)
    assert done["replayed"]["entries"] == max(backlog - 1, 0)
    assert done["skipped"]["entries"] == (1 if backlog == 0 else 0)
    check_undo(cli, made, 1, before)


# 10:2 is a batch of three: bits of what is still to be given
@pytest.mark.parametrize(
    ("options", "mark", "bits"),
    [
        (("-m", "10:2:0"), Position(10, 1), None),
        (("-m", "10:2:1"), Position(10, 1), [1, 2]),
        (("-m", "10:2:1", "-e"), Position(10, 1), [2]),
        (("-m", "10:2:2", "-e"), Position(10, 2), None),
        (("-m", "10:2:7"), Position(10, 2), None),
        (("-m", "10:1:5"), Position(10, 0), None),  # not a batch
        (("-m", "10:1:5", "-e"), Position(10, 1), None),
        (("-m", "10:2:0", "-e"), Position(10, 1), [1, 2]),
        (("-m", "10:2:2"), Position(10, 1), [2]),
        (("-m", "10:2:3"), Position(10, 2), None),
    ],
    ids=str,
)
def test_in_a_batch(cli: Cli, made: Path, options: tuple[str, ...], mark: Position, bits: list[int] | None) -> None:
    done = reset(cli, made, "a/b/t", "-s", "sub", *options)
    state = state_of(made, "a/b/t", "sub")
    assert state.mark_delete == mark
    assert dict(state.batch_deletes) == ({} if bits is None else {Position(10, 2): bit_words(bits)})
    warned = [text for text in done.get("warnings", ()) if "acknowledgements inside a batch" in text]
    assert bool(warned) == (bits is not None)


@pytest.mark.parametrize(("options", "mark"), [(("--force",), Position(10, 0)), (("-e",), Position(10, 1))], ids=str)
def test_in_what_cannot_be_read(cli: Cli, tmp_path: Path, options: tuple[str, ...], mark: Position) -> None:
    """How many messages the entry has is unknown: it is given whole, by force, or passed over whole."""
    cursors = {"sub": CursorInfo(-1, Position(10, -1))}
    ledger = [Made(T), Made(T, batch=3, lost=True), Made(T)]
    path = make_store(tmp_path / "made", {"a/b/t": MadeTopic([ledger], cursors=cursors)})
    done = cli("--store", path, "topics", "reset-cursor", "a/b/t", "-s", "sub", "-m", "10:1:1", *options)
    assert done.exit_code == 1, "what is lost is warned of"
    assert (state_of(path, "a/b/t", "sub").mark_delete, state_of(path, "a/b/t", "sub").batch_deletes) == (mark, {})


def test_in_a_recorded_batch(cli: Cli, store: Path) -> None:
    """The messages of a batch that a real client read: from index 3 on they come again."""
    rows = [row for row in oracle("small")["topics"][BATCHED]["messages"] if row[:2] == [8, 4]]
    reset(cli, store, BATCHED, "-s", "reset-me", "-m", "8:4:3")
    assert dict(state_of(store, BATCHED, "reset-me").batch_deletes) == {Position(8, 4): bit_words(range(3, len(rows)))}


@pytest.mark.parametrize(
    ("damaged", "code", "mark"),
    [(Made(T + 9_000, payload=b"damaged"), 0, "10:1"), (Made(T + 20_000, payload=b"damaged"), 5, None)],
)
def test_a_damaged_entry_at_the_time_is_not_said_to_be_none(
    cli: Cli, tmp_path: Path, damages_stores: None, damaged: Made, code: int, mark: str | None
) -> None:
    """The first at the time, with another after it, and the only one."""
    topic = MadeTopic([[Made(T), damaged, Made(T + 15_000)]], cursors={"sub": CursorInfo(-1, Position(10, -1))})
    path = make_store(tmp_path / "made", {"a/b/t": topic})
    (log,) = path.glob("entries/*.log")
    flip(log, log.read_bytes().index(b"damaged"), by_disk=True)
    words = ("reset-cursor", "a/b/t", "-s", "sub", "-t", f"@{damaged.publish_ms}", "--dry-run", "-o", "json")
    told = cli("--store", path, "topics", *words)
    assert told.exit_code == code
    assert "1 damaged entry that may be at or after that time is not replayed" in told.stdout + told.stderr
    assert mark is None or told.json["after"]["markDeletePosition"] == mark


def test_the_brokers_rule(cli: Cli, tmp_path: Path) -> None:
    """0, 90, 10, 20 s; to 50 s. Exactly: 10:1. The broker sees 0 s, then 20 s at the end, both earlier: behind the end."""
    entries = [Made(T + seconds * 1_000) for seconds in (0, 90, 10, 20)]
    topic = MadeTopic([entries], cursors={"sub": CursorInfo(-1, Position(10, 3))})
    path = make_store(tmp_path / "made", {"a/b/t": topic})
    ask = ("a/b/t", "-s", "sub", "-t", f"@{T + 50_000}", "--dry-run")
    exact = reset(cli, path, *ask)
    assert exact["after"]["markDeletePosition"] == "10:0"
    assert exact["broker"] == {"markDeletePosition": "10:3", "agrees": False, "entries": -3}
    assert cli("--store", path, "topics", "reset-cursor", *ask, "--rule", "broker").exit_code == 5
    assert reset(cli, path, *ask, "--rule", "broker", "--force")["after"]["markDeletePosition"] == "10:3"
    text = cli("--store", path, "topics", "reset-cursor", *ask).stdout
    assert "  a broker would move it to 10:3 and redeliver 3 fewer entries than this change\n" in text


def test_a_cursor_beyond_a_limit_is_reset_by_force_and_no_reason_to_refuse_others(cli: Cli, store: Path) -> None:
    """Its value says that it has 2 GiB when it is decompressed."""
    topic = parse_topic("acme/orders/compacted")
    metadata = ManagedCursorInfoMetadata(compressionType=1, uncompressedSize=2**31 - 1).SerializeToString()
    huge = MAGIC + len(metadata).to_bytes(4, "big") + metadata + b"x"

    def put(txn: Txn) -> None:
        other = read_node(txn, topic.cursor_path(COMPACTION_CURSOR))
        put_nodes(txn, [other._replace(path=topic.cursor_path("huge"), value=huge)])

    with open_store(store, writable=True) as opened:
        opened.write(put)
    arguments = f"--store {store} topics reset-cursor {topic} --dry-run -o json -m earliest -s".split()
    refused = cli(*arguments, "huge")
    assert refused.error["code"] == "limit-exceeded"
    assert cli(*arguments, "huge", "--force").exit_code == 0
    assert cli(*arguments, COMPACTION_CURSOR, "--force").exit_code == 0


def test_the_compaction_cursor(cli: Cli, store: Path) -> None:
    arguments = f"--store {store} topics reset-cursor acme/orders/compacted -s {COMPACTION_CURSOR} -m earliest".split()
    cli(*arguments, "-o", "json").fails(
        3, "refused", "marks how far the topic is compacted; if it is moved, readers see other messages"
    )
    before = rows_of(store)
    assert cli(*arguments, "--force").exit_code == 0
    assert dict(state_of(store, "acme/orders/compacted", COMPACTION_CURSOR).properties) == {"CompactedTopicLedger": 91}
    check_undo(cli, store, 1, before)


# -- several at once --------------------------------------------------------------------------------------------------


def test_a_position_wins_over_a_time_and_that_is_said(cli: Cli, store: Path) -> None:
    """As in CmdTopics (4.0.8), which does not look at --time then."""
    arguments = f"topics reset-cursor public/default/plain -s half -m 9:3 -t @{T} --dry-run".split()
    told = cli("--store", store, *arguments)
    assert (told.exit_code, told.stderr) == (
        0,
        "warning: --time is ignored if --messageId is given, as in pulsar-admin\n",
    )


def _file(tmp_path: Path, *rows: Any) -> Path:
    path = tmp_path / "changes.jsonl"
    path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows) + "\n\n")
    return path


GOOD = '{"topic":"a/b/t","subscription":"sub","messageId":"10:1"}'
BAD_ROWS: list[tuple[str, int, str]] = [
    ("{", 2, "line 2: it is not JSON at line 1, column 2"),
    ("[]", 2, "line 2: not a JSON object"),
    ('{"topic":"a/b/t","messageId":"10:1"}', 2, "line 2: topic and subscription are required strings"),
    ('{"topic":"a/b/t","subscription":"other"}', 2, "line 2: give exactly one of messageId, time, shiftBy,"),
    ('{"topic":"a/b/t","subscription":"other","time":1,"messageId":"10:1"}', 2, "exactly one of"),
    ('{"topic":"a/b/t","subscription":"other","messageID":"10:1"}', 2, "line 2: unknown key 'messageID'"),
    ('{"topic":"a/b/t","subscription":"other","messageId":7}', 2, 'line 2: messageId is "LEDGER:ENTRY"'),
    ('{"topic":"a/b/t","subscription":"other","messageId":"10"}', 2, "line 2: invalid position '10'"),
    ('{"topic":"a/b/t","subscription":"other","time":1.5}', 2, "line 2: time is epoch milliseconds"),
    ('{"topic":"a/b/t","subscription":"other","time":"5x"}', 2, "line 2: time: Invalid time unit 'x'"),
    ('{"topic":"a/b/t","subscription":"other","shiftBy":"3"}', 2, "line 2: shiftBy: expected a whole number, found a"),
    ('{"topic":"a/b/t","subscription":"other","toSubscription":1}', 2, "line 2: toSubscription must be a string"),
    ('{"topic":"a/b/t","subscription":"other","messageId":"10:1","exclude":1}', 2, "line 2: exclude is true or false"),
    ('{"topic":"a b","subscription":"other","messageId":"10:1:x"}', 2, "line 2"),
    (GOOD, 2, "line 2: sub of persistent://a/b/t is moved by"),
    ('{"topic":"a/b/t","subscription":"nobody","messageId":"10:1"}', 5, "t has no subscription 'nobody'"),
    ('{"topic":"a/b/no","subscription":"sub","messageId":"10:1"}', 5, "line 2: no topic persistent://a/b/no"),
    ('{"topic":"a/b/t","subscription":"other","messageId":"99:1"}', 5, "line 2: persistent://a/b/t has no ledger 99"),
    ('{"topic":"a/b/t","subscription":"other","toSubscription":"nobody"}', 5, "t has no subscription 'nobody'"),
]


@pytest.mark.parametrize(("row", "code", "message"), BAD_ROWS)
def test_all_rows_or_none(cli: Cli, made: Path, tmp_path: Path, row: str, code: int, message: str) -> None:
    file = _file(tmp_path, GOOD, row)
    with assert_unchanged(made / "meta" / "data.mdb"):
        result = cli.on(made, f"topics reset-cursor --from-file {file} -o json")
    assert (result.exit_code, result.stdout) == (code, "")
    assert message in result.error["message"]


# -- what is refused --------------------------------------------------------------------------------------------------

_SUB = ("-s", "sub")
BAD: list[tuple[tuple[str, ...], int, str]] = [
    (("a/b/t", *_SUB), 2, "Either Timestamp (--time) or messageId (--messageId) has to be provided to reset cursor"),
    (("a/b/t", "-m", "10:1"), 2, "Missing option '-s' / '--subscription'."),
    (("-s", "sub", "-m", "10:1"), 2, "name topics, or give --all-topics, --pattern GLOB or --from-file FILE"),
    (("a/b/t", "--all-topics", *_SUB, "-m", "10:1"), 2, "name topics, or give"),
    (("a/b/t", *_SUB, "-t", "5x"), 2, "Invalid time unit 'x'"),
    (("a/b/t", *_SUB, "-t", "+99999y"), 2, "beyond the year 9999"),
    (("a/b/t", *_SUB, "-m", "first"), 2, "invalid position 'first'"),
    (("a/b/t", *_SUB, "-m", "9:4"), 5, "persistent://a/b/t has no ledger 9: what was before ledger 10 is trimmed"),
    (("a/b/t", *_SUB, "-m", "99:0"), 5, "persistent://a/b/t has no ledger 99: its ledgers are 10 to 11"),
    (("a/b/t", *_SUB, "-m", "10:77"), 5, "persistent://a/b/t has no entry 10:77: ledger 10 has entries 0 to 2"),
    (("a/b/empty", *_SUB, "-t", "3h"), 5, "persistent://a/b/empty has no entries, so it has no times"),
    (("a/b/empty", *_SUB, "-m", "14:3"), 5, "persistent://a/b/empty has no entry 14:3: ledger 14 has no entries"),
    (("a/b/p", *_SUB, "-m", "12:0"), 2, "Reset-cursor at position is not allowed for 2 topics"),
    (("a/b/t", *_SUB, "--shift-by", "many"), 2, "'many' is not a valid integer"),
    (("a/b/t", *_SUB, "--shift-by", "1", "-m", "10:1"), 2, "only one of --time or --messageId, --shift-by, --"),
    (("a/b/t", *_SUB, "--shift-by", "1", "-e"), 2, "--exclude-reset-position goes with a time or a position"),
    (("a/b/t", *_SUB, "--to-subscription", "nobody"), 5, "has no subscription 'nobody'"),
    (("a/b/t", *_SUB, "-t", "3h", "--clock", "event"), 2, "clock 'event' is not indexed"),
    (("--from-file", "nowhere.jsonl", *_SUB), 2, "nowhere.jsonl cannot be read"),
    (("--from-file", "nowhere.jsonl", *_SUB, "-m", "10:1"), 2, "with --from-file the rows have the positions"),
]


@pytest.mark.parametrize(
    ("arguments", "code", "message"), BAD, ids=lambda value: " ".join(value) if isinstance(value, tuple) else None
)
def test_bad_input(cli: Cli, made: Path, arguments: tuple[str, ...], code: int, message: str) -> None:
    with assert_unchanged(made / "meta" / "data.mdb"):
        result = cli("--store", made, "topics", "reset-cursor", *arguments, "-o", "json")
    assert (result.exit_code, result.stdout) == (code, "")
    assert message in result.error["message"]


def test_an_empty_file(cli: Cli, made: Path, tmp_path: Path) -> None:
    result = cli("--store", made, "topics", "reset-cursor", "--from-file", _file(tmp_path, ""), "-o", "json")
    assert (result.exit_code, result.error["code"]) == (2, "invalid-value")
    assert "no change in" in result.error["message"]
