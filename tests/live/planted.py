"""Faults in a real cluster: a broker starts on each, fails as the rule's sentence says, and serves once the printed command was typed.

Every rule has a topic of its own in one cluster, so that all of them share three starts of a broker: on what is filled, on what is
planted, on what is cured. What the second one does to the planted files is taken back, so that the cure meets them as they were.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pulsar  # type: ignore[import-untyped,import-not-found,unused-ignore]
from kazoo.client import KazooClient

from pulsar_admin.config import environment_variables
from pulsar_admin.store.names import TopicName, parse_topic
from tests.live.broker import BrokerError, wait_until
from tests.live.cluster import Cluster
from tests.live.conftest import run_toolkit
from tests.live.producing import SILENCE_MS
from tests.worlds import copy_tree

SUBSCRIPTION = "s"
KEYS = 7
OPERATION_SECONDS = 8
"""How long a client tries what a broker cannot do."""
Json = Any  # a JSON value


class Fault:
    """A rule, and a topic on which it is planted. ``by_hand``: what the rule's words advise where no command of its own cures."""

    code = ""
    namespace = "public/default"
    kind = ""
    """Which of several faults of one rule."""
    by_hand: tuple[str, ...] = ()
    asks = False
    """Whether the rule's command asks before it does what cannot be undone."""
    then: tuple[str, ...] = ()
    """What the rule's words say to type behind its command."""
    brings: tuple[str, ...] = ()
    """Codes of what else is told of it."""

    def __init__(self) -> None:
        self.topic = f"{self.namespace}/{self.name}"

    @property
    def name(self) -> str:
        return "-".join(filter(None, (self.code, self.kind)))

    @property
    def topic_name(self) -> TopicName:
        return parse_topic(self.topic)

    @property
    def cursor_path(self) -> str:
        return self.topic_name.cursor_path(SUBSCRIPTION)

    def is_of(self, row: Json) -> bool:
        """Whether a finding is the rule's, and of no other topic."""
        return row["code"] == self.code and (
            "persistent://" not in row["where"] or re.search(rf"{self.topic}(?![\w-])", row["where"]) is not None
        )

    def fill(self, broker: Cluster, client: pulsar.Client) -> None:
        """Make what the rule looks at, in a cluster without a fault."""
        raise NotImplementedError

    def plant(self, keeper: KazooClient) -> None:
        """Break it, while the bookies and ZooKeeper alone run."""

    def plant_files(self, cluster: Cluster) -> None:
        """Break it, while nothing runs."""

    def fails(self, broker: Cluster, client: pulsar.Client) -> None:
        """Fail unless the broker does what the rule's sentence says."""
        raise NotImplementedError

    def serves(self, broker: Cluster, client: pulsar.Client) -> None:
        """Fail unless it does what clients expect."""
        raise NotImplementedError


