"""Topics, subscriptions, backlog and bytes on disk: every screen has what the recorded broker answered, and what the disk has."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from pulsar_admin import import_standalone
from pulsar_admin import open_store as open_api
from store.db.environment import open_store
from store.facts.counts import TopicCounts, read_disk_bytes
from store.names import parse_topic
from tests.conftest import Cli
from tests.stores import NOW_MS, imported
from tests.worlds import oracle, world

WORLDS = ("small", "nometa")
COMPACTION = "__compaction"


class Broker:
    """What the broker of a world answered just before its data was copied."""

    def __init__(self, name: str) -> None:
        answers = oracle(name)
        self.topics = sorted(topic for one in answers["namespaces"].values() for topic in one["topics"])
        self.subscriptions = [
            (f"persistent://{topic}", subscription)
            for topic, facts in answers["topics"].items()
            for subscription in facts["subscriptions"]
        ]
        self.compactions = sum(subscription == COMPACTION for _, subscription in self.subscriptions)
        stats = {f"persistent://{topic}": facts["stats"] for topic, facts in answers["topics"].items()}
        self.backlog = {
            (topic, name): found["msgBacklog"]
            for topic, one in stats.items()
            for name, found in one["subscriptions"].items()
            if name != COMPACTION
        }
        self.storage = {topic: one["storageSize"] for topic, one in stats.items()}


def disk_bytes(name: str, suffix: str) -> int:
    return sum(path.stat().st_size for path in (world(name) / "clean/bookkeeper/current").glob(f"*{suffix}"))


@pytest.fixture(params=WORLDS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def numbers(text: str) -> list[int]:
    return [int(found.replace(",", "")) for found in re.findall(r"\d[\d,]*", text)]


def screens(store: Path, cli: Cli) -> Iterator[tuple[str, int, int, int]]:
    """Yield the name of a screen, and how many topics, subscriptions and compactions it has."""
    overview = cli("--store", store, "overview", "--no-check", "-o", "json").json
    info = cli("--store", store, "store", "info", "-o", "json").json
    for screen, found in (("overview", overview), ("info", info)):
        yield screen, found["topics"], found["subscriptions"], found["compactions"]
    spaces = overview["namespaces"]
    sums = [sum(one[key] for one in spaces) for key in ("topics", "subscriptions", "compactions")]
    yield "namespaces of overview", sums[0], sums[1], sums[2]
    head = cli("--store", store, "overview", "--no-check").stdout.splitlines()[3]
    found = numbers(head)
    assert "topics and" in head
    assert "subscriptions and" in head
    yield "overview as text", found[2], found[4], found[5]
    lines = dict(
        re.split(" {2,}", line, maxsplit=1)
        for line in cli("--store", store, "store", "info").stdout.splitlines()
        if re.match("(topics|subscriptions) ", line)
    )
    yield "info as text", numbers(lines["topics"])[0], *numbers(lines["subscriptions"])
    listed = [
        topic
        for one in spaces
        for topic in cli("--store", store, "topics", "list", one["namespace"], "-o", "json").json
    ]
    rows = cli("--store", store, "topics", "subscriptions", "--all-topics", "--table", "-o", "json").json
    own = sum(row["subscription"] == COMPACTION for row in rows)
    yield "topics list, topics subscriptions", len(listed), len(rows) - own, own
    kept = cli("--store", store, "sql", "select topic, subscriptions from topics", "-o", "json").json
    mine = [row for row in kept if not parse_topic(row["topic"]).is_system]
    yield "sql", len(mine), sum(row["subscriptions"] for row in mine) - own, own  # a broker's list, too
    samples = metrics(store, cli)
    yield (
        "metrics",
        int(sum(samples["namespace_topics"])),
        int(sum(samples["namespace_subscriptions"])),
        sum(one["compactions"] for one in spaces),
    )


def metrics(store: Path, cli: Cli) -> dict[str, list[float]]:
    found = cli("--store", store, "metrics", "-o", "json").json
    rows = found["metrics"] if isinstance(found, dict) else found
    return {one["name"].removeprefix("pulsar_offline_"): [row["value"] for row in one["samples"]] for one in rows}


def test_topics_and_subscriptions(name: str, cli: Cli) -> None:
    broker = Broker(name)
    expected = len(broker.topics), len(broker.subscriptions) - broker.compactions, broker.compactions
    assert expected == (27, 21, 6)
    for screen, *found in screens(imported(name, "clean"), cli):
        assert tuple(found) == expected, screen


def test_what_is_left_are_the_systems_topics(name: str, cli: Cli) -> None:
    store = imported(name, "clean")
    system = [row["topic"] for row in cli("--store", store, "sql", "select topic from topics", "-o", "json").json]
    hidden = [topic for topic in system if topic not in Broker(name).topics]
    assert all("/__" in topic or topic.endswith("__transaction_pending_ack") for topic in hidden)
    overview = cli("--store", store, "overview", "--no-check", "-o", "json").json
    info = cli("--store", store, "store", "info", "-o", "json").json
    assert overview["systemTopics"] == info["systemTopics"] == len(hidden) == len(system) - 27
    assert sum(metrics(store, cli)["namespace_system_topics"]) == len(hidden)


def test_backlog(name: str, cli: Cli) -> None:
    store, broker = imported(name, "clean"), Broker(name)
    overview = cli("--store", store, "overview", "--no-check", "--top", 100, "-o", "json").json
    assert overview["backlogEntries"] == sum(broker.backlog.values())
    assert sum(metrics(store, cli)["namespace_backlog_entries"]) == sum(broker.backlog.values())
    worst = {(row["topic"], row["subscription"]): row["entries"] for row in overview["backlogs"]}
    assert worst == {key: count for key, count in broker.backlog.items() if count}
    rows = cli("--store", store, "topics", "subscriptions", "--all-topics", "--table", "-o", "json").json
    listed = {
        (row["topic"], row["subscription"]): row["backlogEntries"] for row in rows if row["subscription"] != COMPACTION
    }
    assert listed == broker.backlog


def test_bytes_of_topics(name: str, cli: Cli) -> None:
    store = imported(name, "clean")
    largest = cli("--store", store, "overview", "--no-check", "--top", 100, "-o", "json").json["largest"]
    sizes = {row["topic"]: row["bytes"] for row in largest}
    assert {topic: sizes.get(topic, 0) for topic in Broker(name).storage} == Broker(name).storage


def test_bytes_on_disk(name: str, cli: Cli) -> None:
    logs, journals = disk_bytes(name, ".log"), disk_bytes(name, ".txn")
    assert logs
    assert journals
    store = imported(name, "clean")
    overview = cli("--store", store, "overview", "--no-check", "-o", "json").json
    info = cli("--store", store, "store", "info", "-o", "json").json
    expected = {"entryLogs": logs, "journals": journals, "leftovers": 0}
    assert overview["diskBytes"] == info["diskBytes"] == expected
    assert overview["disk"]["size"] == logs
    assert metrics(store, cli)["disk_bytes"] == [logs, journals, 0]
    usage = cli("--store", store, "store", "usage", "--by", "log", "-o", "json").json
    assert sum(row["size"] for row in usage) == logs + journals
    (line,) = [line for line in cli("--store", store, "store", "info").stdout.splitlines() if line.startswith("disk ")]
    assert numbers(line) == [logs + journals, logs, journals]


def test_the_page_has_the_same(name: str, tmp_path: Path, cli: Cli) -> None:
    broker = Broker(name)
    page = tmp_path / "page.html"
    cli("--store", imported(name, "clean"), "doctor", "--html", page)
    text = re.sub("<[^>]*>", " ", page.read_text())
    for label, count in (
        ("Topics", len(broker.topics)),
        ("Subscriptions", len(broker.subscriptions) - broker.compactions),
        ("Backlog", sum(broker.backlog.values())),
    ):
        assert re.search(rf"{label}\s+{count:,}\s", text), label
    with open_api(imported(name, "clean"), now=NOW_MS) as store:
        assert store.overview(check=False).disk_bytes.total == disk_bytes(name, ".log") + disk_bytes(name, ".txn")


def test_leftovers_of_compactions_belong_to_the_disk(tmp_path: Path) -> None:
    """What no index has is seen where it lies; where nobody can look it is not known, which is not none."""
    bookie = tmp_path / "standalone"
    shutil.copytree(world("small") / "clean", bookie)
    current = bookie / "bookkeeper/current"
    (current / "7.log.compacting").write_bytes(bytes(100))
    (current / "8.log.1.compacted").write_bytes(bytes(20))
    import_standalone(bookie, tmp_path / "store")
    with open_store(tmp_path / "store") as store, store.read() as txn:
        found = read_disk_bytes(store, txn)
        assert found.leftovers == 120
        assert found.total == disk_bytes("small", ".log") + disk_bytes("small", ".txn") + 120
        current.rename(current.with_name("away"))
        assert read_disk_bytes(store, txn).leftovers is None


def test_what_is_no_subscription() -> None:
    counts = TopicCounts().of(
        parse_topic("persistent://a/b/c"), ["one", COMPACTION, "pulsar.dedup", "pulsar.repl.west", "two"]
    )
    assert counts == TopicCounts(1, 0, 2, 1)
    assert counts.of(parse_topic("persistent://a/b/__change_events"), ["one"]) == TopicCounts(1, 1, 2, 1)
