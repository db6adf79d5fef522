"""The states of a subscription that are left: of recorded worlds, whose consumers say what they acknowledged, and of made ledgers."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import unquote_plus

import pytest
from msgspec.structs import replace

from pulsar_admin.store.changes.cursors import advanced
from pulsar_admin.store.changes.resets import _with_batch, bit_words
from pulsar_admin.store.codec.cursor import CursorInfo, CursorState, encode_cursor_info
from pulsar_admin.store.codec.digest import DigestType
from pulsar_admin.store.codec.entry import Entry as StoredEntry
from pulsar_admin.store.codec.entrylog import EntryLogHeader, encode_header
from pulsar_admin.store.codec.ledgermetadata import (
    LedgerState,
    decode_ledger_metadata,
    encode_ledger_metadata,
    ledger_path,
)
from pulsar_admin.store.codec.managedledger import LedgerInfo, ManagedLedger
from pulsar_admin.store.codec.message import decode_entry_times
from pulsar_admin.store.codec.rocksvalue import NodeStat
from pulsar_admin.store.db.environment import Txn, open_store
from pulsar_admin.store.db.files import FileMode, LogFile
from pulsar_admin.store.db.storeinfo import read_store_info
from pulsar_admin.store.db.tree import Node, put_nodes, read_node
from pulsar_admin.store.errors import EntryCorrupt, NothingMatches, Refused
from pulsar_admin.store.history.versions import Version
from pulsar_admin.store.model.cursors import range_text, read_cursor
from pulsar_admin.store.model.reader import EntryReader, open_reader
from pulsar_admin.store.model.topics import Topic, TopicLedger, read_topic
from pulsar_admin.store.names import FileKind, Position, parse_topic
from pulsar_admin.store.proto.managed_ledger_pb2 import PositionInfo
from pulsar_admin.store.recovery import ack_history
from pulsar_admin.store.recovery.ack_history import (
    AckState,
    CursorHistory,
    CursorVersion,
    WantedState,
    both,
    either,
    find_cursor_history,
    imported_versions,
    iter_ack_states,
    pending_of,
    plan_as_of,
    state_in_force,
    state_of,
)
from pulsar_admin.store.recovery.deleted_nodes import Past
from pulsar_admin.store.recovery.journal_times import WriteTime, journals_of, read_flush_times, read_write_times
from pulsar_admin.store.recovery.restore import read_topic_at
from tests.commands.changing import check_undo, rows_of
from tests.conftest import Cli
from tests.deep import deep_but_for
from tests.encoders import encode_entry
from tests.stores import copied, imported, write_rows
from tests.synthetic import CREATED_MS, Made, MadeTopic, make_store, message_bytes
from tests.worlds import TRIMMED, oracle

FRESH, HOLES = "public/default/fresh", "crash-holes"
TOPIC, CURSOR_LEDGER = "a/b/topic", 11
T = CREATED_MS - 8_000


@contextmanager
def opened(store: Path, topic: str) -> Iterator[tuple[EntryReader, Topic]]:
    with open_store(store) as one, open_reader(one) as reader:
        yield reader, read_topic(reader.txn, parse_topic(topic))


Entry = tuple[int, int]


def entries_of(topic: Topic) -> list[Entry]:
    return [(entry.ledger_id, entry.entry_id) for entry in topic.iter_positions(topic.first_position)]


def acknowledged(entries: list[Entry], state: CursorState) -> set[Entry]:
    """Those of ENTRIES that STATE has as acknowledged."""

    def until(position: Position) -> int:
        return bisect_right(entries, (position.ledger_id, position.entry_id))

    done = entries[: until(state.mark_delete)]
    return {*done, *(one for lower, upper in state.ranges for one in entries[until(lower) : until(upper)])}


# -- recorded: what the consumer sent -----------------------------------------------------------------------------------


@deep_but_for((0, 2), ("world", "states"), [("small", 10), ("nometa", 46), ("cluster", 20)])
def test_every_state_is_what_a_consumer_had_acknowledged_by_then(world: str, states: int) -> None:
    sent = [(ledger, entry) for ledger, entry, _ in oracle(world)["crash"]["acks_sent"][f"{FRESH} {HOLES}"]]
    with opened(imported(world, "crashed"), FRESH) as (reader, topic):
        found = list(iter_ack_states(reader, topic, imported_versions(reader.txn, topic, HOLES)))
        last = read_cursor(reader.txn, reader, topic, HOLES).state
    entries = entries_of(topic)
    assert len(found) == states
    assert found[-1].state == last
    before = 0
    for state in found:
        assert state.state is not None
        done = acknowledged(entries, state.state)
        prefix = sent[: len(done)]
        assert done == set(prefix)
        assert state.acknowledged == (len(done) - before if before else 0)
        assert (state.backlog, state.reopened) == (topic.number_of_entries - len(done), 0)
        assert state.gaps == entries.index(max(done)) + 1 - len(done)
        before = len(done)


def test_no_state_is_older_than_what_it_acknowledges() -> None:
    """The broker's time of each entry, as a reader was given it, bounds every state; none is later than the kill."""
    world = oracle("cluster")
    with opened(imported("cluster", "crashed"), FRESH) as (reader, topic):
        found = list(iter_ack_states(reader, topic, imported_versions(reader.txn, topic, HOLES)))
    times = [state.not_before.time_ms for state in found if state.not_before is not None]
    assert len(times) == len(found)
    assert times == sorted(times)
    assert times[0] >= max(row["at_ms"] for row in world["mutations"])
    assert [state.not_after is None for state in found] == [False, *[True] * 19]


