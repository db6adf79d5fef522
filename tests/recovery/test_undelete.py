"""``topics undelete`` on a recorded cluster: what the real broker deleted and trimmed comes back, message by message."""

import hashlib
import struct
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

import pulsar_admin as pa
from pulsar_admin.jsonify import to_json
from pulsar_admin.store.changes.plan import ChangeKind, WritingPlan
from pulsar_admin.store.codec.cursor import CursorInfo, CursorState
from pulsar_admin.store.codec.ledgermetadata import ledger_path
from pulsar_admin.store.codec.managedledger import LedgerInfo
from pulsar_admin.store.codec.schema import IndexEntry, SchemaLocator, encode_schema_locator
from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.db.tree import read_node, tree_key
from pulsar_admin.store.errors import LedgerNotFound
from pulsar_admin.store.history.servers import find_servers
from pulsar_admin.store.model.reader import open_reader
from pulsar_admin.store.names import EARLIEST, Position, parse_topic
from pulsar_admin.store.proto import managed_ledger_pb2
from pulsar_admin.store.recovery import restore
from pulsar_admin.store.recovery.ack_history import read_cursor_history
from pulsar_admin.store.recovery.deleted_nodes import PastCursor, read_past
from pulsar_admin.store.recovery.restore import Restoring, Undelete, keep_of, read_topic_at
from pulsar_admin.store.recovery.rolling import COMPACTED_LEDGER
from pulsar_admin.store.transfer.imports import ImportOptions
from tests.api.test_plans import shown_of
from tests.conftest import Cli
from tests.deep import deep_but_for
from tests.recovery.written import entries_of, writes_of
from tests.stores import NOW_MS, apply_values, copied, import_standalone, lose_nodes, read_rows
from tests.worlds import CLUSTER, oracle, scratch_copy, world

DOOMED = "public/default/doomed"  # deleted with its seven closed ledgers and an open one
TRIMMED = "acme/secure/trimmed"  # which lost its first three ledgers
FIRST_OF_DOOMED, END_OF_DOOMED = 121, 129


def messages_of(cli: Cli, store: Path, topic: str) -> dict[tuple[int, int], str]:
    """Position → SHA-1 of the payload, for every message of a topic whose messages are not batched."""
    rows = cli("--store", store, "topics", "read", topic, "-o", "jsonl").json_lines
    return {(row["ledgerId"], row["entryId"]): row["sha1"] for row in rows}


def bookies_of(folder: Path) -> list[Path]:
    return [folder / f"bookkeeper{number}" for number in range(3)]


def backlog(cli: Cli, store: Path, topic: str, subscription: str) -> Any:  # Any: JSON
    stats = cli("--store", store, "-o", "json", "topics", "stats", topic).json
    return stats["subscriptions"][subscription]["msgBacklog"]


def test_a_deleted_topic(cli: Cli, tmp_path: Path) -> None:
    store = copied(CLUSTER, "crashed", tmp_path)
    entries = entries_of(bookies_of(world(CLUSTER) / "crashed"))
    expected = {
        (ledger_id, entry_id): record
        for ledger_id in range(FIRST_OF_DOOMED, END_OF_DOOMED)
        for entry_id, record in entries[ledger_id].items()
    }
    report = cli("--store", store, "-o", "json", "topics", "undelete", DOOMED).json[0]
    assert report["after"]["entries"] == len(expected) == 300
    found = messages_of(cli, store, f"{DOOMED}-restored")
    assert found.keys() == expected.keys()
    rows = cli.rows(store, f"topics read {DOOMED}-restored")
    sizes = {(row["ledgerId"], row["entryId"]): row["size"] for row in rows}
    for place, record in expected.items():  # plain messages: the payload ends the record
        assert found[place] == hashlib.sha1(record[-sizes[place] :]).hexdigest()
    # Nothing was subscribed to it: without a subscription a broker would trim all of it at once.
    assert backlog(cli, store, f"{DOOMED}-restored", "restored") == 300
    claims = cli("--store", store, "-o", "json", "ledgers", "info", "124").json["metadata"]["customMetadata"]
    assert claims["pulsar/managed-ledger"] == "public/default/persistent/doomed-restored"
    cli("--store", store, "store", "undo", "1")
    assert cli("--store", store, "topics", "stats", f"{DOOMED}-restored").exit_code == 5


