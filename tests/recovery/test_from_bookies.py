"""Level C on the world of a cluster of which the bookies alone are left; its ZooKeeper says afterwards what was right."""

import csv
import re
import shlex
import shutil
import struct
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from pulsar_admin.cli import run
from pulsar_admin.store.codec.cursor import CursorState
from pulsar_admin.store.codec.journal import encode_header as encode_journal_header
from pulsar_admin.store.codec.ledgermetadata import LedgerState, Segment
from pulsar_admin.store.db.audit_log import append_change
from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.db.tree import find_node, iter_nodes
from pulsar_admin.store.facts.indexes import read_master_keys
from pulsar_admin.store.model.ledgers import find_metadata, read_ledger, sorted_ledger_ids
from pulsar_admin.store.model.topics import iter_topics, read_topic
from pulsar_admin.store.names import Position
from pulsar_admin.store.recovery.from_bookies import _cursor_chains, _CursorLedger
from pulsar_admin.store.recovery.metadata_index import LedgerNames
from pulsar_admin.store.transfer.ensemble_export import COMMAND
from tests import stores
from tests.agreeing import check_agreement
from tests.conftest import Cli
from tests.recovery.test_undelete import damage
from tests.recovery.written import entries_of
from tests.stores import apply_values, read_rows, values_of, write_rows
from tests.worlds import CLUSTER, scratch_copy, world

BOOKIES = ("bookkeeper0", "bookkeeper1", "bookkeeper2")


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of the bookies alone, to be copied."""
    store = tmp_path_factory.mktemp("bookies") / "bookies-alone"
    import_bookies(store)
    return store


@pytest.fixture
def bare(imported: Path, tmp_path: Path) -> Path:
    """A store of the bookies alone."""
    return Path(shutil.copytree(imported, tmp_path / "bookies-alone"))


def import_bookies(store: Path, *more: str) -> None:
    source = world(CLUSTER) / "crashed"
    given = [word for name in BOOKIES for word in ("--bookie", str(source / name))]
    assert run(["--store", str(store), "-q", "store", "import", "cluster", *given, *more]) in (0, 1)


def test_every_ledger_comes_back_as_it_was(cli: Cli, bare: Path, tmp_path: Path) -> None:
    whole = tmp_path / "with-zookeeper"
    import_bookies(whole, "--zookeeper", str(world(CLUSTER) / "crashed" / "zookeeper"))
    result = cli.done("--store", bare, "store", "recover", "--yes", "-o", "json")
    assert result.json[0]["after"]["level"] == "C"
    assert not any("Then: --level B" in text for text in result.json[0]["warnings"])  # they are recovered
    with open_store(whole) as right, right.read() as truth, open_store(bare) as made, made.read() as txn:
        for ledger_id in sorted_ledger_ids(truth):
            was, now = find_metadata(truth, ledger_id), find_metadata(txn, ledger_id)
            if now is None:
                assert read_ledger(truth, ledger_id).entries == 0
                continue
            assert (now.write_quorum, now.digest_type, now.password) == (2, was.digest_type, b"")
            assert now.last_entry_id == read_ledger(truth, ledger_id).last_entry_id
            if was.state is LedgerState.CLOSED:
                assert now.length == was.length
            if now.last_entry_id > 0:  # one entry tells two of the three bookies
                assert now.segments == was.segments
        schemas = ("/schemas/public/default/avro", "/schemas/public/default/json")
        for prefix in ("/ledgers/cookies", "/ledgers/LAYOUT", "/admin/tenants", *schemas):
            for node in iter_nodes(truth, prefix):
                found = find_node(txn, node.path)
                assert found.value == node.value


LOST, NEW = 2, 3


def replace_a_bookie(source: Path) -> dict[int, int]:
    """Replace bookie 2 by a new one in the way of ``bookkeeper shell recover``; return how many entries have which number of copies.

    Upstream ``LedgerFragmentReplicator`` copies all entries of a fragment from the first to the last that the lost bookie
    had, those that round robin put on the two others, too.
    """
    each = [entries_of([source / name]) for name in BOOKIES]
    log = bytearray(b"BKLO" + struct.pack(">iqi", 1, 0, 0)).ljust(1024, b"\0")
    copies: Counter[int] = Counter()
    for ledger_id, entries in each[LOST].items():
        for entry_id in range(min(entries), max(entries) + 1):
            record = next(having[ledger_id][entry_id] for having in each if entry_id in having.get(ledger_id, ()))
            log += struct.pack(">i", len(record)) + record
            copies[1 + sum(entry_id in having.get(ledger_id, ()) for having in each[:LOST])] += 1
    shutil.rmtree(source / BOOKIES[LOST])
    current = source / f"bookkeeper{NEW}" / "current"
    current.mkdir(parents=True)
    (current / "0.log").write_bytes(log)
    (current / "1.txn").write_bytes(encode_journal_header(6))
    cookie = (source / BOOKIES[0] / "current" / "VERSION").read_text()
    (current / "VERSION").write_text(cookie.replace("bk0test", "bk3test").replace("bookkeeper0", "bookkeeper3"))
    return copies


def test_quorums_after_a_bookie_was_replaced(cli: Cli, tmp_path: Path) -> None:
    """A third of the entries has three copies since; the quorums are what ZooKeeper says, and the plan's own store has no problem."""
    source, store = scratch_copy(CLUSTER, "crashed", tmp_path), tmp_path / "store"
    copies = replace_a_bookie(source)
    assert copies[2] > copies[3] > 500
    given = [word for number in (0, 1, NEW) for word in ("--bookie", str(source / f"bookkeeper{number}"))]
    assert run(["--store", str(store), "-q", "store", "import", "cluster", *given]) in (0, 1)
    assert cli("--store", store, "store", "recover", "--level", "C", "--yes").exit_code == 0
    whole = tmp_path / "with-zookeeper"
    import_bookies(whole, "--zookeeper", str(world(CLUSTER) / "crashed" / "zookeeper"))
    with open_store(whole) as right, right.read() as truth, open_store(store) as made, made.read() as txn:
        found = [one for one in sorted_ledger_ids(truth) if find_metadata(txn, one) is not None]
        for ledger_id in found:
            was, now = find_metadata(truth, ledger_id), find_metadata(txn, ledger_id)
            assert (ledger_id, now.write_quorum, now.ack_quorum) == (ledger_id, 2, 2)
            if now.last_entry_id > 1:  # fewer entries do not show all three bookies
                members = tuple("bk3test" if one == "bk2test" else one for one in was.segments[0].members)
                assert now.segments == (Segment(0, members),), ledger_id
        assert len(found) > 120
    (problem,) = [row for row in cli.on(store, "-o json store check").json if row["severity"] == "problem"]
    # The one entry that was on one bookie alone when all were killed.
    assert (problem["where"], problem["context"]["bookies"]) == ("ledger 263", {"bk3test": 1})


