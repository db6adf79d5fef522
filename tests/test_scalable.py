"""Scalable topics of a real Pulsar 5.0.1 against what its broker answered, and against records that were damaged."""

import json
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import pulsar_admin
from pulsar_admin.store.codec.cursor import CursorInfo
from pulsar_admin.store.codec.ledgermetadata import encode_ledger_metadata, ledger_path
from pulsar_admin.store.codec.managedledger import ManagedLedger, encode_managed_ledger
from pulsar_admin.store.codec.scalable import decode_scalable_topic
from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.db.tree import find_node
from pulsar_admin.store.errors import InvalidValue, MetadataCorrupt, NamespaceNotFound, TopicNotFound, Unsupported
from pulsar_admin.store.model.ledgers import find_metadata
from pulsar_admin.store.model.topics import read_topic
from pulsar_admin.store.names import Position, managed_ledger_of_path, parse_topic
from tests.conftest import Cli
from tests.stores import copied, imported, lose_nodes, put_node, read_rows, values_of
from tests.synthetic import MadeTopic, make_store
from tests.why.planted import NOW_MS, Message
from tests.worlds import GOLDEN, oracle

WORLD, TOPIC, NODE = "scalable", "topic://acme/n/scal", "/topics/acme/n/scal"
SEGMENTS = ["0000-7fff-0", "8000-ffff-1", "0000-ffff-2", "0000-7fff-3", "8000-ffff-4"]
Record = dict[str, Any]  # Any: JSON


def answered() -> Record:
    stats: Record = oracle(WORLD)["scalable"]["acme/n/scal"]["stats"]
    return stats


# -- names: what TopicName of 5.0.1 made of these texts: the name in full, and its managed ledger ----------------------


@pytest.mark.parametrize(
    ("text", "full", "managed_ledger"),
    [
        ("segment://t/n/a/0000-ffff-0", "segment://t/n/a/0000-ffff-0", "t/n/segment/a/0000-ffff-0"),
        ("segment://t/n/a%2Fb/0000-ffff-0", "segment://t/n/a%2Fb/0000-ffff-0", "t/n/segment/a%252Fb/0000-ffff-0"),
        ("segment://t/n/a/b/0000-ffff-0", "segment://t/n/a/b/0000-ffff-0", "t/n/segment/a%2Fb/0000-ffff-0"),
        ("segment://t/n/a b/0000-ffff-0", "segment://t/n/a b/0000-ffff-0", "t/n/segment/a+b/0000-ffff-0"),
        ("segment://t/n/a/0000-FFFF-0", "segment://t/n/a/0000-ffff-0", "t/n/segment/a/0000-ffff-0"),
        ("segment://t/n/a/000-ffff-00", "segment://t/n/a/0000-ffff-0", "t/n/segment/a/0000-ffff-0"),
    ],
)
def test_segments_are_named_as_upstream_names_them(text: str, full: str, managed_ledger: str) -> None:
    name = parse_topic(text)
    assert (str(name), name.managed_ledger_name) == (full, managed_ledger)
    assert managed_ledger_of_path(f"/managed-ledgers/{managed_ledger}") == name


@pytest.mark.parametrize("end", ["a/8000-7fff-0", "a/0000-ffff--1", "a", "a/0000-ffff", "/0000-ffff-0"])
def test_what_is_no_segment_is_refused(end: str) -> None:
    with pytest.raises(InvalidValue):
        parse_topic(f"segment://t/n/{end}")


# -- what the broker answered -----------------------------------------------------------------------------------------


