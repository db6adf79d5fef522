"""Topics made, changed, ended and deleted offline are so for a broker that starts on the exported store."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.live.broker import BROKER_METADATA, Broker, BrokerError
from tests.live.conftest import run_toolkit
from tests.live.distribution import find_distribution
from tests.live.producing import Sending, open_client, receive_first, send
from tests.live.recipe import SETTINGS

pytestmark = pytest.mark.live

NAMESPACE = "acme/life"
ENDED, CUT, GONE, PARTS, GONE_PARTS = (
    f"{NAMESPACE}/{name}" for name in ("ended", "cut", "gone", "parts", "gone-parts")
)
SCHEMA = {"type": "AVRO", "schema": json.dumps({"type": "record", "name": "R", "fields": []}), "properties": {"k": "v"}}


def commands(folder: Path) -> list[tuple[str, ...]]:
    (folder / "schema.json").write_text(json.dumps(SCHEMA))
    made = f"{NAMESPACE}/made"
    return [
        ("topics", "create", made, "-m", "owner=billing"),
        ("schemas", "upload", made, "-f", str(folder / "schema.json")),
        ("topics", "create-partitioned-topic", f"{made}-parts", "-p", "2"),
        ("topics", "update-partitioned-topic", PARTS, "-p", "4"),
        ("topics", "update-properties", PARTS, "-p", "team=blue"),
        ("topics", "update-subscription-properties", PARTS, "-s", "sub", "-p", "team=red"),
        ("topics", "terminate", ENDED),
        ("topics", "truncate", CUT),
        ("topics", "delete", GONE),
        ("topics", "delete-partitioned-topic", GONE_PARTS),
    ]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker on a store that COMMANDS changed."""
    folder = tmp_path_factory.mktemp("life")
    with Broker(find_distribution(), folder / "pulsar", SETTINGS | BROKER_METADATA) as broker:
        broker.start()
        broker.put("tenants/acme", {"adminRoles": [], "allowedClusters": ["standalone"]})
        broker.put(f"namespaces/{NAMESPACE}")
        for name in (PARTS, GONE_PARTS):
            broker.put(f"persistent/{name}/partitions", 2)
        client = open_client(broker.service_url)
        for name in (ENDED, CUT, GONE, PARTS, GONE_PARTS):
            broker.subscribe(name, "sub")
            send(client, Sending(name, name.rpartition("/")[2], 60), 7)
        client.close()
        for name in (GONE, GONE_PARTS):
            broker.post(f"persistent/{name}/messageTTL?messageTTL=3600")
            broker.post(f"schemas/{name}/schema", SCHEMA)
        broker.stop()
        store = folder / "store"
        run_toolkit(store, "store", "import", "standalone", broker.data)
        for words in commands(folder):
            run_toolkit(store, *words)
        run_toolkit(store, "store", "export", "standalone", broker.data, "--in-place", "--yes")
        broker.start()
        yield broker
        broker.stop()


def status_of(broker: Broker, path: str) -> int:
    with pytest.raises(BrokerError) as raised:
        broker.get(path)
    return raised.value.status


def test_what_was_made_is_there(broker: Broker) -> None:
    made = f"persistent/{NAMESPACE}/made"
    assert broker.get(f"{made}/properties")["owner"] == "billing"
    assert broker.get(f"schemas/{NAMESPACE}/made/schema")["properties"] == {"k": "v"}
    assert broker.get(f"{made}-parts/partitions")["partitions"] == 2
    client = open_client(broker.service_url)
    send(client, Sending(f"{NAMESPACE}/made-parts", "new", 20), 8)
    send(client, Sending(PARTS, "more", 40), 9)
    client.close()
    for index in (2, 3):  # the new ones have the subscription of the others, and what is sent to them is its backlog
        stats = broker.get(f"persistent/{PARTS}-partition-{index}/stats?getPreciseBacklog=true")
        assert stats["subscriptions"]["sub"]["msgBacklog"] == stats["msgInCounter"] > 0
    assert broker.get(f"persistent/{PARTS}/properties") == {"team": "blue"}
    assert broker.get(f"persistent/{PARTS}/subscription/sub/properties") == {"team": "red"}


def test_what_was_ended_takes_nothing(broker: Broker) -> None:
    stats = broker.get(f"persistent/{ENDED}/internalStats")
    assert stats["state"] == "Terminated"
    assert stats["numberOfEntries"] == 60
    client = open_client(broker.service_url)
    with pytest.raises(Exception, match="Terminated"):
        client.create_producer(ENDED)
    assert receive_first(client, ENDED, "sub") is not None
    client.close()


def test_what_was_truncated_goes_on(broker: Broker) -> None:
    assert broker.get(f"persistent/{CUT}/stats?getPreciseBacklog=true")["subscriptions"]["sub"]["msgBacklog"] == 0
    client = open_client(broker.service_url)
    send(client, Sending(CUT, "again", 5), 10)
    client.close()
    assert broker.get(f"persistent/{CUT}/stats?getPreciseBacklog=true")["subscriptions"]["sub"]["msgBacklog"] == 5


def test_what_was_deleted_is_gone(broker: Broker) -> None:
    names = [*broker.get(f"persistent/{NAMESPACE}"), *broker.get(f"persistent/{NAMESPACE}/partitioned")]
    assert not [name for name in names if "gone" in name]
    for name in (GONE, GONE_PARTS):
        assert status_of(broker, f"schemas/{name}/schema") == 404
        broker.put(f"persistent/{name}")  # made again it has neither policies nor subscriptions of old
        assert broker.get(f"persistent/{name}/messageTTL") is None
        assert broker.get(f"persistent/{name}/subscriptions") == []
