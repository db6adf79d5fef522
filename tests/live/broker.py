"""One standalone Pulsar: started, asked over HTTP, stopped or killed; its data folder keeps its path."""

import http.client
import json
import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self, TypeVar
from urllib.parse import quote

from tests.live.distribution import environment_of

T = TypeVar("T")

START_LIMIT_SECONDS = 480  # twelve alone; minutes on a machine that is busy with other work
_STOP_LIMIT_SECONDS = 240
_LIMIT_SECONDS = 240  # only what never comes takes it
_POLL_SECONDS = 0.1
_RENEWALS_OF_A_GOOD_START = 20  # at most 1 was seen; without end it is about 200 a second

BROKER_METADATA = {
    "brokerEntryMetadataInterceptors": "org.apache.pulsar.common.intercept.AppendBrokerTimestampMetadataInterceptor,"
    "org.apache.pulsar.common.intercept.AppendIndexMetadataInterceptor"
}
# Small entry logs, no clean-up by age, and no refusal on a disk that is nearly full. Nothing is compacted, trimmed or expired behind a
# test's back, and what is acknowledged is on disk a second later.
BASE_SETTINGS = {
    "brokerServiceCompactionMonitorIntervalInSeconds": "86400",
    "retentionCheckIntervalInSeconds": "86400",
    "messageExpiryCheckIntervalInMinutes": "1440",
    "managedLedgerCursorPositionFlushSeconds": "1",
    "defaultRetentionTimeInMinutes": "-1",
    "defaultRetentionSizeInMB": "-1",
    "brokerDeleteInactiveTopicsEnabled": "false",
    "managedLedgerMinLedgerRolloverTimeMinutes": "0",
    "backlogQuotaCheckEnabled": "false",
    "diskUsageThreshold": "0.999",
    "diskUsageWarnThreshold": "0.99",
    "minUsableSizeForIndexFileCreation": "1",
    "gcWaitTime": "3600000",
    "zookeeperSessionExpiredPolicy": "shutdown",
    "skipBrokerShutdownOnOOM": "true",
    "allowLoopback": "true",
}


class BrokerError(Exception):
    """The broker did not start, did not stop, or refused a request: ``status`` is its HTTP status, or 0."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


_PORTS = 10_000
"""A process's own ports to listen on: below those that systems give to connections, which may take one that nobody listens on yet."""


def _ports() -> Iterator[int]:
    first = _PORTS * (1 + int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 2)
    start = random.randrange(_PORTS)
    yield from (first + (start + turn) % _PORTS for turn in range(_PORTS))


_left = _ports()


def free_port() -> int:
    """A TCP port nobody listens on now, which was not given before."""
    for port in _left:
        with socket.socket() as listener, suppress(OSError):
            listener.bind(("127.0.0.1", port))
            return port
    raise BrokerError("every port is taken")


def wait_until(ask: Callable[[], T | None], what: str, limit_seconds: float = _LIMIT_SECONDS) -> T:
    """The first answer of ``ask`` that is neither None nor False; BrokerError when there is none in time."""
    end = time.monotonic() + limit_seconds
    while time.monotonic() < end:
        answer = ask()
        if answer is not None and answer is not False:
            return answer
        time.sleep(_POLL_SECONDS)
    raise BrokerError(f"{what}: not within {limit_seconds} s")


class Daemon:
    """A program of the distribution, its log beside its data: one file a run."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.log = folder / f"{name}-0.log"
        self.process: subprocess.Popen[bytes] | None = None
        self._folder = folder

    def launch(self, command: Sequence[object], environment: Mapping[str, str]) -> None:
        """Start it; its scripts replace themselves by java, so that the process is java's."""
        assert self.process is None, f"{self.name} is already running"
        self.log = self._folder / f"{self.name}-{len(list(self._folder.glob(f'{self.name}-*.log')))}.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                list(map(str, command)),
                env=dict(environment),
                cwd=self._folder,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def check(self) -> None:
        """Raise BrokerError when it has ended."""
        if self.process.poll() is not None:
            self.process = None
            raise BrokerError(f"{self.name} ended while starting, see {self.log}")

    def end(self, number: signal.Signals) -> None:
        """Send a signal and wait for the end; nothing happens when it is not running."""
        if self.process is not None:
            self.process.send_signal(number)
            self.process.wait(_STOP_LIMIT_SECONDS)
            self.process = None


