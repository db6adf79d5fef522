"""What a live broker said of two subscriptions while they acknowledged with holes is in their history, and comes back.

One broker wrote bitmaps into its cursor ledger (``managedLedgerPersistIndividualAckAsLongArray``), after a restart it wrote ranges.
"""

import random
import time
from pathlib import Path
from typing import Any

import pulsar  # type: ignore[import-untyped,import-not-found,unused-ignore]
import pytest

from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.model.reader import open_reader
from pulsar_admin.store.proto.managed_ledger_pb2 import PositionInfo
from tests.live.broker import BROKER_METADATA, Broker, override, wait_until
from tests.live.conftest import run_toolkit
from tests.live.distribution import find_distribution
from tests.live.on_disk import are_written
from tests.live.producing import RECEIVE_MS, Sending, open_client, send
from tests.live.recipe import SETTINGS

pytestmark = pytest.mark.live

TOPIC = "public/default/acked"
MESSAGES, MOMENTS, EACH = 120, 3, 25
FORMS = {"bitmaps": "true", "ranges": "false"}  # subscription → managedLedgerPersistIndividualAckAsLongArray
SPOKEN = ("markDeletePosition", "individuallyDeletedMessages")

Json = dict[str, Any]


def _acknowledge(broker: Broker, subscription: str, rng: random.Random) -> list[Json]:
    """Acknowledge some of what was received, several times; what the broker said each time, when it was on disk."""
    client = open_client(broker.service_url)
    consumer = client.subscribe(
        f"persistent://{TOPIC}",
        subscription,
        pulsar.ConsumerType.Shared,
        initial_position=pulsar.InitialPosition.Earliest,
    )
    messages = [consumer.receive(RECEIVE_MS) for _ in range(MESSAGES)]
    rng.shuffle(messages)
    said = []
    for moment in range(MOMENTS):
        for message in messages[moment * EACH : (moment + 1) * EACH]:
            consumer.acknowledge(message)
        said.append(_settled(broker, subscription, (moment + 1) * EACH) | {"seconds": time.time()})
    client.close()
    return said


def _settled(broker: Broker, subscription: str, acknowledged: int) -> Json:
    """What the broker says when all acknowledgements are there, and on disk, and the cursor ledger grows no more."""

    def cursor() -> Json:
        found: Json = broker.get(f"persistent/{TOPIC}/internalStats")["cursors"][subscription]
        return found

    def all_there() -> bool:
        stats = broker.get(f"persistent/{TOPIC}/stats?getPreciseBacklog=true")["subscriptions"][subscription]
        return bool(stats["msgBacklog"] == MESSAGES - acknowledged)

    def still() -> Json | None:
        before = cursor()
        time.sleep(1.2)
        after = cursor()
        keys = ("cursorLedger", "cursorLedgerLastEntry")
        is_still = [after[key] for key in keys] == [before[key] for key in keys]
        return after if is_still and after["cursorLedger"] >= 0 and are_written(broker, [TOPIC]) else None

    wait_until(all_there, "acknowledgements")
    return wait_until(still, "the cursor ledger")


def test_the_history_is_what_the_broker_said_and_comes_back(tmp_path: Path) -> None:
    seed = time.time_ns() % 1_000_000
    print(f"\nseed {seed}")
    rng = random.Random(seed)
    with Broker(find_distribution(), tmp_path / "pulsar", SETTINGS | BROKER_METADATA) as broker:
        configuration = tmp_path / "pulsar" / "standalone.conf"
        said = {}
        for subscription, as_bitmaps in FORMS.items():
            setting = {"managedLedgerPersistIndividualAckAsLongArray": as_bitmaps}
            configuration.write_text(override(configuration.read_text(), setting))
            broker.start()
            if not said:
                client = open_client(broker.service_url)
                send(client, Sending(TOPIC, "producer", MESSAGES), seed)
                client.close()
            said[subscription] = _acknowledge(broker, subscription, rng)
            broker.kill()
        store = tmp_path / "store"
        run_toolkit(store, "store", "import", "standalone", broker.data)
        for subscription, moments in said.items():
            _compare_history(store, subscription, moments)
            chosen = moments[1]
            state = f"{chosen['cursorLedger']}:{chosen['cursorLedgerLastEntry']}"
            run_toolkit(store, "topics", "reset-cursor", TOPIC, "-s", subscription, "--as-of", state)
        run_toolkit(store, "store", "export", "standalone", broker.data, "--in-place", "--yes")
        _compare_encodings(store, said)
        broker.start()
        for subscription, moments in said.items():
            _compare_broker(broker, subscription, moments[1])
        broker.stop()


def _compare_history(store: Path, subscription: str, moments: list[Json]) -> None:
    rows = run_toolkit(store, "topics", "subscription-history", TOPIC, "-s", subscription, "-o", "json")
    found = {row["state"]: row for row in rows}
    for moment in moments:
        row = found[f"{moment['cursorLedger']}:{moment['cursorLedgerLastEntry']}"]
        assert {key: row[key] for key in SPOKEN} == {key: moment[key] for key in SPOKEN}
        assert row["notBeforeTime"] <= moment["seconds"] * 1000


def _compare_encodings(store: Path, said: dict[str, list[Json]]) -> None:
    """Each broker wrote what it was set to write."""
    with open_store(store) as opened, open_reader(opened) as reader:
        for subscription, moments in said.items():
            entry = reader.read(moments[-1]["cursorLedger"], moments[-1]["cursorLedgerLastEntry"])
            info = PositionInfo.FromString(bytes(entry.payload))
            assert bool(len(info.individualDeletedMessageRanges)) == (subscription == "bitmaps")
            assert bool(len(info.individualDeletedMessages)) == (subscription == "ranges")


def _compare_broker(broker: Broker, subscription: str, moment: Json) -> None:
    """The broker stands there and gives what was not acknowledged then, nothing else."""
    cursor = broker.get(f"persistent/{TOPIC}/internalStats")["cursors"][subscription]
    assert {key: cursor[key] for key in SPOKEN} == {key: moment[key] for key in SPOKEN}
    client = open_client(broker.service_url)
    consumer = client.subscribe(f"persistent://{TOPIC}", subscription, pulsar.ConsumerType.Shared)
    given = set()
    for _ in range(MESSAGES - 2 * EACH):
        place = consumer.receive(RECEIVE_MS).message_id()
        given.add((place.ledger_id(), place.entry_id()))
    with pytest.raises(pulsar.Timeout):
        consumer.receive(1000)
    client.close()
    assert len(given) == MESSAGES - 2 * EACH
    assert not given & moment_acknowledged(moment)


def moment_acknowledged(moment: Json) -> set[tuple[int, int]]:
    """The entries in the broker's text of ranges, ``[(10:2..10:4],…]``; none of them crosses a ledger here."""
    found = set()
    for part in moment["individuallyDeletedMessages"].strip("[]").split("],("):
        lower, _, upper = part.strip("()[]").partition("..")
        if upper:
            (ledger, first), (other, last) = lower.split(":"), upper.split(":")
            if ledger == other:
                found |= {(int(ledger), entry) for entry in range(int(first) + 1, int(last) + 1)}
    return found
