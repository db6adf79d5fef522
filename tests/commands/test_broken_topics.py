"""Whatever answers on a topic with a lost ledger says so; what a broker does there was seen on Pulsar 4.0.8 (tests/live)."""

import shlex
from pathlib import Path

import pytest

from pulsar_admin.store.codec.cursor import CursorInfo, encode_cursor_info
from pulsar_admin.store.codec.ledgermetadata import ledger_path
from pulsar_admin.store.codec.managedledger import LedgerInfo, ManagedLedger, encode_managed_ledger
from pulsar_admin.store.codec.rocksvalue import NodeStat
from pulsar_admin.store.db.blocks import block_key, ledger_key
from pulsar_admin.store.db.environment import Txn, open_store
from pulsar_admin.store.db.tree import Node, put_nodes, tree_key
from pulsar_admin.store.model.broken_beside import find_lost_events
from pulsar_admin.store.names import EVENTS, parse_topic
from pulsar_admin.store.reports.ledgers import iter_missing
from tests.commands.changing import check_undo, rows_of
from tests.conftest import Cli
from tests.cures.curing import diagnoses, run_printed, told
from tests.stores import copied, imported, lose_nodes, narrow_copy, put_node, read_rows, write_rows
from tests.synthetic import CREATED_MS, Made, MadeTopic, make_store
from tests.worlds import CLUSTER, scratch_copy, world

PLAIN = "public/default/plain"
SAYS = (
    "stats PLAIN; stats-internal PLAIN; info-internal PLAIN; read PLAIN -n 1; peek-messages PLAIN -s half -n 1;"
    " examine-messages PLAIN -i earliest -m 1; last-message-id PLAIN; get-message-id-by-index PLAIN -i 3;"
    " reset-cursor PLAIN -s half -m earliest --force --dry-run; analyze-backlog PLAIN -s half; get-backlog-size PLAIN;"
    " skip PLAIN -s half -n 3 --dry-run; stats --pattern public/default/pl*"
)


def lose_metadata(txn: Txn, ledger_id: int) -> None:
    txn.delete("tree", tree_key(ledger_path(ledger_id)))


def lose_ledger(txn: Txn, ledger_id: int) -> None:
    lose_metadata(txn, ledger_id)
    txn.delete("entries", block_key(ledger_id, 0))
    txn.delete("times", ledger_key(ledger_id))


def change(path: Path, work: object, ledger_id: int) -> Path:
    assert callable(work)
    write_rows(path, lambda txn: work(txn, ledger_id))
    return path


@pytest.fixture
def broken(tmp_path: Path, damages_stores: None) -> Path:
    """Ledger 18, the second of ``plain``, has no metadata; the first one is whole."""
    return change(narrow_copy(tmp_path), lose_metadata, 18)


@pytest.mark.parametrize("words", SAYS.split("; "))
def test_a_topic_with_a_lost_ledger_is_answered_loudly(words: str, broken: Path, cli: Cli) -> None:
    answer = cli.on(broken, f"topics {words.replace('PLAIN', PLAIN)}")
    assert answer.exit_code == 1
    assert "plain: ledger 18: its metadata is lost, with 25 entries: consumers stop at 18:0" in answer.stderr
    assert "pulsar-admin ledgers missing" in answer.stderr
    assert answer.stdout


def test_five_lost_ledgers_are_told_one_by_one_and_more_counted(broken: Path, cli: Cli) -> None:
    for lost, ledger_id in enumerate((9, 21, 22, 25, 29), 2):
        change(broken, lose_metadata, ledger_id)
        said = cli.on(broken, f"topics stats {PLAIN}").stderr
        assert said.count(": its metadata is lost") == min(lost, 5)
        assert ("6 ledgers are broken or not seen; the first 5 are shown" in said) is (lost > 5)


def test_five_broken_topics_are_told_in_detail_and_more_counted(tmp_path: Path, cli: Cli) -> None:
    cli.on(tmp_path / "s", f"store import cluster --zookeeper {world(CLUSTER) / 'crashed' / 'zookeeper'}").ends(0)
    for words in ("topics subscriptions --all-topics --table", "topics stats --all-topics"):
        said = cli.on(tmp_path / "s", words).ends(1).stderr
        assert (
            len({line.split(": ")[1] for line in said.splitlines() if " not seen" in line and "persistent:" in line})
            == 5
        )
        assert " more topics with ledgers that are broken or not seen: see pulsar-admin doctor" in said


