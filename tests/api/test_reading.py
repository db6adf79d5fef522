"""What the Python interface reads, against the live broker's recorded answers and against what the command line prints."""

import copy
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow
import pytest

import pulsar_admin as pa
from pulsar_admin.store.codec.value import ValueSchema
from pulsar_admin.store.dump.messages import COLUMNS
from pulsar_admin.store.model.schemas import Encoded, TopicSchemas, ValueReader
from pulsar_admin.store.names import LONG_MAX
from pulsar_admin.store.scan.typed_values import VersionedValues
from tests.conftest import Cli
from tests.deep import deep_but_for
from tests.stores import NOW_MS, imported
from tests.worlds import oracle, world

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
    assert set(store.topics(pattern="acme/*")) == {one for one in store.topics() if "://acme/" in one}
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


def test_a_limit_of_records_is_that_of_all_partitions(store: pa.Store) -> None:
    topic = store.topic("acme/orders/parts")
    everything = [one for part in topic.partitions() for one in part.messages().records()]
    for limit in (0, 1, len(everything) - 1, len(everything) + 1, LONG_MAX):
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


@pytest.mark.parametrize(("start", "end"), [("8:0:0", "8:0:0"), ("8:0:3", "8:0:6")])
def test_the_columns_do_not_change_which_messages_of_a_batch_are_read(store: pa.Store, start: str, end: str) -> None:
    found = store.topic("batched").messages(start=start, end=end, columns=["publish_time"])
    assert found.to_arrow().num_rows == int(end[4:]) - int(start[4:]) + 1
    waiting = store.topic("plain").messages(subscription="holes", columns=["publish_time"]).to_arrow()
    assert waiting.num_rows == store.topic("plain").stats().subscriptions["holes"].msg_backlog


# -- statistics -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("compacted", [False, True])
def test_no_number_of_messages_and_no_list_of_columns(compacted: bool, store: pa.Store) -> None:
    topic = store.topic("plain")
    messages = topic.compaction().messages if compacted else topic.messages
    for limit in (-1, True, 1.5):
        with pytest.raises(pa.InvalidValue, match="expected 0 or more"):
            messages(limit=limit)
    with pytest.raises(pa.InvalidValue, match="is a str"):
        messages(columns="key")
    for columns in (["nothing"], [], ["ledgerId"]):
        with pytest.raises(pa.InvalidValue, match="no column"):
            messages(columns=columns)


def test_the_bundle_of_a_name_is_that_of_the_command_line(demo_store: Path, cli: Cli) -> None:
    topics = "public/default/plain", "acme/orders/parts", "acme/orders/not-there"
    shown = [cli.on(demo_store, f"topics bundle-range {topic}").stdout.strip() for topic in topics]
    with pa.open_store(demo_store) as store:
        assert [store.namespace(topic.rpartition("/")[0]).bundle_range(topic) for topic in topics] == shown
        default = store.namespace("public/default")
        assert "persistent://public/default/plain" in default.topics(bundle=shown[0])
        with pytest.raises(pa.InvalidValue, match="not in the namespace"):
            default.bundle_range("acme/orders/parts")


# -- indexes, timelines, policies -----------------------------------------------------------------------------------

TOPICS = oracle("small")["topics"]
SKEWED = "acme/iot/skewed"
BATCHED = "public/default/batched"


