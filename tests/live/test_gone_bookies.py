"""A real broker on ledgers that name a bookie which is gone: it loads their topics once the metadata names the bookie that is there."""

from pathlib import Path

import pulsar  # type: ignore[import-untyped,import-not-found,unused-ignore]
import pytest

from pulsar_admin.store.codec.ledgermetadata import decode_ledger_metadata, encode_ledger_metadata, ledger_path
from pulsar_admin.store.codec.rocksvalue import decode_value, encode_value
from pulsar_admin.store.sources.rocksdb import open_for_reading
from tests.live.broker import Broker
from tests.live.conftest import run_toolkit
from tests.live.distribution import find_distribution
from tests.live.planted import run_printed
from tests.live.producing import open_client, read_rows
from tests.moved_bookies import renamed
from tests.stores import apply_values

pytestmark = pytest.mark.live

TOPIC, EMPTY = "public/default/moved", "public/default/empty"
OLD = "10.9.8.7:3181"
PER_LEDGER = 20
SETTINGS = {"managedLedgerMaxEntriesPerLedger": str(PER_LEDGER), "acknowledgmentAtBatchIndexLevelEnabled": "true"}


def _rename(metadata: Path, ledgers: list[int], bookie: str) -> None:
    """Let LEDGERS name OLD in the place of BOOKIE, in the broker's RocksDB."""
    paths = {ledger_path(ledger_id).encode() for ledger_id in ledgers}
    changes: dict[bytes, bytes | None] = {}
    with open_for_reading(metadata) as pairs:
        for key, raw in pairs:
            if key in paths:
                stat, value = decode_value(raw, key.decode())
                ledger = renamed({bookie: OLD})(0, decode_ledger_metadata(value, key.decode()))
                changes[key] = encode_value(stat, encode_ledger_metadata(ledger, value))
    assert len(changes) == len(paths)
    apply_values(metadata, changes)


def _fails_to_read(broker: Broker) -> bool:
    client = pulsar.Client(broker.service_url, operation_timeout_seconds=30)
    try:
        reader = client.create_reader(TOPIC, pulsar.MessageId.earliest)
        return not reader.has_message_available()
    except pulsar.PulsarException:
        return True
    finally:
        client.close()


def test_a_broker_reads_what_the_metadata_names_again(tmp_path: Path) -> None:
    with Broker(find_distribution(), tmp_path / "pulsar", SETTINGS, heap="600m") as broker:
        store = tmp_path / "store"
        broker.start()
        client = open_client(broker.service_url)
        producer = client.create_producer(TOPIC, batching_enabled=False)
        for number in range(3 * PER_LEDGER - 5):
            producer.send(f"m{number}".encode())
        client.create_producer(EMPTY)
        expected = read_rows(client, TOPIC)
        client.close()
        broker.kill()
        sound = tmp_path / "sound"
        run_toolkit(sound, "store", "import", "standalone", broker.data)
        ids = {
            topic: [one["ledgerId"] for one in run_toolkit(sound, "topics", "info-internal", topic)["ledgers"]]
            for topic in (TOPIC, EMPTY)
        }
        (bookie,) = {
            member
            for one in ids[TOPIC]
            for some in run_toolkit(sound, "ledgers", "info", one)["metadata"]["ensembles"].values()
            for member in some
        }
        _rename(broker.data / "metadata", [*ids[TOPIC], *ids[EMPTY]], bookie)
        broker.start()
        assert _fails_to_read(broker)
        broker.stop()
        run_toolkit(store, "store", "import", "standalone", broker.data)
        found = {row["code"]: row for row in run_toolkit(store, "doctor", "--severity", "critical", code=1)}
        assert {"ensemble-elsewhere", "ledger-on-gone-bookies"} == found.keys()
        for code in ("ensemble-elsewhere", "ledger-on-gone-bookies"):
            run_printed(store, found[code]["mend"])
        assert run_toolkit(store, "doctor", "--severity", "critical") == []
        run_toolkit(store, "store", "export", "standalone", broker.data, "--in-place", "--yes")
        broker.start()
        client = open_client(broker.service_url)
        assert read_rows(client, TOPIC) == expected
        producer = client.create_producer(TOPIC, batching_enabled=False)
        producer.send(b"more")
        client.create_producer(EMPTY).send(b"first")
        assert len(read_rows(client, TOPIC)) == len(expected) + 1
        client.close()