def test_lists_have_what_the_metadata_of_ledgers_has(cli: Cli, tmp_path: Path, damages_stores: None) -> None:
    """Ledgers end before their first lost entry: what comes after it is in the index, and not in the ledger."""
    source, store = scratch_copy(CLUSTER, "crashed", tmp_path), tmp_path / "store"
    damage(source)
    given = [word for name in BOOKIES for word in ("--bookie", str(source / name))]
    assert run(["--store", str(store), "-q", "store", "import", "cluster", *given]) in (0, 1)
    assert cli("--store", store, "store", "recover", "--level", "C", "--yes").exit_code == 0
    codes = {row["code"] for row in cli("--store", store, "-o", "json", "store", "check").json}
    assert "file-damaged" in codes
    assert "ledger-list-differs" not in codes


def test_bookies_that_disagree_are_told_of(cli: Cli, bare: Path, tmp_path: Path) -> None:
    """Where no cookie tells clusters apart, only the entries do: ledgers of both have the same ids."""
    told = "bookies have different bytes for entries of"
    assert told not in cli.done("--store", bare, "store", "recover", "--dry-run").stdout
    source, store = scratch_copy(CLUSTER, "crashed", tmp_path), tmp_path / "store"
    other = scratch_copy("small", "clean", tmp_path) / "bookkeeper"
    for cookie in (*source.rglob("VERSION"), *other.rglob("VERSION")):
        cookie.unlink()
    given = [word for name in (*BOOKIES, other) for word in ("--bookie", f"{Path(name).name}={source / name}")]
    assert run(["--store", str(store), "-q", "store", "import", "cluster", *given]) == 1
    assert re.search(told + r" \d+ ledgers \(3, ", cli("--store", store, "store", "recover", "--dry-run").stdout)


