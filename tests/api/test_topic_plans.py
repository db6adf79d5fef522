"""Tenants, namespaces and topics are made, ended and deleted through the Python interface, and get properties and permissions."""

from __future__ import annotations

import pytest

import pulsar_admin as pa

PLAIN = "public/default/plain"
PARTS = "acme/orders/parts"


def test_tenants_and_namespaces_are_made_and_deleted(store: pa.Store) -> None:
    before = store.namespaces()
    with pytest.raises(pa.TenantNotFound):
        store.namespaces("")
    with pytest.raises(pa.NamespaceNotFound):
        store.create_namespace("shop/orders")
    store.apply(store.create_tenant("shop", admin_roles=["shop-admin"]))
    store.apply(store.create_namespace("shop/orders", bundles=8))
    assert store.namespace("shop/orders").policies()["bundles"]["numBundles"] == 8
    store.apply(store.create_topic("shop/orders/new"))
    with pytest.raises(pa.Refused, match="non empty"):
        store.delete_namespace("shop/orders")
    number = store.apply(store.delete_tenant("shop", force=True)).number
    assert store.namespaces() == before
    assert number is not None
    store.undo(number)
    assert store.namespaces("shop") == ("shop/orders",)
    store.apply(store.delete_topics("shop/orders/new"))
    store.apply(store.delete_namespace("shop/orders"))
    assert store.namespaces() == before


def test_an_ended_topic_ends_at_its_last_entry(store: pa.Store) -> None:
    last = store.topic(PLAIN).last_message_id()
    plan = store.topic(PLAIN).terminate()
    assert [(part.topic, part.after) for part in plan.preview().parts] == [
        (f"persistent://{PLAIN}", {"terminatedPosition": f"{last.ledger_id}:{last.entry_id}"})
    ]
    assert len(store.topic(PARTS).terminate(partitioned=True).preview().parts) == 3
    with pytest.raises(pa.TopicNotFound):
        store.topic(PARTS).terminate()


def test_properties_and_permissions(store: pa.Store) -> None:
    topic = store.topic(PLAIN)
    own = topic.properties()  # a broker's interceptor keeps one there
    store.apply(topic.set_properties({"owner": "billing", "tier": "1"}))
    store.apply(topic.set_properties({"tier": "2"}))
    assert topic.properties() == {**own, "owner": "billing", "tier": "2"}
    store.apply(topic.remove_properties("owner"))
    assert topic.properties() == {**own, "tier": "2"}
    store.apply(topic.grant_permission("app", ["consume"]))
    assert topic.permissions() == {"app": ["consume"]}
    store.apply(topic.revoke_permission("app"))
    assert topic.permissions() == {}
    with pytest.raises(pa.InvalidValue):
        topic.grant_permission("app", ["dance"])
    cursor = topic.cursor("half")
    store.apply(cursor.set_properties({"owner": "billing"}))
    store.apply(cursor.set_replicated(True))
    assert cursor.properties() == {"owner": "billing"}
    assert cursor.replicated() == {f"persistent://{PLAIN}": True}
    store.apply(cursor.set_replicated(False))
    assert cursor.replicated() == {f"persistent://{PLAIN}": False}


def test_more_partitions_than_can_be_planned_are_refused_at_once(store: pa.Store) -> None:
    plans = [
        lambda: store.create_topic("acme/orders/many", partitions=2**31 - 1),
        lambda: store.topic("acme/orders/parts").set_partitions(2**31 - 1),
    ]
    for plan in plans:
        with pytest.raises(pa.InvalidValue, match=r"2,147,483,647 partitions of .*: expected at most 1,000,000"):
            plan()
