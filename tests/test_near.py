"""Names near one that is not there: what an error's hint suggests, and what finding it costs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pulsar_admin.store.codec.rocksvalue import NodeStat
from pulsar_admin.store.db.environment import Txn, open_store
from pulsar_admin.store.db.tree import Node, put_nodes
from pulsar_admin.store.errors import TopicNotFound
from pulsar_admin.store.model.suggestions import near_names
from pulsar_admin.store.model.topics import read_topic
from pulsar_admin.store.names import parse_topic
from tests.conftest import Cli
from tests.stores import copied, imported


@pytest.mark.parametrize(
    ("words", "near"),
    [
        ("topics stats-internal public/default/plan", ["public/default/plain"]),
        ("topics stats-internal public/default/PLAIN", ["public/default/plain"]),
        ("topics stats-internal publi/default/plain", ["public/default/plain"]),
        ("topics stats-internal public/defalt/plain", ["public/default/plain"]),
        ("topics list public/defalt", ["public/default"]),
        ("topics list publc/default", ["public/default"]),
        ("namespaces list acne", ["acme"]),
        ("topics peek-messages public/default/plain -s hafl", ["half"]),
        ("topics stats-internal public/default/nothing-of-that-kind", []),
        ("ledgers info 1755", ["175", "155"]),
    ],
)
def test_an_error_names_what_was_meant(cli: Cli, demo_store: Path, words: str, near: list[str]) -> None:
    result = cli("--store", demo_store, "-o", "json", *words.split())
    assert result.exit_code == 5
    assert result.error["context"].get("near", []) == near
    assert result.error["hint"].startswith(f"did you mean {' or '.join(near)}? ") is bool(near)


def test_every_topic_of_several_is_answered_for(cli: Cli, demo_store: Path) -> None:
    result = cli("--store", demo_store, "topics", "stats", "public/default/plain", "public/default/plan")
    assert "did you mean public/default/plain?" in result.stderr


def test_a_partitioned_topic_is_suggested_by_its_own_name(cli: Cli, demo_store: Path) -> None:
    result = cli("--store", demo_store, "-o", "json", "topics", "stats-internal", "acme/orders/prts")
    assert result.error["context"]["near"][0] == "acme/orders/parts"


def test_a_million_topics_cost_what_a_thousand_cost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = copied("small", "clean", tmp_path)
    names = [
        f"persistent://acme/many/of {kind}-{number:05}" for kind in ("bills", "orders") for number in range(20_000)
    ]
    stat = NodeStat(0, 0, 0, 0, False)
    with open_store(store, writable=True) as opened:
        opened.write(lambda txn: put_nodes(txn, [Node(parse_topic(name).path, stat, b"") for name in names]))
    looked_at = 0
    items = Txn.items

    def counted(*words: object) -> Iterator[tuple[bytes, memoryview]]:
        nonlocal looked_at
        for row in items(*words):  # type: ignore[arg-type]
            looked_at += 1
            yield row

    monkeypatch.setattr(Txn, "items", counted)
    with open_store(store) as opened, opened.read() as txn:
        with pytest.raises(TopicNotFound) as raised:
            read_topic(txn, parse_topic("acme/many/of orders-1234"))
        near = near_names(txn, raised.value)
        assert len(near) == 3
        assert all(name.startswith("acme/many/of orders-123") for name in near)
    assert looked_at < 2_000


def test_a_store_that_is_only_read_stays_as_it_is(cli: Cli) -> None:
    store = imported("small", "clean")
    before = (store / "meta" / "data.mdb").read_bytes()
    cli("--store", store, "topics", "stats-internal", "public/default/plan")
    assert (store / "meta" / "data.mdb").read_bytes() == before


def test_a_ledger_that_is_there_without_metadata_is_no_slip_for_one_that_has_some(cli: Cli) -> None:
    """``ledgers delete`` would offer live ledgers for deletion."""
    store = imported("small", "clean")
    (gone, *_) = [
        row["ledgerId"]
        for row in cli("--store", store, "ledgers", "orphans", "-o", "jsonl").json_lines
        if row["reason"] == "gone"
    ]
    refused = cli("--store", store, "-o", "json", "ledgers", "delete", str(gone), "--dry-run")
    assert (refused.exit_code, refused.error["context"].get("near")) == (5, None)
    assert cli("--store", store, *refused.error["hint"].rpartition("pulsar-admin ")[2].split()).exit_code == 0
