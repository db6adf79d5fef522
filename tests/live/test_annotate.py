"""What real brokers make of PIP-345's fields 6 and 7 in a LedgerInfo, and of the properties of the same names."""

from pathlib import Path

import pytest

from tests.live.broker import BASE_SETTINGS, Broker
from tests.live.conftest import run_toolkit
from tests.live.distribution import NEWER, VERSION, find_distribution
from tests.live.producing import RECEIVE_MS, Sending, open_client, send

pytestmark = pytest.mark.live

FIELDS, PROPERTIES = "public/default/fields", "public/default/properties"
SETTINGS = BASE_SETTINGS | {"managedLedgerMaxEntriesPerLedger": "10"}


def _sources(store: Path, topic: str) -> list[tuple[int, str | None]]:
    ledgers = run_toolkit(store, "store", "cat", f"/managed-ledgers/{topic.replace('default/', 'default/persistent/')}")
    return [(ledger["ledgerId"], _where(ledger)) for ledger in ledgers["value"]["ledgers"]]


def _where(ledger: dict[str, object]) -> str | None:
    if ledger["beginPublish"] is not None:
        return "fields"
    return "properties" if ledger.get("properties") else None


@pytest.mark.parametrize("version", [VERSION, NEWER])
def test_what_brokers_keep_of_what_is_annotated(version: str, tmp_path: Path) -> None:
    """The broker starts, every message is read, and the ledger list is written again with new ledgers in it."""
    with Broker(find_distribution(version), tmp_path / "pulsar", SETTINGS) as broker:
        broker.start()
        client = open_client(broker.service_url)
        for topic in (FIELDS, PROPERTIES):
            broker.subscribe(topic, "kept")
            send(client, Sending(topic, "first", 25), 1)
        client.close()
        broker.stop()
        store = tmp_path / "store"
        run_toolkit(store, "store", "import", "standalone", broker.data)
        run_toolkit(store, "store", "annotate", FIELDS, "--form", "fields")
        run_toolkit(store, "store", "annotate", PROPERTIES)
        run_toolkit(store, "store", "export", "standalone", broker.data, "--in-place", "--yes")
        before = {topic: _sources(store, topic) for topic in (FIELDS, PROPERTIES)}
        broker.start()
        client = open_client(broker.service_url)
        for topic in (FIELDS, PROPERTIES):
            send(client, Sending(topic, "second", 25), 2)
            consumer = client.subscribe(topic, "kept")
            assert len([consumer.receive(RECEIVE_MS) for _ in range(50)]) == 50
            consumer.close()
        client.close()
        broker.stop()
        again = tmp_path / "again"
        run_toolkit(again, "store", "import", "standalone", broker.data)
        after = {topic: _sources(again, topic) for topic in (FIELDS, PROPERTIES)}
        for topic, wanted in ((FIELDS, "fields"), (PROPERTIES, "properties")):
            stated = [ledger_id for ledger_id, where in before[topic] if where == wanted]
            assert len(stated) >= 2
            assert len(after[topic]) > len(before[topic])
            kept = [ledger_id for ledger_id, where in after[topic] if where == wanted]
            # 4.2 reads a ledger list by LightProto, which drops what it does not know when it copies.
            assert kept == ([] if topic == FIELDS and version == NEWER else stated)
