"""``store usage``."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from itertools import takewhile
from typing import TYPE_CHECKING

from pulsar_admin.columns import Column, caution
from pulsar_admin.commands.topics.why import disk_result, note_unseen_disks
from pulsar_admin.context import App, Result, Table
from pulsar_admin.options import choice_option, command, flag
from pulsar_admin.store.errors import IndexCorrupt, InvalidValue, StoreNotFound

if TYPE_CHECKING:
    from pulsar_admin.store.reports.usage import FileUsage, OwnerUsage

_BY_TOPIC = (
    Column("TOPIC", lambda row: row.owner),
    Column("KIND", lambda row: row.kind, drop=4),
    Column("LEDGERS", lambda row: row.ledgers, "number", drop=2, sums=True),
    Column("ENTRIES", lambda row: row.entries, "number", drop=3, sums=True),
    Column("BYTES", lambda row: row.bytes, "bytes", sums=True),
    Column("ON DISK", lambda row: row.disk_bytes, "bytes", drop=1, sums=True),
)
_BY_OWNER = (_BY_TOPIC[0], *_BY_TOPIC[2:])
_SHOWN = 15
"""Topics that a terminal shows."""
_BY_LOG = (
    Column("BYTES", lambda row: row.size_bytes, "bytes", sums=True),
    Column("LIVE", lambda row: row.live_bytes, "bytes", drop=2, sums=True),
    Column("DEAD", lambda row: row.dead_bytes, "bytes", tone=caution, sums=True),
    Column("OTHER", lambda row: row.other_bytes, "bytes", drop=1, sums=True),
    Column("GC", lambda row: "frees it" if row.freed else ""),
    Column("RETAINED BY", lambda row: ", ".join(row.kept_for), "prose"),
)
_BY_DISK = (
    Column("DISK", lambda row: row["disk"]),
    Column("BYTES", lambda row: row["bytes"], "bytes", sums=True),
    Column("LIVE", lambda row: row["liveBytes"], "bytes", sums=True),
    Column("DEAD", lambda row: row["deadBytes"], "bytes", tone=caution, sums=True),
)


@command(
    "store usage",
    examples=["", "--by log -o json", "--why --top 5"],
    output="One row per topic, a file or a disk, largest first. Record bytes: payload, entry header and digest; BYTES of a topic "
    "count each entry once, ON DISK (`diskBytes`) every copy that a bookie has. OTHER: headers, maps, what journals repeat.",
    errors=[StoreNotFound, IndexCorrupt],
    uses=["now", "spark"],
)
@choice_option("--by", words=["topic", "log", "disk"], help="What each row shows.")
@flag("--why", help="Why the bytes stay: totals by reason, and what holds how much.")
def usage(app: App, by: str, why: bool) -> Result:
    """Show what uses the disk, how much is dead, and how much garbage collection would free.

    Records are dead if their ledgers were deleted. A bookie deletes an entry log only when all of it is
    dead: `--by log` lists the topics that retain each log. Files that a stopped compaction of entry logs left beside
    them (`.log.compacting`, `.compacted`) are counted as leftovers. Read from the location index and, if several bookies hold
    copies of entries, from the ledgers maps of their logs. --why gives the reason for every byte: a cursor, retention,
    the last ledger of a topic, an entry log with live entries of others; --top N shows the N largest, by default 20 in
    text.
    """
    if why:
        return disk_result(app, None)
    note_unseen_disks(app)
    with app.bulk():
        disk_usage = app.api.usage()
    if by == "log":
        return Result(rows=disk_usage.files, columns=(_file_column(disk_usage.files), *_BY_LOG))
    if by == "disk":
        keys = ("disk", "bytes", "liveBytes", "deadBytes")
        return Result(rows=[dict(zip(keys, disk, strict=True)) for disk in disk_usage.disks], columns=_BY_DISK)
    return Result(
        rows=disk_usage.owners,
        columns=_BY_TOPIC,
        terminal=lambda _: [Table(_folded(disk_usage.owners), _BY_OWNER, total=True)],
    )


def _folded(owners: Iterable[OwnerUsage]) -> list[OwnerUsage]:
    """Return one row per topic, the largest last; all system topics are one row, and so are all smaller topics."""
    from pulsar_admin.store.names import parse_topic
    from pulsar_admin.store.reports.usage import OwnerUsage

    summed: dict[str, OwnerUsage] = {}

    def add(name: str, one: OwnerUsage) -> None:
        old = summed.get(name, OwnerUsage(name, "", 0, 0, 0, 0))
        sums = (getattr(old, part) + getattr(one, part) for part in ("ledgers", "entries", "bytes", "disk_bytes"))
        summed[name] = OwnerUsage(name, "", *sums)

    for one in owners:
        is_system = False
        with suppress(InvalidValue):  # bytes without a topic have an owner's name in brackets
            is_system = parse_topic(one.owner).is_system
        add("(system topics)" if is_system else one.owner, one)
    largest = sorted(summed.values(), key=lambda one: one.bytes)
    small, largest = largest[:-_SHOWN], largest[-_SHOWN:]
    summed.clear()
    for one in small:
        add(f"({len(small):,} smaller, -o table shows all)", one)
    return [*summed.values(), *largest]


def _file_column(files: tuple[FileUsage, ...]) -> Column:
    """Return the column of file paths without their common directories."""
    directories = (file.path.split("/")[:-1] for file in files)
    shared = sum(1 for _ in takewhile(lambda names: len(set(names)) == 1, zip(*directories, strict=False)))
    return Column("FILE", lambda row: "/".join(row.path.split("/")[shared:]))