def asked_cursors() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Every (topic, subscription, internal stats) that the cluster's broker was asked of, before the mutations and after each."""
    world = oracle("cluster")
    for topic, answers in world["topics"].items():
        if topic != TRIMMED:
            for name, cursor in answers["internal_stats"]["cursors"].items():
                yield topic, unquote_plus(name), cursor
    for mutation in world["mutations"]:
        yield mutation["topic"], mutation["subscription"], mutation["after"]


def test_zookeepers_history_has_every_state_that_the_broker_told() -> None:
    """Their cursor ledgers were deleted since: versions of the metadata name them, and their entries are still on the bookies."""
    compared = 0
    store = imported("cluster", "crashed")
    with open_store(store) as one, open_reader(one) as reader:
        asked = list(asked_cursors())
        paths = {parse_topic(topic).cursor_path(name) for topic, name, _ in asked}
        past = find_cursor_history(read_store_info(store).sources, (), paths)
        assert not past.problems
        for name, cursor, told in asked:
            if told["cursorLedger"] < 0:
                continue
            states = past.states(reader, read_topic(reader.txn, parse_topic(name)), cursor)
            wanted = f"{told['cursorLedger']}:{told['cursorLedgerLastEntry']}"
            (found,) = [state for state in states if state.name == wanted]
            assert str(found.state.mark_delete) == told["markDeletePosition"]
            assert range_text(found.state.ranges) == told["individuallyDeletedMessages"]
            compared += 1
    assert compared == 35


def with_journals(reader: EntryReader, past: CursorHistory, rows: list[dict[str, Any]]) -> CursorHistory:
    topics = [(read_topic(reader.txn, parse_topic(row["topic"])), row["subscription"]) for row in rows]
    ledgers = {one for topic, name in topics for one in past.ledgers(reader.txn, topic, name)}
    return replace(past, writes=[read_write_times(journals_of(reader.txn), ledgers, lambda _: None)])


@pytest.mark.parametrize(("world", "bounded"), [("small", 9), ("cluster", 20)])
def test_neighbours_in_the_journals_bound_a_state(world: str, bounded: int) -> None:
    """No state was written before the broker had what it acknowledges, whatever was said of the time until which it was."""
    with opened(imported(world, "crashed"), FRESH) as (reader, topic):
        past = with_journals(reader, CursorHistory(), [{"topic": FRESH, "subscription": HOLES}])
        found = list(past.states(reader, topic, HOLES))
        times = {}
        for entry in topic.iter_positions(topic.first_position):
            with suppress(EntryCorrupt):
                payload = reader.read(entry.ledger_id, entry.entry_id).payload
                times[entry.ledger_id, entry.entry_id] = decode_entry_times(payload)[1]
    entries, widths, ends = entries_of(topic), [], []
    for state in found:
        assert state.state is not None
        if state.not_before is not None and state.not_after is not None:
            received = max(times[one] or 0 for one in acknowledged(entries, state.state) if one in times)
            assert received <= state.not_after.time_ms
            widths.append(state.not_after.time_ms - state.not_before.time_ms)
            ends.append(state.not_after.time_ms)
    assert (len(widths), ends) == (bounded, sorted(ends))
    assert min(widths) >= 0
    assert max(widths) < 3_000
    assert len(found) - bounded <= 1


