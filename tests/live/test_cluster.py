"""A real cluster, broken on purpose: every claim of the toolkit is what was planted; mended offline it goes on.

What must be found is counted here, record by record, from the bookies' files and the ensembles.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct, field
from msgspec.structs import replace

from pulsar_admin.store.codec.ledgermetadata import (
    LedgerMetadata,
    LedgerState,
    decode_ledger_metadata,
    ledger_id_of_path,
    ledger_path,
)
from pulsar_admin.store.model.ledgers import find_metadata
from tests.conftest import Cli
from tests.live import recipe
from tests.live.cluster import Bookie, Cluster
from tests.live.cluster_recipe import COMPACTED, KILLED_BOOKIE, POLICY_TOPIC, SCHEMA_TOPIC, read_ledgers
from tests.live.compacting import read_apart
from tests.live.conftest import Clustered, import_cluster
from tests.live.on_disk import JOURNAL_HEADER_BYTES, iter_records
from tests.live.producing import open_client
from tests.live.test_compaction import toolkit_rows
from tests.stores import read_rows
from tests.worlds import copy_tree

pytestmark = pytest.mark.live

Entry = tuple[int, int]
POLICY_AFTER_SECONDS = 7654
_KEYS = ("ledgerId", "entryId", "batchIndex", "publishTime", "sha1", "producer")


class Record(Struct, frozen=True):
    """A record of an entry in a file of a bookie; ``offset``: of its size."""

    bookie: str
    path: Path
    offset: int
    size: int
    entry: Entry


class Copy(Struct):
    """A copy of all disks of a cluster below ``root``, to be damaged."""

    cluster: Cluster
    root: Path
    damaged: set[tuple[str, Entry]] = field(default_factory=set)

    def directory(self, path: Path) -> Path:
        return self.root / path.relative_to("/") / "current"

    def logs(self, bookie: Bookie) -> list[Path]:
        found = [path for one in bookie.ledgers for path in self.directory(one).glob("*.log") if path.stat().st_size]
        return sorted(found)

    def journals(self, bookie: Bookie) -> list[Path]:
        return sorted(path for one in bookie.journals for path in self.directory(one).glob("*.txn"))

    def records(self) -> Iterator[Record]:
        """Every whole record of every file, damaged or not."""
        for bookie in self.cluster.bookies:
            for path in (*self.logs(bookie), *self.journals(bookie)):
                for found in iter_records(path):
                    if min(found.entry) >= 0:
                        yield Record(bookie.bookie_id, path, found.offset, found.size, found.entry)


class Shortfall(Struct, frozen=True):
    """What is to be said of a ledger: entries on too few bookies, the least, those on none, and per bookie what it lacks."""

    short: int
    lowest: int
    lost: int
    lacks: dict[str, int]


def _counted(copy: Copy, ledgers: dict[int, LedgerMetadata]) -> dict[int, Shortfall]:
    held = {(record.bookie, record.entry) for record in copy.records()} - copy.damaged
    found = {}
    for ledger_id, ledger in ledgers.items():
        (segment,) = ledger.segments
        lacks: dict[str, int] = {}
        counts = []
        for entry_id in range(ledger.last_entry_id + 1):
            members = [segment.members[(entry_id + turn) % ledger.ensemble_size] for turn in range(ledger.write_quorum)]
            without = [bookie for bookie in members if (bookie, (ledger_id, entry_id)) not in held]
            for bookie in without:
                lacks[bookie] = lacks.get(bookie, 0) + 1
            counts.append(ledger.write_quorum - len(without))
        if lacks:
            short = sum(count < ledger.write_quorum for count in counts)
            found[ledger_id] = Shortfall(short, min(counts), counts.count(0), lacks)
    return found


@pytest.fixture(scope="module")
def closed(clustered: Clustered) -> dict[int, LedgerMetadata]:
    """The metadata of every closed ledger, as ZooKeeper had it."""
    found = {}
    for path, value in clustered.world.said["ledgers"].items():
        ledger_id = ledger_id_of_path(path)
        assert ledger_id is not None
        metadata = decode_ledger_metadata(bytes.fromhex(value), path)
        if metadata.state is LedgerState.CLOSED:
            found[ledger_id] = metadata
    return found


@pytest.fixture
def copy(clustered: Clustered, tmp_path: Path) -> Copy:
    cluster = clustered.world.cluster
    copied = Copy(cluster, tmp_path / "copied")
    copy_tree(cluster.folder, copied.root / cluster.folder.relative_to("/"))
    return copied


def _said(cli: Cli, store: Path, closed: dict[int, LedgerMetadata]) -> dict[int, Shortfall]:
    rows = cli("--store", store, "ledgers", "underreplicated", "-o", "json").json
    return {
        row["ledgerId"]: Shortfall(
            row["short"],
            row["lowest"],
            row["lost"],
            {bookie["bookie"]: bookie["expected"] - bookie["held"] for bookie in row["bookies"]},
        )
        for row in rows
        if row["ledgerId"] in closed
    }


def _problems(cli: Cli, store: Path) -> list[dict[str, Any]]:  # Any: JSON
    return [row for row in cli("--store", store, "store", "check", "-o", "json").json if row["severity"] == "problem"]


def _flip(record: Record) -> None:
    """Change one bit of the entry's payload."""
    with record.path.open("r+b") as file:
        file.seek(record.offset + 4 + record.size - 1)
        (last,) = file.read(1)
        file.seek(-1, 1)
        file.write(bytes([last ^ 1]))