def test_each_segment_has_what_the_broker_said(cli: Cli) -> None:
    rows = cli("--store", imported(WORLD, "clean"), "topics", "stats", TOPIC, "-o", "json").json
    layout, told = answered()["layout"]["segments"], answered()["subscriptions"]
    names = [layout[str(number)]["name"] for number in range(5)]
    assert [row["topic"] for row in rows] == names
    with open_store(imported(WORLD, "clean")) as store, store.read() as txn:
        with pytest.raises(TopicNotFound, match="has segments") as refused:
            read_topic(txn, parse_topic(TOPIC))
        assert refused.value.hint in {f"name a segment, for example {name}" for name in names}
    assert sum(row["storageSize"] for row in rows) == answered()["storageSize"]
    assert sum(row["backlogSize"] for row in rows) == answered()["backlogSize"]
    missing = cli("--store", imported(WORLD, "clean"), "scalable-topics", "segment-stats", f"{names[1]}9")
    missing.ends(5, f"Segment {names[1]}9 not found in scalable topic {TOPIC}")
    for number, row in enumerate(rows):
        assert {name: (one["msgBacklog"], one["backlogSize"]) for name, one in row["subscriptions"].items()} == {
            name: (one["segments"][str(number)]["msgBacklog"], one["segments"][str(number)]["backlogSize"])
            for name, one in told.items()
        }
        state = cli("--store", imported(WORLD, "clean"), "topics", "stats-internal", row["topic"], "-o", "json").json
        assert (state["state"] == "Terminated") is layout[str(number)]["terminated"]


LIVE_ONLY = frozenset(
    ["controllerBroker", "ownerBroker", "ageSeconds", "policy", "lastOperation", "consumers", "blocked"]
)
"""What a controller or a broker knows while it runs: who they are, its settings, what it did last, who is connected."""


def asked() -> tuple[list[str], dict[str, str]]:
    """Return the changes that the toolkit made, and what pulsar-admin 5.0.1 then printed by its command lines."""
    text = (GOLDEN / "answers-5.0.1.txt").read_text()
    changes = [line[2:] for line in text.splitlines() if line.startswith("+ ")]
    return changes, dict(part.split("\n", 1) for part in text.split("\n$ ")[1:])


