"""``bookkeeper``: what BookKeeper's own shell said of the same directory.

``RECORDED`` has how many lines ``bin/bookkeeper shell`` of Pulsar 4.0.8 printed for the world ``small``, clean, and the beginning of
their SHA-256. Log lines went in without time, level, thread and class, those of other classes than the commands' and Java's
warnings not at all.
"""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import pytest

from pulsar_admin.store.codec.rocksvalue import NodeStat
from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.db.tree import Node, put_nodes
from tests.conftest import Cli

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


def test_metadata_reads_as_java_writes_it(cli: Cli, demo_store: Path, tmp_path: Path) -> None:
    assert cli("--store", demo_store, "bookkeeper", "ledgermetadata", "-l", "9").stdout == f"ledgerID: 9\n{METADATA_9}"
    cli("--store", demo_store, "bookkeeper", "ledgermetadata", "-l", "9", "-dumptofile", tmp_path / "nine")
    node = cli("--store", demo_store, "store", "cat", "/ledgers/00/0000/L0009", "--raw", "--hex").stdout.strip()
    assert (tmp_path / "nine").read_bytes().hex() in node.replace("\n", "")
    refused = cli(
        "--store", demo_store, "bookkeeper", "ledgermetadata", "-l", "9", "-restorefromfile", tmp_path / "nine"
    )
    assert refused.exit_code == 7


def test_the_ledgers_of_a_log_are_those_of_the_shell_by_number(cli: Cli, demo_store: Path) -> None:
    lines = cli("--store", demo_store, "bookkeeper", "readlogmetadata", "0").stdout.splitlines()
    assert lines[:2] == [
        "Print entryLogMetadata of entrylog 0 (0.log)",
        "entryLogId: 0, remaining size: 6875573, total size: 6875573, usage: 1.0",
    ]
    assert "--------- Lid=9, TotalSizeOfEntriesOfLedger=4987  ---------" in lines
    assert "--------- Lid=71, TotalSizeOfEntriesOfLedger=402  ---------" in lines


def test_entries_have_the_size_of_the_ledger_so_far(cli: Cli, demo_store: Path) -> None:
    # As on a bookie that runs: entries of 3, 5 and 1 bytes were printed with 3, 8 and 9.
    sizes = [
        int(line.partition("EntrySize=")[2].split()[0])
        for line in cli("--store", demo_store, "bookkeeper", "readledger", "-l", "9").stdout.splitlines()
    ]
    payloads = [
        len(bytes.fromhex(line["payload"])) if "payload" in line else line["length"]
        for line in cli("--store", demo_store, "ledgers", "entries", "9", "-o", "jsonl").json_lines
    ]
    assert sizes == payloads
    assert sizes[-1] == 3987
    some = cli("--store", demo_store, "bookkeeper", "readledger", "-l", "9", "-fe", "3", "-le", "4", "-m").stdout
    assert [line.split(",")[1] for line in some.splitlines() if line.startswith("---")] == [" Eid=3", " Eid=4"]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("ledgermetadata", 2),
        ("ledgermetadata -l 99999", 5),
        ("readledger -l 99999", 5),
        ("ledger x", 2),
        ("activeledgers", 2),
        ("activeledgers -l 77", 5),
        ("readlog 77", 5),
        ("readlog 0.txt", 2),
        ("readlog 0 -sp 10 -ep 5", 2),
        ("readjournal 7.txn", 5),
        ("listbookies", 2),
        ("listbookies -a -rw", 2),
        ("cookie_get 1.1.1.1:1", 5),
        ("recover -f 127.0.0.1:34299", 7),
        ("bookieinfo", 7),
        ("localconsistencycheck", 7),
        ("convert-to-db-storage", 7),
        ("deleteledger -l 9 -f", 7),
    ],
)
def test_what_cannot_be_answered_says_why(cli: Cli, demo_store: Path, words: str, code: int) -> None:
    result = cli("--store", demo_store, "bookkeeper", *words.split())
    assert (result.exit_code, result.stdout) == (code, "")
    assert "hint: " in result.stderr


def test_what_was_marked_for_replication_is_listed(cli: Cli, demo_copy: Path) -> None:
    store, stat = demo_copy / "pulsar-store", NodeStat(0, 0, 0, 0, False)
    value = b'replica: "10.0.0.1:3181"\nreplica: "10.0.0.2:3181"\nctime: 1700000000000\n'
    with open_store(store, writable=True) as opened:
        path = "/ledgers/underreplication/ledgers/0000/0000/0000/0009/urL0000000009"
        opened.write(lambda txn: put_nodes(txn, [Node(path, stat, value)]))
    command = ("--store", store, "bookkeeper", "listunderreplicated")
    count = "Under replicated ledger count: 1\n"
    assert cli(*command).stdout == f"9\n\tCtime : 1700000000000\n{count}"
    assert cli(*command, "-c").stdout == count
    assert cli(*command, "-pmr", "-mr", "10.0.0.1:3181").stdout.splitlines()[2:4] == [
        "\tMissingReplica : 10.0.0.1:3181",
        "\tMissingReplica : 10.0.0.2:3181",
    ]
    assert cli(*command, "-emr", "10.0.0.1:3181").stdout == count.replace("1\n", "0\n")
    assert cli("--store", store, "-o", "json", "bookkeeper", "clusterinfo").json["clusterUnderReplicated"] is True


def test_a_ledger_id_has_64_bits(cli: Cli, demo_store: Path) -> None:
    over = cli("--store", demo_store, "bookkeeper", "ledger", 2**63)
    assert (over.exit_code, over.stderr.startswith("error: invalid ledger id '9223372036854775808'")) == (2, True)
