"""The page as text: it parses, says what it was given, loads nothing, and no name breaks out of its place."""

import json
import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import pytest
from msgspec.structs import replace

from pulsar_admin.page.charts import TILES, Box, fold, squarify
from pulsar_admin.page.rendering import DARK, FINDINGS_SHOWN, LIGHT, render_page
from pulsar_admin.page.texts import clipped
from pulsar_admin.page.values import Page, Share
from pulsar_admin.visible import clean_text
from tests.conftest import Cli
from tests.hostile import FORGED, make_hostile_store
from tests.page.making import HOSTILE, make_page
from tests.stores import imported

_VOID = {"meta", "link", "input", "br"}


class Parsed(HTMLParser):
    """Elements by tag, all attributes, and all text; a close tag that closes nothing fails."""

    def __init__(self, page: bytes) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: Counter[str] = Counter()
        self.attributes: list[tuple[str, str, str]] = []
        self.texts: list[str] = []
        self.feed(page.decode())
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def text(self) -> str:
        return "\n".join(self.texts)


def _data(page: bytes) -> dict[str, list[object]]:
    found = re.search(rb'<script type="application/json" id="topics-data">(.*?)</script>', page, re.S)
    value: dict[str, list[object]] = json.loads(found[1])
    return value


def test_findings_beyond_those_shown_are_counted_by_code() -> None:
    one = replace(make_page().findings[0], code="ledger-missing")
    page = replace(make_page(), findings=(one,) * (FINDINGS_SHOWN + 30))
    parsed = Parsed(render_page(page))
    assert parsed.texts.count(one.message) == FINDINGS_SHOWN
    assert parsed.texts.count(one.broker) == 1
    assert "30 more findings, by code:" in parsed.texts
    assert " ledger-missing: 30" in parsed.texts


def test_nothing_is_loaded_and_nothing_is_styled_or_run_beside_the_policy() -> None:
    parsed = Parsed(render_page(make_page(HOSTILE, topics=300)))
    for tag, name, value in parsed.attributes:
        assert not name.startswith("on"), (tag, name, value)
        assert name != "style"
        if name in ("href", "src", "action", "xlink:href"):
            assert value.startswith("#") or (tag, value) == ("link", "data:,")
    policy = next(value for tag, _, value in parsed.attributes if tag == "meta" and "default-src" in value)
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy


def test_hostile_names_make_no_element() -> None:
    plain = Parsed(render_page(make_page(tuple(f"name-{number}" for number in range(len(HOSTILE))))))
    hostile = Parsed(render_page(make_page(HOSTILE)))
    labels = {"text"}  # of tiles: as many as there is room for
    assert {tag: count for tag, count in hostile.tags.items() if tag not in labels} == {
        tag: count for tag, count in plain.tags.items() if tag not in labels
    }


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_name_is_shown_as_text_with_nothing_hidden(name: str) -> None:
    made = render_page(make_page((name,)))
    parsed = Parsed(made)
    assert clipped(f"Message {name}", 1200) in parsed.texts
    assert _data(made)["name"] == [clipped(name)]
    hidden = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
    assert not hidden.search(made.decode())


def test_an_empty_store_makes_a_page() -> None:
    said = Parsed(render_page(Page("Doctor", "/data/empty", 0))).texts
    assert "Nothing was found." in said
    assert "No delayed messages are waiting." in said


TEXT, GRAPHIC = 4.5, 3.0
"""Contrasts that WCAG 2.2 asks for (AA): of text, and of what a chart is read by."""
_TINTS = ("critical", "warning", "note")
CONTRASTS: tuple[tuple[str, str, float], ...] = (
    *((ink, ground, TEXT) for ink in ("ink", "muted", "accent") for ground in ("ground", "card", "raised")),
    *((name, ground, TEXT) for name in _TINTS for ground in ("card", f"{name}-tint")),
    *(("tile-ink", tile, TEXT) for tile in ("tile", "tile-done", "tile-dead")),
    *((state, "card", GRAPHIC) for state in ("acknowledged", "one-by-one", "unacknowledged", "delayed", "lost")),
    ("messages", "card", GRAPHIC),
    ("bytes", "card", GRAPHIC),
)


