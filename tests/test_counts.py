"""Topics, subscriptions, backlog and bytes on disk: every screen has what the recorded broker answered, and what the disk has."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from pulsar_admin import import_bundle, import_standalone
from pulsar_admin import open_store as open_api
from pulsar_admin.api.transfers import Mode
from pulsar_admin.page.collecting import collect_page
from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.model.counts import TopicCounts, read_disk_bytes
from pulsar_admin.store.model.reader import open_reader
from pulsar_admin.store.names import parse_topic
from pulsar_admin.store.reports.usage import LEFTOVER, read_usage
from tests.conftest import Cli
from tests.stores import NOW_MS, imported
from tests.worlds import oracle, world

WORLDS = ("small", "nometa", "cluster")
COMPACTION = "__compaction"
ABORTED = "persistent://public/default/txn-out"
TRIMMED_SINCE = {"cluster": {"persistent://acme/secure/compacted-secret"}}
"""Topics that the broker of a world trimmed between its answers and its stop."""


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
        read = {f"persistent://{topic}": facts["messages"] for topic, facts in answers["topics"].items()}
        self.messages = {topic: len({tuple(row[:3]) for row in rows}) for topic, rows in read.items()}
        # Of these nobody is given those of aborted transactions.
        self.messages[ABORTED] = stats[ABORTED]["msgInCounter"]


def disk_bytes(name: str, suffix: str) -> int:
    return sum(path.stat().st_size for path in (world(name) / "clean").glob(f"bookkeeper*/current/*{suffix}"))


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
    listed = cli("--store", store, "topics", "list", "-o", "json").json
    rows = cli("--store", store, "topics", "subscriptions", "--all-topics", "--table", "-o", "json").json
    own = sum(row["subscription"] == COMPACTION for row in rows)
    yield "topics list, topics subscriptions", len(listed), len(rows) - own, own
    kept = cli("--store", store, "sql", "select topic, subscriptions from topics", "-o", "json").json
    mine = [row for row in kept if not parse_topic(row["topic"]).is_system]
    query = f"select topic from cursors where subscription = '{COMPACTION}'"
    compacted = {row["topic"] for row in cli("--store", store, "sql", query, "-o", "json").json}
    yield "sql", len(mine), sum(row["subscriptions"] for row in kept), len(compacted & {row["topic"] for row in mine})
    described = cli("--store", store, "topics", "describe", "--all-topics", "--quick", "-o", "json").json
    names = [one["subscription"] for row in described for one in row["subscriptions"]]
    yield "describe", len(described), len(names) - names.count(COMPACTION), names.count(COMPACTION)
    samples = metrics(store, cli)
    of_samples = (int(sum(samples[f"namespace_{name}"])) for name in ("topics", "subscriptions"))
    yield "metrics", *of_samples, sum(one["compactions"] for one in spaces)


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
    described = cli("--store", store, "topics", "describe", "--all-topics", "-o", "json").json
    assert broker.backlog == {
        (row["topic"], one["subscription"]): one["backlogEntries"]
        for row in described
        for one in row["subscriptions"]
        if one["subscription"] != COMPACTION
    }
    cursors = cli(
        "--store", store, "sql", "select topic, subscription, backlog_entries from cursors", "-o", "json"
    ).json
    kept = {(row["topic"], row["subscription"]): row["backlog_entries"] for row in cursors}
    assert {key: kept[key] for key in broker.backlog} == broker.backlog


def test_bytes_of_topics(name: str, cli: Cli) -> None:
    store = imported(name, "clean")
    largest = cli("--store", store, "overview", "--no-check", "--top", 100, "-o", "json").json["largest"]
    sizes = {row["topic"]: row["bytes"] for row in largest}
    expected = {topic: size for topic, size in Broker(name).storage.items() if topic not in TRIMMED_SINCE.get(name, ())}
    assert {topic: sizes.get(topic, 0) for topic in expected} == expected
    rows = cli("--store", store, "sql", "select topic, size from topics", "-o", "json").json
    assert {row["topic"]: row["size"] for row in rows if row["topic"] in expected} == expected
    described = cli("--store", store, "topics", "describe", "--all-topics", "--quick", "-o", "json").json
    assert {row["topic"]: row["size"] for row in described if row["topic"] in expected} == expected


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


def test_messages_are_those_that_clients_get(name: str, cli: Cli) -> None:
    """Markers of transactions are none, and the chunks of one message are one."""
    broker, store = Broker(name), imported(name, "clean")
    described = cli("--store", store, "topics", "describe", "--all-topics", "-o", "json").json
    found = {row["topic"]: row["messages"] for row in described if row["topic"] not in TRIMMED_SINCE.get(name, ())}
    assert len(found) > 24
    found = {topic: count for topic, count in found.items() if topic in broker.messages}  # one was not read from
    assert found == {topic: broker.messages[topic] for topic in found}
    of_all = {
        (row["topic"], one["subscription"]): (row["messages"], one["backlogMessages"])
        for row in described
        for one in row["subscriptions"]
        if one["backlogEntries"] == row["entries"] and one["subscription"] != COMPACTION
    }
    assert len(of_all) > 3
    assert all(messages == backlog for messages, backlog in of_all.values())


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
    with open_store(imported(name, "clean")) as store, open_reader(store) as reader:
        rows = collect_page(reader, (), NOW_MS).topics
    own = [(topic, subscription) for topic, subscription in broker.subscriptions if subscription != COMPACTION]
    for topic, size in broker.storage.items():
        (row,) = [row for row in rows if f"persistent://{row.namespace}/{row.name}" == topic]
        backlogs = [count for (of, _), count in broker.backlog.items() if of == topic]
        assert (row.subscriptions, row.backlog_entries) == (sum(of == topic for of, _ in own), max(backlogs, default=0))
        assert row.size_bytes == size or topic in TRIMMED_SINCE.get(name, ())


def test_the_store_of_a_bundle_has_the_same(name: str, tmp_path: Path) -> None:
    with open_api(imported(name, "clean"), now=NOW_MS) as store:
        store.write_bundle(tmp_path / "incident.bundle")
        import_bundle(tmp_path / "incident.bundle", tmp_path / "incident")
        found = store.overview(check=False)
    with open_api(tmp_path / "incident", now=NOW_MS) as bundled:
        other = bundled.overview(check=False)
    for field in ("topics", "system_topics", "subscriptions", "compactions", "entries", "bytes", "backlog_entries"):
        assert getattr(found, field) == getattr(other, field), field
    assert other.disk_bytes == replace(found.disk_bytes, leftovers=None)  # nobody looked beside its files


@pytest.mark.parametrize("mode", ["referenced", "copied"])
def test_leftovers_of_compactions_belong_to_the_disk(tmp_path: Path, mode: Mode) -> None:
    """What no index has is seen where it lies; where nobody can look it is not known, which is not none. A directory is no leftover."""
    bookie = tmp_path / "standalone"
    shutil.copytree(world("small") / "clean", bookie)
    current = bookie / "bookkeeper/current"
    (current / "7.log.compacting").write_bytes(bytes(100))
    (current / "8.log.1.compacted").write_bytes(bytes(20))
    (current / "9.compacted").mkdir()
    import_standalone(bookie, tmp_path / "store", mode=mode)
    with open_store(tmp_path / "store") as store, store.read() as txn:
        found = read_disk_bytes(txn)
        assert sum(file.size_bytes for file in read_usage(txn).files if file.kind == LEFTOVER) == 120
        assert found.leftovers == 120
        assert found.total == disk_bytes("small", ".log") + disk_bytes("small", ".txn") + 120
        current.rename(current.with_name("away"))
        assert read_disk_bytes(txn).leftovers is None


def test_what_is_no_subscription() -> None:
    counts = TopicCounts().of(
        parse_topic("persistent://a/b/c"), ["one", COMPACTION, "pulsar.dedup", "pulsar.repl.west", "two"]
    )
    assert counts == TopicCounts(1, 0, 2, 1)
    assert counts.of(parse_topic("persistent://a/b/__change_events"), ["one"]) == TopicCounts(1, 1, 2, 1)
