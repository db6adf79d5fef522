"""``namespaces list`` and ``policies``; ``namespaces topics`` is tested beside ``topics list``."""

from __future__ import annotations

from pathlib import Path

import pytest

from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.db.tree import tree_key
from pulsar_admin.store.errors import TenantNotFound
from pulsar_admin.store.names import parse_namespace
from tests.conftest import Cli
from tests.stores import imported
from tests.worlds import WORLD_NAMES, oracle


def test_namespaces_of_a_tenant(cli: Cli, demo_store: Path) -> None:
    found = cli("--store", demo_store, "namespaces", "list", "acme").stdout.splitlines()
    assert found == ["acme/delayed", "acme/iot", "acme/orders", "acme/secure"]
    assert cli("--store", demo_store, "namespaces", "list", "public", "-o", "json").json == ["public/default"]


@pytest.mark.parametrize("world", WORLD_NAMES)
def test_policies_equal_the_broker(world: str, cli: Cli) -> None:
    for namespace, answers in oracle(world)["namespaces"].items():
        found = cli("--store", imported(world, "clean"), "namespaces", "policies", namespace, "-o", "json").json
        expected = answers["policies"]
        assert found == expected
        assert list(found) == list(expected)


def test_errors(cli: Cli, demo_store: Path, store: Path) -> None:
    result = cli("--store", demo_store, "namespaces", "list", "nobody", "-o", "json")
    assert (result.exit_code, result.error["code"]) == (5, TenantNotFound.code)
    assert "acme" in result.error["hint"]
    assert cli("--store", demo_store, "namespaces", "policies", "acme/none").exit_code == 5
    assert cli("--store", demo_store, "namespaces", "topics", "acme/none").exit_code == 5
    path = parse_namespace("acme/iot").policies_path
    with open_store(store, writable=True) as opened:
        opened.write(lambda txn: txn.delete("tree", tree_key(path)))
    assert cli("--store", store, "namespaces", "topics", "acme/iot").exit_code == 0
    result = cli("--store", store, "namespaces", "policies", "acme/iot", "-o", "json")
    assert (result.exit_code, "no policies" in result.error["message"]) == (5, True)


def test_the_log_names_the_namespace_whose_policies_changed(cli: Cli, store: Path) -> None:
    assert cli("--store", store, "namespaces", "set-message-ttl", "public/default", "-ttl", "60").exit_code == 0
    (header, row) = cli("--store", store, "store", "log", "-o", "csv").stdout.splitlines()
    assert dict(zip(header.split(","), row.split(","), strict=True))["TOPICS"] == "public/default"
