"""Strips of recorded worlds against what the broker said and against every entry looked at one by one."""

from collections import Counter
from pathlib import Path

import pytest

from pulsar_admin import PartialData, import_standalone
from pulsar_admin.page.collecting import Limits, collect_page
from pulsar_admin.page.values import Page
from pulsar_admin.store.codec.cursor import CursorInfo
from pulsar_admin.store.db.environment import Txn, open_store
from pulsar_admin.store.facts.topics import SubscriptionFacts, TopicFacts
from pulsar_admin.store.model.cursors import read_topic_cursor
from pulsar_admin.store.model.ledgers import iter_entry_ids
from pulsar_admin.store.model.reader import EntryReader, open_reader
from pulsar_admin.store.model.topics import read_topic
from pulsar_admin.store.names import Position, encode_name, parse_topic
from pulsar_admin.store.reports.cursor_timeline import STATES, delayed_ranks, make_strip
from tests.conftest import Cli
from tests.stores import NOW_MS, copied, imported, put_node, write_rows
from tests.synthetic import CREATED_MS, Made, MadeTopic, make_store
from tests.worlds import oracle, world

_ORACLE = oracle("small")
_CASES = [
    (topic, subscription)
    for topic, said in _ORACLE["topics"].items()
    for subscription in said["analyze"]
    if said["internal_stats"]["numberOfEntries"]
]


def _facts_of(reader: EntryReader, name: str, subscription: str) -> SubscriptionFacts:
    topic, cursor = read_topic_cursor(reader, parse_topic(name), subscription)
    return SubscriptionFacts(TopicFacts(reader, topic, NOW_MS), cursor)


@pytest.mark.parametrize(("name", "subscription"), _CASES)
def test_a_strip_has_the_backlog_and_the_ranges_that_the_broker_said(name: str, subscription: str) -> None:
    said = _ORACLE["topics"][name]
    with open_store(imported("small", "clean")) as store, open_reader(store) as reader:
        strip = make_strip(_facts_of(reader, name, subscription), None, cells=7)
    backlog = said["stats"]["subscriptions"][subscription]["msgBacklog"]
    assert strip.count("unacknowledged") == strip.backlog_entries == backlog
    stats = said["internal_stats"]
    assert strip.entries == stats["numberOfEntries"]
    assert str(strip.mark_delete) == stats["cursors"][encode_name(subscription)]["markDeletePosition"]
    assert strip.count("lost") == 0