def records(rows: Sequence[tuple[int, int, int]]) -> Iterator[bytes]:
    """Records of (ledger, entry, broker time); 7 is the cursor's ledger."""
    for ledger_id, entry_id, time_ms in rows:
        payload = b"state" if ledger_id == 7 else message_bytes(Made(time_ms, broker_ms=time_ms))
        body = encode_entry(StoredEntry(ledger_id, entry_id, entry_id - 1, 0, DigestType.CRC32C, memoryview(payload)))
        yield len(body).to_bytes(4, "big") + body


def test_the_flushes_of_entry_logs_bound_an_entry(tmp_path: Path) -> None:
    """A bookie sorts what a flush writes; what is copied later is older than what was written before, or comes from a log that is gone."""
    first = ((3, 0, T), (8, 0, T + 500), (3, 1, T + 1_000), (7, 0, 0))
    copied_later = ((2, 0, T - 9_000), (7, 1, 0), (3, 3, T + 4_000), (7, 2, 0))
    logs = (
        ("a", 0, (*first, (8, 1, T + 1_500), (3, 2, T + 2_000), *copied_later)),
        ("b", 1, (*first, (3, 2, T + 2_100), (7, 1, 0), (3, 3, T + 3_000), (7, 0, 0))),
        # A start replays the journal from its last mark on: the second flush is the first one again.
        ("c", 2, ((3, 0, T), (7, 3, 0), (3, 0, T), (7, 3, 0), (3, 1, T + 9_000))),
        # The log between had messages of T + 4 s, and was collected long after the state in the next one was written.
        ("d", 3, ((3, 0, T),)),
        ("d", 5, ((7, 4, 0),)),
        ("d", 6, ((3, 1, T + 4_000),)),
        # A state that was copied from a log that is gone stands before what is flushed next, in the same order.
        ("e", 7, ((3, 0, T + 90_000),)),
        ("e", 9, ((7, 5, 0), (8, 0, T + 95_000), (3, 1, T + 96_000))),
        # The log was full in the middle of a flush, which goes on in the next one.
        ("f", 10, ((3, 0, T), (7, 6, 0))),
        ("f", 11, ((8, 0, T + 100), (3, 1, T + 70_000))),
    )
    asked = {}
    for bookie, file_id, rows in logs:
        path = tmp_path / bookie / f"{file_id}.log"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(encode_header(EntryLogHeader(1, 0, 0)) + b"".join(records(rows)))
        kept = (FileKind.ENTRY_LOG, file_id, "", FileMode.REFERENCED, 0, 0, "", 0, 0, 0, False, False)
        asked[LogFile(file_id, str(path), *kept)] = frozenset(row[:2] for row in rows if row[0] == 7)
    found = read_flush_times(asked, tmp_path, lambda _: None)
    assert found == {
        (7, 0): (None, T + 2_000 + 1_000, "0.log"),
        (7, 1): (None, T + 3_000 + 1_000, "1.log"),
        (7, 2): (None, None, "0.log"),
        (7, 3): (None, T + 9_000 + 1_000, "2.log"),
        (7, 4): (None, None, "5.log"),
        (7, 5): (None, T + 96_000 + 1_000, "9.log"),
        (7, 6): (None, T + 70_000 + 1_000, "10.log"),
    }