def test_printed_resets_are_not_refused_where_more_is_lost(tmp_path: Path, cli: Cli, damages_stores: None) -> None:
    source, store = scratch_copy("small", "crashed", tmp_path), tmp_path / "s"
    max((source / "bookkeeper" / "current").glob("*.txn")).unlink()
    cli.on(store, f"store import standalone {source}").ends(0)
    commands = [row["mend"] for row in cli.rows(store, "doctor --code cursor-ledger-lost")]
    reasons = cli.json(store, "topics why acme/orders/fresh-batched -s crash-batch")["reasons"]
    commands += [reason["command"] for reason in reasons if reason["code"] == "lost-entries"]
    assert len(commands) == 4
    for command in commands:
        assert cli("--store", store, *shlex.split(command)[1:]).exit_code == 1, command  # other ledgers stay lost
    assert not cli.rows(store, "doctor --code cursor-ledger-lost")
    forgets = cli.on(store, "ledgers forget 236 --dry-run").stdout
    assert "  drops 25 entries (22,444 bytes; not here)" in forgets.splitlines()


def test_an_answer_that_no_broker_reads_is_said(broken: Path, cli: Cli) -> None:
    """All entries of ledger 18 are here, so that the answer is exact; BookKeeper does not know the ledger."""
    time = cli.json(broken, "ledgers entries 18")[3]["publishTime"]
    answer = cli.on(broken, f"topics find-by-time {PLAIN} --time @{time} --clock publish -o json")
    assert (answer.exit_code, answer.json["exact"], answer.json["position"]["ledgerId"]) == (0, True, 18)
    assert "ledger 18: its metadata is lost, with 25 entries" in answer.stderr


def test_the_last_ledger_is_what_a_broker_drops(tmp_path: Path, cli: Cli, damages_stores: None) -> None:
    path = narrow_copy(tmp_path)
    last = cli.json(path, f"topics info-internal {PLAIN}")["ledgers"][-1]["ledgerId"]
    change(path, lose_metadata, last)
    answer = cli.on(path, f"topics stats {PLAIN}")
    assert f"ledger {last}: it is lost, with 0 entries: a broker that loads the topic drops the ledger" in answer.stderr


def test_a_reset_into_a_lost_ledger_needs_force(broken: Path, cli: Cli) -> None:
    words = ("--store", broken, "topics", "reset-cursor", PLAIN, "-s", "half")
    for target in ("18:0", "18:24"):
        cli(*words, "-m", target).ends(3, f"plain: {target} is lost: ledger 18: its metadata is lost")
    assert cli(*words, "-m", "9:24", "--exclude-reset-position").exit_code == 3, "the next entry is the lost 18:0"
    assert cli(*words, "-m", "18:3", "--force").exit_code == 1
    assert cli(*words, "-m", "21:0").exit_code == 1
    assert cli(*words, "-m", "9:24").exit_code == 1, "in front of what is lost"


def test_a_reset_into_lost_entries_needs_force(tmp_path: Path, cli: Cli, damages_stores: None) -> None:
    """Entry 9:2 is in no file: 9:1 and 9:3 can be reset to."""
    from tests.commands.test_ledgers import damaged_source

    path = tmp_path / "s"
    assert cli.on(path, f"store import standalone {damaged_source(tmp_path)}").exit_code == 1
    words = ("--store", path, "topics", "reset-cursor", PLAIN, "-s", "half", "--dry-run", "-m")
    cli(*words, "9:2").ends(3, "9:2 is lost: ledger 9: 1 of its 25 entries is lost: consumers stop at 9:2")
    assert [cli(*words, target).exit_code for target in ("9:1", "9:3")] == [1, 1]


