"""Under-replication marks of ledgers that are gone or complete."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from pulsar_admin.store.codec.ledgermetadata import ledger_path
from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.db.ledger_ids import put_next_ledger_id
from pulsar_admin.store.model.ledgers import sorted_ledger_ids
from pulsar_admin.store.model.topics import read_topic
from pulsar_admin.store.names import parse_topic
from tests.commands.changing import check_undo, rows_of
from tests.conftest import Cli
from tests.cures.curing import check_cured, check_told, diagnoses, put_values, told
from tests.stores import copied, lose_nodes, read_rows
from tests.worlds import CLUSTER

MARKS = "/ledgers/underreplication/ledgers"
PLAIN = parse_topic("public/default/plain")
NEVER = 2_000_000_000


def mark_path(ledger_id: int) -> str:
    """As ``ZkLedgerUnderreplicationManager`` has it: the sixteen hexadecimal digits of the id in four levels."""
    digits = f"{ledger_id:016x}"
    return "/".join([MARKS, *(digits[at : at + 4] for at in range(0, 16, 4)), f"urL{ledger_id:010d}"])


def marks(*ledgers: int) -> Mapping[str, bytes]:
    """The nodes of marks, with those above them."""
    paths = [mark_path(one) for one in ledgers]
    above = {path.rsplit("/", level)[0]: b"" for path in paths for level in range(1, 5)}
    return above | dict.fromkeys(paths, b'replica: "gone:3181"\nctime: 1700000000000\n')


def deleted_ledger(cli: Cli, store: Path) -> int:
    """A ledger that a broker deleted: the metadata gave its id, and does not list it."""
    rows = cli("--store", store, "ledgers", "orphans", "-o", "jsonl").json_lines
    return next(row["ledgerId"] for row in rows if row["reason"] == "deleted")


@pytest.mark.usefixtures("damages_stores")
def test_marks_without_a_reason(whole_cli: Cli, tmp_path: Path) -> None:
    """bookkeeper#3316, pulsar#1886, on three bookies: the marks go in one change, with the nodes above that get empty."""
    store = copied(CLUSTER, "clean", tmp_path)
    complete = read_rows(store, lambda txn: read_topic(txn, PLAIN).ids[0])
    ledgers = sorted([complete, deleted_ledger(whole_cli, store), NEVER])
    put_values(store, {MARKS: b""})
    before = diagnoses(whole_cli, store)
    put_values(store, marks(*ledgers))
    (row,) = check_told(whole_cli, store, before, [("marks-stale", f"ledgers {ledgers[0]}, {ledgers[1]} and {NEVER}")])
    assert (row["severity"], row["evidence"]["gone"], row["evidence"]["complete"]) == ("note", 2, 1)
    rows = rows_of(store)
    check_cured(whole_cli, store, row, told(before), marks(*ledgers))
    assert MARKS.encode() in rows_of(store, "tree")["tree"]
    check_undo(whole_cli, store, 1, rows)


@pytest.mark.usefixtures("damages_stores")
def test_a_mark_with_a_reason_stays(whole_cli: Cli, tmp_path: Path) -> None:
    """Of a ledger that older metadata does not know and bookies have, nobody knows that its mark may go."""
    store = copied(CLUSTER, "clean", tmp_path)
    stale = deleted_ledger(whole_cli, store)
    with open_store(store, writable=True) as opened:
        with opened.read() as txn:
            newer = sorted_ledger_ids(txn)[-1]
        opened.write(lambda txn: put_next_ledger_id(txn, newer))
    lose_nodes(store, ledger_path(newer))
    put_values(store, {MARKS: b"", **marks(stale, newer)})
    run = ("--store", store, "ledgers", "unmark")
    whole_cli(*run, newer, "-o", "json").fails(3, "refused")
    assert whole_cli(*run, 1_999_999_999, "-o", "json").error["code"] == "not-found"
    assert whole_cli(*run).exit_code == 0
    listed = whole_cli("--store", store, "bookkeeper", "listunderreplicated").stdout.split()
    assert str(newer) in listed
    assert str(stale) not in listed
    assert whole_cli(*run, newer, "--force").exit_code == 0
    assert "count: 0" in whole_cli("--store", store, "bookkeeper", "listunderreplicated").stdout
