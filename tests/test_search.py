"""Time search: exact against brute force and the recorded messages, the broker's rule against the live broker's answers."""

import random
from collections import Counter
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from pulsar_admin.store.codec.cursor import CursorInfo, CursorState
from pulsar_admin.store.db.clocks import Clock
from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.dump.job import find_event_time
from pulsar_admin.store.engine.local import LocalEngine
from pulsar_admin.store.engine.slices import Cut
from pulsar_admin.store.errors import InvalidValue
from pulsar_admin.store.model.cursors import read_cursor
from pulsar_admin.store.model.reader import EntryReader, open_reader
from pulsar_admin.store.model.topics import Topic, read_topic
from pulsar_admin.store.names import EARLIEST, LATEST, Position, parse_topic
from pulsar_admin.store.scan.unindexed import find_unindexed
from pulsar_admin.store.search import broker, by_index, doubts, expiry, window
from pulsar_admin.store.search.broker import BrokerSearch
from pulsar_admin.store.search.broker_setup import DEFAULT_BROKER, BrokerSetup, told_version
from pulsar_admin.store.search.by_time import Found, find_by_event_time, find_first_at_or_after
from pulsar_admin.store.search.explain import _why, explain
from tests.altering import flip
from tests.at_bounds import LONG, UNREADABLE, Answers, N, Texts, asking
from tests.stores import imported, read_rows, read_store
from tests.synthetic import CREATED_MS, Made, MadeTopic, make_store, message_bytes
from tests.worlds import CLUSTER, RELOADED, WORLD_NAMES, asked_topics, oracle

WORLDS = (*WORLD_NAMES, CLUSTER)


ASKED = {"small": 929, "nometa": 1043, "cluster": 899}
"""How many times the live broker was asked."""


def _probes(topic: dict[str, Any]) -> list[tuple[int, list[int]]]:
    return [(int(time), answer) for time, answer in (topic.get("by_time") or {}).items() if isinstance(answer, list)]


def check_rule_broker(reader: EntryReader, name: str, broker: BrokerSetup = DEFAULT_BROKER) -> int:
    """Compare rule ``broker`` with all that the broker of world NAME answered; return how many answers that are."""
    asked = 0
    for topic_name, recorded in asked_topics(name).items():
        topic = read_topic(reader.txn, parse_topic(topic_name))
        search = BrokerSearch(reader, topic, broker)
        for time_ms, answer in _probes(recorded):
            found = search.message_id_by_time(time_ms)
            if name in RELOADED and answer in ([ledger.ledger_id, ledger.entries] for ledger in topic.ledgers[-2:-1]):
                # Behind the end: a ledger came there when clients had the broker load the topic again while it stopped.
                answer = [topic.ids[-1], 0]
            assert [found.ledger_id, found.entry_id] == answer, (topic_name, time_ms)
            asked += 1
    return asked


def check_publish_times(reader: EntryReader, name: str) -> None:
    """Compare exact answers with the times of the messages that a live reader got from world NAME."""
    for topic_name, recorded in asked_topics(name).items():
        if "txn-" in topic_name or topic_name.endswith("chunked"):
            continue  # markers, aborted messages and first chunks are entries no reader reports
        topic = read_topic(reader.txn, parse_topic(topic_name))
        for time_ms, _ in _probes(recorded):
            expected = next((Position(*row[:2]) for row in recorded["messages"] if row[3] >= time_ms), None)
            assert find_first_at_or_after(reader, topic, time_ms, "publish").position == expected


@pytest.mark.parametrize("name", WORLDS)
def test_rule_broker_equals_every_recorded_answer(name: str) -> None:
    assert read_store(imported(name, "clean"), lambda reader: check_rule_broker(reader, name)) == ASKED[name]


@pytest.mark.parametrize(("name", "version", "times"), [("small-newer", "4.2", 862), ("small-newest", "5.0", 837)])
def test_newer_brokers_are_answered_by_their_names(name: str, version: str, times: int) -> None:
    with open_store(imported(name, "clean")) as store, open_reader(store) as reader:
        assert check_rule_broker(reader, name, BrokerSetup(version)) == times


