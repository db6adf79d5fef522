"""Pages made of values that a test chose, the hostile ones among them."""

from pulsar_admin.page.values import Due, Fact, Page, Rest, Share, Standing, TopicRow
from pulsar_admin.store.facts.file_sums import DiskTotals
from pulsar_admin.store.names import Position, TopicName, parse_topic
from pulsar_admin.store.reports.cursor_timeline import Cell, Strip
from pulsar_admin.store.reports.timeline import Bucket, Timeline
from pulsar_admin.store.rules.finding import Finding, Severity

NOW_MS = 1_795_260_000_000
HOUR_MS = 3_600_000
HOSTILE = (
    *("<script>window.broken = 1</script>", "</script><script>window.broken = 1</script>"),
    *("\"><img src=x onerror='window.broken = 1'>", "' onmouseover='window.broken = 1' x='", "<!--<script>"),
    *("]]></style><style>*{display:none}</style>", "&lt;b&gt;&amp;", "line\nbreak\rand\ttab\x00\x1b[2J"),
    *("\u202eright to left\u202c \u05e9\u05dc\u05d5\u05dd", "{{7*7}}${7*7}`", "\ud800 half a pair"),
    "k" * 10_240,
)


def make_page(names: tuple[str, ...] = ("orders",), topics: int = 0) -> Page:
    """Return a page on which every text that data can choose is one of NAMES in turn; TOPICS more rows in the table."""
    rows = [_row(name, number) for number, name in enumerate(names)]
    rows += [_row(f"topic-{number:05d}", number) for number in range(topics)]
    return Page(
        title="Doctor",
        source=f"/data/{names[0]}",
        now_ms=NOW_MS,
        facts=(Fact("Topics", f"{len(rows):,}", names[0]),),
        findings=tuple(_finding(name, number) for number, name in enumerate(names)),
        disk=DiskTotals(2, 5732, 5000, 700, 1, 700),
        shares=tuple(Share(f"t{name}", f"n{name}", name, 1000 + number, 100) for number, name in enumerate(names)),
        standings=tuple(Standing(_strip(name), NOW_MS - 5 * HOUR_MS) for name in names),
        standings_rest=Rest(3, backlog_entries=17),
        traffic=tuple(map(_timeline, names)),
        due=tuple(Due(name, f"sub {name}", NOW_MS + HOUR_MS // 2, NOW_MS, HOUR_MS, (3, 0, 4)) for name in names),
        topics=tuple(rows),
        topics_rest=Rest(12, 34, 5600, 0, 7),
        rest_by_namespace={f"acme/{name}": Rest(1, 2, 3) for name in names},
        unread=tuple(f"{name}: it is damaged" for name in names),
    )


def _row(name: str, number: int) -> TopicRow:
    namespace = f"acme/space-{number % 20}"
    return TopicRow(
        namespace, name, 10 * number, 1000 * number, 2, 3, number % 7, f"sub {name}", NOW_MS - number * 1000
    )


def _finding(name: str, number: int) -> Finding:
    return Finding(
        severity=tuple(Severity)[number % 3],
        code=f"code-{number}",
        where=f"where {name}",
        message=f"Message {name}",
        evidence={"topic": name, "ledgerIds": [7, 8], "lastWrite": NOW_MS, "keptBytes": 2048, "ledgerId": 1234},
        at_stake_bytes=4096 + number,
        at_stake_messages=1234 + number,
        broker=f"broker {name}",
        mend=f"pulsar-admin topics why {name}",
        page=f"docs/doctor/code-{number}.md",
        scope="data",
        hint="",
        repair="",
    )


def _strip(name: str) -> Strip:
    cells = (
        Cell(Position(7, 0), Position(7, 3), (4, 0, 0, 0, 0)),
        Cell(Position(7, 4), Position(7, 7), (0, 1, 1, 1, 1)),
        Cell(Position(8, 0), Position(8, 3), (0, 0, 4, 0, 0)),
    )
    return Strip(name, f"sub {name}", Position(7, 3), "metadata", 7, cells, (0, 8), True)


def _timeline(name: str) -> Timeline:
    buckets = [Bucket(NOW_MS - 5 * HOUR_MS, 2, 20, 2048), Bucket(NOW_MS - HOUR_MS, 3, 30, 3072)]
    return Timeline(TopicName(parse_topic("t/n/x").namespace, name), "auto", HOUR_MS, 5, 50, 5120, 1, 0, 0, 0, buckets)
