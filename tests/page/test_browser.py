"""The page in a real browser: it works, asks for nothing, runs nothing but its own script, and can be read in light and dark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from pulsar_admin.page.rendering import DARK, LIGHT, ROWS, render_page
from pulsar_admin.page.texts import age_text, clipped
from pulsar_admin.page.values import Page, TopicRow
from tests.page.browser import Watched, chromium
from tests.page.making import HOSTILE, NOW_MS, make_page

pytestmark = pytest.mark.browser

Open = Callable[..., Watched]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:  # Any: playwright's browser
    with chromium() as found:
        yield found


@pytest.fixture
def open_page(browser: Any, tmp_path: Path) -> Iterator[Open]:
    """Open a page's file; at the end nothing was asked for, and the console is empty."""
    opened: list[tuple[Any, Watched]] = []

    def open_it(page: Page, **options: Any) -> Watched:  # Any: playwright's options of a context
        file = tmp_path / f"page-{len(opened)}.html"
        file.write_bytes(render_page(page))
        context = browser.new_context(**options)
        opened.append((context, Watched(context.new_page(), file)))
        return opened[-1][1]

    yield open_it
    for context, watched in opened:
        assert watched.requests == []
        assert watched.errors == []
        context.close()


def _texts(watched: Watched, selector: str) -> list[str]:
    found: list[str] = watched.page.locator(selector).all_text_contents()
    return found


def test_the_table_sorts_filters_and_turns_pages(open_page: Open) -> None:
    page = make_page(topics=10_000)
    watched = open_page(page)
    rows = sorted(page.topics, key=lambda row: -row.entries)
    watched.page.get_by_role("button", name="Entries").click()
    assert _texts(watched, "#topics-table tbody td:nth-child(2)") == [f"{row.entries:,}" for row in rows[:ROWS]]
    assert watched.page.locator("#topics-table th[aria-sort=descending]").inner_text().startswith("Entries")
    watched.page.get_by_role("button", name="Next").click()
    assert _texts(watched, "#topics-table tbody th")[0] == f"{rows[ROWS].namespace}/{rows[ROWS].name}"
    watched.page.get_by_label("contains").fill("SPACE-7/topic-0000")
    wanted = [row for row in rows if f"{row.namespace}/{row.name}".startswith("acme/space-7/topic-0000")]
    assert _texts(watched, "#topics-table tbody th") == [f"{row.namespace}/{row.name}" for row in wanted]
    assert _texts(watched, "#topics-shown")[0].startswith(f"1 to {len(wanted)} of {len(wanted)} topic")
    watched.page.get_by_label("contains").fill("no such topic")
    assert _texts(watched, "#topics-table tbody tr") == []
    watched.page.get_by_label("contains").fill("")
    watched.page.get_by_label("with a backlog").check()
    count = sum(row.backlog_entries > 0 for row in page.topics)
    assert f"of {count:,} topics" in _texts(watched, "#topics-shown")[0]
    assert len(_texts(watched, "#topics-table tbody tr")) == ROWS


@pytest.mark.parametrize("kind", ["text", "size", "age"])
def test_sorting_both_ways(open_page: Open, kind: str) -> None:
    page = make_page(topics=250)
    watched = open_page(page)
    name, key = {
        "text": ("Topic", lambda row: f"{row.namespace}/{row.name}"),
        "size": ("Bytes", lambda row: row.size_bytes),
        "age": ("Its oldest entry", lambda row: NOW_MS - row.oldest_ms),
    }[kind]
    found = []
    for _ in range(2):
        watched.page.get_by_role("button", name=name).click()
        found.append(_texts(watched, "#topics-table tbody th"))
    if kind != "text":
        found.reverse()
    for up, names in zip((True, False), found, strict=True):
        rows = sorted(page.topics, key=key, reverse=not up)
        assert names == [f"{row.namespace}/{row.name}" for row in rows[:ROWS]]


def test_findings_are_searched(open_page: Open) -> None:
    one, *others = make_page(("orders", "payments", "audit")).findings
    alike = replace(one, where="where refunds")  # type: ignore[type-var]
    watched = open_page(replace(make_page(), findings=(one, alike, *others)))
    for words, shown in (("REFUNDS", ["where refunds"]), ("code-0", ["where orders", "where refunds"]), ("nope", [])):
        watched.page.get_by_label("Findings about").fill(words)
        assert list(watched.page.locator(".where >> visible=true").all_inner_texts()) == shown
    watched.page.get_by_label("Findings about").fill("")
    assert watched.page.locator(".findings > li >> visible=true").count() == 3


def test_without_javascript_findings_charts_and_rows_are_there(open_page: Open) -> None:
    page = make_page(topics=ROWS)
    with_script, without = open_page(page), open_page(page, java_script_enabled=False)
    for selector in ("article h3", "figcaption", "#topics-table tbody tr"):
        of_template, of_script = (
            [text.replace("\n", "") for text in _texts(one, selector)] for one in (without, with_script)
        )
        assert of_template == of_script
    assert without.page.locator("svg.strip").is_visible()
    assert without.page.locator("svg.treemap >> visible=true").count() == 1
    for hidden in (".copy", ".tools", "#topics-next"):
        assert not without.page.locator(hidden).first.is_visible()


