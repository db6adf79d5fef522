"""What the Python interface reads, against the live broker's recorded answers and against what the command line prints."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from base64 import b64decode
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from hashlib import sha1
from pathlib import Path
from typing import Any

import pytest

import pulsar_admin as pa
from pulsar_admin.jsonify import to_json
from tests.conftest import Cli
from tests.stores import NOW_MS, imported
from tests.synthetic import CREATED_MS, Made, MadeTopic, make_store
from tests.worlds import oracle

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def store() -> Iterator[pa.Store]:
    with pa.open_store(imported("small", "clean"), now=NOW_MS) as opened:
        yield opened


# -- what there is ----------------------------------------------------------------------------------------------------


def test_topics_and_namespaces(store: pa.Store) -> None:
    recorded = {f"persistent://{name}" for name in oracle("small")["topics"]}
    assert recorded <= set(store.topics())
    assert store.topics("acme/iot") == ("persistent://acme/iot/skewed", "persistent://acme/iot/skewed-batched")
    assert store.topics(pattern="acme/iot/*-batched") == ("persistent://acme/iot/skewed-batched",)
    assert set(store.topics(pattern="acme/*")) == {
        name for name in store.topics() if name.startswith("persistent://acme/")
    }
    assert {"acme/iot", "public/default"} <= set(store.namespaces())
    assert set(store.namespaces("public")) == {"public/default"}
    with pytest.raises(pa.NamespaceNotFound):
        store.namespaces("publik")


def test_what_is_not_there_is_said_when_it_is_named(store: pa.Store) -> None:
    with pytest.raises(pa.TopicNotFound):
        store.topic("public/default/none")
    with pytest.raises(pa.SubscriptionNotFound):
        store.topic("plain").cursor("none")
    with pytest.raises(pa.SubscriptionNotFound):
        store.topic("acme/orders/parts").cursor("none")
    with pytest.raises(pa.TenantNotFound):
        store.tenant("none")
    with pytest.raises(pa.NamespaceNotFound):
        store.topics("nope/ns")
    with pytest.raises(pa.TopicNotFound):
        store.topics(pattern="acme/nothing/*")
    for wrong in ("acme", "acme/iot/*", ""):
        with pytest.raises(pa.InvalidValue):
            store.topics(wrong)
    with pytest.raises(pa.InvalidValue, match="alone"):
        store.topics("acme/iot", pattern="acme/*")
    with pytest.raises(pa.StoreNotFound):
        pa.open_store("/nowhere")


def test_seconds_are_no_milliseconds_and_those_of_long_ago_go_on(store: pa.Store) -> None:
    for seconds in (10**8, 10**11 - 1):
        with pytest.raises(pa.InvalidValue, match=r"counts seconds: as milliseconds it would be in 197[0-3]"):
            store.topic("plain").find(seconds)
    for time_ms in (10**8 - 1, 10**11):
        assert store.topic("plain").find(time_ms).position == store.topic("plain").find(0).position


# -- times ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["public/default/plain", "acme/iot/skewed"])
def test_find_is_the_first_message_at_or_after_the_time(store: pa.Store, name: str) -> None:
    """On the clock of the producers, whose times a reader recorded in topic order."""
    rows = oracle("small")["topics"][name]["messages"]
    topic = store.topic(name)
    for time_ms in [row[3] + step for row in rows[::15] for step in (0, 1)]:
        expected = next((row[:2] for row in rows if row[3] >= time_ms), None)
        found = topic.find(time_ms, clock="publish")
        assert (found.position and [found.position.ledger_id, found.position.entry_id]) == expected
        if expected is not None:
            assert found.entry_time is not None
            assert found.entry_time >= EPOCH + timedelta(milliseconds=time_ms)


def test_one_time_in_every_form(demo_store: Path) -> None:
    """All of them are the same instant, two hours before now."""
    now = datetime(2026, 11, 21, 12, tzinfo=UTC)
    at = now - timedelta(hours=2)
    forms: list[Any] = ["2h", "2h ago", timedelta(hours=2), at, at.isoformat(), "2026-11-21T11:00:00+01:00"]
    forms += [at.astimezone(), 1_795_255_200_000, "@1795255200000"]
    with pa.open_store(demo_store, now=now) as opened:
        topic = opened.topic("plain")
        assert {topic.find(form).time_ms for form in forms} == {1_795_255_200_000}


@pytest.mark.parametrize("value", [datetime(2026, 11, 21), "yesterday 25:00", -1, 2.5, timedelta(days=40_000)])
def test_what_is_no_time_is_refused(store: pa.Store, value: Any) -> None:
    with pytest.raises(pa.InvalidValue):
        store.topic("plain").find(value)


def test_the_largest_reasons_are_the_first(store: pa.Store) -> None:
    everything, two = store.why_bytes(), store.why_bytes(top=2)
    assert everything.holders == len(everything.held) > 2
    assert (two.held, two.totals, two.holders) == (everything.held[:2], everything.totals, everything.holders)


# -- messages ---------------------------------------------------------------------------------------------------------


def recorded_rows(name: str) -> list[list[Any]]:
    rows: list[list[Any]] = oracle("small")["topics"][name]["messages"]
    return rows


def test_rows_batches_table_and_frame_are_the_same(store: pa.Store) -> None:
    columns = ["key", "producer", "properties", "event_time", "payload"]
    messages = store.topic("batched").messages(columns=columns)
    rows = list(messages.rows())
    assert [[row["key"] or "", row["producer"], row["properties"]] for row in rows] == [
        [row[5] or "", row[10], row[9]] for row in recorded_rows("public/default/batched")
    ]
    assert [len(row["payload"]) for row in rows] == [row[7] for row in recorded_rows("public/default/batched")]
    assert sum(len(batch) for batch in messages) == len(rows)
    assert messages.to_arrow().schema == messages.schema
    frame = messages.to_pandas()
    assert list(frame.columns) == columns
    assert frame.to_dict("records")[5]["properties"] == rows[5]["properties"]
    assert str(frame.event_time.dtype) == "datetime64[us, UTC]"


@pytest.mark.parametrize("name", ["public/default/plain", "public/default/batched", "acme/orders/codecs"])
@pytest.mark.parametrize("small", [0, 1 << 20])
def test_records_and_lines_are_those_that_a_reader_received(
    store: pa.Store, name: str, small: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One by one, and as columns."""
    monkeypatch.setattr("pulsar_admin.store.search.window.SMALL_MESSAGES", small)
    messages = store.topic(name).messages(columns=["payload"])
    records = list(messages.json_rows())
    assert [[one.ledger_id, one.entry_id, one.batch_index, one.publish_time] for one in records] == [
        row[:4] for row in recorded_rows(name)
    ]
    assert [sha1(b64decode(one.payload or "")).hexdigest() for one in records] == [
        row[8] for row in recorded_rows(name)
    ]
    lines = "".join(messages.json_lines()).splitlines()
    assert [json.loads(line) for line in lines] == [to_json(one) for one in records]


