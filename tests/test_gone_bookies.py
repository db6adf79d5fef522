"""Ledgers that name bookies which are not of the cluster: what a client gets of them, and the commands that help."""

import random
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from pulsar_admin.store.codec.ledgermetadata import LedgerMetadata, LedgerState, Segment
from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.model.coverage import gone_quorum, read_disks, read_held
from pulsar_admin.store.model.ledgers import find_metadata, iter_ledger_ids, read_ledger
from pulsar_admin.store.model.topics import iter_topics, read_topic
from pulsar_admin.store.recovery import ledgers
from pulsar_admin.store.recovery.ledgers import name_bookies
from tests.conftest import Cli
from tests.deep import deep_but_for
from tests.moved_bookies import change_ledgers, renamed
from tests.stores import copied, read_rows
from tests.test_placement import ledger, upstream_write_set
from tests.worlds import world

BOOKIES = {"small": ("127.0.0.1:34299",), "cluster": ("bk0test", "bk1test", "bk2test")}
OLD = ("old0:3181", "old1:3181", "old2:3181")
CODES = {"ensemble-elsewhere", "bookie-gone", "ledger-on-gone-bookies", "entries-not-served", "entry-log-missing"}


def _findings(path: Path, cli: Cli) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for row in cli("--store", path, "store", "check", "-o", "json").json:
        if row["severity"] == "problem":
            found.setdefault(row["code"], []).append(row)
    return found