def known(value: Any) -> Any:  # Any: JSON
    """Return an answer without what only a running controller knows."""
    if isinstance(value, list):
        return [known(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {key: known(one) for key, one in value.items() if key not in LIVE_ONLY}


def test_a_broker_of_5_0_1_answers_the_same_of_the_export(cli: Cli, tmp_path: Path) -> None:
    path = copied(WORLD, "clean", tmp_path)
    changes, answers = asked()
    for line in changes:
        assert cli("--store", path, "--now", "2026-11-28T01:04:51.891Z", *line.split(), "--yes").exit_code == 0
    assert len(answers) == 10
    for line, said in answers.items():
        found = cli("--store", path, *line.split()).stdout
        if "stats" not in line:
            assert found == said.rstrip("\n") + "\n", line
        else:  # in the order of the keys, too
            assert json.dumps(known(json.loads(found))) == json.dumps(known(json.loads(said))), line


def test_stats_are_those_that_the_broker_gave_while_it_wrote(cli: Cli) -> None:
    found = cli("--store", imported(WORLD, "clean"), "scalable-topics", "stats", "acme/n/scal", "-o", "json").json
    assert json.dumps(known(found)) == json.dumps(known(answered()))


@pytest.mark.parametrize("words", [("create-partitioned-topic", "-p", "2"), ("create",)])
def test_a_persistent_topic_of_the_same_name_stays_with_its_schema(
    words: tuple[str, ...], cli: Cli, tmp_path: Path
) -> None:
    path = copied(WORLD, "clean", tmp_path)
    (tmp_path / "schema.json").write_text('{"type":"STRING","schema":"","properties":{}}')
    assert cli("--store", path, "topics", *words, "acme/n/new").exit_code == 0
    assert cli("--store", path, "schemas", "upload", "acme/n/new", "-f", tmp_path / "schema.json").exit_code == 0
    before = values_of(path)
    assert "stays beside it" in cli("--store", path, "scalable-topics", "create", "acme/n/new").stderr
    assert cli("--store", path, "scalable-topics", "delete", "acme/n/new", "--yes").exit_code == 0
    assert values_of(path) == before


def test_exported_tables_take_the_names_that_a_store_takes(cli: Cli, tmp_path: Path) -> None:
    """Segments 3 and 4 are left of the topic ``scal``: segment 2 is one of the topic ``scal/x`` here."""
    path, tables = copied(WORLD, "clean", tmp_path), tmp_path / "tables"
    segment = "/managed-ledgers/acme/n/segment/{}/0000-ffff-2"
    put_node(path, segment.format("scal%2Fx"), values_of(path)[segment.format("scal")])
    lose_nodes(path, segment.format("scal"))
    assert cli("--store", path, "store", "export", "tables", tables, "--messages").exit_code == 0
    sent = {number: one["msgBacklog"] for number, one in answered()["subscriptions"]["st1"]["segments"].items()}
    for name, count in ((TOPIC, sent["3"] + sent["4"]), ("segment://acme/n/scal/*-[34]", sent["3"] + sent["4"])):
        statement = f'select count(*) "n" from "{name}"'
        for place in (("--tables", tables), ("--store", path)):
            assert cli(*place, "sql", statement, "-o", "json").json == [{"n": count}], (name, place)


def test_every_command_takes_both_names(cli: Cli) -> None:
    path = imported(WORLD, "clean")
    for words in (
        ("topics", "subscriptions", TOPIC),
        ("topics", "why", TOPIC, "-s", "q1"),
        ("topics", "timeline", TOPIC),
        ("topics", "describe", f"segment{TOPIC[5:]}/0000-ffff-2"),
        ("store", "usage", "--why"),
        ("metrics",),
    ):
        assert cli("--store", path, *words).exit_code == 0, words
    found = cli("--store", path, "sql", 'select count(*) "n" from "topic://acme/n/scal"', "-o", "json").json
    assert found == [{"n": 300}]
    migrated = cli("--store", path, "topics", "stats", "topic://acme/n/b", "-o", "json").json
    assert [row["topic"] for row in migrated] == ["persistent://acme/n/b", "segment://acme/n/b/0000-ffff-1"]


def test_python_has_the_same(tmp_path: Path) -> None:
    with pulsar_admin.open_store(copied(WORLD, "clean", tmp_path), writable=True) as store:
        assert store.scalable_topics("acme/n") == ("topic://acme/n/b", TOPIC)
        assert store.scalable_topics("acme/n", properties={"owner": "nobody"}) == ()
        with pytest.raises(NamespaceNotFound):
            store.scalable_topics("acme/none")
        store.apply(store.create_scalable_topic("acme/n/new", segments=2, properties={"owner": "billing"}))
        assert store.scalable_topics("acme/n", properties={"owner": "billing"}) == ("topic://acme/n/new",)
        store.apply(store.delete_scalable_topic("topic://acme/n/new"))
        assert len(store.scalable_topics("acme/n")) == 2
        for segments in (0, 10_001):
            with pytest.raises(InvalidValue):
                store.create_scalable_topic("acme/n/new", segments=segments)
        assert store.create_scalable_topic("acme/n/new", segments=10_000)
        store.apply(store.cursors("q1", TOPIC).clear())
        backlogs = [store.topic(f"segment{TOPIC[5:]}/{one}").stats().subscriptions["q1"] for one in SEGMENTS]
        assert [one.msg_backlog for one in backlogs] == [0] * 5


# -- changes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        ("terminate", "segment://acme/n/scal/0000-7fff-3"),
        ("delete", "segment://acme/n/scal/0000-7fff-3"),
        ("delete", TOPIC),
        ("create", "topic://acme/n/new"),
        ("create", "segment://acme/n/new/0000-ffff-0"),
        ("truncate", "segment://acme/n/scal/0000-ffff-2"),
        ("set-retention", TOPIC, "-s", "1M", "-t", "1h"),
    ],
)
def test_what_a_controller_does_is_refused(words: tuple[str, ...], cli: Cli) -> None:
    cli("--store", imported(WORLD, "clean"), "topics", *words, "--dry-run").ends(3, words[1])


