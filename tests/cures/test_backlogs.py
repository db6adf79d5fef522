"""Backlogs of what no client gets: chunks without the first one of their message, markers."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from pulsar_admin.store.codec.cursor import CursorInfo, encode_cursor_info
from pulsar_admin.store.codec.entry import Entry
from pulsar_admin.store.codec.ledgermetadata import LedgerState, encode_ledger_metadata, ledger_path
from pulsar_admin.store.codec.message import encode_message_entry
from pulsar_admin.store.facts.topics import EDGES
from pulsar_admin.store.model.ledgers import find_metadata
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.names import Position, parse_topic
from pulsar_admin.store.proto.pulsar_api_pb2 import MessageMetadata
from tests.conftest import Cli
from tests.cures.curing import Json, check_told, diagnoses, put_values, run_printed, told
from tests.deep import deep_but_for
from tests.stores import read_rows, write_rows
from tests.synthetic import CREATED_MS, Made, MadeTopic, make_store

IN_2033_MS = 2_000_000_000_000
NAME = parse_topic("a/b/t")
WHERE = f"{NAME} s"


def entry(producer: str = "p", *, chunk: tuple[int, int, str] | None = None, marker: int | None = None) -> Made:
    """An entry: a message, chunk i of n of the message with a uuid, or a marker."""
    metadata = MessageMetadata(producer_name=producer, sequence_id=0, publish_time=CREATED_MS)
    if chunk is not None:
        metadata.chunk_id, metadata.num_chunks_from_msg, metadata.uuid = chunk
        metadata.total_chunk_msg_size = 3
    if marker is not None:
        metadata.marker_type = marker
    return Made(CREATED_MS, raw=encode_message_entry(metadata, b"x"))


def chunks(uuid: str, total: int, producer: str = "p") -> list[Made]:
    return [entry(producer, chunk=(index, total, uuid)) for index in range(total)]


def made(path: Path, ledgers: Sequence[Sequence[Made]], mark: Position, *acknowledged: int) -> Path:
    """A store with a subscription at MARK that has ACKNOWLEDGED entries of ledger 10 one by one."""
    ranges = tuple((Position(10, entry - 1), Position(10, entry)) for entry in acknowledged)
    return make_store(path, {str(NAME): MadeTopic(ledgers, cursors={"s": CursorInfo(-1, mark, ranges=ranges)})})


def why(cli: Cli, store: Path) -> list[Json]:
    return cli("--store", store, "topics", "why", NAME, "-s", "s", "-o", "json").json["reasons"]


# In front a message, then four chunks, then a message; ledgers 10 and 11.
PLAIN = [[entry(), *chunks("u", 4)], [entry()]]
# The chunks of two producers in turns: u0 v0 u1 v1 u2 v2.
TURNS = [[one for pair in zip(chunks("u", 3), chunks("v", 3, "q"), strict=True) for one in pair], [entry()]]


@pytest.mark.parametrize(
    ("ledgers", "mark", "first", "position", "chunk", "chunks_"),
    [
        (PLAIN, Position(10, 1), "10:1", "10:2", 2, 4),
        (PLAIN, Position(10, 3), "10:1", "10:4", 4, 4),
        (TURNS, Position(10, 0), "10:0", "10:2", 2, 3),  # v is whole
        (TURNS, Position(10, 1), "10:0", "10:2", 2, 3),
        # A producer that started anew uses uuids again.
        ([chunks("u", 4) * 2, [entry()]], Position(10, 1), "10:0", "10:2", 3, 4),
    ],
)
def test_a_cursor_inside_a_chunked_message(
    ledgers: Sequence[Sequence[Made]],
    mark: Position,
    first: str,
    position: str,
    chunk: int,
    chunks_: int,
    whole_cli: Cli,
    tmp_path: Path,
) -> None:
    """apache/pulsar#26395, #25120: consumers drop what is left of the message."""
    before = diagnoses(whole_cli, made(tmp_path / "whole", ledgers, Position(10, -1)))
    store = made(tmp_path / "s", ledgers, mark)
    (row,) = check_told(whole_cli, store, before, [("chunk-cut", WHERE)])
    told_of = {key: row["evidence"][key] for key in ("first", "position", "chunk", "chunks")}
    assert told_of == {"first": first, "position": position, "chunk": chunk, "chunks": chunks_}
    assert why(whole_cli, store)[0]["code"] == "chunk-cut"
    run_printed(whole_cli, row["mend"])
    assert told(diagnoses(whole_cli, store)) == told(before)
    stats = whole_cli("--store", store, "topics", "stats-internal", NAME).json["cursors"]["s"]
    ledger, number = map(int, first.split(":"))
    assert stats["markDeletePosition"] == f"{ledger}:{number - 1}"