def test_ledgers_info_and_missing_agree(tmp_path: Path, cli: Cli, damages_stores: None) -> None:
    path = change(change(copied("small", "clean", tmp_path), lose_metadata, 9), lose_ledger, 18)
    told = cli.on(path, "ledgers missing -o json")
    missing = {row["ledgerId"]: row["reason"] for row in told.json}
    assert (told.exit_code, missing) == (1, {9: "no-metadata", 18: "no-ledger"})
    assert {row["ledgerId"]: row["cure"] for row in told.json} == {9: "pulsar-admin ledgers restore 9", 18: ""}
    assert cli.json(path, "ledgers missing 10") == []
    for ledger_id in (9, 18, 21):
        answer = cli.on(path, f"ledgers info {ledger_id} -o json")
        assert answer.json["lost"] == missing.get(ledger_id)
        assert answer.exit_code == (ledger_id in missing)
        counts = [answer.json[key] for key in ("lastEntryId", "entries", "size")]
        assert (counts == [-1, 0, 0]) == (ledger_id == 18)
    everything = cli.json(imported("small", "clean"), "ledgers list")
    ids = [str(row["ledgerId"]) for row in everything]
    sound = cli("--store", imported("small", "clean"), "ledgers", "info", *ids, "-o", "json")
    assert (sound.exit_code, {row["lost"] for row in sound.json}) == (0, {None})


# -- topics that cannot be read ---------------------------------------------------------------------------------------


def test_a_topic_that_cannot_be_read_is_deleted_with_force(tmp_path: Path, cli: Cli, damages_stores: None) -> None:
    """Its ledgers stay: nobody knows them. Undo brings the same bytes back."""
    path, node = narrow_copy(tmp_path), parse_topic(PLAIN).path
    put_node(path, node, b"\xff\xff")
    before = rows_of(path)
    for words in (f"topics delete {PLAIN}", "namespaces delete public/default --force"):
        cli.on(path, words).ends(6, f"pulsar-admin topics delete persistent://{PLAIN} --force")
    done = cli.done("--store", path, *f"topics delete {PLAIN} --force -o json".split())
    assert "its list of ledgers cannot be read, they stay" in done.json["warnings"][0]
    gone = {key.decode() for key in set(before["tree"]) - set(rows_of(path)["tree"])}
    assert gone == {one for key in before["tree"] if (one := key.decode()) == node or one.startswith(node + "/")}
    check_undo(cli, path, 1, before)


def second_of_events(cli: Cli, path: Path) -> int:
    """Set policies twice and return the ledger of the first event: an empty one is in front, another one behind."""
    for seconds in (9, 10):
        assert cli.on(path, f"topics set-message-ttl {PLAIN} -t {seconds}").exit_code == 0
    events = cli.json(path, "topics info-internal public/default/__change_events")
    assert [row["entries"] for row in events["ledgers"]] == [0, 1, 1]
    return int(events["ledgers"][1]["ledgerId"])


def test_a_topic_is_deleted_though_policies_cannot_be_read(tmp_path: Path, cli: Cli, damages_stores: None) -> None:
    path = narrow_copy(tmp_path)
    ledger = second_of_events(cli, path)
    write_rows(path, lambda txn: (txn.delete("entries", block_key(ledger, 0)), txn.delete("times", ledger_key(ledger))))
    assert cli.on(path, f"topics delete {PLAIN}").exit_code == 6
    done = cli.done("--store", path, *f"topics delete {PLAIN} --force -o json".split())
    assert "policies stay as they are" in done.json["warnings"][0]


def test_a_namespace_whose_events_are_lost(tmp_path: Path, cli: Cli, damages_stores: None) -> None:
    """No topic of it loads: said first by a check."""
    path = narrow_copy(tmp_path)
    ledger = second_of_events(cli, path)
    change(change(path, lose_metadata, ledger), lose_metadata, 9)
    first, *rest = cli.json(path, "store check")
    assert "__change_events" in first["where"]
    assert [row["severity"] for row in (first, *rest)] == sorted(
        (row["severity"] for row in (first, *rest)), key=["problem", "note", "summary"].index
    )
    said = cli.on(path, "topics stats public/default/__change_events").stderr
    assert "brokers load no topic of the namespace (Failed to load topic within timeout), unless auto" in said
    put_node(path, ledger_path(ledger), b"BookieMetadataFormatVersion\t3\n\x08")
    said = cli.on(path, "topics stats public/default/__change_events").stderr
    assert "(Failed to load topic within timeout)\n" in said


def test_a_lost_schema_ledger_is_found_by_a_check(tmp_path: Path, cli: Cli, damages_stores: None) -> None:
    path = change(copied("small", "clean", tmp_path), lose_metadata, 71)
    (row,) = [row for row in cli.json(path, "store check") if row["severity"] == "problem"]
    assert (row["code"], row["context"]["ledgerId"]) == ("schema-ledger-without-metadata", 71)


# -- what a topic does not list itself --------------------------------------------------------------------------------


