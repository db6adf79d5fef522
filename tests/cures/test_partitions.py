"""Partitioned topics whose metadata and partitions do not agree."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from msgspec import Struct
from msgspec.structs import replace

from pulsar_admin.store.codec.cursor import CursorInfo
from pulsar_admin.store.codec.ledgermetadata import ledger_path
from pulsar_admin.store.db.files import METADATA_FILE_ID, WHOLE_METADATA, Damage, put_damage
from pulsar_admin.store.names import Position, parse_topic
from tests.conftest import Cli
from tests.cures.curing import Json, Told, check_cured, check_told, diagnoses, put_values, run_printed, told
from tests.stores import copied, lose_nodes, write_rows
from tests.synthetic import CREATED_MS, Made, MadeTopic, make_store

NAME = parse_topic("acme/iot/readings")
ENTRIES = 4


class Fault(Struct, frozen=True):
    """What is planted: the partitions THERE, what their metadata says (None: there is none), whether there is a PLAIN topic.

    ``changed``: the paths that the cure changes; ``follows``: what is told of what it did.
    """

    there: Sequence[int]
    record: Mapping[str, object] | None
    plain: bool
    code: str
    severity: str
    changed: Sequence[str]
    mend: str
    follows: Sequence[Told] = ()


RECORD = NAME.partitioned_path
FAULTS = {
    "metadata lost": Fault(
        (0, 1, 2), None, False, "partitions-without-metadata", "warning", [RECORD],
        f"topics create-partitioned-topic {NAME} -p 3",
    ),
    "metadata and a partition lost": Fault(
        (0, 2), None, False, "partitions-without-metadata", "warning", [RECORD, NAME.partition(1).path],
        f"topics create-partitioned-topic {NAME} -p 3",
    ),
    "metadata of a topic without": Fault(
        (0, 1), {"partitions": 0}, False, "partitions-without-metadata", "warning", [RECORD],
        f"topics create-partitioned-topic {NAME} -p 2",
    ),
    "number too low": Fault(
        (0, 1, 2), {"partitions": 2}, False, "partitions-beyond-metadata", "warning", [RECORD],
        f"topics update-partitioned-topic {NAME} -p 3",
    ),
    "some missing": Fault(
        (0, 2), {"partitions": 4}, False, "partitions-missing", "warning", [NAME.partition(one).path for one in (1, 3)],
        f"topics create-missed-partitions {NAME}",
    ),
    "none there": Fault(
        (), {"partitions": 2}, False, "partitions-missing", "note", [NAME.partition(one).path for one in range(2)],
        f"topics create-missed-partitions {NAME}",
    ),
    "half deleted": Fault(
        (), {"partitions": 2, "deleted": True}, False, "partitioned-topic-half-deleted", "warning", [RECORD],
        f"topics delete-partitioned-topic {NAME}",
    ),
    "half deleted, and one beyond the number": Fault(
        (5,), {"partitions": 2, "deleted": True}, False, "partitioned-topic-half-deleted", "warning", [RECORD],
        f"topics delete-partitioned-topic {NAME}", [("partitions-without-metadata", str(NAME))],
    ),
    "plain under the name": Fault(
        (), {"partitions": 3}, True, "partitioned-name-over-topic", "warning", [RECORD],
        f"topics delete-partitioned-topic {NAME}",
    ),
    "plain beside partitions": Fault(
        (0, 1), {"partitions": 2}, True, "topic-beside-partitions", "warning", [NAME.path, NAME.cursor_path("s"), ledger_path(14)],
        f"topics delete {NAME}", [("ledgers-deleted", "ledger 14")],
    ),
}  # fmt: skip


def made(path: Path, fault: Fault | None) -> Path:
    """A store with the topic, three partitions of it if nothing is wrong, its schema, and another topic that is whole."""
    there = (0, 1, 2) if fault is None else fault.there
    names = [*(NAME.partition(index) for index in there), *([NAME] if fault is not None and fault.plain else [])]
    topics = [parse_topic("acme/iot/other-partition-0"), parse_topic("acme/iot/plain"), *names]
    entries = [Made(CREATED_MS, broker_ms=CREATED_MS) for _ in range(ENTRIES)]
    make_store(
        path,
        {
            str(name): MadeTopic([entries], cursors={"s": CursorInfo(-1, Position(10 + place, ENTRIES - 1))})
            for place, name in enumerate(topics)
        },
    )
    records: dict[str, Json] = {parse_topic("acme/iot/other").partitioned_path: {"partitions": 1}}
    if fault is None or fault.record is not None:
        records[RECORD] = {"partitions": 3} if fault is None else fault.record
    put_values(path, {where: json.dumps(value).encode() for where, value in records.items()})
    return path


@pytest.mark.usefixtures("damages_stores")
@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_it_is_told_and_cured(fault: Fault, whole_cli: Cli, tmp_path: Path) -> None:
    before, store = diagnoses(whole_cli, made(tmp_path / "whole", None)), made(tmp_path / "s", fault)
    (row,) = check_told(whole_cli, store, before, [(fault.code, str(NAME))])
    assert (row["severity"], row["evidence"]["entries"]) == (fault.severity, ENTRIES * len(fault.there))
    assert row["mend"].endswith(fault.mend)
    assert ("leaves partition 5," in row["message"]) is (5 in fault.there)
    checked = whole_cli("--store", store, "store", "check", "-o", "jsonl").json_lines
    assert [one["where"] for one in checked if one["code"] == fault.code] == [str(NAME)]
    rest = told(before) + Counter(fault.follows)
    check_cured(whole_cli, store, row, rest, fault.changed)


@pytest.mark.usefixtures("damages_stores")
@pytest.mark.parametrize("is_recorded", [True, False])
def test_a_partition_that_was_lost_is_not_created_empty(is_recorded: bool, whole_cli: Cli, tmp_path: Path) -> None:
    """Its ledger would be nobody's: the command shows how the partition comes back, and then the rest is whole."""
    store, name = copied("small", "clean", tmp_path), parse_topic("acme/orders/parts")
    before = diagnoses(whole_cli, store)
    lose_nodes(store, name.partition(2).path, *([] if is_recorded else [name.partitioned_path]))
    code = "partitions-missing" if is_recorded else "partitions-without-metadata"
    rows = {one["code"]: one for one in diagnoses(whole_cli, store)}
    lost, row = rows["topic-vanished"], rows[code]
    assert "of partition 2 ledgers or subscriptions remain" in row["message"]
    assert row["mend"].endswith("doctor --code topic-vanished")
    if not is_recorded:
        lose_nodes(store, name.partition(0).path)
        asked = whole_cli("--store", store, "-o", "json", "topics", "get-partitioned-topic-metadata", str(name))
        assert "create" not in asked.error["hint"]  # partition 0 empty
    run_printed(whole_cli, lost["mend"])
    for left in diagnoses(whole_cli, store):
        if left["where"] == str(name):  # the metadata, by the command that is printed now
            run_printed(whole_cli, left["mend"])
    assert told(diagnoses(whole_cli, store)) == told(before)