def test_without_topics_what_is_gone_is_listed(cli: Cli, tmp_path: Path) -> None:
    store = copied(CLUSTER, "crashed", tmp_path)
    entries = entries_of(bookies_of(world(CLUSTER) / "crashed"))
    rows = {row["topic"]: row for row in cli("--store", store, "-o", "json", "topics", "undelete").json}
    doomed = rows[f"persistent://{DOOMED}"]
    assert doomed["ledgers"] == doomed["here"] == END_OF_DOOMED - FIRST_OF_DOOMED
    assert doomed["entries"] == sum(len(entries[one]) for one in range(FIRST_OF_DOOMED, END_OF_DOOMED))
    assert [name for name, row in rows.items() if row["deleted"]] == [f"persistent://{DOOMED}"]
    trimmed = cli("--store", store, "-o", "json", "topics", "undelete", TRIMMED, "--dry-run").json[0]["after"]
    row = rows[f"persistent://{TRIMMED}"]
    assert (row["here"], row["entries"]) == (
        len(trimmed["ledgers"]),
        sum(len(entries[one]) for one in trimmed["ledgers"]),
    )
    cli("--store", store, "topics", "undelete", DOOMED)
    again = {row["topic"]: row for row in cli("--store", store, "-o", "json", "topics", "undelete").json}
    assert again[f"persistent://{DOOMED}"]["here"] == 0  # they are of another topic now
    for words in (["--in-place"], ["--plan", tmp_path / "plan.json"], ["--to", "public/default/x"]):
        assert cli("--store", store, "topics", "undelete", *words).exit_code == 2


def test_python_without_options_does_what_the_command_line_does(cli: Cli, tmp_path: Path) -> None:
    path = copied(CLUSTER, "crashed", tmp_path)
    for line, call in (
        (f"topics undelete {DOOMED} --dry-run", lambda store: store.undelete(DOOMED)),
        (f"topics undelete {TRIMMED} --dry-run", lambda store: store.undelete(TRIMMED)),
        ("ledgers restore --deleted --dry-run", lambda store: store.undelete_ledgers()),
        ("topics undelete", lambda store: store.deleted_topics()),
        ("store preflight", lambda store: store.preflight()),
    ):
        with pa.open_store(path, now=NOW_MS) as store:
            found = call(store)
            said = shown_of(found) if isinstance(found, pa.Plan) else to_json(found)
        assert said == cli("--store", path, "--now", f"@{NOW_MS}", *line.split(), "-o", "json").json, line


def test_in_place_it_is_what_it_was(cli: Cli, tmp_path: Path) -> None:
    store = copied(CLUSTER, "crashed", tmp_path)
    cli.on(store, "-o json topics undelete --namespace acme/secure --in-place").fails(5, "namespace-not-found")
    cli("--store", store, "topics", "undelete", "--namespace", "public/default", "--in-place", "--hold", "")
    assert len(messages_of(cli, store, DOOMED)) == 300
    claims = cli("--store", store, "-o", "json", "ledgers", "info", "124").json["metadata"]["customMetadata"]
    assert claims["pulsar/managed-ledger"] == "public/default/persistent/doomed"
    assert cli("--store", store, "-o", "json", "topics", "subscriptions", DOOMED).json == []
    cli("--store", store, "-o", "json", "topics", "undelete", DOOMED).fails(3, "refused")


def test_policies_of_a_namespace_come_back_with_its_topics(cli: Cli, tmp_path: Path, damages_stores: None) -> None:
    store, policies = copied(CLUSTER, "crashed", tmp_path), "/admin/policies/public/default"
    before = read_rows(store, lambda txn: read_node(txn, policies).value)
    lose_nodes(store, policies)
    first, *_ = cli("--store", store, "-o", "json", "topics", "undelete", DOOMED, "--in-place").json
    assert (first["namespace"], first["after"]) == ("public/default", {"policies": "as they were"})
    assert read_rows(store, lambda txn: read_node(txn, policies).value) == before