U, V = chunks("u", 4), chunks("v", 4, "q")
IN_TURNS = [one for pair in zip(V, U, strict=True) for one in pair]
OTHERS = [entry() for _ in range(3)]


@pytest.mark.parametrize(
    ("ledger", "mark", "acknowledged", "position", "whole_from"),
    [
        (IN_TURNS, 1, (), "10:2", "10:0"),  # both are cut, and the other one begins first
        ([U[0], *OTHERS[:2], *U[1:]], 1, (), "10:3", "10:0"),
        ([U[0], *OTHERS, *OTHERS, *U[1:]], 3, (), "10:7", "10:0"),  # far from where the backlog begins
        ([*OTHERS, *U], -1, (3,), "10:4", "10:0"),  # what waits before the message goes on waiting
        ([*U, *OTHERS], -1, (3,), "10:0", "10:0"),
        ([*U, *OTHERS], -1, (1,), "10:0", "10:0"),
    ],
)
def test_what_is_cut_is_delivered_whole(
    ledger: Sequence[Made],
    mark: int,
    acknowledged: Sequence[int],
    position: str,
    whole_from: str,
    whole_cli: Cli,
    tmp_path: Path,
) -> None:
    """Chunks of several producers, and those acknowledged one by one; nothing else is acknowledged by the cure."""
    before = diagnoses(whole_cli, made(tmp_path / "whole", [ledger, [entry()]], Position(10, -1)))
    store = made(tmp_path / "s", [ledger, [entry()]], Position(10, mark), *acknowledged)
    (row,) = check_told(whole_cli, store, before, [("chunk-cut", WHERE)])
    assert (row["evidence"]["position"], row["evidence"]["wholeFrom"]) == (position, whole_from)
    run_printed(whole_cli, row["mend"])
    assert told(diagnoses(whole_cli, store)) == told(before)
    stats = whole_cli("--store", store, "topics", "stats-internal", NAME).json["cursors"]["s"]
    assert stats["markDeletePosition"] == f"10:{int(whole_from[3:]) - 1}"


def test_of_what_cannot_be_read_no_chunk_is_called_gone(whole_cli: Cli, tmp_path: Path) -> None:
    ledger = [entry(), Made(CREATED_MS, lost=True), *U[1:], entry()]
    store = made(tmp_path / "s", [ledger], Position(10, 1))
    (row,) = diagnoses(whole_cli, store, "--code", "chunk-cut", "--code", "chunk-remainder")
    assert "begins in an unreadable part" in row["message"]
    assert row["mend"].endswith("-l 10 -e 2")  # a look: it may be on another disk
    waiting = made(tmp_path / "waiting", [ledger], Position(10, 0))
    assert diagnoses(whole_cli, waiting, "--code", "chunk-cut", "--code", "chunk-remainder") == []


