"""A compacted view that a real broker's truncate dropped: attached again and exported, the broker serves its keys."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.live.broker import BASE_SETTINGS, BROKER_METADATA, Broker
from tests.live.compacting import compact, read_apart
from tests.live.conftest import run_toolkit
from tests.live.distribution import VERSION, find_distribution
from tests.live.producing import open_client

pytestmark = pytest.mark.live

TOPIC = "public/default/truncated"
SETTINGS = {**BASE_SETTINGS, **BROKER_METADATA, "managedLedgerMaxEntriesPerLedger": "10"}


def _publish(broker: Broker, keys: list[str], values: int) -> None:
    client = open_client(broker.service_url)
    producer = client.create_producer(f"persistent://{TOPIC}", batching_enabled=False)
    for value in range(values):
        for key in keys:
            producer.send(f"{key}={value}".encode(), partition_key=key)
    client.close()


def _keys(broker: Broker) -> list[str]:
    return [str(row[3]) for row in read_apart(broker.service_url, TOPIC)]


def test_a_broker_serves_the_view_that_its_truncate_dropped(tmp_path: Path) -> None:
    """The keys of the view first, then what the topic itself still has; before, nothing of the view."""
    broker, store = Broker(find_distribution(VERSION), tmp_path / "pulsar", SETTINGS), tmp_path / "store"
    old, newer = [f"k{number}" for number in range(4)], [f"k{number}" for number in range(4, 8)]
    try:
        broker.start()
        _publish(broker, old, 5)
        assert compact(broker, TOPIC) == "SUCCESS"
        ledger = broker.get(f"persistent/{TOPIC}/internalStats")["compactedLedger"]["ledgerId"]
        _publish(broker, newer, 6)
        broker.request("DELETE", f"persistent/{TOPIC}/truncate")
        broker.put(f"persistent/{TOPIC}/unload")
        left = _keys(broker)
        assert not set(left) & set(old)
        broker.stop()

        run_toolkit(store, "store", "import", "standalone", broker.data)
        found = [row for row in run_toolkit(store, "doctor", code=1) if row["code"] == "compacted-view-detached"]
        assert [(row["evidence"]["ledgerId"], row["evidence"]["keys"]) for row in found] == [(ledger, len(old))]
        done = run_toolkit(store, *found[0]["mend"].split()[1:])
        print(f"\n{done['before']} -> {done['after']}")
        run_toolkit(store, "store", "export", "standalone", broker.data, "--in-place", "--yes")
        broker.start()
        served = _keys(broker)
        assert (sorted(served[: len(old)]), served[len(old) :]) == (old, left)
        assert broker.get(f"persistent/{TOPIC}/internalStats")["compactedLedger"]["ledgerId"] == ledger
    finally:
        broker.kill()