@pytest.mark.parametrize("in_place", [True, False])
def test_trimmed_ledgers_of_a_topic(cli: Cli, tmp_path: Path, in_place: bool) -> None:
    """The oracle has every message that was sent: position and SHA-1."""
    store = copied(CLUSTER, "crashed", tmp_path)
    sent = {tuple(row["id"][:2]): row["sha1"] for row in oracle(CLUSTER)["sent"] if row["topic"].endswith(TRIMMED)}
    left = messages_of(cli, store, TRIMMED)
    lost = {place: digest for place, digest in sent.items() if place not in left}
    assert len(lost) == 120
    cli("--store", store, "topics", "undelete", TRIMMED, *(["--in-place"] if in_place else []))
    if in_place:
        assert messages_of(cli, store, TRIMMED) == sent
        assert backlog(cli, store, TRIMMED, "restored") == len(sent)
    else:
        assert messages_of(cli, store, f"{TRIMMED}-restored") == lost
        assert messages_of(cli, store, TRIMMED) == left


LOST = {(123, 10), (123, 11), (123, 20), (125, 0), (127, 39)}


def damage(folder: Path, lost: set[tuple[int, int]] = LOST) -> None:
    """Break every copy of these entries."""
    for bookie in bookies_of(folder):
        for file in (*(bookie / "current").glob("*.log"), *(bookie / "current").glob("*.txn")):
            data = bytearray(file.read_bytes().rstrip(b"\0"))  # most of a journal is zeros
            broken = []
            for ledger_id, entry_id in lost:
                offset = -60
                while (offset := data.find(struct.pack(">qq", ledger_id, entry_id), offset + 60)) >= 0:
                    broken.append(offset + 60)
            with file.open("r+b") as stream:
                for offset in broken:
                    stream.seek(offset)
                    stream.write(bytes([data[offset] ^ 0xFF]))


def test_what_is_lost_is_said_range_by_range(cli: Cli, tmp_path: Path, damages_stores: None) -> None:
    source = scratch_copy(CLUSTER, "crashed", tmp_path)
    damage(source)
    store = tmp_path / "store"
    import_standalone(source, store, ImportOptions(now_ms=NOW_MS), lambda _: None)
    result = cli("--store", store, "topics", "undelete", DOOMED)
    assert "ledger 123: entries 10..11 and 20 are in no file; 27 entries after them are not restored" in result.stdout
    assert "ledger 125: entry 0 is in no file; 39 entries after them are not restored" in result.stdout
    assert "ledger 127: entry 39 is in no file\n" in result.stdout
    found = messages_of(cli, store, f"{DOOMED}-restored")
    ends = {121: 40, 122: 40, 123: 10, 124: 40, 126: 40, 127: 39, 128: 20}
    assert sorted(found) == [(ledger_id, entry) for ledger_id, end in ends.items() for entry in range(end)]
    assert cli("--store", store, "topics", "undelete", DOOMED, "--to", "kept", "--with-gaps").exit_code == 3
    cli("--store", store, "store", "undo", "1")
    kept = cli("--store", store, "topics", "undelete", DOOMED, "--to", "kept", "--with-gaps").stdout
    assert "ledger 123: entries 10..11 and 20 are in no file\n" in kept  # those after them come back
    found = messages_of(cli, store, "kept")
    expected = {(one, entry) for one in range(121, 129) for entry in range(20 if one == 128 else 40)} - LOST
    assert found.keys() == expected