def test_a_message_that_was_long_on_its_way_and_a_later_copy_bound_nothing(tmp_path: Path) -> None:
    """Journals of format 1, made here: (ledger, entry, broker time), 7 is the cursor's ledger."""

    def journal(name: str, *rows: tuple[int, int, int]) -> Path:
        (tmp_path / name).write_bytes(b"".join(records(rows)))
        return tmp_path / name

    late, on_time = T - 700, T + 40
    first = journal("1.txn", (3, 0, T), (7, 0, 0), (3, 1, late), (3, 2, on_time), (3, 3, T + 5_000), (7, 1, 0))
    second = journal("2.txn", (3, 9, T + 9_000), (7, 0, 0), (3, 10, T + 9_500))
    # Of a bookie that began at T + 20 s by the name: what autorecovery writes there is older.
    recovered = journal(
        f"{T + 20_000:x}.txn", (7, 2, 0), (2, 0, T - 9_000), (2, 1, T - 8_000), (7, 3, 0), (3, 11, T + 21_000)
    )
    found = read_write_times({second: 0, first: 0, recovered: 0}, {7}, lambda _: None)
    assert found == {
        (7, 0): (T, T + 40 + 700, "1.txn"),
        (7, 1): (T + 5_000, None, "1.txn"),
        (7, 2): (None, T + 21_000 + 100, recovered.name),
        (7, 3): (T - 8_000, T + 21_000 + 100, recovered.name),
    }


def test_an_old_message_behind_a_state_does_not_bound_it(tmp_path: Path) -> None:
    """The broker got what the first state acknowledges five seconds after the message behind it, which autorecovery wrote."""
    entries = [Made(T + 1000 * number, broker_ms=T + 1000 * number) for number in range(8)]
    states = MadeTopic([[Made(0, raw=position_info(mark)) for mark in (6, 7)]])
    topic = MadeTopic([entries], cursors={"sub": CursorInfo(CURSOR_LEDGER, Position(10, -1))})
    store = make_store(tmp_path / "made", {TOPIC: topic, "a/b/cursor-ledger": states})
    write_rows(store, open_ledger)
    writes = {
        (CURSOR_LEDGER, 0): WriteTime(None, T + 1_000, "1.txn"),
        (CURSOR_LEDGER, 1): WriteTime(None, T + 7_100, "1.txn"),
    }
    with opened(store, TOPIC) as (reader, made):
        versions = imported_versions(reader.txn, made, "sub")
        undated = {place: WriteTime(None, None, "2.txn") for place in writes}  # of another bookie
        found = list(iter_ack_states(reader, made, versions, writes=[undated, writes]))
    assert [one.not_after and one.not_after.time_ms - T for one in found] == [7_100, 7_100]


def test_a_state_of_a_time_is_the_one_that_the_broker_told_then() -> None:
    """Of every mutation: what stood before it, when the one before was done, by ZooKeeper's history alone."""
    store, certain = imported("cluster", "crashed"), 0
    with open_store(store) as one, open_reader(one) as reader:
        mutations = oracle("cluster")["mutations"]
        paths = {parse_topic(row["topic"]).cursor_path(row["subscription"]) for row in mutations}
        past = with_journals(reader, find_cursor_history(read_store_info(store).sources, (), paths), mutations)
        done_ms = mutations[0]["at_ms"] - 1_500
        for row in mutations:
            topic = read_topic(reader.txn, parse_topic(row["topic"]))
            cursor = read_cursor(reader.txn, reader, topic, row["subscription"])
            plan = plan_as_of(reader, [(topic, cursor)], WantedState(done_ms, past=past), CREATED_MS)
            after = plan.parts[0].after
            assert after["markDeletePosition"] == row["before"]["markDeletePosition"], row
            assert after["individuallyDeletedMessages"] == row["before"]["individuallyDeletedMessages"], row
            done_ms = row["at_ms"]
            certain += not any("may have been at" in text for text in plan.parts[0].warnings)
    assert certain == len(mutations)


# -- made: encodings, versions, reopened entries ------------------------------------------------------------------------


def position_info(mark: int, acked: Sequence[int] = (), *, form: str = "ranges", ledger: int = 10) -> bytes:
    message = PositionInfo(ledgerId=ledger, entryId=mark)
    if form == "ranges":
        for entry in acked:
            item = message.individualDeletedMessages.add()
            item.lowerEndpoint.ledgerId = item.upperEndpoint.ledgerId = ledger
            item.lowerEndpoint.entryId, item.upperEndpoint.entryId = entry - 1, entry
    else:
        words = message.individualDeletedMessageRanges.add(key=ledger).values
        bits = sum(1 << entry for entry in acked)
        words.extend([bits & (1 << 63) - 1])
    return message.SerializeToString()


