"""``overview``: the whole store on one screen."""

import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

import click
from msgspec import Struct

from pulsar_admin.columns import age_text, size_text, time_text
from pulsar_admin.context import App, Result
from pulsar_admin.numbers import whole
from pulsar_admin.options import command
from pulsar_admin.store.errors import IndexCorrupt, StoreNotFound
from pulsar_admin.store.facts.numbers import Blocker
from pulsar_admin.store.facts.processes import process_ready
from pulsar_admin.store.facts.trees import trees_text
from pulsar_admin.store.model.counts import subscriptions_text, topics_text
from pulsar_admin.store.names import shell_word
from pulsar_admin.store.reports.overview import TOP, Backlog, CopySource, Overview
from pulsar_admin.store.wording import counted, plural
from pulsar_admin.typable import typable

_WIDTH, _HEIGHT = 80, 40
_NAME_LEAST = 20
_OLD_MS = 86_400_000
Cells = Sequence[str]


@command(
    "overview",
    examples=["", "--top 20 -o json"],
    output=(
        "The source and age of the copy, the namespaces and topics with most bytes, the worst backlogs with the age of "
        "their first entry, what keeps bytes on the disks, findings of the doctor, and commands to run next; as much "
        "as fits the terminal, otherwise five rows per list. Bytes of topics are those of their ledgers as brokers "
        "count them; bytes of disks are records, every copy."
    ),
    errors=[StoreNotFound, IndexCorrupt],
    uses=["now", "tz"],
)
@click.option("--top", type=whole(1, 10_000), metavar="N", help="Rows of each list [what fits the terminal, else 5].")
@click.option("--check/--no-check", default=None, help="Count findings of `doctor` [unless the store is large].")
def overview(app: App, top: int | None, check: bool | None) -> Result:
    """Show the whole store on one screen: age, sizes, worst backlogs, disk usage, findings, and what to run next.

    `pulsar-admin` without a command does the same if there is a store.
    """
    with process_ready(app.settings.store, app.settings.jobs):
        found = app.api.overview(top=top or TOP, check=check)
    return Result(found, plain=lambda document: render_overview(document, top))


class Screen(Struct, frozen=True):
    """The space for text: ``rows`` per list, ``width`` in columns (None: unlimited), ``tight``: no empty or folded lines."""

    rows: int
    width: int | None = None
    tight: bool = False