# -- damaged records, and segments that do not agree with them ---------------------------------------------------------


def narrowed(record: Record) -> None:
    record["segments"]["3"]["hashRange"]["end"] = 0x6FFF


def widened(record: Record) -> None:
    record["segments"]["4"]["hashRange"]["start"] = 0x7000


def orphaned(record: Record) -> None:
    record["segments"]["3"]["parentIds"] = [9]


def reopened(record: Record) -> None:
    record["segments"]["2"] |= {"state": "ACTIVE", "sealedAtEpoch": -1}


def forgotten(record: Record) -> None:
    del record["segments"]["0"], record["segments"]["1"]
    record["segments"]["2"]["parentIds"] = []


def circled(record: Record) -> None:
    """Each names the other as parent and as child."""
    record["segments"]["0"]["parentIds"] = [2]
    record["segments"]["2"]["childIds"] += [0]


def shared(record: Record) -> None:
    for number in "01":
        record["segments"][number]["legacyTopicName"] = "persistent://acme/n/b"


DAMAGED: list[tuple[Callable[[Record], None], dict[str, str]]] = [
    (narrowed, {"segment-hashes": "no segment has the hashes 7000 to 7fff", "segment-missing": "0000-6fff-3"}),
    (widened, {"segment-hashes": "segments 3 and 4 have the hashes 7000 to 7fff", "segment-missing": "7000-ffff-4"}),
    (orphaned, {"segment-relations": "segment 3 has the parent 9, which is not in the record"}),
    (reopened, {"segment-hashes": "segments 2 and 3", "segment-not-sealed": "terminated, and the record says ACTIVE"}),
    (forgotten, {"segment-unlisted": "does not list it"}),
    (circled, {"segment-relations": "they form a circle"}),
    (shared, {"segment-relations": "segments 0 and 1 are the same ledger, persistent://acme/n/b"}),
]


def findings(cli: Cli, path: Path) -> dict[str, list[Record]]:
    found = defaultdict(list)
    for row in cli("--store", path, "doctor", "-o", "jsonl").json_lines:
        if row["code"].startswith(("segment-", "migration-", "value-", "unknown-")):
            found[row["code"]].append(row)
    return found


@pytest.mark.usefixtures("damages_stores")
@pytest.mark.parametrize(("damage", "told"), DAMAGED, ids=[damage.__name__ for damage, _ in DAMAGED])
def test_a_damaged_record_is_told(
    damage: Callable[[Record], None], told: dict[str, str], cli: Cli, tmp_path: Path
) -> None:
    path = copied(WORLD, "clean", tmp_path)
    assert findings(cli, path) == {}
    record = json.loads(values_of(path)[NODE])
    damage(record)
    put_node(path, NODE, json.dumps(record).encode())
    found = findings(cli, path)
    for code, words in told.items():
        assert any(words in row["message"] + row["where"] for row in found[code]), found
    for row in (row for rows in found.values() for row in rows):
        assert cli("--store", path, *row["mend"].split()[1:]).exit_code in (0, 1), row["mend"]


def edited(path: str, value: object) -> Callable[[Record], None]:
    """Return what puts VALUE into a record at a path such as ``segments/3/state``."""
    *parts, last = path.split("/")

    def edit(record: Record) -> None:
        for part in parts:
            record = record[part]
        record[last] = value

    return edit