def open_ledger(txn: Txn) -> None:
    """Make the cursor's ledger an open one that is older than the topic's entries."""
    node = read_node(txn, ledger_path(CURSOR_LEDGER))
    metadata = decode_ledger_metadata(node.value, node.path)
    value = encode_ledger_metadata(replace(metadata, state=LedgerState.OPEN, last_entry_id=-1, length=0))
    put_nodes(txn, [Node(node.path, NodeStat(0, 1, T - 9, T - 9, False), value)])


@pytest.fixture
def make(tmp_path: Path) -> Any:  # Any: a function of payloads
    def made(*payloads: bytes) -> Path:
        """a/b/topic: ledger 10 with 8 entries a second apart from T on; ledger 11 is the cursor's, open, with PAYLOADS."""
        cursors = {"sub": CursorInfo(CURSOR_LEDGER, Position(10, -1))}
        topic = MadeTopic([[Made(T + 1000 * number) for number in range(8)]], cursors=cursors)
        raw = MadeTopic([[Made(0, raw=payload) for payload in payloads]])
        store = make_store(tmp_path / "made", {TOPIC: topic, "a/b/cursor-ledger": raw})
        write_rows(store, open_ledger)
        return store

    return made


def states_of(store: Path, versions: Sequence[CursorVersion] | None = None) -> list[AckState]:
    with opened(store, TOPIC) as (reader, topic):
        return list(iter_ack_states(reader, topic, versions or imported_versions(reader.txn, topic, "sub")))


@pytest.mark.parametrize("form", ["ranges", "bits"])
def test_both_encodings_say_the_same(make: Any, form: str) -> None:
    found = states_of(
        make(position_info(-1, [2, 5], form=form), position_info(0, [2, 3, 5], form=form), position_info(1))
    )
    assert [(one.name, one.backlog, one.gaps, one.acknowledged, one.reopened) for one in found] == [
        ("11:0", 6, 4, 0, 0),
        ("11:1", 4, 2, 2, 0),
        ("11:2", 6, 0, 1, 3),
    ]
    assert [one.not_before and one.not_before.time_ms - T for one in found] == [5000, 5000, 5000]


def test_a_reset_of_the_broker_shows_as_reopened_entries(make: Any) -> None:
    found = states_of(make(position_info(6), position_info(1)))
    assert [(one.backlog, one.reopened) for one in found] == [(1, 0), (6, 5)]


def test_states_in_parts_count_by_their_footer(make: Any) -> None:
    """PIP-381: parts, then a JSON footer; the parts are no states of their own."""
    whole = position_info(3, [5])
    footer = b'{"numParts":2,"length":%d}' % len(whole)
    found = states_of(make(position_info(2), whole[:3], whole[3:], footer, b"\xff damaged", position_info(6)))
    assert [(one.name, one.backlog, bool(one.problem)) for one in found] == [
        ("11:0", 5, False),
        ("11:3", 3, False),
        ("11:4", 0, True),
        ("11:5", 1, False),
    ]


