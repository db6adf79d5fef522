"""Plans in Python are those of the command line, one after the other on the same store, and so are the answers after them."""

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import pulsar_admin as pa
from pulsar_admin.jsonify import to_json
from tests.commands.changing import rows_of
from tests.conftest import Cli
from tests.stores import NOW_MS, copied

ALL, HALF = "0x00000000_0xffffffff", "0x00000000_0x7fffffff"
LIMITS = {"min_limit": "1", "usage_threshold": "80"}
SCHEMA = {"type": "AVRO", "schema": '{"type": "record", "name": "R", "fields": []}', "properties": {"owner": "billing"}}

# A command and the call that makes the same plan; ``store``, ``here`` and ``west`` (clusters), ``iot``, ``delayed`` and ``default``
# (namespaces), ``plain`` and ``parts`` (topics) ``half``, ``holes`` and ``never`` (its cursors) are those that ``called`` names.
PLANS = """
tenants create shop -r ops -c standalone | store.create_tenant("shop", admin_roles=["ops"])
tenants update acme -r ops,dev | store.update_tenant("acme", admin_roles=["ops", "dev"])
clusters create west --url http://west:8080 | store.create_cluster("west", {"serviceUrl": "http://west:8080"})
clusters update standalone --broker-url pulsar://new:6650 --tls-enable
    | here.update({"brokerServiceUrl": "pulsar://new:6650", "brokerClientTlsEnabled": True})
clusters update-peer-clusters standalone --peer-clusters west | here.set_peers(["west"])
clusters update-cluster-migration west --migrated --broker-url pulsar://b
    | west.set_migration(migrated=True, urls={"brokerServiceUrl": "pulsar://b"})
clusters create-failure-domain standalone --domain-name d1 --broker-list b1,b2 | here.create_failure_domain("d1", ["b1", "b2"])
clusters update-failure-domain standalone --domain-name d1 --broker-list b1,b3 | here.update_failure_domain("d1", ["b1", "b3"])
ns-isolation-policy set standalone p --namespaces acme/iot --primary b1,b2 --auto-failover-policy-type min_available
    --auto-failover-policy-params min_limit=1,usage_threshold=80
    | here.set_isolation_policy("p", namespaces=["acme/iot"], primary=["b1", "b2"], failover=LIMITS)
bookies set-bookie-rack -b b:3181 -r /rack-1 -g fast | store.set_bookie_rack("b:3181", "/rack-1", group="fast")
brokers update-dynamic-config -c maxTenants -v 10 | store.set_dynamic_setting("maxTenants", "10")
resourcegroups create batch -mp 1000 | store.create_resource_group("batch", publish_messages=1000)
resourcegroups update batch -bd 9 | store.update_resource_group("batch", dispatch_bytes=9)
resource-quotas set -mi 1 -mo 2 -bi 3 -bo 4 -mem 5 -d
    | store.set_bundle_quota(messages=(1, 2), bandwidth=(3, 4), memory_mb=5, dynamic=True)
resource-quotas set -n acme/iot -b {ALL} -mi 10 -mo 20 -bi 30 -bo 40 -mem 50
    | store.set_bundle_quota("acme/iot", ALL, messages=(10, 20), bandwidth=(30, 40), memory_mb=50)
namespaces set-properties acme/iot -p owner=ops -p tier=2 | iot.set_properties({"owner": "ops", "tier": "2"})
namespaces set-property acme/iot -k owner -v dev | iot.set_property("owner", "dev")
namespaces remove-property acme/iot -k tier | iot.remove_property("tier")
namespaces grant-permission acme/iot --role app --actions produce,consume | iot.grant_permission("app", ["produce", "consume"])
namespaces grant-subscription-permission acme/iot -s workers --roles app,ops
    | iot.grant_subscription_permission("workers", ["app", "ops"])
namespaces revoke-subscription-permission acme/iot -s workers --role ops
    | iot.revoke_subscription_permission("workers", "ops")
namespaces set-allowed-clusters acme/iot --clusters standalone | iot.set_allowed_clusters(["standalone"])
namespaces set-anti-affinity-group acme/iot -g heavy | iot.set_anti_affinity_group("heavy")
namespaces set-bookie-affinity-group acme/iot -pg fast | iot.set_bookie_affinity_group("fast")
namespaces set-bookie-affinity-group acme/iot -pg a -sg b | iot.set_bookie_affinity_group("a", "b")
namespaces update-migration-state acme/iot --migrated | iot.set_migrated(True)
namespaces split-bundle acme/iot -b {ALL} | iot.split_bundle(ALL)
namespaces split-bundle acme/iot -b {HALF} -san specified_positions_divide --split-boundaries 5
    | iot.split_bundle(HALF, algorithm="specified_positions_divide", boundaries=[5])
namespaces disable-delayed-message acme/delayed | delayed.disable_delayed()
namespaces enable-delayed-message acme/delayed -p 10m -t 2s | delayed.enable_delayed("10m", "2s")
namespaces set-delayed-delivery acme/delayed --enable -t 3s -md 9d
    | delayed.set_delayed_delivery(active=True, tick="3s", max_delay=timedelta(days=9))
namespaces set-message-ttl acme/delayed -ttl 3d | delayed.set_message_ttl("3d")
namespaces set-retention acme/delayed -t 2d -s 10G | delayed.set_retention(time=timedelta(days=2), size="10G")
namespaces remove-retention acme/delayed | delayed.remove_retention()
namespaces set-backlog-quota acme/delayed -l 10G -p producer_exception
    | delayed.set_backlog_quota("producer_exception", size=10 << 30)
namespaces remove-backlog-quota acme/delayed | delayed.remove_backlog_quota()
namespaces remove-message-ttl acme/delayed | delayed.set_message_ttl(None)
namespaces remove-delayed-delivery acme/delayed | delayed.remove_delayed_delivery()
namespaces create shop/orders -b 8 | store.create_namespace("shop/orders", bundles=8)
namespaces unsubscribe public/default -s reset-me | default.unsubscribe("reset-me")
namespaces clear-backlog acme/delayed | delayed.clear_backlog()
namespaces clear-backlog public/default -b {HALF} | default.clear_backlog(bundle=HALF)
topics create shop/orders/new | store.create_topic("shop/orders/new")
topics update-properties plain -p owner=billing -p tier=1 | plain.set_properties({"owner": "billing", "tier": "1"})
topics remove-properties plain -k owner | plain.remove_properties("owner")
topics grant-permission plain --role app --actions consume | plain.grant_permission("app", ["consume"])
topics update-subscription-properties plain -s half -p owner=ops | half.set_properties({"owner": "ops"})
topics reset-cursor plain -s half -m 9:3 -e | half.reset(to=Position(9, 3), exclude=True)
topics reset-cursor plain -s half -t 3h --rule broker | half.reset(time="3h", rule="broker")
topics reset-cursor plain -s half --shift-by 100 | half.reset(shift_by=100)
topics reset-cursor plain -s half --to-subscription holes | half.reset(like="holes")
topics skip plain -s half -n 7 | half.skip(7)
topics expire plain -s half -t 1h | half.expire(before="1h")
topics create-subscription acme/orders/parts -s audit -m earliest -p owner=ops
    | parts.create_subscription("audit", start="earliest", properties={"owner": "ops"})
topics create-subscription acme/iot/skewed -s last | store.cursors("last", "acme/iot/skewed").create()
topics create-subscription acme/iot/skewed plain -s audit -m earliest
    | store.cursors("audit", "acme/iot/skewed", "plain").create(start="earliest")
topics reset-cursor --pattern acme/iot/* -s reset-me -m latest
    | store.cursors("reset-me", pattern="acme/iot/*").reset(to="latest")
topics set-retention plain -t 2d -s 10G | plain.set_retention(time="2d", size="10G")
topics set-message-ttl plain -t 3d | plain.set_message_ttl("3d")
topics set-replicated-subscription-status plain -s half -e | half.set_replicated(True)
schemas upload plain -f schema.json | plain.upload_schema(SCHEMA)
schemas delete plain | plain.delete_schema()
nacks add plain -s half --delay 10m 29:20 29:21:3 | half.nacks().add(["29:20", Position(29, 21, 3)], "10m")
nacks add plain -s holes --delay 1h --holes | holes.nacks().add_holes(timedelta(hours=1))
compaction run acme/orders/compacted-single --from-start
    | store.topic("acme/orders/compacted-single").compaction().run(from_start=True)
compaction upgrade acme/orders/compacted | store.topic("acme/orders/compacted").compaction().upgrade()
transactions scale-transactionCoordinators -r 4 | store.transactions().scale(4)
"""
ANSWERS = """
namespaces bundles acme/iot | iot.bundles()
namespaces get-topic-positions acme/orders --bundle {ALL} | store.namespace("acme/orders").topic_hashes(ALL)
namespaces get-topic-positions acme/orders --bundle {ALL} --topic-list acme/orders/parts
    | store.namespace("acme/orders").topic_hashes(ALL, ["acme/orders/parts"])
namespaces get-properties acme/iot | iot.properties()
namespaces topics acme/orders | store.namespace("acme/orders").topics()
topics list-partitioned-topics acme/orders | store.namespace("acme/orders").partitioned_topics()
resource-quotas get | store.bundle_quota()
transactions coordinator-stats | store.transactions().stats()
namespaces permissions acme/iot | iot.permissions()
namespaces subscription-permission acme/iot | iot.subscription_permissions()
namespaces get-allowed-clusters acme/iot | iot.allowed_clusters()
namespaces get-anti-affinity-group acme/iot | iot.anti_affinity_group()
namespaces get-anti-affinity-namespaces --tenant acme --cluster standalone -g heavy
    | here.anti_affinity_namespaces("acme", "heavy")
namespaces get-bookie-affinity-group acme/iot | iot.bookie_affinity_group()
overview | store.overview()
doctor | store.doctor()
ledgers list | store.ledger_rows()
compaction status acme/orders/compacted | store.topic("acme/orders/compacted").compaction().status()
topics describe plain | plain.describe()
topics stats plain | plain.stats()
topics skew plain | plain.skew()
topics get-backlog-size plain -m 8:3 | plain.backlog_size("8:3")
topics why plain -s half | half.why()
topics get-properties plain | plain.properties()
topics permissions plain | plain.permissions()
topics get-subscription-properties plain -s half | half.properties()
nacks stats | store.nacks(None).stats()
transactions coordinators-list | store.transactions().coordinators()
"""
ENDINGS = """
namespaces clear-properties acme/iot | iot.clear_properties()
namespaces revoke-permission acme/iot --role app | iot.revoke_permission("app")
namespaces delete-anti-affinity-group acme/iot | iot.delete_anti_affinity_group()
namespaces delete-bookie-affinity-group acme/iot | iot.delete_bookie_affinity_group()
namespaces split-bundle acme/iot --bundle-type LARGEST | iot.split_bundle(bundle_type="LARGEST")
topics revoke-permission plain --role app | plain.revoke_permission("app")
topics set-replicated-subscription-status plain -s half -d | half.set_replicated(False)
topics terminate plain | plain.terminate()
topics partitioned-terminate acme/orders/parts | parts.terminate(partitioned=True)
topics delete shop/orders/new | store.delete_topics("shop/orders/new")
namespaces delete shop/orders | store.delete_namespace("shop/orders")
tenants delete shop -f | store.delete_tenant("shop", force=True)
schemas delete plain -f | plain.delete_schema(force=True)
topics unsubscribe plain -s never | never.delete()
"""


