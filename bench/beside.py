"""The toolkit's commands in turn with Pulsar's and BookKeeper's own, as whole processes, on a real Pulsar's topic.

``python -m bench --only peers --peers FOLDER [--logs 1M,4M]``: FOLDER gets about 2.5 GB a million entries. Our ratios grow with the
topic: the start of the process is a part of both.
"""

from __future__ import annotations

import shutil
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from bench.data import WORK, Bench, size_of
from bench.measuring import ADMIN, Row, Run, median, run
from pulsar_admin.store.timespec import format_time_ms

if TYPE_CHECKING:
    from bench.peers import Command, PeerWorld

READLOG_GOAL, REBUILD_GOAL, ADMIN_GOAL = "≥ 20 × faster", "≥ 8 × faster", "≥ 40 × faster"
RUNS_MAX = 3  # a run of the peers takes minutes


def measure(bench: Bench) -> Iterator[Row]:
    """Every size in a folder of its own."""
    from bench.peers import PeerWorld

    assert bench.peers is not None
    runs = min(bench.runs, RUNS_MAX)
    for size in bench.logs:
        world = PeerWorld(bench.peers / str(bench.count(size)), bench.count(size))
        with world.running():
            yield from _admin_rows(world, runs)
        yield from _file_rows(world, runs)


def _in_turn(ours: Callable[[], Run], theirs: Callable[[], Run], runs: int) -> tuple[Run, Run]:
    """Medians of ``ours`` and ``theirs``; a first round is not counted."""
    pairs = [(ours(), theirs()) for _ in range(runs + 1)][1:]
    return median([pair[0] for pair in pairs]), median([pair[1] for pair in pairs])


def _row(what: str, peer: str, taken: tuple[Run, Run], goal: str, note: str, runs: int) -> Row:
    ours, theirs = taken
    note = f"{theirs.seconds / ours.seconds:,.1f} × faster; {note}"
    return Row(what, ours.seconds, ours.processor_seconds, peer, theirs.seconds, goal, note, runs)


def _theirs(command: Command) -> Run:
    return run(command.words, **command.environment)


# -- questions, beside pulsar-admin and a warm broker -----------------------------------------------------------------


def _admin_rows(world: PeerWorld, runs: int) -> Iterator[Row]:
    from bench.peers import TOPIC

    store = WORK / "store-of-peers"
    shutil.rmtree(store, ignore_errors=True)
    run([ADMIN, "-q", "--store", store, "store", "import", "standalone", world.broker.data])
    moment = world.middle_ms()
    answers = [world.http_seconds(moment) for _ in range(20)]
    note = f"{world.entries:,} entries; the broker itself answers in {statistics.median(answers) * 1000:.0f} ms"
    stats = ["topics", "stats-internal", TOPIC]
    for words, peer in (
        (
            ["topics", "find-by-time", TOPIC, "--time", f"@{moment}"],
            ["topics", "get-message-id", TOPIC, "-d", format_time_ms(moment)],
        ),
        (stats, stats),
        (["--help"], ["--help"]),
    ):
        command, theirs = [ADMIN, "--store", store, *words], world.admin(*peer)
        taken = _in_turn(lambda c=command: run(c), lambda c=theirs: _theirs(c), runs)  # type: ignore[misc]  # binds these
        goal = ADMIN_GOAL if "topics" in words else ""
        yield _row(" ".join(words[:2]), "pulsar-admin " + " ".join(peer[:2]), taken, goal, note, runs)
    shutil.rmtree(store)


# -- files, beside bookkeeper shell -----------------------------------------------------------------------------------


def _file_rows(world: PeerWorld, runs: int) -> Iterator[Row]:
    log = max(world.logs, key=lambda path: path.stat().st_size)
    verify: list[object] = [ADMIN, "-q", "logs", "verify", log]
    readlog = world.shell("readlog", log.name)
    taken = _in_turn(lambda: run(verify), lambda: _theirs(readlog), runs)
    note = f"{log.stat().st_size / 1e9:.2f} GB"
    yield _row("logs verify, one entry log", "bookkeeper shell readlog", taken, READLOG_GOAL, note, runs)
    everything = world.logs
    note = f"{world.entries:,} entries, {size_of(everything) / 1e9:.2f} GB in {len(everything)} logs"
    yield from _index_rows(world, note, runs)


def _index_rows(world: PeerWorld, note: str, runs: int) -> Iterator[Row]:
    """An index, made new and made again, beside a rebuild of the bookie's and a ``readlog`` of each log.

    The peers read entry logs only: so does the import of a copy without the journal. An import of everything reads the journal too,
    as much again.
    """
    store = WORK / "store-of-peers"
    logs_alone = "store import, entry logs alone"
    ours: dict[str, list[Run]] = {logs_alone: [], "store import": [], "store index --rebuild": []}
    theirs: list[tuple[Run, Run]] = []
    for _ in range(runs + 1):
        with world.without_journal() as data:
            ours[logs_alone].append(_import(store, data))
        ours["store import"].append(_import(store, world.broker.data))
        ours["store index --rebuild"].append(run([ADMIN, "-q", "--store", store, "store", "index", "--rebuild"]))
        with world.scratch_bookie() as bookie:
            rebuild = _theirs(world.shell("rebuild-db-ledger-locations-index", bookie=bookie))
        theirs.append((rebuild, _sum([_theirs(world.shell("readlog", path.name)) for path in world.logs])))
    shutil.rmtree(store)
    for what, taken_by_us in ours.items():
        for place, peer, goal in (
            (0, "bookkeeper shell rebuild-db-ledger-locations-index", REBUILD_GOAL),
            (1, "bookkeeper shell readlog, every log", READLOG_GOAL),
        ):
            taken = median(taken_by_us[1:]), median([pair[place] for pair in theirs[1:]])
            yield _row(what, peer, taken, goal, note, runs)


def _import(store: Path, data: Path) -> Run:
    """Import ``data`` into a new ``store``."""
    shutil.rmtree(store, ignore_errors=True)
    return run([ADMIN, "-q", "--store", store, "store", "import", "standalone", data])


def _sum(runs: list[Run]) -> Run:
    return Run(
        sum(one.seconds for one in runs),
        sum(one.processor_seconds for one in runs),
        max(one.peak_bytes for one in runs),
    )