EDITED: tuple[tuple[str, object], ...] = (
    *(("epoch", value) for value in (0, -7, 2**63 - 1, 2**64, "2", None)),
    *(("nextSegmentId", value) for value in (0, 10**30)),
    ("segments", {}),
    ("segments", None),
    ("segments", []),
    ("segments/3", None),
    ("segments/3", {}),
    ("segments/3", 5),
    *(("segments/3/segmentId", value) for value in ("3", -1, 4)),
    *(
        ("segments/3/hashRange", value)
        for value in ({"start": 32768, "end": 65535}, {"start": 5, "end": 1}, {"start": 0.5, "end": 7})
    ),
    *(("segments/3/state", value) for value in ("DRAINING", None, "SEALED")),
    *(("segments/3/parentIds", value) for value in ([3], ["2"], {"a": 1}, [2, 2], [4])),
    *(("segments/3/createdAtEpoch", value) for value in (0, 9, -1)),
    *(
        ("segments/0/legacyTopicName", value)
        for value in ("persistent://public/default/nothing", "%%%", "topic://acme/n/scal")
    ),
    *(("properties", value) for value in ({"a": 1}, {"\ud800": "\x1b[31m"})),
    ("deleted", True),
    ("aNewKey", {"a": [1, "x"]}),
)
"""Of records: epochs that run backwards, ranges twice, circles, ledgers twice, and values that are none."""
ASKED = [
    words.split()
    for words in f"""scalable-topics get-metadata acme/n/scal
scalable-topics stats {TOPIC}
topics list acme/n
topics stats {TOPIC}
topics stats-internal {TOPIC}
topics describe {TOPIC}
topics describe segment://acme/n/scal/0000-7fff-3
topics read {TOPIC}
topics find-by-time {TOPIC} --time @1795697219805
topics subscriptions {TOPIC} --table
topics why {TOPIC} -s q1
topics reset-cursor {TOPIC} -s q1 -m earliest --dry-run
topics reset-cursor {TOPIC} -s q1 -t @1795697219805 --dry-run
topics expire {TOPIC} -s q1 -t 1 --dry-run
scalable-topics seek {TOPIC} -s q1 -t 1h --dry-run
scalable-topics delete {TOPIC} --force --dry-run
overview
metrics
doctor
doctor --html PAGE
store check
store export standalone PAGE-data
store export tables PAGE-tables
store bundle PAGE-bundle
sql select+count(*)+n+from+"{TOPIC}\"""".splitlines()
]


@pytest.mark.deep
@pytest.mark.usefixtures("damages_stores")
@pytest.mark.parametrize(("where", "value"), EDITED, ids=[ascii(f"{where}-{value}"[:40]) for where, value in EDITED])
def test_every_command_answers_or_says_why_not(where: str, value: object, cli: Cli, tmp_path: Path) -> None:
    path = copied(WORLD, "clean", tmp_path)
    record = json.loads(values_of(path)[NODE])
    edited(where, value)(record)
    put_node(path, NODE, json.dumps(record).encode())
    before = values_of(path)
    for words in ASKED:
        said = cli(
            "--store", path, *(word.replace("PAGE", str(tmp_path / "page.html")).replace("+", " ") for word in words)
        )
        assert said.exit_code in (0, 1, 3, 5, 6, 7), words
        assert "Traceback" not in said.stderr + said.stdout, words
        assert said.exit_code < 2 or said.stderr, words
        assert said.stderr.count("error: ") <= 1, words
    assert values_of(path) == before


@pytest.mark.usefixtures("damages_stores")
def test_segments_and_cursors_that_are_gone_are_told(cli: Cli, tmp_path: Path) -> None:
    path = copied(WORLD, "clean", tmp_path)
    root = "/managed-ledgers/acme/n"
    lose_nodes(path, f"{root}/segment/scal/0000-7fff-0", f"{root}/segment/scal/8000-ffff-4/st1", f"{root}/persistent/b")
    found = findings(cli, path)
    (missing,) = found["segment-missing"]
    assert (missing["where"], missing["severity"]) == ("segment://acme/n/scal/0000-7fff-0", "critical")
    (cursor,) = found["segment-cursor-missing"]
    assert cursor["evidence"] | {"sentence": 0} == {
        "topic": TOPIC,
        "segment": "segment://acme/n/scal/8000-ffff-4",
        "subscription": "st1",
        "entries": 13,
        "sentence": 0,
    }
    (migration,) = found["migration-unfinished"]
    assert migration["where"] == "persistent://acme/n/b"
    for row in (missing, migration):
        assert cli("--store", path, *row["mend"].split()[1:]).exit_code == 0, row["mend"]
    assert cli("--store", path, *cursor["mend"].split()[1:], "--yes").exit_code == 0
    assert "segment-cursor-missing" not in findings(cli, path)


