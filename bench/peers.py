"""A real Pulsar's topic of entries of 1 KB, for measuring Pulsar's and BookKeeper's own tools on it.

``PeerWorld`` makes the topic (a minute and 1.3 GB a million entries; reused when it is there) and knows the commands. While its
broker runs, ``pulsar-admin`` can be asked; once that is stopped, the bookie's files are there for ``bookkeeper shell``.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct, field

from tests.live.broker import BASE_SETTINGS, BROKER_METADATA, Broker, BrokerError
from tests.live.distribution import find_distribution

TOPIC = "public/default/measured"
PAYLOAD_BYTES = 1024
RATE = 60_000  # entries a second that are produced
_MORE_THAN_ASKED = 5000  # pulsar-perf sends what is under way when it has counted to the limit


class Command(Struct, frozen=True):
    """A tool of Pulsar's: what to type, and the environment for it."""

    words: list[str]
    environment: dict[str, str] = field(repr=False)


class PeerWorld:
    """A standalone Pulsar in FOLDER whose topic has about ENTRIES entries in one ledger."""

    def __init__(self, folder: Path, entries: int) -> None:
        self.wanted = entries
        self.entries = 0
        settings = {
            **BASE_SETTINGS,
            **BROKER_METADATA,
            "managedLedgerMaxEntriesPerLedger": str(2 * entries + _MORE_THAN_ASKED),
            "managedLedgerMaxSizePerLedgerMbytes": str(max(8 * entries * PAYLOAD_BYTES >> 20, 1)),
            "backlogQuotaDefaultLimitGB": "100",
        }
        self.broker = Broker(find_distribution(), folder.absolute(), settings, heap="2g")

    # -- while the broker runs ----------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Start the broker, fill the topic, and stop the broker at the end."""
        try:
            self.broker.start()
            self._fill()
            yield
            self.broker.stop()
        finally:
            self.broker.kill()

    def _fill(self) -> None:
        broker = self.broker
        try:
            broker.get(f"persistent/{TOPIC}/stats")
        except BrokerError:
            broker.put(f"persistent/{TOPIC}")
            broker.subscribe(TOPIC, "s")
            command = [str(broker.distribution / "bin" / "pulsar-perf"), "produce", "-u", broker.service_url]
            command += [
                "-m",
                str(self.wanted),
                "-s",
                str(PAYLOAD_BYTES),
                "-db",
                "-r",
                str(RATE),
                "-n",
                "1",
                "-o",
                "2000",
            ]
            limit = 120 + 4 * self.wanted / RATE
            subprocess.run([*command, TOPIC], env=broker.environment(), check=True, capture_output=True, timeout=limit)
        stats = broker.get(f"persistent/{TOPIC}/internalStats")
        self.entries = stats["numberOfEntries"]
        assert 0 <= self.entries - self.wanted < _MORE_THAN_ASKED, f"{broker.folder} holds another topic: {stats}"

    def middle_ms(self) -> int:
        """Return the publish time of the entry in the middle: the broker answers the first entry at or after a time."""
        stats = self.broker.get(f"persistent/{TOPIC}/internalStats")
        wanted = (stats["ledgers"][0]["ledgerId"], self.wanted // 2)
        low, high = 0, int(time.time() * 1000)
        while low < high:
            middle = (low + high) // 2
            found = self.broker.get(f"persistent/{TOPIC}/messageid/{middle}")
            if (found["ledgerId"], found["entryId"]) >= wanted:
                high = middle
            else:
                low = middle + 1
        return low

    def http_seconds(self, time_ms: int) -> float:
        """Return how long the broker takes for its answer over HTTP."""
        begin = time.monotonic()
        self.broker.get(f"persistent/{TOPIC}/messageid/{time_ms}")
        return time.monotonic() - begin

    def admin(self, *words: str) -> Command:
        """Return the command line of ``pulsar-admin`` with ``words``."""
        program = str(self.broker.distribution / "bin" / "pulsar-admin")
        address = ["--admin-url", self.broker.web_url] if words != ("--help",) else []
        return Command([program, *address, *words], self.broker.environment())

    # -- once it is stopped -------------------------------------------------------------------------------------------

    @property
    def logs(self) -> list[Path]:
        """The entry logs of the bookie that hold anything."""
        current = self.broker.data / "bookkeeper" / "current"
        return sorted(
            (path for path in current.glob("*.log") if path.stat().st_size), key=lambda path: int(path.stem, 16)
        )

    def shell(self, *words: str, bookie: Path | None = None) -> Command:
        """Return the command line of ``bookkeeper shell`` with ``words``, on the bookie or on the copy ``bookie``."""
        program = str(self.broker.distribution / "bin" / "bookkeeper")
        return Command([program, "shell", *words], self._environment(bookie or self.broker.data / "bookkeeper"))

    def _environment(self, bookie: Path) -> dict[str, str]:
        """The environment in which the shell works on one bookie folder; its configuration lies beside the data."""
        configuration = self.broker.folder / "bookkeeper.conf"
        keys = ("journalDirectory=", "ledgerDirectories=")
        original = (self.broker.distribution / "conf" / "bookkeeper.conf").read_text().splitlines()
        lines = [line for line in original if not line.startswith(keys)] + [f"{key}{bookie}" for key in keys]
        configuration.write_text("\n".join(lines) + "\n")
        return {**self.broker.environment(), "BOOKIE_CONF": str(configuration)}

    @contextlib.contextmanager
    def scratch_bookie(self) -> Iterator[Path]:
        """Give a bookie folder whose index may be rebuilt: logs hard-linked, the rest copied; it must be, at the end."""
        scratch = self.broker.folder / "rebuild"
        shutil.rmtree(scratch, ignore_errors=True)
        _copy(self.broker.data / "bookkeeper", scratch)
        yield scratch
        assert list((scratch / "current").glob("locations.BACKUP*")), "the index was not rebuilt"
        shutil.rmtree(scratch)

    @contextlib.contextmanager
    def without_journal(self) -> Iterator[Path]:
        """Give a data folder with the same metadata and entry logs, and no journal."""
        scratch = self.broker.folder / "without-journal"
        shutil.rmtree(scratch, ignore_errors=True)
        _copy(self.broker.data, scratch)
        for journal in scratch.rglob("bookkeeper/current/*.txn"):
            journal.unlink()
        yield scratch
        shutil.rmtree(scratch)


def _copy(folder: Path, target: Path) -> None:
    """Copy ``folder``; a bookie's entry logs and journals, which nobody overwrites, are hard links."""

    def copy(source: str, copied: str) -> None:
        is_large = Path(source).parent.name == "current" and source.endswith((".log", ".txn"))
        (os.link if is_large else shutil.copy2)(source, copied)

    shutil.copytree(folder, target, copy_function=copy)