def test_a_ledger_of_damaged_entries_alone_is_told_of(cli: Cli, tmp_path: Path) -> None:
    source, store = scratch_copy(CLUSTER, "crashed", tmp_path), tmp_path / "store"
    bad = {raw: raw[:-1] + bytes([raw[-1] ^ 1]) for raw in entries_of([source / name for name in BOOKIES])[2].values()}
    for file in (file for suffix in ("log", "txn") for file in source.glob(f"bookkeeper?/current/*.{suffix}")):
        data = file.read_bytes()
        for raw, changed in bad.items():
            data = data.replace(raw, changed)
        file.write_bytes(data)
    given = [word for name in BOOKIES for word in ("--bookie", str(source / name))]
    assert run(["--store", str(store), "-q", "store", "import", "cluster", *given]) == 1
    told = cli.done("--store", store, "store", "recover", "--dry-run").stdout
    why = "no entry has a right digest: bookies delete what is left, unless the id itself is damaged."
    assert f"1 ledger (2) gets no metadata, because {why}" in told
    cli("--store", store, "ledgers", "info", "2").ends(5, "no entry is good: 4 records of it have a wrong digest")


COLLECTED = (8, 19, 21)
"""The first ledgers of a topic; each bookie has entries of each."""


def test_what_bookies_collected_is_left_apart(cli: Cli, tmp_path: Path) -> None:
    """Garbage collection takes a ledger out of the index at once; its entries stay in the log, and no bookie serves them."""
    disks = tmp_path / "o'b"
    source, store = scratch_copy(CLUSTER, "crashed", disks), tmp_path / "store"
    gone, partly = {struct.pack(">q", one): None for one in COLLECTED}, struct.pack(">q", 25)
    for name in BOOKIES:
        apply_values(source / name / "current" / "ledgers", gone)
    apply_values(source / BOOKIES[0] / "current" / "ledgers", {partly: None})  # two bookies serve 25
    given = [word for name in BOOKIES for word in ("--bookie", str(source / name))]
    assert run(["--store", str(store), "-q", "store", "import", "cluster", *given]) in (0, 1)
    told = [row for row in cli("--store", store, "-o", "json", "doctor").json if row["code"] == "ledgers-not-indexed"]
    check_agreement(store)  # metadata that lists no ledger, beside bookies with some
    # Beside these three, those that the bookies' own collection took out of their indexes.
    assert [{*COLLECTED} <= {*row["evidence"]["ledgerIds"]} for row in told] == [True] * len(BOOKIES)
    result = cli("--store", store, "store", "recover", "--level", "C", "--yes", "-o", "json")
    assert "3 ledgers are left apart (8, 19 and 21)" in result.stdout
    assert result.json[0]["after"]["leftApart"] == len(COLLECTED)
    assert all(row["mend"] in " ".join(result.json[0]["warnings"]) for row in told)
    apart = [
        part["resource"]
        for part in result.json
        if (part.get("after") or {}).get("apart") == "bookies' indexes lost all or a part of the ledger"
    ]
    assert apart == [f"ledger {one}" for one in COLLECTED]
    with open_store(store) as opened, opened.read() as txn:
        assert [one for one in (*COLLECTED, 25) if find_metadata(txn, one) is not None] == [25]
        listed = [ledger for name in iter_topics(txn) for ledger in read_topic(txn, name).ids]
    assert not {*COLLECTED} & {*listed}
    assert 25 in listed
    # A journal that is not there may have had them.
    other = tmp_path / "other"
    assert run(["--store", str(other), "-q", "store", "import", "cluster", *given]) in (0, 1)
    journals = [path.rename(path.with_suffix(".away")) for path in source.glob("bookkeeper?/current/*.txn")]
    assert "ledgers-not-indexed" not in {row["code"] for row in cli.on(other, "-o json doctor").json}
    for path in journals:
        path.rename(path.with_suffix(".txn"))
    # As the warning says: the indexes rebuilt, the disks imported again, and nothing is apart.
    for row in told:
        command = shlex.split(row["mend"])
        assert command[:4] == ["pulsar-admin", "store", "salvage", "--collected"]
        done = cli("--store", store, *command[1:], "--yes").ends(0)
        assert "only then start the bookie: it deletes ledgers without metadata again" in done.stdout
    again = tmp_path / "again"
    assert run(["--store", str(again), "-q", "store", "import", "cluster", *given]) in (0, 1)
    assert "ledgers-not-indexed" not in {row["code"] for row in cli.on(again, "-o json store check").json}
    result = cli("--store", again, "store", "recover", "--level", "C", "--yes", "-o", "json")
    assert "leftApart" not in result.json[0]["after"]
    with open_store(again) as opened, opened.read() as txn:
        assert {*COLLECTED} <= {ledger for name in iter_topics(txn) for ledger in read_topic(txn, name).ids}


