"""Records compacted topics as Pulsar 4.2.4 and 2.11.0 write them: the archives ``pulsar-*-compacted*`` of ``tests/golden``.

``python -m tests.live.recording ARCHIVE [--version V] [--seed N]`` fills topics, lets the broker compact them, fills and compacts them
again, adds a few messages, unloads some topics (loading them moves a cursor at the end of a ledger to the beginning of the next), asks
the broker, stops it, packs its data directory as ``clean/``, starts it again and asks once more. ``oracle.json`` beside ``clean/`` holds
the answers.
"""

import argparse
import json
import shutil
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from tests.live.broker import BASE_SETTINGS, BROKER_METADATA, Broker, wait_until
from tests.live.compacting import Keyed, compact, fill, last_message_id, read_apart, read_compacted
from tests.live.distribution import NEWER, OLDER, find_distribution
from tests.live.producing import open_client
from tests.worlds import copy_tree, world

SETTINGS = {
    **BASE_SETTINGS,
    **BROKER_METADATA,
    "managedLedgerMaxEntriesPerLedger": "20",
    "logSizeLimit": str(1 << 20),
    "journalPreAllocSizeMB": "1",
    "journalMaxSizeMB": "4",
}
_SMALL = {"messages": 60, "keys": 12}
TOPICS = (
    *(
        Keyed(f"batched-{codec.lower()}", **_SMALL, batch=6, codec=codec)
        for codec in ("NONE", "LZ4", "ZLib", "ZSTD", "SNAPPY")
    ),
    Keyed("single", **_SMALL),
    Keyed("single-lz4", **_SMALL, codec="LZ4"),
    Keyed("all-null", 12, 3, null_share=1),
    Keyed("all-null-batched", 12, 3, 6, null_share=1),
    Keyed("keyless", 12, 0, 6),
    Keyed("secret", 30, 10, 5, encrypted=True),
    Keyed("parts-partition-1", 40, 10, 5),
    Keyed("once", **_SMALL, batch=6, codec="LZ4"),
    Keyed("ends-with-nulls", **_SMALL),
)
OF_OLDER = (
    "batched-none",
    "batched-lz4",
    "single",
    "all-null",
    "all-null-batched",
    "keyless",
    "once",
    "ends-with-nulls",
)
ONCE = ("once",)
TAILED = ("batched-lz4", "single")
UNLOADED = ("batched-none", "batched-zlib", "batched-lz4", "single-lz4")


def record(folder: Path, version: str, seed: int) -> dict[str, Any]:
    """Make the world in FOLDER, its data as they were after the first stop in FOLDER/clean; what broker and client said."""
    keys = world("small") / "keys"
    topics = TOPICS if version == NEWER else tuple(keyed for keyed in TOPICS if keyed.name in OF_OLDER)
    with Broker(find_distribution(version), folder, SETTINGS) as broker:
        broker.start()
        client = open_client(broker.service_url)
        broker.put("persistent/public/default/parts/partitions", 2)
        said: dict[str, Any] = {
            "version": broker.request("GET", "brokers/version").decode(),
            "seed": seed,
            "conf": SETTINGS,
        }
        for round_number, filled in enumerate((topics, [keyed for keyed in topics if keyed.name not in ONCE])):
            for keyed in filled:
                fill(client, keyed, seed + round_number, keys)
            fill(client, Keyed("ends-with-nulls", 3, 3, null_share=1), seed, keys)
            for keyed in filled:
                assert compact(broker, keyed.topic) == "SUCCESS", keyed
        for keyed in topics:
            if keyed.name in TAILED:
                fill(client, replace(keyed, messages=10), seed + 2, keys)
        for keyed in topics:
            if keyed.name in UNLOADED:
                broker.put(f"persistent/{keyed.topic}/unload")
        if version == NEWER:
            wait_until(lambda: _stands_before_a_ledger(broker, UNLOADED[0]), "cursors moved to the next ledger")
        said["topics"] = {keyed.topic: _ask(broker, client, keyed, keys) for keyed in topics}
        client.close()
        broker.stop()
        copy_tree(broker.data, folder / "clean")
        broker.start()
        for topic, answers in said["topics"].items():
            answers["internal_stats_after"] = broker.get(f"persistent/{topic}/internalStats")
        broker.stop()
    return said


def _stands_before_a_ledger(broker: Broker, name: str) -> bool:
    stats = broker.get(f"persistent/public/default/{name}/internalStats")
    return bool(stats["cursors"]["__compaction"]["markDeletePosition"].endswith(":-1"))


def _ask(broker: Broker, client: Any, keyed: Keyed, keys: Path) -> dict[str, Any]:
    own_keys = keys if keyed.encrypted else None
    return {
        "compacted_messages": read_apart(broker.service_url, keyed.topic, own_keys),
        "internal_stats": broker.get(f"persistent/{keyed.topic}/internalStats"),
        "last_message_id": last_message_id(client, keyed.topic),
        "messages": read_compacted(broker.service_url, keyed.topic, own_keys, is_compacted=False),
    }


def pack(folder: Path, said: dict[str, Any], archive: Path, states: Sequence[str] = ("clean",)) -> None:
    """Pack the states of FOLDER and what was said into ARCHIVE, whose name begins the paths in it."""
    name = archive.name.removesuffix(".tar.xz")
    whole = folder / name
    whole.mkdir()
    for state in states:
        (folder / state).rename(whole / state)
    (whole / "oracle.json").write_text(json.dumps(said, indent=1, sort_keys=True))
    with tarfile.open(archive, "w:xz", preset=9) as tar:
        tar.add(whole, name, filter=_anonymous)


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = "root"
    return member


def main() -> None:
    """Record from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("archive", type=Path)
    parser.add_argument("--version", choices=(OLDER, NEWER), default=NEWER)
    parser.add_argument("--seed", type=int, default=429)
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="pulsar-recording-"))
    try:
        said = record(folder / "pulsar", arguments.version, arguments.seed)
        pack(folder / "pulsar", said, arguments.archive)
    finally:
        shutil.rmtree(folder)
    print(f"{arguments.archive}: {arguments.archive.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
