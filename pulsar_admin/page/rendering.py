"""Rendering the page as one HTML file, whose content security policy lets nothing else load or run.

Every text is escaped as markup, with invisible characters shown (``_shown``); long names are cut (``clipped``).
"""

import errno
import json
import os
import re
from base64 import b64encode
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from hashlib import sha256
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from pulsar_admin.columns import kind_of, render_cell, size_text, time_text
from pulsar_admin.cures import cure_of, look_first
from pulsar_admin.page import charts
from pulsar_admin.page.charts import Bars, amount, shares
from pulsar_admin.page.texts import age_text, clipped
from pulsar_admin.page.values import Due, Page, Rest, Share
from pulsar_admin.store.facts.file_sums import DiskTotals
from pulsar_admin.store.files import raise_write_error, write_new_file
from pulsar_admin.store.reports.timeline import Timeline
from pulsar_admin.store.rules.finding import Finding, Severity
from pulsar_admin.store.rules.rule import Rule
from pulsar_admin.store.timespec import format_duration_ms
from pulsar_admin.store.wording import counted, plural
from pulsar_admin.typable import typable
from pulsar_admin.visible import clean_text

FINDINGS_SHOWN = 200
ROWS = 100
"""Rows of topics that are shown at once, and those that are there without JavaScript and on paper."""
_EVIDENCE_SHOWN = 12
_TEXT_MAX = 1200
Numbered = tuple[int, Finding]
"""A finding and its number on the page."""
_WORD = re.compile("[A-Z]")
_FIRST_TIME_MS = 10**12  # 2001
_NAMESPACES_SHOWN = 12
_BARS_MAX = 120


def left_out(rest: Rest, noun: str) -> str:
    """Return a sentence that counts what the page does not show."""
    parts = [
        counted(rest.entries, "entry") if rest.entries else "",
        size_text(rest.size_bytes) if rest.size_bytes else "",
        f"{counted(rest.backlog_entries, 'entry')} of backlog" if rest.backlog_entries else "",
    ]
    more = ", ".join(filter(None, parts)) or "nothing in them"
    return f"Not shown: {counted(rest.count, noun)} more, with {more}."


# -- findings ------------------------------------------------------------------------------------------------------------


def grouped(findings: Sequence[Finding]) -> tuple[list[list[Numbered]], Counter[tuple[Severity, str]]]:
    """Return the first ``FINDINGS_SHOWN`` findings, grouped by code, and the number of the others by severity and code."""
    shown = enumerate(findings[:FINDINGS_SHOWN], 1)
    groups = groupby(shown, key=lambda item: (item[1].severity, item[1].code))
    rest = Counter((finding.severity, finding.code) for finding in findings[FINDINGS_SHOWN:])
    return [list(group) for _, group in groups], rest


def headline(group: Sequence[Numbered], rules: Mapping[str, Rule[Any]]) -> str:
    """Return the headline of several findings of one code."""
    code = group[0][1].code
    return f"{rules[code].title if code in rules else code}: {len(group):,} times"


def sentence(text: str) -> str:
    """Return a text with a capital at its beginning, unless its first word is a name."""
    return text[:1].upper() + text[1:] if text.partition(" ")[0].isalpha() else text


def split_code(text: str) -> list[str]:
    """Return a text split at backticks: the second, fourth … piece is code."""
    return clipped(text, _TEXT_MAX).split("`")


def evidence(finding: Finding) -> tuple[list[tuple[str, str]], int]:
    """Return a finding's evidence as (key in words, value as text), and the number of items that are not shown.

    Leaves out empty values and those equal to ``finding.where``.
    """
    said: tuple[object, ...] = (None, "", [], (), finding.where)
    found = [(key, value) for key, value in finding.evidence.items() if value not in said]
    shown = [
        (_WORD.sub(lambda word: f" {word[0].lower()}", key), _value(key, value))
        for key, value in found[:_EVIDENCE_SHOWN]
    ]
    return shown, len(found) - len(shown)


def _value(key: str, value: object) -> str:
    if isinstance(value, (list, tuple)):
        return clipped(", ".join(_value(key, one) for one in value), _TEXT_MAX)
    if isinstance(value, int) and value >= _FIRST_TIME_MS and "bytes" not in key.lower():
        return time_text(value)
    kind = "size" if key.lower().endswith("bytes") else kind_of(key, value)
    return clipped(render_cell(value, kind), _TEXT_MAX)


def at_stake(group: Sequence[Numbered]) -> str:
    """Return the messages and bytes at stake in a group of findings as text, "" if none are known."""
    messages = sum(finding.at_stake_messages for _, finding in group)
    size = sum(finding.at_stake_bytes for _, finding in group)
    parts = [counted(messages, "message") if messages else "", size_text(size) if size else ""]
    return ", ".join(filter(None, parts))


# -- disk ----------------------------------------------------------------------------------------------------------------