@pytest.mark.parametrize("words", ["doctor", "topics subscriptions a/b/t --table"])
def test_each_entry_is_read_once_for_all_subscriptions(
    words: str, whole_cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = [one for number in range(20) for one in chunks(f"u{number}", 5)]
    cursors = {f"s{number}": CursorInfo(-1, Position(10, number)) for number in range(50)}
    store = make_store(tmp_path / "s", {str(NAME): MadeTopic([ledger], cursors=cursors)})
    read = list[int]()

    plain = EntryReader.read

    def count(reader: EntryReader, ledger_id: int, entry_id: int) -> Entry:
        read.append(entry_id)
        return plain(reader, ledger_id, entry_id)

    monkeypatch.setattr(EntryReader, "read", count)
    whole_cli("--store", store, *words.split())
    assert len(ledger) - 1 <= len(read) <= len(ledger) + 5 * len(cursors)  # and whether there are markers


@pytest.mark.parametrize("mark", [Position(10, 0), Position(10, 4), Position(11, 0)])
def test_whole_messages_are_none(mark: Position, whole_cli: Cli, tmp_path: Path) -> None:
    store = made(tmp_path / "s", PLAIN, mark)
    assert diagnoses(whole_cli, store, "--code", "chunk-cut", "--code", "chunk-remainder") == []


def test_chunks_sent_again_after_their_message_are_not_cut(whole_cli: Cli, tmp_path: Path) -> None:
    """A producer that lost its connection sends again what was not confirmed: consumers drop it (``ConsumerImpl``, 4.0.8)."""
    store = made(tmp_path / "s", [[*U, U[2], U[3], entry()]], Position(10, 3))
    assert diagnoses(whole_cli, store, "--code", "chunk-cut", "--code", "chunk-remainder") == []


@pytest.mark.parametrize("rest", [[U[2], U[3]], [U[2], V[2], U[3], V[3]]])
def test_the_rest_of_a_message_whose_beginning_is_trimmed(rest: Sequence[Made], whole_cli: Cli, tmp_path: Path) -> None:
    """apache/pulsar#12171: what consumers cannot join goes with a skip, and nothing else does."""
    ledgers = [[*rest, *U, entry()]]  # the uuid is used again
    before = diagnoses(whole_cli, made(tmp_path / "whole", ledgers, Position(10, len(rest) - 1)))
    store = made(tmp_path / "s", ledgers, Position(10, -1))
    (row,) = check_told(whole_cli, store, before, [("chunk-remainder", WHERE)])
    assert (row["evidence"]["chunk"], row["evidence"]["left"]) == (3, len(rest))
    run_printed(whole_cli, row["mend"])
    assert told(diagnoses(whole_cli, store)) == told(before)
    stats = whole_cli("--store", store, "topics", "stats-internal", NAME).json["cursors"]["s"]
    assert stats["markDeletePosition"] == f"10:{len(rest) - 1}"


@pytest.mark.parametrize("others", [1, 5])
def test_the_rest_of_a_message_between_others_goes_when_these_are_read(
    others: int, whole_cli: Cli, tmp_path: Path
) -> None:
    """No command acknowledges it alone, which is said; a consumer that took what is before it leaves what a skip cures."""
    ledgers = [[*(entry() for _ in range(others)), *U[2:], entry()]]
    before = diagnoses(whole_cli, made(tmp_path / "whole", ledgers, Position(10, len(U) - 3 + others)))
    store = tmp_path / "s"
    (row,) = check_told(whole_cli, made(store, ledgers, Position(10, -1)), before, [("chunk-remainder", WHERE)])
    assert "no command acknowledges it alone" in row["message"]
    assert "peek-messages" in row["mend"]
    (reason,) = [one for one in why(whole_cli, store) if one["code"] == row["code"]]
    assert reason["sentence"] == f"{row['message']}."
    consumed = made(tmp_path / "consumed", ledgers, Position(10, others - 1))
    (row,) = check_told(whole_cli, consumed, before, [("chunk-remainder", WHERE)])
    run_printed(whole_cli, row["mend"])
    assert told(diagnoses(whole_cli, consumed)) == told(before)


@pytest.mark.parametrize(("mark", "messages"), [(Position(10, -1), 3), (Position(10, 2), 0)])
def test_markers_in_a_backlog(mark: Position, messages: int, whole_cli: Cli, tmp_path: Path) -> None:
    """apache/pulsar#6437, #22926: three messages, then 27 markers of replicated subscriptions, which go when a consumer connects."""
    markers = [entry(marker=10 + number % 4) for number in range(27)]
    ledgers = [[*(entry() for _ in range(3)), *markers]]
    store = made(tmp_path / "s", ledgers, mark)
    before = diagnoses(whole_cli, made(tmp_path / "whole", ledgers, Position(10, 29)))
    (row,) = check_told(whole_cli, store, before, [("markers-in-backlog", WHERE)])
    assert row["severity"] == "note"
    assert (row["evidence"]["entries"], row["evidence"]["markers"]) == (27 + messages, 27)
    reasons = why(whole_cli, store)
    assert {"backlog", "markers-in-backlog"} <= {reason["code"] for reason in reasons}
    backlog = next(reason for reason in reasons if reason["code"] == "backlog")
    assert (backlog["evidence"]["messages"], backlog["evidence"]["markers"]) == (messages, 27)
    expired = whole_cli("--store", store, "topics", "expire", NAME, "-s", "s", "-t", "10s", "--dry-run")
    assert ("this copy ends at" in expired.stderr) is (messages > 0)  # which guards messages
    assert expired.exit_code == (5 if messages else 0)


def test_markers_between_messages_are_told_by_all_screens(whole_cli: Cli, tmp_path: Path) -> None:
    ledger = [entry(), *(entry(marker=10) for _ in range(27)), entry()]
    store = made(tmp_path / "s", [ledger], Position(10, -1))
    (row,) = diagnoses(whole_cli, store, "--code", "markers-in-backlog")
    assert (row["evidence"]["entries"], row["evidence"]["markers"]) == (29, 27)
    assert "markers-in-backlog" in {reason["code"] for reason in why(whole_cli, store)}
    (shown,) = whole_cli("--store", store, "topics", "subscriptions", NAME, "--table", "-o", "jsonl").json_lines
    assert shown["backlogMessages"] == 2
    put_values(store, {NAME.namespace.policies_path: b'{"message_ttl_in_seconds":10}'})
    later = ("--store", store, "--now", "2030-01-01T00:00:00Z", "topics", "why", NAME, "-s", "s", "-o", "json")
    (overdue,) = [one for one in whole_cli(*later).json["reasons"] if one["code"] == "ttl-overdue"]
    assert "29 entries (2 messages)" in overdue["sentence"]


def test_markers_between_acknowledged_messages_hold_nothing(whole_cli: Cli, tmp_path: Path) -> None:
    store = made(tmp_path / "s", [[entry(), entry(marker=20), entry(), entry(marker=21)]], Position(10, -1), 0, 2)
    assert [one["code"] for one in why(whole_cli, store)][:2] == ["backlog", "markers-in-backlog"]


def test_few_markers_are_nothing(whole_cli: Cli, tmp_path: Path) -> None:
    store = made(tmp_path / "s", [[entry() for _ in range(9)] + [entry(marker=12)]], Position(10, -1))
    assert diagnoses(whole_cli, store, "--code", "markers-in-backlog") == []


def _late(publish_ms: int, deliver_ms: int) -> Made:
    metadata = MessageMetadata(producer_name="p", sequence_id=0, publish_time=publish_ms, deliver_at_time=deliver_ms)
    return Made(publish_ms, raw=encode_message_entry(metadata, b"x"))


@pytest.mark.parametrize(
    ("code", "ledger"),
    [
        ("chunk-cut", PLAIN[0]),
        ("chunk-remainder", PLAIN[0][3:]),
        ("markers-in-backlog", [entry(marker=10)] * 3),
        ("delay-beyond-ttl", [_late(CREATED_MS, IN_2033_MS)] * 3),
        ("ttl-blocked", [_late(IN_2033_MS, 0), *[_late(CREATED_MS, 0)] * 3]),
    ],
)
def test_nothing_is_judged_by_a_position_whose_newest_state_is_not_seen(
    code: str, ledger: list[Made], whole_cli: Cli, tmp_path: Path
) -> None:
    mark = Position(10, -1 if code in {"chunk-remainder", "markers-in-backlog"} else 1)
    store = made(tmp_path / "s", [ledger], mark)
    put_values(store, {NAME.namespace.policies_path: b'{"message_ttl_in_seconds":10}'})
    assert len(diagnoses(whole_cli, store, "--code", code)) == 1
    closed = read_rows(store, lambda txn: find_metadata(txn, 10))
    assert closed is not None
    state = encode_ledger_metadata(replace(closed, state=LedgerState.OPEN, last_entry_id=-1, length=0))
    put_values(store, {ledger_path(99): state, NAME.cursor_path("s"): encode_cursor_info(CursorInfo(99, mark))})
    bookies = list(closed.segments[0].members)
    row = {"imported": bookies, "absent": [], "withoutJournal": bookies}
    write_rows(store, lambda txn: txn.put("state", b"bookies", json.dumps(row).encode()))
    (told_,) = (one for one in diagnoses(whole_cli, store) if one["where"] == f"subscription 's' of {NAME}")
    assert (told_["code"], told_["mend"].endswith(" store refresh")) == ("entries-not-seen", True)
    assert diagnoses(whole_cli, store, "--code", code) == []


@pytest.mark.parametrize("form", ["plain", "json", "jsonl"])
def test_peek_says_why_it_shows_nothing(form: str, cli: Cli, tmp_path: Path) -> None:
    peek = ("topics", "peek-messages", NAME, "-s", "s", "-n", 3, "-o", form)
    markers = made(tmp_path / "markers", [[entry(), *(entry(marker=10) for _ in range(5))]], Position(10, 0))
    shown = cli("--store", markers, *peek).ends(0, "5 of the 5 entries of its backlog are markers of brokers")
    cut = made(tmp_path / "cut", [chunks("u", 4)], Position(10, 1))
    shown = cli("--store", cut, *peek)
    assert "10:2 is chunk 3 of 4 of a message that begins at 10:0" in shown.stderr
    whole = made(tmp_path / "some", [[entry(), *(entry(marker=10) for _ in range(5))]], Position(10, -1))
    assert "markers" not in cli("--store", whole, *peek).stderr


@pytest.mark.parametrize(
    ("ledger", "count", "messages"),
    [
        ([entry(), *(entry(marker=10) for _ in range(5))], 3, 1),
        ([entry(marker=10) for _ in range(5)], 3, 0),
        ([*chunks("u", 4), entry()], 5, 2),
        ([*chunks("u", 4), entry()], 2, 0),  # the message is its last chunk's
        ([entry(), entry(marker=10), *chunks("u", 3), entry()], 6, 3),  # neither at the beginning nor at the end
    ],
)
def test_previews_count_messages(ledger: list[Made], count: int, messages: int, cli: Cli, tmp_path: Path) -> None:
    """A marker is no message, and the chunks of one are one."""
    store = made(tmp_path / "s", [ledger], Position(10, -1))
    look = cli("--store", store, "topics", "skip", NAME, "-s", "s", "-n", count, "--dry-run", "-o", "json").json
    assert (look["skipped"]["entries"], look["skipped"]["messages"]) == (count, messages)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("create-subscription", NAME, "-s", "t", "-m", "earliest"), "a backlog of 3 messages in 30 entries"),
        (("unsubscribe", NAME, "-s", "s"), "a backlog of 3 messages in 30 entries"),
        (("delete", NAME, "-f"), "deletes 3 messages in 30 entries"),
        (("truncate", NAME), "deletes 3 messages in 30 entries"),
        (("clear-backlog", NAME, "-s", "s"), "consumers skip 3 messages in 30 entries"),
        (
            ("expire-messages", NAME, "-s", "s", "-t", "1s", "--force"),
            "consumers lose 3 messages in 30 entries (771 bytes)\n  ledger 10: 3 messages in 30 entries",
        ),
    ],
)
def test_all_previews_count_alike(words: tuple[object, ...], said: str, cli: Cli, tmp_path: Path) -> None:
    """What no client ever gets is not lost with a subscription or a topic."""
    ledger = [*(entry() for _ in range(3)), *(entry(marker=10 + number % 4) for number in range(27))]
    store = made(tmp_path / "s", [ledger, [entry()]] if words[0] == "truncate" else [ledger], Position(10, -1))
    assert said in cli("--store", store, "topics", *words, "--dry-run").stdout