def test_every_readable_entry_is_in_one_topic(cli: Cli, bare: Path) -> None:
    changed = cli("--store", bare, "-o", "json", "store", "recover", "--yes").json
    made = changed[0]["after"]
    unclaimed = [part["after"] for part in changed if str(part.get("resource")).startswith("ledger ")]
    assert {part["witness"] for part in unclaimed if "witness" in part} <= {"nothing says whose it is"}
    assert all({"kind", "entries"} <= part.keys() for part in unclaimed)
    written = entries_of([world(CLUSTER) / "crashed" / name for name in BOOKIES])
    count: Counter[tuple[int, int]] = Counter()
    with open_store(bare) as opened, opened.read() as txn:
        for name in iter_topics(txn):
            for ledger in read_topic(txn, name).ledgers:
                count.update((ledger.ledger_id, entry) for entry in range(ledger.entries))
    assert set(count.values()) == {1}
    assert made["entries"] == len(count)
    # Messages begin with a magic number or with the size of their metadata; every such entry is in a topic.
    messages = {
        (ledger, entry) for ledger, entries in written.items() for entry, raw in entries.items() if _is_message(raw)
    }
    assert messages <= count.keys()
    assert len(messages) > 2500


def _is_message(raw: bytes) -> bool:
    return raw[32 + 4 : 32 + 6] in (b"\x0e\x01", b"\x0e\x02")


def test_names_of_the_operator(cli: Cli, bare: Path, tmp_path: Path) -> None:
    names = tmp_path / "names.csv"
    recover = ("--store", bare, "store", "recover", "--level", "C", "--names", names)
    assert cli(*recover, "--dry-run").exit_code == 0
    with names.open() as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0])[-1] == "probablyWith"
    row = next(row for row in rows if row["ledgers"].startswith("8 19 21"))
    row["name"] = "persistent://public/default/plain"
    subscription = next(row for row in rows if row["ledger"] == "271")
    assert (subscription["kind"], subscription["of"]) == ("subscription", "8")
    subscription["name"] = "crash-holes"
    with names.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)
    before = names.read_bytes()
    later = shutil.copytree(bare, tmp_path / "named-later")
    assert cli(*recover, "--yes").exit_code == 0
    assert names.read_bytes() == before
    listed = cli("--store", bare, "topics", "list", "public/default").stdout
    assert "persistent://public/default/plain" in listed
    stats = cli("--store", bare, "topics", "stats", "persistent://public/default/plain").json
    assert "crash-holes" in stats["subscriptions"]
    named = values_of(bare)
    assert cli("--store", later, "store", "recover", "--rename", names, "--yes").exit_code == 3  # nothing was recovered
    assert cli("--store", later, "store", "recover", "--yes").exit_code == 0
    nameless = values_of(later)
    proposed = tmp_path / "proposed.csv"
    assert cli("--store", later, "store", "recover", "--rename", proposed, "--yes").exit_code == 0
    assert values_of(later) == nameless != named
    assert cli("--store", later, "store", "recover", "--rename", names, "--yes").exit_code == 0
    assert values_of(later) == named
    assert cli("--store", later, "store", "recover", "--rename", tmp_path / "mistyped.csv", "--yes").exit_code == 0
    assert values_of(later) == named
    assert cli("--store", later, "store", "check").exit_code == cli("--store", bare, "store", "check").exit_code
    back = cli("--store", later, "store", "recover", "--rename", proposed, "--yes")
    assert "a snapshot that was exported before this has the earlier names" in back.stdout
    assert values_of(later) == nameless
    joined = tmp_path / "joined.csv"
    mine = "persistent://lost-and-found/ledgers/from-"
    joined.write_text(proposed.read_text().replace(f"{mine}9,", f"{mine}8,").replace(f"{mine}10,", f"{mine}my-own,"))
    # Both topics have proposals of one name, which is no reason to refuse them as one topic.
    assert cli("--store", later, "store", "recover", "--rename", joined, "--yes").exit_code == 0
    listed = cli("--store", later, "topics", "list", "lost-and-found/ledgers").stdout
    assert all((f"{mine}{name}\n" in listed) == (name in ("8", "my-own")) for name in ("8", "9", "10", "my-own"))
    write_rows(later, lambda txn: append_change(txn, 0, COMMAND, ({"target": "zk1:2181"},)))
    cli("--store", later, "store", "recover", "--rename", names, "--yes").ends(3, "was exported since, by change")
    assert cli("--store", later, "namespaces", "delete", "lost-and-found/ledgers", "--force", "--yes").exit_code == 0
    cli("--store", later, "store", "recover", "--rename", names, "--yes").ends(3, "of the recovery changed since")
    again = cli("--store", bare, "store", "recover", "--level", "C", "--names", names)
    assert again.exit_code == 3  # there is metadata now
    cli("--store", bare, "store", "recover", "--names", names).ends(3, "--names names what level C finds")
    for option in (("--names", names), ("--probable",)):
        needless = cli("--store", stores.imported("small", "clean"), "store", "recover", *option)
        assert needless.exit_code == 3
        assert "this store lacks nothing" in needless.stderr


