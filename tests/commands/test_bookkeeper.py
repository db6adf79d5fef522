"""``bookkeeper``: what BookKeeper's own shell said of the same directory.

``RECORDED`` has how many lines ``bin/bookkeeper shell`` of Pulsar 4.0.8 printed for the world ``small``, clean, and the beginning of
their SHA-256. Log lines went in without time, level, thread and class, those of other classes than the commands' and Java's
warnings not at all.
"""

from hashlib import sha256
from pathlib import Path

import pytest
from msgspec.structs import replace

from pulsar_admin.store.codec.digest import DigestType
from pulsar_admin.store.codec.ledgermetadata import closed_ledger
from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.db.tree import find_node
from pulsar_admin.store.reports.internal_stats import metadata_text
from tests.conftest import Cli
from tests.stores import imported, put_node
from tests.synthetic import MadeTopic, make_store
from tests.worlds import CLUSTER

RECORDED = (
    ("listledgers", 128, "1caa9df65a0292a1"),
    ("listledgers -m", 256, "8552a0e519e4b261"),
    ("listledgers -bookieid 127.0.0.1:34299", 115, "332f00868f1be5aa"),
    ("listledgers -bookieid 127.0.0.1:1", 0, "e3b0c44298fc1c14"),
    ("ledgermetadata -ledgerid 9", 2, "0f50c217390ffd88"),
    ("ledger 9", 25, "f8b521df778fdfd7"),
    ("readlog 0", 4349, "da75bea83e918803"),
    ("readlog 1.log -l 100", 2, "11fa4c97fc3daec0"),
    ("readlog 0 -l 9 -e 3", 5, "3533dd5d88294ce5"),
    ("readlog 0.log -sp 143000 -ep 143500", 17, "89d5fc19ee3a0cad"),
    ("readlog 0 -l 9999", 2, "1486f062a38b969b"),
    ("readlog 0 -sp 1 -ep 10", 2, "647212a3a76bc6c7"),
    ("readjournal 1a1fd6a8c5d.txn", 10934, "34ee45ecd1eb3fd0"),
    ("readjournal 1795252980829", 10934, "34ee45ecd1eb3fd0"),
    ("lastmark", 1, "da2068aabdc8e22d"),
    ("listbookies -a", 2, "454e2618d65d8f65"),
    ("listbookies -ro", 1, "d72bb2df51cb6367"),
    ("cookie_get 127.0.0.1:34299", 9, "219d0040ec71803a"),
    ("listunderreplicated", 1, "682c1a41a536060e"),
    ("activeledgers -l 1", 54, "4790c8f9c1122f32"),
    ("listfilesondisc -idx", 1, "9548ff9b54711384"),
    ("clusterinfo", 12, "c07f846ff02f074c"),
)
METADATA_9 = (
    "LedgerMetadata{formatVersion=3, ensembleSize=1, writeQuorumSize=1, ackQuorumSize=1, state=CLOSED, length=3987, lastEntryId=24,"
    " digestType=CRC32C, password=base64:, ensembles={0=[127.0.0.1:34299]}, customMetadata={pulsar/managed-ledger="
    "base64:cHVibGljL2RlZmF1bHQvcGVyc2lzdGVudC9wbGFpbg==, component=base64:bWFuYWdlZC1sZWRnZXI=, application=base64:cHVsc2Fy}}\n"
)


@pytest.mark.parametrize(("words", "lines", "digest"), RECORDED, ids=[words for words, _, _ in RECORDED])
def test_it_prints_what_the_shell_printed(cli: Cli, demo_store: Path, words: str, lines: int, digest: str) -> None:
    result = cli("--store", demo_store, "bookkeeper", *words.split())
    assert (result.exit_code, len(result.stdout.splitlines())) == (0, lines)
    assert sha256(result.stdout.encode()).hexdigest()[:16] == digest


@pytest.mark.parametrize(
    ("digest_type", "password", "shown"),
    [
        (DigestType.HMAC, b"pw", " digestType=MAC, password=OMITTED,"),
        (DigestType.CRC32C, b"", " digestType=CRC32C, password=OMITTED,"),
        (None, b"pw", " digestType=CRC32, password=OMITTED,"),
        (None, None, ""),
    ],
)
def test_the_digest_type_beside_a_password_has_the_apis_name(
    digest_type: DigestType | None, password: bytes | None, shown: str
) -> None:
    """``LedgerMetadataImpl.toSafeString`` adds both or none; ``LedgerMetadataSerDe`` takes the first type where none is stored."""
    metadata = replace(closed_ledger("b:1", 5, 50, {}), digest_type=digest_type, password=password)
    assert metadata_text(metadata) == (
        "LedgerMetadata{formatVersion=3, ensembleSize=1, writeQuorumSize=1, ackQuorumSize=1, state=CLOSED, length=50, lastEntryId=4,"
        f"{shown} ensembles={{0=[b:1]}}, customMetadata={{}}}}"
    )


