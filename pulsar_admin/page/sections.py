"""The parts of the page: findings, disk, subscriptions, traffic, delayed messages."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import groupby

from pulsar_admin.columns import kind_of, render_cell, size_text, time_text
from pulsar_admin.cures import cure_of, look_first
from pulsar_admin.page.ages import age_text
from pulsar_admin.page.charts import STATE_NAMES, Bars, amount, bars, legend, share_bar, share_of_bar, strip
from pulsar_admin.page.markup import Markup, clipped, element, joined
from pulsar_admin.page.topics import left_out
from pulsar_admin.page.treemap import fold, treemap
from pulsar_admin.page.values import Disk, Due, Page, Share, Standing, Traffic
from pulsar_admin.typable import typable
from store.reports.strips import STATES
from store.reports.timeline import Timeline
from store.rules.finding import Finding
from store.timespec import format_duration_ms
from store.wording import counted, plural

SEVERITIES = {"critical": "▲", "warning": "◆", "note": "●"}
"""Severity → the sign that says it without colour."""
FINDINGS_SHOWN = 200
_EVIDENCE_SHOWN = 12
_TEXT_MAX = 1200
Numbered = tuple[int, Finding]
"""A finding and its number on the page."""
Pair = tuple[str, str | None]
"""A name and what it stands for; None is left out."""
_WORD = re.compile("[A-Z]")
_FIRST_TIME_MS = 10**12  # 2001
_NAMESPACES_SHOWN = 12
_BARS_MAX = 120


def short_name(topic: str) -> str:
    """Return TOPIC without the scheme that all of them have."""
    return topic.removeprefix("persistent://")


def badge(severity: str) -> Markup:
    """Return the sign and the word of SEVERITY."""
    sign = element("span", SEVERITIES.get(severity, "●"), aria_hidden="true")
    return element("span", sign, " ", severity, class_=f"badge {severity if severity in SEVERITIES else 'note'}")


# -- findings ------------------------------------------------------------------------------------------------------------


def findings(page: Page) -> Markup:
    """Return the findings, worst first as they are given, those of a code in one card; beyond ``FINDINGS_SHOWN`` their number by code."""
    if not page.findings:
        return element("p", "Nothing was found.", class_="none")
    shown = enumerate(page.findings[:FINDINGS_SHOWN], 1)
    groups = groupby(shown, key=lambda item: (item[1].severity, item[1].code))
    items = [element("li", _card(list(group), page.titles)) for _, group in groups]
    rest = Counter((finding.severity, finding.code) for finding in page.findings[FINDINGS_SHOWN:])
    more = [element("li", badge(severity), f" {code}: {count:,}") for (severity, code), count in rest.items()]
    tail = [
        element("p", f"{counted(sum(rest.values()), 'more finding')}, by code:"),
        element("ul", joined(more), class_="codes"),
    ]
    return joined([element("ol", joined(items), class_="findings"), *(tail if more else [])])


def _card(group: Sequence[Numbered], titles: Mapping[str, str]) -> Markup:
    """Return findings of one code: what is common to them once."""
    number, first = group[0]
    broker = ("A broker will", _prose(first.broker) if first.broker else None)
    page = ("More", element("code", first.page))
    name = f"finding {first.severity}"
    if len(group) == 1:
        mend = ("What repairs it", _command(first, number))
        rows = _pairs(("Evidence", _evidence(first)), ("At stake", _at_stake([first])), broker, mend, page)
        return element("article", _heading(first, first.message), _where(first), rows, class_=name)
    title = titles.get(first.code, first.code)
    heading = _heading(first, f"{title}: {len(group):,} times", element("code", first.code))
    rows = _pairs(("At stake", _at_stake([finding for _, finding in group])), broker, page)
    cases = joined(element("li", _case(*item)) for item in group)
    return element("article", heading, rows, element("ol", cases, class_="cases"), class_=name)


def _case(number: int, finding: Finding) -> Markup:
    message = element("h4", element("bdi", clipped(finding.message, _TEXT_MAX)))
    where = element("p", element("bdi", clipped(finding.where, 400)), class_="where")
    return joined([message, where, _evidence(finding), _command(finding, number)])


def _prose(text: str) -> Markup:
    """Return TEXT with what stands between backticks as code."""
    parts = clipped(text, _TEXT_MAX).split("`")
    made = (element("code", part) if index % 2 and index < len(parts) - 1 else part for index, part in enumerate(parts))
    return element("bdi", *made)


def _heading(finding: Finding, text: str, code: Markup | None = None) -> Markup:
    return element("h3", badge(finding.severity), " ", element("bdi", clipped(text, _TEXT_MAX)), code and " ", code)


def _where(finding: Finding) -> Markup:
    return element("p", element("bdi", clipped(finding.where, 400)), " ", element("code", finding.code), class_="where")


def _pairs(*rows: Pair) -> Markup:
    shown = (element("div", element("dt", name), element("dd", value)) for name, value in rows if value is not None)
    return element("dl", joined(shown))


def _evidence(finding: Finding) -> Markup | None:
    """Return names and numbers, each with its key in words; nothing that stands beside them already."""
    said: tuple[object, ...] = (None, "", [], (), finding.where)
    found = {key: value for key, value in finding.evidence.items() if value not in said}
    if not found:
        return None
    items = [
        element(
            "li",
            _WORD.sub(lambda word: f" {word[0].lower()}", key),
            " ",
            element("b", element("bdi", _value(key, value))),
        )
        for key, value in list(found.items())[:_EVIDENCE_SHOWN]
    ]
    if len(found) > _EVIDENCE_SHOWN:
        items.append(element("li", f"{len(found) - _EVIDENCE_SHOWN:,} more"))
    return element("ul", joined(items), class_="evidence")


def _value(key: str, value: object) -> str:
    if isinstance(value, (list, tuple)):
        return clipped(", ".join(_value(key, one) for one in value), _TEXT_MAX)
    if isinstance(value, int) and value >= _FIRST_TIME_MS and "bytes" not in key.lower():
        return time_text(value)
    kind = "size" if key.lower().endswith("bytes") else kind_of(key, value)
    return clipped(render_cell(value, kind), _TEXT_MAX)


def _at_stake(group: Sequence[Finding]) -> str | None:
    messages = sum(finding.at_stake_messages for finding in group)
    size = sum(finding.at_stake_bytes for finding in group)
    parts = [counted(messages, "message") if messages else "", size_text(size) if size else ""]
    return ", ".join(part for part in parts if part) or None


def _command(finding: Finding, number: int) -> Markup | None:
    if not finding.mend:
        return None
    identity = f"command-{number}"
    copy = element(
        "button",
        "Copy",
        type="button",
        class_="copy script",
        hidden=True,
        data_copies=identity,
        aria_label=f"Copy the command of finding {number}",
    )
    look = look_first(finding.mend)
    first = element("p", "Look first: ", element("code", typable(look))) if look else None
    cure = element("code", typable(cure_of(finding.mend)), id=identity)
    return joined(
        part
        for part in (first, element("div", element("pre", cure, tabindex=0), copy, class_="command"))
        if part is not None
    )


# -- disk ----------------------------------------------------------------------------------------------------------------


def disk(page: Page) -> Markup:
    """Return what the disks hold, and who of the living has how much: a picture (one for wide screens and paper, one for narrow
    ones) and numbers."""
    total = sum(share.size_bytes for share in page.shares)
    if not total:
        return joined([_logs(page.disk), element("p", "No topic has entries.", class_="none")])
    tiles = fold(page.shares)
    label = (
        f"Treemap of {size_text(total)} of topics by tenant, namespace and topic; the table below it has the numbers"
    )
    return joined(
        [
            _logs(page.disk),
            element("p", element("b", size_text(total)), " in topics, as brokers count it: one copy", class_="measure"),
            element("div", treemap(tiles, 1080, 440, label), class_="wide"),
            element("div", treemap(tiles, 340, 480, label), class_="narrow"),
            _tile_legend(),
            _namespaces(page.shares, total),
        ]
    )


def _logs(value: Disk) -> Markup | None:
    """Return the bytes of the entry logs as one bar."""
    parts = (
        ("live", "live", value.live_bytes),
        ("dead", "dead: of ledgers without metadata", value.dead_bytes),
        ("other", "headers, damage and unused", value.other_bytes),
    )
    total = sum(size for _, _, size in parts)
    if not total:
        return None
    said = [(name, f"{size_text(size)} {words}") for name, words, size in parts if size]
    items = (
        element("li", element("svg", *share_of_bar(0, 22, name), width=22, height=14, aria_hidden="true"), words)
        for name, words in said
    )
    freed = f"; garbage collection frees {size_text(value.freed_bytes)} of it" if value.freed_bytes else ""
    heading = f" in {counted(value.files, 'entry log')}, every copy counted{freed}"
    label = f"{size_text(total)} in entry logs: {'; '.join(words for _, words in said)}"
    return joined(
        [
            element("p", element("b", size_text(total)), heading, class_="measure"),
            share_bar([(name, size) for name, _, size in parts if size], label),
            element("ul", joined(items), class_="legend"),
        ]
    )


def _tile_legend() -> Markup:
    kinds = (
        ("tile", "some subscription needs it, or it is the last ledger"),
        ("tile done", "no subscription needs it: retention keeps it, or a broker deletes it when it next trims"),
    )
    items = (
        element(
            "li",
            element("svg", element("rect", width=22, height=14, class_=kind), width=22, height=14, aria_hidden="true"),
            words,
        )
        for kind, words in kinds
    )
    return element("ul", joined(items), class_="legend")


def _namespaces(shares: Sequence[Share], total: int) -> Markup:
    groups: dict[str, list[Share]] = defaultdict(list)
    for share in shares:
        groups[f"{share.tenant}/{share.namespace}"].append(share)
    ordered = sorted(groups.items(), key=lambda item: -sum(share.size_bytes for share in item[1]))
    rows = [_namespace_row(clipped(name, 80), group, total) for name, group in ordered[:_NAMESPACES_SHOWN]]
    if rest := [share for _, group in ordered[_NAMESPACES_SHOWN:] for share in group]:
        rows.append(_namespace_row(counted(len(ordered) - _NAMESPACES_SHOWN, "more namespace"), rest, total))
    heads = ("Namespace", "Bytes", "Share", "Topics", "Needed by no subscription")
    head = joined(
        element("th", name, scope="col", class_="number" if index else None) for index, name in enumerate(heads)
    )
    table = element("table", element("thead", element("tr", head)), element("tbody", joined(rows)))
    return element("div", table, class_="scroll", role="region", aria_label="Bytes by namespace", tabindex=0)


def _namespace_row(name: str, shares: Sequence[Share], total: int) -> Markup:
    size, done = sum(share.size_bytes for share in shares), sum(share.done_bytes for share in shares)
    topics = sum(share.topics for share in shares)
    cells = (size_text(size), f"{100 * size / total:.1f} %", f"{topics:,}", size_text(done) if done else "")
    return element(
        "tr",
        element("th", element("bdi", name), scope="row"),
        joined(element("td", cell, class_="number") for cell in cells),
    )


# -- subscriptions -------------------------------------------------------------------------------------------------------


def subscriptions(page: Page) -> Markup:
    """Return a strip for each subscription."""
    if not page.standings:
        return joined(
            [
                element("p", "No subscription has anything left.", class_="none"),
                left_out(page.standings_rest, "subscription"),
            ]
        )
    shown = joined(_standing(value, page.now_ms) for value in page.standings)
    return joined([legend(), element("div", shown, class_="grid"), left_out(page.standings_rest, "subscription")])


def _caption(subscription: str, topic: str) -> Markup:
    names = element("bdi", clipped(subscription, 80)), " of ", element("bdi", clipped(short_name(topic)))
    return element("figcaption", *names)


def _standing(standing: Standing, now_ms: int) -> Markup:
    value = standing.strip
    counts = [
        element("li", element("b", f"{value.count(state):,}"), f" {STATE_NAMES[state]}")
        for state in STATES
        if value.count(state)
    ]
    if standing.oldest_ms is not None:
        counts.append(element("li", "oldest ", element("b", age_text(now_ms - standing.oldest_ms)), " ago"))
    if not value.delays_read:
        counts.append(element("li", "delayed entries were not looked for: the backlog is long"))
    ledgers = counted(len(value.ledger_starts), "ledger")
    ends = element(
        "p",
        element("span", f"{value.cells[0].first}"),
        element("span", f"{ledgers}; mark-delete {value.mark_delete}"),
        element("span", f"{value.cells[-1].last}"),
        class_="ends",
    )
    return element(
        "figure",
        _caption(value.subscription, value.topic),
        strip(value),
        ends,
        element("ul", joined(counts), class_="counts"),
        class_="strip-of",
    )


# -- traffic -------------------------------------------------------------------------------------------------------------


def traffic(page: Page) -> Markup:
    """Return messages and bytes over time, a figure a topic."""
    if not page.traffic:
        return element("p", "No topic has entries with a time.", class_="none")
    figures = joined(_traffic(value) for value in page.traffic)
    return joined([element("div", figures, class_="grid"), left_out(page.traffic_rest, "topic")])


def _traffic(value: Traffic) -> Markup:
    line = value.timeline
    notes = [
        (line.entries_outside, "outside this time"),
        (line.entries_without_time, "without a time"),
        (line.missing_entries, "in no file here"),
        (line.unreadable_entries, "unreadable"),
    ]
    said = ", ".join(f"{counted(count, 'entry')} {words}" for count, words in notes if count)
    name = element("figcaption", element("bdi", clipped(short_name(value.topic))))
    if not line.buckets:
        return element("figure", name, element("p", f"No entries with a time. {said}"))
    width = format_duration_ms(_width_of(line))
    parts = []
    for unit, whole in (("messages", line.messages), ("bytes", line.bytes)):
        chart = _bars_of(line, unit)
        total, most = amount(whole, unit), amount(max(chart.counts), unit)
        parts.append(element("p", element("b", total), f", at most {most} in {width}", class_="measure"))
        parts.append(
            bars(chart, f"{unit} of {clipped(short_name(value.topic))} per {width}: {total} in all, at most {most}")
        )
    start_ms, end_ms = line.buckets[0].time_ms, chart.start_ms + len(chart.counts) * chart.width_ms
    ends = _time_ends(start_ms, end_ms)
    return element("figure", name, joined(parts), ends, element("p", said, class_="rest") if said else None)


def _width_of(line: Timeline) -> int:
    """Return the width of a bar: the timeline's, or a multiple so that there are not more than ``_BARS_MAX``."""
    buckets = (line.buckets[-1].time_ms - line.buckets[0].time_ms) // line.bucket_ms + 1
    return line.bucket_ms * -(-buckets // _BARS_MAX)


def _bars_of(line: Timeline, unit: str) -> Bars:
    width, start_ms = _width_of(line), line.buckets[0].time_ms
    counts = [0] * ((line.buckets[-1].time_ms - start_ms) // width + 1)
    for bucket in line.buckets:
        counts[(bucket.time_ms - start_ms) // width] += getattr(bucket, unit)
    return Bars(start_ms, width, counts, unit)


def _time_ends(start_ms: int, end_ms: int) -> Markup:
    texts = (time_text(time_ms)[:19].replace("T", " ") for time_ms in (start_ms, (start_ms + end_ms) // 2, end_ms))
    return element("p", joined(element("span", shown) for shown in texts), class_="ends")


# -- delayed -------------------------------------------------------------------------------------------------------------


def delayed(page: Page) -> Markup:
    """Return when delayed messages fall due, a figure a subscription."""
    if not page.due:
        return element("p", "No delayed messages are waiting.", class_="none")
    figures = element("div", joined(_due(value, page.now_ms) for value in page.due), class_="grid")
    return joined([figures, left_out(page.due_rest, "subscription")])


def _due(value: Due, now_ms: int) -> Markup:
    chart = Bars(value.start_ms, value.width_ms, value.counts, "entries")
    end_ms = value.start_ms + value.width_ms * len(value.counts)
    width = format_duration_ms(value.width_ms)
    label = f"{counted(value.entries, 'entry')} by due time, {width} a bar"
    first = f"first {age_text(now_ms - value.first_ms)}"
    return element(
        "figure",
        _caption(value.subscription, value.topic)
        if value.topic
        else element("figcaption", "All subscriptions together"),
        element(
            "p",
            element("b", counted(value.entries, "entry")),
            f" {plural(value.entries, 'waits', 'wait')}; {first}; at most {max(value.counts):,} in {width}",
            class_="measure",
        ),
        bars(chart, label),
        _time_ends(value.start_ms, end_ms),
    )