class Logs(NamedTuple):
    """The bytes of the entry logs as one bar: its caption, the x, width and name of its parts, and each part in words."""

    total: int
    label: str = ""
    shares: Sequence[tuple[float, float, str]] = ()
    said: Sequence[tuple[str, str]] = ()


def logs(value: DiskTotals) -> Logs:
    """Return the live, dead and other bytes of the entry logs."""
    parts = (
        ("live", "live", value.live_bytes),
        ("dead", "dead: of ledgers without metadata", value.dead_bytes),
        ("other", "headers, damage and unused", value.other_bytes),
    )
    total = sum(size for _, _, size in parts)
    said = [(name, f"{size_text(size)} {words}") for name, words, size in parts if size]
    label = f"{size_text(total)} in entry logs: {'; '.join(words for _, words in said)}"
    return Logs(total, label, [*shares([(name, size) for name, _, size in parts if size])], said)


def namespaces(rows: Iterable[Share]) -> Iterator[tuple[str, int, int, int]]:
    """Yield (name, bytes, bytes that no subscription needs, topics) of the largest namespaces, then of all others together."""
    groups: dict[str, list[Share]] = defaultdict(list)
    for share in rows:
        groups[f"{share.tenant}/{share.namespace}"].append(share)
    ordered = sorted(groups.items(), key=lambda item: -sum(share.size_bytes for share in item[1]))
    shown = [(clipped(name, 80), group) for name, group in ordered[:_NAMESPACES_SHOWN]]
    if rest := [share for _, group in ordered[_NAMESPACES_SHOWN:] for share in group]:
        shown.append((counted(len(ordered) - _NAMESPACES_SHOWN, "more namespace"), rest))
    for name, group in shown:
        sizes, done = sum(share.size_bytes for share in group), sum(share.done_bytes for share in group)
        yield name, sizes, done, sum(share.topics for share in group)


# -- traffic and delayed messages ----------------------------------------------------------------------------------------


class Figure(NamedTuple):
    """Messages and bytes of a topic over time: bars, totals, the most in one bucket of ``width``, and all as text."""

    name: str
    said: str
    width: str = ""
    charts: Sequence[tuple[Bars, str, str, str]] = ()


