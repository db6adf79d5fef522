"""Records what bookies of every storage and index write, and ledger metadata of every version: ``tests/golden/pulsar-4.0.8-kinds.tar.xz``.

``python -m tests.live.recording_kinds ARCHIVE [--seed N]`` runs a cluster of three bookies, each of which gets every entry, three times,
with ledger metadata of version 1, 2 and 3. Before the third run the third bookie is killed and its ``ledgers`` made again by
BookKeeper's tool. ``oracle.json`` has what clients read, and the index of every ledger on every bookie as ``bookkeeper shell ledger``
prints it.
"""

import argparse
import json
import re
import shutil
import signal
import tempfile
from pathlib import Path
from typing import Any

from tests.live.cluster import Cluster, Disks
from tests.live.producing import Sending, open_client, read_rows, send
from tests.live.recording import pack
from tests.worlds import copy_tree

SETTINGS = {
    "bookkeeperExplicitLacIntervalInMills": "100",
    "bookkeeperUseV2WireProtocol": "false",
    "managedLedgerDefaultWriteQuorum": "3",
    "managedLedgerMaxEntriesPerLedger": "20",
    "systemTopicEnabled": "false",
    "topicLevelPoliciesEnabled": "false",
}
_STORAGE = "org.apache.bookkeeper.bookie."
# The file limit of 0 that Pulsar ships makes bookies with ``.idx`` files wait for ever.
_SMALL = {"logSizeLimit": str(1 << 14), "journalAlignmentSize": "512", "openFileLimit": "100"}
_NEW_FORMATS = {"journalFormatVersionToWrite": "6", "fileInfoFormatVersionToWrite": "1"}
BOOKIES = (
    {**_SMALL, **_NEW_FORMATS, "ledgerStorageClass": f"{_STORAGE}InterleavedLedgerStorage"},
    {**_SMALL, "ledgerStorageClass": f"{_STORAGE}SortedLedgerStorage", "entryLogPerLedgerEnabled": "true"},
    {
        **_SMALL,
        **_NEW_FORMATS,
        "ledgerStorageClass": f"{_STORAGE}storage.ldb.DbLedgerStorage",
        "dbStorage_directIOEntryLogger": "true",
        "dbStorage_directIOEntryLoggerReadBufferSizeMB": "1",
        "dbStorage_directIOEntryLoggerTotalReadBufferSizeMB": "8",
        "dbStorage_directIOEntryLoggerTotalWriteBufferSizeMB": "8",
        "dataIntegrityChecking": "true",
        "journalWriteData": "false",  # without it a kill asks for no check of integrity, which leaves the row of storage flags
    },
)
DISKS = (
    Disks(("journal",), ("ledgers0", "ledgers1"), ("index",), "interleaved"),
    Disks(("journal",), ("ledgers",), bookie_id="sorted"),
    Disks(("journal",), ("ledgers0", "ledgers1"), bookie_id="direct"),
)
KILLED = 2
VERSIONS = ("1", "2", "3")
ACROSS = "public/default/across"
_ROW = re.compile(r"entry (\d+)\s*:\s*\(log:\s*(\d+), pos: (\d+)\)")


def record(folder: Path, seed: int) -> dict[str, Any]:
    """Make the world in FOLDER, its files after the last stop in FOLDER/clean; what was said."""
    said: dict[str, Any] = {"seed": seed, "rows": {}}
    with Cluster(folder / "cluster", SETTINGS, BOOKIES, DISKS) as cluster:
        for version in VERSIONS:
            cluster.settings["bookkeeper_ledgerMetadataVersion"] = version
            cluster.start()
            client = open_client(cluster.service_url)
            send(client, Sending(ACROSS, f"across-{version}", 60, batch=4), seed)
            send(client, Sending(f"public/default/version-{version}", "one", 50), seed)
            topics = [name.removeprefix("persistent://") for name in cluster.get("persistent/public/default")]
            said["rows"] = {topic: read_rows(client, topic) for topic in topics}
            said["internal"] = {topic: cluster.get(f"persistent/{topic}/internalStats") for topic in topics}
            client.close()
            cluster.stop_broker()
            if version == VERSIONS[-2]:
                cluster.bookies[KILLED].daemon.end(signal.SIGKILL)
                cluster.shell(KILLED, "rebuild-db-ledgers-index", "-v")
            cluster.stop()
        said["bookies"] = [bookie.bookie_id for bookie in cluster.bookies]
        said["index"] = {
            bookie.bookie_id: _index(cluster, number, said) for number, bookie in enumerate(cluster.bookies)
        }
    for name in ("zookeeper", *(bookie.folder.name for bookie in cluster.bookies)):
        copy_tree(cluster.folder / name, folder / "clean" / name)
    for log in (folder / "clean").glob("bookie*/*.*"):
        log.unlink()
    return said


def _index(cluster: Cluster, number: int, said: dict[str, Any]) -> dict[str, list[list[int]]]:
    """What a bookie's index says of ledgers of all versions: [entry, log, position]; log and position are decimal numbers."""
    rows = said["rows"][ACROSS]
    found = {}
    for ledger in sorted({row[0] for row in rows}):
        text = cluster.shell(number, "ledger", ledger)
        found[str(ledger)] = [[int(part) for part in row] for row in _ROW.findall(text)]
    return found


def main() -> None:
    """Record from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("archive", type=Path)
    parser.add_argument("--seed", type=int, default=417)
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="pulsar-recording-"))
    try:
        said = record(folder, arguments.seed)
        pack(folder, said, arguments.archive)
    finally:
        shutil.rmtree(folder)
    print(f"{arguments.archive}: {arguments.archive.stat().st_size:,} bytes, {json.dumps(said['bookies'])}")


if __name__ == "__main__":
    main()