def test_what_bookies_have_forgotten_is_copied(cli: Cli, tmp_path: Path) -> None:
    """Garbage collection takes a deleted ledger out of the index at once: its row goes, its entries stay in the log."""
    source = scratch_copy(CLUSTER, "crashed", tmp_path)
    for bookie in bookies_of(source):
        apply_values(bookie / "current" / "ledgers", {struct.pack(">q", 122): None})
    store = tmp_path / "store"
    import_standalone(source, store, ImportOptions(now_ms=NOW_MS), lambda _: None)
    tried = cli("--store", store, "topics", "undelete", DOOMED, "--dry-run")
    assert "bk0test, bk1test, bk2test collected garbage since: no index there names 1 ledger (122)" in tried.stdout
    cli("--store", store, "topics", "undelete", DOOMED)
    old = list(messages_of(cli, store, f"{DOOMED}-restored").values())
    cli("--store", store, "store", "undo", "1")
    shown = cli("--store", store, "topics", "undelete", DOOMED, "--copy", "--in-place")
    assert "collected garbage" not in shown.stdout
    assert "8 ledgers that this wrote" in shown.stdout
    found = messages_of(cli, store, DOOMED)
    assert list(found.values()) == old
    assert min(found)[0] > 60_000
    assert cli("--store", store, "topics", "undelete", DOOMED, "--copy", "--in-place").exit_code == 3
    orphans = cli("--store", store, "ledgers", "orphans", "-o", "jsonl").json_lines
    assert {row["ledgerId"]: row["reason"] for row in orphans}[122] == "deleted"


LEDGERS_OF_ONE_ENTRY = (16, 17, 40, 41, 59, 91, 92)
"""Of schemas, which nothing references: each was written to two of its three bookies."""


@pytest.mark.parametrize("forgetful", [None, 0])
def test_a_bookie_that_never_had_an_entry_has_collected_nothing(
    cli: Cli, tmp_path: Path, forgetful: int | None
) -> None:
    """Which bookies had the entries is in their entry logs; what their indexes have was written by them."""
    source = scratch_copy(CLUSTER, "crashed", tmp_path)
    having = [
        {one for one, found in entries_of([bookie]).items() if one in LEDGERS_OF_ONE_ENTRY and found.keys() == {0}}
        for bookie in bookies_of(source)
    ]
    assert all(sum(one in had for had in having) == 2 for one in LEDGERS_OF_ONE_ENTRY)
    if forgetful is not None:
        rows = {struct.pack(">q", one): None for one in LEDGERS_OF_ONE_ENTRY}
        apply_values(bookies_of(source)[forgetful] / "current" / "ledgers", rows)
    store = tmp_path / "store"
    import_standalone(source, store, ImportOptions(now_ms=NOW_MS), lambda _: None)
    assert lose_nodes(store, *(f"/ledgers/00/0000/L{one:04}" for one in LEDGERS_OF_ONE_ENTRY)) == 7
    shown = cli("--store", store, "ledgers", "restore", "--deleted", *LEDGERS_OF_ONE_ENTRY, "--dry-run").stdout
    if forgetful is None:
        assert "collected garbage" not in shown
    else:
        lost = sorted(having[forgetful])
        assert f"bk{forgetful}test collected garbage since: no index there names {len(lost)} ledgers" in shown
        assert f"({', '.join(map(str, lost[:-1]))} and {lost[-1]})" in shown


def test_an_index_that_cannot_be_read_is_said_to_be_unknown(cli: Cli, tmp_path: Path) -> None:
    source, store = scratch_copy(CLUSTER, "crashed", tmp_path), tmp_path / "store"
    import_standalone(source, store, ImportOptions(now_ms=NOW_MS), lambda _: None)

    def shown() -> str:
        return cli("--store", store, "topics", "undelete", DOOMED, "--dry-run").stdout

    assert "was not read" not in shown()
    (bookies_of(source)[1] / "current" / "ledgers").rename(tmp_path / "index")
    assert (
        "the index of bk1test was not read, or not with its journal: if it collected garbage since the deletion"
        in shown()
    )
    for bookie in (0, 2):
        (bookies_of(source)[bookie] / "current" / "ledgers").rename(tmp_path / f"index{bookie}")
    assert "no bookie's index was read" in shown()


# -- restore --at -----------------------------------------------------------------------------------------------------