def rows_in(table: str) -> Iterator[tuple[str, str]]:
    text = table.replace("\n    ", " ").replace("{ALL}", ALL).replace("{HALF}", HALF)
    for line in text.strip().splitlines():
        command, _, call = line.partition(" | ")
        yield command, call


def called(store: pa.Store, call: str) -> Any:  # Any: a plan or an answer
    plain = store.topic("plain")
    named = {
        **{name: store.cluster(cluster) for name, cluster in (("here", "standalone"), ("west", "west"))},
        **{name: store.namespace(f"acme/{name}") for name in ("iot", "delayed")},
        **{name: plain.cursor(name) for name in ("half", "holes", "never")},
        "store": store,
        "plain": plain,
        "parts": store.topic("acme/orders/parts"),
        "default": store.namespace("public/default"),
    }
    return eval(call, {"timedelta": timedelta, "Position": pa.Position, **globals(), **named})


def shown_of(plan: pa.Plan) -> object:
    """Return the preview of a plan as the command line writes it."""
    documents = plan.preview().documents()
    return list(documents) if len(documents) > 1 else documents[0]


def test_plans_and_answers_are_those_of_the_command_line(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = copied("small", "clean", tmp_path)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "schema.json").write_text(json.dumps(SCHEMA))
    before = rows_of(path, "tree", "nacks")
    command = ("--store", path, "--now", f"@{NOW_MS}")
    for table in (PLANS, ANSWERS, ENDINGS):
        for line, call in rows_in(table):
            options = ("-o", "json") if table is ANSWERS else ("--dry-run", "-o", "json")
            shown = cli(*command, *line.split(), *options)
            in_words = cli(*command, *line.split(), "--dry-run").stdout if line.startswith("topics") else ""
            with pa.open_store(path, writable=True, now=NOW_MS) as store:
                found = called(store, call)
                if table is ANSWERS:
                    assert to_json(found) == json.loads(shown.stdout.replace(f" --store {path}", "")), line
                    assert shown.json, line
                else:
                    assert shown_of(found) == shown.json, line
                    assert not in_words or f"{found.preview()}\n" == in_words, line
                    assert store.apply(found).number is not None, line
    with pa.open_store(path, writable=True) as store:
        for change in reversed(store.changes()):
            store.undo(change.number)
    assert rows_of(path, "tree", "nacks") == before


def test_a_cluster_that_policies_name_is_not_deleted(store: pa.Store) -> None:
    here = store.cluster("standalone")
    store.apply(here.set_isolation_policy("p", namespaces=["a/b"], primary=["b"], failover=LIMITS))
    with pytest.raises(pa.Refused, match="not empty"):
        here.delete(everything=True)