class Planted:
    """A cluster with the faults of rules, in the states of its files that the module's words name."""

    def __init__(self, cluster: Cluster, faults: Sequence[Fault]) -> None:
        self.cluster = cluster
        self.faults = faults
        self.store = cluster.folder.with_name("store")
        self._planted = cluster.folder.with_name("planted")
        self.seconds: dict[str, dict[str, float]] = {fault.name: {} for fault in faults}

    def plant(self) -> None:
        """Fill a cluster, end its broker in order, and break what is filled."""
        self.cluster.start()
        assert self._ask("fill", lambda fault: fault.fill) == []
        self.cluster.stop_broker()
        with self.cluster.zookeeper() as keeper:
            for fault in self.faults:
                fault.plant(keeper)
        self.cluster.stop()
        for fault in self.faults:
            fault.plant_files(self.cluster)
        copy_tree(self.cluster.folder, self._planted)

    def ask_before(self) -> list[str]:
        """Start a broker on the faults, and say where it does not fail as it should; then the files are as they were."""
        self._start()
        wrong = self._ask("before", lambda fault: fault.fails)
        self.cluster.kill()
        shutil.rmtree(self.cluster.folder)
        copy_tree(self._planted, self.cluster.folder)
        return wrong

    def cure(self) -> tuple[Counter[str], Counter[str]]:
        """Import, type what is printed for every fault, and export; the codes that the doctor told beyond notes before, and after."""
        self.cluster.start_zookeeper()
        self._wait_for_sessions()
        confs = [word for bookie in self.cluster.bookies for word in ("--bookie-conf", bookie.configuration)]
        imported = _run(self.store, "store", "import", "cluster", "--zookeeper", self.cluster.zookeeper_address, *confs)
        assert imported.returncode in (0, 1), imported.stderr  # 1: the metadata is not the bookies'
        found = self._doctor()
        before = self._told(found)
        for fault in self.faults:
            (row,) = [row for row in found if fault.is_of(row)]
            for command in fault.by_hand or (row["mend"],):
                run_printed(self.store, command, *(("--yes",) if fault.asks else ()))
            for command in fault.then:
                run_printed(self.store, command)
        after = self._told(self._doctor())
        run_toolkit(self.store, "store", "export", "bookie", *confs)
        run_toolkit(self.store, "store", "export", "zookeeper", self.cluster.zookeeper_address, "--yes")
        return before, after

    def ask_after(self) -> list[str]:
        """Start a broker on what is cured, and say where it does not serve."""
        self.cluster.start_bookies()
        self.cluster.start_broker()
        return self._ask("after", lambda fault: fault.serves)

    def _wait_for_sessions(self) -> None:
        """Older files of ZooKeeper have sessions that end by themselves."""
        with self.cluster.zookeeper() as keeper:
            places = ("/loadbalance/brokers", "/namespace/public/default", "/ledgers/available")
            wait_until(
                lambda: all(
                    set(keeper.get_children(place)) <= {"readonly"} for place in places if keeper.exists(place)
                ),
                "sessions to end",
            )

    def _start(self) -> None:
        self.cluster.start_zookeeper()
        self.cluster.start_bookies()
        self.cluster.start_broker()

    def _ask(self, moment: str, what: Callable[[Fault], Callable[[Cluster, pulsar.Client], None]]) -> list[str]:
        wrong = []
        for fault in self.faults:
            begin = time.monotonic()
            with short_client(self.cluster) as client:
                try:
                    what(fault)(self.cluster, client)
                except (AssertionError, BrokerError, pulsar.PulsarException) as error:
                    wrong.append(f"{fault.name}: {type(error).__name__}: {error}")
            self.seconds[fault.name][moment] = round(time.monotonic() - begin, 1)
        return wrong

    def _doctor(self) -> list[Json]:
        done = _run(self.store, "doctor", "-o", "json")
        assert done.returncode in (0, 1), done.stderr
        return list(json.loads(done.stdout))

    @staticmethod
    def _told(rows: Sequence[Json]) -> Counter[str]:
        return Counter(row["code"] for row in rows if row["severity"] != "note" or row["code"] == "marks-stale")


def run_printed(store: Path, command: str, *answer: str) -> None:
    """Run a printed command as it stands, and ANSWER where it asks."""
    program, *words = shlex.split(command)
    assert program == "pulsar-admin"
    done = _run(store, *words, *answer)
    assert done.returncode == 0, (command, done.stderr)


def _run(store: Path, *words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pulsar_admin", "--store", str(store), *map(str, words)]
    environment = {key: value for key, value in os.environ.items() if key not in environment_variables()}
    return subprocess.run(command, capture_output=True, text=True, env=environment, stdin=subprocess.DEVNULL)


@contextmanager
def short_client(broker: Cluster) -> Iterator[pulsar.Client]:
    """A client that soon gives up."""
    client = pulsar.Client(
        broker.service_url,
        operation_timeout_seconds=OPERATION_SECONDS,
        logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
    )
    try:
        yield client
    finally:
        with suppress(pulsar.PulsarException):
            client.close()


def run_perf(broker: Cluster, *words: object) -> None:
    """Run ``pulsar-perf``."""
    command = [str(broker.distribution / "bin" / "pulsar-perf"), *map(str, words)]
    done = subprocess.run(command, cwd=broker.folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout


def send(client: pulsar.Client, topic: str, count: int, **options: Any) -> list[pulsar.MessageId]:
    """Send the texts of the numbers below COUNT to TOPIC, each an entry; OPTIONS of a producer."""
    producer = client.create_producer(f"persistent://{topic}", batching_enabled=False, **options)
    found = [producer.send(b"%d" % number, partition_key=key_of(number)) for number in range(count)]
    producer.close()
    return found


def key_of(number: int) -> str:
    return f"key-{number % KEYS}"


def texts(count: int) -> list[bytes]:
    """What ``send`` sends."""
    return [b"%d" % number for number in range(count)]


def receive(client: pulsar.Client, topic: str, *, acknowledge: bool = False) -> list[bytes]:
    """What a consumer of SUBSCRIPTION gets until it gets nothing for some seconds."""
    consumer = client.subscribe(f"persistent://{topic}", SUBSCRIPTION, initial_position=pulsar.InitialPosition.Earliest)
    found = []
    with suppress(pulsar.Timeout):
        while True:
            message = consumer.receive(SILENCE_MS)
            found.append(message.data())
            if acknowledge:
                consumer.acknowledge(message)
    consumer.close()
    return found