def test_2_11_is_answered_by_its_own_name() -> None:
    """All that a live 2.11.0 answered; by the rules of 4.0, which asks compacted ledgers, 54 times of five topics are others."""
    compacted = Counter[str]()
    with open_store(imported("small-old", "clean")) as store, open_reader(store) as reader:
        assert check_rule_broker(reader, "small-old", BrokerSetup("2.11")) == 941
        for name, recorded in asked_topics("small-old").items():
            search = BrokerSearch(reader, read_topic(reader.txn, parse_topic(name)))
            for time_ms, answer in _probes(recorded):
                found = search.message_id_by_time(time_ms)
                if [found.ledger_id, found.entry_id] != answer:
                    assert search.used_compacted_ledger is not None
                    compacted[name] += 1
    assert (len(compacted), compacted.total()) == (5, 54)


@pytest.mark.parametrize(
    ("name", "told"),
    [("compacted-old", ("4.0", "")), ("small", ("4.0", "")), ("scalable", ("5.0", "/txn/tc/parallelism"))],
)
def test_the_version_is_taken_from_the_data_where_they_tell(name: str, told: tuple[str, str]) -> None:
    assert read_rows(imported(name, "clean"), lambda txn: told_version(txn)) == told


@pytest.mark.parametrize(
    ("topic_name", "wrong", "asked"), [("acme/iot/skewed", 49, 66), ("acme/iot/skewed-batched", 47, 65)]
)
def test_exact_where_the_live_broker_was_wrong(topic_name: str, wrong: int, asked: int) -> None:
    """The oracle of exactness is the reader's own record of publish times, in topic order."""
    recorded = oracle("nometa")["topics"][topic_name]
    rows = recorded["messages"]
    differs = 0
    with open_store(imported("nometa", "clean")) as store, open_reader(store) as reader:
        topic = read_topic(reader.txn, parse_topic(topic_name))
        probes = _probes(recorded)
        for time_ms, answer in probes:
            expected = next((row[:2] for row in rows if row[3] >= time_ms), None)
            found = find_first_at_or_after(reader, topic, time_ms, "auto")
            assert (found.position and [found.position.ledger_id, found.position.entry_id]) == expected
            assert found.entries_read <= 1024
            proof = explain(reader, topic, time_ms, "auto", found.position)
            if expected is None:
                broker_wrong = topic.is_entry(Position(*answer))
            else:
                broker_wrong = answer != expected
            assert proof.broker.agrees != broker_wrong
            assert bool(proof.broker.why) == broker_wrong
            differs += broker_wrong
        for found, agrees in ((Position(topic.ids[0], 0), True), (Position(topic.ids[0], 1), False), (None, False)):
            broker = explain(reader, topic, 0, "auto", found, BrokerSetup("4.2")).broker
            assert (broker.position, broker.agrees, broker.why is None) == (EARLIEST, agrees, agrees)
    assert (differs, len(probes)) == (wrong, asked)


def test_where_the_clients_clocks_differ_the_broker_asks_its_own() -> None:
    recorded = oracle("small")["topics"]["acme/orders/parts-partition-0"]
    said = Counter[tuple[bool, bool]]()
    with open_store(imported("small", "clean")) as store, open_reader(store) as reader:
        topic = read_topic(reader.txn, parse_topic("acme/orders/parts-partition-0"))
        for time_ms, answer in _probes(recorded):
            found, position = find_first_at_or_after(reader, topic, time_ms, "publish").position, Position(*answer)
            differs = topic.is_entry(position) if found is None else found != position
            why = explain(reader, topic, time_ms, "publish", found).broker.why or ""
            said[differs, "the question was about the publish clock" in why] += 1
    assert said.keys() == {(True, True), (False, False)}


@pytest.mark.parametrize("name", WORLDS)
def test_exact_by_publish_time_on_every_topic(name: str) -> None:
    with open_store(imported(name, "clean")) as store, open_reader(store) as reader:
        check_publish_times(reader, name)