def test_script_and_python_write_numbers_alike(open_page: Open) -> None:
    sizes = [0, 1, 999, 1000, 1023, 1024, 10_239, 1_023_999, 1_024_000, 5 << 30, 999 << 40, 7 << 50]
    ages = [0, 999, 1000, 60_000, 61_999, 3_600_000, 86_399_999, 90_000_000, 400 * 86_400_000, -5000, -90_000_000]
    rows = tuple(
        TopicRow("a/b", f"t{index}", size, size, 1, 1, 1, "s", NOW_MS - age)
        for index, (size, age) in enumerate(zip(sizes, [*ages, 0], strict=True))
    )
    page = replace(make_page(), topics=rows)
    with_script, without = open_page(page), open_page(page, java_script_enabled=False)
    assert _texts(with_script, "#topics-table tbody td") == _texts(without, "#topics-table tbody td")
    assert _texts(without, "#topics-table tbody td:nth-child(8)")[7] == age_text(ages[7]) == "1d 1h"


def test_hostile_names_are_inert(open_page: Open) -> None:
    watched = open_page(make_page(HOSTILE))
    assert watched.page.evaluate("window.broken") is None
    assert (
        watched.page.evaluate("document.images.length + document.querySelectorAll('[style],[onmouseover]').length") == 0
    )
    assert watched.page.evaluate("document.scripts.length") == 2
    watched.page.get_by_label("contains").fill("<script>")
    shown = _texts(watched, "#topics-table tbody th")
    assert shown == [
        f"acme/space-{number}/{clipped(name)}" for number, name in enumerate(HOSTILE) if "<script>" in name
    ]
    assert watched.page.evaluate("document.documentElement.scrollWidth") <= 1280


@pytest.mark.parametrize("width", [1280, 768, 390, 320])
def test_nothing_is_wider_than_the_screen(open_page: Open, width: int) -> None:
    watched = open_page(make_page(HOSTILE, topics=20), viewport={"width": width, "height": 800})
    assert watched.page.evaluate("document.documentElement.scrollWidth") == width


def test_copying_a_command(open_page: Open) -> None:
    page = make_page()
    watched = open_page(page, permissions=["clipboard-read", "clipboard-write"])
    watched.page.get_by_role("button", name="Copy the command of finding 1").click()
    watched.page.get_by_text("Copied").wait_for()
    assert watched.page.evaluate("navigator.clipboard.readText()") == page.findings[0].mend


def _hex(rgb: str) -> str:
    return "#" + "".join(f"{int(part):02x}" for part in rgb.removeprefix("rgb(").removesuffix(")").split(","))


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("chosen", ["system", "light", "dark"])
def test_the_scheme_is_the_systems_or_the_chosen_one(open_page: Open, scheme: str, chosen: str) -> None:
    watched = open_page(make_page(), color_scheme=scheme)
    watched.page.locator(f".scheme label:has(#scheme-{chosen})").click()
    palette = {"light": LIGHT, "dark": DARK}[scheme if chosen == "system" else chosen]
    for selector, colour, name in (
        ("body", "backgroundColor", "ground"),
        ("body", "color", "ink"),
        (".finding", "backgroundColor", "card"),
        (".finding dt", "color", "muted"),
        (".state.unacknowledged", "fill", "unacknowledged"),
        (".treemap .tile", "fill", "tile"),
        (".treemap .tile-name", "fill", "tile-ink"),
    ):
        found = watched.page.locator(selector).first.evaluate(f"node => getComputedStyle(node).{colour}")
        assert _hex(found) == palette[name], selector


def test_paper_is_light_and_has_no_buttons(open_page: Open) -> None:
    watched = open_page(make_page(), color_scheme="dark")
    watched.page.emulate_media(media="print", color_scheme="dark")
    ink = watched.page.locator("h3").first.evaluate("node => getComputedStyle(node).color")
    assert _hex(ink) == LIGHT["ink"]
    for hidden in ("nav", ".scheme", ".copy", "#topics-next"):
        assert not watched.page.locator(hidden).first.is_visible()


def test_every_picture_and_control_has_a_name(open_page: Open) -> None:
    """What a screen reader says: taken from the browser's own accessibility tree."""
    watched = open_page(make_page(("orders", "payments"), topics=5))
    tree = watched.page.locator("body").aria_snapshot()
    assert tree.count('- img "') == tree.count("- img")
    for said in ('heading "Doctor" [level=1]', 'heading "Findings" [level=2]', 'searchbox "Name or subscription contains"',
                 'radio "dark"', 'navigation "Parts of the page"', 'button "Copy the command of finding 2"',
                 'columnheader "Bytes"', 'table "Topics, those with findings first, then by bytes"'):  # fmt: skip
        assert said in tree, said
    for role in ("button", "checkbox", "radio", "searchbox", "columnheader"):
        for line in (line.strip() for line in tree.splitlines() if line.strip().startswith(f"- {role}")):
            assert line.startswith(f'- {role} "'), line


def test_the_keyboard_reaches_every_control_in_order(open_page: Open) -> None:
    watched = open_page(make_page(topics=3))
    reached = []
    for _ in range(60):
        watched.page.keyboard.press("Tab")
        found = watched.page.evaluate(
            "document.activeElement.id || document.activeElement.textContent.trim().slice(0, 20)"
        )
        if found in reached:
            break
        reached.append(found)
    wanted = [
        "To the findings",
        "scheme-system",
        "Findings",
        "finding-search",
        "Copy",
        "topic-filter",
        "with-findings",
        "with-backlog",
    ]
    assert [one for one in reached if one in wanted] == wanted


def test_ten_thousand_topics_are_a_page_of_bounded_size(open_page: Open) -> None:
    page = make_page(topics=10_000)
    assert len(render_page(page)) < 1_500_000
    watched = open_page(page)
    assert len(_texts(watched, "#topics-table tbody tr")) == ROWS
    assert watched.page.evaluate("document.querySelectorAll('*').length") < 3_000
