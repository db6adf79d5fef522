"""``bookies rename`` on the recorded cluster: what its ZooKeeper names is counted apart, and the disks follow by an export alone."""

from pathlib import Path
from typing import Any

from msgspec.structs import replace

from pulsar_admin.store.codec.bookie import decode_cookie, encode_cookie
from pulsar_admin.store.db.bookies import iter_renamed
from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.db.tree import Node, find_node, put_nodes
from pulsar_admin.store.facts.under_replication import MARKS
from pulsar_admin.store.transfer.imports import ImportOptions
from tests.conftest import Cli
from tests.recovery.written import writes_of
from tests.stores import NOW_MS, copied, import_standalone, put_node, read_rows, write_rows
from tests.worlds import CLUSTER, digest_of, scratch_copy

OLD, NEW = "bk0test", "bookie-0.pulsar.example:3181"


def named(version_2: Path) -> dict[str, int]:
    """Path → how often a node that is left names the bookie, by its bytes."""
    last = {path: value for _, path, value in writes_of(version_2)}
    counts = {path: (value or b"").count(OLD.encode()) for path, value in last.items() if path.startswith("/ledgers/")}
    return {path: count for path, count in counts.items() if count}


def codes(cli: Cli, store: Path) -> dict[str, int]:
    found: dict[str, int] = {}
    for row in cli("--store", store, "-o", "json", "doctor").json:
        found[row["code"]] = found.get(row["code"], 0) + 1
    return found


def starts(cli: Cli, store: Path) -> list[tuple[str, bool]]:
    found: Any = cli("--store", store, "-o", "json", "store", "preflight").json  # JSON
    return [(row["bookie"], row["starts"]) for row in found["bookies"]]


def test_a_bookie_gets_another_id_and_its_disks_by_the_export(cli: Cli, tmp_path: Path, damages_stores: None) -> None:
    source, store = scratch_copy(CLUSTER, "crashed", tmp_path), tmp_path / "store"
    import_standalone(source, store, ImportOptions(now_ms=NOW_MS), lambda _: None)
    before, disk = codes(cli, store), source / "bookkeeper0"
    untouched = digest_of(disk)
    counts = named(source / "zookeeper" / "version-2")
    ledgers = {path: count for path, count in counts.items() if "/cookies/" not in path}
    assert len(ledgers) > 100
    shown = cli("--store", store, "-o", "json", "bookies", "rename", OLD, NEW, "--dry-run").json
    assert shown["after"] == {
        "was": OLD,
        "bookieId": NEW,
        "cookie": True,
        "ledgers": len(ledgers),
        "ensembles": sum(ledgers.values()),
        "marks": 0,
    }
    assert codes(cli, store) == before

    cli.done("--store", store, "bookies", "rename", OLD, NEW)
    listed = cli("--store", store, "-o", "json", "bookies", "list-bookies").json["bookies"]
    assert {row["bookieId"] for row in listed} == {NEW, "bk1test", "bk2test"}
    cookie = cli("--store", store, "store", "cat", f"/ledgers/cookies/{NEW}", "--raw").stdout
    assert f'bookieHost: "{NEW}"' in cookie
    # Copies are counted on the renamed bookie; but for its own files, nothing else is told.
    assert {code: count for code, count in codes(cli, store).items() if code != "bookie-cookie-refused"} == before
    assert digest_of(disk) == untouched
    assert starts(cli, store) == [(OLD, False), ("bk1test", True), ("bk2test", True)]
    told, entries = codes(cli, store), cli("--store", store, "store", "info", "-o", "json").json["entries"]
    assert "another cluster" not in cli.done("--store", store, "store", "refresh", "--forget").stderr
    assert codes(cli, store) == told
    assert cli("--store", store, "store", "info", "-o", "json").json["entries"] == entries
    salvage = cli("--store", store, "store", "salvage", disk, "--dry-run")
    salvage.ends(3, f"bookie {OLD} is {NEW} in the metadata since it was renamed", "store export bookie DIR,DIR")

    report = cli("--store", store, "-o", "json", "store", "export", "bookie", disk, "--dry-run").json
    assert report["cookies"] == [{"path": str(disk / "current" / "VERSION"), "was": OLD, "bookie": NEW}]
    assert digest_of(disk) == untouched
    # By its new id, too, as its configuration may have it by then.
    cli.done("--store", store, "-o", "json", "store", "export", "bookie", f"{NEW}={disk}", "--yes")
    assert f'bookieHost: "{NEW}"'.encode() in (disk / "current" / "VERSION").read_bytes()
    assert cli("--store", store, "-o", "json", "store", "export", "bookie", disk, "--dry-run").json["cookies"] == []
    snapshot = tmp_path / "snapshot"
    assert cli("--store", store, "store", "export", "zookeeper-snapshot", snapshot, "--yes").exit_code == 0
    again = tmp_path / "again"
    given = [word for number in range(3) for word in ("--bookie", str(source / f"bookkeeper{number}"))]
    assert cli("--store", again, "store", "import", "cluster", "--zookeeper", snapshot, *given).exit_code in (0, 1)
    assert starts(cli, again) == [(NEW, True), ("bk1test", True), ("bk2test", True)]
    # A new snapshot has no history: which ledgers were deleted nobody knows any more.
    assert set(codes(cli, again)) - {"ledgers-gone"} <= set(before)


