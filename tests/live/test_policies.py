"""Policies set offline are what the real broker serves, and policies set on the broker are what the toolkit reads."""

import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from tests.live.broker import BASE_SETTINGS, BROKER_METADATA, Broker, wait_until
from tests.live.conftest import run_toolkit
from tests.live.distribution import find_distribution
from tests.live.producing import Sending, open_client, send

pytestmark = pytest.mark.live

PLAIN, PARTS, LIVE, LATER = "acme/set/plain", "acme/set/parts", "acme/set/live", "acme/set/later"
SPREAD = ("acme/spread/one", "acme/spread/ten", "acme/spread/six", "acme/spread/seven")
MADE = "acme/bare/made"  # loaded offline: its namespace has no system topic before
QUOTA = {"limit": 1 << 24, "limitSize": 1 << 24, "limitTime": -1, "policy": "consumer_backlog_eviction"}

Json = dict[str, Any]


def delivery(active: bool, tick_ms: int, max_ms: int = 0) -> Json:
    return {"active": active, "tickTime": tick_ms, "maxDeliveryDelayInMillis": max_ms}


SET = {
    LIVE: delivery(True, 1234, 99_000),
    LATER: delivery(False, 5),
    **{topic: delivery(True, 100 + number) for number, topic in enumerate(SPREAD)},
}


class Offline(Struct, frozen=True):
    """A broker started on what was set offline, the store, and what the broker and the toolkit said before it ended."""

    broker: Broker
    store: Path
    said: dict[str, Json]
    read: dict[str, Json]


def _get(store: Path, topics: tuple[str, ...]) -> dict[str, Json]:
    rows = run_toolkit(store, "topics", "get-delayed-delivery", *topics)
    found = {row["topic"].removeprefix("persistent://"): row["value"] for row in rows}
    return {topic: found[topic] for topic in topics}


def _fill(broker: Broker, metadata_seed: int) -> None:
    broker.put("tenants/acme", {"adminRoles": [], "allowedClusters": ["standalone"]})
    for namespace in ("set", "spread", "bare"):
        broker.put(f"namespaces/acme/{namespace}", {})
    broker.put("persistent/acme/spread/__change_events/partitions", 2)
    broker.put(f"persistent/{PARTS}/partitions", 3)
    for topic in (PLAIN, LIVE, LATER, *SPREAD):
        broker.put(f"persistent/{topic}")
    client = open_client(broker.service_url)
    send(client, Sending(PLAIN, "plain", 5), metadata_seed)
    client.close()
    for topic, value in SET.items():
        broker.post(f"persistent/{topic}/delayedDelivery", value)


def _followed(broker: Broker, topic: str, value: Json) -> Json:
    """What the broker says that a topic's policy is, once it is VALUE: it answers a change before it has read the event."""
    wait_until(lambda: broker.get(f"persistent/{topic}/delayedDelivery") == value, f"the policy of {topic}")
    return value


def _set_offline(store: Path, folder: Path) -> None:
    run_toolkit(store, "namespaces", "enable-delayed-message", "acme/set", "-p", "10m", "-t", "2s")
    run_toolkit(store, "namespaces", "set-message-ttl", "acme/set", "-ttl", "2h")
    run_toolkit(store, "topics", "set-delayed-delivery", PLAIN, PARTS, *SPREAD[1:3], "-e", "-t", "3s", "-md", "1d")
    run_toolkit(store, "topics", "remove-delayed-delivery", LATER)
    run_toolkit(store, "topics", "set-message-ttl", PLAIN, "-t", "90s")
    run_toolkit(store, "topics", "set-retention", PLAIN, "-t", "5h", "-s", "-1")
    run_toolkit(store, "topics", "set-backlog-quota", PLAIN, "-l", "16M", "-p", "consumer_backlog_eviction")
    run_toolkit(store, "topics", "dump", PLAIN, "--level", "entries", "--directory", folder / "dump")
    run_toolkit(store, "topics", "load", folder / "dump", "--topic", MADE)
    run_toolkit(store, "topics", "set-delayed-delivery", MADE, "--disable", "--time", "7s")


