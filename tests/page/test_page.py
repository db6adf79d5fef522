"""The page as text: it parses, says what it was given, loads nothing, and no name breaks out of its place."""

import json
import re
from base64 import b64encode
from collections import Counter, defaultdict
from collections.abc import Sequence
from hashlib import sha256
from html.parser import HTMLParser
from itertools import combinations
from pathlib import Path

import pytest
from msgspec.structs import replace

from pulsar_admin.columns import size_text
from pulsar_admin.page.charts import (
    GROUPS,
    TILES,
    Bars,
    Box,
    Group,
    bars,
    fold,
    ledger_marks,
    squarify,
    strip_label,
    strip_parts,
    treemap,
)
from pulsar_admin.page.rendering import (
    DARK,
    FINDINGS_SHOWN,
    LIGHT,
    at_stake,
    data,
    evidence,
    figure,
    left_out,
    namespaces,
    render_page,
    time_ends,
)
from pulsar_admin.page.texts import age_text, clipped
from pulsar_admin.page.values import Page, Rest, Share
from pulsar_admin.store.reports.timeline import Bucket
from pulsar_admin.visible import clean_text
from tests.conftest import Cli
from tests.hostile import FORGED, make_hostile_store
from tests.page.making import HOSTILE, HOUR_MS, NOW_MS, make_page
from tests.stores import imported

_VOID = {"meta", "link", "input", "br"}
SUMMED = "size_bytes", "done_bytes", "topics"
COLUMNS = ("space", "worst", "name", "entries", "size", "ledgers", "subscriptions", "backlog", "oldest", "findings")
ROW = (
    "namespace",
    "name",
    "entries",
    "size_bytes",
    "ledgers",
    "subscriptions",
    "backlog_entries",
    "oldest_ms",
    "findings",
)


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
    page = render_page(make_page(HOSTILE, topics=300))
    parsed = Parsed(page)
    for tag, name, value in parsed.attributes:
        assert not name.startswith("on"), (tag, name, value)
        assert name != "style"
        if name in ("href", "src", "action", "xlink:href"):
            assert value.startswith("#") or (tag, value) == ("link", "data:,")
    policy = next(value for tag, _, value in parsed.attributes if tag == "meta" and "default-src" in value)
    assert "default-src 'none'" in policy
    for tag in ("style", "script"):
        [text] = re.findall(f"<{tag}>(.*?)</{tag}>", page.decode(), re.S)
        assert f"{tag}-src 'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'; " in policy
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
    square = [Box(0, 0, 1, 2), Box(1, 0, 1, 1), Box(1, 1, 1, 1)]
    assert squarify([2, 1, 1], Box(0, 0, 2, 2)) == square


def _places(groups: Sequence[Group], room: float) -> list[Box]:
    """Return the boxes of groups beside each other; what is drawn of each is half a unit smaller all round."""
    rects = [group.rects[0] for group in groups]
    places = [Box(x - 0.5, y - 0.5, width + 1, height + 1) for x, y, width, height, *_ in rects]
    assert sum(place.width * place.height for place in places) == pytest.approx(room)
    for one, other in combinations(places, 2):
        wide, high = (min(one[at] + one[at + 2], other[at] + other[at + 2]) - max(one[at], other[at]) for at in (0, 1))
        assert min(wide, high) < 1e-6
    return places


def test_areas_of_the_treemap_are_bytes() -> None:
    """The foot of a tile is what no subscription needs; a text ends within its tile, and a box has a head if it has room."""
    shares = {}
    for number in range(1, 41):
        share = Share(f"t{number % 2}", f"s{number % 6}", f"topic-{number}", 1000 * number, 250 * number * (number % 5))
        done = f", {size_text(share.done_bytes)} needed by no subscription" if share.done_bytes else ""
        shares[f"{share.tenant}/{share.namespace}/{share.topic}: {size_text(share.size_bytes)}{done}"] = share
    seen = []
    tenants = treemap([*shares.values(), Share("t0", "s0", "empty", 0)], 900, 600)
    for tenant, outer in zip(tenants, _places(tenants, 900 * 600), strict=True):
        room = (outer.width - 2) * (outer.height - (17 if tenant.texts else 0) - 1)
        assert bool(tenant.texts) == (outer.height > 51)
        for space, place in zip(tenant.children, _places(tenant.children, room), strict=True):
            room = (place.width - 2) * (place.height - (17 if space.texts else 0) - 1)
            assert bool(space.texts) == (place.height > 42.5 and place.width > 68)
            boxes = _places(space.children, room)
            sizes = [shares[tile.title].size_bytes for tile in space.children]
            assert [box.width * box.height for box in boxes] == pytest.approx(
                [room * size / sum(sizes) for size in sizes]
            )
            for tile, box in zip(space.children, boxes, strict=True):
                share, (whole, *done) = shares[tile.title], tile.rects
                seen.append(share)
                high = whole.height * share.done_bytes / share.size_bytes
                foot = whole.x, whole.y + whole.height - high, whole.width, high
                assert [rect[:4] for rect in done] == ([pytest.approx(foot)] if share.done_bytes else [])
                for x, y, kind, text in tile.texts:
                    assert text.rstrip("…") in (size_text(share.size_bytes) if kind == "tile-size" else share.topic)
                    assert (x + 6.4 * len(text) <= box.x + box.width - 3, y < box.y + box.height) == (True, True)
    assert sorted(share.size_bytes for share in seen) == [1000 * number for number in range(1, 41)]


