"""The index of the recorded worlds equals what the producers sent less what was acknowledged, however it came about."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pulsar_admin.store.changes.cursors import RESET, SKIP, CursorMove, plan_moves, skipped
from pulsar_admin.store.changes.plan import apply_plan
from pulsar_admin.store.changes.resets import shifted_state
from pulsar_admin.store.codec.cursor import CursorInfo
from pulsar_admin.store.codec.message import encode_message_entry
from pulsar_admin.store.db.delayed import Index, encode_index, find_index_ledgers, index_key
from pulsar_admin.store.db.delayed_rules import IndexRules, encode_rules, rules_key
from pulsar_admin.store.db.environment import Store, open_store
from pulsar_admin.store.delayed import build as building
from pulsar_admin.store.delayed.build import PartitionSource
from pulsar_admin.store.delayed.waiting import is_current
from pulsar_admin.store.errors import IndexCorrupt, StalePlan, Unsupported
from pulsar_admin.store.model.cursors import read_cursor
from pulsar_admin.store.model.reader import open_reader
from pulsar_admin.store.model.topics import read_topic
from pulsar_admin.store.names import Position, parse_topic
from pulsar_admin.store.proto.pulsar_api_pb2 import MessageMetadata
from tests.conftest import Cli
from tests.deep import deep_but_for
from tests.delayed.world import NOW_MS, TOPIC, build, held, index_of, sent, waiting
from tests.stores import copied, in_store
from tests.synthetic import Made, MadeTopic, make_store

TICK_MS = 1000
ROUNDED_UP_MS = 3  # clients do so, pulsar.md §12


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(copied("small", "clean", tmp_path), writable=True) as opened:
        yield opened


def expected(name: str, store: Store, subscription: str) -> dict[tuple[int, int], int]:
    still = waiting(store, subscription)
    return {position: due for position, due in sent(name).items() if position in still}


def check_world(name: str, store: Store, subscription: str) -> int:
    found = held(store, subscription)
    wanted = expected(name, store, subscription)
    assert {(ledger, entry) for _, ledger, entry in found} == set(wanted)
    assert len(found) == len(wanted)
    for tick, ledger, entry in found:
        due = wanted[ledger, entry]
        assert tick in {(due + late) // TICK_MS * TICK_MS for late in range(ROUNDED_UP_MS + 1)}
    return len(found)


@deep_but_for((1, 2), ("name", "state"), [("small", "clean"), ("nometa", "mutated"), ("small", "crashed")])
def test_worlds(name: str, state: str, tmp_path: Path) -> None:
    with open_store(copied(name, state, tmp_path), writable=True) as store:
        for subscription in ("workers", "audit"):
            result = build(store, subscription)
            assert check_world(name, store, subscription) == result.messages == result.added > 100
            again = build(store, subscription)
            assert (again.added, again.removed, again.read, again.partitions_written) == (0, 0, 0, 0)
            assert again.messages == result.messages


def test_an_index_is_current_for_the_backlog_that_it_was_built_of_alone(store: Store) -> None:
    """Not where more is acknowledged, and not where some of it is again to be delivered."""

    def answer() -> bool:
        with open_reader(store) as reader:
            topic = read_topic(reader.txn, parse_topic(TOPIC))
            return is_current(topic, read_cursor(reader.txn, reader, topic, "audit"), index_of(store, "audit"))

    skip(store, "audit", 90)
    build(store, "audit")
    answers = [answer()]
    for move in (skip, go_back, go_back):
        move(store, "audit", 5)
        answers.append(answer())
    assert answers == [True, False, True, False]


def skip(store: Store, subscription: str, entries: int) -> None:
    with open_reader(store) as reader:
        topic = read_topic(reader.txn, parse_topic(TOPIC))
        cursor = read_cursor(reader.txn, reader, topic, subscription)
        plan = plan_moves(reader, SKIP, [CursorMove(topic, cursor, skipped(topic, cursor.state, entries))], NOW_MS)
    apply_plan(store, plan, NOW_MS)


def test_a_partition_has_four_ledgers_at_most(store: Store) -> None:
    """Each build that adds to a partition writes one more; the fifth makes them one."""
    ledgers = []
    set_rules(store, IndexRules(1_209_600_000, 2000))
    skip(store, "audit", 120)
    for _ in range(6):
        build(store, "audit")
        ledgers.append(max(len(part.ledgers) for part in index_of(store, "audit").partitions))
        go_back(store, "audit", 20)
    assert ledgers == [1, 2, 3, 4, 1, 2]


def go_back(store: Store, subscription: str, entries: int) -> None:
    with open_reader(store) as reader:
        topic = read_topic(reader.txn, parse_topic(TOPIC))
        cursor = read_cursor(reader.txn, reader, topic, subscription)
        state = shifted_state(topic, cursor, -entries)
        plan = plan_moves(reader, RESET, [CursorMove(topic, cursor, state)], NOW_MS)
    apply_plan(store, plan, NOW_MS)


def undo(store: Store) -> None:
    from pulsar_admin.store.changes.plan import plan_undo

    with store.read() as txn:
        plan = plan_undo(txn, 1)
    apply_plan(store, plan, NOW_MS)


class Stopped(Exception):
    """What ends the process."""


@pytest.mark.parametrize("place", ["write_ledgers", "put_index", "written_index"])
def test_a_kill_loses_and_doubles_nothing(place: str, store: Store, monkeypatch: Any) -> None:
    """Stopped before the ledgers, between them and the transaction, and in it: the old index stays and the next build goes on."""
    build(store, "audit")
    before = held(store, "audit")
    skip(store, "audit", 40)

    def stop(*_: object) -> None:
        raise Stopped

    with monkeypatch.context() as patch:
        patch.setattr(building, place, stop)
        with pytest.raises(Stopped):
            build(store, "audit")
    assert held(store, "audit") == before
    build(store, "audit")
    check_world("small", store, "audit")


# -- growing, shrinking, damage ---------------------------------------------------------------------------------------


def set_rules(store: Store, rules: IndexRules) -> None:
    store.write(lambda txn: txn.put("delayed", rules_key("acme/delayed"), encode_rules(rules)))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (IndexRules(300_000, 1000), IndexRules(86_400_000, 1000)),
        (IndexRules(86_400_000, 1000), IndexRules(3_600_000, 1000)),
        (IndexRules(3_600_000, 1000), IndexRules(3_600_000, 60_000)),
    ],
)
def test_widths_change(before: IndexRules, after: IndexRules, store: Store) -> None:
    """Partitions that grew hold the old ones, narrower ones are cut anew; what is due when stays the same."""
    set_rules(store, before)
    build(store, "workers")
    messages = held(store, "workers")
    set_rules(store, after)
    build(store, "workers")
    assert held(store, "workers") == messages
    assert all(part.width_ms <= after.granularity_ms for part in index_of(store, "workers").partitions)


def test_wide_partition_is_split_on_load(store: Store) -> None:
    """Before any build cuts it anew: what is asked for of it, and nothing else."""
    set_rules(store, IndexRules(1_209_600_000, 2000))
    build(store, "workers")
    messages = held(store, "workers")
    with open_reader(store) as reader:
        source = PartitionSource(reader, index_of(store, "workers"))
        middle = messages[len(messages) // 2][0]
        rows = source.load(middle, middle + 3_600_000)
    assert rows.times_ms.tolist() == [tick for tick, _, _ in messages if middle <= tick < middle + 3_600_000]


def test_a_split_keeps_narrow_partitions_and_cuts_the_wide_ones_after_them(store: Store) -> None:
    set_rules(store, IndexRules(21_600_000, 2000))
    build(store, "workers")
    index = index_of(store, "workers")
    first, *others = index.partitions
    narrow = replace_first(index, type(first)(first.start_ms, 300_000, first.ledgers))
    with building.open_runs() as file, open_reader(store) as reader:
        draft = building.draft_split(reader, narrow, IndexRules(300_000), file)
        assert draft.keeps.keys() == {first.start_ms}
        wide = sum(messages for one in others for _, messages, _ in one.ledgers)
        assert sum(draft.writes.counts.values()) == wide > 0


def test_an_index_of_a_store_that_changed_meanwhile_is_not_written(store: Store) -> None:
    with building.open_runs() as file, open_reader(store) as reader:
        wanted = building.WantedIndex(parse_topic(TOPIC), "workers")
        draft = building.draft_index(reader, wanted, NOW_MS, file, rebuild=False)
        building.read_drafts([draft])
        building.finish_draft(draft)
        skip(store, "audit", 1)
        with pytest.raises(StalePlan, match="changed while the index was built"):
            building.apply_draft(store, draft)


def test_newer_directory_is_named(store: Store) -> None:
    import json
    import zlib

    build(store, "workers")
    fields = json.loads(zlib.decompress(encode_index(index_of(store, "workers"))))
    put_row(store, zlib.compress(json.dumps({**fields, "format": 2}).encode()))
    with pytest.raises(Unsupported, match="format 2"):
        build(store, "workers")
    put_row(store, b"no zlib")
    with pytest.raises(IndexCorrupt):
        build(store, "workers")
    build(store, "workers", rebuild=True)
    check_world("small", store, "workers")


def put_row(store: Store, row: bytes) -> None:
    store.write(lambda txn: txn.put("delayed", index_key(parse_topic(TOPIC), "workers"), row))


def test_missing_ledger_is_named_and_rebuilt(store: Store) -> None:
    build(store, "workers")
    index = index_of(store, "workers")
    lost = Index(index.topic, "workers", index.rules, index.cursor, 1, index.covered, index.partitions)
    partition = lost.partitions[0]
    (ledger, messages, size), *_ = partition.ledgers
    for wrong, told in (((999_999, 1, 1), "it does not exist"), ((ledger, messages + 1, size), "it holds")):
        broken = type(partition)(partition.start_ms, partition.width_ms, (wrong,))
        put_row(store, encode_index(replace_first(lost, broken)))
        with pytest.raises(IndexCorrupt, match=f"ledger {wrong[0]} of .* workers: {told}"):
            held(store, "workers")
    build(store, "workers", rebuild=True)
    check_world("small", store, "workers")


def replace_first(index: Index, first: Any) -> Index:
    from msgspec.structs import replace

    return replace(index, partitions=(first, *index.partitions[1:]))


def test_damaged_ledger_is_named(tmp_path: Path, damages_stores: None) -> None:
    path = copied("small", "clean", tmp_path)
    in_store(path, lambda store: build(store, "workers"))
    (log,) = (path / "entries").glob("own-*.log")
    data = bytearray(log.read_bytes())
    at = data.index(b"\x89PDI") + 12
    data[at] ^= 1
    log.write_bytes(data)
    with (
        open_store(path) as store,
        pytest.raises(IndexCorrupt, match=r"ledger \d+ of the delayed index .*: entries/own"),
    ):
        held(store, "workers")


# -- chosen entries ---------------------------------------------------------------------------------------------------


def message(publish_ms: int, *, raw_tail: bytes = b"", deliver_at: int | None = None) -> Made:
    metadata = MessageMetadata(producer_name="p", sequence_id=0, publish_time=publish_ms)
    if deliver_at is not None:
        metadata.deliver_at_time = deliver_at
    payload = encode_message_entry(metadata, b"x")
    if not raw_tail:
        return Made(publish_ms, raw=payload)
    # The metadata with a field appended that today's schema does not have in this wire type.
    body = metadata.SerializeToString() + raw_tail
    return Made(publish_ms, raw=len(body).to_bytes(4, "big") + body + b"x")


def made_store(tmp_path: Path, *entries: Made) -> Path:
    cursors = {"s": CursorInfo(cursors_ledger_id=-1, mark_delete=Position(10, -1))}
    return make_store(tmp_path / "store", {"persistent://a/b/c": MadeTopic([entries], cursors=cursors)})


def test_both_fields_are_read(tmp_path: Path) -> None:
    """deliver_at_time (19), the seed's varint delayed_ms (18) relative to publish, and ordering_key (18, bytes) told apart."""
    hour = b"\x90\x01" + b"\x80\xdd\xdb\x01"  # 18 varint 3_600_000
    ordering_key = b"\x92\x01\x03abc"
    negative = b"\x90\x01" + b"\xff" * 9 + b"\x01"
    path = made_store(
        tmp_path,
        message(5_000, deliver_at=70_000),
        message(6_000, raw_tail=hour),
        message(7_000, raw_tail=ordering_key),
        message(8_000, raw_tail=negative),
        message(9_000),
        message(10_000, deliver_at=80_000, raw_tail=hour),
        message(11_000, raw_tail=b"\x90\x01\x00"),
    )
    with open_store(path, writable=True) as store:
        build(store, "s", "persistent://a/b/c")
        found = held(store, "s", "persistent://a/b/c")
    assert found == [(70_000, 10, 0), (80_000, 10, 5), (3_606_000, 10, 1)]


