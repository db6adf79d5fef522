"""The cluster that has lived, recorded elsewhere (``lived_recipe.py``), runs here on its disks with combined faults.

What is served is what the store says, but for entries of which it says that a recovery may drop them. One seed; with ``ALL=1`` in the
environment all twenty.
"""

import json
import os
import random
import re
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.live.broker import wait_until
from tests.live.cluster import Cluster
from tests.live.conftest import run_toolkit
from tests.live.lived_recipe import BROKER_SETTINGS, FOUR, REPLACED, try_to_read
from tests.live.producing import open_client
from tests.live.test_zookeeper import run
from tests.stores import lived_bookie
from tests.test_combined_faults import bookies_of, plant, put_old_metadata
from tests.test_recorded_lived import COLUMNS, WORLD
from tests.worlds import copy_tree, oracle, world

pytestmark = pytest.mark.live
SEEDS = range(20) if os.environ.get("ALL") else (1,)


class Revived:
    """A cluster whose bookies are recorded ones; of those whose disks are gone, and of the one that was replaced, a new one is there."""

    def __init__(self, folder: Path, disks: Path) -> None:
        names = oracle(WORLD)["bookies"]
        given = [replace(one, bookie_id=names.get(f"bookie{number}", "new.example")) for number, one in enumerate(FOUR)]
        # With more threads a first load of transaction snapshots may time out (docs/howto/bring-a-cluster-back.md).
        settings = {**BROKER_SETTINGS, "numTransactionReplayThreadPoolSize": "1"}
        self.cluster = Cluster(folder, settings, ({},) * len(given), given)
        self.cookies: dict[str, bytes] = {}
        self.there = []
        for number, bookie in enumerate(self.cluster.bookies):
            recorded = disks / bookie.folder.name
            if not recorded.exists():
                continue
            self.there.append(number)
            for directory in (*bookie.journals, *bookie.ledgers, *bookie.indexes):
                directory.rmdir()
                shutil.move(recorded / directory.relative_to(bookie.folder), directory)
                cookie = directory / "current" / "VERSION"
                text = re.sub(r"/[^\\\"]*/cluster/", f"{folder}/", cookie.read_text())
                self.cookies[bookie.bookie_id] = text.encode()
                cookie.write_text(text)

    def start(self, snapshot: Path) -> None:
        """Start everything with this metadata, in which cookies have the paths of then."""
        shutil.copytree(snapshot / "version-2", self.cluster.zookeeper_data / "version-2")
        self.cluster.start_zookeeper()
        with self.cluster.zookeeper() as client:
            for name, cookie in self.cookies.items():
                client.set(f"/ledgers/cookies/{name}", cookie)
        self.cluster.start_bookies(*self.there, REPLACED)
        self.cluster.start_broker()

    def read(self, topics: list[str]) -> dict[str, list[list[Any]]]:
        """What readers get."""
        client = open_client(self.cluster.service_url)
        found = {topic: wait_until(partial(try_to_read, client, topic), topic) for topic in topics}
        client.close()
        return found


@pytest.fixture
def revived(tmp_path: Path) -> Iterator[list[Revived]]:
    made: list[Revived] = []
    yield made
    for one in made:
        one.cluster.kill()


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_served_is_what_the_store_says(revived: list[Revived], tmp_path: Path, seed: int) -> None:
    disks, store, out = tmp_path / "disks", tmp_path / "store", tmp_path / "out"
    copy_tree(world(WORLD) / "clean", disks)
    planted = plant(disks, random.Random(seed))
    words = [word for bookie in bookies_of(disks) for word in ("--bookie", lived_bookie(bookie))]
    assert run(store, "store", "import", "cluster", "--zookeeper", disks / "zookeeper", *words).returncode in (0, 1)
    if put_old_metadata in planted:
        run_toolkit(store, "store", "recover")
    for bookie in bookies_of(disks):
        run_toolkit(store, "store", "salvage", lived_bookie(bookie), "--yes")
    run(store, "store", "refresh")
    found = run(store, "-o", "json", "ledgers", "missing")
    lost = [row["ledgerId"] for row in json.loads(found.stdout) if row["owners"]]
    for code in (
        "recovery-needs-bookie",
        "recovery-fails",
    ):  # their bookie is gone for good, and nothing mends their records
        doubtful = json.loads(run(store, "-o", "json", "doctor", "--code", code, "--each", "100").stdout)
        lost += [row["evidence"]["ledgerId"] for row in doubtful]
    if lost:
        run_toolkit(store, "ledgers", "forget", *lost, "--force", "--yes")
    said: dict[str, list[list[Any]]] = {topic: [] for topic in oracle(WORLD)["rows"]}
    read = run(store, "-o", "json", "topics", "read", "--all-topics")
    assert read.returncode in (0, 1), read.stderr  # 1: a bookie that is gone may have had more of an open ledger
    for row in json.loads(read.stdout):
        topic = row["topic"].removeprefix("persistent://")
        said.setdefault(topic, []).append([row[key] if key != "key" else row[key] or "" for key in COLUMNS])
    ledgers = {row[0] for rows in said.values() for row in rows}
    ends = {row["ledgerId"]: row["openEnd"] for row in run_toolkit(store, "ledgers", "info", *ledgers)}
    kept = {ledger: end["kept"] for ledger, end in ends.items() if end is not None}
    run_toolkit(store, "store", "export", "zookeeper-snapshot", out, "--force")
    live = Revived(tmp_path / "cluster", disks)
    revived.append(live)
    live.start(out)
    served = live.read([*said])
    dropped = [row for topic, rows in said.items() for row in rows if row not in served[topic]]
    print(
        f"PULSAR_LIVE seed {seed}: {', '.join(fault.__name__ for fault in planted)}; {len(lost)} ledgers forgotten,",
        f"{sum(map(len, said.values())):,} messages said, {sum(map(len, served.values())):,} served,",
        f"{sum(row[1] > kept.get(row[0], row[1]) for rows in said.values() for row in rows)} may be dropped",
    )
    assert all(row in said[topic] for topic, rows in served.items() for row in rows)
    assert [row for row in dropped if row[1] <= kept.get(row[0], row[1])] == []
