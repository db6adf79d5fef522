"""Imports of the disk of a real bookie that writes, rolls and deletes journals of 4 MB: they end, and lose nothing acknowledged."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path

import pytest

from tests.conftest import Cli
from tests.live.broker import BASE_SETTINGS, Broker, wait_until
from tests.live.distribution import find_distribution
from tests.live.producing import open_client
from tests.test_running_bookie import held

pytestmark = pytest.mark.live
SETTINGS = {
    **BASE_SETTINGS,
    "journalMaxSizeMB": "4",
    "journalMaxBackups": "0",
    "journalPreAllocSizeMB": "1",
    "flushInterval": "500",
    "logSizeLimit": str(8 << 20),
    "managedLedgerMaxEntriesPerLedger": "500",
}
TOPIC = "persistent://public/default/running"
PAYLOAD_BYTES = 20_000


class Writing:
    """What a producer got confirmed: (ledger, entry) in order."""

    def __init__(self) -> None:
        self.confirmed: list[tuple[int, int]] = []
        self.ends = threading.Event()

    def run(self, service_url: str) -> None:
        client = open_client(service_url)
        producer = client.create_producer(TOPIC, batching_enabled=False)

        while not self.ends.is_set():
            position = producer.send(bytes(PAYLOAD_BYTES))
            self.confirmed.append((position.ledger_id(), position.entry_id()))
        client.close()


@contextmanager
def writing(service_url: str) -> Iterator[Writing]:
    found = Writing()
    thread = threading.Thread(target=found.run, args=(service_url,))
    thread.start()
    try:
        yield found
    finally:
        found.ends.set()
        thread.join()


def test_ten_imports_beside_a_real_bookie(tmp_path: Path, cli: Cli) -> None:
    with Broker(find_distribution(), tmp_path / "pulsar", SETTINGS) as broker:
        broker.start()
        with writing(broker.service_url) as writer:
            journals = broker.data / "bookkeeper" / "current"
            first = {path.name for path in journals.glob("*.txn")}
            wait_until(lambda: first.isdisjoint(path.name for path in journals.glob("*.txn")), "journals roll")
            for number, how in zip(range(10), cycle([["--copy"], ["--link"], []]), strict=False):
                store, before = tmp_path / f"store-{number}", [*writer.confirmed]
                done = cli.done("--store", store, "store", "import", "standalone", broker.data, *how, "-o", "json")
                assert (done.json["problems"], done.json["doubts"], done.json["undecodableValues"]) == (0, [], 0)
                assert {*before} <= held(store, reads=bool(how))
        broker.stop()
        assert cli("--store", tmp_path / "store-2", "store", "refresh").exit_code == 0
        assert {*writer.confirmed} <= held(tmp_path / "store-2", reads=True)
