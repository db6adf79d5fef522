"""``store check``: sound stores have no problem; each kind of contradiction is found and named with its code."""

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from msgspec.structs import replace

from pulsar_admin.store.codec import ledgermetadata, managedledger
from pulsar_admin.store.codec.cursor import CursorInfo, encode_cursor_info
from pulsar_admin.store.codec.ledgermetadata import decode_ledger_metadata, encode_ledger_metadata, ledger_path
from pulsar_admin.store.codec.managedledger import decode_managed_ledger, encode_managed_ledger
from pulsar_admin.store.db import owners
from pulsar_admin.store.db.audit_log import append_change
from pulsar_admin.store.db.blocks import BLOCK_HEADER, block_key, ledger_key
from pulsar_admin.store.db.environment import Txn, open_store
from pulsar_admin.store.db.files import METADATA_FILE_ID, WHOLE_METADATA, Damage, iter_logs, put_damage, put_log
from pulsar_admin.store.db.ledger_ids import UNFINISHED_REFRESH
from pulsar_admin.store.db.owners import Owner, OwnerKind, put_owners
from pulsar_admin.store.db.tree import Node, put_nodes, read_node, tree_key
from pulsar_admin.store.doctor.diagnosing import check_store
from pulsar_admin.store.model import broken, nodes, topics
from pulsar_admin.store.model.ledger_owners import find_loose_indexed
from pulsar_admin.store.model.ledgers import Ledger
from pulsar_admin.store.names import Position, parse_topic
from pulsar_admin.store.rules.finding import Finding
from tests.conftest import Cli
from tests.deep import deep_but_for
from tests.stores import change_value, copied, imported, lose_nodes, put_node, write_rows
from tests.synthetic import CREATED_MS, Made, MadeTopic, make_store
from tests.worlds import STATES, WORLD_NAMES, scratch_copy

PLAIN = "/managed-ledgers/public/default/persistent/plain"


def findings(path: Path, *, deep: bool = False) -> list[Finding]:
    with open_store(path) as store:
        return list(check_store(store, deep=deep))


def codes(path: Path, *, deep: bool = False) -> set[str]:
    return {finding.code for finding in findings(path, deep=deep) if finding.is_problem}


@pytest.mark.parametrize("name", WORLD_NAMES)
@deep_but_for((2,), "state", STATES)
def test_recorded_worlds_have_no_problem(name: str, state: str) -> None:
    found = findings(imported(name, state), deep=True)
    assert {finding.code for finding in found} == {"ledgers-unreferenced", "ledgers-gone"}
    assert {finding.severity for finding in found} == {"note"}


Change = Callable[[Txn], object]


def _flip(database: str, key: bytes, at: int) -> Change:
    def work(txn: Txn) -> None:
        row = bytearray(txn.get(database, key) or b"")
        row[at] ^= 1
        txn.put(database, key, bytes(row))

    return work


def _set_value(path: str, make: Callable[[bytes], bytes]) -> Change:
    def work(txn: Txn) -> None:
        node = read_node(txn, path)
        put_nodes(txn, [Node(path, node.stat, make(node.value))])

    return work


def _shorter_ledger(value: bytes) -> bytes:
    metadata = decode_ledger_metadata(value, "test")
    return encode_ledger_metadata(replace(metadata, length=metadata.length + 1), value)


def _longer_ledger(value: bytes) -> bytes:
    metadata = decode_ledger_metadata(value, "test")
    return encode_ledger_metadata(replace(metadata, last_entry_id=metadata.last_entry_id + 3), value)


def _other_list(value: bytes) -> bytes:
    managed = decode_managed_ledger(value, "test")
    first, *rest = managed.ledgers
    return encode_managed_ledger(replace(managed, ledgers=(replace(first, entries=first.entries + 1), *rest)), value)


def _stranger_in_list(value: bytes) -> bytes:
    managed = decode_managed_ledger(value, "test")
    first, *rest = managed.ledgers
    return encode_managed_ledger(replace(managed, ledgers=(replace(first, ledger_id=1_000_000), *rest)), value)


def _drop(database: str, key: bytes) -> Change:
    return lambda txn: txn.delete(database, key)


def _uncatalogue(txn: Txn) -> None:
    txn.delete("logs", (1).to_bytes(4, "big"))


def _shrink(txn: Txn) -> None:
    log = next(iter(iter_logs(txn)))
    put_log(txn, replace(log, size_bytes=5000))


