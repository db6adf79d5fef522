"""What Pulsar's and BookKeeper's own tools take for the toolkit's jobs, on a topic of 1,000,000 entries of 1 KB.

``python -m tests.live.peers FOLDER`` makes the topic in FOLDER (about a minute and 1.3 GB; reused when it is there),
runs each tool as a whole process, prints one JSON object (medians in seconds) and leaves it in ``FOLDER/peers.json``.
The topic's files are in ``FOLDER/data``; the broker is stopped at the end.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.live.broker import BASE_SETTINGS, BROKER_METADATA, Broker, BrokerError
from tests.live.distribution import VERSION, find_distribution

TOPIC = "public/default/million"
ENTRIES = 1_000_000
PAYLOAD_BYTES = 1024
_SETTINGS = {
    **BASE_SETTINGS,
    **BROKER_METADATA,
    "managedLedgerMaxEntriesPerLedger": str(2 * ENTRIES),
    "managedLedgerMaxSizePerLedgerMbytes": "8000",
    "backlogQuotaDefaultLimitGB": "100",
}


def main() -> None:
    """Make the topic, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    folder: Path = arguments.folder.absolute()
    broker = Broker(find_distribution(), folder, _SETTINGS, heap="2g")
    try:
        begin = broker.start()
        numbers: dict[str, Any] = {"version": VERSION, "brokerStart": round(begin, 2), **_produce(broker)}
        numbers.update(_measure_admin(broker, arguments.runs))
        broker.stop()
    finally:
        broker.kill()
    numbers.update(_measure_files(broker, arguments.runs))
    (folder / "peers.json").write_text(json.dumps(numbers, indent=2) + "\n")
    print(json.dumps(numbers, indent=2))


def _produce(broker: Broker) -> dict[str, Any]:
    """Fill the topic unless it is full; the seconds the real producer took, its entries and bytes."""
    taken = None
    try:
        broker.get(f"persistent/{TOPIC}/stats")
    except BrokerError:
        broker.put(f"persistent/{TOPIC}")
        broker.subscribe(TOPIC, "s")
        begin = time.monotonic()
        command = [str(broker.distribution / "bin" / "pulsar-perf"), "produce", "-u", broker.service_url]
        command += ["-m", str(ENTRIES), "-s", str(PAYLOAD_BYTES), "-db", "-r", "60000", "-n", "1", "-o", "2000"]
        subprocess.run([*command, TOPIC], env=broker.environment(), check=True, capture_output=True, timeout=600)
        taken = round(time.monotonic() - begin, 1)
    stats = broker.get(f"persistent/{TOPIC}/internalStats")
    # pulsar-perf sends what is under way when it has counted to the limit: a few hundred more
    assert 0 <= stats["numberOfEntries"] - ENTRIES < 5000, f"{broker.folder} holds another topic: {stats}"
    return {"produceSeconds": taken, "entries": stats["numberOfEntries"], "topicBytes": stats["totalSize"]}


def _measure_admin(broker: Broker, runs: int) -> dict[str, float]:
    """pulsar-admin against the running, warm broker, and the broker's own answer over HTTP."""
    stats = broker.get(f"persistent/{TOPIC}/internalStats")
    first = stats["ledgers"][0]["ledgerId"]
    middle = _publish_time(broker, first, ENTRIES // 2)
    answers = []
    for _ in range(20):
        begin = time.monotonic()
        broker.get(f"persistent/{TOPIC}/messageid/{middle}")
        answers.append(time.monotonic() - begin)
    moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(middle / 1000)) + f".{middle % 1000:03}Z"
    admin = [str(broker.distribution / "bin" / "pulsar-admin"), "--admin-url", broker.web_url, "topics"]
    environment = broker.environment()
    return {
        "http messageid": round(statistics.median(answers), 4),
        "pulsar-admin topics get-message-id": _median(
            [*admin, "get-message-id", TOPIC, "-d", moment], runs, environment
        ),
        "pulsar-admin topics stats-internal": _median([*admin, "stats-internal", TOPIC], runs, environment),
        "pulsar-admin --help": _median([*admin[:1], "--help"], runs, environment),
    }


def _publish_time(broker: Broker, ledger: int, entry: int) -> int:
    """Publish time in ms of one entry, bisected out of the broker: it answers the first entry at or after a time."""
    low, high = 0, int(time.time() * 1000)
    while low < high:
        middle = (low + high) // 2
        found = broker.get(f"persistent/{TOPIC}/messageid/{middle}")
        if (found["ledgerId"], found["entryId"]) >= (ledger, entry):
            high = middle
        else:
            low = middle + 1
    return low


def _measure_files(broker: Broker, runs: int) -> dict[str, Any]:
    """The tools that read the files of the stopped bookie, and ``cat``."""
    current = broker.data / "bookkeeper" / "current"
    log = max(current.glob("*.log"), key=lambda path: path.stat().st_size)
    shell = [str(broker.distribution / "bin" / "bookkeeper"), "shell"]
    environment = _bookie_environment(broker, broker.data / "bookkeeper")
    numbers: dict[str, Any] = {
        "log": str(log.relative_to(broker.folder)),
        "logBytes": log.stat().st_size,
        "cat": _median(["cat", str(log)], runs, None),
        "bookkeeper shell readlog": _median([*shell, "readlog", log.name], runs, environment),
        "bookkeeper shell readlogmetadata": _median([*shell, "readlogmetadata", log.name], runs, environment),
    }
    times = []
    for _ in range(runs):
        with _scratch_bookie(broker) as bookie:
            rebuild = [*shell, "rebuild-db-ledger-locations-index"]
            times.append(_run(rebuild, _bookie_environment(broker, bookie)))
            assert list((bookie / "current").glob("locations.BACKUP*")), "the index was not rebuilt"
    numbers["bookkeeper shell rebuild-db-ledger-locations-index"] = round(statistics.median(times), 3)
    return numbers


def _bookie_environment(broker: Broker, bookie: Path) -> dict[str, str]:
    """The environment in which the shell works on one bookie folder; its configuration lies beside the data."""
    configuration = broker.folder / "bookkeeper.conf"
    keys = ("journalDirectory=", "ledgerDirectories=")
    original = (broker.distribution / "conf" / "bookkeeper.conf").read_text().splitlines()
    lines = [line for line in original if not line.startswith(keys)] + [f"{key}{bookie}" for key in keys]
    configuration.write_text("\n".join(lines) + "\n")
    return {**broker.environment(), "BOOKIE_CONF": str(configuration)}


@contextlib.contextmanager
def _scratch_bookie(broker: Broker) -> Iterator[Path]:
    """A bookie folder whose index may be rebuilt: sealed logs hard-linked, the rest copied."""
    scratch = broker.folder / "rebuild"
    shutil.rmtree(scratch, ignore_errors=True)
    current = broker.data / "bookkeeper" / "current"
    logs = {path.name for path in current.glob("*.log")}
    shutil.copytree(current, scratch / "current", ignore=lambda folder, names: logs if folder == str(current) else [])
    for name in logs:
        os.link(current / name, scratch / "current" / name)
    yield scratch
    shutil.rmtree(scratch)


def _median(command: list[str], runs: int, environment: dict[str, str] | None) -> float:
    return round(statistics.median(_run(command, environment) for _ in range(runs)), 3)


def _run(command: list[str], environment: dict[str, str] | None) -> float:
    begin = time.monotonic()
    finished = subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    taken = time.monotonic() - begin
    assert finished.returncode == 0, f"{command}: {finished.returncode} {finished.stderr[-1000:]}"
    return taken


if __name__ == "__main__":
    main()
