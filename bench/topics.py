"""How imports and lists grow with the number of topics: metadata alone, 3 ledgers and 2 cursors a topic, 6 nodes in all.

Afterwards ``.benchmarks/topics.md`` has the table. Memory is that of all processes of a command together (``RssAnon``): the pages of the
store that the kernel maps for LMDB are its cache, and go when others need them.
"""

from __future__ import annotations

import ctypes
import os
import resource
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from bench.data import WORK, Bench
from bench.generate.metadata import instance_id_of
from bench.measuring import ADMIN, Row
from bench.memory import family
from pulsar_admin.store.codec.bookie import COOKIE_FILE, Cookie, encode_cookie
from pulsar_admin.store.codec.cursor import CursorInfo, encode_cursor_info
from pulsar_admin.store.codec.entrylog import CURRENT_VERSION, EntryLogHeader, encode_header
from pulsar_admin.store.codec.journal import LATEST_VERSION
from pulsar_admin.store.codec.journal import encode_header as encode_journal_header
from pulsar_admin.store.codec.ledgermetadata import closed_ledger, encode_ledger_metadata, ledger_path
from pulsar_admin.store.codec.managedledger import LedgerInfo, ManagedLedger, encode_managed_ledger
from pulsar_admin.store.codec.rocksvalue import COUNTER_KEYS, NodeStat, encode_counter, encode_value
from pulsar_admin.store.names import Position, parse_topic
from pulsar_admin.store.sources.rocksdb import create_database

SIZES = ("10K", "100K", "1M")
LEDGERS, CURSORS = 3, 2
_BOOKIE = "127.0.0.1:3181"
_TIME_MS = 1_700_000_000_000
_STAT = NodeStat(0, 1, _TIME_MS, _TIME_MS, False)
_POLL_S = 0.02
_SET_CHILD_SUBREAPER = 36  # of prctl(2)


def iter_nodes(topics: int, cookie: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield (path, value) of the nodes of a cluster of ``topics`` topics whose ledgers are closed and empty."""
    yield "/ledgers", b""
    yield "/ledgers/INSTANCEID", instance_id_of(1).encode()
    yield f"/ledgers/cookies/{_BOOKIE}", cookie
    yield "/admin/policies/public/default", b"{}"
    for number in range(topics):
        name = parse_topic(f"public/default/generated-{number}")
        ids = [1 + number + topics * turn for turn in range(LEDGERS)]  # ids are given in turn, as topics roll over
        infos = tuple(LedgerInfo(ledger_id, timestamp_ms=_TIME_MS) for ledger_id in ids)
        yield name.path, encode_managed_ledger(ManagedLedger(infos))
        for cursor in range(CURSORS):
            info = CursorInfo(-1, Position(ids[0], -1), last_active_ms=_TIME_MS)
            yield name.cursor_path(f"sub-{cursor}"), encode_cursor_info(info)
        custom = {"component": b"managed-ledger", "pulsar/managed-ledger": name.managed_ledger_name.encode()}
        metadata = encode_ledger_metadata(closed_ledger(_BOOKIE, 0, 0, {**custom, "application": b"pulsar"}))
        yield from ((ledger_path(ledger_id), metadata) for ledger_id in ids)


def make(root: Path, topics: int) -> None:
    """Make the data directory of a standalone Pulsar at ``root``."""
    current = root / "bookkeeper" / "current"
    current.mkdir(parents=True)
    cookie = encode_cookie(Cookie(5, _BOOKIE, (str(current.parent),), (str(current.parent),), instance_id_of(1)))
    (current / COOKIE_FILE).write_bytes(cookie)
    (current / "0.log").write_bytes(encode_header(EntryLogHeader(CURRENT_VERSION, 0, 0)))
    (current / f"{_TIME_MS:x}.txn").write_bytes(encode_journal_header(LATEST_VERSION))
    instance, sequence = COUNTER_KEYS
    counters = [(instance, encode_counter(1)), (sequence, encode_counter(LEDGERS * topics + 1))]
    rows = ((path.encode(), encode_value(_STAT, value)) for path, value in iter_nodes(topics, cookie))
    create_database(root / "metadata", (row for part in (counters, rows) for row in part))


def measure(bench: Bench) -> Iterator[Row]:
    """Every command at every size; then the table."""
    lines: list[str] = []
    for count in map(bench.count, SIZES):
        source, store, tables = (WORK / f"topics-{kind}{count}" for kind in ("", "store-", "tables-"))
        if not source.exists():
            make(source, count)
        commands: dict[str, Sequence[object]] = {
            "store import": ["store", "import", "standalone", source],
            "topics stats": ["topics", "stats", "public/default/generated-7"],
            "topics list": ["topics", "list", "public/default"],
            "namespaces list": ["namespaces", "list", "public"],
            "ledgers orphans": ["ledgers", "orphans"],
            "store usage": ["store", "usage"],
            "doctor": ["doctor", "--fail-on", "critical"],
            "overview": ["overview", "--no-check"],
            "metrics": ["metrics", "--no-check"],
            "store export tables": ["store", "export", "tables", tables, "--cluster", "one"],
        }
        cells = []
        for name, words in commands.items():
            if name == "store import":
                shutil.rmtree(store, ignore_errors=True)
            seconds, processor, anonymous = watch([ADMIN, "-q", "--store", store, *words])
            cells.append(f"{seconds:.2f} s ({processor:.2f}), {anonymous >> 20} MiB")
            rate = f"{6 * count / seconds:,.0f} nodes/s, " if name == "store import" else ""
            yield Row(
                f"{name}, {count:,} topics", seconds, processor, note=f"{rate}anonymous {anonymous >> 20} MiB", runs=1
            )
        if not lines:
            lines = [f"| topics | {' | '.join(commands)} |", f"|{'---|' * (1 + len(commands))}"]
        lines.append(f"| {count:,} | {' | '.join(cells)} |")
        (WORK / "topics.md").write_text("\n".join(lines) + "\n")


def watch(command: Sequence[object]) -> tuple[float, float, int]:
    """Run ``command``; return its seconds, those of processor time, and the most anonymous memory that it had, in bytes.

    Its own processes count, also those that outlive it for a moment and those of a server that forks for it.
    """
    assert ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    most = 0
    with subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        while process.poll() is None:
            most = max(most, sum(map(_anonymous, family(process.pid))))
            time.sleep(_POLL_S)
        seconds = time.perf_counter() - begin
        with suppress(ChildProcessError):
            while True:
                os.wait()  # what it left is ours: only then it counts
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert process.stderr is not None
        assert process.returncode == 0, f"{command}: {process.returncode} {process.stderr.read().decode()[-500:]}"
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, most


def _anonymous(process_id: int) -> int:
    try:
        lines = Path(f"/proc/{process_id}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon")), 0)
