"""The table of topics: some rows as HTML, all of them as data that the page's script sorts, filters and turns over.

A topic takes some 60 bytes and its name. The script makes texts only, never markup.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pulsar_admin.columns import size_text
from pulsar_admin.page.ages import age_text
from pulsar_admin.page.markup import Markup, clipped, data_block, element, joined
from pulsar_admin.page.values import Page, Rest, TopicRow
from store.wording import counted

ROWS = 100
"""Rows that are shown at once, and those that are there without JavaScript and on paper."""
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
_NAMESPACES_SHOWN = 40


def topic_table(page: Page) -> Markup:
    """Return the table, what is above it, what was left out of it, and its data."""
    return joined(
        [
            _tools(page),
            element(
                "div",
                _table(page.topics[:ROWS], page.now_ms),
                class_="scroll",
                role="region",
                aria_label="Table of topics",
                tabindex=0,
            ),
            _pager(page),
            left_out(page.topics_rest, "topic"),
            _by_namespace(page.rest_by_namespace),
            data_block("topics-data", _data(page)),
        ]
    )


def left_out(rest: Rest, noun: str) -> Markup | None:
    """Return a sentence on what is not shown, None when that is nothing."""
    if not rest.count:
        return None
    parts = [
        counted(rest.entries, "entry") if rest.entries else "",
        size_text(rest.size_bytes) if rest.size_bytes else "",
        f"{counted(rest.backlog_entries, 'entry')} of backlog" if rest.backlog_entries else "",
    ]
    more = ", ".join(part for part in parts if part) or "nothing in them"
    return element("p", f"Not shown: {counted(rest.count, noun)} more, with {more}.", class_="rest")


def _tools(page: Page) -> Markup:
    field = element("input", id="topic-filter", type="search", autocomplete="off", spellcheck="false")
    return element(
        "form",
        element("label", "Name or subscription contains", for_="topic-filter"),
        field,
        element("label", element("input", id="with-findings", type="checkbox"), "with findings"),
        element("label", element("input", id="with-backlog", type="checkbox"), "with a backlog"),
        class_="tools script",
        role="search",
        aria_label="Filter topics",
        hidden=True,
    )


def _pager(page: Page) -> Markup:
    shown = min(len(page.topics), ROWS)
    return element(
        "div",
        element(
            "p",
            f"{shown:,} of {counted(len(page.topics) + page.topics_rest.count, 'topic')}",
            id="topics-shown",
            role="status",
        ),
        element("button", "Previous", type="button", id="topics-previous", class_="script", hidden=True),
        element("button", "Next", type="button", id="topics-next", class_="script", hidden=True),
        class_="pager",
    )


def _table(rows: Sequence[TopicRow], now_ms: int) -> Markup:
    heads = (
        element("th", name, scope="col", class_=None if kind == "text" else "number", data_kind=kind)
        for name, kind in HEADERS
    )
    return element(
        "table",
        element("caption", "Topics, those with findings first, then by bytes", class_="spoken"),
        element("thead", element("tr", joined(heads))),
        element("tbody", joined(_row(row, now_ms) for row in rows)),
        id="topics-table",
    )


def _row(row: TopicRow, now_ms: int) -> Markup:
    cells = (
        f"{row.entries:,}",
        size_text(row.size_bytes),
        f"{row.ledgers:,}",
        f"{row.subscriptions:,}",
        f"{row.backlog_entries:,}" if row.backlog_entries else "",
        clipped(row.worst, 60),
        "" if row.oldest_ms is None else age_text(now_ms - row.oldest_ms),
        f"{row.findings:,}" if row.findings else "",
    )
    made = (
        element("td", element("bdi", value) if kind == "text" else value, class_=None if kind == "text" else "number")
        for value, (_, kind) in zip(cells, HEADERS[1:], strict=True)
    )
    return element(
        "tr", element("th", element("bdi", clipped(f"{row.namespace}/{row.name}")), scope="row"), joined(made)
    )


def _by_namespace(rests: Mapping[str, Rest]) -> Markup | None:
    if not rests:
        return None
    ordered = sorted(rests.items(), key=lambda item: -item[1].size_bytes)
    items = [
        element("li", element("bdi", clipped(name)), f": {counted(rest.count, 'topic')}, {size_text(rest.size_bytes)}")
        for name, rest in ordered[:_NAMESPACES_SHOWN]
    ]
    if len(ordered) > _NAMESPACES_SHOWN:
        more = sum(rest.count for _, rest in ordered[_NAMESPACES_SHOWN:])
        items.append(
            element("li", f"{counted(len(ordered) - _NAMESPACES_SHOWN, 'more namespace')}: {counted(more, 'topic')}")
        )
    return element("details", element("summary", "Topics not shown, by namespace"), element("ul", joined(items)))


def _data(page: Page) -> dict[str, object]:
    """Return the rows column by column, namespaces and names of subscriptions once each."""
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