def test_a_preview_counts_the_chunks_that_are_left(cli: Cli, tmp_path: Path) -> None:
    store = made(tmp_path / "s", [[entry(), *U]], Position(10, -1), 2, 3)
    skip = cli("--store", store, "topics", "skip", NAME, "-s", "s", "-n", 1, "--dry-run")
    assert "begins at 10:1: consumers get only 2 chunks of it, and drop them" in skip.stdout


@deep_but_for((1,), "rest", [[], [entry(marker=12)] * 3])  # with markers it is no quiet topic
def test_backlogs_that_are_not_looked_at(rest: Sequence[Made], whole_cli: Cli, tmp_path: Path) -> None:
    """Of what is behind as many backlogs as are looked at nothing is known: that is no "Nothing was found"."""
    subscribed = {f"s{index}": CursorInfo(-1, Position(10, -1)) for index in range(EDGES)}
    topics = {
        "persistent://a/b/a": MadeTopic([[entry()]], cursors=subscribed),
        **{
            f"persistent://a/b/{name}": MadeTopic([[entry(), *rest]], cursors={"s": CursorInfo(-1, Position(-1, -1))})
            for name in ("b", "c")
        },
    }
    store = make_store(tmp_path / "s", topics)
    (row,) = check_told(whole_cli, store, (), [("backlogs-not-looked-at", "topics")])
    assert (row["severity"], row["evidence"]["topics"]) == ("note", 2)
    assert "Nothing was found" not in whole_cli("--store", store, "doctor").stdout
    run_printed(whole_cli, row["mend"])
    assert "backlogs-not-looked-at" not in {one["code"] for one in diagnoses(whole_cli, store, "--deep")}