@pytest.mark.usefixtures("damages_stores")
@pytest.mark.parametrize("fault", ["metadata lost", "number too low", "some missing", "plain under the name"])
def test_beside_metadata_that_was_not_read_nothing_is_created_or_deleted(
    fault: str, whole_cli: Cli, tmp_path: Path
) -> None:
    store, lost = made(tmp_path / "s", FAULTS[fault]), Damage(METADATA_FILE_ID, WHOLE_METADATA, 1, "log.1: cut", -1, -1)
    write_rows(store, lambda txn: put_damage(txn, lost))
    (row,) = diagnoses(whole_cli, store, "--code", FAULTS[fault].code)
    assert row["mend"].endswith(" store refresh")


@pytest.mark.parametrize("record", [None, {"partitions": 1}])
def test_a_date_at_the_end_of_a_name_creates_no_partitions(
    record: Mapping[str, object] | None, whole_cli: Cli, tmp_path: Path
) -> None:
    store = made(tmp_path / "s", Fault((0, 20_240_101), record, False, "", "", (), ""))
    (row,) = [row for row in diagnoses(whole_cli, store) if row["where"] == str(NAME)]
    assert "probably part of a name" in row["message"]
    assert row["mend"].endswith(f"topics stats {NAME.partition(20_240_101)}")


@pytest.mark.parametrize("there", [(), (1, 3)])
@pytest.mark.usefixtures("damages_stores")
def test_a_number_of_partitions_that_nobody_could_list(there: Sequence[int], whole_cli: Cli, tmp_path: Path) -> None:
    """A damaged number is no reason to run out of memory: what is missing is counted, and the first ones are named."""
    fault = Fault(there, {"partitions": 2**31 - 1}, False, "partitions-missing", "warning" if there else "note", (), "")
    store = made(tmp_path / "s", fault)
    (row,) = diagnoses(whole_cli, store, "--code", fault.code)
    assert row["severity"] == fault.severity
    said = "partitions 0, 2, 4, 5, 6 and 2,147,483,640 more are missing" if there else "none is there"
    assert said in row["message"]
    assert row["mend"].endswith(f"topics get-partitioned-topic-metadata {NAME}")  # creating all is refused
    stats = whole_cli("--store", store, "topics", "partitioned-stats", NAME, "--per-partition")
    assert len(stats.json["partitions"]) == len(there)
    whole_cli("--store", store, "topics", "stats", NAME).ends(6, "so the number is damaged")


@pytest.mark.usefixtures("damages_stores")
def test_what_cannot_be_read_is_not_to_be_deleted(whole_cli: Cli, tmp_path: Path) -> None:
    """Which is refused: the finding stays, with a look; how much is there is not known."""
    fault = FAULTS["plain beside partitions"]
    store = made(tmp_path / "s", fault)
    put_values(store, {NAME.path: b"\xff"})
    (row,) = [row for row in diagnoses(whole_cli, store) if row["code"] == fault.code]
    assert row["mend"].endswith("doctor --code topic-unreadable")
    assert row["evidence"]["topicEntries"] is None