def sizes_of(topic: str) -> list[tuple[int, dict[int, int]]]:
    """(time, ledger → its entries, 0 while it is open) of every version of a topic's list of ledgers, as ZooKeeper's log has them."""
    version_2 = world(CLUSTER) / "crashed" / "zookeeper" / "version-2"
    namespace, _, local_name = topic.rpartition("/")
    path = f"/managed-ledgers/{namespace}/persistent/{local_name}"
    found = []
    for time_ms, where, value in writes_of(version_2):
        if where == path and value is not None:
            message = managed_ledger_pb2.ManagedLedgerInfo.FromString(value)
            found.append((time_ms, {info.ledgerId: info.entries for info in message.ledgerInfo}))
    return found


def lists_of(topic: str) -> list[tuple[int, list[int]]]:
    return [(time_ms, list(sizes)) for time_ms, sizes in sizes_of(topic)]


def test_in_place_nothing_goes_and_subscriptions_go_back(cli: Cli, tmp_path: Path) -> None:
    store = copied(CLUSTER, "crashed", tmp_path)
    time_ms = lists_of(TRIMMED)[4][0]
    sent = {tuple(row["id"][:2]): row["sha1"] for row in oracle(CLUSTER)["sent"] if row["topic"].endswith(TRIMMED)}
    assert 0 < backlog(cli, store, TRIMMED, "s") < len(sent)
    cli("--store", store, "topics", "restore", TRIMMED, "--at", str(time_ms), "--in-place")
    assert messages_of(cli, store, TRIMMED) == sent
    # Its cursor ledger began before: when the later of its states were written nobody knows, so the oldest is meant.
    assert backlog(cli, store, TRIMMED, "s") == len(sent)


PLAIN = "public/default/plain"
AFTER_A_START = 14
"""The version of its list that the broker wrote when it started: ten ledgers are closed, the eleventh has nothing yet."""


def test_a_living_topic_whose_last_ledger_was_empty(cli: Cli, tmp_path: Path) -> None:
    """As between a broker's start and its next message. Where the subscriptions were is in ZooKeeper's log."""
    time_ms, sizes = sizes_of(PLAIN)[AFTER_A_START]
    *closed, newest = sizes
    assert sizes[newest] == 0 < min(sizes[one] for one in closed)
    store = copied(CLUSTER, "crashed", tmp_path)
    then = [digest for place, digest in messages_of(cli, store, PLAIN).items() if place[0] in closed]
    assert len(then) == sum(sizes.values())
    restored = cli("--store", store, "-o", "json", "topics", "restore", PLAIN, "--at", str(time_ms))
    assert restored.json[0]["after"]["entries"] == len(then)
    assert list(messages_of(cli, store, f"{PLAIN}-restored").values()) == then
    # The cursors' nodes say 30:35 and 8:14.
    after = sum(sizes[one] for one in closed if one > 30) + sizes[30] - 36
    assert backlog(cli, store, f"{PLAIN}-restored", "half") == after
    assert backlog(cli, store, f"{PLAIN}-restored", "never") == len(then) - 15
    assert cli("--store", store, "store", "check").exit_code == 0