def test_bookies_whose_directories_have_the_same_names_are_not_mixed_up(
    cli: Cli, tmp_path: Path, damages_stores: None
) -> None:
    """As those of a StatefulSet: all but the id of their cookies is the same."""
    store = copied(CLUSTER, "crashed", tmp_path)
    ids = (OLD, "bk1test", "bk2test")
    with open_store(store, writable=True) as opened, opened.read() as txn:
        nodes = [find_node(txn, f"/ledgers/cookies/{name}") for name in ids]
        cookie = decode_cookie(nodes[0].value, "")
        alike = [
            Node(node.path, node.stat, encode_cookie(replace(cookie, bookie_id=name)))
            for node, name in zip(nodes, ids, strict=True)
        ]
    write_rows(store, lambda txn: put_nodes(txn, alike))
    for line in (f"{OLD} c:3181", "bk1test b:3181", "bk2test x:3181", "x:3181 a:3181", "c:3181 d:3181"):
        assert cli("--store", store, "bookies", "rename", *line.split()).exit_code == 0
    assert cli("--store", store, "store", "undo", "5").exit_code == 0
    write_rows(store, lambda txn: txn.put("changes", bytes(8), b"x"))  # a damaged record hides no other
    found = read_rows(store, lambda txn: {first: now.bookie_id for first, now in iter_renamed(txn)})
    assert found == {OLD: "c:3181", "bk1test": "b:3181", "bk2test": "a:3181"}


def test_undo_and_what_is_refused(cli: Cli, tmp_path: Path) -> None:
    store = copied(CLUSTER, "crashed", tmp_path)
    mark = f"{MARKS}0000/0000/0000/007b/urL0000000123"
    put_node(store, mark, f'replica: "{OLD}"\nreplica: "bk1test"\n'.encode())
    tree = cli("--store", store, "ledgers", "list", "-o", "jsonl").stdout
    before = codes(cli, store)
    assert cli("--store", store, "-o", "json", "bookies", "rename", OLD, NEW).json["after"]["marks"] == 1
    marked = cli("--store", store, "store", "cat", mark, "--raw").stdout
    assert marked == f'replica: "{NEW}"\nreplica: "bk1test"\n'
    assert cli("--store", store, "store", "undo", "1").exit_code == 0
    assert cli("--store", store, "ledgers", "list", "-o", "jsonl").stdout == tree
    for old, new, first in ((OLD, NEW, [OLD]), (NEW, "bookie-9:3181", [OLD]), ("bookie-9:3181", OLD, [])):
        assert cli("--store", store, "bookies", "rename", old, new).exit_code == 0
        assert read_rows(store, lambda txn: [was for was, _ in iter_renamed(txn)]) == first
    assert codes(cli, store) == before
    for words, code in (
        (("nobody:3181", NEW), "resource-not-found"),
        ((OLD, "bk1test"), "already-exists"),
        ((OLD, "a b"), "invalid-value"),
    ):
        assert cli("--store", store, "-o", "json", "bookies", "rename", *words).error["code"] == code


def test_a_ledger_that_may_name_it_stops_it(cli: Cli, tmp_path: Path, damages_stores: None) -> None:
    store = copied(CLUSTER, "crashed", tmp_path)
    for name in ("L0008", "L0010"):
        put_node(store, f"/ledgers/00/0000/{name}", b"\xff\xff")
    cli("--store", store, "-o", "json", "bookies", "rename", OLD, NEW).fails(
        3, "refused", "2 ledgers (8 and 10) cannot be read"
    )