@pytest.mark.usefixtures("damages_stores")
def test_a_deletion_that_ends_at_a_damaged_list_is_finished_and_its_ledgers_stay(
    whole_cli: Cli, tmp_path: Path
) -> None:
    fault = replace(FAULTS["half deleted"], there=(0, 1))
    store = made(tmp_path / "s", fault)
    put_values(store, {NAME.partition(0).path: b"\xff"})
    rows = diagnoses(whole_cli, store)
    (row,) = [row for row in rows if row["code"] == fault.code]
    assert (row["evidence"]["entries"], "of partition 0 is damaged" in row["message"]) == (None, True)
    before = whole_cli("--store", store, "ledgers", "info", 12, "-o", "json").json
    run_printed(whole_cli, row["mend"])
    after = diagnoses(whole_cli, store)
    assert not {one["code"] for one in after} & {fault.code, "topic-unreadable"}
    assert whole_cli("--store", store, "ledgers", "info", 12, "-o", "json").json["metadata"] == before["metadata"]


def test_a_topic_named_like_a_partition_of_no_name(whole_cli: Cli, tmp_path: Path) -> None:
    """Nor is ``t-partition-07`` a partition to a broker: nothing could be created over either."""
    names = ["a/b/-partition-3", "a/b/t-partition-07"]
    store = make_store(tmp_path / "s", {name: MadeTopic([[Made(CREATED_MS, broker_ms=CREATED_MS)]]) for name in names})
    assert {row["code"] for row in diagnoses(whole_cli, store)} <= {"not-closed"}


def test_refusals_name_the_partitions(cli: Cli, tmp_path: Path) -> None:
    store = made(tmp_path / "s", FAULTS["metadata and a partition lost"])
    for words in ("get-partitioned-topic-metadata", "partitioned-stats", "stats"):
        refused = cli("--store", store, "-o", "json", "topics", words, NAME).ends(5)
        assert "only its partitions 0 and 2 exist" in refused.error["message"]
        assert refused.error["hint"].endswith("pulsar-admin doctor")  # partition 1 may be lost
    lose_nodes(store, NAME.partition(2).path)
    refused = cli("--store", store, "-o", "json", "topics", "stats", NAME)
    assert refused.error["hint"].endswith(f"pulsar-admin topics create-partitioned-topic {NAME} -p 1")
    store = made(tmp_path / "deleted", FAULTS["half deleted"])
    refused = cli("--store", store, "-o", "json", "topics", "create-partitioned-topic", NAME, "-p", 2)
    assert (refused.exit_code, refused.error["code"]) == (3, "already-exists")
    assert "marked as deleted" in refused.error["message"]
    assert refused.error["hint"].endswith(f"pulsar-admin topics delete-partitioned-topic {NAME}")
    store = made(tmp_path / "under", FAULTS["plain under the name"])
    refused = cli("--store", store, "-o", "json", "topics", "skew", NAME).ends(5)
    assert "although the metadata" in refused.stderr
    assert "pulsar-admin doctor" in refused.stderr
    assert "although" not in cli("--store", store, "topics", "stats", "public/default/nope").ends(5).stderr


@pytest.mark.parametrize(
    ("fault", "command"), [("plain beside partitions", "delete"), ("plain under the name", "delete-partitioned-topic")]
)
def test_what_two_topics_of_a_name_share_stays(fault: str, command: str, cli: Cli, tmp_path: Path) -> None:
    """Their schema, and policies of topics; where the last one goes, they go, too."""
    store = made(tmp_path / "s", FAULTS[fault])
    schema = tmp_path / "schema.json"
    schema.write_text(json.dumps({"type": "STRING", "schema": "", "properties": {}}))
    assert cli("--store", store, "schemas", "upload", NAME, "-f", schema).exit_code == 0
    assert cli("--store", store, "topics", command, NAME, "-y").exit_code == 0
    assert cli("--store", store, "schemas", "get", NAME).exit_code == 0
    last = "delete-partitioned-topic" if command == "delete" else "delete"
    assert cli("--store", store, "topics", last, NAME, "-y").exit_code == 0
    assert cli("--store", store, "schemas", "get", NAME).exit_code == 5


def test_a_name_for_which_no_metadata_can_be_created(whole_cli: Cli, tmp_path: Path) -> None:
    """Such as that of a dead letter topic of a partition: the command would be refused."""
    name = parse_topic("a/b/x-partition-0-s-DLQ")
    topics = {str(name.partition(0)): MadeTopic([[Made(CREATED_MS, broker_ms=CREATED_MS)]])}
    store = make_store(tmp_path / "s", topics)
    (row,) = diagnoses(whole_cli, store, "--code", "partitions-without-metadata")
    assert "so no command creates it" in row["message"]
    assert row["mend"].endswith(f"topics stats {name.partition(0)}")
    run_printed(whole_cli, row["mend"])
    assert whole_cli("--store", store, "topics", "create-partitioned-topic", name, "-p", 1).exit_code == 2