BLOCK, TIMES = block_key(9, 0), ledger_key(9)
CASES: dict[str, tuple[Change, set[str]]] = {
    "messages of a block": (_flip("entries", BLOCK, 8), {"block-inconsistent", "times-differ"}),
    "bytes of a block": (_flip("entries", BLOCK, 16), {"block-inconsistent", "times-differ"}),
    "time of a block": (_flip("entries", BLOCK, 24), {"times-differ"}),
    "count of a block": (_flip("entries", BLOCK, 0), {"block-damaged"}),
    "file of a block": (_flip("entries", BLOCK, 7), {"block-inconsistent"}),
    "far offset": (_flip("entries", BLOCK, BLOCK_HEADER.size + 3), {"block-inconsistent"}),
    "sum of a ledger": (_flip("times", TIMES, 16), {"times-differ"}),
    "running time": (_flip("times", TIMES, 112), {"times-differ"}),
    "version of a time row": (_flip("times", TIMES, 0), {"times-damaged"}),
    "no time row": (_drop("times", TIMES), {"times-missing"}),
    "no block": (_drop("entries", BLOCK), {"times-surplus"}),
    "no owner": (_drop("owners", TIMES), {"owners-differ"}),
    "other owner": (lambda txn: put_owners(txn, 9, (Owner(OwnerKind.CURSOR, "x", "y"),)), {"owners-differ"}),
    "owner of nothing": (lambda txn: put_owners(txn, 12345, (Owner(OwnerKind.CURSOR, "x", "y"),)), {"owners-differ"}),
    "row of a file": (
        lambda txn: txn.put("logs", (1).to_bytes(4, "big"), b"x"), {"catalogue-damaged", "check-stopped", "block-inconsistent"}
    ),
    "no such file": (_uncatalogue, {"block-inconsistent"}),
    "file too short": (_shrink, {"block-inconsistent"}),
    "damage of no file": (lambda txn: put_damage(txn, Damage(77, 5, 5, "x", -1, -1)), {"damage-without-file"}),
    "rubbish in the audit log": (lambda txn: txn.put("changes", bytes(8), b"x"), {"changes-damaged"}),
    "a change that undoes itself": (lambda txn: append_change(txn, 0, "x", (), undoes=1), {"changes-damaged"}),
    "rubbish kept for export": (lambda txn: txn.put("base", tree_key("/x"), b"x"), {"base-damaged"}),
    "rubbish in the tree": (lambda txn: txn.put("tree", tree_key("/x"), b"x"), {"node-damaged"}),
    "value of a topic": (_set_value(PLAIN, lambda _: b"\xff"), {"value-undecodable", "topic-unreadable", "owners-differ"}),
    "value of a cursor": (_set_value(f"{PLAIN}/half", lambda _: b"\xff"), {"value-undecodable", "cursor-unreadable"}),
    "member of policies": (
        _set_value("/admin/policies/public/default", lambda _: b'{"message_ttl_in_seconds":"soon"}'), {"value-undecodable"}
    ),
    "more partitions than a Java int": (
        _set_value("/admin/partitioned-topics/acme/orders/persistent/parts", lambda _: b'{"partitions":3000000000}'),
        {"value-undecodable"},
    ),
    "list against metadata": (_set_value(PLAIN, _other_list), {"ledger-list-differs"}),
    "list against nothing": (_set_value(PLAIN, _stranger_in_list), {"ledger-missing", "owners-differ"}),
    "lost entries": (_set_value(ledger_path(9), _longer_ledger), {"entries-missing", "ledger-list-differs"}),
    "no metadata of a ledger": (_drop("tree", tree_key(ledger_path(9))), {"ledger-without-metadata"}),
    "lost cursor ledger": (
        _set_value(f"{PLAIN}/half", lambda _: encode_cursor_info(CursorInfo(777, Position(9, 3)))),
        {"cursor-ledger-lost", "owners-differ"},
    ),
}  # fmt: skip


DEEP: dict[str, tuple[Change, set[str]]] = {
    "near offset": (_flip("entries", BLOCK, BLOCK_HEADER.size), {"index-differs"}),
    "largest LAC": (_flip("times", TIMES, 104), {"index-differs"}),
    "length of a ledger": (_set_value(ledger_path(9), _shorter_ledger), {"length-differs"}),
}


