"""The page as bytes: head, parts, style and script in one file, under a policy that lets nothing else load or run."""

from __future__ import annotations

from base64 import b64encode
from collections import Counter
from hashlib import sha256
from importlib.resources import files

from pulsar_admin.columns import time_text
from pulsar_admin.page import sections
from pulsar_admin.page.charts import patterns
from pulsar_admin.page.markup import Markup, clipped, element, joined
from pulsar_admin.page.palette import style_of_palettes
from pulsar_admin.page.topics import topic_table
from pulsar_admin.page.values import Page

_SECTIONS = (
    ("findings", "Findings", sections.findings),
    ("disk", "Who fills the disk", sections.disk),
    ("subscriptions", "Subscriptions", sections.subscriptions),
    ("traffic", "Traffic", sections.traffic),
    ("delayed", "Delayed messages", sections.delayed),
    ("topics", "Topics", topic_table),
)


def render_page(page: Page) -> bytes:
    """Return PAGE as HTML that needs no other file, no network, and JavaScript only to sort, filter and copy."""
    body = element(
        "body",
        element("a", "To the findings", href="#findings", class_="skip"),
        patterns(),
        _header(page),
        _navigation(),
        element("main", joined(_section(page, *row) for row in _SECTIONS), _unread(page)),
        _footer(page),
        _inline("script", "page.js"),
    )
    return f"<!DOCTYPE html>\n{element('html', _head(page), body, lang='en')}\n".encode()


def _read(name: str) -> str:
    text = files("pulsar_admin.page").joinpath(name).read_text("utf-8")
    return style_of_palettes() + text if name.endswith(".css") else text


def _inline(tag: str, name: str) -> Markup:
    # Neither file has "</": what is between the tags is not escaped.
    return Markup(f"<{tag}>{_read(name)}</{tag}>")


def _digest(name: str) -> str:
    return f"'sha256-{b64encode(sha256(_read(name).encode()).digest()).decode()}'"


def _head(page: Page) -> Markup:
    policy = (
        f"default-src 'none'; style-src {_digest('page.css')}; script-src {_digest('page.js')}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    return element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="referrer", content="no-referrer"),
        element("link", rel="icon", href="data:,"),
        element("title", clipped(f"{page.title}: {page.source}", 120)),
        _inline("style", "page.css"),
    )


def _header(page: Page) -> Markup:
    counts = Counter(str(finding.severity) for finding in page.findings)
    chips = [
        element("li", sections.badge(severity), element("b", f" {counts[severity]:,}"))
        for severity in sections.SEVERITIES
    ]
    facts = (
        element(
            "div",
            element("dt", fact.label),
            element("dd", element("b", fact.value), element("small", fact.note) if fact.note else None),
        )
        for fact in page.facts
    )
    return element(
        "header",
        element("h1", page.title),
        element("p", page.as_of, class_="source") if page.as_of else None,
        element("p", element("bdi", clipped(page.source, 300)), class_="source"),
        element("ul", joined(chips), class_="chips", aria_label="Findings by severity"),
        element("dl", joined(facts), class_="facts"),
        _switch(),
    )


def _switch() -> Markup:
    """Return the choice between light and dark, which CSS alone obeys."""
    choices = (
        element(
            "label",
            element("input", type="radio", name="scheme", id=f"scheme-{name}", checked=name == "system"),
            element("span", name),
        )
        for name in ("system", "light", "dark")
    )
    return element("fieldset", element("legend", "Colours"), joined(choices), class_="scheme")


def _navigation() -> Markup:
    links = (element("li", element("a", title, href=f"#{name}")) for name, title, _ in _SECTIONS)
    return element("nav", element("ul", joined(links)), aria_label="Parts of the page")


def _section(page: Page, name: str, title: str, make: object) -> Markup:
    body = make(page)  # type: ignore[operator]
    return element("section", element("h2", title, id=f"{name}-title"), body, id=name, aria_labelledby=f"{name}-title")


def _unread(page: Page) -> Markup | None:
    if not page.unread:
        return None
    items = joined(element("li", element("bdi", clipped(line, 600))) for line in page.unread[:50])
    heading = element("h2", "Could not be read", id="unread-title")
    more = element("p", f"{len(page.unread) - 50:,} more") if len(page.unread) > 50 else None
    return element("section", heading, element("ul", items), more, id="unread", aria_labelledby="unread-title")


def _footer(page: Page) -> Markup:
    made = time_text(page.now_ms if page.made_ms is None else page.made_ms)
    return element(
        "footer",
        element(
            "p",
            f"Made at {made} by `doctor --html` of pulsar-admin, from a copy of the files.",
        ),
    )