def test_a_subscription_at_the_empty_ledger_has_read_everything(cli: Cli, tmp_path: Path) -> None:
    """A broker that starts moves a cursor at the end into the new ledger, which has no copy."""
    time_ms, sizes = sizes_of(PLAIN)[AFTER_A_START]
    *closed, newest = sizes
    store = copied(CLUSTER, "crashed", tmp_path)
    with open_store(store, writable=True) as opened:
        with open_reader(opened) as reader:
            servers = find_servers(opened.info.sources, ())
            past = read_past(servers, keep_of([parse_topic(PLAIN).namespace]), time_ms)
            name = parse_topic(PLAIN)
            then = read_topic_at(reader, name, past, read_cursor_history(servers, []), time_ms)
            state = CursorState(Position(newest, -1), ((Position(newest, 2), Position(newest, 4)),))
            after_one = CursorState(Position(closed[0], 0), ((Position(closed[1], 2), Position(newest, 4)),))
            cursors = {
                one: PastCursor(CursorInfo(-1, was.mark_delete), was, b"")
                for one, was in (("read", state), ("first", after_one))
            }
            target = parse_topic(f"{PLAIN}-restored")
            kind = ChangeKind("topics restore", "restore {place}")
            wanted = {target: replace(then, cursors=cursors)}
            plan = Restoring(kind, past, wanted, Undelete(), NOW_MS, copies_referenced=True).plan(reader)
        assert isinstance(plan, WritingPlan)
        plan.made(opened)
    assert len(messages_of(cli, store, f"{PLAIN}-restored")) == sum(sizes.values())
    assert backlog(cli, store, f"{PLAIN}-restored", "read") == 0
    # 0 of the first ledger and 3 of the second up to the end are acknowledged.
    assert backlog(cli, store, f"{PLAIN}-restored", "first") == sizes[closed[0]] - 1 + 3


@pytest.mark.usefixtures("damages_stores")
def test_a_ledger_that_was_open_and_is_lost_is_not_taken_for_empty(cli: Cli, tmp_path: Path) -> None:
    time_ms, sizes = next((time_ms, sizes) for time_ms, sizes in sizes_of(TRIMMED) if [*sizes] == [115, 117])
    assert sizes == {115: 40, 117: 0}
    source = scratch_copy(CLUSTER, "crashed", tmp_path)
    damage(source, {(117, entry_id) for entry_id in range(40)})
    store = tmp_path / "store"
    import_standalone(source, store, ImportOptions(now_ms=NOW_MS), lambda _: None)
    shown = cli("--store", store, "topics", "restore", TRIMMED, "--at", str(time_ms + 1), "--dry-run")
    assert "ledger 117: entries 0..39 are in no file" in shown.stdout
    assert "  entries: 40\n" in shown.stdout


def test_before_it_was_there(cli: Cli, tmp_path: Path) -> None:
    store = copied(CLUSTER, "crashed", tmp_path)
    before = str(lists_of(TRIMMED)[0][0] - 1)
    cli("--store", store, "-o", "json", "topics", "restore", TRIMMED, "--at", before).fails(5, "topic-not-found")


# -- without any history ----------------------------------------------------------------------------------------------


def test_partitions_of_which_nothing_comes_back(cli: Cli, tmp_path: Path) -> None:
    """They are there, and lost empty ledgers alone."""
    store = copied(CLUSTER, "crashed", tmp_path)
    result = cli.on(store, "-o json topics undelete acme/orders/parts").fails(5, "topic-not-found", "parts-partition-0")
    result = cli("--store", store, "topics", "undelete", "acme/orders/parts", DOOMED)
    assert "nothing of persistent://acme/orders/parts-partition-2 can be restored" in result.stdout
    assert len(messages_of(cli, store, f"{DOOMED}-restored")) == 300


@deep_but_for((0, 1), "version", [2, 4, 5])
def test_a_topic_as_it_was(cli: Cli, tmp_path: Path, version: int) -> None:
    """As of three of its versions: 115 and 117; all five, none trimmed yet; trimmed."""
    store = copied(CLUSTER, "crashed", tmp_path)
    time_ms, ids = lists_of(TRIMMED)[version]
    cli("--store", store, "topics", "undelete", TRIMMED, "--in-place")
    rows = cli("--store", store, "topics", "read", TRIMMED, "-o", "jsonl").json_lines
    cli("--store", store, "store", "undo", "1")
    then = [row["sha1"] for row in rows if row["ledgerId"] in ids and row["brokerTime"] <= time_ms]
    assert then
    report = cli("--store", store, "-o", "json", "topics", "restore", TRIMMED, "--at", str(time_ms)).json[0]
    assert report["after"]["entries"] == len(then)
    found = cli("--store", store, "topics", "read", f"{TRIMMED}-restored", "-o", "jsonl").json_lines
    assert [row["sha1"] for row in found] == then
    kept = {one for one in ids if one < 119}  # the others are the topic's still
    assert {row["ledgerId"] for row in found} & set(range(1000)) <= kept
    assert messages_of(cli, store, TRIMMED).keys() == {(row["ledgerId"], row["entryId"]) for row in rows[120:]}
    assert backlog(cli, store, f"{TRIMMED}-restored", "s") >= 0
    cli("--store", store, "store", "undo", "3")
    assert cli("--store", store, "topics", "stats", f"{TRIMMED}-restored").exit_code == 5