@pytest.mark.parametrize("name", [SKEWED, BATCHED])
def test_a_timeline_counts_what_a_reader_saw(store: pa.Store, name: str) -> None:
    minute = 60_000
    rows = TOPICS[name]["messages"]
    expected = Counter(row[3] // minute * minute for row in rows)
    table = store.topic(name).timeline("1m", clock="publish")
    found = zip(table.column("start").to_pylist(), table.column("messages").to_pylist(), strict=True)
    if name == SKEWED:  # a batch counts at the time of its entry, which is its first message's
        assert {(start - EPOCH) // timedelta(milliseconds=1): count for start, count in found} == expected
    assert sum(table.column("messages").to_pylist()) == len(rows)
    since = sorted(row[3] for row in rows)[len(rows) // 2]
    later = store.topic(name).timeline(timedelta(hours=1), since=since, clock="publish")
    assert sum(later.column("entries").to_pylist()) == len(
        {tuple(place) for *place, first in first_times(rows) if first >= since}
    )
    assert len(store.topic(name).timeline()) > 1


def first_times(rows: list[list[int]]) -> list[list[int]]:
    """[ledger, entry, publish time of its first message], one an entry."""
    return [[*place, next(group)[3]] for place, group in groupby(rows, key=lambda row: row[:2])]


# -- search ---------------------------------------------------------------------------------------------------------

KEYED = "acme/orders/compacted"


def test_search_of_a_topic_and_of_the_store(store: pa.Store) -> None:
    rows = recorded_rows(KEYED)
    found = store.topic(KEYED).search(keys=["k0003"], columns=["entry_id", "batch_index"])
    assert [[*row.values()] for row in found.rows()] == [row[1:3] for row in rows if row[5] == "k0003"]
    names = ("public/default/plain", KEYED)
    table = store.search(*names, *names, properties={"i": "7"}).to_arrow()  # a topic named twice is read once
    of_plain = sum(row[9].get("i") == "7" for row in recorded_rows(names[0]))
    assert table.column("topic").to_pylist() == ["persistent://public/default/plain"] * of_plain
    everywhere = store.search(key_prefix="k000", limit=7, columns=["key", "topic"]).to_arrow()
    assert (len(everywhere), everywhere.column_names) == (7, ["key", "topic"])
    only = store.search(*names, keys=["k0003"], columns=["topic"]).to_arrow()
    assert len(only) == sum(row[5] == "k0003" for row in rows)


def test_what_is_encrypted_needs_the_key(store: pa.Store, demo_store: Path) -> None:
    topic = "acme/secure/secret"
    locked = store.topic(topic).search(keys=["k0009"])
    with pytest.warns(pa.PartialData):
        assert len(locked.to_arrow()) == 0
    assert [problem.code for problem in locked.problems] == ["encrypted-payload"]
    pytest.importorskip("cryptography")
    with pa.open_store(demo_store, private_keys=[world("small") / "keys"]) as opened:
        found = opened.topic(topic).search(keys=["k0009"], columns=["sha1"]).to_arrow()
    digests = [digest.hex() for digest in found.column("sha1").to_pylist()]
    assert digests == [row[8] for row in recorded_rows(topic) if row[5] == "k0009"]


# -- a message has one form: rows, records, Arrow and pandas agree, few or many, and values are what the schemas say

_WHOLE = (*COLUMNS, "topic", "payload", "marker_type")


@deep_but_for((0, 4, 5, 6, 8, 14, 19, 21, 25), "name", sorted(oracle("small")["topics"]))
def test_rows_records_and_columns_agree_few_or_many(
    store: pa.Store, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages = store.topic(name).messages(columns=_WHOLE, markers=True, uncommitted=True)
    table = messages.to_arrow().to_pylist(maps_as_pydicts="lossy")
    for small in (0, 1 << 20):
        monkeypatch.setattr("pulsar_admin.store.search.window.SMALL_MESSAGES", small)
        rows = list(messages.rows())
        assert rows == table
        assert [[getattr(one, column) for column in _WHOLE] for one in messages.records()] == [
            [*row.values()] for row in rows
        ]


def test_what_was_not_asked_for_is_absent(store: pa.Store) -> None:
    (record,) = store.topic("public/default/avro").messages(columns=["value"], limit=1).records()
    assert repr(record) == "MessageRecord(len(value)=3)"
    assert not hasattr(record, "payload")
    with pytest.raises(AttributeError, match=r"'key' was not asked for: columns=\['value'\]"):
        print(record.key)
    with pytest.raises(AttributeError):
        record.value = None  # type: ignore[misc]
    assert copy.deepcopy(record) == record


def _schema(kind: str, *fields: tuple[str, Any]) -> ValueSchema:
    named = [{"name": name, "type": of} for name, of in fields]
    return ValueSchema(kind, json.dumps({"type": "record", "name": "R", "fields": named}).encode())


def _read(schemas: dict[int, ValueSchema], *payloads: tuple[int, bytes]) -> list[Any]:
    found = TopicSchemas(schemas)
    versioned = VersionedValues(found)
    reader = ValueReader(found, versioned.value)
    decoded = [reader.read(Encoded(version, payload)) for version, payload in payloads]
    assert [one.error for one in decoded] == [None] * len(decoded)
    kept: list[Any] = pyarrow.array([one.value for one in decoded], versioned.kind).to_pylist(maps_as_pydicts="lossy")
    return kept


def test_values_of_several_versions_have_the_fields_of_all() -> None:
    """One that a version took away, one that it added without a default, one inside a record, one that became wider."""
    inner = {"type": "record", "name": "I", "fields": [{"name": "x", "type": "int"}]}
    wider = {**inner, "fields": [*inner["fields"], {"name": "y", "type": "string"}]}
    schemas = {
        0: _schema("AVRO", ("gone", "int"), ("n", "int"), ("in", {"type": "array", "items": inner})),
        1: _schema("AVRO", ("n", "long"), ("in", {"type": "array", "items": wider}), ("new", "string")),
    }
    old, new = b"\x02\x04\x02\x06\x00", b"\x04\x02\x06\x02z\x00\x02w"
    assert _read(schemas, (0, old), (1, new)) == [
        {"gone": 1, "n": 2, "in": [{"x": 3, "y": None}], "new": None},
        {"gone": None, "n": 2, "in": [{"x": 3, "y": "z"}], "new": "w"},
    ]


def test_where_versions_disagree_values_are_json_text() -> None:
    times = {"type": "map", "values": {"type": "long", "logicalType": "timestamp-millis"}}
    schemas = {0: _schema("JSON", ("a", "int"), ("m", times)), 1: _schema("JSON", ("a", "string"), ("m", "string"))}
    rows = _read(schemas, (0, b'{"a": 7, "m": {"k": 1}}'), (1, b'{"a": "b", "m": "c"}'))
    at = datetime.fromtimestamp(0.001, UTC)
    assert [rows[0]["a"], *map(datetime.fromisoformat, json.loads(rows[0]["m"]).values())] == ["7", at]
    assert rows[1] == {"a": "b", "m": "c"}


def test_a_version_of_another_type_is_json_text_beside_it() -> None:
    schemas = {0: ValueSchema("STRING"), 1: _schema("JSON", ("a", "int")), 2: ValueSchema("PROTOBUF_NATIVE", b"{")}
    assert _read(schemas, (0, b"x"), (1, b'{"a": 1}')) == ["x", '{"a":1}']


REMINDERS = "acme/delayed/reminders"
PLAIN = "public/default/plain"


# -- ledgers ----------------------------------------------------------------------------------------------------------


def test_ledgers_hold_the_messages_that_were_received(store: pa.Store) -> None:
    rows = oracle("small")["topics"][PLAIN]["messages"]
    first = rows[0][0]
    assert first in store.ledgers()
    ledger = store.ledger(first)
    info = ledger.info()
    assert (info.state, info.entries, info.missing) == ("CLOSED", sum(row[0] == first for row in rows), ())
    assert [owner.topic for owner in info.owners] == [f"persistent://{PLAIN}"]
    entries = list(ledger.entries(3, 6))
    assert [(row.entry_id, row.state, row.publish_time_ms) for row in entries] == [
        (row[1], "ok", row[3]) for row in rows if row[0] == first and 3 <= row[1] <= 6
    ]
    assert len(ledger.read(3)) == entries[0].size_bytes - 32 - 4  # type: ignore[operator]
    assert ledger.verify().problems == 0
    assert [verdict.ledger_id for verdict in store.verify_ledgers(first, 8)] == [first, 8]
    assert [verdict.ledger_id for verdict in store.verify_ledgers()] == list(store.ledgers())
    with pytest.raises(pa.LedgerNotFound):
        list(store.verify_ledgers(first, 99_999))


# -- namespaces -------------------------------------------------------------------------------------------------------


def test_policies_are_those_of_the_command(store: pa.Store, cli: Cli, demo_store: Path) -> None:
    shown = cli.json(demo_store, "namespaces policies acme/delayed")
    namespace = store.namespace("acme/delayed")
    # The command adds, as upstream's does, the broker's default of what this namespace does not say.
    assert namespace.policies() | {"is_allow_auto_update_schema": True} == shown
    assert "is_allow_auto_update_schema" not in namespace.policies()
    assert f"persistent://{REMINDERS}" in namespace.topics()
    with pytest.raises(pa.NamespaceNotFound):
        store.namespace("acme/none")


# -- delayed messages -------------------------------------------------------------------------------------------------


def test_what_is_due_is_what_was_asked_for(store: pa.Store) -> None:
    """Against the due times that the producer recorded when it sent, of messages that the subscription has still to be given."""
    sent = {tuple(row["id"][:2]): row["due"] for row in oracle("small")["sent"] if row["topic"].endswith(REMINDERS)}
    waiting = store.topic(REMINDERS).messages(subscription="workers", columns=["ledger_id", "entry_id"]).rows()
    ids = {(row["ledger_id"], row["entry_id"]) for row in waiting}
    delayed = store.topic(REMINDERS).delayed("workers")
    rows = delayed.due("2100-01-01T00:00:00Z").to_pylist()
    expected = {place: EPOCH + timedelta(milliseconds=due) for place, due in sent.items() if due and place in ids}
    found = {(row["ledger_id"], row["entry_id"]): row["due_time"] for row in rows}
    assert found.keys() == expected.keys()
    assert expected
    # The client adds a delay to its own clock, a moment after the producer's script read it.
    assert all(timedelta() <= found[place] - due <= timedelta(milliseconds=50) for place, due in expected.items())
    assert all(abs(row["due_time"] - row["deliver_at"]) < timedelta(seconds=2) for row in rows)
    assert sum(delayed.histogram().column("messages").to_pylist()) == len(rows) == delayed.status().messages


# -- compaction -------------------------------------------------------------------------------------------------------


def test_a_key_or_a_ledger_that_a_topic_does_not_have(store: pa.Store) -> None:
    """Nothing is empty without a word, as on the command line."""
    topic = store.topic("acme/orders/compacted")  # its only ledger is 78
    with pytest.raises(pa.NothingMatches, match="has the key 'nope'"):
        topic.compaction().explain("nope")
    assert topic.compaction().explain("k0003").occurrences
    for bounds, text in (({"start": "999999:0"}, "after 999999:0"), ({"end": "3:0"}, "before 3:0")):
        with pytest.warns(pa.PartialData, match=text):
            assert not [*topic.messages(**bounds).rows()]
    assert not [*topic.messages(start="78:15").rows()]  # where the next message will be