def test_a_lost_compacted_ledger_is_said(tmp_path: Path, cli: Cli, damages_stores: None) -> None:
    """Of the world small: ledger 85 is the compacted view of a topic."""
    path = change(copied("small", "clean", tmp_path), lose_metadata, 85)
    (owner,) = cli.json(path, "ledgers info 85")["owners"]
    for words in (
        ("topics", "stats"),
        ("topics", "find-by-time", "-d", "@0", "--explain"),
        ("topics", "read", "-n", "1"),
    ):
        answer = cli("--store", path, *words, owner["topic"])
        assert answer.exit_code == 1, words
        assert "the metadata of its compacted ledger 85 is lost" in answer.stderr


def test_lost_events_are_said_of_every_topic_of_the_namespace(store: Path, cli: Cli, damages_stores: None) -> None:
    ledger = second_of_events(cli, store)
    change(store, lose_metadata, ledger)
    answer = cli.on(store, "topics stats public/default/batched")
    assert answer.exit_code == 1
    assert f"ledger {ledger} of __change_events, its namespace's policies: its metadata is lost" in answer.stderr
    assert "brokers load no topic of the namespace" in answer.stderr
    assert cli.on(store, "topics stats acme/orders/compacted").exit_code == 0


def test_of_many_topics_whole_ones_hide_no_broken_one(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch, damages_stores: None
) -> None:
    monkeypatch.setattr("pulsar_admin.broken._MANY", 1)  # their ledgers are looked at together
    path = copied("small", "clean", tmp_path)
    ledger = cli.json(path, "topics stats-internal public/default/steady")["ledgers"][0]["ledgerId"]
    answer = cli.on(change(path, lose_metadata, ledger), "topics stats --all-topics")
    assert answer.exit_code == 1
    assert f"persistent://public/default/steady: ledger {ledger}: its metadata is lost" in answer.stderr


# -- what cannot be read hides nothing behind it -------------------------------------------------------------------------

UNREADABLE = [
    *(ledger_path(0), "/admin/clusters/0", "/admin/policies/0", "/admin/policies/acme/0", "/schemas/acme/orders/0"),
    *("/admin/partitioned-topics/acme/orders/persistent/0", f"{parse_topic('acme/orders/compacted').path}/0"),
    *(parse_topic(f"acme/{name}/0").path for name in ("orders", "delayed", "iot")),
    *(parse_topic(f"{name}/0").path for name in ("public/default", "pulsar/system")),
]
"""Nodes that come before all others of their kind."""
WHOLE = (
    "store usage; store usage --by log; ledgers list; ledgers orphans; tenants list; clusters list; namespaces list acme;"
    " topics list acme/orders; topics list-partitioned-topics acme/orders; topics subscriptions --all-topics --table;"
    " topics stats --all-topics; topics stats-internal --all-topics; topics last-message-id --all-topics;"
    " topics skew --all-topics; topics get-partitioned-topic-metadata --all-topics; topics search --all-topics --key k0003;"
    " compaction status --all-topics; compaction last-id --all-topics; delayed status --all-topics;"
    " delayed due --all-topics --until 2027-01-01T00:00:00Z; transactions coordinators-list"
)


def test_nodes_that_cannot_be_read_hide_nothing_behind_them(tmp_path: Path, cli: Cli, damages_stores: None) -> None:
    """Every row of the sound store is among those of one that has bad nodes in front; what the doctor found is found."""
    sound, bad = imported("small", "mutated"), copied("small", "mutated", tmp_path)
    with open_store(bad, writable=True) as store:
        nodes = [Node(path, NodeStat(0, 1, 1, 1, False), b"\xff\x00bad") for path in UNREADABLE]
        store.write(lambda txn: put_nodes(txn, nodes))
    for line in WHOLE.split("; "):
        words = ("--now", "2026-11-22T12:00:00Z", *line.split(), "-o", "jsonl")
        rows, found = (cli("--store", path, *words) for path in (sound, bad))
        assert rows.stdout, line
        assert found.exit_code in (0, 1), (line, found.stderr)
        lost = [row for row in rows.json_lines if row not in found.json_lines]
        assert not lost, (line, lost)
    before, after = ({(row["code"], row.get("topic")) for row in cli.rows(path, "doctor")} for path in (sound, bad))
    known = {one for one in before if not one[0].startswith("leaked-")}  # ledgers that what cannot be read may name
    assert len(known) > 3
    assert known <= after


