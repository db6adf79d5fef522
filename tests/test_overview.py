"""The overview against what the live broker answered, and against counting by hand."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from store.check import check_store
from store.codec.logscan import Record, iter_records
from store.db.environment import open_store
from store.db.files import iter_logs
from store.model.ledgers import open_reader
from store.names import Position
from store.reports.overview import Largest, Overview, Wanted, count_findings, read_overview
from store.transfer.age import read_copied_ms
from tests.reference_index import reference_index
from tests.stores import NOW_MS, imported
from tests.worlds import WORLD_NAMES, asked_topics, world

ALL = 10_000
OWN = ("__compaction", "pulsar.dedup")
LATER_MS = NOW_MS + 1000


def overview_of(path: Path, top: int = ALL) -> Overview:
    with open_store(path) as store, open_reader(store) as reader:
        wanted = Wanted(LATER_MS, read_copied_ms(store, reader.txn), top)
        return read_overview(store, reader, wanted, count_findings(check_store(store)))


@cache
def whole(name: str) -> Overview:
    """The overview of a clean world with every row."""
    return overview_of(imported(name, "clean"))


@pytest.mark.parametrize("name", WORLD_NAMES)
def test_sizes_and_backlogs_are_the_brokers(name: str) -> None:
    found = whole(name)
    sizes = {row.topic: row.bytes for row in found.largest}
    backlogs = {(row.topic, row.subscription): row.entries for row in found.backlogs}
    wanted_sizes, wanted_backlogs = {}, {}
    for topic, answers in asked_topics(name).items():
        stats = answers["stats"]
        wanted_sizes[f"persistent://{topic}"] = stats["storageSize"]
        for subscription, row in stats["subscriptions"].items():
            if subscription not in OWN:
                wanted_backlogs[f"persistent://{topic}", subscription] = row["msgBacklog"]
    assert len(wanted_backlogs) > 5
    assert {topic: sizes.get(topic, 0) for topic in wanted_sizes} == wanted_sizes
    assert {key: backlogs.get(key, 0) for key in wanted_backlogs} == wanted_backlogs
    assert sum(backlogs.values()) == found.backlog_entries


@pytest.mark.parametrize("name", WORLD_NAMES)
def test_oldest_entries_are_as_old_as_their_bytes_say(name: str) -> None:
    store = imported(name, "clean")
    with open_store(store) as opened, opened.read() as txn:
        times = {key: publish_ms for key, (_, publish_ms) in reference_index(iter_logs(txn), store).items()}
    found = whole(name)
    assert "entry" in {row.oldest_source for row in found.backlogs}
    for row in found.backlogs:
        assert not row.topic.rpartition("/")[2].startswith("__")
        assert isinstance(row.oldest_position, Position)
        assert row.oldest_publish_ms == times[row.oldest_position.ledger_id, row.oldest_position.entry_id]
        assert row.oldest_age_ms == LATER_MS - row.oldest_publish_ms


@pytest.mark.parametrize("name", WORLD_NAMES)
def test_disks_are_as_their_logs_say(name: str) -> None:
    """Dead is what belongs to a ledger without a metadata node; the reference walks the logs."""
    store = imported(name, "clean")
    with open_store(store) as opened, opened.read() as txn:
        nodes = {key.decode() for key in txn.keys("tree", b"/ledgers/")}
    alive = {int("".join(path.split("/")[2:]).replace("L", "")) for path in nodes if "/L" in path}
    sums, stuck = [0, 0], 0
    for log in (world(name) / "clean" / "bookkeeper" / "current").glob("*.log"):
        items = iter_records(log.read_bytes(), log.name) if log.stat().st_size else ()
        here = [0, 0]
        for item in items:
            if isinstance(item, Record) and item.ledger_id >= 0:
                here[item.ledger_id not in alive] += 4 + item.size
        sums = [one + other for one, other in zip(sums, here, strict=True)]
        stuck += here[1] if here[0] else 0
    disk = whole(name).disk
    assert [disk.live_bytes, disk.dead_bytes] == sums
    assert disk.stuck_bytes == stuck == sum(row.dead_bytes for row in disk.stuck)
    assert disk.dead_bytes


@pytest.mark.parametrize("name", WORLD_NAMES)
def test_every_byte_of_a_topic_is_held_once(name: str) -> None:
    found = whole(name)
    assert sum(found.held.values()) == found.bytes == sum(row.bytes for row in found.namespaces)
    for row in found.blockers:
        assert bool(row.subscription) == (row.reason == "cursor")


def test_a_list_is_the_beginning_of_the_whole_list() -> None:
    found = overview_of(imported("small", "clean"), top=2)
    assert found.largest == whole("small").largest[:2]
    assert found.backlogs == whole("small").backlogs[:2]
    assert found.blockers == whole("small").blockers[:2]
    assert (found.held, found.namespaces) == (whole("small").held, whole("small").namespaces)


def test_the_copy_is_as_old_as_its_import() -> None:
    assert whole("small").copied_ms == NOW_MS
    assert whole("small").copy_age_ms == 1000


def test_findings_are_counted_by_code() -> None:
    store = imported("small", "crashed")
    with open_store(store) as opened:
        findings = list(check_store(opened))
    found = overview_of(store).findings
    assert found is not None
    assert sum(row.count for row in found) == len(findings)
    assert {(row.severity, row.code) for row in found} == {(one.severity.value, one.code) for one in findings}


def test_largest_keeps_the_first_of_those_alike() -> None:
    largest: Largest[str] = Largest(2)
    for weight, item in ((1, "a"), (3, "b"), (3, "c"), (3, "d"), (0, "e")):
        largest.add(weight, item)
    assert largest.items() == ("b", "c")
    assert Largest[str](0).items() == ()
