"""``store recover`` at level B: the metadata that a real ZooKeeper had earlier, put back under the bookies of later, and rolled forward."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import Struct

from pulsar_admin.store.codec.ledgermetadata import LedgerState
from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.model.cursors import read_cursors
from pulsar_admin.store.model.ledgers import find_metadata, iter_indexed_ids, read_ledger
from pulsar_admin.store.model.reader import open_reader
from pulsar_admin.store.model.topics import iter_topics, read_topic
from pulsar_admin.store.names import parse_topic
from pulsar_admin.store.recovery import closing
from pulsar_admin.store.recovery.chains import LOST_AND_FOUND
from pulsar_admin.store.recovery.closing import fit_ensembles, make_ledger
from pulsar_admin.store.recovery.rolling import _rolled_topic
from tests.conftest import Cli
from tests.deep import deep_but_for
from tests.plans.test_restoring import holders_of
from tests.stores import apply_values, imported, put_back, read_rows
from tests.worlds import CLUSTER, copy_tree, world


class State(Struct):
    """Entries of each topic by ledger, and where its subscriptions stand."""

    ledgers: dict[str, dict[int, int]]
    cursors: dict[tuple[str, str], Any]


def state_of(path: Path) -> State:
    found = State({}, {})
    with open_store(path) as store, open_reader(store) as reader:
        for name in iter_topics(reader.txn):
            topic = read_topic(reader.txn, name)
            found.ledgers[str(name)] = {one.ledger_id: one.entries for one in topic.ledgers if one.entries}
            for cursor in read_cursors(reader.txn, reader, topic).values():
                found.cursors[str(name), cursor.name] = topic.place(cursor.mark_delete)
    return found


def rolled(state: str, zxid: int, tmp_path: Path, cli: Cli, folder: str = "store") -> tuple[Path, State]:
    """Return a store whose metadata was put back to ZXID and rolled forward, and what that metadata had."""
    store = Path(shutil.copytree(imported(CLUSTER, state), tmp_path / folder))
    put_back(store, world(CLUSTER) / state / "zookeeper", zxid)
    then = state_of(store)
    assert cli("--store", store, "store", "recover", "--cluster", "standalone").exit_code == 0
    return store, then


@deep_but_for(
    (0, 1, 4, 5),
    ("state", "zxid"),
    [("clean", 0xF0), ("clean", 0x1E0), ("clean", 0x2A0), ("crashed", 0x35D), ("crashed", 0x4B4), ("crashed", 0x500)],
)
def test_every_message_of_topics_of_then_is_served_by_its_own_topic(
    state: str, zxid: int, tmp_path: Path, cli: Cli
) -> None:
    """The truth is what the broker's own metadata listed at the end; ledgers that it trimmed since come back, too."""
    store, then = rolled(state, zxid, tmp_path, cli)
    truth, now = state_of(imported(CLUSTER, state)), state_of(store)
    owners = {ledger: topic for topic, ledgers in truth.ledgers.items() for ledger in ledgers}
    lost_and_found = {one for topic, ledgers in now.ledgers.items() if str(LOST_AND_FOUND) in topic for one in ledgers}
    for topic, listed in then.ledgers.items():
        if listed:  # one that had no message then says nothing of the ledgers it got
            assert truth.ledgers.get(topic, {}).items() <= now.ledgers[topic].items(), topic
    for topic, ledgers in now.ledgers.items():
        if str(LOST_AND_FOUND) not in topic:
            assert {owners.get(one, topic) for one in ledgers} <= {topic}
    everywhere = {one for ledgers in now.ledgers.values() for one in ledgers}
    assert owners.keys() <= everywhere
    assert lost_and_found.isdisjoint(one for one, topic in owners.items() if then.ledgers.get(topic))
    with open_store(store) as opened, opened.read() as txn:  # what others follow takes no more entries
        for topic in then.ledgers:
            followed = [find_metadata(txn, ledger) for ledger in [*now.ledgers[topic]][:-1]]
            assert {one.state for one in followed if one} <= {LedgerState.CLOSED}, topic
    for key, place in now.cursors.items():  # acknowledged more than it ever was: a message would be lost
        if key in truth.cursors:
            with_trimmed = sum(now.ledgers[key[0]].values()) - sum(truth.ledgers[key[0]].values())
            assert place <= truth.cursors[key] + with_trimmed, key


def test_metadata_of_ledgers_is_what_brokers_wrote(tmp_path: Path, cli: Cli) -> None:
    """Quorums, ends, lengths, digests and claims equal; bookies as far as entries tell of them."""
    store, _ = rolled("crashed", 0x35D, tmp_path, cli)
    with (
        open_store(imported(CLUSTER, "crashed")) as original,
        original.read() as was,
        open_store(store) as again,
        again.read() as now,
    ):
        ids = read_topic(now, parse_topic("public/default/plain")).ids[-10:]
        for ledger_id in ids[:-1]:
            old, new = find_metadata(was, ledger_id), find_metadata(now, ledger_id)
            assert (old.last_entry_id, old.length, old.write_quorum, old.ack_quorum, old.ensemble_size) == (
                new.last_entry_id,
                new.length,
                new.write_quorum,
                new.ack_quorum,
                new.ensemble_size,
            )
            assert (old.digest_type, old.custom, old.password) == (new.digest_type, new.custom, new.password)
            assert holders_of(old) == holders_of(new)
        last = find_metadata(now, ids[-1])  # open when it was killed
        assert last.state is LedgerState.CLOSED