@pytest.mark.usefixtures("damages_stores")
def test_a_topic_that_goes_on_after_its_migration_is_told(cli: Cli, tmp_path: Path) -> None:
    path = copied(WORLD, "clean", tmp_path)
    put_node(path, "/managed-ledgers/acme/n/persistent/b", encode_managed_ledger(ManagedLedger(())))
    (row,) = findings(cli, path)["migration-unfinished"]
    assert "it is not terminated" in row["message"]


@pytest.mark.usefixtures("damages_stores")
@pytest.mark.parametrize(
    "value",
    [
        *(
            b"{",
            b"[]",
            b'{"segments":[]}',
            b'{"segments":{"0":{}}}',
            b'{"epoch":-1}',
            b'{"segments":{"0":{"segmentId":1}}}',
        ),
        b'{"segments":{"0":{"segmentId":0,"hashRange":{"start":0,"end":65535},"state":"SEALED","createdAtEpoch":0,'
        b'"legacyTopicName":"segment://acme/n/b/0000-ffff-1"}}}',
    ],
)
def test_a_record_that_cannot_be_read_says_so(value: bytes, cli: Cli, tmp_path: Path) -> None:
    path = copied(WORLD, "clean", tmp_path)
    put_node(path, NODE, value)
    said = cli("--store", path, "-o", "json", "topics", "stats", TOPIC)
    assert (said.exit_code, said.error["code"]) == (6, MetadataCorrupt.code)
    assert [row["where"] for row in findings(cli, path)["value-undecodable"]] == [NODE]


@pytest.mark.usefixtures("damages_stores")
@pytest.mark.parametrize("value", [b"5", b"[" * 100_000, b'{"msgRateIn":"1"}', b'{"msgRateIn":NaN}', b"\xff", b""])
def test_rates_of_a_segment_that_cannot_be_read_are_left_out(value: bytes, cli: Cli, tmp_path: Path) -> None:
    path, node = copied(WORLD, "clean", tmp_path), f"{NODE}/segments/3/load"
    put_node(path, node, value)
    found = cli("--store", path, "scalable-topics", "stats", TOPIC, "-o", "json")
    segments = found.json["layout"]["segments"]
    assert (found.exit_code, node in found.stderr) == (1, True)
    assert [number for number, one in segments.items() if "load" not in one] == ["3"]


def test_a_state_of_segments_that_is_not_known_is_no_damage(cli: Cli, tmp_path: Path) -> None:
    path = copied(WORLD, "clean", tmp_path)
    record = json.loads(values_of(path)[NODE])
    record["segments"]["3"]["state"] = "FROZEN"
    put_node(path, NODE, json.dumps(record).encode())
    said = cli("--store", path, "-o", "json", "topics", "stats", TOPIC)
    assert said.error["code"] == Unsupported.code
    assert [*findings(cli, path)] == ["unknown-value"]
    assert cli("--store", path, "topics", "stats", "segment://acme/n/scal/0000-7fff-3").exit_code == 0
    assert read_rows(path, lambda txn: find_node(txn, NODE)) is not None


