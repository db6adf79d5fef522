"""Tenants, clusters, namespaces, limits … made and deleted offline are what a real broker serves that starts on the export."""

from pathlib import Path
from typing import Any

import pytest

from tests.live.answers import SETTINGS, nodes_of
from tests.live.broker import Broker, BrokerError
from tests.live.conftest import run_toolkit
from tests.live.distribution import find_distribution

pytestmark = pytest.mark.live

CHANGES = (
    "tenants create shop -r ops -c standalone",
    "tenants update acme -r ops,dev",
    "clusters create west --url http://west:8080 --broker-url pulsar://west:6650",
    "clusters create-failure-domain west --domain-name d1 --broker-list b1,b2",
    "clusters update-peer-clusters standalone --peer-clusters west",
    "namespaces create shop/new -b 3",
    "namespaces split-bundle shop/new -b 0x00000000_0x55555555",
    "namespaces set-properties shop/new -p owner=ops -p tier=gold",
    "namespaces grant-permission shop/new --role app --actions produce",
    "namespaces set-anti-affinity-group shop/new -g heavy",
    "resourcegroups create batch -mp 1000",
    "resource-quotas set -mi 10 -mo 20 -bi 1000 -bo 2000 -mem 100",
    "bookies set-bookie-rack -b bookie-9:3181 -r /rack-9",
    "brokers update-dynamic-config -c maxTenants -v 100",
    "ns-isolation-policy set west payments --namespaces acme/kept --primary b1 --auto-failover-policy-type min_available"
    " --auto-failover-policy-params min_limit=1,usage_threshold=80",
    "topics grant-permission acme/kept/t --role app --actions consume",
    "namespaces delete acme/gone --force",
)
SERVED: dict[str, Any] = {
    "tenants": ["acme", "public", "pulsar", "shop"],
    "tenants/acme": {"adminRoles": ["ops", "dev"], "allowedClusters": ["standalone"]},
    "clusters/west/failureDomains/d1": {"brokers": ["b2", "b1"]},
    "clusters/standalone/peers": ["west"],
    "namespaces/acme": ["acme/kept"],
    "namespaces/shop/new/properties": {"owner": "ops", "tier": "gold"},
    "namespaces/shop/new/permissions": {"app": ["produce"]},
    "resourcegroups": ["batch"],
    "bookies/racks-info/bookie-9:3181": {"rack": "/rack-9"},
    "brokers/configuration/values": {"maxTenants": "100"},
    "persistent/acme/kept/t/permissions": {"app": ["consume"]},
    "persistent/acme/kept": ["persistent://acme/kept/t"],
}


def _fill(broker: Broker) -> None:
    broker.put("tenants/acme", {"adminRoles": [], "allowedClusters": ["standalone"]})
    for namespace in ("kept", "gone"):
        broker.put(f"namespaces/acme/{namespace}", {})
        broker.put(f"persistent/acme/{namespace}/t")
        broker.subscribe(f"acme/{namespace}/t", "s")


def test_a_broker_serves_what_was_made_and_nothing_of_what_was_deleted(tmp_path: Path) -> None:
    broker, store = Broker(find_distribution(), tmp_path, SETTINGS), tmp_path / "store"
    try:
        broker.start()
        _fill(broker)
        broker.stop()
        run_toolkit(store, "store", "import", "standalone", broker.data)
        for line in CHANGES:
            run_toolkit(store, *line.split())
        run_toolkit(store, "store", "export", "standalone", broker.data, "--in-place", "--yes")
        broker.start()
        served = {path: broker.get(path) for path in SERVED}
        assert broker.request("GET", "namespaces/shop/new/antiAffinity") == b"heavy"
        bundles = broker.get("namespaces/shop/new/bundles")["boundaries"]
        with pytest.raises(BrokerError):
            broker.get("namespaces/acme/gone")
        broker.put("namespaces/acme/gone", {})  # the name is free again
        broker.subscribe("acme/gone/t", "other")
        assert broker.get("persistent/acme/gone/t/subscriptions") == ["other"]
        broker.request("DELETE", "namespaces/shop/new")
        broker.request("DELETE", "tenants/shop")
        broker.stop()
    finally:
        broker.kill()
    assert served == SERVED
    assert bundles == ["0x00000000", "0x2aaaaaaa", "0x55555555", "0xaaaaaaaa", "0xffffffff"]
    assert not any("/shop" in path for path in nodes_of(broker.data))