def test_tiles_too_thin_to_be_seen_are_left_out() -> None:
    shares = [Share("t", "big", "big", 10**9), *(Share("t", "small", f"small-{number}", 1) for number in range(3))]
    [tenant] = treemap(shares, 300, 200)
    assert min(min(group.rects[0][2:4]) for group in (tenant, *tenant.children)) == 0
    assert [[tile.title.partition(":")[0] for tile in space.children] for space in tenant.children] == [
        ["t/big/big"],
        [],
    ]


def test_small_topics_are_put_together_and_no_byte_is_left_out() -> None:
    """Topics of 90 namespaces, ten a tenant: those of numbers 66 and above are the 24 largest."""
    spaces = [(f"tenant-{number % 90 // 10}", f"space-{number % 90}") for number in range(9000)]
    shares = [Share(*space, f"topic-{number}", number * 7, number) for number, space in enumerate(spaces)]
    shares.append(Share(*spaces[89], "", 10**9, 1, 7))
    folded = fold(shares)
    largest = [number for number in range(8999, -1, -1) if number % 90 >= 90 - GROUPS]
    assert [share.topic for share in folded[:TILES]] == [f"topic-{number}" for number in largest[:TILES]]
    others = {**dict.fromkeys(spaces, ("other tenants", "")), **{space: space for space in spaces[66:90]}}
    others |= dict.fromkeys(spaces[60:66], ("tenant-6", "other namespaces"))
    rest: dict[tuple[str, str], list[Share]] = defaultdict(list)
    for share in shares:
        if share.topics > 1 or int(share.topic[6:]) not in largest[:TILES]:
            rest[others[share.tenant, share.namespace]].append(share)
    sums = {space: [sum(getattr(one, name) for one in some) for name in SUMMED] for space, some in rest.items()}
    assert {(one.tenant, one.namespace): [getattr(one, name) for name in SUMMED] for one in folded[TILES:]} == sums
    assert len(folded) == TILES + GROUPS + 2
    assert {one.topic for one in folded[TILES:]} == {f"{topics:,} more topics" for _, _, topics in sums.values()}


def test_the_largest_namespaces_have_a_row_and_all_others_one() -> None:
    shares = [Share("t", f"s{number % 15}", str(number), number + 1, number % 3, number) for number in range(45)]
    expected = []
    for spaces, name in [*(((at,), f"t/s{at}") for at in range(14, 2, -1)), ((0, 1, 2), "3 more namespaces")]:
        some = [share for number, share in enumerate(shares) if number % 15 in spaces]
        expected.append((name, *(sum(getattr(share, summed) for share in some) for summed in SUMMED)))
    assert [*namespaces(shares)] == expected
    assert len([*namespaces(shares[:12])]) == 12


