"""What ranges of acknowledged entries cost in a cursor that has very many: processor time beside the same question on an empty one.

``python -m bench.acknowledged_ranges [--counts 50K,100K,200K] [--form bitmaps|ranges]``: one ledger of entries, a cursor for each
number of ranges, in its own cursor ledger as a broker of 5.0 writes it (bitmaps, its default) or as 4.0 does (ranges).
"""

from __future__ import annotations

import argparse
import random
import shutil
from collections.abc import Sequence
from pathlib import Path

from bench.data import WORK
from bench.generate import generate
from bench.generate.spec import parse_count
from bench.measuring import ADMIN, Run, machine, median, run
from pulsar_admin.store.changes.log_writer import LedgerSpec, apply_written, write_ledgers
from pulsar_admin.store.changes.plan import ChangeKind, ChangePart, Plan, put_value_step
from pulsar_admin.store.codec.cursor import CursorInfo, encode_cursor_info
from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.names import Position, parse_topic
from pulsar_admin.store.proto.managed_ledger_pb2 import PositionInfo

TOPIC = "public/default/generated"
QUESTIONS: dict[str, Sequence[str]] = {
    "topics subscriptions --quick": ["topics", "subscriptions", TOPIC, "--table", "--quick"],
    "topics subscriptions": ["topics", "subscriptions", TOPIC, "--table"],
    "topics stats-internal": ["topics", "stats-internal", TOPIC],
    "topics stats": ["topics", "stats", TOPIC],
    "reset-cursor, planned": ["topics", "reset-cursor", TOPIC, "-s", "sub-0", "-m", "earliest", "--dry-run"],
}
_NOW_MS = 1_700_000_000_000


def state(count: int, form: str) -> bytes:
    """Return a PositionInfo with ``count`` ranges of one to four entries, and gaps of one to four before each."""
    source = random.Random(count)
    message, at = PositionInfo(ledgerId=1, entryId=-1), 0
    spans = []
    for _ in range(count):
        first = at + source.randint(1, 4)
        at = first + source.randint(1, 4)
        spans.append((first, at))
    if form == "ranges":
        for first, end in spans:
            item = message.individualDeletedMessages.add()
            item.lowerEndpoint.ledgerId = item.upperEndpoint.ledgerId = 1
            item.lowerEndpoint.entryId, item.upperEndpoint.entryId = first - 1, end - 1
    elif spans:
        bits = bytearray(at // 64 * 64 + 64)
        for first, end in spans:
            bits[first:end] = b"\1" * (end - first)
        values = message.individualDeletedMessageRanges.add(key=1).values
        for start in range(0, len(bits), 64):
            word = int(bits[start : start + 64][::-1].translate(bytes.maketrans(b"\0\1", b"01")), 2)
            values.append(word - (1 << 64) if word >> 63 else word)
    return message.SerializeToString()


def make(path: Path, data: Path, count: int, form: str) -> None:
    """Make the store at ``path`` from ``data``, its subscription with ``count`` ranges in a cursor ledger."""
    run([ADMIN, "-q", "--store", path, "store", "import", "standalone", data])
    with (
        open_store(path, writable=True) as store,
        write_ledgers(store, [(LedgerSpec({}), [state(count, form)])]) as written,
    ):
        info = encode_cursor_info(CursorInfo(written.ledgers[0].ledger_id, Position(1, -1)))
        with store.read() as txn:
            step = put_value_step(txn, parse_topic(TOPIC).cursor_path("sub-0"), info, _NOW_MS)
            plan = Plan(
                ChangeKind("bench", "acknowledge"),
                txn.id,
                (*written.steps(txn, _NOW_MS), step),
                (ChangePart(topic=TOPIC),),
            )
        apply_written(written, plan, _NOW_MS)


def main() -> None:
    """Make the stores and print a table: milliseconds of processor time above the empty cursor."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--counts", default="50K,100K,200K")
    parser.add_argument("--form", choices=("bitmaps", "ranges"), default="bitmaps")
    parser.add_argument("--runs", type=int, default=5)
    arguments = parser.parse_args()
    counts = [0, *map(parse_count, arguments.counts.split(","))]
    data = WORK / "acknowledged-ranges"
    if not data.exists():
        WORK.mkdir(exist_ok=True)
        entries = 5 * max(counts) + 5 * max(counts) // 10
        generate(
            data,
            "--entries",
            entries,
            "--entries-per-ledger",
            entries,
            "--subscriptions",
            1,
            "--acked",
            0,
            "--message-size",
            1,
        )
    stores = {count: WORK / f"acknowledged-ranges-{arguments.form}-{count}" for count in counts}
    for count, store in stores.items():
        if not store.exists():
            try:
                make(store, data, count, arguments.form)
            except BaseException:
                shutil.rmtree(store, ignore_errors=True)
                raise
    print(machine())
    print(
        f"| processor time, {arguments.form} | empty cursor | {' | '.join(f'{count:,} ranges' for count in counts[1:])} |"
    )
    print(f"|---|{'---|' * len(counts)}")
    for name, words in QUESTIONS.items():
        took: dict[int, list[Run]] = {count: [] for count in counts}
        for _ in range(arguments.runs + 1):  # in turn, so that all meet the same machine
            for count, store in stores.items():
                took[count].append(run([ADMIN, "-q", "--store", store, *words]))
        times = [median(took[count][1:]).processor_seconds * 1000 for count in counts]
        print(f"| `{name}` | {times[0]:.0f} ms | {' | '.join(f'+{one - times[0]:.0f} ms' for one in times[1:])} |")


if __name__ == "__main__":
    main()
