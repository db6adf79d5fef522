"""Records packages as brokers of 4.0.8 and 5.0.1 keep them in BookKeeper: ``tests/golden/pulsar-5.0.1-packages.tar.xz``.

``python -m tests.live.recording_packages ARCHIVE`` runs ZooKeeper, one bookie and, one after the other, a broker of each version with
packages on. Each uploads packages, changes the description of one and deletes one; what pulsar-admin of 4.0.8 says then is in
``oracle.json``, by its words. ``clean/`` is what was on disk.
"""

import argparse
import hashlib
import json
import random
import shutil
import tempfile
from pathlib import Path
from typing import Any

from tests.live.cluster import Cluster, Disks
from tests.live.distribution import NEXT, VERSION, environment_of, find_distribution, find_jar
from tests.live.recording import pack
from tests.live.upstream import UpstreamAdmin
from tests.worlds import copy_tree

SETTINGS = {
    "enablePackagesManagement": "true",
    "packagesManagementStorageProvider": "org.apache.pulsar.packages.management.storage.bookkeeper.BookKeeperPackagesStorageProvider",
    "packagesReplicas": "1",
    "packagesManagementLedgerRootPath": "/ledgers",
    "managedLedgerDefaultEnsembleSize": "1",
    "managedLedgerDefaultWriteQuorum": "1",
    "managedLedgerDefaultAckQuorum": "1",
}
STORAGE = "pulsar-package-bookkeeper-storage"
SIZES = {"small": 300, "large": 2_500_000, "empty": 0}
"""Bytes of packages: a record of DistributedLog holds 1 MB at most."""


class OfVersions(Cluster):
    """A cluster whose broker may be of another version."""

    broker_version = VERSION

    def _environment(self, heap: str, configuration: str = "", path: Path | None = None) -> dict[str, str]:
        found = super()._environment(heap, configuration, path)
        if self.distribution != find_distribution():
            found |= {**environment_of(self.distribution), "PULSAR_EXTRA_CLASSPATH": str(find_jar(STORAGE, NEXT))}
        return found


def record(folder: Path) -> dict[str, Any]:
    """Make the world in FOLDER, its files after the last stop in FOLDER/clean; what was said."""
    said: dict[str, Any] = {}
    cluster = OfVersions(folder / "cluster", SETTINGS, ({},), (Disks(("journal",), ("ledgers",)),))
    try:
        cluster.start_zookeeper()
        cluster._initialize()
        cluster.start_bookies()
        for version in (VERSION, NEXT):
            cluster.distribution = find_distribution(version)
            cluster.start_broker()
            said |= _fill(cluster, folder, version)
            cluster.stop_broker()
        cluster.distribution = find_distribution()
        cluster.stop()
    finally:
        cluster.kill()
    for name in ("zookeeper", "bookie0"):
        copy_tree(cluster.folder / name, folder / "clean" / name)
    for log in (folder / "clean").glob("bookie*/*.*"):
        log.unlink()
    return said


def _fill(cluster: Cluster, folder: Path, version: str) -> dict[str, Any]:
    """What pulsar-admin answers after a broker of this version got its packages, by the words of the question."""
    admin = UpstreamAdmin(cluster.web_url)
    said: dict[str, Any] = {}
    try:
        for name, size in SIZES.items():
            path = folder / f"{name}.nar"
            path.write_bytes(random.Random(f"{version} {name}").randbytes(size // 100) * 100)
            words = ("--description", f"of {version}: é", "--contact", "ops", "-P", "a=1", "-P", "b=two")
            for package in (f"function://public/default/{name}@{version}", f"sink://public/default/{name}@{version}"):
                said |= _asked(admin, "packages", "upload", package, "--path", str(path), *words)
        one = f"function://public/default/small@{version}"
        said |= _asked(admin, "packages", "update-metadata", one, "--description", "changed")
        said |= _asked(admin, "packages", "delete", f"sink://public/default/small@{version}")
        for name in SIZES:
            for kind in ("function", "sink"):
                said |= _asked(admin, "packages", "list-versions", f"{kind}://public/default/{name}")
                said |= _asked(admin, "packages", "get-metadata", f"{kind}://public/default/{name}@{version}")
            path = folder / "downloaded"
            path.unlink(missing_ok=True)
            package = f"function://public/default/{name}@{version}"
            said |= _asked(admin, "packages", "download", package, "--path", str(path))
            said[f"sha1 {package}"] = hashlib.sha1(path.read_bytes()).hexdigest() if path.exists() else None
        for kind in ("function", "sink", "source"):
            said |= _asked(admin, "packages", "list", "public/default", "--type", kind)
        said |= _asked(admin, "packages", "list", "public/nothing", "--type", "function")
        said |= _asked(admin, "packages", "get-metadata", "function://public/default/nothing@1")
        said |= _asked(admin, "packages", "get-metadata", "widget://public/default/nothing@1")
        said |= _asked(
            admin, "packages", "download", "function://public/default/nothing@1", "--path", str(folder / "x")
        )
        said |= _asked(admin, "packages", "list-versions", "function://public/default/nothing")
    finally:
        admin.close()
    return said


def _asked(admin: UpstreamAdmin, *words: str) -> dict[str, Any]:
    shown = " ".join("FILE" if word.startswith("/") else word for word in words)
    said = admin.ask(*words)
    return {shown: [said.exit, said.stdout, said.stderr.partition("\n")[0]]}


def main() -> None:
    """Record from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("archive", type=Path)
    archive = parser.parse_args().archive
    folder = Path(tempfile.mkdtemp(prefix="pulsar-recording-"))
    try:
        said = record(folder)
        pack(folder, said, archive)
    finally:
        shutil.rmtree(folder)
    print(f"{archive}: {archive.stat().st_size:,} bytes", json.dumps(said, indent=1))


if __name__ == "__main__":
    main()
