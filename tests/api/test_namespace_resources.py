"""Bundles, properties, permissions and affinity of a namespace from Python are those of the command line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import pulsar_admin as pa
from pulsar_admin.jsonify import to_json
from tests.api.test_resources import shown_of
from tests.commands.changing import rows_of
from tests.conftest import Cli
from tests.stores import NOW_MS, copied

ALL = "0x00000000_0xffffffff"
HALF = "0x00000000_0x7fffffff"

PLANS: list[tuple[str, Callable[[pa.Namespace], pa.Plan]]] = [
    ("set-properties acme/iot -p owner=ops -p tier=2", lambda iot: iot.set_properties({"owner": "ops", "tier": "2"})),
    ("set-property acme/iot -k owner -v dev", lambda iot: iot.set_property("owner", "dev")),
    ("remove-property acme/iot -k tier", lambda iot: iot.remove_property("tier")),
    (
        "grant-permission acme/iot --role app --actions produce,consume",
        lambda iot: iot.grant_permission("app", ["produce", "consume"]),
    ),
    (
        "grant-subscription-permission acme/iot -s workers --roles app,ops",
        lambda iot: iot.grant_subscription_permission("workers", ["app", "ops"]),
    ),
    (
        "revoke-subscription-permission acme/iot -s workers --role ops",
        lambda iot: iot.revoke_subscription_permission("workers", "ops"),
    ),
    ("set-allowed-clusters acme/iot --clusters standalone", lambda iot: iot.set_allowed_clusters(["standalone"])),
    ("set-anti-affinity-group acme/iot -g heavy", lambda iot: iot.set_anti_affinity_group("heavy")),
    ("set-bookie-affinity-group acme/iot -pg fast", lambda iot: iot.set_bookie_affinity_group("fast")),
    ("set-bookie-affinity-group acme/iot -pg a -sg b", lambda iot: iot.set_bookie_affinity_group("a", "b")),
    ("update-migration-state acme/iot --migrated", lambda iot: iot.set_migrated(True)),
    (f"split-bundle acme/iot -b {ALL}", lambda iot: iot.split_bundle(ALL)),
    (
        f"split-bundle acme/iot -b {HALF} -san specified_positions_divide --split-boundaries 5",
        lambda iot: iot.split_bundle(HALF, algorithm="specified_positions_divide", boundaries=[5]),
    ),
]
READS: list[tuple[str, Callable[[pa.Store], object]]] = [
    ("bundles acme/iot", lambda store: store.namespace("acme/iot").bundles()),
    (
        "get-topic-positions acme/orders --bundle 0x00000000_0xffffffff",
        lambda store: store.namespace("acme/orders").topic_hashes(ALL),
    ),
    (
        "get-topic-positions acme/orders --bundle 0x00000000_0xffffffff --topic-list acme/orders/parts",
        lambda store: store.namespace("acme/orders").topic_hashes(ALL, ["acme/orders/parts"]),
    ),
    ("get-properties acme/iot", lambda store: store.namespace("acme/iot").properties()),
    ("permissions acme/iot", lambda store: store.namespace("acme/iot").permissions()),
    ("subscription-permission acme/iot", lambda store: store.namespace("acme/iot").subscription_permissions()),
    ("get-allowed-clusters acme/iot", lambda store: store.namespace("acme/iot").allowed_clusters()),
    ("get-anti-affinity-group acme/iot", lambda store: store.namespace("acme/iot").anti_affinity_group()),
    (
        "get-anti-affinity-namespaces --tenant acme --cluster standalone -g heavy",
        lambda store: store.cluster("standalone").anti_affinity_namespaces("acme", "heavy"),
    ),
    ("get-bookie-affinity-group acme/iot", lambda store: store.namespace("acme/iot").bookie_affinity_group()),
]
DELETES: list[tuple[str, Callable[[pa.Namespace], pa.Plan]]] = [
    ("clear-properties acme/iot", lambda iot: iot.clear_properties()),
    ("revoke-permission acme/iot --role app", lambda iot: iot.revoke_permission("app")),
    ("delete-anti-affinity-group acme/iot", lambda iot: iot.delete_anti_affinity_group()),
    ("delete-bookie-affinity-group acme/iot", lambda iot: iot.delete_bookie_affinity_group()),
    ("split-bundle acme/iot --bundle-type LARGEST", lambda iot: iot.split_bundle(bundle_type="LARGEST")),
]


def test_plans_and_answers_are_those_of_the_command_line(cli: Cli, tmp_path: Path) -> None:
    path = copied("small", "clean", tmp_path)
    before = rows_of(path, "tree")
    now = ("--store", path, "--now", f"@{NOW_MS}", "namespaces")
    for line, plan in PLANS:
        shown = cli(*now, *line.split(), "--dry-run", "-o", "json").json
        with pa.open_store(path, writable=True, now=NOW_MS) as store:
            assert shown_of(plan(store.namespace("acme/iot"))) == shown, line
            assert store.apply(plan(store.namespace("acme/iot"))).number is not None, line
    for line, asked in READS:
        shown = cli(*now, *line.split(), "-o", "json").json
        with pa.open_store(path) as store:
            assert to_json(asked(store)) == shown, line
        assert shown, line
    for line, plan in DELETES:
        shown = cli(*now, *line.split(), "--dry-run", "-o", "json").json
        with pa.open_store(path, now=NOW_MS) as store:
            assert shown_of(plan(store.namespace("acme/iot"))) == shown, line
    with pa.open_store(path, writable=True) as store:
        for change in reversed(store.changes()):
            store.undo(change.number)
    assert rows_of(path, "tree") == before


def test_what_is_refused(tmp_path: Path) -> None:
    with pa.open_store(copied("small", "clean", tmp_path)) as store:
        iot = store.namespace("acme/iot")
        assert (iot.anti_affinity_group(), iot.bookie_affinity_group(), iot.properties()) == (None, None, {})
        assert store.cluster("standalone").namespaces("acme") == ()
        with pytest.raises(pa.NotFound):
            store.cluster("none").namespaces("acme")
        with pytest.raises(pa.NotFound):
            store.cluster("none").anti_affinity_namespaces("acme", "heavy")
        with pytest.raises(pa.NotFound):
            iot.revoke_subscription_permission("none", "app")
        with pytest.raises(pa.Refused):
            iot.set_allowed_clusters(["none"])
        with pytest.raises(pa.StoreError, match="running brokers measure"):
            iot.split_bundle(bundle_type="HOT")
        with pytest.raises(pa.InvalidValue, match="mutually exclusive"):
            iot.split_bundle(ALL, bundle_type="LARGEST")


@pytest.mark.parametrize(
    "text",
    [
        '{"serviceUrl": 5}',
        '{"brokerClientTlsEnabled": true, "brokerClientTlsEnabledWithKeyStore": true, "brokerClientTlsTrustStore": 5}',
    ],
)
def test_a_setting_of_a_cluster_that_is_no_text_is_refused(cli: Cli, tmp_path: Path, text: str) -> None:
    path = copied("small", "clean", tmp_path)
    (tmp_path / "east.json").write_text(text)
    words = ("clusters", "create", "east", "--cluster-config-file", tmp_path / "east.json", "-o", "json")
    done = cli("--store", path, *words)
    assert (done.exit_code, done.error["code"]) == (2, "invalid-value")


@pytest.mark.parametrize("command", ["create", "update"])
def test_a_file_of_settings_that_cannot_be_read_is_refused(cli: Cli, tmp_path: Path, command: str) -> None:
    path = copied("small", "clean", tmp_path)
    for file in (tmp_path / "absent.json", tmp_path):
        words = ("clusters", command, "standalone", "--cluster-config-file", file, "-o", "json")
        done = cli("--store", path, *words)
        assert (done.exit_code, done.error["code"]) == (2, "invalid-value")
        assert str(file) in done.error["message"]
