"""``compaction attach``: what is refused, where the cursor then stands, and what the preview warns of."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from pulsar_admin.store.codec.ledgermetadata import LedgerState, encode_ledger_metadata, ledger_path
from pulsar_admin.store.db.environment import Txn, open_store
from pulsar_admin.store.db.tree import find_node, put_nodes
from pulsar_admin.store.model.ledgers import find_metadata
from pulsar_admin.store.names import Position
from tests.compaction.entries import PUBLISH_MS, Batch, Slot, compacted, entry
from tests.conftest import Cli
from tests.stores import lose_nodes
from tests.synthetic import Made, MadeCompacted, MadeTopic, make_store

TOPIC = "public/default/t"
CURSOR = "/managed-ledgers/public/default/persistent/t/__compaction"
RAW = entry(Batch([Slot("k", b"v")], alone=True))
DELETED = entry(Batch([Slot("k", b"")], alone=True))


def detached(tmp_path: Path, entries: int = 5, *, raw: bytes = RAW, **fields: object) -> Path:
    """Return a store whose topic of ten entries lost the cursor that named ledger 77, of the first of them."""
    payloads = [compacted(10, entry_id, RAW) for entry_id in range(entries)]
    made = MadeCompacted(77, payloads, Position(10, 4), **fields)  # type: ignore[arg-type]
    topic = MadeTopic([[Made(PUBLISH_MS, raw=RAW)] * entries + [Made(PUBLISH_MS, raw=raw)] * 5], compacted=made)
    path = make_store(tmp_path / "pulsar-store", {TOPIC: topic})
    lose_nodes(path, CURSOR)
    return path


def left_open(path: Path) -> None:
    def change(txn: Txn) -> None:
        node, metadata = find_node(txn, ledger_path(77)), find_metadata(txn, 77)
        assert metadata is not None
        opened = replace(metadata, state=LedgerState.OPEN, last_entry_id=-1, length=0)
        put_nodes(txn, [node._replace(value=encode_ledger_metadata(opened))])

    with open_store(path, writable=True) as opened:
        opened.write(change)


@pytest.mark.parametrize(
    ("fields", "horizon"),
    [
        ({}, "10:4"),
        ({"compacted_to": Position(10, 6), "raw": DELETED}, "10:6"),  # what lies between was deleted
        ({"compacted_to": Position(10, 2)}, "10:4"),  # 2.11.0 takes a batch with one null value for deleted
    ],
)
def test_the_cursor_stands_where_the_ledger_ends(
    fields: dict[str, object], horizon: str, cli: Cli, tmp_path: Path
) -> None:
    """As a broker takes it for the horizon: neither in front of what was compacted out, nor behind what the ledger has not."""
    store = detached(tmp_path, **fields)  # type: ignore[arg-type]
    done = cli("--store", store, "compaction", "attach", TOPIC, "77", "-o", "json").json
    assert done["after"] == {"markDeletePosition": horizon, "compactedLedger": 77}
    assert cli("--store", store, "compaction", "status", TOPIC, "-o", "json").json["problems"] == []
    again = cli("--store", store, "compaction", "attach", TOPIC, "77")
    assert (again.exit_code, again.stdout.splitlines()[0].partition(":")[0]) == (0, "no change")


@pytest.mark.usefixtures("damages_stores")
@pytest.mark.parametrize(
    ("fields", "open_", "text"),
    [
        ({}, True, "it was never closed"),
        ({"compacted_to": Position(10, 7)}, False, "was to reach 10:7: 10:5 is missing from it"),
        ({"lost": (2,)}, False, "clients do not get all its entries"),
        ({"claims": "persistent://public/default/u"}, False, "the compacted ledger of persistent://public/default/u"),
    ],
)
def test_one_that_readers_would_not_get_all_of_is_refused(
    fields: dict[str, object], open_: bool, text: str, cli: Cli, tmp_path: Path
) -> None:
    """And no finding prints a command that is refused."""
    store = detached(tmp_path, **fields)  # type: ignore[arg-type]
    if open_:
        left_open(store)
    refused = cli("--store", store, "-o", "json", "compaction", "attach", TOPIC, "77", "-y")
    assert refused.exit_code == 3
    assert text in refused.error["message"]
    found = {row["code"]: row for row in cli("--store", store, "doctor", "-o", "jsonl").json_lines}
    assert "compacted-view-detached" not in found
    if "claims" not in fields:
        assert text in found["compacted-view-unfit"]["message"]
        assert cli("--store", store, *found["compacted-view-unfit"]["mend"].split()[1:]).exit_code in (0, 1)


@pytest.mark.usefixtures("damages_stores")
def test_one_beside_the_view_that_the_topic_has_is_refused(cli: Cli, tmp_path: Path) -> None:
    store = detached(tmp_path)
    assert cli("--store", store, "compaction", "run", TOPIC).exit_code == 0
    refused = cli("--store", store, "-o", "json", "compaction", "attach", TOPIC, "77", "-y")
    assert refused.exit_code == 3
    assert "has a compacted view in ledger" in refused.error["message"]


def test_what_changed_in_ledgers_that_are_gone_is_told(cli: Cli, tmp_path: Path) -> None:
    payloads = [compacted(10, entry_id, RAW) for entry_id in range(3)]
    made = MadeCompacted(77, payloads, Position(10, 2))
    ledgers = [[Made(PUBLISH_MS, raw=RAW)] * 3, [Made(PUBLISH_MS, raw=DELETED)] * 4, [Made(PUBLISH_MS, raw=RAW)] * 2]
    store = make_store(tmp_path / "s", {TOPIC: MadeTopic(ledgers, compacted=made)})
    assert cli("--store", store, "topics", "truncate", TOPIC, "-y").exit_code == 0
    shown = cli("--store", store, "compaction", "attach", TOPIC, "77", "--dry-run", "-o", "json").json
    assert shown["after"]["markDeletePosition"] == "10:2"
    assert [text for text in shown["warnings"] if "between 10:2 and 12:0 is gone" in text]
