"""A real Pulsar 5.0.1 on the export of a store of its scalable topics, after the doctor's commands and all that is refused: it serves
every message."""

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.live.broker import BASE_SETTINGS, Broker, free_port
from tests.live.conftest import run_toolkit
from tests.live.distribution import NEXT, find_distribution, find_java
from tests.live.recording_changes import READ, left, moved, read, start_on_export
from tests.live.recording_scalable import Client
from tests.worlds import copy_tree, oracle, world

pytestmark = pytest.mark.live
WORLD = "scalable"
LEDGERS = (3, 4, 26, 27, 28, 31, 32, 33, 34, 35)
_READER = Path(__file__).with_name("ScalableReader.java")


def refused(store: Path, *words: object) -> None:
    run = [sys.executable, "-m", "pulsar_admin", "--store", store, *words, "--yes"]
    finished = subprocess.run(list(map(str, run)), capture_output=True, text=True)
    assert finished.returncode == 3, finished.stdout + finished.stderr


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(find_distribution(NEXT), tmp_path / "pulsar", BASE_SETTINGS) as broker:
        broker.bookie_port = free_port()
        yield broker


def test_all_messages_are_served_after_every_command(tmp_path: Path, broker: Broker) -> None:
    source, store = tmp_path / "source", tmp_path / "store"
    copy_tree(world(WORLD) / "clean", source)
    run_toolkit(store, "store", "import", "standalone", source)
    for row in run_toolkit(store, "doctor"):
        if row["mend"].startswith("pulsar-admin "):
            subprocess.run(
                [sys.executable, "-m", "pulsar_admin", "--store", store, *shlex.split(row["mend"])[1:]], check=True
            )
    for ledger in LEDGERS:
        refused(store, "ledgers", "delete", ledger, "--force")
        refused(store, "ledgers", "forget", ledger, "--force")
    refused(store, "namespaces", "delete", "acme/n", "--force")
    run_toolkit(store, "topics", "reset-cursor", "acme/n/a", "-s", "s2", "-m", "earliest")
    for words in (
        ("topics", "create-subscription", "topic://acme/n/scal", "-s", "all", "-m", "earliest"),
        ("scalable-topics", "create", "acme/n/new", "-s", "3"),
        ("store", "recover", "--level", "A", "--dry-run"),
    ):
        run_toolkit(store, *words)
    run_toolkit(store, "store", "export", "standalone", broker.data)
    moved(broker.data)
    broker.start()
    java, jars = find_java() / "bin" / "java", broker.distribution / "lib" / "*"
    for topic, subscriptions in oracle(WORLD)["read"].items():
        for subscription, expected in {**subscriptions, "all": 300}.items():
            run: list[object] = [
                java,
                "-Xmx400m",
                "-cp",
                jars,
                _READER,
                broker.service_url,
                f"topic://{topic}",
                subscription,
            ]
            said = subprocess.run(list(map(str, run)), capture_output=True, text=True, check=True).stdout
            assert f"messages {expected}\n" in said
    layout = broker.get("scalable/acme/n/new")
    assert [row["hashRange"]["end"] for row in layout["segments"].values()] == [21844, 43689, 65535]
    assert broker.get("persistent/acme/n/a/stats")["subscriptions"]["s2"]["msgBacklog"] == 120


if os.environ.get("ALL"):

    def test_v5_consumers_get_what_the_toolkit_says_is_left(tmp_path: Path) -> None:
        """Of the project's own world; ``tests/golden/changes-5.0.1.json`` has one such run, and ``make test`` compares with that."""
        store, broker = start_on_export(tmp_path)
        client = Client(broker, 600)
        with client.process:
            try:
                for topic, subscription in READ:
                    expected = left(store, topic, subscription)
                    assert sorted(read(client, topic, subscription, len(expected))) == sorted(expected)
            finally:
                client.end()
                broker.kill()