def test_extreme_due_times(tmp_path: Path) -> None:
    """The past, the year 60000, the last millisecond of 64 bits, and a time before 1970, which means at once."""
    year_60000 = 1_831_391_000_000_000
    times = [1, year_60000, 2**63 - 1, -5]
    path = made_store(tmp_path, *(message(10**12, deliver_at=time) for time in times))
    with open_store(path, writable=True) as store:
        build(store, "s", "persistent://a/b/c")
        found = held(store, "s", "persistent://a/b/c")
    assert found == [(0, 10, 0), (year_60000, 10, 1), ((2**63 - 1) // 1000 * 1000, 10, 2)]


def test_batches_and_lost_entries(tmp_path: Path, cli: Cli) -> None:
    path = made_store(tmp_path, message(1000, deliver_at=5000), Made(1, lost=True), Made(2, batch=3))
    told = cli.on(path, "delayed build a/b/c -s s --dry-run").stderr
    assert "persistent://a/b/c s: 1 waiting entry is lost or damaged" in told
    result = in_store(path, lambda store: build(store, "s", "persistent://a/b/c"))
    assert (result.messages, result.missing) == (1, 1)


def test_a_damaged_index_hides_the_ledgers_of_no_other(tmp_path: Path, damages_stores: None) -> None:
    path = copied("small", "clean", tmp_path)
    with open_store(path, writable=True) as store:
        for subscription in ("audit", "workers"):
            build(store, subscription)
        index = index_of(store, "workers")
        store.write(lambda txn: txn.put("delayed", index_key(parse_topic(TOPIC), "audit"), b"damaged"))
        with store.read() as txn:
            assert set(find_index_ledgers(txn)) == set(index.ledger_ids)
