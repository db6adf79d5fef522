"""``topics skip``, ``clear-backlog``, ``create-subscription``, ``unsubscribe``, and the two of them for a whole namespace."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from pulsar_admin.store.codec.cursor import CursorInfo, decode_cursor_info
from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.db.owners import find_owners
from pulsar_admin.store.db.tree import read_node
from pulsar_admin.store.model.cursors import COMPACTION_CURSOR, iter_cursor_names
from pulsar_admin.store.names import parse_topic
from tests.commands.changing import check_undo, rows_of
from tests.conftest import Cli
from tests.stores import copied, read_rows
from tests.worlds import assert_unchanged, oracle

PLAIN = "public/default/plain"
COMPACTED = "acme/orders/compacted-single"


def info_of(store: Path, topic: str, cursor: str) -> CursorInfo:
    with open_store(store) as opened, opened.read() as txn:
        path = parse_topic(topic).cursor_path(cursor)
        return decode_cursor_info(read_node(txn, path).value, path)


# -- skip and clear-backlog -------------------------------------------------------------------------------------------


def test_skip(cli: Cli, store: Path) -> None:
    before = rows_of(store)
    done = cli.json(store, f"topics skip {PLAIN} -s half -n 7")
    recorded = next(m for m in oracle("small")["mutations"] if m["kind"] == "skip")
    assert recorded["path"] == "skip/7"
    assert done["after"]["markDeletePosition"] == recorded["after"]["markDeletePosition"]
    assert (done["entries"], done["skipped"]["entries"], done["replayed"]["entries"]) == (7, 7, 0)
    assert info_of(store, PLAIN, "half").cursors_ledger_id == -1
    check_undo(cli, store, 1, before)


def test_skip_over_holes(cli: Cli, store: Path) -> None:
    """Of the recorded holes (9:2, then 4..8, 14..18 …) the next three entries not acknowledged are 9:3, 9:4 and 9:9."""
    done = cli.json(store, f"topics skip {PLAIN} -s holes -n 3")
    assert done["before"]["individuallyDeletedMessages"].startswith("[(9:4..9:8],(9:14..9:18],")
    assert done["after"]["markDeletePosition"] == "9:9"
    assert done["after"]["individuallyDeletedMessages"].startswith("[(9:14..9:18],")
    # the next one swallows nothing, the fourth after it stops before 9:14 … 9:18 and swallows them
    more = cli.json(store, f"topics skip {PLAIN} -s holes -n 5")
    assert more["after"]["markDeletePosition"] == "9:18"


def test_the_truth_in_a_cursor_ledger(cli: Cli, tmp_path: Path) -> None:
    """After the kill the state is in a ledger: it is read from there, written into metadata, and the ledger has no owner then."""
    store = copied("small", "crashed", tmp_path)
    before = rows_of(store)
    info = info_of(store, "public/default/fresh", "crash-holes")
    assert info.cursors_ledger_id >= 0
    assert info.ranges == ()
    done = cli.json(store, "topics skip public/default/fresh -s crash-holes -n 2")
    assert len(done["before"]["individuallyDeletedMessages"].split(",")) > 50
    after = info_of(store, "public/default/fresh", "crash-holes")
    assert after.cursors_ledger_id == -1
    assert len(after.ranges) > 50
    assert read_rows(store, lambda txn: find_owners(txn, info.cursors_ledger_id)) == ()
    check_undo(cli, store, 1, before)


# -- create-subscription ----------------------------------------------------------------------------------------------


def test_create_is_all_or_nothing(cli: Cli, store: Path) -> None:
    assert cli.on(store, "topics create-subscription acme/orders/parts-partition-1 -s new").exit_code == 0
    with assert_unchanged(store / "meta" / "data.mdb"):
        result = cli.on(store, "topics create-subscription acme/orders/parts -s new -o json")
    assert (result.exit_code, result.error["code"]) == (3, "already-exists")
    assert "already exists for topic: persistent://acme/orders/parts-partition-1" in result.error["message"]
    first = parse_topic("acme/orders/parts-partition-0")
    assert read_rows(store, lambda txn: [*iter_cursor_names(txn, first)]) == []


# -- the first ledger of a cluster -------------------------------------------------------------------------------------


# -- unsubscribe ------------------------------------------------------------------------------------------------------


def test_unsubscribe_leaves_the_pending_ack_topic(cli: Cli, store: Path) -> None:
    done = cli.json(store, "topics unsubscribe public/default/txn-in -s perf")
    assert done["warnings"] == [
        "the topic persistent://public/default/txn-in-perf__transaction_pending_ack of its transactions stays; "
        "a broker would delete it too"
    ]


def test_unsubscribe_from_compaction(cli: Cli, store: Path) -> None:
    before = rows_of(store)
    arguments = ("--store", store, "topics", "unsubscribe", COMPACTED, "-s", COMPACTION_CURSOR, "-o", "json")
    cli(*arguments).fails(3, "refused", "without it the compacted view is gone")
    assert cli(*arguments, "-f").json["unreferencedLedgers"] == [94]
    check_undo(cli, store, 1, before)


# -- whole namespaces -------------------------------------------------------------------------------------------------


def test_bundles_part_the_namespace(cli: Cli, store: Path) -> None:
    """The four bundles of the recorded policies hold every subscription once."""
    bounds = oracle("small")["namespaces"]["public/default"]["policies"]["bundles"]["boundaries"]
    arguments = ("--store", store, "namespaces", "clear-backlog", "public/default", "--dry-run", "-o", "jsonl")
    whole = [(row["topic"], row["subscription"]) for row in cli(*arguments).json_lines]
    parts: list[Any] = []
    for low, high in pairwise(bounds):
        result = cli(*arguments, "-b", f"{low}_{high}")
        if result.exit_code == 0:
            parts += [(row["topic"], row["subscription"]) for row in result.json_lines]
    assert sorted(parts) == sorted(whole)
    # CRC-32 of "persistent://public/default/plain", computed with another program (gzip), is 0xdd337939
    last = [(row["topic"], row["subscription"]) for row in cli(*arguments, "-b", "0xdd337939_0xdd33793a").json_lines]
    assert {topic for topic, _ in last} == {"persistent://public/default/plain"}


# -- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["unsubscribe", "clear-backlog"])
def test_what_a_namespace_refuses_of_a_brokers_cursor_is_typed_for_a_topic(verb: str, cli: Cli, store: Path) -> None:
    refused = cli.on(store, f"-o json namespaces {verb} acme/orders -s __compaction -y").ends(3)
    words = refused.error["hint"].partition("pulsar-admin ")[2].split()
    assert words[:2] == ["topics", verb]
    assert cli("--store", store, *words, "-y").exit_code == 0