def test_delayed_entries_are_those_that_producers_asked_for() -> None:
    name = "acme/delayed/reminders"
    dues = sorted(row["due"] for row in _ORACLE["sent"] if row["due"] and row["topic"] == f"persistent://{name}")
    now_ms = dues[len(dues) // 2]
    with open_store(imported("small", "clean")) as store, open_reader(store) as reader:
        facts = _facts_of(reader, name, "audit")
        ranks, times = delayed_ranks(reader, facts.of.topic, ((0, facts.of.topic.number_of_entries),), now_ms)
        strip = make_strip(facts, ranks)
    wanted = [due for due in dues if due > now_ms]
    # The producer's own note of it may be off by what lies between its clock and its client's.
    assert all(abs(found - due) < 5 for found, due in zip(sorted(times.tolist()), wanted, strict=True))
    backlog = _ORACLE["topics"][name]["stats"]["subscriptions"]["audit"]["msgBacklog"]
    assert strip.count("delayed") == len(wanted)
    assert strip.count("unacknowledged") == backlog - len(wanted)


@pytest.mark.parametrize("cells", [1, 5, 40])
def test_every_cell_counts_its_entries(tmp_path: Path, cells: int) -> None:
    ledgers = [[Made(CREATED_MS + n, lost=n % 5 == 3) for n in range(11)] for _ in range(3)]
    info = CursorInfo(
        cursors_ledger_id=-1,
        mark_delete=Position(10, 4),
        ranges=((Position(10, 5), Position(10, 7)), (Position(11, 1), Position(11, 2))),
    )
    make_store(tmp_path / "store", {"public/default/t": MadeTopic(ledgers, cursors={"s": info})})
    with open_store(tmp_path / "store") as store, open_reader(store) as reader:
        facts = _facts_of(reader, "public/default/t", "s")
        topic = facts.of.topic
        here = {ledger_id: set(iter_entry_ids(reader.txn, ledger_id)) for ledger_id in topic.ids}
        strip = make_strip(facts, None, cells)
    wanted: list[Counter[str]] = []
    for cell in strip.cells:
        counts: Counter[str] = Counter()
        for position in topic.iter_positions(cell.first):
            one_by_one = any(low < position <= high for low, high in info.ranges)
            state = "acknowledged" if position <= info.mark_delete else "one-by-one" if one_by_one else "unacknowledged"
            counts["lost" if position.entry_id not in here[position.ledger_id] else state] += 1
            if position == cell.last:
                break
        wanted.append(counts)
    assert [Counter(dict(zip(STATES, cell.counts, strict=True))) for cell in strip.cells] == wanted
    assert len(wanted) == min(cells, strip.entries)
    assert strip.count("lost") > 0


def test_what_is_left_out_and_what_is_shown_make_the_whole() -> None:
    with open_store(imported("small", "crashed")) as store, open_reader(store) as reader:
        whole = collect_page(reader, (), NOW_MS)
        part = collect_page(reader, (), NOW_MS, Limits(topics=5, strips=2, traffic=1, scanned=0))
    assert (len(part.topics), len(part.standings), len(part.traffic)) == (5, 2, 1)
    assert not part.standings[0].strip.delays_read
    assert part.topics_rest.count == len(whole.topics) - 5
    for name in ("entries", "size_bytes", "backlog_entries"):
        assert sum(getattr(row, name) for row in part.topics) + getattr(part.topics_rest, name) == sum(
            getattr(row, name) for row in whole.topics
        )
    for name in ("size_bytes", "done_bytes"):
        assert sum(getattr(one, name) for one in part.shares) == sum(getattr(one, name) for one in whole.shares)
    assert part.standings_rest.count == len(whole.standings) + whole.standings_rest.count - 2


def test_what_cannot_be_read_hides_nothing_else(cli: Cli, tmp_path: Path, damages_stores: None) -> None:
    path = copied("small", "clean", tmp_path)

    def collected() -> Page:
        with open_store(path) as store, open_reader(store) as reader:
            return collect_page(reader, (), NOW_MS)

    def damage(txn: Txn) -> None:
        for ledger_id in read_topic(txn, parse_topic("public/default/batched")).ids:
            for key, row in [*txn.items("entries", ledger_id.to_bytes(8, "big"))]:
                txn.put("entries", key, row[:-1])

    before = collected()
    put_node(path, parse_topic("public/default/json").path, b"\xff\xff")
    put_node(path, "/admin/policies/public/default", b"{")
    with open_store(path, writable=True) as store:
        store.write(damage)
    after = collected()
    assert {one.name for one in before.topics} - {one.name for one in after.topics} == {"json"}
    kept = [one.strip for one in before.standings if not one.strip.topic.startswith("persistent://public/default/")]
    assert [(one.strip.topic, one.strip.subscription) for one in after.standings] == [
        (one.topic, one.subscription) for one in kept
    ]
    batched = parse_topic("public/default/batched")
    assert [one.topic for one in after.traffic] == [one.topic for one in before.traffic if one.topic != batched]
    assert len(after.unread) == 1 + len(before.standings) - len(kept) + 2
    assert cli("--store", path, "doctor", "--html", tmp_path / "page.html").exit_code == 1
    assert "location block 0 of ledger" in (tmp_path / "page.html").read_text()


def test_a_strip_whose_lost_entries_cannot_be_told_hides_nothing_else(tmp_path: Path) -> None:
    path, name = copied("small", "clean", tmp_path), "persistent://public/default/batched"

    def damage(txn: Txn) -> None:
        for key in (ledger_id.to_bytes(8, "big") for ledger_id in read_topic(txn, parse_topic(name)).ids):
            txn.put("times", key, (txn.get("times", key) or b"")[:-1])

    write_rows(path, damage)
    with open_store(path) as store, open_reader(store) as reader:
        page = collect_page(reader, (), NOW_MS, Limits(scanned=0))  # nor are delays read, which would tell
    topics = {one.strip.topic for one in page.standings}
    assert topics
    assert name not in topics
    assert any(line.startswith(f"{name} ") for line in page.unread)


def test_what_is_in_tiered_storage_is_not_lost(tmp_path: Path) -> None:
    """Seen: all in red, as in no file, where ``topics why`` finds nothing lost."""
    with pytest.warns(PartialData):
        import_standalone(world("offloaded") / "data", tmp_path / "s")
    with open_store(tmp_path / "s") as store, open_reader(store) as reader:
        strips = [one.strip for one in collect_page(reader, (), NOW_MS).standings]
    assert [strip.count("lost") for strip in strips] == [0] * 6
    assert sum(strip.count("unacknowledged") for strip in strips) > 4_000