@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
def test_contrasts_are_those_of_wcag(palette: dict[str, str]) -> None:
    for ink, ground, wanted in CONTRASTS:
        light, dark = sorted((_luminance(palette[ink]), _luminance(palette[ground])), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= wanted, (ink, ground)


def _luminance(colour: str) -> float:
    channels = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    linear = (value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in channels)
    return sum(weight * value for weight, value in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


# -- the treemap --------------------------------------------------------------------------------------------------------


def test_rectangles_are_those_of_the_paper() -> None:
    """Bruls, Huizing and van Wijk, Squarified Treemaps: areas of 6, 6, 4, 3, 2, 2 and 1 in a box of 6 by 4."""
    boxes = squarify([6, 6, 4, 3, 2, 2, 1], Box(0, 0, 6, 4))
    wanted = [(3, 2), (3, 2), (12 / 7, 7 / 3), (9 / 7, 7 / 3), (6 / 5, 5 / 3), (6 / 5, 5 / 3), (3 / 5, 5 / 3)]
    assert [box.width for box in boxes] == pytest.approx([width for width, _ in wanted])
    assert [box.height for box in boxes] == pytest.approx([height for _, height in wanted])


def test_small_topics_are_put_together_and_no_byte_is_left_out() -> None:
    shares = [
        Share(f"tenant-{number % 9}", f"space-{number % 90}", f"topic-{number}", number * 7, number)
        for number in range(9000)
    ]
    folded = fold(shares)
    assert len(folded) < TILES + 60
    for name in ("size_bytes", "done_bytes", "topics"):
        assert sum(getattr(share, name) for share in folded) == sum(getattr(share, name) for share in shares)


def test_hidden_characters_are_seen() -> None:
    assert clipped("a\u202eb") == clean_text("a\u202eb") == "a\\u202eb"


# -- doctor --html --------------------------------------------------------------------------------------------------

NOW = "2026-11-21T12:00:00Z"


def test_the_page_has_every_finding_and_changes_no_answer(cli: Cli, tmp_path: Path) -> None:
    words = ("--store", imported("small", "crashed"), "--now", NOW, "-o", "json", "doctor")
    plain, beside = cli(*words), cli(*words, "--html", tmp_path / "doctor.html")
    assert (beside.exit_code, beside.stdout) == (plain.exit_code, plain.stdout)
    assert "doctor.html" in beside.stderr
    texts = Parsed((tmp_path / "doctor.html").read_bytes()).texts
    said = [re.sub(r" --(store|now) \S+", "", text) for text in texts]  # commands name what the command line did
    found = json.loads(plain.stdout)
    assert len(found) > 5
    for finding in found:
        assert {finding["where"], finding["mend"].removesuffix(" --dry-run")} <= set(said)
        assert finding["message"].lower() in (text.lower() for text in said)  # sentences begin with capitals
    assert [file.name for file in tmp_path.iterdir()] == ["doctor.html"]


@pytest.mark.parametrize("name", [".", "there", "there/folder", "link", "nowhere/doctor.html"])
def test_what_is_there_is_not_touched(cli: Cli, tmp_path: Path, name: str) -> None:
    (tmp_path / "there" / "folder").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "there" / "new.html")
    result = cli.on(imported("small", "clean"), f"doctor --html {tmp_path / name}")
    assert result.exit_code in (3, 5)
    assert result.stdout == ""
    assert sorted(file.name for file in tmp_path.rglob("*")) == ["folder", "link", "there"]


def test_names_of_a_hostile_store_are_text(cli: Cli, tmp_path: Path) -> None:
    store = make_hostile_store(tmp_path / "store")
    assert cli("--store", store, "doctor", "--html", tmp_path / "doctor.html").exit_code in (0, 1)
    page = (tmp_path / "doctor.html").read_text()
    assert FORGED in page
    assert not any(line.startswith(FORGED) for line in page.splitlines())
    assert not set("\x00\x1b\x07\r\x9b\u202e\u2066\u200b\u2028") & set(page)
    assert "</html>" in page