@pytest.fixture(scope="module")
def offline(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Offline]:
    """Policies set on a broker, read offline, set offline, exported in place, and the broker started again."""
    folder = tmp_path_factory.mktemp("policies")
    with Broker(find_distribution(), folder / "pulsar", BASE_SETTINGS | BROKER_METADATA) as broker:
        broker.start()
        _fill(broker, time.time_ns() % 1_000_000)
        topics = (LIVE, LATER, *SPREAD)
        said = {topic: _followed(broker, topic, SET[topic]) for topic in topics}
        broker.stop()
        store = folder / "store"
        run_toolkit(store, "store", "import", "standalone", broker.data)
        read = _get(store, topics)
        _set_offline(store, folder)
        run_toolkit(store, "store", "export", "standalone", broker.data, "--in-place", "--yes")
        broker.start()
        yield Offline(broker, store, said, read)


def _pulsar_admin(broker: Broker, *arguments: str) -> Any:  # Any: the JSON it prints
    command = [str(broker.distribution / "bin" / "pulsar-admin"), "--admin-url", broker.web_url, *arguments]
    environment = {**os.environ, "PULSAR_MEM": "-Xmx128m", "PULSAR_LOG_DIR": str(broker.folder / "logs")}
    finished = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    return json.loads(finished.stdout)


def test_what_the_broker_set_is_read(offline: Offline) -> None:
    assert offline.read == offline.said == SET


def test_pulsar_admin_shows_what_was_set_offline(offline: Offline) -> None:
    ask = ("get-delayed-delivery",)
    assert _pulsar_admin(offline.broker, "namespaces", *ask, "acme/set") == delivery(True, 2000)
    assert _pulsar_admin(offline.broker, "topics", *ask, PLAIN) == delivery(True, 3000, 86_400_000)
    assert _pulsar_admin(offline.broker, "topics", *ask, LATER, "--applied") == delivery(True, 2000)


def test_the_broker_serves_every_policy_set_offline(offline: Offline) -> None:
    broker = offline.broker
    set_here = delivery(True, 3000, 86_400_000)
    expected = {PLAIN: set_here, PARTS: set_here, LIVE: offline.said[LIVE], LATER: None, MADE: delivery(False, 7000)}
    expected |= {
        SPREAD[0]: delivery(True, 100),
        SPREAD[1]: set_here,
        SPREAD[2]: set_here,
        SPREAD[3]: delivery(True, 103),
    }
    assert {topic: broker.get(f"persistent/{topic}/delayedDelivery") for topic in expected} == expected
    assert broker.get(f"persistent/{PLAIN}/messageTTL") == 90
    assert broker.get(f"persistent/{LATER}/messageTTL?applied=true") == 7200
    assert broker.get(f"persistent/{PLAIN}/retention") == {"retentionTimeInMinutes": 300, "retentionSizeInMB": -1}
    assert broker.get(f"persistent/{PLAIN}/backlogQuotaMap") == {"destination_storage": QUOTA}


def test_the_broker_goes_on_behind_what_was_set_offline(offline: Offline) -> None:
    """It appends to the topics and schemas made here, and after another import both sides still agree."""
    broker = offline.broker
    for number, topic in enumerate((MADE, PLAIN, SPREAD[1])):
        broker.post(f"persistent/{topic}/delayedDelivery", delivery(True, 5000 + number))
        _followed(broker, topic, delivery(True, 5000 + number))
    schema = broker.get("schemas/acme/bare/__change_events/schema")
    assert (schema["version"], schema["type"]) == (0, "AVRO")
    said = {topic: broker.get(f"persistent/{topic}/delayedDelivery") for topic in (MADE, PLAIN, LIVE, *SPREAD)}
    assert said[MADE] == delivery(True, 5000)
    assert broker.get(f"persistent/{PLAIN}/messageTTL") == 90
    broker.stop()
    again = offline.store.parent / "again"
    run_toolkit(again, "store", "import", "standalone", broker.data)
    assert _get(again, tuple(said)) == said
    problems = [row for row in run_toolkit(again, "store", "check", "--deep") if row["severity"] == "problem"]
    assert problems == []
