"""Cursors moved offline stand where the live broker moves their twins to, and subscriptions made or removed offline are so.

Every change has two subscriptions with the same acknowledgements: ``here-…`` is moved in the store and exported, ``there-…`` by the broker
that starts on the result. Rule ``broker`` is asked for where ours differs on purpose.
"""

import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pulsar  # type: ignore[import-untyped,import-not-found,unused-ignore]
import pytest
from msgspec import Struct

from tests.live.broker import BROKER_METADATA, Broker, BrokerError, wait_until
from tests.live.conftest import run_toolkit
from tests.live.distribution import find_distribution
from tests.live.producing import RECEIVE_MS, Sending, open_client, read_rows, receive_first, send
from tests.live.recipe import NAMESPACES, SETTINGS, wait_until_settled

pytestmark = pytest.mark.live

PLAIN, BATCHED, PARTITIONED = "acme/orders/plain", "acme/orders/batched", "acme/orders/parts"
SENDINGS = (
    Sending(PLAIN, "plain", 130, pace_ms=2),
    Sending(BATCHED, "batched", 300, batch=10),
    Sending(PARTITIONED, "parts", 20),
)
RECEIVED = 60

Row = list[Any]


class Twin(Struct, frozen=True):
    """One change: the toolkit's command and the broker's request (path below the subscription, body)."""

    name: str
    topic: str
    command: tuple[str, ...]
    path: str
    body: dict[str, Any] | None = None


def _place(row: Row, index: int = -1, exclude: bool = False) -> dict[str, Any]:
    return {"ledgerId": row[0], "entryId": row[1], "partitionIndex": -1, "batchIndex": index, "excluded": exclude}


def _text(row: Row, index: int = -1) -> str:
    return f"{row[0]}:{row[1]}" + (f":{index}" if index >= 0 else "")


def _twins(plain: list[Row], batches: list[Row], seed: int) -> list[Twin]:
    rng = random.Random(f"{seed} twins")
    entry, other, last = plain[rng.randrange(70, 90)], plain[rng.randrange(25, 45)], plain[-2]
    batch, late_batch = batches[rng.randrange(8, 20)], batches[-2]
    broker = ("--rule", "broker")
    twins = [
        Twin("skip", PLAIN, ("skip", "-n", "17"), "skip/17"),
        Twin("skip-far", PLAIN, ("skip", "-n", "9999"), "skip/9999"),
        Twin("clear", PLAIN, ("clear-backlog",), "skip_all"),
        Twin(
            "reset-exclude",
            PLAIN,
            ("reset-cursor", "-m", _text(other), "-e"),
            "resetcursor",
            _place(other, exclude=True),
        ),
        Twin("reset-time", PLAIN, ("reset-cursor", "-t", f"@{entry[3]}", *broker), f"resetcursor/{entry[3]}"),
        Twin("expire-tail", PLAIN, ("expire", "-p", _text(last)), "expireMessages", _place(last)),
    ]
    for exclude in (False, True):
        option = ("-e",) if exclude else ()
        name = "exclude" if exclude else "include"
        body = _place(entry, exclude=exclude)
        twins.append(
            Twin(f"expire-{name}", PLAIN, ("expire", "-p", _text(entry), *option, *broker), "expireMessages", body)
        )
        for row, kind in ((batch, "early"), (late_batch, "late")):
            for index in (-1, 0, 4, 9):
                place, body = _text(row, index), _place(row, index, exclude)
                command = ("expire", "-p", place, *option, *broker)
                twins.append(Twin(f"expire-{kind}-{index}-{name}", BATCHED, command, "expireMessages", body))
    return twins


def _subscribe(broker: Broker, client: pulsar.Client, twins: list[Twin]) -> None:
    """Make both subscriptions of every twin; on the plain topic with the same holes."""
    for twin in twins:
        for side in ("here", "there"):
            broker.subscribe(twin.topic, f"{side}-{twin.name}")
            if twin.topic == PLAIN:
                _acknowledge_some(client, f"{side}-{twin.name}")


def _acknowledge_some(client: pulsar.Client, subscription: str) -> None:
    consumer = client.subscribe(f"persistent://{PLAIN}", subscription, pulsar.ConsumerType.Shared)
    for number in range(RECEIVED):
        message = consumer.receive(RECEIVE_MS)
        if number % 7 in (0, 3, 4):
            consumer.acknowledge(message)
    consumer.close()


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Broker, list[Twin], dict[str, list[Row]]]]:
    """A broker on the exported store: ``here-…`` moved offline, ``there-…`` moved by the broker since."""
    folder = tmp_path_factory.mktemp("twins")
    seed = time.time_ns() % 1_000_000
    print(f"\nseed {seed}")
    with Broker(find_distribution(), folder / "pulsar", SETTINGS | BROKER_METADATA) as broker:
        broker.start()
        rows = _fill(broker, seed)
        twins = _twins(rows[PLAIN], rows[BATCHED], seed)
        client = open_client(broker.service_url)
        _subscribe(broker, client, twins)
        client.close()
        wait_until_settled(broker)
        broker.stop()
        _change_offline(folder / "store", broker.data, twins)
        broker.start()
        for twin in twins:
            broker.post(_path(twin), twin.body)
        for twin in twins:
            if twin.path == "expireMessages":
                wait_until(lambda: _is_expired(broker, twin), f"the expiry of {twin.name}")  # noqa: B023
        yield broker, twins, rows
        broker.stop()