def test_versions_of_the_metadata_bracket_the_ledgers_they_name(make: Any) -> None:
    """Made with the present state, then named; all other entries come later, and before the metadata names no ledger."""
    store = make(position_info(-1, [1]), position_info(0, [1, 2]), position_info(2, [4]))
    versions = [
        CursorVersion(T + 100, CursorInfo(-1, Position(10, -1)), 1),
        CursorVersion(T + 5_000, CursorInfo(CURSOR_LEDGER, Position(10, -1)), 2),
        CursorVersion(T + 6_000, CursorInfo(CURSOR_LEDGER, Position(10, -1)), 3),
        CursorVersion(T + 9_000, CursorInfo(-1, Position(10, 2)), 4),
        CursorVersion(T + 9_500, None, 5),
    ]
    found = states_of(store, versions)
    bounds = [
        (one.name, *[None if bound is None else bound.time_ms - T for bound in (one.not_before, one.not_after)])
        for one in found
    ]
    assert bounds == [
        ("0x1", 100, 100),
        ("11:0", 1_000, 5_000),
        ("11:1", 5_000, 9_000),
        ("11:2", 5_000, 9_000),
        ("0x4", 9_000, 9_000),
        ("0x5", 9_500, 9_500),
    ]
    assert found[-1].state is None
    with opened(store, TOPIC) as (reader, topic):
        cursor = read_cursor(reader.txn, reader, topic, "sub")
        for at, expected in (  # a state may be in force from its earliest time on, and is from its latest on
            (99, "sub: the earliest known state, 0x1, is not before"),
            (100, "0x1"),
            (999, "0x1"),
            (1_000, "sub may have been at 2 states, 0x1 to 11:0"),
            (4_999, "sub may have been at 2 states, 0x1 to 11:0"),
            (5_000, "sub may have been at 3 states, 11:0 to 11:2"),
            (9_000, "0x4"),
            (9_499, "0x4"),
            (9_500, "0x5"),
        ):
            try:
                answer = state_in_force(iter(found), topic, cursor, T + at, "refuse").name
            except (NothingMatches, Refused) as error:
                answer = error.message.removeprefix(f"persistent://{TOPIC}: ")
            assert answer.startswith(expected), at


def test_a_value_that_cannot_be_read_hides_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    values = (b"\xff", encode_cursor_info(CursorInfo(-1, Position(10, 2))))
    versions = [Version("p", zxid, T, None, "set", value, zxid) for zxid, value in enumerate(values, 1)]
    monkeypatch.setattr(ack_history, "iter_versions", lambda *of: versions)
    history = ack_history.read_cursor_history((), ["p"])
    assert [text.split(":")[0] for text in history.problems] == ["transaction 0x1"]
    assert [one.zxid for one in history.versions["p"]] == [2]
    damaged = Node(ledger_path(7), NodeStat(0, 1, T, T + 1, False), b"\xff")
    monkeypatch.setattr(ack_history, "find_imported", lambda *of: damaged)
    assert ack_history._life(None, 7) == ack_history.LedgerLife(damaged.stat.created_ms, None)


def test_a_producers_clock_that_contradicts_the_metadata_proves_nothing(make: Any) -> None:
    store = make(position_info(6))  # published at 6 s, acknowledged before 2 s by the metadata
    versions = [CursorVersion(T + 1_000, CursorInfo(CURSOR_LEDGER, Position(10, -1))), CursorVersion(T + 2_000, None)]
    assert states_of(store, versions)[0].not_before is None


# -- back to one --------------------------------------------------------------------------------------------------------


def ranges_of(store: Path) -> CursorState:
    with opened(store, FRESH) as (reader, topic):
        return read_cursor(reader.txn, reader, topic, HOLES).state


def test_a_reset_to_a_state_brings_back_its_holes(cli: Cli, tmp_path: Path) -> None:
    store = copied("cluster", "crashed", tmp_path)
    before = rows_of(store)
    with opened(store, FRESH) as (reader, topic):
        wanted = {one.name: one for one in iter_ack_states(reader, topic, imported_versions(reader.txn, topic, HOLES))}
    words = ("--store", store, "topics", "reset-cursor", FRESH, "-s", HOLES, "--as-of")
    done = cli.done(*words, "269:12", "-o", "json")
    assert ranges_of(store) == wanted["269:12"].state
    assert done.json["replayed"]["entries"] == wanted["269:12"].backlog - wanted["269:19"].backlog
    # The history is that of what was imported: back and forth.
    assert cli(*words, "269:19").exit_code == 0
    assert ranges_of(store) == wanted["269:19"].state
    assert cli("--store", store, "store", "undo", "2").exit_code == 0
    check_undo(cli, store, 1, before)