def test_a_limit_of_records_is_that_of_all_partitions(store: pa.Store) -> None:
    topic = store.topic("acme/orders/parts")
    everything = [one for part in topic.partitions() for one in part.messages().records()]
    for limit in (0, 1, len(everything) - 1, len(everything) + 1):
        assert list(topic.messages(limit=limit).records()) == everything[:limit]
        assert len(topic.messages(limit=limit).to_arrow()) == len(everything[:limit])


def test_records_of_a_backlog_are_its_columns_without_pyarrow(store: pa.Store, demo_store: Path) -> None:
    columns = ["ledger_id", "entry_id"]
    expected = [[*row.values()] for row in store.topic("plain").messages(subscription="holes", columns=columns).rows()]
    found = store.topic("plain").messages(subscription="holes", limit=1000).records()
    assert expected == [[one.ledger_id, one.entry_id] for one in found]
    code = f"""
import sys, pulsar_admin
with pulsar_admin.open_store({str(demo_store)!r}) as store:
    topic = store.topic("plain")
    print(len([*topic.messages(limit=3).records(), *topic.messages(subscription="holes", limit=2).records()]))
    print([name for name in ("pyarrow", "numpy") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "5\n[]\n"


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        ({"start": "8:0:3", "end": "8:0:6"}, ("--from", "8:0:3", "--to", "8:0:6")),
        ({"key": "k0015"}, ("--key", "k0015")),
        ({"since": "2026-11-21T06:00:00Z", "until": "2026-11-21T07:00:00Z", "clock": "publish"}, None),
        ({"since": "2026-11-21T05:00:00Z", "clock": "event", "limit": 7}, None),
        ({"limit": 0}, ("-n", "0")),
    ],
)
def test_windows_are_those_of_topics_read(
    store: pa.Store, cli: Cli, demo_store: Path, arguments: dict[str, Any], options: tuple[str, ...] | None
) -> None:
    words = {"since": "--start-time", "until": "--end-time", "clock": "--clock", "limit": "-n"}
    given = [part for key, value in arguments.items() for part in (words.get(key, ""), value)]
    shown = cli("--store", demo_store, "topics", "read", "batched", *(options or given), "-o", "jsonl").json_lines
    found = store.topic("batched").messages(columns=["ledger_id", "entry_id", "batch_index"], **arguments)
    keys = ("ledgerId", "entryId", "batchIndex")
    assert [tuple(row.values()) for row in found.rows()] == [tuple(row[key] for key in keys) for row in shown]


def test_a_partitioned_topic_is_its_partitions(store: pa.Store) -> None:
    topic = store.topic("acme/orders/parts")
    parts = topic.partitions()
    assert [part.name[-1] for part in parts] == ["0", "1", "2"]
    assert store.topic("plain").partitions() == ()
    ids = ["ledger_id", "entry_id"]
    whole = list(topic.messages(columns=ids).rows())
    assert whole == [row for part in parts for row in part.messages(columns=ids).rows()]
    assert len(whole) == sum(part.stats().msg_in_counter for part in parts) or whole
    with pytest.raises(pa.TopicNotFound, match="3 partitions"):
        topic.find("3h")


def test_nothing_is_read_before_it_is_iterated_over(store: pa.Store) -> None:
    topic = store.topic("plain")
    messages = topic.messages(subscription="not there")
    with pytest.raises(pa.SubscriptionNotFound):
        next(iter(messages))


def test_what_is_lost_is_warned_of_and_listed(tmp_path: Path) -> None:
    entries = [Made(CREATED_MS), Made(CREATED_MS + 2, lost=True), Made(CREATED_MS + 5)]
    path = make_store(tmp_path / "made", {"a/b/t": MadeTopic([entries])})
    with pa.open_store(path) as opened:
        messages = opened.topic("a/b/t").messages(columns=["entry_id"])
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert [row["entry_id"] for row in messages.rows()] == [0, 2]
        assert [warning.category for warning in caught] == [pa.PartialData]
        assert [type(problem).__name__ for problem in messages.problems] == ["EntryNotFound"]


# -- statistics -------------------------------------------------------------------------------------------------------


def test_stats_are_those_of_the_command(store: pa.Store, cli: Cli, demo_store: Path) -> None:
    for name in ("plain", "acme/delayed/reminders"):
        topic = store.topic(name)
        assert to_json(topic.stats()) == cli("--store", demo_store, "topics", "stats", name, "-o", "json").json
        shown = cli("--store", demo_store, "topics", "stats-internal", name, "-m", "--explain", "-o", "json").json
        assert to_json(topic.internal_stats(metadata=True)) == shown
    shown = cli("--store", demo_store, "topics", "partitioned-stats", "acme/orders/parts", "-o", "json").json
    assert to_json(store.topic("acme/orders/parts").partitioned_stats()) == shown


@pytest.mark.parametrize("compacted", [False, True])
def test_no_number_of_messages_and_no_list_of_columns(compacted: bool, store: pa.Store) -> None:
    topic = store.topic("plain")
    messages = topic.compaction().messages if compacted else topic.messages
    for limit in (-1, True, 1.5):
        with pytest.raises(pa.InvalidValue, match="expected 0 or more"):
            messages(limit=limit)
    with pytest.raises(pa.InvalidValue, match="is a text"):
        messages(columns="key")
    for columns in (["nothing"], [], ["ledgerId"]):
        with pytest.raises(pa.InvalidValue, match="no column"):
            messages(columns=columns)


def test_the_bundle_of_a_name_is_that_of_the_command_line(demo_store: Path, cli: Cli) -> None:
    topics = "public/default/plain", "acme/orders/parts", "acme/orders/not-there"
    shown = [cli("--store", demo_store, "topics", "bundle-range", topic).stdout.strip() for topic in topics]
    with pa.open_store(demo_store) as store:
        assert [store.namespace(topic.rpartition("/")[0]).bundle_range(topic) for topic in topics] == shown
        default = store.namespace("public/default")
        assert "persistent://public/default/plain" in default.topics(bundle=shown[0])
        with pytest.raises(pa.InvalidValue, match="not in the namespace"):
            default.bundle_range("acme/orders/parts")