def test_segments_are_parents_first_also_where_epochs_or_a_circle_say_otherwise() -> None:
    def record(parents: dict[int, tuple[int, list[int]]]) -> bytes:
        row = {"hashRange": {"start": 0, "end": 65535}, "state": "SEALED"}
        return json.dumps(
            {
                "segments": {
                    str(number): row | {"segmentId": number, "createdAtEpoch": epoch, "parentIds": found}
                    for number, (epoch, found) in parents.items()
                }
            }
        ).encode()

    def ids(parents: dict[int, tuple[int, list[int]]]) -> list[int]:
        return [one.segment_id for one in decode_scalable_topic(record(parents), "/", parse_topic(TOPIC)).segments]

    assert ids({0: (5, []), 1: (1, [0]), 2: (2, [9]), 3: (0, [1, 2])}) == [2, 0, 1, 3]
    assert sorted(ids({0: (0, [1]), 1: (1, [0]), 2: (2, [1]), 3: (3, [3])})) == [0, 1, 2, 3]
    assert ids({number: (number, [number - 1] if number else []) for number in range(20_000)}) == [*range(20_000)]


@pytest.mark.usefixtures("damages_stores")
def test_no_command_is_printed_that_changes_the_list_of_a_segment(cli: Cli, tmp_path: Path) -> None:
    """Ledger 26 ends before its last entries: `ledgers restore --extend` is refused for segments."""
    path = copied(WORLD, "clean", tmp_path)
    with open_store(path) as store, store.read() as txn:
        metadata = find_metadata(txn, 26)
    assert metadata is not None
    put_node(path, ledger_path(26), encode_ledger_metadata(replace(metadata, last_entry_id=40, length=3400)))
    (told,) = cli.rows(path, "doctor --code ledger-list-differs")
    assert (told["where"].split(" of ")[1], told["mend"]) == (
        "segment://acme/n/scal/0000-ffff-2",
        "pulsar-admin ledgers info 26",
    )


@pytest.mark.usefixtures("damages_stores")
@pytest.mark.parametrize("value", [b"", b"\xff", b"\x08"])
def test_a_cursor_of_a_segment_that_cannot_be_read_is_told_and_counted(value: bytes, cli: Cli, tmp_path: Path) -> None:
    """Nothing but cursors lies below a segment: one that is damaged is no other thing."""
    path, segment = copied(WORLD, "clean", tmp_path), "segment://acme/n/scal/0000-7fff-3"
    before = cli.json(path, "overview")
    put_node(path, f"{parse_topic(segment).path}/q1", value)
    (told,) = cli.rows(path, "doctor --code cursor-unreadable")
    assert told["where"] == f"subscription 'q1' of {segment}"
    after = cli.json(path, "overview")
    assert (after["subscriptions"], after["unreadable"]) == (before["subscriptions"], 1)
    assert cli("--store", path, *told["mend"].split()[1:]).exit_code == 0
    assert cli.rows(path, "doctor --code cursor-unreadable") == []


def test_delays_of_a_segment_beyond_a_ttl_lead_to_the_ttl_of_its_namespace(cli: Cli, tmp_path: Path) -> None:
    name, cursors = f"segment://acme/n/scal/{SEGMENTS[3]}", {"s": CursorInfo(-1, Position(10, -1))}
    made = MadeTopic([[Message(hours=0, due_hours=9).made(0)]], cursors=cursors)
    store = make_store(tmp_path / "s", {name: made})
    put_node(store, "/admin/policies/acme/n", b'{"message_ttl_in_seconds": 3600}')
    (found,) = cli.json(store, f"--now @{NOW_MS} doctor --code delay-beyond-ttl")
    assert found["mend"] == "pulsar-admin namespaces get-message-ttl acme/n"
    assert cli("--store", store, *found["mend"].split()[1:]).exit_code == 0


def test_a_segment_is_led_to_the_policies_of_its_namespace(cli: Cli, tmp_path: Path) -> None:
    store = copied(WORLD, "clean", tmp_path)
    cli.on(store, "namespaces set-backlog-quota acme/n -l 1G -p producer_exception").ends(0)
    (row,) = (
        row
        for row in cli.json(store, f"topics why segment://acme/n/scal/{SEGMENTS[3]} -s q1")["reasons"]
        if row["code"] == "quota-left"
    )
    assert row["command"] == "pulsar-admin namespaces get-backlog-quotas acme/n"