def _path(twin: Twin) -> str:
    return f"persistent/{twin.topic}/subscription/{quote('there-' + twin.name)}/{twin.path}"


def _is_expired(broker: Broker, twin: Twin) -> bool:
    """Ask for the same again, which moves nothing: it is refused while the first one runs, and where nothing is left."""
    try:
        broker.post(_path(twin), twin.body)
    except BrokerError as error:
        if error.status != 409:
            raise
        stats = broker.get(f"persistent/{twin.topic}/stats?getPreciseBacklog=true")["subscriptions"]
        return bool(stats[f"there-{twin.name}"]["msgBacklog"] == 0)
    return True


def _fill(broker: Broker, seed: int) -> dict[str, list[Row]]:
    broker.put("tenants/acme", {"adminRoles": [], "allowedClusters": ["standalone"]})
    for namespace in NAMESPACES[:3]:
        broker.put(f"namespaces/{namespace}")
    broker.put(f"persistent/{PARTITIONED}/partitions", 2)
    client = open_client(broker.service_url)
    for sending in SENDINGS:
        broker.subscribe(sending.topic, "gone")
        send(client, sending, seed)
    rows = {topic: read_rows(client, topic) for topic in (PLAIN, BATCHED)}
    client.close()
    # one row an entry
    return {topic: list({(row[0], row[1]): row for row in found}.values()) for topic, found in rows.items()}


def _change_offline(store: Path, data: Path, twins: list[Twin]) -> None:
    run_toolkit(store, "store", "import", "standalone", data)
    for twin in twins:
        command, *options = twin.command
        run_toolkit(store, "topics", command, twin.topic, "-s", f"here-{twin.name}", *options)
    run_toolkit(
        store, "topics", "create-subscription", PLAIN, "-s", "made/one", "-m", "earliest", "-p", "owner=billing"
    )
    run_toolkit(store, "topics", "create-subscription", PARTITIONED, "-s", "made")
    run_toolkit(store, "namespaces", "unsubscribe", "acme/orders", "-s", "gone")
    run_toolkit(store, "store", "export", "standalone", data, "--in-place", "--yes")


Changed = tuple[Broker, list[Twin], dict[str, list[Row]]]


def test_twins_stand_at_the_same_place(changed: Changed) -> None:
    broker, twins, _ = changed
    for twin in twins:
        cursors = broker.get(f"persistent/{twin.topic}/internalStats")["cursors"]
        here, there = (cursors[f"{side}-{twin.name}"] for side in ("here", "there"))
        for key in ("markDeletePosition", "individuallyDeletedMessages", "properties"):
            assert here[key] == there[key], f"{twin.name} {key}"
        backlogs = broker.get(f"persistent/{twin.topic}/stats?getPreciseBacklog=true")["subscriptions"]
        assert backlogs[f"here-{twin.name}"]["msgBacklog"] == backlogs[f"there-{twin.name}"]["msgBacklog"], twin.name


def test_twins_give_the_same_entry_first(changed: Changed) -> None:
    broker, twins, _ = changed
    client = open_client(broker.service_url)
    for twin in twins:
        backlogs = broker.get(f"persistent/{twin.topic}/stats?getPreciseBacklog=true")["subscriptions"]
        here, there = (
            receive_first(client, twin.topic, name, comes=backlogs[name]["msgBacklog"] > 0)
            for name in (f"here-{twin.name}", f"there-{twin.name}")
        )
        assert (here and here[:2]) == (there and there[:2]), twin.name
    client.close()


def test_a_subscription_made_offline_is_one(changed: Changed) -> None:
    broker, _, rows = changed
    path = f"persistent/{PLAIN}"
    assert broker.get(f"{path}/subscription/{quote('made/one', safe='')}/properties") == {"owner": "billing"}
    client = open_client(broker.service_url)
    found = receive_first(client, PLAIN, "made/one")
    assert found[:2] == rows[PLAIN][0][:2]
    for partition in range(2):
        name = f"{PARTITIONED}-partition-{partition}"
        assert broker.get(f"persistent/{name}/stats")["subscriptions"]["made"]["msgBacklog"] == 0
    client.close()


def test_a_subscription_removed_offline_is_gone(changed: Changed) -> None:
    broker, _, _ = changed
    names = [PLAIN, BATCHED, *(f"{PARTITIONED}-partition-{partition}" for partition in range(2))]
    assert wait_until(lambda: [broker.get(f"persistent/{name}/subscriptions") for name in names], "subscriptions")
    assert not any("gone" in broker.get(f"persistent/{name}/subscriptions") for name in names)