@pytest.mark.parametrize(
    ("world", "database", "kept"),
    [
        ("small", "entries", -1),
        ("small", "times", -1),
        ("small", "tree", -1),
        ("small", "tree", 1),
        ("cluster", "copies", -1),
    ],
)
@pytest.mark.usefixtures("damages_stores")
def test_two_damaged_rows_are_both_told(world: str, database: str, kept: int, tmp_path: Path) -> None:
    path = copied(world, "clean", tmp_path)
    with open_store(path, writable=True) as store:
        with store.read() as txn:
            rows = [*txn.items(database)]
        told = []
        for damaged in ([], rows[:1], rows[-1:], [rows[0], rows[-1]]):
            store.write(lambda txn, cut=damaged: [txn.put(database, key, row[:kept]) for key, row in cut])  # type: ignore[misc]
            told.append({(one.code, one.where) for one in check_store(store) if one.is_problem})
            store.write(lambda txn, whole=damaged: [txn.put(database, key, row) for key, row in whole])  # type: ignore[misc]
    before, first, last, both = told
    assert first - before
    assert last - before - first
    assert first | last <= both


@pytest.mark.parametrize("case", DEEP)
def test_only_a_deep_check_finds(case: str, tmp_path: Path, damages_stores: None) -> None:
    change, expected = DEEP[case]
    path = copied("small", "clean", tmp_path)
    write_rows(path, change)
    assert not expected & codes(path)
    assert expected <= codes(path, deep=True)


def test_a_key_that_is_no_ledgers_hides_none_after_it(tmp_path: Path, damages_stores: None) -> None:
    path = copied("small", "clean", tmp_path)

    def work(txn: Txn) -> int:
        count = sum(1 for _ in txn.keys("times", b""))
        txn.put("times", b"\0\0", b"x")
        txn.delete("entries", BLOCK)
        return count

    with open_store(path, writable=True) as store:
        count = store.write(work)
        with store.read() as txn:
            assert len([*find_loose_indexed(txn)]) == count
    assert {"times-damaged", "times-surplus"} <= codes(path)


def test_ledgers_that_nobody_understands_hide_no_damaged_ones(store: Path, damages_stores: None) -> None:
    for ledger_id, value in ((9, b"BookieMetadataFormatVersion\t9\n"), (18, b"\xff"), (21, b"\xff")):
        put_node(store, ledger_path(ledger_id), value)
    found = {one.where for one in findings(store, deep=True) if one.code == "entry-unreadable"}
    assert found == {"ledger 18", "ledger 21"}