def figure(line: Timeline) -> Figure:
    """Return the charts of a topic's messages and bytes over time; without charts if no entry has a time."""
    notes = [
        (line.entries_outside, "outside this time"),
        (line.entries_without_time, "without a time"),
        (line.missing_entries, "in no file here"),
        (line.unreadable_entries, "unreadable"),
    ]
    said = ", ".join(f"{counted(count, 'entry')} {words}" for count, words in notes if count)
    name = str(line.topic).removeprefix("persistent://")
    if not line.buckets:
        return Figure(name, said)
    width = format_duration_ms(_width_of(line))
    charts = []
    for unit, whole in (("messages", line.messages), ("bytes", line.bytes)):
        width_ms, start_ms = _width_of(line), line.buckets[0].time_ms
        counts = [0] * ((line.buckets[-1].time_ms - start_ms) // width_ms + 1)
        for bucket in line.buckets:
            counts[(bucket.time_ms - start_ms) // width_ms] += getattr(bucket, unit)
        chart = Bars(start_ms, width_ms, counts, unit)
        total, most = amount(whole, unit), amount(max(chart.counts), unit)
        label = f"{unit} of {clipped(name)} per {width}: {total} in all, at most {most}"
        charts.append((chart, total, most, label))
    return Figure(name, said, width, charts)


def _width_of(line: Timeline) -> int:
    """Return the width of a bar in ms: the timeline's bucket, or a multiple of it for at most ``_BARS_MAX`` bars."""
    buckets = (line.buckets[-1].time_ms - line.buckets[0].time_ms) // line.bucket_ms + 1
    return line.bucket_ms * -(-buckets // _BARS_MAX)


def due_bars(value: Due) -> Bars:
    """Return the chart of delayed entries by due time."""
    return Bars(value.start_ms, value.width_ms, value.counts, "entries")


def time_ends(chart: Bars) -> Iterator[str]:
    """Yield a chart's start, middle and end time as text."""
    end_ms = chart.start_ms + chart.width_ms * len(chart.counts)
    for time_ms in (chart.start_ms, (chart.start_ms + end_ms) // 2, end_ms):
        yield time_text(time_ms)[:19].replace("T", " ")


# -- topics --------------------------------------------------------------------------------------------------------------


def data(page: Page) -> dict[str, object]:
    """Return the table of topics by columns; namespaces and subscription names are lists that columns refer to by index."""
    spaces = list(dict.fromkeys(clipped(row.namespace) for row in page.topics))
    worst = list(dict.fromkeys(clipped(row.worst, 60) for row in page.topics))
    space_of = {name: index for index, name in enumerate(spaces)}
    worst_of = {name: index for index, name in enumerate(worst)}
    return {
        "rows": ROWS,
        "total": len(page.topics) + page.topics_rest.count,
        "now": page.now_ms,
        "spaces": spaces,
        "worsts": worst,
        "space": [space_of[clipped(row.namespace)] for row in page.topics],
        "name": [clipped(row.name) for row in page.topics],
        "entries": [row.entries for row in page.topics],
        "size": [row.size_bytes for row in page.topics],
        "ledgers": [row.ledgers for row in page.topics],
        "subscriptions": [row.subscriptions for row in page.topics],
        "backlog": [row.backlog_entries for row in page.topics],
        "worst": [worst_of[clipped(row.worst, 60)] for row in page.topics],
        "oldest": [row.oldest_ms for row in page.topics],
        "findings": [row.findings for row in page.topics],
    }


# -- the file ----------------------------------------------------------------------------------------------------------

_FOLDER = Path(__file__).parent
_LOADER: Any = __spec__.loader  # from a folder or from the archive that Spark's executors have
_PALETTES: dict[str, dict[str, str]] = json.loads(_LOADER.get_data(str(_FOLDER / "palettes.json")))
LIGHT, DARK = _PALETTES["light"], _PALETTES["dark"]


def style_of_palettes() -> str:
    """Return the CSS variables of both palettes: by the system's preference or the page's switch, and light for printing."""
    light, dark = _variables(LIGHT, "light"), _variables(DARK, "dark")
    return (
        f":root{{{light}}}\n"
        f"@media (prefers-color-scheme:dark){{:root{{{dark}}}}}\n"
        f":root:has(#scheme-light:checked){{{light}}}\n"
        f":root:has(#scheme-dark:checked){{{dark}}}\n"
        f"@media print{{:root,:root:has(input:checked){{{light}}}}}\n"
    )


def _variables(palette: dict[str, str], scheme: str) -> str:
    return f"color-scheme:{scheme};" + "".join(f"--{name}:{value};" for name, value in palette.items())


SEVERITIES = {"critical": "▲", "warning": "◆", "note": "●"}
"""Severity → the sign that says it without colour."""
HEADERS = (
    ("Topic", "text"),
    ("Entries", "number"),
    ("Bytes", "size"),
    ("Ledgers", "number"),
    ("Subscriptions", "number"),
    ("Largest backlog", "number"),
    ("Its subscription", "text"),
    ("Its oldest entry", "age"),
    ("Findings", "number"),
)
_MADE = (
    *(clipped, typable, cure_of, look_first, counted, plural, charts.treemap, charts.fold),
    *(charts.blocks, charts.strip_parts, charts.strip_label, charts.ledger_marks, charts.bars),
    *(left_out, grouped, headline, sentence, split_code, evidence, at_stake),
    *(logs, namespaces, figure, due_bars, time_ends, data),
)
"""Filters of the template, by their own names."""


def render_page(page: Page) -> bytes:
    """Return the page as HTML that needs no other file and no network, and JavaScript only to sort, filter and copy."""
    # Neither file has "</": text between these tags is not escaped.
    style = style_of_palettes() + (_FOLDER / "page.css").read_text("utf-8")
    script = (_FOLDER / "page.js").read_text("utf-8")
    policy = (
        f"default-src 'none'; style-src {_digest(style)}; script-src {_digest(script)}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    made = _environment().get_template("page.html")
    return made.render(page=page, policy=policy, style=Markup(style), script=Markup(script)).encode()


def _digest(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


@cache
def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(_FOLDER / "templates"),
        autoescape=True,
        finalize=_shown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.policies["json.dumps_kwargs"] = {"ensure_ascii": False, "separators": (",", ":")}
    made.filters.update((function.__name__, function) for function in _MADE)
    made.filters.update(number="{:,}".format, size=size_text, time=time_text, age=age_text, duration=format_duration_ms)
    made.globals.update(signs=SEVERITIES, states=charts.STATE_NAMES, hatchings=charts.HATCHINGS)
    made.globals.update(headers=HEADERS, rows=ROWS)
    return made


def _shown(value: object) -> object:
    """Return a value as text with invisible characters made visible, before it is escaped; safe markup stays unchanged."""
    if isinstance(value, Markup):
        return value
    if isinstance(value, float):
        value = f"{value:.2f}".rstrip("0").rstrip(".")
    return clean_text(str(value))


def check_new(path: Path) -> None:
    """Raise AlreadyExists or NotFound if ``write_page`` could not write the file; called before long work."""
    if os.path.lexists(path):
        raise_write_error(OSError(errno.EEXIST, os.strerror(errno.EEXIST)), path)
    if not path.parent.is_dir():
        raise_write_error(OSError(errno.ENOENT, os.strerror(errno.ENOENT)), path)


def write_page(path: Path, page: Page) -> int:
    """Write a page into a new file and return its size in bytes; raises AlreadyExists, StoreBusy, DiskFull."""
    made = render_page(page)
    write_new_file(path, made)
    return len(made)