def test_a_name_that_a_topic_without_a_row_gets_is_refused(cli: Cli, bare: Path, tmp_path: Path) -> None:
    proposed, given = tmp_path / "proposed.csv", tmp_path / "given.csv"
    recover = ("--store", bare, "store", "recover", "--level", "C", "--dry-run", "--names")
    assert cli(*recover, proposed).exit_code == 0
    mine = "persistent://lost-and-found/ledgers/from-"
    lines = proposed.read_text().replace(f"{mine}9,", f"{mine}8,").splitlines(keepends=True)
    given.write_text("".join(line for line in lines if not line.startswith("topic,8,")))
    cli(*recover, given).ends(
        2, f"gives ledger 9 the name {mine}8, which ledger 8 gets: the file has no row of it", "add a row of ledger 8"
    )
    given.write_text("".join(lines))
    assert cli(*recover, given).exit_code == 0


def test_master_keys_are_those_of_no_password(bare: Path) -> None:
    found = read_rows(bare, read_master_keys)
    assert found.agree > 300  # ledgers, each on two of three bookies
    assert found.locked == ()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("kind,ledger\n", "expected the columns kind, ledger and name"),
        ("kind,ledger,name\ntopic,x,persistent://a/b/c\n", "line 2: ledger: expected a number"),
        ("kind,ledger,name\ntopic,8,kafka://a\n", "line 2"),
        ("kind,ledger,name\nqueue,8,persistent://a/b/c\n", "kind: expected topic or subscription"),
        (
            "kind,ledger,name\ntopic,9999,persistent://a/b/c\n",
            "has ledger 9999, but no imported file has an entry of it",
        ),
        (f"kind,ledger,name\ntopic,{'9' * 5000},persistent://a/b/c\n", "line 2: ledger: expected a number"),
        (
            "kind,ledger,name\ntopic,8,persistent://a/b/c\ntopic,8,persistent://a/b/d\n",
            "line 3: ledger 8 has the name 'persistent://a/b/c' in a line before",
        ),
        (
            "kind,ledger,name\nsubscription,101,a\nsubscription,104,a\n",
            "calls two subscriptions of persistent://lost-and-found/ledgers/from-8 'a': those of ledgers 101 and 104",
        ),
        ("\xff", "is not CSV in UTF-8"),
    ],
)
def test_a_file_of_names_that_is_none(cli: Cli, bare: Path, tmp_path: Path, text: str, said: str) -> None:
    names = tmp_path / "names.csv"
    names.write_bytes(text.encode("latin-1"))
    cli("--store", bare, "store", "recover", "--level", "C", "--names", names).ends(2, said)


def test_a_cursor_ledger_goes_on_where_one_other_ended_and_nowhere_else() -> None:
    """Of ids from 0 on, as brokers count them."""
    states = [CursorState(Position(3, entry)) for entry in range(4)]
    ledgers = [
        _CursorLedger(0, None, states[0]),
        _CursorLedger(1, None, states[1]),
        _CursorLedger(2, states[1], states[2]),
        _CursorLedger(5, states[3], states[3]),
    ]
    assert [*_cursor_chains(ledgers)] == [[0], [1, 2], [5]]


def test_names_of_ledgers_end_where_they_end() -> None:
    names = LedgerNames()
    names.add([7, 9], "persistent://a/b/c")
    names.add([], "persistent://a/b/nothing")
    names.add([8], "persistent://a/b/d")
    found = {text: places.tolist() for text, places in names.of(np.array([6, 7, 8, 9]))}
    assert found == {"persistent://a/b/c": [1, 3], "persistent://a/b/d": [2]}