@pytest.mark.parametrize("find", [find_by_event_time, find_event_time])
def test_event_time_finds_the_message_in_its_batch(find: Callable[[EntryReader, Topic, int], Found]) -> None:
    rows = oracle("small")["topics"]["public/default/batched"]["messages"]
    middle = sorted(row[4] for row in rows)[len(rows) // 2]
    with open_store(imported("small", "clean")) as store, open_reader(store) as reader:
        topic = read_topic(reader.txn, parse_topic("public/default/batched"))
        for time_ms in (rows[0][4], middle, max(row[4] for row in rows), max(row[4] for row in rows) + 1):
            expected = next((Position(*row[:3]) for row in rows if row[4] >= time_ms), None)
            found = find(reader, topic, time_ms)
            assert found.position == expected
            assert found.entries_read == len(
                {(row[0], row[1]) for row in rows if Position(*row[:3]) <= (expected or LATEST)}
            )


@pytest.mark.parametrize("name", WORLDS)
def test_resets_and_expiries_by_time_end_where_the_broker_ended(name: str) -> None:
    kinds = []
    with open_store(imported(name, "clean")) as store, open_reader(store) as reader:
        for mutation in oracle(name)["mutations"]:
            topic = read_topic(reader.txn, parse_topic(mutation["topic"]))
            cursor = read_cursor(reader.txn, reader, topic, mutation["subscription"])
            search, after = BrokerSearch(reader, topic), mutation["after"]["markDeletePosition"]
            argument = mutation["path"].rpartition("/")[2]
            if mutation["kind"] == "reset-cursor-time":
                assert str(topic.previous(search.reset_read_position(int(argument)))) == after
            elif mutation["kind"] == "expire-time":
                # The broker reads its clock anew at every probe, about a second before at_ms was taken; the cluster's read for longer.
                end = mutation["at_ms"] - (739 if name == CLUSTER else 939)
                window = range(mutation["at_ms"] - 1030, end)
                answers = {search.expire_position(cursor, now, int(argument)) or cursor.mark_delete for now in window}
                assert after in {str(answer) for answer in answers}
                assert len(answers) <= len(window) // 3
            else:
                continue
            kinds.append(mutation["kind"])
    assert kinds.count("reset-cursor-time") == 6
    assert kinds.count("expire-time") == 4


def test_close_time_pruning_example(tmp_path: Path) -> None:
    """PR 24219's example: ledgers of ten entries closed 1000, 1010, 3000; skew 20, asked 1000: no start, end (third, 9)."""
    ledgers = [[Made(990 + index) for index in range(10)] for _ in range(3)]
    info = CursorInfo(-1, Position(10, -1))
    made = MadeTopic([*ledgers, []], closed_ms=(1000, 1010, 3000), cursors={"s": info})
    loaded = MadeTopic([ledgers[0], [], *ledgers[1:]], closed_ms=(1000, 1010, 3000))
    first, second, third = (Position(ledger_id, 9) for ledger_id in (10, 11, 12))
    with open_store(make_store(tmp_path / "store", {"a/b/c": made})) as store, open_reader(store) as reader:
        topic = read_topic(reader.txn, parse_topic("a/b/c"))
        for skew_ms, asked_ms, pruned in (
            (20, 1000, (None, third)),
            (10, 1000, (None, third)),
            (9, 1000, (None, second)),
            (10, 1010, (first, third)),
            (0, 999, (None, first)),
            (0, 1000, (first, second)),
            (0, 3000, (third, None)),
            (-1, 1000, (None, None)),
        ):
            search = BrokerSearch(reader, topic, BrokerSetup(max_clock_skew_ms=skew_ms))
            read = search.reset_read_position(asked_ms)
            assert search.pruned == pruned
            # Probed is the entry behind the end, where one is.
            assert read == {first: Position(11, 1), second: Position(12, 1)}.get(pruned[1] or third, Position(12, 10))
    with open_store(make_store(tmp_path / "loaded", {"a/b/c": loaded})) as store, open_reader(store) as reader:
        search = BrokerSearch(
            reader, read_topic(reader.txn, parse_topic("a/b/c")), BrokerSetup(max_clock_skew_ms=0, loaded_ms=4000)
        )
        search.reset_read_position(2_100)
        assert search.pruned == (first, third)  # a broker that loads the topic drops ledgers without entries


# -- brute force on generated topics ----------------------------------------------------------------------------------

CLOCKS: tuple[Clock, ...] = ("auto", "publish", "broker")


def _topic(rnd: random.Random) -> MadeTopic:
    """Clocks that jump both ways, equal times, gaps, missing broker metadata, empty and lost ledgers, batches."""
    now, ledgers = 1_700_000_000_000, []
    broker = rnd.choice(("none", "all", "some"))
    for _ in range(rnd.randint(1, 6)):
        kind = rnd.random()
        count = 0 if kind < 0.15 else 1 if kind < 0.3 else rnd.randint(2, 40)
        lost_ledger = rnd.random() < 0.1
        entries = []
        for _ in range(count):
            now += rnd.choice((0, 0, 1, 3, 50, 5000))
            publish = now + rnd.choice((0, 0, 0, -5000, 7000, -86_400_000, 900 * 86_400_000))
            with_broker = broker == "all" or (broker == "some" and rnd.random() < 0.5)
            batch, lost = rnd.choice((0, 0, 3)), lost_ledger or rnd.random() < 0.03
            entries.append(Made(publish, now if with_broker else None, batch, lost=lost))
        ledgers.append(entries)
    return MadeTopic(ledgers, open_last=rnd.random() < 0.8)


def _time_of(made: Made, clock: Clock) -> int | None:
    if clock == "publish":
        return made.publish_ms
    if clock == "broker":
        return made.broker_ms
    return made.publish_ms if made.broker_ms is None else made.broker_ms


def _check_generated(path: Path, seed: int, topics: int, probes: int) -> int:
    rnd = random.Random(seed)
    made = {f"public/default/t{index}": _topic(rnd) for index in range(topics)}
    cases, ledger_id = 0, 10
    with open_store(make_store(path, made)) as store, open_reader(store) as reader:
        for name, topic in made.items():
            rows = [
                (Position(ledger_id + index, entry_id), entry)
                for index, entries in enumerate(topic.ledgers)
                for entry_id, entry in enumerate(entries)
                if not entry.lost
            ]
            ledger_id += len(topic.ledgers)
            found_topic = read_topic(reader.txn, parse_topic(name))
            times = [time for _, entry in rows for time in (entry.publish_ms, entry.broker_ms) if time] or [0]
            for _ in range(probes):
                time_ms = rnd.choice(times) + rnd.choice((-1, 0, 0, 1))
                clock = rnd.choice(CLOCKS)
                expected = next(
                    (position for position, entry in rows if (_time_of(entry, clock) or -1) >= time_ms), None
                )
                found = find_first_at_or_after(reader, found_topic, time_ms, clock).position
                assert found == expected, (name, time_ms, clock)
                cases += 1
    return cases


def test_exact_on_10000_generated_cases(tmp_path: Path) -> None:
    assert _check_generated(tmp_path / "store", 345, 100, 100) == 10_000


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(30))
def test_exact_on_many_more(tmp_path: Path, seed: int) -> None:
    assert _check_generated(tmp_path / "store", seed, 200, 200) == 40_000