def _diagnoses(path: Path, cli: Cli, *more: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = cli("--store", path, "doctor", *more, "-o", "json").json
    return [row for row in rows if row["code"] in CODES]


def _mend(path: Path, cli: Cli) -> list[str]:
    """Run what the doctor prints, until it prints nothing any more."""
    done: list[str] = []
    while rows := _diagnoses(path, cli):
        words = shlex.split(rows[0]["mend"])
        assert words[0] == "pulsar-admin"
        cli.done("--store", path, *words[1:], "--yes")
        done.append(" ".join(words[1:4]))
        assert len(done) < 10, done
    return done


def _client(path: Path) -> dict[int, tuple[bool, set[int]]]:
    """Return of each ledger whether a client can open it, and which of its entries up to its end it gets then: one by one."""
    found = {}
    with open_store(path) as store, store.read() as txn:
        disks = read_disks(txn)
        for ledger_id in iter_ledger_ids(txn):
            one = read_ledger(txn, ledger_id)
            metadata = one.metadata
            held = {bookie: set(ids.tolist()) for bookie, ids in (read_held(txn, ledger_id, disks) or {}).items()}
            answering = [bookie in disks.imported for bookie in metadata.segments[-1].members]
            size, quorum = metadata.ensemble_size, metadata.write_quorum
            silent = [sum(not answering[(i + j) % size] for j in range(quorum)) for i in range(size)]
            opens = metadata.state is LedgerState.CLOSED or max(silent) < metadata.ack_quorum
            entries = {
                entry
                for entry in range(one.last_entry_id + 1)
                if any(
                    entry in held.get(bookie, ())
                    for bookie in upstream_write_set(metadata, entry)
                    if bookie in disks.imported
                )
            }
            found[ledger_id] = (opens, entries)
    return found


def _ends(path: Path) -> dict[int, int]:
    return read_rows(path, lambda txn: {one: read_ledger(txn, one).last_entry_id for one in iter_ledger_ids(txn)})


def _payloads(path: Path, topic: str, cli: Cli) -> list[Any]:
    rows = cli("--store", path, "topics", "read", topic, "-o", "jsonl").json_lines
    return [(row["ledgerId"], row["entryId"], row["sha1"]) for row in rows]


@deep_but_for(
    (1, 2),
    ("name", "count", "state"),
    [("small", 1, "crashed"), ("cluster", 1, "clean"), ("cluster", 2, "crashed"), ("cluster", 3, "clean")],
)
def test_renamed_bookies(name: str, count: int, state: str, tmp_path: Path, cli: Cli) -> None:
    """The disks are here under other ids than the ledgers': what clients do not get is told, and the doctor's commands bring all back."""
    path = copied(name, state, tmp_path)
    whole, ends = _client(path), _ends(path)
    before = _payloads(path, "public/default/plain", cli)
    change_ledgers(path, renamed(dict(zip(BOOKIES[name], OLD[:count], strict=False))))
    broken = _client(path)
    missing = {row["ledgerId"]: row for row in cli("--store", path, "ledgers", "missing", "-o", "json").json}
    for ledger_id, (opens, entries) in broken.items():
        lost = set(range(ends[ledger_id] + 1)) - (entries if opens else set())
        told = missing.pop(ledger_id, None)
        if opens and not lost:
            assert told is None, ledger_id
        else:
            assert told is not None, ledger_id
            named = {entry for first, last in told["ranges"] for entry in range(first, last + 1)}
            assert (named, told["reason"]) == (lost, "elsewhere" if opens else "gone-bookies"), ledger_id
    assert missing == {}
    with open_store(path) as store, store.read() as txn:
        topics = {str(one): set(read_topic(txn, one).ids) & broken.keys() for one in iter_topics(txn)}
    for topic, ids in topics.items():
        is_hurt = any(not broken[one][0] or len(broken[one][1]) <= ends[one] for one in ids)
        assert cli("--store", path, "topics", "stats", topic).exit_code == is_hurt, topic
    criticals = _diagnoses(path, cli, "--severity", "critical")
    hurt = any(not opens or len(entries) <= ends[one] for one, (opens, entries) in broken.items())
    assert bool(criticals) is hurt
    if hurt:
        assert OLD[0] in criticals[0]["where"] + criticals[0]["message"]
    done = _mend(path, cli)
    assert done[0] == "ledgers restore --to-bookies"
    assert _findings(path, cli).keys() <= {"copies-missing"}
    assert cli("--store", path, "ledgers", "missing", "-o", "json").json == []
    after = _client(path)
    assert all(opens and len(entries) == len(whole[one][1]) for one, (opens, entries) in after.items() if entries)
    assert {one for one in whole if one not in after} <= {one for one, end in ends.items() if end < 0}
    assert _payloads(path, "public/default/plain", cli) == before


def test_exported(tmp_path: Path, cli: Cli) -> None:
    """As ZooKeeper's snapshot: an import of that with the same disks finds nothing."""
    path = copied("cluster", "crashed", tmp_path)
    change_ledgers(path, renamed(dict(zip(BOOKIES["cluster"], OLD[:2], strict=False))))
    _mend(path, cli)
    assert cli("--store", path, "store", "export", "zookeeper-snapshot", tmp_path / "zk", "-q").exit_code == 0
    with open_store(path) as store:
        disks = [source["path"] for source in store.info.sources[0:1]]
    given = [word for number in range(3) for word in ("--bookie", Path(disks[0]) / f"bookkeeper{number}")]
    again = tmp_path / "again"
    cli.done("--store", again, "store", "import", "cluster", "--zookeeper", tmp_path / "zk", *given, "-q")
    assert _findings(again, cli).keys() <= {"copies-missing"}
    assert _diagnoses(again, cli) == []


@pytest.mark.parametrize("has_cookie", [True, False])
def test_a_bookie_that_is_not_here(has_cookie: bool, tmp_path: Path, cli: Cli) -> None:
    """With a cookie it may run, and nobody knows; without one its copies are gone, and so are those that no other bookie has."""
    path = tmp_path / "s"
    cluster = world("cluster") / "clean"
    given = [word for number in (0, 1) for word in ("--bookie", cluster / f"bookkeeper{number}")]
    cli("--store", path, "store", "import", "cluster", "--zookeeper", cluster / "zookeeper", *given, "-q")
    change_ledgers(path, renamed({"bk1test": "bk2test", "bk2test": "bk1test"}, ledgers={8}))
    change_ledgers(path, lambda _, metadata: metadata, without_cookies=() if has_cookie else ("bk2test",))
    found = _findings(path, cli)
    coverage = cli("--store", path, "ledgers", "info", 8, "-o", "json").json["coverage"]
    (row,) = (row for row in coverage["bookies"] if row["bookie"] == "bk2test")
    assert (row["imported"], row["gone"], row["missing"]) == (
        False,
        not has_cookie,
        None if has_cookie else row["expected"],
    )
    if has_cookie:
        assert found.keys() & CODES == set()
        refused = cli("--store", path, "ledgers", "forget", 8, "-o", "json")
        assert refused.exit_code != 0
        return
    (gone,) = (row for row in _diagnoses(path, cli) if row["code"] == "bookie-gone")
    assert (gone["severity"], gone["where"]) == ("warning", "bookie bk2test")
    assert gone["mend"] == "pulsar-admin store add bookie bk2test=DIR,DIR"
    notes = cli("--store", path, "store", "check", "-o", "json").json
    assert "bookie-not-imported" not in {row["code"] for row in notes}
    words = shlex.split(gone["mend"].replace("DIR,DIR", str(cluster / "bookkeeper2")))
    cli("--store", path, *words[1:]).ends(1, "no cookie of its bookie bk2test")
    assert "bookie-gone" not in {row["code"] for row in _diagnoses(path, cli)}


def test_what_may_have_more_of_an_open_ledger_comes_in_before_it_is_closed(tmp_path: Path, cli: Cli) -> None:
    """Two of three bookies have new ids, the third is not imported: the others' ledgers are mended, and of these the next step is told."""
    path, cluster = tmp_path / "s", world("cluster") / "crashed"
    given = [word for number in (0, 1) for word in ("--bookie", cluster / f"bookkeeper{number}")]
    cli("--store", path, "store", "import", "cluster", "--zookeeper", cluster / "zookeeper", *given, "-q")
    change_ledgers(path, renamed(dict(zip(BOOKIES["cluster"], OLD[:2], strict=False))))
    states = read_rows(path, lambda txn: {one: find_metadata(txn, one).state for one in iter_ledger_ids(txn)})
    told = cli("--store", path, "ledgers", "restore", "--to-bookies")
    assert (told.exit_code, "left as it is: ledger 263 was never closed, and bk2test" in told.stdout) == (0, True)
    rows = {row["ledgerId"]: row for row in cli("--store", path, "ledgers", "missing", "-o", "json").json}
    assert "elsewhere" not in {row["reason"] for row in rows.values()}
    assert {states[one] for one, row in rows.items() if row["reason"] == "gone-bookies"} == {LedgerState.OPEN}
    refused = cli("--store", path, "ledgers", "forget", 249, "-o", "json").error["message"]
    assert "bk2test, which is not imported, may have entries of it" in refused
    assert "ledger-on-gone-bookies" not in {row["code"] for row in _diagnoses(path, cli)}
    assert "store add bookie bk2test=DIR,DIR" in cli("--store", path, "ledgers", "missing").stderr


def test_a_closed_ledger_whose_other_bookie_may_have_it_is_no_loss(tmp_path: Path, cli: Cli) -> None:
    """Only what was never closed can be so that nobody closes it; what a bookie that is not imported may have is not lost."""
    path, cluster = tmp_path / "s", world("cluster") / "clean"
    given = ("--zookeeper", cluster / "zookeeper", "--bookie", cluster / "bookkeeper0")
    cli("--store", path, "store", "import", "cluster", *given, "-q")
    elsewhere = renamed({"bk1test": OLD[0]})

    def of_some_entries(ledger_id: int, metadata: LedgerMetadata) -> LedgerMetadata:
        return (
            elsewhere(ledger_id, metadata) if metadata.last_entry_id >= 2 else metadata
        )  # of three the other two have one alone

    change_ledgers(path, of_some_entries)
    assert {row["reason"] for row in cli.json(path, "ledgers missing")} == {"not-imported"}
    assert _diagnoses(path, cli) == []


def test_metadata_without_any_cookie_tells_of_no_bookie_that_it_is_gone(store: Path, cli: Cli) -> None:
    change_ledgers(store, renamed({BOOKIES["small"][0]: OLD[0]}, ledgers={9}), without_cookies=BOOKIES["small"])
    found = _findings(store, cli)
    assert found.keys() & CODES == set()
    refused = cli("--store", store, "ledgers", "forget", 9, "-o", "json")
    assert (refused.exit_code != 0, OLD[0] in refused.error["message"]) == (True, True)


def test_lost_with_its_bookie(store: Path, cli: Cli) -> None:
    """Entries that only a gone bookie had are nowhere: critical for a ledger that somebody waits for, and it can be forgotten."""

    def lost(ledger_id: int, metadata: LedgerMetadata) -> LedgerMetadata:
        if ledger_id != 9:
            return metadata
        return replace(metadata, segments=(Segment(0, (OLD[0],)),), last_entry_id=40)

    change_ledgers(store, lost)
    rows = {row["code"]: row for row in _diagnoses(store, cli)}
    assert rows["bookie-gone"]["severity"] == "critical"
    assert rows["bookie-gone"]["evidence"]["entries"] == 41 - 25
    assert "of persistent://public/default/plain is not past it" in rows["bookie-gone"]["message"]
    assert rows["ensemble-elsewhere"]["evidence"]["entries"] == 25
    refused = cli("--store", store, "ledgers", "forget", 9, "-o", "json")
    assert "which clients do not ask for them" in refused.error["message"]


# -- ensembles --------------------------------------------------------------------------------------------------------


def _gets(metadata: LedgerMetadata, last: int, served: Mapping[str, set[int]]) -> set[int]:
    return {
        entry
        for entry in range(last + 1)
        if any(entry in served.get(bookie, ()) for bookie in upstream_write_set(metadata, entry))
    }


def test_bookies_take_the_places_of_those_that_are_gone() -> None:
    """Copies written by round robin, then bookies renamed or lost: clients get every entry that a bookie has."""
    rng = random.Random(35)
    for _ in range(150):
        size = rng.randint(1, 4)
        quorum = rng.randint(1, size)
        last = rng.randint(0, 40)
        names = [f"b{number}" for number in range(size + 1)]
        starts = sorted({0, *(rng.randint(1, last + 1) for _ in range(rng.randint(0, 2)))})
        written = ledger([(start, tuple(rng.sample(names, size))) for start in starts if start <= last], quorum, quorum)
        new = {name: f"new-{name}" if rng.random() < 0.6 else name for name in names}
        lost = {name for name in names if rng.random() < 0.15}
        served: dict[str, set[int]] = {}
        for entry in range(last + 1):
            for bookie in upstream_write_set(written, entry):
                if bookie not in lost:
                    served.setdefault(new[bookie], set()).add(entry)
        gone = frozenset(name for name in names if new[name] != name or name in lost)
        imported = frozenset(served)
        arrays = {bookie: np.array(sorted(entries), np.int64) for bookie, entries in served.items()}
        write_quorum, segments = name_bookies(written, last, arrays, imported, gone)
        assert write_quorum == quorum
        after = replace(written, segments=segments)
        assert _gets(after, last, served) == {entry for entries in served.values() for entry in entries}
        assert all(len(set(one.members)) == size for one in segments)
        if not lost:
            exact = [Segment(one.first_entry_id, tuple(new[name] for name in one.members)) for one in written.segments]
            joined = [one for place, one in enumerate(exact) if not place or one.members != exact[place - 1].members]
            assert sum(len(one) for one in served.values()) == (last + 1) * quorum
            counts = [sum(e in served.get(b, ()) for b in upstream_write_set(after, e)) for e in range(last + 1)]
            assert counts == [quorum] * (last + 1)
            assert len(segments) <= len(joined)


def test_no_entry_is_left_out_that_a_bookie_has() -> None:
    """Records lost at random: those of bookies that are not asked come in, whatever the ones that stay lack, and none goes."""
    rng, came = random.Random(1), 0
    for _ in range(300):
        size, last = rng.randint(1, 3), rng.randint(0, 12)
        quorum, names = rng.randint(1, size), ["b0", "b1", "b2", "b3"]
        starts = sorted({0, rng.randint(0, last)})
        written = ledger([(start, tuple(rng.sample(names, size))) for start in starts], quorum, quorum)
        gone = frozenset(name for name in names if rng.random() < 0.25)
        running = {name for name in names if name not in gone and rng.random() < 0.1}
        found = {
            name: {entry for entry in range(last + 1) if rng.random() < rng.choice([0.3, 0.9])}
            for name in names
            if name not in gone and name not in running
        }
        served = {name: entries for name, entries in found.items() if entries}
        arrays = {name: np.array(sorted(entries), np.int64) for name, entries in served.items()}
        write_quorum, segments = name_bookies(written, last, arrays, frozenset(found), gone)
        after = replace(written, segments=segments, write_quorum=write_quorum, ensemble_size=len(segments[0].members))
        before, gets = _gets(written, last, served), _gets(after, last, served)
        known = {
            entry
            for entries in served.values()
            for entry in entries
            if running.isdisjoint(upstream_write_set(written, entry))
        }
        assert gets >= before | known
        came += gets > before
    assert came > 100


@pytest.mark.parametrize("hole", [0, 500, 998])
def test_everything_but_a_hole_on_one_bookie(hole: int) -> None:
    """An entry that nobody has makes no ensemble of each of the others."""
    written = ledger([(0, ("b0", "b1", "b2"))], 2, 2)
    served = {"new": np.delete(np.arange(1000, dtype=np.int64), hole)}
    quorum, segments = name_bookies(written, 999, served, frozenset(served), frozenset({"b0", "b1", "b2"}))
    assert (quorum, segments) == (1, (Segment(0, ("new",)),))


def test_ensembles_are_the_same_however_many_entries_are_looked_at_first(monkeypatch: pytest.MonkeyPatch) -> None:
    rng, names = random.Random(3), ["b0", "b1", "b2", "b3"]
    for _ in range(40):
        size = rng.randint(1, 3)
        written = ledger([(0, tuple(rng.sample(names, size)))], rng.randint(1, size), 1)
        found = {one: np.array([at for at in range(60) if rng.random() < rng.choice([0.4, 0.95])]) for one in names[1:]}
        answers = []
        for first in (1, 7, 60):
            monkeypatch.setattr(ledgers, "_FIRST_ENTRIES", first)
            answers.append(name_bookies(written, 59, found, frozenset(found), frozenset({"b0"})))
        assert answers == [answers[0]] * 3


def test_when_a_recovery_hears_too_few() -> None:
    """Upstream ``RRQuorumCoverageSet``: of a write set, fewer than the ack quorum may stay silent."""
    names = ("b0", "b1", "b2", "b3")
    for size in (1, 2, 3, 4):
        for quorum in range(1, size + 1):
            for acks in range(1, quorum + 1):
                metadata = replace(ledger([(0, names[:size])], quorum, acks), state=LedgerState.OPEN)
                for mask in range(1 << size):
                    gone = {name for place, name in enumerate(names[:size]) if mask >> place & 1}
                    sets = [[names[(i + j) % size] for j in range(quorum)] for i in range(size)]
                    fails = any(sum(name in gone for name in one) >= acks for one in sets)
                    assert bool(gone_quorum(metadata, gone)) is fails
