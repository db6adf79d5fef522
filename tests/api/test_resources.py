"""Tenants, clusters, bookies, brokers and limits from Python: plans are those of the command line, and so are the answers after them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import pulsar_admin as pa
from tests.commands.changing import rows_of
from tests.conftest import Cli
from tests.stores import NOW_MS, copied

ALL = "0x00000000_0xffffffff"
ISOLATED = (
    "ns-isolation-policy set standalone p --namespaces acme/iot --primary b1,b2 --auto-failover-policy-type min_available"
    " --auto-failover-policy-params min_limit=1,usage_threshold=80"
)
LIMITS = {"min_limit": "1", "usage_threshold": "80"}

PLANS: list[tuple[str, Callable[[pa.Store], pa.Plan]]] = [
    ("tenants create shop -r ops -c standalone", lambda store: store.create_tenant("shop", admin_roles=["ops"])),
    ("tenants update acme -r ops,dev", lambda store: store.update_tenant("acme", admin_roles=["ops", "dev"])),
    (
        "clusters create west --url http://west:8080",
        lambda store: store.create_cluster("west", {"serviceUrl": "http://west:8080"}),
    ),
    (
        "clusters update standalone --broker-url pulsar://new:6650 --tls-enable",
        lambda store: store.cluster("standalone").update(
            {"brokerServiceUrl": "pulsar://new:6650", "brokerClientTlsEnabled": True}
        ),
    ),
    (
        "clusters update-peer-clusters standalone --peer-clusters west",
        lambda store: store.cluster("standalone").set_peers(["west"]),
    ),
    (
        "clusters update-cluster-migration west --migrated --broker-url pulsar://b",
        lambda store: store.cluster("west").set_migration(migrated=True, urls={"brokerServiceUrl": "pulsar://b"}),
    ),
    (
        "clusters create-failure-domain standalone --domain-name d1 --broker-list b1,b2",
        lambda store: store.cluster("standalone").create_failure_domain("d1", ["b1", "b2"]),
    ),
    (
        "clusters update-failure-domain standalone --domain-name d1 --broker-list b1,b3",
        lambda store: store.cluster("standalone").update_failure_domain("d1", ["b1", "b3"]),
    ),
    (
        ISOLATED,
        lambda store: store.cluster("standalone").set_isolation_policy(
            "p", namespaces=["acme/iot"], primary=["b1", "b2"], failover=LIMITS
        ),
    ),
    (
        "bookies set-bookie-rack -b b:3181 -r /rack-1 -g fast",
        lambda store: store.set_bookie_rack("b:3181", "/rack-1", group="fast"),
    ),
    ("brokers update-dynamic-config -c maxTenants -v 10", lambda store: store.set_dynamic_setting("maxTenants", "10")),
    ("resourcegroups create batch -mp 1000", lambda store: store.create_resource_group("batch", publish_messages=1000)),
    ("resourcegroups update batch -bd 9", lambda store: store.update_resource_group("batch", dispatch_bytes=9)),
    (
        "resource-quotas set -mi 1 -mo 2 -bi 3 -bo 4 -mem 5 -d",
        lambda store: store.set_bundle_quota(messages=(1, 2), bandwidth=(3, 4), memory_mb=5, dynamic=True),
    ),
    (
        f"resource-quotas set -n acme/iot -b {ALL} -mi 10 -mo 20 -bi 30 -bo 40 -mem 50",
        lambda store: store.set_bundle_quota("acme/iot", ALL, messages=(10, 20), bandwidth=(30, 40), memory_mb=50),
    ),
]


def shown_of(plan: pa.Plan) -> object:
    """Return the preview of PLAN as the command line writes it."""
    documents = plan.preview().documents()
    return list(documents) if len(documents) > 1 else documents[0]


def test_plans_are_those_of_the_command_line(cli: Cli, tmp_path: Path) -> None:
    path = copied("small", "clean", tmp_path)
    before = rows_of(path, "tree")
    for line, plan in PLANS:
        shown = cli("--store", path, "--now", f"@{NOW_MS}", *line.split(), "--dry-run", "-o", "json").json
        with pa.open_store(path, writable=True, now=NOW_MS) as store:
            assert shown_of(plan(store)) == shown, line
            store.apply(plan(store))
    with pa.open_store(path, writable=True) as store:
        for change in reversed(store.changes()):
            store.undo(change.number)
    assert rows_of(path, "tree") == before


def test_what_is_not_there(store: pa.Store) -> None:
    assert store.current_cluster() == "standalone"
    for asked in (
        lambda: store.tenant("none"),
        lambda: store.cluster("none").settings(),
        lambda: store.cluster("none").delete(),
        lambda: store.cluster("standalone").failure_domain("none"),
        lambda: store.cluster("standalone").isolation_policy("none"),
        lambda: store.bookie_rack("none"),
        lambda: store.resource_group("none"),
        lambda: store.bundle_quota("none/none", ALL),
    ):
        with pytest.raises(pa.NotFound):
            asked()
    with pytest.raises(pa.InvalidValue, match="together"):
        store.bundle_quota("acme/iot")
    with pytest.raises(pa.InvalidValue, match="'serviceURL'"):
        store.create_cluster("east", {"serviceURL": "http://east"})
    store.apply(
        store.cluster("standalone").set_isolation_policy("p", namespaces=["a/b"], primary=["b"], failover=LIMITS)
    )
    with pytest.raises(pa.Refused, match="not empty"):
        store.cluster("standalone").delete(everything=True)
    with pytest.raises(pa.Refused):
        store.set_dynamic_setting("none", "5")


def test_a_file_says_what_settings_do_not(cli: Cli, demo_store: Path, tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text("serviceUrl: http://file:1\nlistenerName: inner\n")
    words = ("clusters", "create", "east", "--url", "http://east:1", "--cluster-config-file", file)
    shown = cli("--store", demo_store, "--now", f"@{NOW_MS}", *words, "--dry-run", "-o", "json").json
    with pa.open_store(demo_store, now=NOW_MS) as store:
        plan = store.create_cluster("east", {"serviceUrl": "http://east:1"}, file=file)
        assert plan.preview().documents()[0] == shown