A_TOPIC = parse_topic("a/b/c")
COMPACTING = CursorState(EARLIEST, properties={COMPACTED_LEDGER: 9})


def test_of_a_topic_that_comes_back_what_is_passed_over_hides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A replicator of another name, the topic's own cursor that is there again, and a ledger that is in no file, each before a good one."""
    there = {"/managed-ledgers/a/b/persistent/c/__compaction": SimpleNamespace(value=b"")}
    monkeypatch.setattr(restore, "find_node", lambda txn, path: there.get(path))
    monkeypatch.setattr(restore, "lost_text", lambda returning: "")
    cursor = SimpleNamespace(state=CursorState(EARLIEST), problem="")
    then = SimpleNamespace(
        name=parse_topic("a/b/then"),
        gone_ms=1,
        ends={},
        cursors=dict.fromkeys(("pulsar.repl.west", "__compaction", "sub"), cursor),
        infos=[LedgerInfo(3, 1, 1), LedgerInfo(4, 1, 1)],
    )

    def take(ledger_id: int, claims: object, last: object) -> SimpleNamespace:
        if ledger_id == 3:
            raise LedgerNotFound("3 is in no file")
        return SimpleNamespace(entries=2, metadata=SimpleNamespace(length=9), written_ms=7)

    made = SimpleNamespace(_txn=None, _warnings={}, _put_cursor=lambda *of: None, _take=take)
    cursors = restore.TopicRestorer._cursors(made, then, SimpleNamespace(name=A_TOPIC), {}, {})
    assert [name for name, _ in cursors] == ["sub"]
    said: list[str] = []
    returned = [*restore.TopicRestorer._returning(made, then, A_TOPIC, {}, said, {})]
    assert returned == [(4, LedgerInfo(4, 2, 9, 7))]
    assert said == ["3 is in no file"]


def test_nothing_comes_back_to_which_nothing_would_point(monkeypatch: pytest.MonkeyPatch) -> None:
    """A compacted ledger that lost entries, and the first of a schema's two ledgers of which the second is in no file."""

    first, second = (IndexEntry(number, Position(7 + number, 0), b"") for number in range(2))
    schema = encode_schema_locator(SchemaLocator(second, (first, second)))

    class Made(restore.TopicRestorer):
        def __init__(self) -> None:
            self._steps, self._taken, self._forgotten, self._warnings = {}, set(), {}, {}
            self._txn, self._past = None, SimpleNamespace(fates={A_TOPIC.schema_path: SimpleNamespace(value=schema)})

        def _take(self, ledger_id: int, claims: object) -> SimpleNamespace:
            if ledger_id == 8:
                raise LedgerNotFound("8 is in no file")
            self._taken.add(ledger_id)
            self._forgotten[ledger_id] = self._steps[tree_key(ledger_path(ledger_id))] = SimpleNamespace()
            return SimpleNamespace(ledger_id=ledger_id, entries=1)

    monkeypatch.setattr(restore, "find_node", lambda txn, path: None)
    monkeypatch.setattr(restore, "lost_text", lambda returning: f"{returning.ledger_id} lost entries")
    made = Made()
    assert made._compacted(SimpleNamespace(name=A_TOPIC, first_position=EARLIEST), COMPACTING) == CursorState(EARLIEST)
    made.add_base(A_TOPIC, A_TOPIC, {})
    assert (made._steps, made._taken, made._forgotten) == ({}, set(), {})
    assert [text.split(": ")[-1] for text in made._warnings] == ["9 lost entries", "8 is in no file"]