class Admin:
    """The admin interface of a running broker whose files lie in ``folder``, on ports that are chosen here and kept."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port, self.web_port = free_port(), free_port()
        self.service_url = f"pulsar://127.0.0.1:{self.port}"
        self.web_url = f"http://127.0.0.1:{self.web_port}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()  # of subclasses: what still runs ends

    def answers(self) -> bool:
        """Whether the admin interface answers, which it does when the broker is ready."""
        try:
            self.get("namespaces/public/default")
        except (BrokerError, OSError, http.client.HTTPException):
            return False
        return True

    def request(self, method: str, path: str, body: object = None) -> bytes:
        """The answer's bytes to a request below ``/admin/v2/``. Raises BrokerError for a status of 300 or more."""
        connection = http.client.HTTPConnection("127.0.0.1", self.web_port, timeout=60)
        try:
            content = None if body is None else json.dumps(body)
            connection.request(method, "/admin/v2/" + path, content, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            content_bytes = answer.read()
        finally:
            connection.close()
        if answer.status >= 300:
            text = content_bytes.decode("utf-8", "replace")
            raise BrokerError(f"{method} {path}: {answer.status} {text[:300]}", answer.status)
        return content_bytes

    def get(self, path: str) -> Any:  # JSON of the broker: its shape is the caller's knowledge
        """The decoded JSON at ``/admin/v2/<path>``; None for an empty answer."""
        return json.loads(self.request("GET", path) or b"null")

    def put(self, path: str, body: object = None) -> None:
        """Create what ``path`` names."""
        self.request("PUT", path, body)

    def post(self, path: str, body: object = None) -> None:
        """Change what ``path`` names."""
        self.request("POST", path, body)

    def subscribe(self, topic: str, subscription: str, at_end: bool = False) -> None:
        """Create a subscription of ``tenant/namespace/topic`` at its beginning or end; creates the topic too."""
        position = None if at_end else {"ledgerId": -1, "entryId": -1}
        self.put(f"persistent/{topic}/subscription/{quote(subscription, safe='')}", position)


QUICK_START = {"PULSAR_GC": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1", "PULSAR_GC_LOG": " "}
"""Half the processor time of a start."""


class Broker(Admin):
    """A standalone Pulsar whose data lies in ``folder/data`` and whose log and configuration lie in ``folder``.

    A bookie's cookie holds the path of its data, so the broker starts again only while ``folder`` stays where it is.
    """

    def __init__(self, distribution: Path, folder: Path, settings: Mapping[str, str], heap: str = "1g") -> None:
        """``settings`` overrides the distribution's ``standalone.conf``; ports are chosen here and kept."""
        super().__init__(folder)
        self.distribution = distribution
        self.data = folder / "data"
        self.bookie_port: int | None = None
        """Where its bookie listens, for a bookie whose id is not its address; None: where the distribution says."""
        self._heap = heap
        self._daemon = Daemon("pulsar", folder)
        folder.mkdir(parents=True, exist_ok=True)
        ports = {"brokerServicePort": str(self.port), "webServicePort": str(self.web_port)}
        self._configuration = folder / "standalone.conf"
        original = (distribution / "conf" / "standalone.conf").read_text()
        self._configuration.write_text(override(original, {**settings, **ports}))

    def environment(self) -> dict[str, str]:
        """The environment for the distribution's scripts: memory, and logs beside the data."""
        return {
            **os.environ,
            **environment_of(self.distribution),
            "PULSAR_MEM": f"-Xms{self._heap} -Xmx{self._heap} -XX:MaxDirectMemorySize=1500m",
            **QUICK_START,
            "PULSAR_LOG_DIR": str(self.folder / "logs"),
            "PULSAR_STANDALONE_CONF": str(self._configuration),
        }

    def start(self) -> float:
        """Start and wait until the admin interface answers; the seconds it took.

        After SIGKILL, Pulsar 4.0.8 on RocksDB sometimes takes the dead process's registration of the bookie for a rival
        and deletes and renews its own without end, so that the bookie comes and goes. A clean stop removes the
        registration; no topic was loaded by then, so nothing but system topics notices.
        """
        begin = time.monotonic()
        self._launch()
        if self._renews_registration_forever():
            self.stop()
            self._launch()
            assert not self._renews_registration_forever(), f"the bookie comes and goes, see {self._daemon.log}"
        return time.monotonic() - begin

    def processor_seconds(self) -> float:
        """Processor time that the broker has used so far, all its threads."""
        fields = Path(f"/proc/{self._daemon.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def _launch(self) -> None:
        command = [self.distribution / "bin" / "pulsar", "standalone", "-nfw", "-nss", "-a", "127.0.0.1"]
        command += ["--metadata-dir", self.data / "metadata", "--bookkeeper-dir", self.data / "bookkeeper"]
        command += [] if self.bookie_port is None else ["--bookkeeper-port", str(self.bookie_port)]
        self._daemon.launch(command, self.environment())
        wait_until(self._is_ready, f"start, see {self._daemon.log}", START_LIMIT_SECONDS)

    def _renews_registration_forever(self) -> bool:
        renewals = self._daemon.log.read_bytes().count(b"Lock on resource /ledgers/available/")
        return renewals > _RENEWALS_OF_A_GOOD_START

    def _is_ready(self) -> bool:
        self._daemon.check()
        return self.answers()

    def stop(self) -> None:
        """End it with SIGTERM, as an operator does."""
        self._daemon.end(signal.SIGTERM)

    def kill(self) -> None:
        """End it with SIGKILL, as a power cut does; nothing happens when it is not running."""
        self._daemon.end(signal.SIGKILL)


def override(configuration: str, settings: Mapping[str, str]) -> str:
    """The text of a ``.conf`` file with these settings in place of its own; unknown ones are appended."""
    lines = configuration.splitlines()
    kept = [line for line in lines if line.split("=", 1)[0].strip() not in settings]
    return "\n".join(kept + [f"{key}={value}" for key, value in settings.items()]) + "\n"