def test_files_are_searched_for_what_no_index_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against brute force, slice by slice and at once: the first entry, by position, at or after a time, and which are there."""
    rnd = random.Random(5)

    def made(entry_id: int) -> Made:
        broker_ms = rnd.choice([None, rnd.randrange(1000)])
        return Made(rnd.randrange(1000), broker_ms, payload=bytes(700), lost=entry_id == 5)

    topic = MadeTopic([[made(entry_id) for entry_id in range(60)] for _ in range(3)])
    rows = [
        (Position(10 + at, entry_id), entry)
        for at, ledger in enumerate(topic.ledgers)
        for entry_id, entry in enumerate(ledger)
        if not entry.lost
    ]
    with (
        open_store(make_store(tmp_path / "store", {"public/default/t": topic})) as store,
        store.read() as txn,
        LocalEngine(1) as engine,
    ):
        for slice_bytes, ledgers, clock in product((1 << 20, 4096), ((10, 12), (11, 99)), CLOCKS):
            monkeypatch.setattr("pulsar_admin.store.scan.unindexed.cut_for", lambda _, size=slice_bytes: Cut(size))
            mine = [(position, _time_of(entry, clock)) for position, entry in rows if position.ledger_id in ledgers]
            times = sorted({at for _, at in mine if at is not None})
            for time_ms in (0, times[len(times) // 2], times[-1], times[-1] + 1):
                seen: list[int] = []
                found = find_unindexed(engine, txn, seen.append, ledgers, time_ms, clock)
                hits = [(position, at) for position, at in mine if at is not None and at >= time_ms]
                assert (found.position, found.time_ms) == (min(hits) if hits else (None, None))
                assert (found.entries, found.files, found.bytes) == (len(mine), 1, sum(seen))
                held = [Position(ledger_id, entry_id) for ledger_id in ledgers for entry_id in found.held[ledger_id]]
                assert held == [position for position, _ in mine]


def test_small_blocks_of_a_large_ledger(tmp_path: Path) -> None:
    """A ledger of several blocks: at most one block of headers is read, wherever the answer lies."""
    rnd = random.Random(5)
    entries = [Made(30_000 + index * 10 + rnd.choice((0, 0, -20_000))) for index in range(3000)]
    path = make_store(tmp_path / "store", {"a/b/c": MadeTopic([entries])})
    with open_store(path) as store, open_reader(store) as reader:
        topic = read_topic(reader.txn, parse_topic("a/b/c"))
        for time_ms in range(0, 61_000, 500):
            expected = next((index for index, made in enumerate(entries) if made.publish_ms >= time_ms), None)
            found = find_first_at_or_after(reader, topic, time_ms, "publish")
            assert (found.position.entry_id if found.position else None) == expected
            assert found.entries_read <= 1024


def test_a_damaged_entry_before_the_answer_is_counted_whatever_became_of_its_time(
    tmp_path: Path, damages_stores: None
) -> None:
    """The log was damaged after the import: one bit of the entry at the time, in turn of each of its bytes."""
    entry = Made(CREATED_MS + 5, payload=b"payload")
    path = make_store(tmp_path / "store", {"a/b/c": MadeTopic([[Made(CREATED_MS), entry, Made(CREATED_MS + 10)]])})
    (log,) = path.glob("entries/*.log")
    stored, sound = message_bytes(entry, 1), log.read_bytes()
    for place in range(len(stored)):
        flip(log, sound.index(stored) + place, 0x80, by_disk=True)
        with open_store(path) as store, open_reader(store) as reader:
            topic = read_topic(reader.txn, parse_topic("a/b/c"))
            found = find_first_at_or_after(reader, topic, entry.publish_ms, "auto")
            pending = expiry.PendingSearch(reader, topic, CursorState(Position(10, -1)), "auto")
            first = pending.find_first(entry.publish_ms)
        assert (first and first.position, pending.unreadable) == (Position(10, 2), 1), place
        assert (found.position, found.unreadable) == (Position(10, 2), 1), place
        flip(log, sound.index(stored) + place, 0x80, by_disk=True)


def test_reset_of_an_untouched_cursor_goes_to_the_first_entry(tmp_path: Path) -> None:
    """No entry is earlier: the broker resets to (first ledger, 0)."""
    info = CursorInfo(-1, Position(10, 1))
    path = make_store(tmp_path / "store", {"a/b/c": MadeTopic([[Made(1000), Made(2000)]], cursors={"s": info})})
    with open_store(path) as store, open_reader(store) as reader:
        topic = read_topic(reader.txn, parse_topic("a/b/c"))
        assert BrokerSearch(reader, topic).reset_read_position(500) == Position(10, 0)
        assert BrokerSearch(reader, topic).reset_read_position(1500) == Position(10, 1)


LISTS = [N(ledger_id=5, entries=1), N(ledger_id=6, entries=0), N(ledger_id=9, entries=1)]
COVERED = [N(first=0, last=4), N(first=5, last=9)]
ANSWERS: Answers = {
    broker.BrokerSearch.expire_whole_ledgers: [
        ((N(broker=N(rules=N(expires_whole_ledgers=True)), _closed_ms=lambda one: 100,
            topic=N(ledgers=[N(ledger_id=1, entries=3)], last_confirmed=Position(9, 9))), Position(1, 0), limit), answer)
        for limit, answer in ((100, Position(1, 0)), (101, Position(1, 2)))] + [
        ((N(broker=N(rules=N(expires_whole_ledgers=True)), _closed_ms=lambda one: 200 if one.ledger_id == 2 else 100,
            topic=N(ledgers=[N(ledger_id=number, entries=3) for number in range(4)], last_confirmed=Position(9, 9))), Position(1, 0), 150),
         Position(1, 2))],
    broker.BrokerSearch._prune: [
        ((N(broker=N(max_clock_skew_ms=0, rules=N(prunes=True), loaded_ms=5), _closed_ms=lambda ledger: ledger.closed_ms,
            topic=N(ledgers=[N(ledger_id=1, entries=0, closed_ms=1), N(ledger_id=2, entries=5, closed_ms=900)])), 1000),
         (Position(2, 4), None))] + [
        ((N(broker=N(max_clock_skew_ms=skew_ms, rules=N(prunes=True), loaded_ms=None), _closed_ms=lambda one: one.closed_ms,
            topic=N(ledgers=[N(ledger_id=number, entries=5, closed_ms=time_ms)
                             for number, time_ms in enumerate((980, 981, 1020, 1021))])), 1000), answer)
        for skew_ms, answer in ((20, (Position(0, 4), Position(3, 4))), (0, (Position(1, 4), Position(2, 4))),
                                (-1, (None, None)))],
    broker.BrokerSearch._has_more: [((N(topic=N(number_of_entries=5)), rank, None), rank < 5) for rank in (4, 5)],
    broker.BrokerSearch.expire_position: [((N(), None, 0, 0), None)] + [
        ((N(expire_whole_ledgers=lambda mark, limit: Position(1, 4), broker=N(rules=N(expires_as_it_resets=True)),
            _find_message=lambda limit: Position(1, 2)), N(mark_delete=Position(1, entry)), 5000, 1), answer)
        for entry, answer in ((3, Position(1, 4)), (4, None))],
    doubts.Doubt.text: [
        ((N(ledger_id=7, first=3, last=last, lost=1, unseen=0, unseen_from=None),), f"1 lost entry of ledger 7 ({place})")
        for last, place in ((3, "7:3"), (4, "7:3 to 7:4"))],
    expiry.broker_through_position: [
        ((N(is_entry=lambda place: True), N(mark_delete=Position(1, 5)), Position(1, entry)), answer)
        for entry, answer in ((5, None), (6, Position(1, 6)))] + [
        ((N(is_entry=lambda place: False, last_confirmed=Position(1, 9), place=lambda one: one.entry_id, at_rank=int),
          N(mark_delete=Position(1, entry)), Position(1, 9)), answer) for entry, answer in ((9, None), (7, 8))],
    expiry.expire_by_time: [
        ((N(topic=N(rank=int, at_rank=int), intervals=((5, 6),), find_first=lambda time_ms: N(position=time_ms)), None, rank,
          "all-before"), answer) for rank, answer in ((5, None), (6, 5))],
    expiry.ForecastQuestion.__post_init__: [
        ((N(horizon_ms=horizon_ms, interval_ms=interval_ms),), answer)
        for horizon_ms, interval_ms, answer in ((1000, 1, None), (1001, 1, InvalidValue), (0, 1, InvalidValue),
                                                (1, 0, InvalidValue))],
    expiry._clip: [((((0, 2), (2, 4), (4, 6)), 2, 4), ((2, 4),))],
    window.is_few: [
        ((N(entries=entries, messages=messages, bytes=size), limit), answer)
        for entries, messages, size, limit, answer in (
            (4096, 4096, 1 << 24, None, True), (1, 1, (1 << 24) + 1, None, False), (4097, 1, 1, 4096, True),
            (4097, 1, 1, 4097, False))],
    window.is_small: [((None, None, N(is_timed=False, chooses=False), 4096), True)],
    by_index._Search.find: [
        ((N(_topic=N(number_of_entries=2), _covered_from=lambda rank, end: (rank, COVERED[rank])), index), answer)
        for index, answer in ((-1, None), (4, COVERED[0]), (5, COVERED[1]))],
    by_index._is_sound: [((UNREADABLE, Position(7, 0)), False)],
    broker.BrokerSearch._find_in_compacted: [
        ((N(_read_compacted=lambda view,
            entry: N(position=entry, header=N(metadata=N(publish_time=(10, 40, 20, 30)[entry])))),
            N(last_entry_id=3), time_ms), answer) for time_ms, answer in ((10, 0), (21, 1), (30, 3), (31, None))],
    broker.BrokerSearch._read_compacted: [((N(compacted_entries_read=0, reader=UNREADABLE,
        _unread=lambda position, error: InvalidValue(f"{position}")), N(ledger_id=7), 3), InvalidValue)],
    window._listed: [
        ((N(ledgers=LISTS, last_confirmed=Position(9, 0)), N(first=first, last=N(ledger_id=last))), answer)
        for first, last, answer in ((EARLIEST, 9, [LISTS[0], LISTS[2]]), (LATEST, LONG, [LISTS[2]]))],
}  # fmt: skip
SAID: Texts = {
    _why: [((None, 0, "auto", None, N(forgotten=7), None), "drops ledger 7: BookKeeper has no metadata"),
        ((None, 0, "auto", None, N(forgotten=None, used_compacted_ledger=8), None), "asks the compacted ledger 8, by publish time")],
}  # fmt: skip
test_at_bounds = asking(ANSWERS, said=SAID)