@pytest.mark.usefixtures("damages_stores")
@pytest.mark.parametrize(
    "key",
    ["managed-ledgers/public/default/persistent/", "managed-ledgers/public/", "admin/policies/", "", "ledgers/00/"],
)
def test_a_path_that_is_not_utf_8_is_a_finding(key: str, whole_cli: Cli, store: Path) -> None:
    """It hides no other answer, and the printed commands remove it."""
    before, topics = told(diagnoses(whole_cli, store)), whole_cli.rows(store, "topics stats --all-topics")
    row = rows_of(store, "tree")["tree"][parse_topic(PLAIN).path.encode()]
    write_rows(store, lambda txn: txn.put("tree", f"/{key}".encode() + b"\xff", row))
    after = diagnoses(whole_cli, store)
    mends = {one["code"]: one["mend"] for one in after if one["code"] in ("node-damaged", "owners-damaged")}
    assert [one["where"] for one in after if one["severity"] == "critical"] == [f"tree /{key}\\xff"]
    assert {tuple(mend.split()[-2:]) for mend in mends.values()} == {("store", "refresh")}
    names = [one["topic"] for one in whole_cli.rows(store, "topics stats --all-topics")]
    assert names == [one["topic"] for one in topics]
    for words in ("overview", "topics list public/default", "namespaces list public", "tenants list", "metrics"):
        assert whole_cli.on(store, words).exit_code in (0, 1), words
    run_printed(whole_cli, mends["node-damaged"])
    assert told(diagnoses(whole_cli, store)) == before


@pytest.mark.usefixtures("damages_stores")
@pytest.mark.parametrize(
    "path",
    [
        parse_topic(PLAIN).path,
        parse_topic(PLAIN).cursor_path("half"),
        "/admin/policies/public/default",
        ledger_path(22),
    ],
)
def test_a_damaged_row_of_a_node_stops_no_check(path: str, whole_cli: Cli, store: Path) -> None:
    """Every finding prints the command that reads it again, and none that replaces it."""
    before = told(diagnoses(whole_cli, store))
    write_rows(store, lambda txn: txn.put("tree", tree_key(path), b"x"))
    rows = [row for row in diagnoses(whole_cli, store) if row["severity"] != "note"]
    assert {row["code"] for row in rows} <= {"node-damaged", "owners-damaged", "topic-unreadable", "cursor-unreadable"}
    (mend,) = {row["mend"] for row in rows}
    run_printed(whole_cli, mend)
    assert told(diagnoses(whole_cli, store)) == before


@pytest.mark.usefixtures("damages_stores")
def test_damaged_metadata_of_a_ledger_is_restored_as_lost_metadata_is(cli: Cli, tmp_path: Path) -> None:
    store, path = narrow_copy(tmp_path), ledger_path(18)
    sound = cli("--store", store, "ledgers", "info", 18).stdout
    put_node(store, path, b"BookieMetadataFormatVersion\t3\n\x08")
    before = rows_of(store, "tree")
    (missing,) = cli.rows(store, "ledgers missing 18")
    assert (missing["reason"], missing["cure"]) == ("no-metadata", "pulsar-admin ledgers restore 18")
    assert cli.on(store, "ledgers forget 18 --dry-run").exit_code == 0
    assert cli.on(store, "ledgers restore 18").exit_code == 0
    assert cli("--store", store, "ledgers", "info", 18).stdout == sound
    assert cli.on(store, "store undo 1").exit_code == 0
    assert rows_of(store, "tree") == before