@pytest.mark.parametrize(
    ("offset", "entry", "more"),
    [(143_010, 0, set()), (147_740, 24, {"entry-unreadable"})],  # the last one says how long the ledger is
)
def test_a_record_that_rotted_since_import(offset: int, entry: int, more: set[str], tmp_path: Path) -> None:
    from pulsar_admin.store.transfer.imports import ImportOptions
    from tests.stores import import_standalone
    from tests.worlds import scratch_copy

    source = scratch_copy("small", "clean", tmp_path)
    import_standalone(source, tmp_path / "s", ImportOptions(now_ms=1), lambda count: None)
    log = source / "bookkeeper/current/0.log"
    status, data = log.stat(), bytearray(log.read_bytes())
    data[offset + 100] ^= 4  # the payload of an entry of ledger 9
    log.write_bytes(data)
    import os

    os.utime(log, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert codes(tmp_path / "s") == set()
    found = [finding for finding in findings(tmp_path / "s", deep=True) if finding.is_problem]
    assert {finding.code for finding in found} == {"entry-damaged", "index-differs"} | more
    assert any(f"entry 9:{entry}" in finding.message and f"{log} @ {offset:#x}" == finding.where for finding in found)


def test_an_open_ledger_whose_next_entry_is_damaged(tmp_path: Path, damages_stores: None) -> None:
    """``ReadLastConfirmedOp`` and ``LedgerRecoveryOp`` (BookKeeper 4.17) get neither an entry nor that there is none."""
    path, ledger_id = copied("small", "crashed", tmp_path), 227
    assert codes(path) == set()

    def work(txn: Txn) -> None:
        log = next(iter_logs(txn))
        put_damage(txn, Damage(log.file_id, log.size_bytes - 1, 1, "wrong digest", ledger_id, 0))

    write_rows(path, work)
    assert ("recovery-fails", f"ledger {ledger_id}") in {(one.code, one.where) for one in findings(path)}


def test_files_nobody_names(store: Path) -> None:
    (store / "entries" / "own-9.log").write_bytes(b"x")
    (stray,) = [finding for finding in findings(store) if finding.code == "stray-file"]
    assert (stray.severity, stray.where) == ("note", str(store / "entries" / "own-9.log"))


@pytest.mark.usefixtures("damages_stores")
def test_only_a_ledger_with_entries_after_its_end_is_extended(store: Path) -> None:
    change_value(store, PLAIN, _other_list)
    (found,) = [one for one in findings(store) if one.code == "ledger-list-differs"]
    assert found.mend == "pulsar-admin ledgers info 9"


def test_a_file_of_another_time(store: Path, cli: Cli) -> None:
    """A copy of a store whose files have other times has not grown; one byte more is growth."""
    cli("--store", store, "compaction", "run", "acme/orders/compacted")
    (own,) = (store / "entries").glob("own-*.log")
    os.utime(own, (1, 1))
    found = [one for one in findings(store) if one.where == str(own)]
    assert [(one.severity, one.code) for one in found] == [("note", "file-touched")]
    own.write_bytes(own.read_bytes() + b"\0")
    found = [one for one in findings(store) if one.where == str(own)]
    assert [(one.severity, one.code) for one in found] == [("note", "file-grown")]


@pytest.mark.usefixtures("damages_stores")
def test_lists_and_metadata_are_decoded_a_few_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many ledgers of a topic are lost, its list is not decoded for each; metadata is for its topic, its copies, and itself."""
    entries = [Made(CREATED_MS, lost=True)]
    path = make_store(tmp_path / "s", {"t/n/lost": MadeTopic([entries] * 60), "t/n/there": MadeTopic([entries] * 40)})
    lose_nodes(path, *(ledger_path(ledger_id) for ledger_id in range(10, 70)))
    lists = _counted(monkeypatch, "decode_managed_ledger", (managedledger, nodes, topics))
    metadata = _counted(monkeypatch, "decode_ledger_metadata", (ledgermetadata, nodes))
    with open_store(path) as store:
        codes = Counter(found.code for found in check_store(store))
    assert codes["ledger-missing"] == 60
    assert codes["entries-missing"] == 40
    assert lists.total() <= 2 * 2 + 2
    assert metadata.total() <= 3 * 40 + 2


@pytest.mark.usefixtures("damages_stores")
def test_no_command_forgets_what_may_only_not_have_been_read(cli: Cli, tmp_path: Path) -> None:
    store = copied("small", "clean", tmp_path)
    write_rows(store, CASES["list against nothing"][0])
    write_rows(store, CASES["lost cursor ledger"][0])
    put_node(store, f"{PLAIN}-partition-0", b"")
    cli.on(store, "topics set-deduplication public/default/plain --disable").ends(0)
    put_node(store, f"{PLAIN}/pulsar.dedup", encode_cursor_info(CursorInfo(-1, Position(0, -1))))

    def mend(code: str = "ledger-missing") -> str:
        return next(str(row["mend"]) for row in cli.json(store, "doctor") if row["code"] == code)

    assert "ledgers forget" in mend()
    assert "topics reset-cursor" in mend("cursor-ledger-lost")
    assert "topics delete" in mend("topic-beside-partitions")
    assert "topics unsubscribe" in mend("dedup-cursor-left")
    write_rows(store, lambda txn: txn.put("state", UNFINISHED_REFRESH, b""))
    assert mend() == "pulsar-admin store refresh"
    write_rows(store, lambda txn: txn.delete("state", UNFINISHED_REFRESH))
    write_rows(store, lambda txn: put_damage(txn, Damage(METADATA_FILE_ID, WHOLE_METADATA, 1, "log.1: cut", -1, -1)))
    codes = ("ledger-missing", "cursor-ledger-lost", "topic-beside-partitions", "dedup-cursor-left")
    assert set(map(mend, codes)) == {"pulsar-admin store refresh"}


@pytest.mark.usefixtures("damages_stores")
def test_why_skips_no_ledger_that_may_only_not_have_been_read(cli: Cli, tmp_path: Path) -> None:
    store = copied("small", "clean", tmp_path)
    for change in (CASES["no metadata of a ledger"][0], _drop("times", TIMES), _drop("entries", BLOCK)):
        write_rows(store, change)

    def command() -> str:
        why = cli.json(store, "topics why public/default/plain -s never")
        return str(next(reason["command"] for reason in why["reasons"] if reason["code"] == "lost-entries"))

    assert "topics reset-cursor" in command()
    write_rows(store, lambda txn: put_damage(txn, Damage(METADATA_FILE_ID, WHOLE_METADATA, 1, "log.1: cut", -1, -1)))
    assert command() == "pulsar-admin store refresh"


def _counted(monkeypatch: pytest.MonkeyPatch, name: str, modules: tuple[ModuleType, ...]) -> Counter[str]:
    """Count the calls of the decoder NAME, under every module that has it."""
    calls = Counter[str]()
    decode = getattr(modules[0], name)

    def counting(value: bytes, where: str, **options: bool) -> object:
        calls[where] += 1
        return decode(value, where, **options)

    for module in modules:
        monkeypatch.setattr(module, name, counting)
    return calls


@pytest.mark.usefixtures("damages_stores")
def test_many_lost_ledgers_are_one_finding_and_asked_for_once(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A topic that lost thousands of ledgers lost them for one reason."""
    store, lost = copied("small", "clean", tmp_path), 2_000
    path = parse_topic("public/default/plain").path

    def lose(value: bytes) -> bytes:
        found = decode_managed_ledger(value, path)
        more = tuple(replace(found.ledgers[0], ledger_id=10_000_000 + number) for number in range(lost))
        return encode_managed_ledger(replace(found, ledgers=(*found.ledgers[:-1], *more)))

    change_value(store, path, lose)
    rows = [row for row in cli.json(store, "store check") if row["code"] == "ledger-missing"]
    assert [(row["where"], row["context"]["ledgers"]) for row in rows] == [
        (f"{lost:,} ledgers of persistent://public/default/plain", lost)
    ]
    assert (
        "for ledger 10000000 of persistent://public/default/plain; the same for each of the others"
        in rows[0]["message"]
    )
    assert len(cli("--store", store, *rows[0]["hint"].partition("pulsar-admin ")[2].split(), "-o", "json").json) >= lost
    asked = Counter[int]()
    find = broken.find_ledger

    def counted(txn: Txn, ledger_id: int) -> Ledger | None:
        asked[ledger_id] += 1
        return find(txn, ledger_id)

    monkeypatch.setattr(broken, "find_ledger", counted)
    monkeypatch.setattr(owners, "find_owners", None)  # its own list owns them
    answer = cli("--store", store, "topics", "stats", "public/default/plain").ends(1)
    assert answer.stderr.count("warning: ") == 7
    assert f"{lost:,} ledgers are broken" in answer.stderr
    assert {asked[10_000_000 + number] for number in range(lost)} == {1}


@pytest.mark.usefixtures("damages_stores")
@deep_but_for((1,), "is_damaged", [False, True])
def test_a_deep_check_beside_a_writer_checks_what_is_at_rest(is_damaged: bool, cli: Cli, tmp_path: Path) -> None:
    """A log that is written to is read to where the import ended, its ledgers are left out, and all else is compared."""
    source, path = scratch_copy("cluster", "clean", tmp_path), tmp_path / "s"
    assert cli("--store", path, "store", "import", "standalone", source).exit_code == 0
    check = ("--store", path, "store", "check", "--deep", "-o", "jsonl")
    before = {row["code"] for row in cli(*check).json_lines}
    logs = sorted(file for file in (source / "bookkeeper1" / "current").glob("*.log") if file.stat().st_size)
    assert len(logs) > 1
    with open(logs[-1], "ab") as file:
        file.write((1000).to_bytes(4, "big") + b"half of a record")
    if is_damaged:
        other = sorted((source / "bookkeeper2" / "current").glob("*.log"))[0]
        times, data = other.stat(), bytearray(other.read_bytes())
        data[1024 + 60] ^= 1
        other.write_bytes(data)
        os.utime(other, ns=(times.st_atime_ns, times.st_mtime_ns))
    answer = cli(*check)
    told = {row["code"]: row for row in answer.json_lines}
    found = told["not-checked"]
    assert (found["severity"], found["context"]["live"], found["context"]["gone"]) == ("note", 1, 0)
    assert found["context"]["read"] > found["context"]["live"]
    assert "stop the processes that write" in found["hint"]
    assert bool(told.keys() - before - {"not-checked", "file-grown"}) is is_damaged
    assert "index-differs" not in told or is_damaged