def test_a_time_that_may_mean_several_states_is_refused_unless_one_is_chosen(cli: Cli, tmp_path: Path) -> None:
    store = copied("cluster", "crashed", tmp_path)
    words = ("--store", store, "topics", "reset-cursor", FRESH, "-s", HOLES, "--as-of")
    cli(*words, "@1795253616300").ends(3, "269:10 to 269:12", "--if-unsure redeliver: consumers get up to")
    for choice, state in (("redeliver", "269:10"), ("oldest", "269:10"), ("skip", "269:12"), ("newest", "269:12")):
        done = cli.done(*words, "@1795253616300", "--if-unsure", choice, "--dry-run", "-o", "json")
        assert done.json["rule"] == f"as-of {state}"
        warnings = done.json["warnings"]
        assert "may have been at 3 states" in warnings[-1]
        assert ("is an older word for" in warnings[0]) == (choice in ("oldest", "newest"))


def test_after_a_reset_back_no_unacknowledged_entry_is_lost(cli: Cli, make: Any) -> None:
    """The states gave 1, 6 and 3 entries: 7; 2 to 7; 5, 6 and 7. The oldest of them would lose five."""
    store = make(position_info(6), position_info(1), position_info(4))
    words = ("--store", store, "topics", "reset-cursor", TOPIC, "-s", "sub", "--as-of", f"@{T + 8_000}")
    cli(*words).ends(
        3, "11:0 to 11:2", "consumers get up to 5 entries again", "they lose up to 5 entries that were not acknowledged"
    )
    for choice, state, backlog in (("redeliver", "11:1", 6), ("oldest", "11:1", 6), ("skip", "11:0", 1)):
        done = cli(*words, "--if-unsure", choice, "--dry-run", "-o", "json").json
        assert (done["rule"], done["after"]["backlogEntries"]) == (f"as-of {state}", backlog)


def test_a_topic_of_then_has_the_subscription_where_nothing_is_lost(make: Any) -> None:
    """What ``topics restore --at`` brings back: the oldest of the states has acknowledged seven of the eight entries, another two."""
    store = make(position_info(6), position_info(1), position_info(4))
    past, at_ms = Past(), T + 8_000
    with opened(store, TOPIC) as (reader, topic):
        for path in (topic.name.path, topic.name.cursor_path("sub")):
            past.put(path, read_node(reader.txn, path).value, T, at_ms)
        then = read_topic_at(reader, topic.name, past, CursorHistory(), at_ms).cursors["sub"]
        assert acknowledged(entries_of(topic), then.state) == {(10, 0), (10, 1)}
    assert "consumers get up to 5 entries again" in then.problem


def test_a_state_is_made_where_none_of_them_loses_nothing(cli: Cli, make: Any) -> None:
    """Left by the first: 1, 3, 4, 6, 7; by the second, after a reset and acknowledgements: 2, 3, 5, 6, 7."""
    store = make(position_info(0, [2, 5]), position_info(-1, [0, 1, 4]))
    words = ("--store", store, "topics", "reset-cursor", TOPIC, "-s", "sub", "--as-of", f"@{T + 8_000}", "--if-unsure")
    kept = cli(*words, "redeliver", "--dry-run", "-o", "json").json
    assert kept["rule"] == "as-of all of 2 states, 11:0 to 11:1"
    assert (kept["after"]["markDeletePosition"], kept["after"]["backlogEntries"]) == ("10:0", 7)
    done = cli(*words, "skip", "-o", "json").json
    assert (done["after"]["markDeletePosition"], done["after"]["backlogEntries"]) == ("10:2", 3)
    with opened(store, TOPIC) as (reader, topic):
        state = read_cursor(reader.txn, reader, topic, "sub").state
    assert acknowledged(entries_of(topic), state) == {(10, entry) for entry in (0, 1, 2, 4, 5)}


@pytest.mark.parametrize("seed", range(60))
def test_most_and_least_equal_brute_force(make_topic: Topic, seed: int) -> None:
    """On messages: entry 0 to 9 have one, of which some are batches of 70 that are acknowledged in part."""
    random = Random(seed)
    states = [random_state(random) for _ in range(random.randint(2, 4))]
    most = least = pending_of(make_topic, states[0])
    for state in states[1:]:
        most = either(make_topic, most, pending_of(make_topic, state))
        least = both(make_topic, least, pending_of(make_topic, state))
    left = [messages_left(make_topic, state) for state in states]
    for pending, expected in ((most, set.union(*left)), (least, set.intersection(*left))):
        for like in states:
            assert messages_left(make_topic, state_of(make_topic, pending, like)) == expected


