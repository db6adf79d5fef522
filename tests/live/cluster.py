"""A cluster as operators run it, in processes of its own on loopback: ZooKeeper, three bookies with several disks each, a broker."""

import os
import signal
import socket
import subprocess
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from kazoo.client import KazooClient
from msgspec import Struct

from tests.live.broker import BASE_SETTINGS, START_LIMIT_SECONDS, Admin, Daemon, free_port, override, wait_until
from tests.live.distribution import find_distribution

BOOKIES = 3
_JAVA = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
_NETTY = "-Dio.netty.leakDetectionLevel=disabled -Dio.netty.recycler.maxCapacityPerThread=4096"
_LOGGING = "-Dpulsar.log.root.level=info -Dpulsar.log.level=info"

ZOOKEEPER_SETTINGS = {
    "admin.enableServer": "false",
    "forceSync": "no",
    "metricsProvider.className": "org.apache.zookeeper.metrics.impl.DefaultMetricsProvider",
}
# Small logs and caches; nothing repairs, collects or moves anything behind the test's back.
BOOKIE_SETTINGS = {
    "advertisedAddress": "127.0.0.1",
    "allowLoopback": "true",
    "autoRecoveryDaemonEnabled": "false",
    "dbStorage_readAheadCacheMaxSizeMb": "8",
    "dbStorage_rocksDB_blockCacheSize": "4194304",
    "dbStorage_rocksDB_writeBufferSizeMB": "4",
    "dbStorage_writeCacheMaxSizeMb": "8",
    "diskUsageThreshold": "0.999",
    "diskUsageWarnThreshold": "0.99",
    "flushInterval": "1000",
    "gcWaitTime": "3600000",
    "journalPreAllocSizeMB": "1",
    "journalSyncData": "false",
    "logSizeLimit": str(1 << 16),
    "minUsableSizeForIndexFileCreation": "1",
    "numHighPriorityWorkerThreads": "2",
    "numReadWorkerThreads": "2",
    "statsProviderClass": "org.apache.bookkeeper.stats.NullStatsProvider",
}
BROKER_SETTINGS = {
    **BASE_SETTINGS,
    "advertisedAddress": "127.0.0.1",
    "clusterName": "standalone",
    "loadBalancerEnabled": "false",
    "managedLedgerDefaultAckQuorum": "2",
    "managedLedgerDefaultEnsembleSize": "3",
    "managedLedgerDefaultWriteQuorum": "2",
}


class Disks(Struct, frozen=True):
    """The directories of one bookie below its folder, each of which holds ``current``."""

    journals: tuple[str, ...]
    ledgers: tuple[str, ...]
    indexes: tuple[str, ...] = ()
    bookie_id: str = ""  # advertised address and port without one


# As they are mounted in practice: one disk for all, disks with names of their own, an index on a disk apart.
DISKS = (
    Disks(("journal",), ("ledgers0", "ledgers1")),
    Disks(("ssd0/wal", "ssd1/wal"), ("hdd0/bk", "hdd1/bk"), bookie_id="bookie-b.example"),
    Disks(("fast/journal",), ("slow/a", "slow/b"), ("fast/index-a", "fast/index-b")),
)


class Bookie:
    """One bookie: its configuration, its directories, its process."""

    def __init__(self, distribution: Path, folder: Path, disks: Disks, settings: Mapping[str, str]) -> None:
        """``settings`` overrides the distribution's ``bookkeeper.conf``; the cookie keeps the directories where they are."""
        self.folder = folder
        self.port = free_port()
        self.bookie_id = disks.bookie_id or f"127.0.0.1:{self.port}"
        self.journals = [folder / name for name in disks.journals]
        self.ledgers = [folder / name for name in disks.ledgers]
        self.indexes = [folder / name for name in disks.indexes]
        for directory in (*self.journals, *self.ledgers, *self.indexes):
            directory.mkdir(parents=True)
        self.configuration = folder / "bookkeeper.conf"
        self.daemon = Daemon("bookie", folder)
        own = {
            "bookiePort": str(self.port),
            "journalDirectories": ",".join(map(str, self.journals)),
            "ledgerDirectories": ",".join(map(str, self.ledgers)),
        }
        if self.indexes:
            own["indexDirectories"] = ",".join(map(str, self.indexes))
        if disks.bookie_id:
            own["bookieId"] = disks.bookie_id
        original = (distribution / "conf" / "bookkeeper.conf").read_text().replace("journalDirectory=", "#")
        self.configuration.write_text(override(original, {**BOOKIE_SETTINGS, **settings, **own}))