def test_bars_of_a_topic_are_its_buckets() -> None:
    """Two buckets a bar where there are more than 120 of them: the heights, times and numbers are those of the buckets."""
    line = make_page().traffic[0]
    for hours, each in ((120, 1), (121, 2)):
        buckets = [Bucket(NOW_MS + number * HOUR_MS, 1, number + 1, 1000) for number in (0, 1, 5, hours - 1)]
        drawn = figure(replace(line, buckets=buckets, messages=hours + 9))
        (messages, whole, most, label), (sizes, *_) = drawn.charts
        assert (drawn.width, whole, most) == (f"{each}h", f"{hours + 9} messages", f"{hours} messages")
        assert label == f"messages of t/n/orders per {each}h: {whole} in all, at most {most}"
        expected = Counter[int]()
        for bucket in buckets:
            expected[(bucket.time_ms - NOW_MS) // HOUR_MS // each] += bucket.messages
        assert {index: count for index, count in enumerate(messages.counts) if count} == expected
        assert (len(messages.counts), sum(sizes.counts)) == (-(-hours // each), 4000)
        assert messages.width_ms == each * HOUR_MS
    assert figure(line).said == "1 entry outside this time"
    assert figure(replace(line, buckets=(), missing_entries=2)).charts == ()
    assert [*time_ends(Bars(NOW_MS, HOUR_MS, [1, 2, 3, 4], "messages"))] == [
        f"2026-11-21 {hour}:20:00" for hour in ("11", "13", "15")
    ]


def test_bars_are_as_high_as_their_counts() -> None:
    drawn = [*bars(Bars(NOW_MS, HOUR_MS, [0, 1, 0, 50, 100], "bytes"))]
    rects = [rect for one in drawn for rect in one.rects]
    assert [(rect.x, rect.width) for rect in rects] == [pytest.approx((at * 200 + 16, 168)) for at in (1, 3, 4)]
    assert [(rect.y, rect.height) for rect in rects] == [(63, 1), (32, 32), (0, 64)]
    assert [one.title for one in drawn][1] == "2026-11-21T14:20:00.000Z: 50 B"


def test_a_strip_is_as_wide_as_its_entries_and_as_high_as_their_states() -> None:
    strip = make_page().standings[0].strip
    twice = replace(strip, cells=(strip.cells[0], *strip.cells), ledger_starts=(0, 4, 12))
    drawn = [*strip_parts(twice)]
    places = [{(rect.x, rect.width, rect.y, rect.height) for rect in one.rects} for one in drawn]
    assert places == [{(0, 500, 0, 26)}, {(500, 250, y, 6.5) for y in (0, 6.5, 13, 19.5)}, {(750, 250, 0, 26)}]
    assert [one.title.partition(",")[0] for one in drawn] == [
        *("7:0 to 7:3: 8 entries acknowledged", "7:4 to 7:7: 1 acknowledged one by one"),
        "8:0 to 8:3: 4 entries unacknowledged",
    ]
    assert strip_label(strip) == (
        "12 entries: 4 acknowledged; 1 acknowledged one by one; 5 unacknowledged; 1 delayed, not yet due; "
        "1 lost: no client gets it"
    )
    assert ledger_marks(twice) == "M0 26.5H1000M0.0 26v5M250.0 26v5M750.0 26v5"
    assert [ledger_marks(replace(strip, ledger_starts=(0,) * count)).count("v5") for count in (100, 101)] == [100, 0]


def test_rows_of_topics_are_told_by_columns() -> None:
    page = make_page(("orders", "s" * 70), topics=50)
    found = data(page)
    rows = zip(*(found[name] for name in COLUMNS), strict=True)
    assert [(found["spaces"][space], *row, found["worsts"][worst]) for space, worst, *row in rows] == [
        (*(getattr(row, name) for name in ROW), clipped(row.worst, 60)) for row in page.topics
    ]
    assert found["total"] == 52 + 12


@pytest.mark.parametrize(
    ("age_ms", "text"),
    [
        *((0, "0s"), (999, "0s"), (1000, "1s"), (-999, "0s"), (-1000, "in 1s"), (59_999, "59s"), (60_000, "1m")),
        *((61_999, "1m 1s"), (3_599_999, "59m 59s"), (3_600_000, "1h"), (86_399_999, "23h 59m"), (86_400_000, "1d")),
        *((1000 * 86_400_000 + 3_600_000, "1,000d 1h"), (-90_000_000, "in 1d 1h")),
    ],
)
def test_ages(age_ms: int, text: str) -> None:
    assert age_text(age_ms) == text


def test_what_is_left_out_is_counted() -> None:
    assert (
        left_out(Rest(1, 2, 3, 4, 5), "topic") == "Not shown: 1 topic more, with 2 entries, 3 B, 5 entries of backlog."
    )
    assert left_out(Rest(2), "topic") == "Not shown: 2 topics more, with nothing in them."
    one = make_page().findings[0]
    many = replace(one, evidence={"where": one.where, "none": None, "no": [], **{f"key{at}": at for at in range(13)}})
    told, more = evidence(many)
    assert ([value for _, value in told], more) == ([str(at) for at in range(12)], 1)
    assert evidence(one)[0] == [
        *(("topic", "orders"), ("ledger ids", "7, 8"), ("last write", "2026-11-21T11:20:00.000Z")),
        *(("kept bytes", "2 KiB"), ("ledger id", "1234")),
    ]
    assert at_stake([(1, one), (2, one)]) == "2,468 messages, 8 KiB"
    assert at_stake([(1, replace(one, at_stake_messages=0))]) == "4 KiB"
    assert at_stake([(1, replace(one, at_stake_messages=0, at_stake_bytes=0))]) == ""
    assert clipped("x" * 160) == "x" * 160
    assert clipped("a" * 121 + "b" * 40) == f"{'a' * 120} … {'b' * 40} (161 characters)"


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