@pytest.mark.parametrize("seed", range(40))
def test_a_batch_up_to_a_message_equals_brute_force(make_topic: Topic, seed: int) -> None:
    random = Random(seed)
    state = random_state(random)
    before = messages_left(make_topic, state)
    for ledger, entry in entries_of(make_topic):
        first = random.choice((1, 63, 64, 65, 69, random.randrange(1, BATCH)))
        position = Position(ledger, entry)
        through = advanced(make_topic, state, make_topic.previous(position))
        after = _with_batch(make_topic, through, position, bit_words(range(first, BATCH)))
        assert messages_left(make_topic, after) == {one for one in before if one >= (ledger, entry, first)}


BATCH = 70


@pytest.fixture(scope="module")
def make_topic() -> Topic:
    infos = (LedgerInfo(10, 4, 40, 5), LedgerInfo(12, 0, 0, 5), LedgerInfo(13, 6, 60, 5))
    ledgers = tuple(TopicLedger(info, info.entries, info.size_bytes, False) for info in infos)
    return Topic(parse_topic(TOPIC), NodeStat(0, 0, 0, 0, False), ManagedLedger(infos), ledgers)


def random_state(random: Random) -> CursorState:
    entries = [Position(10, entry) for entry in range(4)] + [Position(13, entry) for entry in range(6)]
    mark = random.choice([Position(10, -1), *entries])
    ranges = tuple(
        (Position(one.ledger_id, one.entry_id - 1), one) for one in entries if one > mark and random.random() < 0.3
    )
    done = {upper for _, upper in ranges}
    batches = {
        one: bit_words(index for index in range(BATCH) if random.random() < 0.5)
        for one in entries
        if one > mark and one not in done and random.random() < 0.4
    }
    return CursorState(mark, ranges, batches)


def messages_left(topic: Topic, state: CursorState) -> set[tuple[int, int, int]]:
    """What a consumer gets, message by message; written without the code under test."""
    done = acknowledged(entries_of(topic), state)
    left = set()
    for ledger, entry in entries_of(topic):
        words = state.batch_deletes.get(Position(ledger, entry))
        bits = (1 << BATCH) - 1
        if words is not None:
            bits = sum((word & (2**64 - 1)) << 64 * place for place, word in enumerate(words))
        if (ledger, entry) not in done:
            left |= {(ledger, entry, index) for index in range(BATCH) if bits >> index & 1}
    return left


def test_what_names_no_state_is_said(cli: Cli, tmp_path: Path) -> None:
    store = copied("cluster", "crashed", tmp_path)
    words = ("--store", store, "topics", "reset-cursor", FRESH, "-s", HOLES)
    for more, text in (
        (("--as-of", "269:99"), "crash-holes has no state 269:99"),
        (("--as-of", "2020-01-01T00:00:00Z"), "the earliest known state, 0x4b5, is not before"),
        (("--as-of", "nonsense"), "nonsense"),
        (("--as-of", "269:1", "-t", "3h"), "--shift-by, --to-subscription and --as-of can be meant"),
        (("-m", "earliest", "--if-unsure", "skip"), "leave out --if-unsure and --zookeeper, or give --as-of"),
        (("-m", "earliest", "--zookeeper", "zk"), "leave out --if-unsure and --zookeeper, or give --as-of"),
    ):
        failed = cli(*words, *more)
        assert failed.exit_code not in (0, 70)
        assert text in failed.stderr
    (tmp_path / "rows").touch()
    failed = cli(*words[:4], "--from-file", tmp_path / "rows", "--if-unsure", "skip")
    assert "with --from-file the rows have the positions" in failed.stderr


def test_the_history_is_called_by_two_words_too(cli: Cli) -> None:
    store = imported("cluster", "crashed")
    one = cli("--store", store, "topics", "subscription-history", FRESH, "-s", HOLES, "-o", "json").json
    two = cli("--store", store, "topics", "subscriptions", "history", FRESH, "-s", HOLES, "-o", "json").json
    assert one == two
    assert len(one) == 21
    last = cli.json(store, f"topics subscription-history {FRESH} -s {HOLES} --last 2")
    assert [row["state"] for row in last] == ["269:18", "269:19"]