class Cluster(Admin):
    """ZooKeeper, bookies and a broker whose files all lie in ``folder``, where they must stay: cookies hold paths."""

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, str] | None = None,
        bookie_settings: Sequence[Mapping[str, str]] = ({},) * BOOKIES,
        disks: Sequence[Disks] = DISKS,
        chroot: str = "",
    ) -> None:
        """``settings`` are the broker's, ``bookie_settings`` those of each bookie; ports are chosen here and kept. The cluster's metadata
        are below the path CHROOT of ZooKeeper's tree, as Helm's ``metadataPrefix`` puts them."""
        super().__init__(folder)
        self.distribution = find_distribution()
        self.zookeeper_port = free_port()
        self.zookeeper_address = f"127.0.0.1:{self.zookeeper_port}"
        self.chroot = chroot
        self.metadata_address = f"{self.zookeeper_address}{chroot}"
        self.zookeeper_data = folder / "zookeeper"
        self.zookeeper_data.mkdir(parents=True)
        self.settings = dict(settings or {})
        self.bookies = [
            Bookie(
                self.distribution,
                folder / f"bookie{number}",
                disks[number],
                {**own, "zkServers": self.zookeeper_address, "zkLedgersRootPath": f"{chroot}/ledgers"},
            )
            for number, own in enumerate(bookie_settings)
        ]
        self._zookeeper = Daemon("zookeeper", folder)
        self.broker = Daemon("broker", folder)
        self._configure(
            "zookeeper", ZOOKEEPER_SETTINGS | {"dataDir": str(self.zookeeper_data)} | self._zookeeper_port()
        )

    def _zookeeper_port(self) -> dict[str, str]:
        return {"clientPort": str(self.zookeeper_port), "clientPortAddress": "127.0.0.1"}

    def _configure(self, name: str, settings: Mapping[str, str]) -> Path:
        path = self.folder / f"{name}.conf"
        path.write_text(override((self.distribution / "conf" / f"{name}.conf").read_text(), settings))
        return path

    def _environment(self, heap: str, configuration: str = "", path: Path | None = None) -> dict[str, str]:
        """The environment for the distribution's scripts: little memory, quick to start, and logs beside the data."""
        return {
            **os.environ,
            "BOOKIE_EXTRA_OPTS": f"{_NETTY} {_LOGGING}",
            "BOOKIE_GC": _JAVA,
            "BOOKIE_GC_LOG": " ",
            "BOOKIE_LOG_DIR": str(self.folder / "logs"),
            "BOOKIE_MEM": f"-Xmx{heap} -XX:MaxDirectMemorySize=256m",
            "PULSAR_EXTRA_OPTS": f"{_NETTY} {_LOGGING} -Dzookeeper.preAllocSize=64",
            "PULSAR_GC": _JAVA,
            "PULSAR_GC_LOG": " ",
            "PULSAR_LOG_DIR": str(self.folder / "logs"),
            "PULSAR_MEM": f"-Xmx{heap} -XX:MaxDirectMemorySize=256m",
            **({configuration: str(path)} if configuration else {}),
        }

    def start(self, *bookies: int) -> float:
        """Start everything, of the bookies only these if any are named, and wait until the broker answers; the seconds it took."""
        begin = time.monotonic()
        self.start_zookeeper()
        self._initialize()
        self.start_bookies(*bookies)
        self.start_broker()
        return time.monotonic() - begin

    def start_zookeeper(self) -> None:
        """Start ZooKeeper and wait until it answers."""
        environment = self._environment("256m", "PULSAR_ZK_CONF", self.folder / "zookeeper.conf")
        self._zookeeper.launch([self.distribution / "bin" / "pulsar", "zookeeper"], environment)
        wait_until(self._zookeeper_answers, f"ZooKeeper, see {self._zookeeper.log}", START_LIMIT_SECONDS)

    def _zookeeper_answers(self) -> bool:
        self._zookeeper.check()
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.zookeeper_port), timeout=5) as connection:
            connection.sendall(b"srvr")  # "ruok" is answered before it serves anybody
            return b"Mode:" in b"".join(iter(lambda: connection.recv(4096), b""))
        return False

    @contextmanager
    def zookeeper(self) -> Iterator[KazooClient]:
        """A client of the running ZooKeeper, for which the cluster's root is the root."""
        client = KazooClient(self.zookeeper_address)
        client.start(timeout=60)
        client.chroot = self.chroot  # not in its address: it would miss the path before the cluster is initialized
        try:
            yield client
        finally:
            client.stop()
            client.close()

    def serves(self, topic: str) -> bool:
        """Whether a broker owns the bundle of TENANT/NAMESPACE/TOPIC.

        An unloaded namespace may keep one: the broker's own reader of ``__change_events`` comes back to its bundle.
        """
        namespace, _, _ = topic.rpartition("/")
        hashed = zlib.crc32(f"persistent://{topic}".encode())
        with self.zookeeper() as client:
            below = f"/namespace/{namespace}"
            owned = client.get_children(below) if client.exists(below) else []
        bounds = [[int(bound, 16) for bound in bundle.split("_")] for bundle in owned]
        return any(lower <= hashed < upper or hashed == upper == 0xFFFFFFFF for lower, upper in bounds)

    def _initialize(self) -> None:
        """Write what a cluster has before its first bookie, once."""
        with self.zookeeper() as client:
            if client.exists("/admin/clusters/standalone"):
                return
        command = [self.distribution / "bin" / "pulsar", "initialize-cluster-metadata", "--cluster", "standalone"]
        command += ["--metadata-store", f"zk:{self.metadata_address}", "--web-service-url", self.web_url]
        command += ["--configuration-metadata-store", f"zk:{self.metadata_address}"]
        command += ["--broker-service-url", self.service_url]
        with (self.folder / "initialize.log").open("wb") as log:
            subprocess.run(
                list(map(str, command)),
                env=self._environment("256m"),
                cwd=self.folder,
                stdout=log,
                stderr=log,
                check=True,
            )

    def start_bookies(self, *numbers: int) -> None:
        """Start these bookies, all without numbers, and wait until they are registered.

        What one that was killed registered stays until its session ends, and misleads clients.
        """
        chosen = [self.bookies[number] for number in numbers] or self.bookies
        with self.zookeeper() as client:
            before = {bookie.bookie_id: _registration(client, bookie) for bookie in chosen}
            for bookie in chosen:
                self.launch_bookie(bookie)

            def registered() -> bool:
                for bookie in chosen:
                    bookie.daemon.check()
                found = {bookie.bookie_id: _registration(client, bookie) for bookie in chosen}
                return all(session not in (None, before[name]) for name, session in found.items())

            wait_until(registered, f"bookies, see {self.folder}/bookie*/*.log", START_LIMIT_SECONDS)

    def launch_bookie(self, bookie: Bookie) -> None:
        """Start a bookie and wait for nothing."""
        command = [self.distribution / "bin" / "pulsar", "bookie"]
        bookie.daemon.launch(command, self._environment("400m", "PULSAR_BOOKKEEPER_CONF", bookie.configuration))

    def launch_autorecovery(self, daemon: Daemon) -> None:
        """Start, as DAEMON, an autorecovery of its own with the first bookie's configuration, and wait for nothing."""
        environment = self._environment("256m", "BOOKIE_CONF", self.bookies[0].configuration)
        daemon.launch([self.distribution / "bin" / "bookkeeper", "autorecovery"], environment)

    def start_broker(self) -> None:
        """Start the broker and wait until its admin interface answers."""
        store = f"zk:{self.metadata_address}"
        own = {
            "brokerServicePort": str(self.port),
            "webServicePort": str(self.web_port),
            "metadataStoreUrl": store,
            "configurationMetadataStoreUrl": store,
        }
        path = self._configure("broker", {**BROKER_SETTINGS, **self.settings, **own})
        environment = self._environment("700m", "PULSAR_BROKER_CONF", path)
        self.broker.launch([self.distribution / "bin" / "pulsar", "broker"], environment)
        wait_until(self._broker_answers, f"broker, see {self.broker.log}", START_LIMIT_SECONDS)

    def _broker_answers(self) -> bool:
        self.broker.check()
        return self.answers()

    def stop(self) -> None:
        """End the broker, the bookies and ZooKeeper with SIGTERM, in the order in which an operator does."""
        self.stop_broker()
        self.stop_bookies()
        self.stop_zookeeper()

    def stop_broker(self) -> None:
        """End the broker with SIGTERM."""
        self.broker.end(signal.SIGTERM)

    def stop_bookies(self) -> None:
        """End all bookies with SIGTERM, at the same time."""
        for bookie in self.bookies:
            if bookie.daemon.process is not None:
                bookie.daemon.process.send_signal(signal.SIGTERM)
        for bookie in self.bookies:
            bookie.daemon.end(signal.SIGTERM)

    def stop_zookeeper(self) -> None:
        """End ZooKeeper with SIGTERM."""
        self._zookeeper.end(signal.SIGTERM)

    def kill(self) -> None:
        """End everything with SIGKILL, as a power cut does; nothing happens to what is not running."""
        for daemon in (self.broker, *(bookie.daemon for bookie in self.bookies), self._zookeeper):
            daemon.end(signal.SIGKILL)

    def shell(self, bookie: int, *words: object) -> str:
        """What ``bookkeeper shell`` prints with the configuration of that bookie."""
        command = [str(self.distribution / "bin" / "bookkeeper"), "shell", *map(str, words)]
        environment = self._environment("256m", "BOOKIE_CONF", self.bookies[bookie].configuration)
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


def _registration(client: KazooClient, bookie: Bookie) -> int | None:
    """The session that a bookie is registered by."""
    found = client.exists(f"/ledgers/available/{bookie.bookie_id}")
    return found.owner_session_id if found else None