@pytest.mark.usefixtures("damages_stores")
def test_damaged_metadata_of_a_ledger_is_told_by_every_answer(tmp_path: Path, whole_cli: Cli) -> None:
    """A broker does not skip it: seen in tests/live/test_cures.py."""
    store = narrow_copy(tmp_path)
    put_node(store, ledger_path(18), b"BookieMetadataFormatVersion\t3\n\x08")
    says = f"{PLAIN}: ledger 18: its metadata cannot be read, with 25 entries: consumers stop at 18:0 (broker log: Error while using"
    shown = ("stats", "stats-internal", "describe", "subscriptions --table", "get-backlog-size")
    held = ("transaction-buffer-stats -t", "transaction-in-buffer-stats -m 0 -l 1 -t")
    for words in (*(f"topics {one}" for one in shown), *(f"transactions {one}" for one in held)):
        answer = whole_cli.on(store, f"{words} {PLAIN}")
        assert (answer.exit_code, says in answer.stderr) == (1, True), words
    assert "25 entries can be read; then comes 18:0" in whole_cli.on(store, f"topics why {PLAIN} -s never").stdout
    row = next(row for row in whole_cli.rows(store, "ledgers list") if row["ledgerId"] == 18)
    assert (row["state"], row["entries"], row["missingEntries"], row["size"]) == ("UNREADABLE", 25, None, 4692)
    entries = whole_cli.on(store, "ledgers entries 18 --limit 2 -o jsonl").ends(1, "/ledgers/00/0000/L0018")
    assert [row["state"] for row in entries.json_lines] == ["ok", "ok"]
    verdict = whole_cli.on(store, "ledgers verify 18 -o json").ends(1).json[0]
    assert (verdict["entries"], len(verdict["metadataProblems"])) == (25, 1)
    info = whole_cli.on(store, "ledgers info 18").ends(1, "/ledgers/00/0000/L0018").json
    assert (info["state"], info["entries"], info["lost"]) == ("UNREADABLE", 25, "no-metadata")
    refused = whole_cli.on(store, f"topics reset-cursor {PLAIN} -s half -m 18:0")
    assert "ledgers restore 18; --force" in refused.stderr


@pytest.mark.usefixtures("damages_stores")
def test_a_cursor_of_compaction_in_an_unknown_form_ends_no_command(tmp_path: Path, cli: Cli) -> None:
    """Its newest state is an entry of another kind, as of a newer Pulsar."""
    store, path = copied("small", "clean", tmp_path), parse_topic("acme/orders/compacted").cursor_path("__compaction")
    put_node(store, path, encode_cursor_info(CursorInfo(9, None)))
    for words in ("topics dump --all-topics", "delayed status --all-topics -o jsonl"):
        rows = cli.on(store, words).json_lines
        assert rows == cli.on(imported("small", "clean"), words).json_lines, words


@pytest.mark.usefixtures("damages_stores")
def test_messages_are_read_past_a_ledger_with_damaged_metadata(tmp_path: Path, cli: Cli) -> None:
    """And its own: what verifies entries without metadata verifies them here."""
    store, says = narrow_copy(tmp_path), "ledger 18: its metadata cannot be read"
    put_node(store, ledger_path(18), b"BookieMetadataFormatVersion\t3\n\x08")
    whole = {
        words: cli.on(imported("small", "clean"), words).stdout
        for words in (
            f"topics read {PLAIN} -o jsonl",
            f"topics peek-messages {PLAIN} -s never -n 300 -o jsonl",
            f"topics get-message-by-id {PLAIN} -l 18 -e 3 -o json",
        )
    }
    for words, sound in whole.items():
        answer = cli.on(store, words)
        assert (answer.exit_code, answer.stdout, says in answer.stderr) == (1, sound, True), words


@pytest.mark.usefixtures("damages_stores")
def test_a_topic_is_explained_although_a_row_of_one_of_its_ledgers_is_damaged(tmp_path: Path, cli: Cli) -> None:
    """In this store: what brokers have in its place may be whole."""
    store = narrow_copy(tmp_path)
    sound = cli.on(store, f"topics why {PLAIN}").stdout
    write_rows(store, lambda txn: txn.put("tree", tree_key(ledger_path(18)), b"\xff"))
    assert cli.done("--store", store, "topics", "why", PLAIN).stdout == sound


@pytest.mark.usefixtures("damages_stores")
def test_damaged_metadata_of_a_ledger_is_cured_as_printed(whole_cli: Cli, tmp_path: Path) -> None:
    """Of a schema, and of a cursor, which a reset would have forgotten."""
    store = copied(CLUSTER, "clean", tmp_path)
    before = told(diagnoses(whole_cli, store))
    for ledger_id, codes in ((2, {"value-undecodable"}), (99, {"value-undecodable", "cursor-unreadable"})):
        put_node(store, ledger_path(ledger_id), b"BookieMetadataFormatVersion\t3\n\x08")
        damaged = [row for row in diagnoses(whole_cli, store) if row["severity"] == "critical"]
        assert {row["code"] for row in damaged} == codes
        (mend,) = {row["mend"] for row in damaged}
        run_printed(whole_cli, mend)
        assert told(diagnoses(whole_cli, store)) == before