def test_metadata_reads_as_java_writes_it(cli: Cli, demo_store: Path, tmp_path: Path) -> None:
    assert cli.on(demo_store, "bookkeeper ledgermetadata -l 9").stdout == f"ledgerID: 9\n{METADATA_9}"
    cli("--store", demo_store, "bookkeeper", "ledgermetadata", "-l", "9", "-dumptofile", tmp_path / "nine")
    node = cli.on(demo_store, "store cat /ledgers/00/0000/L0009 --raw --hex").stdout.strip()
    assert (tmp_path / "nine").read_bytes().hex() in node.replace("\n", "")
    cli.on(demo_store, "store cat /ledgers/00/0000/L0009 --raw -o json").ends(2, "it has no output format")
    cli.on(demo_store, f"bookkeeper ledgermetadata -l 9 -restorefromfile {tmp_path}/nine").ends(7)


def test_the_ledgers_of_a_log_are_those_of_the_shell_by_number(cli: Cli, demo_store: Path) -> None:
    lines = cli.on(demo_store, "bookkeeper readlogmetadata 0").stdout.splitlines()
    assert lines[:2] == [
        "Print entryLogMetadata of entrylog 0 (0.log)",
        "entryLogId: 0, remaining size: 6875573, total size: 6875573, usage: 1.0",
    ]
    assert "--------- Lid=9, TotalSizeOfEntriesOfLedger=4987  ---------" in lines
    assert "--------- Lid=71, TotalSizeOfEntriesOfLedger=402  ---------" in lines


def test_a_number_of_several_files_is_refused_and_one_of_their_paths_is_read(cli: Cli) -> None:
    store = imported(CLUSTER, "clean")
    for command, word in (("readlog", "0"), ("readlogmetadata", "0.log")):
        refused = cli("--store", store, "bookkeeper", command, word)
        assert (refused.exit_code, refused.stdout) == (3, "")
        paths = refused.stderr.partition("files are meant: ")[2].partition("\n")[0].split(", ")
        assert len(paths) > 1
        assert cli("--store", store, "bookkeeper", command, paths[0]).exit_code == 0


def test_entries_have_the_size_of_the_ledger_so_far(cli: Cli, demo_store: Path) -> None:
    # As on a bookie that runs: entries of 3, 5 and 1 bytes were printed with 3, 8 and 9.
    sizes = [
        int(line.partition("EntrySize=")[2].split()[0])
        for line in cli.on(demo_store, "bookkeeper readledger -l 9").stdout.splitlines()
    ]
    payloads = [
        len(bytes.fromhex(line["payload"])) if "payload" in line else line["length"]
        for line in cli.rows(demo_store, "ledgers entries 9")
    ]
    assert sizes == payloads
    assert sizes[-1] == 3987
    some = cli.on(demo_store, "bookkeeper readledger -l 9 -fe 3 -le 4 -m").stdout
    assert [line.split(",")[1] for line in some.splitlines() if line.startswith("---")] == [" Eid=3", " Eid=4"]


UNANSWERED = {
    2: "ledgermetadata; ledger x; activeledgers; readlog 0.txt; readlog 0 -sp 10 -ep 5; listbookies; listbookies -a -rw",
    5: "ledgermetadata -l 99999; readledger -l 99999; activeledgers -l 77; readlog 77; readjournal 7.txn; cookie_get 1.1.1.1:1",
    7: "recover -f 127.0.0.1:34299; bookieinfo; localconsistencycheck; convert-to-db-storage; deleteledger -l 9 -f",
}
"""Lines by the exit code that they end with."""


@pytest.mark.parametrize(
    ("code", "words"), [(code, one) for code, all_ in UNANSWERED.items() for one in all_.split("; ")]
)
def test_what_cannot_be_answered_says_why(cli: Cli, demo_store: Path, code: int, words: str) -> None:
    result = cli.on(demo_store, f"bookkeeper {words}")
    assert (result.exit_code, result.stdout) == (code, "")
    assert "hint: " in result.stderr


def test_a_store_without_a_bookies_directory_says_so(cli: Cli, tmp_path: Path) -> None:
    store = make_store(tmp_path / "s", {"a/b/t": MadeTopic([[]])})
    for words, said in (("lastmark", "not imported from a bookie"), ("whatisinstanceid", "has no node")):
        result = cli.on(store, f"bookkeeper {words}")
        assert (result.exit_code, said in result.stderr) == (5, True)


def test_what_was_marked_for_replication_is_listed(cli: Cli, demo_copy: Path) -> None:
    store = demo_copy / "pulsar-store"
    value = b'replica: "10.0.0.1:3181"\nreplica: "10.0.0.2:3181"\nctime: 1700000000000\n'
    put_node(store, "/ledgers/underreplication/ledgers/0000/0000/0000/0009/urL0000000009", value)
    put_node(
        store, "/ledgers/underreplication/ledgers/0000/0000/0000/000a/urL0000000010", b'replica: "10.0.0.2:3181"\n'
    )
    command = ("--store", store, "bookkeeper", "listunderreplicated")
    count = "Under replicated ledger count: 2\n"
    assert cli(*command).stdout == f"9\n\tCtime : 1700000000000\n10\n{count}"
    assert cli(*command, "-c").stdout == count
    assert cli(*command, "-pmr", "-mr", "10.0.0.1:3181").stdout.splitlines()[2:4] == [
        "\tMissingReplica : 10.0.0.1:3181",
        "\tMissingReplica : 10.0.0.2:3181",
    ]
    assert cli(*command, "-emr", "10.0.0.1:3181").stdout == f"10\n{count}".replace("2\n", "1\n")
    assert cli.on(store, "-o json bookkeeper clusterinfo").json["clusterUnderReplicated"] is True


