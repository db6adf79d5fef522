"""What recovery costs by the number of ledgers: topics of 2 ledgers of 2 entries and a subscription, with and without metadata.

Afterwards ``.benchmarks/ledgers.md`` has the table: seconds on the clock, processor time, and the most anonymous memory.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.data import WORK, Bench
from bench.generate import generate
from bench.measuring import ADMIN, Row, run
from bench.topics import watch
from pulsar_admin.store.db.environment import Txn, open_store
from pulsar_admin.store.model.references import index_owners

LEDGERS = ("100K", "1M")
LOST = b"/managed-ledgers/"
_SHAPE = ["--entries", "4", "--entries-per-ledger", "2", "--subscriptions", "1", "--message-size", "100"]


def measure(bench: Bench) -> Iterator[Row]:
    """Every command at every size; then the table."""
    sizes = [bench.count(size) for size in LEDGERS]
    cells: dict[str, list[str]] = {}
    for ledgers in sizes:
        for name, command in _commands(*_made(ledgers)).items():
            seconds, processor, anonymous = watch(command)
            cells.setdefault(name, []).append(f"{seconds:.1f} s, {processor:.1f} s, {anonymous >> 20} MiB")
            yield Row(
                f"{name}, {ledgers:,} ledgers", seconds, processor, note=f"anonymous {anonymous >> 20} MiB", runs=1
            )
    lines = [f"| ledgers | {' | '.join(f'{ledgers:,}' for ledgers in sizes)} |", f"|{'---|' * (1 + len(sizes))}"]
    lines += [f"| {name} | {' | '.join(found)} |" for name, found in cells.items()]
    (WORK / "ledgers.md").write_text("\n".join(lines) + "\n")


def _made(ledgers: int) -> tuple[Path, Path, Path, Path]:
    """Return the data, and stores of all of it, of what is left without ``/managed-ledgers``, and of the bookie alone."""
    data, whole, listed, alone = (WORK / f"ledgers-{name}-{ledgers}" for name in ("data", "whole", "listed", "alone"))
    if not alone.exists():
        for path in (data, whole, listed, alone):
            shutil.rmtree(path, ignore_errors=True)
        generate(data, "--topics", ledgers // 2, *_SHAPE)
        run([ADMIN, "-q", "--store", whole, "store", "import", "standalone", data])
        shutil.copytree(whole, listed)
        with open_store(listed, writable=True) as store:

            def lose(txn: Txn) -> None:
                for key in [*txn.keys("tree", LOST)]:
                    txn.delete("tree", key)
                index_owners(store, txn)

            store.write(lose)
        run([ADMIN, "-q", "--store", alone, "store", "import", "cluster", "--bookie", data / "bookkeeper"])
    return data, whole, listed, alone


def _commands(data: Path, whole: Path, listed: Path, alone: Path) -> dict[str, Sequence[object]]:
    def of(store: Path, *words: object) -> Sequence[object]:
        return [ADMIN, "-q", "--store", store, *words]

    bookie = data / "bookkeeper"
    recover = ("store", "recover", "--dry-run", "--cluster", "standalone", "--level")
    return {
        "`ledgers missing`": of(whole, "ledgers", "missing"),
        "`ledgers underreplicated`": of(whole, "ledgers", "underreplicated"),
        "`ledgers orphans`": of(whole, "ledgers", "orphans"),
        "`store check`": of(whole, "store", "check"),
        "`store preflight`": of(whole, "store", "preflight"),
        "`store reclaim --dry-run`": of(whole, "store", "reclaim", bookie, "--dry-run"),
        "`store salvage --dry-run`": of(whole, "store", "salvage", bookie, "--dry-run"),
        "`store recover --level A`": of(listed, *recover, "A"),
        "`store recover --level C`": of(alone, *recover, "C"),
    }
