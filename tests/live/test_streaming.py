"""A stream follows the disk of a real bookie; both are killed (with ``ALL=1`` three times): every confirmed entry comes, and none twice."""

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from bench.streaming import ROOT, batches, committed
from tests.live.broker import BASE_SETTINGS, Broker, wait_until
from tests.live.distribution import find_distribution
from tests.live.recipe import kill_while_writing

pytestmark = pytest.mark.live
KILLS = 3 if os.environ.get("ALL") else 1  # each takes over a minute
SETTINGS = {
    **BASE_SETTINGS,
    "logSizeLimit": str(1 << 16),
    "flushInterval": "2000",
    "managedLedgerMaxEntriesPerLedger": "200",
}


@contextmanager
def following(disk: Path, out: Path, *more: str) -> Iterator[subprocess.Popen[bytes]]:
    """A query of its own processes, which are killed at the end."""
    command = [
        sys.executable,
        "-m",
        "bench.streaming",
        "--out",
        str(out),
        "--follow",
        f"{disk}/*.log,{disk}/*.txn",
        *more,
    ]
    with (out / "query.log").open("ab") as log:
        query = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log, start_new_session=True)
    try:
        yield query
    finally:
        with suppress(ProcessLookupError):  # it ended, and its JVM with it
            os.killpg(query.pid, signal.SIGKILL)
        query.wait()


def test_every_confirmed_entry_of_a_real_bookie_comes_once(tmp_path: Path) -> None:
    broker, out = Broker(find_distribution(), tmp_path / "pulsar", SETTINGS), tmp_path / "out"
    out.mkdir()
    disk = broker.data / "bookkeeper" / "current"
    confirmed: set[tuple[int, int]] = set()
    try:
        for number in range(KILLS):
            broker.start()
            if not number:
                broker.put("tenants/acme", {"allowedClusters": ["standalone"]})
                broker.put("namespaces/acme/orders")
            with following(disk, out) as query:

                def kill(query: subprocess.Popen[bytes] = query, before: int = batches(out)) -> None:
                    wait_until(lambda: query.poll() is not None or batches(out) > before + 2, "three batches")
                    assert query.poll() is None, (out / "query.log").read_text()[-3000:]
                    broker.kill()

                rows = kill_while_writing(broker, kill, tmp_path / f"confirmed-{number}")
                confirmed |= {(ledger_id, entry_id) for ledger_id, entry_id, *_ in rows}
        broker.start()
        broker.stop()
        with following(disk, out, "--once") as query:
            assert query.wait() == 0, (out / "query.log").read_text()[-3000:]
    finally:
        broker.kill()
    found = Counter((row["ledger_id"], row["entry_id"]) for row in committed(out))
    assert len(confirmed) > 100 * KILLS
    assert confirmed - found.keys() == set()
    assert [entry for entry, times in found.items() if times > 1] == []