@pytest.mark.usefixtures("damages_stores")
def test_a_last_ledger_with_damaged_metadata_and_no_entries_is_forgotten_as_printed(
    whole_cli: Cli, tmp_path: Path
) -> None:
    """Nothing can rebuild its metadata, and no broker loads the topic with it."""
    store = narrow_copy(tmp_path)
    before = told(diagnoses(whole_cli, store))
    last = whole_cli.json(store, f"topics info-internal {PLAIN}")["ledgers"][-1]["ledgerId"]
    put_node(store, ledger_path(last), b"BookieMetadataFormatVersion\t3\n\x08")
    rows = {row["code"]: row for row in diagnoses(whole_cli, store) if row["severity"] == "critical"}
    assert rows.keys() == {"value-undecodable"}
    read = whole_cli.on(store, f"topics read {PLAIN} -o jsonl")
    assert (read.exit_code, len(read.json_lines)) == (1, 300)
    assert f"ledger {last}: its metadata cannot be read, with 0 entries: a broker cannot load the topic" in read.stderr
    why = whole_cli.json(store, f"topics why {PLAIN} -s never")
    assert (why["reasons"][0]["code"], why["held"]) == ("last-ledger-not-opened", True)
    (missing,) = whole_cli.rows(store, "ledgers missing")
    assert (missing["ledgerId"], missing["reason"]) == (last, "no-ledger")
    run_printed(whole_cli, rows["value-undecodable"]["mend"])
    assert told(diagnoses(whole_cli, store)) == before
    assert whole_cli.on(store, f"topics stats {PLAIN}").exit_code == 0


@pytest.mark.usefixtures("damages_stores")
def test_a_cursor_at_the_beginning_of_a_forgotten_last_ledger_is_stored_at_the_end(
    whole_cli: Cli, tmp_path: Path
) -> None:
    """As compaction's is after the topic was loaded: else it would be ahead of its topic."""
    store, topic = copied("compacted", "clean", tmp_path), "public/default/single-lz4"
    last = whole_cli.json(store, f"topics info-internal {topic}")["ledgers"][-1]["ledgerId"]
    before = told(diagnoses(whole_cli, store))
    change(store, lose_metadata, last)
    (row,) = [row for row in diagnoses(whole_cli, store) if row["severity"] == "critical"]
    run_printed(whole_cli, row["mend"])
    assert told(diagnoses(whole_cli, store)) == before


@pytest.mark.parametrize("first", ["whole", "unreadable", "absent"])
def test_lost_policies_of_a_later_partition_are_told(first: str, tmp_path: Path, damages_stores: None) -> None:
    """The policies of topics are in ``__change_events``, which may have partitions: the ledger of the second one is gone."""
    names = ["a/b/c", *(f"a/b/{EVENTS}-partition-{number}" for number in range(3))]
    path = make_store(tmp_path / "s", {name: MadeTopic([[Made(CREATED_MS)] * 2, []]) for name in names})
    put_node(path, parse_topic(f"a/b/{EVENTS}").partitioned_path, b'{"partitions":3}')
    lose_nodes(path, ledger_path(14))
    if first == "unreadable":
        put_node(path, parse_topic(names[1]).path, b"\xff")
    elif first == "absent":
        lose_nodes(path, parse_topic(names[1]).path)
    (text,) = read_rows(path, lambda txn: find_lost_events(txn, parse_topic("a/b/c")))
    assert text.startswith(f"ledger 14 of {EVENTS}-partition-1, its namespace's policies: ")


@pytest.mark.usefixtures("damages_stores")
def test_what_tiered_storage_has_is_not_missing_behind_a_topic_that_cannot_be_read(tmp_path: Path) -> None:
    path = make_store(tmp_path / "s", {name: MadeTopic([[Made(CREATED_MS)], []]) for name in ("a/b/a", "a/b/c")})
    offloaded = LedgerInfo(
        *(12, 1, 9, CREATED_MS),
        offloaded=True,
        offload_uuid="0f9c8f5e-9d0f-4a3a-9b8e-3f1f8a6d2c11",
        bookkeeper_deleted=True,
    )
    put_node(path, parse_topic("a/b/c").path, encode_managed_ledger(ManagedLedger((offloaded, LedgerInfo(13)))))
    lose_nodes(path, ledger_path(12))
    put_node(path, parse_topic("a/b/a").path, b"\xff")
    assert read_rows(path, lambda txn: [*iter_missing(txn)]) == []