def test_a_made_ledger_has_every_entry_from_one_on() -> None:
    with open_store(imported("small", "clean")) as store, open_reader(store) as reader:
        counts = {one: read_ledger(reader.txn, one).sums.entries for one in iter_indexed_ids(reader.txn)}
        assert {one: make_ledger(reader, one, {}, None).entries for one in counts} == counts
        assert min(counts.values()) == 1


def test_what_a_bookie_collected_as_garbage_meanwhile_is_told(tmp_path: Path, cli: Cli) -> None:
    """Rows of the indexes are gone as garbage collection on the older metadata deletes them, the entry logs are there."""
    folder, store, young = tmp_path / "disks", tmp_path / "store", range(65, 150)
    for number in range(3):
        current = folder / f"bookkeeper{number}" / "current"
        copy_tree(world(CLUSTER) / "clean" / current.relative_to(folder), current)
        apply_values(current / "ledgers", {one.to_bytes(8, "big"): None for one in young})
        for journal in current.glob("*.txn"):
            os.truncate(journal, 512)  # to its header: the rest would be replayed
    zookeeper = folder / "zookeeper"
    zookeeper.symlink_to(world(CLUSTER) / "clean" / "zookeeper")
    assert cli("--store", store, "store", "import", "standalone", folder).exit_code in (0, 1)
    put_back(store, zookeeper, 0x1E0)
    lines = cli("--store", store, "store", "recover", "--cluster", "standalone", "-o", "jsonl").stdout.splitlines()
    (told,) = (text for text in json.loads(lines[0])["warnings"] if "store salvage" in text)
    assert "in entry logs but in no bookie's index" in told
    there = [one for ledgers in state_of(store).ledgers.values() for one in ledgers if one in young]
    assert told.startswith(f"{len(there)} ledgers are")
    assert len(there) > 20


# -- ensembles that a crash leaves --------------------------------------------------------------------------------------


def held_of(rows: dict[str, str]) -> dict[str, Any]:
    return {
        bookie: np.array([at for at, one in enumerate(row) if one == "x"], np.int64) for bookie, row in rows.items()
    }


@pytest.mark.parametrize(
    ("rows", "astray"),
    [
        ({"a": "x.xx.x", "b": "xx.xx.", "c": ".xx.xx"}, 0),  # round robin over a, b, c
        ({"a": "x.xx..", "b": "xx.xx.", "c": ".xx.x."}, 1),  # the last entry: on no bookie of a, c yet
        ({"a": "x.xx..", "b": "xx.xx.", "c": ".xx.xx"}, 1),  # entry 5 is on one of its two
    ],
)
def test_ensembles_serve_every_entry_there_is(rows: dict[str, str], astray: int) -> None:
    held = held_of(rows)
    last = max(int(one.max()) for one in held.values())
    write_quorum, segments, found = fit_ensembles(1, held, last, None)
    assert write_quorum == 2
    assert {frozenset(one.members) for one in segments} == {frozenset("abc")}
    for entry in range(last + 1):
        members = [one.members for one in segments if one.first_entry_id <= entry][-1]
        expected = {members[(entry + step) % 3] for step in range(2)}
        assert any(entry in held[bookie] for bookie in expected)
    assert found == (astray if last == 5 else 0)


@pytest.mark.parametrize(
    ("rows", "nowhere"),
    [
        ({"a": "xx.x", "b": "xx.x"}, {2}),
        ({"a": "..", "b": ".x"}, {0}),
        # Not all orders are tried, and the last entry is on the bookie that has the fewest.
        ({**{f"b{one}": "".join(".x"[(at + one) % 3 == 0] for at in range(20)) + "." for one in range(10)}, "z": "." * 20 + "x"}, set()),
    ],
    ids=["a hole", "no first entry", "many bookies"],
)  # fmt: skip
def test_ensembles_end_where_an_entry_is_nowhere_or_on_a_rare_bookie(
    rows: dict[str, str], nowhere: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(closing, "ORDERS_MAX", 24)
    held, last = held_of(rows), len(next(iter(rows.values()))) - 1
    write_quorum, segments, _ = fit_ensembles(1, held, last, None)
    assert segments[0].first_entry_id == 0
    for entry in {*range(last + 1)} - nowhere:
        members = [one.members for one in segments if one.first_entry_id <= entry][-1]
        asked = {members[(entry + step) % len(members)] for step in range(write_quorum)}
        assert any(entry in held[bookie] for bookie in asked), entry


def test_a_topic_keeps_the_ledgers_around_those_that_were_deleted() -> None:
    nothing: Any = None  # it is asked for younger ledgers only
    topic = read_rows(imported("small", "clean"), lambda txn: read_topic(txn, parse_topic("public/default/plain")))
    for number in range(len(topic.ids)):
        after = _rolled_topic(nothing, nothing, topic, {topic.ids[number]}, [])
        assert [*after.ids] == [*topic.ids[:number], *topic.ids[number + 1 :]]
        assert after.managed.properties == topic.managed.properties
