"""Whatever callers give, one clear error: nothing ends deep inside, and nothing is planned of what makes no sense."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest

import pulsar_admin as pa
from pulsar_admin.store.policies.table import policies_by_name
from pulsar_admin.upstream_list import name_of, upstream_commands
from tests.stores import NOW_MS, copied

PLAIN = "public/default/plain"
PARTS = "acme/orders/parts"
LINE = '{"topic":"public/default/plain","subscription":"half","messageId":"earliest"}'

Call = Callable[[pa.Store, Any], object]

TEXT = (None, 5, True, 1.5, b"x", object(), ["x"], ("x",), {"x": "y"}, Path("x"), "half \ud800")
TEXTS = ("text", b"text", 5, object(), {"x": "y"}, [None], [5], [b"x"], [["x"]])
NUMBER = (True, 1.5, float("nan"), "5", b"5", object(), [5], {}, None)
ID = (*NUMBER, -1, 2**63, 10**30)
PROPERTIES = ("a=b", 5, object(), ["a"], [("a", "b")], {"a": None}, {"a": 5}, {5: "a"}, {"a": ["b"]}, {"a": "\ud800"})
REAL = (True, float("nan"), float("inf"), "5", b"5", object(), [5], {}, 1j, 10**400)
WAIT = (True, 1.5, "soon", b"5m", object(), ["5m"], -5, None)
SCHEMAS = (None, 5, True, b"x", ["x"], {}, {"type": 5}, {"type": ["x"]}, {"type": "STRING", "schema": 5}, "absent.json")
SCHEMAS += tuple({"type": "STRING", "properties": properties} for properties in PROPERTIES)
URLS = (None, 5, "text", ["a"], [("a", "b")], {5: "a"}, {"serviceUrl": 5}, {"serviceUrl": "\ud800"})
SETTINGS = (
    *URLS,
    {"none": "a"},
    {"brokerClientTlsEnabled": "true"},
    {"peerClusterNames": "west"},
    {"serviceUrl": None},
)
BIG = 2**63, 10**30
PATH = (5, True, 1.5, b"x", object(), ["x"], {}, "a\0b", "\ud800")
FLAG = (None, 0, 1, "false", "", [], object())
LENGTH = (None, 5, True, 1.5, b"5m", object(), ["5m"], "soon")
SPARK = (5, "local[2]", True, object(), ["x"])
THING = (None, 5, "text", object(), ["x"])


VARIADIC = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD
ALL_HASHES = "0x00000000_0xffffffff"


def iot(store: pa.Store) -> pa.Namespace:
    return store.namespace("acme/iot")


def isolation(store: pa.Store, name: Any, primary: Any, failover: Any) -> pa.Plan:
    cluster = store.cluster("standalone")
    return cluster.set_isolation_policy(name, namespaces=["acme/iot"], primary=primary, failover=failover)


def quota(store: pa.Store, amounts: Any, memory_mb: Any) -> pa.Plan:
    return store.set_bundle_quota(messages=amounts, bandwidth=amounts, memory_mb=memory_mb)


CALLS: list[tuple[str, tuple[object, ...], Call]] = [
    ("topic", TEXT, lambda store, value: store.topic(value)),
    ("namespace", TEXT, lambda store, value: store.namespace(value)),
    ("topics", TEXT[1:], lambda store, value: store.topics(value)),
    ("create_topic", TEXT[:-1], lambda store, value: store.create_topic(value)),
    ("partitions", (*NUMBER[:-1], *BIG), lambda store, value: store.create_topic("made", partitions=value)),
    ("topic properties", PROPERTIES, lambda store, value: store.create_topic("made", properties=value)),
    ("shadow", TEXT[:-1], lambda store, value: store.create_shadow_topic(value, PLAIN)),
    ("shadow source", TEXT, lambda store, value: store.create_shadow_topic("made", value)),
    ("shadow properties", PROPERTIES, lambda store, value: store.create_shadow_topic("made", PLAIN, properties=value)),
    ("delete_topics", TEXT, lambda store, value: store.delete_topics(value)),
    ("delete partitioned", TEXT, lambda store, value: store.delete_topics(value, partitioned=True)),
    ("create_tenant", TEXT, lambda store, value: store.create_tenant(value)),
    ("admin roles", TEXTS, lambda store, value: store.create_tenant("made", admin_roles=value)),
    ("allowed clusters", TEXTS, lambda store, value: store.create_tenant("made", allowed_clusters=value)),
    ("delete_tenant", TEXT, lambda store, value: store.delete_tenant(value, force=True)),
    ("create_namespace", TEXT, lambda store, value: store.create_namespace(value)),
    ("clusters", TEXTS, lambda store, value: store.create_namespace("public/made", clusters=value)),
    ("bundles", (*NUMBER, *BIG), lambda store, value: store.create_namespace("public/made", bundles=value)),
    ("delete_namespace", TEXT, lambda store, value: store.delete_namespace(value, force=True)),
    ("bundle", TEXT[1:], lambda store, value: store.namespace("public/default").clear_backlog(bundle=value)),
    ("set_partitions", (*NUMBER, *BIG), lambda store, value: store.topic(PARTS).set_partitions(value)),
    ("properties", PROPERTIES, lambda store, value: store.topic(PLAIN).set_properties(value)),
    ("remove_properties", TEXT, lambda store, value: store.topic(PLAIN).remove_properties(value)),
    ("role", TEXT, lambda store, value: store.topic(PLAIN).grant_permission(value, ["consume"])),
    ("actions", TEXTS, lambda store, value: store.topic(PLAIN).grant_permission("app", value)),
    ("revoke", TEXT, lambda store, value: store.topic(PLAIN).revoke_permission(value)),
    ("cursor", TEXT[1:], lambda store, value: store.topic(PLAIN).cursor(value).clear()),
    ("cursor properties", PROPERTIES, lambda store, value: store.topic(PLAIN).cursor("half").set_properties(value)),
    ("replicated", FLAG, lambda store, value: store.topic(PLAIN).cursor("half").set_replicated(value)),
    ("create", TEXT[1:], lambda store, value: store.topic(PLAIN).create_subscription(value)),
    ("created properties", PROPERTIES, lambda store, value: store.cursors("made", PLAIN).create(properties=value)),
    ("cursors of", TEXT, lambda store, value: store.cursors(None, value).clear()),
    ("pattern", TEXT[1:-1], lambda store, value: store.cursors("half", pattern=value).clear()),
    ("shift_by", NUMBER[:-1], lambda store, value: store.cursors(None, PLAIN).reset(shift_by=value)),
    ("like", TEXT[1:], lambda store, value: store.cursors(None, PLAIN).reset(like=value)),
    ("rule", TEXT, lambda store, value: store.cursors(None, PLAIN).reset(time="3h", rule=value)),
    ("ahead", LENGTH, lambda store, value: store.cursors(None, PLAIN).forecast(value, ttl="1h")),
    (
        "max_clock_skew",
        LENGTH,
        lambda store, value: store.cursors(None, PLAIN).reset(to="earliest", max_clock_skew=value),
    ),
    ("lines", (*TEXTS, None), lambda store, value: store.reset_cursors(value)),
    ("a later line", TEXT, lambda store, value: store.reset_cursors([LINE, value])),
    ("columns", TEXTS, lambda store, value: store.topic(PLAIN).messages(columns=value)),
    ("key", TEXT[1:], lambda store, value: store.topic(PLAIN).messages(key=value)),
    ("subscription", TEXT[1:], lambda store, value: store.topic(PLAIN).messages(subscription=value)),
    ("limit", ID[:8] + ID[9:], lambda store, value: store.topic(PLAIN).messages(limit=value)),
    ("dump_lines", TEXT, lambda store, value: next(store.dump_lines(value))),
    ("dump_size", TEXT, lambda store, value: store.dump_size(value)),
    ("export", PATH, lambda store, value: store.export(value, dry_run=True)),
    ("clone", PATH, lambda store, value: store.clone(value, dry_run=True)),
    ("cloned", TEXTS, lambda store, value: store.clone("never", topics=value)),
    ("cluster of a clone", TEXT, lambda store, value: store.clone("never", cluster=value)),
    ("boot_at", PATH, lambda store, value: store.clone("never", boot_at=value)),
    ("bookie_id", TEXT, lambda store, value: store.clone("never", bookie_id=value)),
    ("reclaimed", (*TEXT[:5], *TEXT[5:9]), lambda store, value: pa.reclaim(value, metadata=store)),
    ("reclaimed by", PATH, lambda store, value: pa.reclaim("b", metadata=value)),
    ("reclaim's client", PATH, lambda store, value: pa.reclaim("b", metadata="zk:2181", client=value)),
    (
        "below_percent",
        (*REAL, None, -1, 101),
        lambda store, value: pa.reclaim("b", metadata=store, below_percent=value),
    ),
    ("scratch", PATH, lambda store, value: pa.reclaim("b", metadata=store, scratch=value)),
    ("reclaim's options", (5,), lambda store, value: pa.reclaim("b", metadata=store, belo=value)),  # type: ignore[call-overload]
    ("salvaged", TEXT[:9], lambda store, value: store.salvage(value)),
    ("bundle's file", PATH, lambda store, value: store.write_bundle(value)),
    ("names of a bundle", PATH, lambda store, value: store.write_bundle("never", names=value)),
    ("imported tables", PATH, lambda store, value: pa.import_tables(value, "never")),
    ("store of tables", PATH, lambda store, value: pa.import_tables("never", value)),
    ("cluster of a store of tables", TEXT[1:], lambda store, value: pa.import_tables("a", "never", cluster=value)),
    ("imported bundle", PATH, lambda store, value: pa.import_bundle(value, "never")),
    ("store of a bundle", PATH, lambda store, value: pa.import_bundle("never", value)),
    ("metadata", PATH, lambda store, value: store.preview_parts(metadata=value)),
    ("no parts", (None,), lambda store, value: pa.preflight(metadata=value, bookies=[])),
    ("bookies", (*TEXTS, None), lambda store, value: store.preview_parts(bookies=value)),
    ("broker_conf", PATH, lambda store, value: store.preflight(broker_conf=value)),
    ("ledger", ID, lambda store, value: store.ledger(value)),
    ("entry", ID, lambda store, value: store.ledger(9).read(value)),
    ("first", ID, lambda store, value: next(store.ledger(9).entries(value))),
    ("forget_ledgers", ID, lambda store, value: store.forget_ledgers(value, force=True)),
    ("restore_ledgers", ID, lambda store, value: store.restore_ledgers(value)),
    ("extend_ledgers", ID, lambda store, value: store.extend_ledgers(value)),
    ("undelete_ledgers", ID, lambda store, value: store.undelete_ledgers(value)),
    ("delete_ledgers", ID, lambda store, value: store.delete_ledgers(value, force=True)),
    ("undelete", TEXT[:-1], lambda store, value: store.undelete(value)),
    ("namespaces", TEXTS, lambda store, value: store.undelete(namespaces=value)),
    ("zookeeper", TEXTS, lambda store, value: store.deleted_topics(zookeeper=value)),
    (
        "zookeeper of a state",
        TEXTS[:5],
        lambda store, value: store.cursors("half", PLAIN).reset(as_of="3h", zookeeper=value),
    ),
    ("hold", TEXT, lambda store, value: store.undelete(PLAIN, hold=value)),
    ("diff", THING, lambda store, value: store.diff(value)),
    ("moments", ("text", 5, None), lambda store, value: pa.diff(value, since="3h")),
    ("decoded", TEXT, lambda store, value: store.decoded(value)),
    ("nodes", TEXT, lambda store, value: store.nodes(value)),
    ("only", TEXTS, lambda store, value: store.export_tables("never", only=value)),
    ("tables", PATH[:-2], lambda store, value: store.export_tables(value)),
    ("catalog", TEXT[1:], lambda store, value: store.export_tables("never", iceberg=True, catalog=value)),
    ("change", NUMBER, lambda store, value: next(store.change_log(value))),
    ("apply", THING, lambda store, value: store.apply(value)),
    ("undo", NUMBER, lambda store, value: store.undo(value)),
    ("load_plan", PATH, lambda store, value: store.load_plan(value)),
    ("load", PATH, lambda store, value: store.load(value)),
    ("copy", PATH, lambda store, value: store.copy(PLAIN, source=value)),
    ("spark of open_store", SPARK, lambda store, value: pa.open_store(store.path, spark=value)),
    ("register", (*SPARK, None), lambda store, value: pa.register(value)),
    ("data frames", (*SPARK, None), lambda store, value: store.spark(value)),
    ("bookkeeper.conf", (*PATH, None), lambda store, value: pa.read_bookie_conf(value)),
    ("root", PATH, lambda store, value: pa.read_bookie_conf("absent", value)),
    ("bookie's parts", TEXT[:-2], lambda store, value: pa.fetch_bookie(value, None)),
    ("into", PATH, lambda store, value: pa.fetch_bookie("absent", value)),
    ("open_store", PATH, lambda store, value: pa.open_store(value)),
    ("logs", PATH, lambda store, value: pa.verify_logs(value)),
    ("records of", PATH, lambda store, value: next(pa.log_records(value))),
    ("jobs of records", (*NUMBER, -1), lambda store, value: pa.log_records("absent", jobs=value)),
    ("policy", TEXT, lambda store, value: store.topic(PLAIN).set_policy(value, 5)),
    ("policy value", NUMBER[:-1], lambda store, value: store.topic(PLAIN).set_policy("max-producers", value)),
    ("ttl", LENGTH[1:], lambda store, value: store.topic(PLAIN).set_message_ttl(value)),
    ("top", NUMBER[:-1], lambda store, value: store.why_bytes(top=value)),
    ("index", NUMBER, lambda store, value: store.topic(PLAIN).find_by_index(value)),
    ("nth", NUMBER, lambda store, value: store.topic(PLAIN).nth_position(value)),
    ("nacked", (*TEXTS, None), lambda store, value: store.topic(PLAIN).cursor("half").nacks().add(value, "10m")),
    ("schema", SCHEMAS, lambda store, value: store.topic(PLAIN).upload_schema(value)),
    ("checked schema", SCHEMAS, lambda store, value: store.topic(PLAIN).check_schema(value)),
    ("schema version", NUMBER[:-1], lambda store, value: store.topic("public/default/avro").schema(value)),
    ("coordinator", NUMBER[:-1], lambda store, value: store.transactions().stats(value)),
    ("coordinator's log", NUMBER, lambda store, value: store.transactions().internal_stats(value)),
    ("most", NUMBER, lambda store, value: store.transactions().transaction(value, 0)),
    ("least", NUMBER, lambda store, value: store.transactions().transaction(0, value)),
    ("timeout_above", WAIT[:-1], lambda store, value: store.transactions().open(timeout_above=value)),
    ("open of", NUMBER[:-1], lambda store, value: store.transactions().open(coordinator=value)),
    ("scale", (*NUMBER, *BIG), lambda store, value: store.transactions().scale(value)),
    ("in buffer", NUMBER, lambda store, value: store.topic(PLAIN).transactions().transaction(0, value)),
    ("in pending", NUMBER, lambda store, value: store.topic(PLAIN).cursor("half").transactions().transaction(0, value)),
    ("a topic's ledgers", NUMBER, lambda store, value: store.topic(PLAIN).forget_ledgers(value)),
    ("mark_delete", TEXT, lambda store, value: store.topic(PLAIN).cursor("half").set_mark_delete(value)),
    (
        "bundle_range",
        (*TEXT, "acme/orders/x"),
        lambda store, value: store.namespace("public/default").bundle_range(value),
    ),
    ("encrypted", TEXT, lambda store, value: store.topic(PLAIN).compaction().run(encrypted=value)),
    ("attached ledger", NUMBER, lambda store, value: store.topic(PLAIN).compaction().attach(value)),
    ("tenant", TEXT, lambda store, value: store.tenant(value)),
    ("namespaces of", TEXT[1:], lambda store, value: store.namespaces(value)),
    ("ledger of a position", ID[:-3], lambda store, value: store.topic(PLAIN).backlog_size(pa.Position(value, 0))),
    ("entry of a position", ID[:-3], lambda store, value: next(iter(store.search(start=pa.Position(9, value))))),
    ("beyond a position", BIG, lambda store, value: store.topic(PLAIN).cursor("half").reset(to=pa.Position(9, value))),
    ("batch index", NUMBER, lambda store, value: store.topic(PLAIN).backlog_size(pa.Position(9, 0, value))),
    ("position", TEXT, lambda store, value: pa.Position.parse(value)),
    ("updated tenant", TEXT, lambda store, value: store.update_tenant(value)),
    ("updated roles", TEXTS, lambda store, value: store.update_tenant("acme", admin_roles=value)),
    ("cluster", TEXT, lambda store, value: store.cluster(value)),
    ("made cluster", TEXT, lambda store, value: store.create_cluster(value, {})),
    ("settings", SETTINGS, lambda store, value: store.create_cluster("made", value)),
    ("updated settings", SETTINGS, lambda store, value: store.cluster("standalone").update(value)),
    ("settings file", PATH, lambda store, value: store.create_cluster("made", {}, file=value)),
    ("peers", TEXTS, lambda store, value: store.cluster("standalone").set_peers(value)),
    ("urls", URLS, lambda store, value: store.cluster("standalone").set_migration(migrated=False, urls=value)),
    ("domain", TEXT, lambda store, value: store.cluster("standalone").create_failure_domain(value, [])),
    ("domain brokers", TEXTS, lambda store, value: store.cluster("standalone").update_failure_domain("d", value)),
    ("deleted domain", TEXT, lambda store, value: store.cluster("standalone").delete_failure_domain(value)),
    ("broker", TEXT, lambda store, value: store.cluster("standalone").broker_isolation(value)),
    (
        "isolation",
        TEXT,
        lambda store, value: isolation(store, value, ["a"], {"min_limit": "1", "usage_threshold": "2"}),
    ),
    ("primary", TEXTS, lambda store, value: isolation(store, "p", value, {"min_limit": "1", "usage_threshold": "2"})),
    ("failover", URLS, lambda store, value: isolation(store, "p", ["a"], value)),
    ("deleted isolation", TEXT, lambda store, value: store.cluster("standalone").delete_isolation_policy(value)),
    ("racked bookie", TEXT, lambda store, value: store.set_bookie_rack(value, "/r")),
    ("rack", TEXT, lambda store, value: store.set_bookie_rack("b", value)),
    ("rack's group", TEXT, lambda store, value: store.set_bookie_rack("b", "/r", group=value)),
    ("hostname", TEXT[1:], lambda store, value: store.set_bookie_rack("b", "/r", hostname=value)),
    ("unracked bookie", TEXT, lambda store, value: store.delete_bookie_rack(value)),
    ("setting", TEXT, lambda store, value: store.set_dynamic_setting(value, "5")),
    ("set to", TEXT, lambda store, value: store.set_dynamic_setting("maxTenants", value)),
    ("deleted setting", TEXT, lambda store, value: store.delete_dynamic_setting(value)),
    ("resource group", TEXT, lambda store, value: store.create_resource_group(value)),
    ("its rate", NUMBER[:-1], lambda store, value: store.create_resource_group("g", publish_bytes=value)),
    ("no rate", (5,), lambda store, value: store.update_resource_group("g", publish=value)),
    ("deleted group", TEXT, lambda store, value: store.delete_resource_group(value)),
    ("quota's namespace", TEXT[1:], lambda store, value: store.bundle_quota(value, "0x0_0x1")),
    ("quota's bundle", TEXT, lambda store, value: store.reset_bundle_quota("public/default", value)),
    ("in and out", (None, 5, "12", (1,), (1, 2, 3), (1, "2"), {}), lambda store, value: quota(store, value, 5)),
    ("memory_mb", (*REAL, None), lambda store, value: quota(store, (1, 2), value)),
    ("split", TEXT[1:], lambda store, value: iot(store).split_bundle(value)),
    ("split type", TEXT[1:], lambda store, value: iot(store).split_bundle(bundle_type=value)),
    ("split algorithm", TEXT, lambda store, value: iot(store).split_bundle("0x00000000_0xffffffff", algorithm=value)),
    (
        "boundaries",
        (*TEXTS[:6], *TEXTS[7:]),
        lambda store, value: iot(store).split_bundle(ALL_HASHES, boundaries=value),
    ),
    ("hashes in", TEXT, lambda store, value: iot(store).topic_hashes(value)),
    ("hashes of", TEXTS, lambda store, value: iot(store).topic_hashes(ALL_HASHES, value)),
    ("namespace property", TEXT, lambda store, value: iot(store).set_property(value, "a")),
    ("its value", TEXT, lambda store, value: iot(store).set_property("a", value)),
    ("namespace properties", PROPERTIES, lambda store, value: iot(store).set_properties(value)),
    ("removed property", TEXT, lambda store, value: iot(store).remove_property(value)),
    ("namespace role", TEXT, lambda store, value: iot(store).grant_permission(value, ["consume"])),
    ("namespace actions", TEXTS, lambda store, value: iot(store).grant_permission("app", value)),
    ("revoked role", TEXT, lambda store, value: iot(store).revoke_permission(value)),
    ("granted", TEXT, lambda store, value: iot(store).grant_subscription_permission(value, ["a"])),
    ("granted roles", TEXTS, lambda store, value: iot(store).grant_subscription_permission("s", value)),
    ("revoked", TEXT, lambda store, value: iot(store).revoke_subscription_permission(value, "a")),
    ("namespace clusters", TEXTS, lambda store, value: iot(store).set_allowed_clusters(value)),
    ("anti-affinity", TEXT, lambda store, value: iot(store).set_anti_affinity_group(value)),
    ("primary group", TEXT, lambda store, value: iot(store).set_bookie_affinity_group(value)),
    ("secondary group", TEXT[1:], lambda store, value: iot(store).set_bookie_affinity_group("a", value)),
    ("tenant of", TEXT, lambda store, value: store.cluster("standalone").namespaces(value)),
    ("group of", TEXT, lambda store, value: store.cluster("standalone").anti_affinity_namespaces("acme", value)),
    ("measured", TEXT[1:], lambda store, value: store.topic(PLAIN).measured_nacks(value)),
    ("rate", (*REAL, -5), lambda store, value: pa.nack_sizes(value)),
    ("measured of", ("text", 5, object()), lambda store, value: pa.nack_sizes(measured=value)),
    ("nack batches", ID[:8] + ID[9:], lambda store, value: pa.nack_sizes(5, batch_size=value)),
    ("nack ledgers", ID[:8] + ID[9:], lambda store, value: pa.nack_sizes(5, entries_per_ledger=value)),
    ("acknowledged_every", ID[:-2], lambda store, value: pa.nack_sizes(5, acknowledged_every=value)),
    ("precision", WAIT[:-1], lambda store, value: pa.nack_sizes(5).recommended_bits(value)),
    ("room", NUMBER, lambda store, value: pa.nack_sizes(5).recommended_bits(memory_bytes=value)),
    ("nacks of", TEXT[1:], lambda store, value: store.nacks(value).due()),
    ("nacks in", TEXT, lambda store, value: store.nacks(None, value).due()),
    ("popped", NUMBER[:-1], lambda store, value: store.nacks(None).due(popped=value)),
    (
        "nacked lines",
        (*TEXTS, None),
        lambda store, value: store.topic(PLAIN).cursor("half").nacks().add_lines(value, 5),
    ),
    (
        "delay",
        tuple(one for one in NUMBER if one != "5"),
        lambda store, value: store.topic(PLAIN).cursor("half").nacks().add(["29:20"], value),
    ),
]

CALLS += [
    ("owner", TEXT, lambda store, value: next(store.ledger_rows(value))),
    ("missing of", ID, lambda store, value: store.missing(value)),
    ("top of an overview", (*NUMBER, -1), lambda store, value: store.overview(top=value)),
    ("top of metrics", (*NUMBER, -1), lambda store, value: store.metrics(top=value)),
    ("pattern of metrics", TEXT[1:], lambda store, value: store.metrics(pattern=value)),
    ("check of metrics", FLAG[1:], lambda store, value: store.metrics(check=value)),
    ("check of an overview", FLAG[1:], lambda store, value: store.overview(check=value)),
    ("codes", TEXTS, lambda store, value: store.doctor(codes=value)),
    ("severities", TEXTS, lambda store, value: store.doctor(severities=value)),
    ("sql", TEXT, lambda store, value: store.sql(value)),
    ("delayed of", TEXT[1:], lambda store, value: store.topic(PLAIN).delayed(value)),
    ("keys of a view", TEXTS, lambda store, value: store.topic(PLAIN).compaction().messages(keys=value)),
    ("explained key", TEXT, lambda store, value: store.topic(PLAIN).compaction().explain(value)),
    (
        "time in a view",
        (None, "text", object(), ["x"], 1.5, b"5m"),
        lambda store, value: store.topic(PLAIN).compaction().find(value),
    ),
    ("interceptors", TEXT[1:], lambda store, value: store.load("never", interceptors=value)),
    ("offload", TEXT, lambda store, value: store.add_offload(value)),
    ("ensemble", TEXT, lambda store, value: store.export_zookeeper(value)),
    ("login", PATH, lambda store, value: store.export_zookeeper("zk:1", client=value)),
    ("jute_maxbuffer", (*NUMBER, -1), lambda store, value: store.export_zookeeper("zk:1", jute_maxbuffer=value)),
    ("exported bookies", (*TEXTS, None), lambda store, value: store.export_bookies(value)),
    ("cluster of tables", TEXT[1:], lambda store, value: store.export_tables("never", cluster=value)),
    ("directory of tables", ("a\0b", "\ud800"), lambda store, value: store.export_tables(value)),
    ("recovered cluster", TEXT[1:], lambda store, value: store.recover(cluster=value)),
    ("earlier", THING[1:], lambda store, value: store.recover(earlier=value)),
    ("names", PATH, lambda store, value: store.recover(names=value)),
    ("saved", PATH, lambda store, value: store.topic(PLAIN).terminate().save(value)),
    ("no file", (Path(), "/"), lambda store, value: store.write_bundle(value)),
    ("no settings file", ("absent", "."), lambda store, value: store.create_cluster("made", {}, file=value)),
    ("source", PATH, lambda store, value: pa.import_standalone(value, "never")),
    ("imported into", PATH, lambda store, value: pa.import_cluster(value, metadata=Path())),
    ("previewed", PATH, lambda store, value: pa.preview_import(value, "never")),
    ("created", PATH, lambda store, value: pa.create_store(value)),
    ("private_keys", (*TEXTS[:7], True), lambda store, value: pa.open_store("pulsar-store", private_keys=value)),
    ("reclaimed by nothing", (None,), lambda store, value: pa.reclaim("b", metadata=value)),
    ("size", (-2, *BIG, 10**400), lambda store, value: store.topic(PLAIN).set_retention(time="1h", size=value)),
    ("planned policy", (*TEXT, "none"), lambda store, value: store.topic(PLAIN).plan_policy("topics set", value, {})),
    ("dump to", PATH, lambda store, value: store.dump(value, PLAIN)),
    ("pattern of a dump", TEXT[1:], lambda store, value: store.dump_size(pattern=value)),
    ("no keyword of a dump", ("3h",), lambda store, value: store.dump("never", sinse=value)),  # type: ignore[call-arg]
    ("searched keys", TEXTS, lambda store, value: store.search(keys=value)),
    ("searched texts", TEXTS, lambda store, value: store.search(texts=value)),
    ("json_paths", TEXTS, lambda store, value: store.search(json_paths=value)),
    ("searched properties", PROPERTIES[:5] + PROPERTIES[6:], lambda store, value: store.search(properties=value)),
    ("producer", TEXT[1:], lambda store, value: store.search(producer=value)),
    ("key_prefix", TEXT[1:], lambda store, value: store.search(key_prefix=value)),
    ("sequence_id", NUMBER[:-1], lambda store, value: store.search(sequence_id=value)),
]


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[pa.Store]:
    monkeypatch.chdir(tmp_path)
    with pa.open_store(copied("small", "clean", tmp_path), writable=True, now=NOW_MS) as opened:
        yield opened


def test_what_is_of_a_wrong_kind_is_one_clear_error(store: pa.Store) -> None:
    wrong = []
    for name, values, call in CALLS:
        for value in values:
            try:
                found = call(store, value)
            except pa.InvalidValue as error:
                if not error.message:
                    wrong.append(f"{name} {value!r}: no words")
            except (pa.StoreError, TypeError, ValueError, AttributeError, AssertionError, OverflowError) as error:
                wrong.append(f"{name} {value!r}: {error!r}")
            else:
                wrong.append(f"{name} {value!r}: taken, {found}")
    assert not wrong, "\n".join(wrong)
    assert store.changes() == ()
    assert [*Path().iterdir()] == [Path("pulsar-store")]


def test_a_generator_that_fails_keeps_its_error_and_the_store(store: pa.Store) -> None:
    def lines() -> Iterator[str]:
        yield LINE
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        store.reset_cursors(lines())
    assert store.changes() == ()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert store.apply(store.reset_cursors([LINE])).number == 1


def test_numbers_of_numpy_are_numbers(store: pa.Store) -> None:
    assert store.ledger(numpy.int64(9)).ledger_id == 9
    assert store.ledger(9).read(numpy.uint32(2)) == store.ledger(9).read(2)
    assert store.topic(PLAIN).nth_position(numpy.int32(1)) == store.topic(PLAIN).nth_position(1)


REQUIRED: dict[str, object] = {
    "name": PLAIN,
    "topic": PLAIN,
    "at": "3h",
    "positions": ["9:1"],
    "lines": [LINE],
    "delay": "1m",
    "count": 1,
    "number": 1,
    "time": "3h",
    "coordinator": 0,
    "path": "never",
    "source": "never",
    "directory": "never",
    "dump": "never",
    "place": "never",
    "address": "zk:1",
    "bookie": "b",
    "bookies": ["b"],
    "metadata": "never",
    "urls": {},
    "messages": (1, 2),
    "bandwidth": (1, 2),
    "memory_mb": 1,
    "tick_time": "1s",
    "subscription": "half",
    "granularity": 1000,
    "namespaces": ["acme/iot"],
    "failover": {},
    "most": 0,
    "least": 0,
}
"""What a call needs beside what is wrong, by name; it is never used."""
ONE_OF: dict[str, dict[str, object]] = {
    "reset": {"time": "3h"},
    "expire": {"before": "3h"},
    "set_isolation_policy": {"primary": ["broker-1"]},
}


def _calls(store: pa.Store) -> Iterator[tuple[str, Callable[..., Any], list[inspect.Parameter]]]:
    """Yield every public function and method, by its name, and its parameters."""
    topic = store.topic(PLAIN)
    cursor, namespace = topic.cursor("half"), store.namespace("acme/iot")
    objects = [pa, store, topic, cursor, store.cursors("half", PLAIN), namespace, store.cluster("standalone")]
    objects += [store.transactions(), topic.transactions(), cursor.transactions(), cursor.nacks(), store.nacks("half")]
    objects += [store.ledger(9), topic.compaction(), topic.delayed()]
    for one in objects:
        for name in one.__all__ if one is pa else dir(type(one)):
            call = getattr(one if one is pa else type(one), name)
            if not name.startswith("_") and inspect.isfunction(call):
                bound = getattr(one, name)
                yield name, bound, [*inspect.signature(bound).parameters.values()]


def _refusal(name: str, bound: Callable[..., Any], parameters: list[inspect.Parameter], what: str, wrong: Any) -> str:
    """Return how the call refuses WRONG of its parameter WHAT; raises what is no InvalidValue, and AssertionError where it takes it."""
    needed = [one.name for one in parameters if one.default is one.empty and one.kind not in VARIADIC]
    given = {one: REQUIRED.get(one, "public/x") for one in needed}
    try:
        found = bound(**(given | {**ONE_OF.get(name, {}), what: wrong}))
        found = next(found) if inspect.isgenerator(found) else found
    except pa.InvalidValue as error:
        return error.message
    raise AssertionError(f"taken, {found}")


def test_every_flag_of_every_call_is_true_or_false(store: pa.Store) -> None:
    asked, wrong = 0, []
    for name, bound, parameters in _calls(store):
        for flag in (one.name for one in parameters if one.annotation == "bool"):
            asked += 1
            try:
                message = _refusal(name, bound, parameters, flag, "no")
            except (pa.StoreError, AssertionError) as error:
                wrong.append(f"{name}({flag}): {error!r}")
            else:
                if message != f"{flag} 'no' is not True or False":
                    wrong.append(f"{name}({flag}): {message}")
    assert not wrong, "\n".join(wrong)
    assert asked > 70
    assert store.changes() == ()
    assert [*Path().iterdir()] == [Path("pulsar-store")]


WRONG_KINDS: dict[str, object] = {
    "str": 5,
    "int": "5",
    "float": "0.5",
    "Path | str": b"x",
    "Sequence[str]": "text",
    "Mapping[str, str]": ["a=b"],
    "Clock": "sundial",
}


def test_every_parameter_of_every_call_is_of_the_kind_that_it_says(store: pa.Store) -> None:
    asked, wrong = 0, []
    for name, bound, parameters in _calls(store):
        for one in parameters:
            said = str(one.annotation).removesuffix(" | None")
            if said not in WRONG_KINDS or one.kind in VARIADIC:
                continue
            asked += 1
            try:
                message = _refusal(name, bound, parameters, one.name, WRONG_KINDS[said])
            except (pa.StoreError, TypeError, ValueError, AttributeError, AssertionError) as error:
                wrong.append(f"{name}({one.name}): {error!r}")
            else:
                if repr(WRONG_KINDS[said]) not in message:
                    wrong.append(f"{name}({one.name}): {message}")
    assert not wrong, "\n".join(wrong)
    assert asked > 200
    assert store.changes() == ()
    assert [*Path().iterdir()] == [Path("pulsar-store")]


def test_options_of_policies_that_are_none_are_refused(store: pa.Store) -> None:
    """Whatever the policy: a name that its command has not, a value of another kind, and an option that is missing."""
    refused = 0
    for topic_or_namespace, group in (
        (store.topic(PLAIN), "topics"),
        (store.namespace("public/default"), "namespaces"),
    ):
        for name in policies_by_name():
            row = upstream_commands().get(command := f"{group} set-{name}", {})
            options = [name_of(one["names"]) for one in row.get("options", ())]
            for given in (
                {"nonsense": 1},
                *({option: value} for option in options for value in (b"x", {}, "\0", -(10**30))),
            ):
                try:
                    topic_or_namespace.plan_policy(command, name, given)
                except pa.InvalidValue:
                    refused += 1
                except pa.StoreError:
                    assert "nonsense" not in given
                else:
                    assert given.keys() <= {*options}
                    assert not isinstance(next(iter(given.values())), (bytes, dict))
    assert refused > 400