def test_a_ledger_id_has_64_bits(cli: Cli, demo_store: Path) -> None:
    over = cli.on(demo_store, f"bookkeeper ledger {2**63}")
    assert (over.exit_code, over.stderr.startswith("error: invalid ledger id '9223372036854775808'")) == (2, True)


# -- managed-ledger -------------------------------------------------------------------------------------------------

PLAIN = "public/default/persistent/plain"
HALF = """\
cursorsLedgerId: -1
markDeleteLedgerId: 29
markDeleteEntryId: 24
lastActive: 1795253012014

"""


def _digest(store: Path, path: str) -> str:
    with open_store(store) as opened, opened.read() as txn:
        node = find_node(txn, path)
        return sha256(node.value).hexdigest()[:16]


def test_messages_are_printed_as_the_script_prints_them(cli: Cli, demo_store: Path) -> None:
    printed = cli.on(demo_store, f"managed-ledger print-managed-ledger -zk x:1 -mlp {PLAIN}").stdout
    assert printed.startswith(
        "ledgerInfo {\n  ledgerId: 9\n  entries: 25\n  size: 3987\n  timestamp: 1795252993134\n}\n"
    )
    assert len(printed) == 1098
    half = cli.on(demo_store, f"managed-ledger print-cursor --managedLedgerPath {PLAIN} --cursorName half")
    assert half.stdout == HALF
    holes = cli.on(demo_store, f"managed-ledger print-cursor -mlp {PLAIN} -cn holes")
    assert len(holes.stdout) == 6067


def test_changes_write_what_the_script_wrote(cli: Cli, demo_copy: Path) -> None:
    store, path = demo_copy / "pulsar-store", f"/managed-ledgers/{PLAIN}"
    before = _digest(store, path)
    command = ("--store", store, "managed-ledger")
    removed = cli(*command, "delete-managed-ledger-ids", "-mlp", PLAIN, "-lid", "9,21")
    assert removed.stdout.startswith(f"Updated {path} with value\nledgerInfo {{\n  ledgerId: 18\n")
    assert _digest(store, path) == "be30b8c405252127"
    assert cli.on(store, "store undo 1").exit_code == 0
    assert _digest(store, path) == before
    moved = cli(*command, "update-mark-delete-cursor", "-mlp", PLAIN, "-cn", "holes", "-cm", "9:6")
    assert moved.stdout.startswith(f"Updated {path}/holes with value \ncursorsLedgerId: -1\nmarkDeleteLedgerId: 9\n")
    assert "undo: pulsar-admin store undo 3" in moved.stderr
    assert _digest(store, f"{path}/holes") == "ddea76915d2e175b"


REFUSED = {
    2: "print-managed-ledger -mlp public/default/plain; print-managed-ledger; print-cursor -mlp {0};"
    " delete-managed-ledger-ids -mlp {0}; delete-managed-ledger-ids -mlp {0} -lid 9,x;"
    " update-mark-delete-cursor -mlp {0} -cn half; update-mark-delete-cursor -mlp {0} -cn half -cm 9",
    5: "print-managed-ledger -mlp public/default/persistent/absent; print-cursor -mlp {0} -cn absent;"
    " delete-managed-ledger-ids -mlp {0} -lid 9,10; update-mark-delete-cursor -mlp {0} -cn half -cm 10:0",
}


@pytest.mark.parametrize(("code", "words"), [(code, one) for code, all_ in REFUSED.items() for one in all_.split("; ")])
def test_what_cannot_be_meant_is_refused(cli: Cli, demo_store: Path, code: int, words: str) -> None:
    result = cli.on(demo_store, f"managed-ledger {words.format(PLAIN)}")
    assert (result.exit_code, result.stdout) == (code, "")


def test_records_between_equal_offsets(cli: Cli) -> None:
    store = imported("small", "clean")
    one = cli("--store", store, "bookkeeper", "readlog", "0", "-sp", "1024", "-ep", "1024")
    assert (one.exit_code, one.stdout.count("Lid=")) == (0, 1)
    assert cli("--store", store, "bookkeeper", "readlog", "0", "-sp", "1025", "-ep", "1024").exit_code == 2


def test_a_log_without_ledger_0_or_a_record_from_0_on_says_so(cli: Cli) -> None:
    asked = {
        "-l 0": "LedgerId 0  is not available",
        "-l 0 -e 0": "LedgerId 0  EntryId 0 is not",
        "-sp 0 -ep 0": "the range 0 - 0.",
    }
    for words, said in asked.items():
        assert said in cli.on(imported("small", "clean"), f"bookkeeper readlog 0 {words}").stdout.splitlines()[-1]