def render_overview(found: Overview, top: int | None) -> str:
    """Return the overview as text with ``top`` rows per list; None: as many as fit the terminal, or five if there is none."""
    if not sys.stdout.isatty():
        return "\n".join(_lines(found, Screen(top or TOP)))
    columns, lines = shutil.get_terminal_size((_WIDTH, _HEIGHT))
    tries = [Screen(rows, columns) for rows in ((top,) if top else range(TOP, 0, -1))]
    screens = [tries[0]] if top else [*tries, Screen(2, columns, tight=True), Screen(1, columns, tight=True)]
    texts = (_lines(found, screen) for screen in screens)
    fitting = (text for text in texts if sum(1 + max(len(line) - 1, 0) // columns for line in text) < lines)
    return "\n".join(next(fitting, _lines(found, screens[-1])))


def _lines(found: Overview, screen: Screen) -> list[str]:
    """Return the lines of all sections, cut to the width of ``screen`` except for commands, which are to be pasted."""
    parts = [_head(found, screen), *(section(found, screen) for section in _SECTIONS)]
    gap = () if screen.tight else ("",)
    lines = [_cut(line, screen.width) for part in parts if part for line in (*part, *gap)]
    questions = [*map(typable, next_questions(found))][: max(screen.rows, 2)]
    return [*lines, "ASK NEXT", *(f"  {line}" for line in questions)]


def _head(found: Overview, screen: Screen) -> list[str]:
    newest = (
        "no entries"
        if found.newest_entry_ms is None
        else f"newest entry {_ago(found.now_ms, found.newest_entry_ms, screen, is_copy=found.now_ms != found.clock_ms)}"
    )
    texts = (
        found.as_of_text,
        f"{found.store}: {'; '.join(map(_copy_text, found.copies)) or 'nothing imported'}",
        f"read {_ago(found.clock_ms, found.copied_ms, screen)}, {newest}",
        f"{counted(found.tenants, 'tenant')}, {counted(len(found.namespaces), 'namespace')}, "
        f"{topics_text(found.topics, 0 if screen.tight else found.system_topics)}, "
        f"{subscriptions_text(found.subscriptions, 0 if screen.tight else found.compactions)}, "
        f"{counted(found.entries, 'entry')}, {size_text(found.bytes)}",
        *([str(found.other_ledgers)] if found.other_ledgers.managed_ledgers else []),
        *([trees_text(found.unknown_trees)] if found.unknown_trees else []),
    )
    return [line for text in texts for line in _folded(text, screen)]


def _copy_text(copy: CopySource) -> str:
    if copy.kind == "bookie":
        return f"bookie {', '.join(copy.bookies)}"
    below = f" at {copy.roots}" if copy.roots else ""
    return f"{copy.kind} {copy.path}{below}" + (f" ({counted(len(copy.bookies), 'bookie')})" if copy.bookies else "")


def _ago(now_ms: int, time_ms: int, screen: Screen, *, is_copy: bool = False) -> str:
    """Return the distance of a time from ``now_ms`` as text; ``is_copy``: ``now_ms`` is the copy's time, not the clock's."""
    age_ms = now_ms - time_ms
    before, ahead = ("before the copy's time", "after the copy's time") if is_copy else ("ago", "AHEAD of now")
    text = f"{age_text(age_ms)} {before}" if age_ms >= 0 else f"{age_text(-age_ms)} {ahead}"
    return text if screen.tight else f"{text} ({time_text(time_ms // 1000 * 1000).replace('.000', '')})"


def _namespaces(found: Overview, screen: Screen) -> list[str]:
    listed = found.namespaces[: screen.rows]
    cells = [
        (row.namespace, f"{row.topics:,}", f"{row.subscriptions:,}", f"{row.backlog_entries:,}", size_text(row.bytes))
        for row in listed
    ]
    rest = found.namespaces[screen.rows :]
    if rest:
        more = f"… and {len(rest):,} more"
        cells.append((more, f"{sum(row.topics for row in rest):,}", f"{sum(row.subscriptions for row in rest):,}",
                      f"{sum(row.backlog_entries for row in rest):,}", size_text(sum(row.bytes for row in rest))))  # fmt: skip
    return _table(("NAMESPACE", "TOPICS", "SUBSCRIPTIONS", "BACKLOG", "SIZE"), cells, screen.width)


def _largest(found: Overview, screen: Screen) -> list[str]:
    cells = [
        (_short(row.topic), f"{row.ledgers:,}", f"{row.entries:,}", _part(row.bytes, found.bytes), size_text(row.bytes))
        for row in found.largest[: screen.rows]
    ]
    return _table(("LARGEST TOPICS", "LEDGERS", "ENTRIES", "OF ALL", "SIZE"), cells, screen.width)


def _backlogs(found: Overview, screen: Screen) -> list[str]:
    if not found.backlogs:
        return ["BACKLOGS: none"]
    cells = [
        (_short(row.topic), row.subscription, f"{row.entries:,}", size_text(row.bytes), _oldest(row))
        for row in found.backlogs[: screen.rows]
    ]
    return _table(("WORST BACKLOGS", "SUBSCRIPTION", "ENTRIES", "SIZE", "OLDEST"), cells, screen.width, texts=2)


def _oldest(row: Backlog) -> str:
    if row.oldest_age_ms is None:
        return "unknown"
    return ("≤ " if row.oldest_source == "block" else "") + age_text(row.oldest_age_ms)


_LITTLE = "<1 %"
_REASONS = {
    "cursor": "backlog",
    "open-ledger": "last ledgers of topics",
    "retention": "retention",
    "retention-unknown": "unknown retention (unreadable policies)",
    "trim": "can be trimmed",
}


def _disks(found: Overview, screen: Screen) -> list[str]:
    disk = found.disk
    lines = [
        f"DISKS  {counted(disk.files, 'entry log')}, {size_text(disk.size_bytes)}: {size_text(disk.live_bytes)} live, "
        f"{size_text(disk.dead_bytes)} dead"
        + (f", {counted(disk.missing_files, 'file')} gone since" if disk.missing_files else "")
    ]
    sizes = found.disk_bytes
    rest = [
        f"{what} {size_text(size)}"
        for what, size in (("journals", sizes.journals), ("leftovers", sizes.leftovers))
        if size
    ]
    if rest:
        lines.append(f"  and {', '.join(rest)}: {size_text(sizes.total)} in all")
    if disk.dead_bytes:
        freed = f"Reclaimable now: {size_text(disk.freed_bytes)} ({counted(disk.freed_logs, 'log')}). "
        stay = "dead" if screen.tight else "of deleted data stay"
        hold = "with" if screen.tight else f"that also {plural(disk.stuck_logs, 'holds', 'hold')}"
        kept = f"{size_text(disk.stuck_bytes)} {stay} in {counted(disk.stuck_logs, 'log')} {hold} live ledgers."
        lines += _folded("  " + (freed if disk.freed_logs else "") + kept, screen)
    parts = [
        (text, _part(found.held[reason], found.bytes)) for reason, text in _REASONS.items() if found.held.get(reason)
    ]
    held = ", ".join(f"{text} {part}" for text, part in parts if not screen.tight or part != _LITTLE)
    cells = [(_short(row.topic), _blocker(row), size_text(row.bytes)) for row in found.blockers[: screen.rows]]
    title = "Why bytes are kept" if screen.tight else "Why bytes of topics are kept"
    kept_by = _folded(f"  {title}: {held}", screen) if held else []
    table = _table(
        ("  LARGEST HOLDERS: TOPIC", "HELD BY", "SIZE"),
        [(f"  {one[0]}", *one[1:]) for one in cells],
        screen.width,
        texts=2,
    )
    return [*lines, *kept_by, *table]


def _blocker(row: Blocker) -> str:
    ledgers = counted(row.ledgers, "ledger")
    more = f" and {row.others} more" if row.others else ""
    by = {
        "cursor": f"subscription {row.subscription}{more}",
        "open-ledger": "last ledger",
        "retention": "retention",
        "retention-unknown": "unknown retention",
    }
    return by[row.reason] + (f", {ledgers}" if row.reason != "open-ledger" else "")


def _findings(found: Overview, screen: Screen) -> list[str]:
    if found.findings is None:
        return ["FINDINGS: not checked; --check checks, which takes minutes on a large store"]
    if not found.findings:
        return ["FINDINGS: none"]
    sums = ", ".join(
        counted(sum(one.count for one in some), severity)
        for severity, some in groupby(found.findings, key=lambda one: one.severity)
    )
    listed = [
        f"  {one.severity} {one.count:,} × {one.code}: {one.where.replace('persistent://', '')}"
        + (", …" if one.count > 1 else "")
        for one in found.findings[: screen.rows]
    ]
    rest = len(found.findings) - len(listed)
    return [f"FINDINGS  {sums}", *listed, *([f"  … and {counted(rest, 'more code')}"] if rest else [])]


def next_questions(found: Overview) -> Iterator[str]:
    """Yield the commands to run next, the most urgent first."""
    if found.findings is None or any(one.severity != "note" for one in found.findings) or found.unreadable:
        yield "pulsar-admin doctor"
    if found.copies and all(copy.kind == "bookie" for copy in found.copies):  # no metadata: it may be lost
        yield "pulsar-admin store recover --dry-run"
    for row in found.backlogs[:1]:
        yield f"pulsar-admin topics why {shell_word(_short(row.topic))} -s {shell_word(row.subscription)}"
    for blocker in found.blockers[:1]:
        yield f"pulsar-admin topics describe {shell_word(_short(blocker.topic))}"
    if found.disk.dead_bytes:
        yield "pulsar-admin store usage --by log"
    if found.copy_age_ms > _OLD_MS and found.copies:
        yield "pulsar-admin store refresh"
    yield "pulsar-admin store usage"
    yield "pulsar-admin topics list"


_SECTIONS: tuple[Callable[[Overview, Screen], list[str]], ...] = (
    _namespaces,
    _largest,
    _backlogs,
    _disks,
    _findings,
)


# -- text -------------------------------------------------------------------------------------------------------------


def _short(name: str) -> str:
    return name.removeprefix("persistent://")


def _part(some: int, whole_bytes: int) -> str:
    """Return ``some`` as a percentage of ``whole_bytes``; a share below 1 % is not shown as 0 %."""
    share = 100 * some / whole_bytes if whole_bytes else 0.0
    return _LITTLE if 0 < share < 1 else f"{share:.0f} %"


def _table(headers: Cells, rows: Sequence[Cells], width: int | None, texts: int = 1) -> list[str]:
    """Return ``headers`` and ``rows`` as lines, the first ``texts`` columns aligned left, the others right.

    If ``width`` is too small, names are cut at their beginning.
    """
    if not rows:
        return []
    lines = [*([headers] if headers else []), *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(rows[0]))]
    over = sum(widths) + 2 * (len(widths) - 1) - (width or 10**9)
    for column in sorted(range(texts), key=lambda one: -widths[one]):
        cut = min(max(over, 0), max(widths[column] - _NAME_LEAST, 0))
        widths[column] -= cut
        over -= cut
    return ["  ".join(_cell(text, widths[n], n < texts) for n, text in enumerate(line)).rstrip() for line in lines]


def _cut(line: str, width: int | None) -> str:
    return line.rstrip() if width is None or len(line) <= width else f"{line[: width - 1].rstrip()}…"


def _cell(text: str, width: int, is_left: bool) -> str:
    if len(text) > width:
        indent = len(text) - len(text.lstrip(" "))
        text = " " * indent + "…" + text[len(text) - width + indent + 1 :]
    return text.ljust(width) if is_left else text.rjust(width)


def _folded(text: str, screen: Screen) -> list[str]:
    """Return ``text`` folded to the width of ``screen``, as one line if that is tight or has no width."""
    import textwrap

    if screen.width is None or screen.tight:
        return [text]
    return textwrap.wrap(text, screen.width, subsequent_indent="    ")