def test_a_healthy_cluster_is_passed_over_in_silence(clustered: Clustered, cli: Cli) -> None:
    for words in (("store", "check"), ("ledgers", "missing"), ("ledgers", "underreplicated")):
        result = cli("--store", clustered.store, *words, "-o", "json")
        found = [row for row in result.json if row.get("severity") not in ("summary", "note")]
        assert (result.exit_code, found) == (0, []), words
    orphans = cli("--store", clustered.store, "ledgers", "orphans", "-o", "json").json
    assert {(row["ledgerId"], row["reason"]) for row in orphans} == {
        (one, "unreferenced") for one in clustered.world.said["unlisted"]
    }


def test_what_is_lost_of_disks_is_counted(
    clustered: Clustered, closed: dict[int, LedgerMetadata], copy: Copy, tmp_path: Path, cli: Cli
) -> None:
    first, other, last = clustered.world.cluster.bookies
    for bookie in (first, last):
        for journal in copy.journals(bookie):  # as when they are behind: what is in logs is in no journal any more
            journal.write_bytes(journal.read_bytes()[:JOURNAL_HEADER_BYTES])
    assert _counted(copy, closed) == {}
    records = [record for record in copy.records() if record.entry[0] in closed]
    by_log: dict[Path, list[Record]] = {}
    for record in records:
        by_log.setdefault(record.path, []).append(record)
    places = {(record.bookie, record.entry): record for record in records}
    gone = max(copy.logs(first), key=lambda path: len(by_log.get(path, ())))
    on_both = [record for record in by_log[gone] if (last.bookie_id, record.entry) in places]
    lost = places[last.bookie_id, on_both[len(on_both) // 2].entry]
    covered = next(
        record for record in records if record.bookie == last.bookie_id and (other.bookie_id, record.entry) in places
    )
    gone_entries = {record.entry for record in by_log[gone]}
    # Of the records that are cut off none is in the log that is gone: only the flipped one is lost on both.
    cut = max(
        (
            path
            for path in copy.logs(last)
            if path not in (lost.path, covered.path)
            and len(by_log.get(path, ())) > 3
            and gone_entries.isdisjoint(record.entry for record in by_log[path][-3:])
        ),
        key=lambda path: len(by_log[path]),
    )
    for record in (lost, covered):
        _flip(record)
        copy.damaged.add((record.bookie, record.entry))
    end = by_log[cut][-3]
    with cut.open("r+b") as file:
        file.truncate(end.offset + 4 + end.size // 2)
    gone.unlink()

    store = tmp_path / "store"
    metadata = copy.root / clustered.world.cluster.zookeeper_data.relative_to("/")
    import_cluster(clustered.world.cluster, store, metadata, copy.root, code=1)
    expected = _counted(copy, closed)
    assert len(expected) > 5
    assert {ledger_id for ledger_id, short in expected.items() if short.lost} == {lost.entry[0]}
    assert _said(cli, store, closed) == expected
    (missing,) = cli("--store", store, "ledgers", "missing", "-o", "json").json
    assert (missing["ledgerId"], missing["ranges"]) == (lost.entry[0], [[lost.entry[1], lost.entry[1]]])
    found = cli("--store", store, "store", "check", "-o", "json").json
    assert {row["where"] for row in found if row["code"] == "file-damaged"} == {
        str(path) for path in (lost.path, covered.path, cut)
    }
    copies = [row for row in found if row["code"] in ("copies-missing", "copies-damaged")]
    named = {int(row["where"].removeprefix("ledger ")) for row in copies}
    assert named & closed.keys() == expected.keys()  # open ledgers, such as those of cursors, lost copies, too
    _check_rows(cli, store, clustered.world.said, lost.entry)


def _check_rows(cli: Cli, store: Path, said: dict[str, Any], lost: Entry | None = None) -> None:
    """Every message is read as the client read it, but those of the entry LOST, whose topic alone ends with exit code 1."""
    for topic, rows in said["rows"].items():
        result = cli("--store", store, "topics", "read", topic, "-o", "jsonl")
        expected = [row for row in rows if (row[0], row[1]) != lost]
        assert [[row[key] for key in _KEYS] for row in result.json_lines] == expected
        assert result.exit_code == (1 if len(expected) < len(rows) else 0), result.stderr


def test_two_bookies_of_three_have_every_entry(
    clustered: Clustered, closed: dict[int, LedgerMetadata], tmp_path: Path, cli: Cli
) -> None:
    cluster, store = clustered.world.cluster, tmp_path / "store"
    confs = [("--bookie-conf", str(bookie.configuration)) for bookie in cluster.bookies]
    absent, gone = confs.pop(KILLED_BOOKIE), cluster.bookies[KILLED_BOOKIE].bookie_id
    common = ("--store", store, "store", "import", "cluster", "--zookeeper", cluster.zookeeper_data)
    report = cli(*common, *confs[0], *confs[1], "-o", "json")
    assert report.json["absentBookies"] == [gone]
    assert "2 of 3 bookies imported" in report.stderr
    _check_rows(cli, store, clustered.world.said)
    rows = cli("--store", store, "ledgers", "underreplicated", "-o", "json").json
    assert {row["ledgerId"]: row["unknown"] for row in rows if row["ledgerId"] in closed} == {
        ledger_id: unknown for ledger_id, ledger in closed.items() if (unknown := _expected_of(ledger, gone))
    }
    assert {row["bookie"] for ledger in rows for row in ledger["bookies"]} == {gone}
    checked = cli("--store", store, "store", "check", "-o", "json")
    expected = [
        "bookie-not-imported",
        *(["ledgers-unreferenced"] if clustered.world.said["unlisted"] else []),
        "checked",
    ]
    assert (checked.exit_code, [row["code"] for row in checked.json]) == (0, expected)
    assert cli("--store", store, "ledgers", "missing").exit_code == 0

    assert cli("--store", store, "store", "add", "bookie", *absent).exit_code == 0
    for words in (("store", "check"), ("ledgers", "missing"), ("ledgers", "underreplicated")):
        assert cli("--store", store, *words).exit_code == 0, words
    _check_rows(cli, store, clustered.world.said)


def _expected_of(ledger: LedgerMetadata, bookie: str) -> int:
    """How many entries of LEDGER are to be on BOOKIE."""
    (segment,) = ledger.segments
    turns = [(segment.members.index(bookie) - turn) % ledger.ensemble_size for turn in range(ledger.write_quorum)]
    return sum(entry_id % ledger.ensemble_size in turns for entry_id in range(ledger.last_entry_id + 1))


def test_a_broken_cluster_is_mended_and_goes_on(clustered: Clustered, tmp_path: Path, cli: Cli) -> None:
    cluster, said, store = clustered.world.cluster, clustered.world.said, tmp_path / "store"
    cluster.start_zookeeper()
    planted = _plant(cluster, said)
    import_cluster(cluster, store, cluster.zookeeper_address)
    _check_claims(cli, store, said, planted)
    _mend(cli, store, said, planted)
    _do(cli, store, "topics", "set-message-ttl", POLICY_TOPIC, "-t", POLICY_AFTER_SECONDS)
    compaction = _do(cli, store, "compaction", "run", COMPACTED.topic, "--from-start")
    compacted = toolkit_rows(store, COMPACTED.topic)
    export = ("store", "export", "zookeeper", cluster.zookeeper_address, "--yes")
    cli("--store", store, *export).ends(3, "store export bookie")
    confs = [word for bookie in cluster.bookies for word in ("--bookie-conf", bookie.configuration)]
    exported = _do(cli, store, "store", "export", "bookie", *confs)
    event, ledger = exported["ledgers"]
    assert ledger["ledgerId"] == compaction["after"]["compactedLedger"]
    assert [len(one["bookies"]) for one in (event, ledger)] == [2, 2]
    assert sum(len(written["ledgers"]) for written in exported["written"]) == 4
    _do(cli, store, *export)

    cluster.start_bookies()
    cluster.start_broker()
    after = recipe.ask(cluster)
    expected = {topic: rows for topic, rows in said["rows"].items() if topic != SCHEMA_TOPIC}
    interrupted = {(row[0], row[1], row[2], row[4]) for row in after["rows"].pop(recipe.INTERRUPTED)}
    assert {tuple(row) for row in said["confirmed"]} <= interrupted
    after["rows"].pop(SCHEMA_TOPIC, None)
    assert after["rows"] == {topic: rows for topic, rows in expected.items() if topic != recipe.INTERRUPTED}
    stats = after["internal"][COMPACTED.topic]["compactedLedger"]
    assert (stats["ledgerId"], stats["entries"]) == (ledger["ledgerId"], ledger["entries"])
    assert read_apart(cluster.service_url, COMPACTED.topic) == compacted
    assert cluster.get(f"persistent/{POLICY_TOPIC}/messageTTL") == POLICY_AFTER_SECONDS
    client = open_client(cluster.service_url)
    for topic in expected:
        producer = client.create_producer(f"persistent://{topic}")
        producer.send(b"after")
    client.close()
    metadata = read_ledgers(cluster)[ledger_path(ledger["ledgerId"])]
    assert list(decode_ledger_metadata(bytes.fromhex(metadata), "").segments[0].members) == ledger["bookies"]
    cluster.stop()


def _do(cli: Cli, store: Path, *words: object) -> Any:  # Any: JSON
    """One command that has to work; its result."""
    result = cli.done("--store", store, *words, "-o", "json")
    return result.json


class Planted(Struct, frozen=True):
    """What was done to the metadata behind the broker's back."""

    victim: int  # its metadata deleted by BookKeeper's shell
    events: tuple[int, ...]  # of ``__change_events``, their metadata deleted
    unlisted: tuple[int, ...]  # of a topic whose list of ledgers was deleted
    deleted: int  # made and deleted by BookKeeper's shell: no bookie has collected it


def _plant(cluster: Cluster, said: dict[str, Any]) -> Planted:
    """Break the metadata of a cluster whose ZooKeeper runs; its bookies ran meanwhile."""
    cluster.start_bookies()
    told = cluster.shell(0, "simpletest", "-ensemble", 3, "-writeQuorum", 2, "-ackQuorum", 2, "-numEntries", 10)
    deleted = re.search(r"10 entries written to ledger (\d+)", told)
    assert deleted is not None, told
    planted = Planted(
        said["internal"][recipe.PLAIN]["ledgers"][2]["ledgerId"],
        tuple(_ledgers_of(said, "acme/orders/persistent/__change_events")),
        tuple(ledger["ledgerId"] for ledger in said["internal"][SCHEMA_TOPIC]["ledgers"]),
        int(deleted[1]),
    )
    cluster.shell(0, "deleteledger", "-ledgerid", planted.victim, "-force")
    with cluster.zookeeper() as client:
        for ledger_id in planted.events:
            client.delete(ledger_path(ledger_id))
        client.delete(f"/managed-ledgers/{SCHEMA_TOPIC.replace('default/', 'default/persistent/')}")
    cluster.stop_bookies()
    return planted


def _check_claims(cli: Cli, store: Path, said: dict[str, Any], planted: Planted) -> None:
    """What the toolkit finds is what was planted, no more and no less."""
    lost = {planted.victim, *planted.events}
    missing = cli("--store", store, "ledgers", "missing", "-o", "json")
    assert {(row["ledgerId"], row["reason"]) for row in missing.json} == {(one, "no-metadata") for one in lost}
    orphans = cli("--store", store, "ledgers", "orphans", "-o", "json").json
    assert {(row["ledgerId"], row["reason"]) for row in orphans} == {
        (planted.deleted, "gone"),  # a server tells no history of its nodes
        *((one, "unreferenced") for one in said["unlisted"]),
        *((one, "unknown") for one in planted.unlisted),  # nobody deleted their topic
    }
    assert cli("--store", store, "ledgers", "underreplicated").exit_code == 0
    problems = {(row["code"], row["where"].split(" of ")[0]) for row in _problems(cli, store)}
    assert problems == {
        *(("ledger-without-metadata", f"ledger {one}") for one in lost),
        ("topic-vanished", f"persistent://{SCHEMA_TOPIC}"),
    }
    for ledger_id in lost:
        assert cli("--store", store, "ledgers", "info", ledger_id).exit_code == 1
    for topic in said["rows"]:
        if topic != SCHEMA_TOPIC:
            result = cli("--store", store, "topics", "stats", topic)
            # A broker loads no topic of a namespace whose policies of topics it cannot read.
            assert result.exit_code == (1 if topic.startswith("acme/orders/") else 0), (topic, result.stderr)
            assert (f"ledger {planted.victim}:" in result.stderr) == (topic == recipe.PLAIN), result.stderr


def _mend(cli: Cli, store: Path, said: dict[str, Any], planted: Planted) -> None:
    """The victim comes back as it was, the events and the orphans go."""
    _do(cli, store, "ledgers", "restore", planted.victim)
    path = ledger_path(planted.victim)
    original = decode_ledger_metadata(bytes.fromhex(said["ledgers"][path]), path)
    restored = read_rows(store, lambda txn: find_metadata(txn, planted.victim))
    assert restored == replace(original, ctoken=restored.ctoken if restored else None)
    forgotten = _do(cli, store, "ledgers", "forget", *planted.events, "--yes")
    assert POLICY_TOPIC in str(forgotten)
    _do(cli, store, "ledgers", "delete", *planted.unlisted, "--force", "--yes")
    assert _problems(cli, store) == []
    assert cli("--store", store, "ledgers", "missing", "-o", "json").json == []


def _ledgers_of(said: dict[str, Any], managed_ledger: str) -> list[int]:
    """The ledgers that say that they are of MANAGED_LEDGER, none of a cursor."""
    found = []
    for path, value in said["ledgers"].items():
        custom = decode_ledger_metadata(bytes.fromhex(value), path).custom
        if custom.get("pulsar/managed-ledger") == managed_ledger.encode() and "pulsar/cursor" not in custom:
            ledger_id = ledger_id_of_path(path)
            assert ledger_id is not None
            found.append(ledger_id)
    return sorted(found)
