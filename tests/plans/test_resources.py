"""What is stored of tenants, clusters, namespaces …: a plan file makes the change, undo brings back every byte."""

from __future__ import annotations

from pathlib import Path

import pytest

from pulsar_admin.store.changes.resources import NodeChange, plan_nodes
from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.model.resources import find_json, tenant_path
from tests.conftest import Cli
from tests.stores import copied, imported

LINES = (
    "tenants create shop -r ops",
    "tenants update acme -r ops,dev",
    "tenants delete acme --force",
    "clusters create west --url http://west:8080",
    "clusters update standalone --broker-url pulsar://west:6650",
    "clusters update-peer-clusters standalone --peer-clusters ''",
    "clusters update-cluster-migration standalone --migrated",
    "clusters create-failure-domain standalone --domain-name d1 --broker-list b1,b2",
    "clusters delete standalone",
    "clusters delete standalone --all",
    "namespaces create acme/new -b 3",
    "namespaces delete acme/iot --force",
    "namespaces split-bundle acme/iot -b 0x00000000_0xffffffff",
    "namespaces set-properties acme/iot -p owner=ops",
    "namespaces grant-permission acme/iot --role app --actions produce",
    "namespaces grant-subscription-permission acme/iot -s workers --roles app",
    "namespaces set-allowed-clusters acme/iot -c standalone",
    "namespaces set-anti-affinity-group acme/iot -g heavy",
    "namespaces set-bookie-affinity-group acme/iot -pg fast",
    "namespaces update-migration-state acme/iot --migrated",
    "topics grant-permission acme/iot/skewed --role app --actions consume",
    "resourcegroups create batch -mp 1000",
    "resource-quotas set -mi 10 -mo 20 -bi 1000 -bo 2000 -mem 100",
    "resource-quotas set -n acme/iot -b 0x00000000_0xffffffff -mi 10 -mo 20 -bi 1000 -bo 2000 -mem 100",
    "bookies set-bookie-rack -b bookie-1:3181 -r /rack-1",
    "brokers update-dynamic-config -c maxTenants -v 10",
    "ns-isolation-policy set standalone p --namespaces acme/iot --primary b1 --auto-failover-policy-type min_available"
    " --auto-failover-policy-params min_limit=1,usage_threshold=80",
)
SAME = {"clusters update-peer-clusters standalone --peer-clusters ''"}
"""What is so already: a plan without steps."""


def _rows(store: Path) -> dict[bytes, bytes]:
    with open_store(store) as opened, opened.read() as txn:
        rows = {(name, bytes(key)): bytes(row) for name in ("tree", "owners") for key, row in txn.items(name)}
    return {name.encode() + key: row for (name, key), row in rows.items()}


@pytest.mark.parametrize("line", LINES)
def test_a_plan_makes_the_change_and_undo_brings_back_every_byte(line: str, cli: Cli, tmp_path: Path) -> None:
    store, plan = copied("small", "clean", tmp_path), tmp_path / "plan"
    before = _rows(store)
    words = [word.strip("'") for word in line.split()]
    assert cli("--store", store, *words, "--plan", plan).exit_code == 0
    assert _rows(store) == before
    assert cli("--store", store, "apply", plan).exit_code == 0
    assert (_rows(store) == before) == (line in SAME)
    if line not in SAME:
        assert cli("--store", store, "store", "undo", "1").exit_code == 0
    assert _rows(store) == before


def test_amounts_of_a_quota_are_those_of_their_options(cli: Cli, tmp_path: Path) -> None:
    store = copied("small", "clean", tmp_path)
    words = ["-mem", 5, "-bo", 4, "-bi", 3, "-mo", 2, "-mi", 1]
    assert cli("--store", store, "resource-quotas", "set", *words).exit_code == 0
    amounts = {"msgRateIn": 1.0, "msgRateOut": 2.0, "bandwidthIn": 3.0, "bandwidthOut": 4.0, "memory": 5.0}
    assert cli("--store", store, "resource-quotas", "get").json == {**amounts, "dynamic": False}


def test_what_is_so_already_stops_nothing_that_follows() -> None:
    """A change without a step, wherever it stands among others, is a part of the report alone."""
    with open_store(imported("small", "clean")) as opened, opened.read() as txn:
        acme, public, new, gone = (tenant_path(name) for name in ("acme", "public", "new", "gone"))
        same = NodeChange("same", acme, find_json(txn, acme))
        nothing = NodeChange("nothing", gone, None)
        changes = [
            NodeChange("changed", public, {"adminRoles": ["ops"]}),
            NodeChange("made", new, {}),
            NodeChange("deleted", acme, None),
        ]
        for given in (
            [same, nothing, *changes],
            [changes[0], same, changes[1], nothing, changes[2]],
            [*changes, nothing, same],
        ):
            plan = plan_nodes(txn, "test", given, 1, ["a warning"])
            assert [step.key.decode() for step in plan.steps] == [public, new, acme]
            assert [(step.before is None, step.after is None) for step in plan.steps] == [
                (False, False),
                (True, False),
                (False, True),
            ]
            assert [part.resource for part in plan.parts] == [change.resource for change in given]
            assert plan.warnings == ("a warning",)
        assert plan_nodes(txn, "test", [same, nothing], 1).steps == ()
