"""PIP-345's two numbers: read where the proposal put them, compared with the entries, written as ledger properties."""

import shlex
import shutil
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import pytest
from google.protobuf.unknown_fields import UnknownFieldSet
from msgspec.structs import replace

from pulsar_admin.store.codec.cursor import CursorInfo, encode_cursor_info
from pulsar_admin.store.codec.managedledger import LedgerInfo, decode_managed_ledger, encode_managed_ledger
from pulsar_admin.store.codec.rocksvalue import decode_value
from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.db.tree import read_node
from pulsar_admin.store.doctor.diagnosing import check_store
from pulsar_admin.store.model.publish_times import BEGIN, END, stated_times
from pulsar_admin.store.names import Position, TopicName, parse_topic
from pulsar_admin.store.proto.managed_ledger_pb2 import ManagedLedgerInfo
from pulsar_admin.store.sources.rocksdb import read_values
from tests.conftest import Cli
from tests.stores import change_value, copied, imported, put_node, read_rows
from tests.synthetic import Made, MadeTopic, make_store
from tests.worlds import assert_unchanged, oracle, world

START_MS = 1_700_000_000_000
TOPIC = parse_topic("t/n/x")


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _seed_form(path: Path, begin_ms: int, end_ms: int, topic: TopicName = TOPIC) -> None:
    """Append the proposal's fields 6 and 7 (varints) to the first LedgerInfo, byte by byte."""

    def with_fields(value: bytes) -> bytes:
        assert value[0] == 0x0A
        info = value[2 : 2 + value[1]] + b"\x30" + _varint(begin_ms) + b"\x38" + _varint(end_ms)
        return b"\x0a" + _varint(len(info)) + info + value[2 + value[1] :]

    change_value(path, topic.path, with_fields)


def _codes(path: Path) -> list[str]:
    with open_store(path) as store:
        return [finding.message for finding in check_store(store) if finding.code == "publish-time-differs"]


def _made(path: Path, **lost: bool) -> Path:
    made = [Made(START_MS + 5), Made(START_MS + 1), Made(START_MS + 9, lost=bool(lost))]
    return make_store(path, {str(TOPIC): MadeTopic([made, [Made(START_MS)]])})


def test_stated_times_are_compared_with_the_entries(tmp_path: Path) -> None:
    _seed_form(_made(tmp_path / "right"), START_MS + 1, START_MS + 9)
    assert _codes(tmp_path / "right") == []
    _seed_form(_made(tmp_path / "wrong"), START_MS + 2, START_MS + 9)
    assert _codes(tmp_path / "wrong") == [f"its field {BEGIN} says {START_MS + 2}, its entries {START_MS + 1}"]
    # Also of a ledger that is known to be whole, whose list agrees.
    _seed_form(path := copied("small", "clean", tmp_path), 1, 2, parse_topic("public/default/plain"))
    assert [text.partition(", ")[0] for text in _codes(path)] == [
        f"its field {BEGIN} says 1",
        f"its field {END} says 2",
    ]


def test_wrong_times_are_written_again(tmp_path: Path, cli: Cli) -> None:
    """The command that the doctor prints of "publish-time-differs" cures it."""
    path = _made(tmp_path / "s")
    before = cli("--store", path, "doctor", "-o", "jsonl").json_lines
    _seed_form(path, START_MS + 2, START_MS + 9)
    (row,) = [row for row in cli("--store", path, "doctor", "-o", "jsonl").json_lines if row not in before]
    assert row["code"] == "publish-time-differs"
    assert cli("--store", path, *shlex.split(row["mend"])[1:]).exit_code == 0
    assert cli("--store", path, "doctor", "-o", "jsonl").json_lines == before


def test_stated_times_are_all_there_is_of_a_lost_ledger(tmp_path: Path, cli: Cli) -> None:
    made = [Made(START_MS, lost=True)]
    path = make_store(tmp_path / "s", {str(TOPIC): MadeTopic([made], open_last=False)})
    _seed_form(path, START_MS + 7, START_MS + 8)
    shown = cli("--store", path, "topics", "stats-internal", "t/n/x", "--explain", "-o", "json").json["ledgers"][0]
    assert (shown[BEGIN], shown[END]) == (START_MS + 7, START_MS + 8)
    info = cli("--store", path, "topics", "info-internal", "t/n/x", "--explain", "-o", "json").json["ledgers"][0]
    assert (info[BEGIN], info[END]) == (START_MS + 7, START_MS + 8)
    assert _codes(path) == []  # nothing to compare with


def test_export_annotates_the_copy(store: Path, tmp_path: Path, cli: Cli) -> None:
    first = parse_topic("acme/delayed/a")  # only its cursor is there, and most topics come after it
    put_node(store, first.cursor_path("s"), encode_cursor_info(CursorInfo(-1, Position(0, -1))))
    with assert_unchanged(store / "meta" / "data.mdb"):
        words = ("store", "export", "standalone", tmp_path / "out", "--annotate", "-o", "json")
        report = cli("--store", store, *words).json
    paths = {node["path"] for node in report["nodes"]}
    compared = 0
    before = read_values(world("small") / "clean" / "metadata", [path.encode() for path in paths])
    after = read_values(tmp_path / "out" / "metadata", [path.encode() for path in paths])
    for name, recorded in oracle("small")["topics"].items():
        key = parse_topic(name).path.encode()
        if key not in after:
            continue
        times: dict[int, dict[int, int]] = defaultdict(dict)
        for row in recorded["messages"]:
            times[row[0]][row[1]] = row[3]
        value = decode_value(after[key], name)[1]
        for info in decode_managed_ledger(value, name).ledgers:
            found = times[info.ledger_id].values()
            if info.timestamp_ms and 0 < len(found) == info.entries:  # a client reads no markers and nothing aborted
                assert info.properties == {BEGIN: str(min(found)), END: str(max(found))}
                compared += 1
        for info in ManagedLedgerInfo.FromString(value).ledgerInfo:
            assert len(UnknownFieldSet(info)) == 0  # never the proposal's varints
        old_stat, old = decode_value(before[key], name)
        assert decode_value(after[key], name)[0].version == old_stat.version + 1
        stripped = tuple(replace(info, properties={}) for info in decode_managed_ledger(value, name).ledgers)
        assert stripped == decode_managed_ledger(old, name).ledgers
    assert compared > 50


def test_annotated_directories_import_and_check(tmp_path: Path, cli: Cli) -> None:
    assert cli("--store", imported("small", "clean"), "store", "export", "standalone", tmp_path / "out", "--annotate")
    again = tmp_path / "again"
    assert cli("--store", again, "store", "import", "standalone", tmp_path / "out", "-q").exit_code == 0
    assert _codes(again) == []
    # A second time nothing is left to write.
    twice = cli("--store", again, "store", "export", "standalone", tmp_path / "twice", "--annotate", "-o", "json").json
    assert twice["nodes"] == []


def _stated_by_hand(value: bytes) -> list[tuple[int, int, int]]:
    """(ledger, begin, end) of the proposal's fields, read with protobuf alone; what today's schema has there are properties."""
    found = []
    for info in ManagedLedgerInfo.FromString(value).ledgerInfo:
        fields = {one.field_number: one.data for one in UnknownFieldSet(info)}
        if fields:
            assert set(fields) == {6, 7}
            found.append((info.ledgerId, fields[6], fields[7]))
    return found


def _recorded_times(topic: str, ledgers: Sequence[LedgerInfo]) -> list[tuple[int, int, int]]:
    """The same of closed ledgers from what the real client received."""
    times: dict[int, list[int]] = defaultdict(list)
    for row in oracle("small")["topics"][topic]["messages"]:
        times[row[0]].append(row[3])
    return [
        (one.ledger_id, min(times[one.ledger_id]), max(times[one.ledger_id]))
        for one in ledgers
        if one.timestamp_ms and one.entries
    ]


def test_annotate_is_a_change_with_undo_and_plan(store: Path, tmp_path: Path, cli: Cli) -> None:
    plain = parse_topic("public/default/plain")
    words = ("--store", store, "store", "annotate", plain, "--form", "fields", "-o", "json")
    before = read_rows(store, lambda txn: read_node(txn, plain.path))
    shown = cli(*words, "--dry-run").json
    expected = _recorded_times("public/default/plain", decode_managed_ledger(before.value, "").ledgers)
    assert len(expected) > 5
    assert (shown["before"], shown["after"]) == ({"annotatedLedgers": 0}, {"annotatedLedgers": len(expected)})
    assert cli(*words, "--plan", tmp_path / "plan").exit_code == 0
    assert cli("--store", store, "apply", tmp_path / "plan").exit_code == 0
    after = read_rows(store, lambda txn: read_node(txn, plain.path))
    assert _stated_by_hand(after.value) == expected
    assert after.stat.version == before.stat.version + 1
    assert cli(*words).json["annotated"] == []  # nothing is left to write
    check = cli("--store", store, "store", "check", "--deep", "-o", "json")
    assert (check.exit_code, [row for row in check.json if row["severity"] == "problem"]) == (0, [])
    assert cli("--store", store, "store", "undo", "1").exit_code == 0
    assert read_rows(store, lambda txn: read_node(txn, plain.path).value) == before.value


def test_export_in_place_annotates_the_store_first(tmp_path: Path, cli: Cli) -> None:
    """Both say the same afterwards, in the form asked for; the change is in the log."""
    data, store = tmp_path / "data", tmp_path / "s"
    shutil.copytree(world("small") / "clean", data)
    cli("--store", store, "store", "import", "standalone", data)
    words = f"--store {store} store export standalone {data} --in-place --annotate fields --yes -o json".split()
    shown = cli(*words, "--dry-run").json["nodes"]
    done = cli(*words)
    assert (done.exit_code, done.json["nodes"]) == (0, shown)
    key = parse_topic("public/default/plain").path.encode()
    value = decode_value(read_values(data / "metadata", [key])[key], "plain")[1]
    assert _stated_by_hand(value) == _recorded_times("public/default/plain", decode_managed_ledger(value, "").ledgers)
    assert read_rows(store, lambda txn: read_node(txn, key.decode()).value) == value
    commands = [row["command"] for row in cli("--store", store, "store", "log", "-o", "json").json]
    assert commands == ["store annotate", "store export standalone --in-place"]
    assert cli(*words).json["nodes"] == []


def _lost(path: Path, *, properties: bool, clock_ms: int | None = None) -> Path:
    """Three ledgers of a topic, an hour apart, none of whose entries is here, and one that is; times stated of the first two."""
    hours = [
        [Made(START_MS + hour * 3_600_000 + second, lost=hour < 3, broker_ms=clock_ms) for second in range(5)]
        for hour in range(4)
    ]
    make_store(path, {str(TOPIC): MadeTopic(hours, closed_ms=[START_MS] * 4)})

    def state(value: bytes) -> bytes:
        managed = decode_managed_ledger(value, TOPIC.path)
        infos = list(managed.ledgers)
        for hour in range(2):
            begin, end = START_MS + hour * 3_600_000, START_MS + hour * 3_600_000 + 4
            if properties:
                infos[hour] = replace(infos[hour], properties={BEGIN: str(begin), END: str(end)})
        return encode_managed_ledger(replace(managed, ledgers=tuple(infos)), value)

    change_value(path, TOPIC.path, state)
    if not properties:
        _seed_form(path, START_MS, START_MS + 4)
    return path


@pytest.mark.parametrize("properties", [True, False])
def test_stated_times_rule_ledgers_out_whose_entries_are_not_here(tmp_path: Path, cli: Cli, properties: bool) -> None:
    """The rest of what is not here could hold an earlier answer: exit code 1 with the answer among what is readable."""
    path = _lost(tmp_path / "s", properties=properties)
    asked = START_MS + 3_600_000 + 5 if properties else START_MS + 5
    ask = ("--store", path, "topics", "find-by-time", TOPIC, "-o", "json", "--time")
    found = cli(*ask, f"@{asked}").ends(1)
    assert found.json["ledgersWithoutIndex"] == ([12] if properties else [11, 12])
    assert found.json["position"]["ledgerId"] == 13
    assert "5 lost entries of ledger 12 (12:0 to 12:4)" in found.stderr
    assert cli(*ask, f"@{START_MS + 2}").json["ledgersWithoutIndex"] == [10, 11, 12]
    nothing = cli(*ask, f"@{START_MS + 10**9}")
    assert (nothing.exit_code, nothing.json["position"]) == (1, None)
    text = cli("--store", path, "topics", "find-by-time", TOPIC, "--time", f"@{asked}", "--explain").stdout
    assert f"states that it ends at {'2023-11-14T23:13:20.004Z' if properties else '2023-11-14T22:13:20.004Z'}" in text


def test_publish_times_do_not_rule_out_by_the_brokers_clock(tmp_path: Path, cli: Cli) -> None:
    path = _lost(tmp_path / "s", properties=True, clock_ms=START_MS + 10**10)
    ask = ("--store", path, "topics", "find-by-time", TOPIC, "-o", "json", "--time", f"@{START_MS + 3_600_005}")
    assert cli(*ask).json["ledgersWithoutIndex"] == [10, 11, 12]
    assert cli(*ask, "--clock", "broker").json["ledgersWithoutIndex"] == [10, 11, 12]
    assert cli(*ask, "--clock", "publish").json["ledgersWithoutIndex"] == [12]


def test_what_is_derived_and_what_is_stored_is_said(tmp_path: Path, cli: Cli) -> None:
    for properties, source in ((True, "property"), (False, "field")):
        path = _lost(tmp_path / source, properties=properties)
        for command in ("stats-internal", "info-internal"):
            ledgers = cli("--store", path, "topics", command, TOPIC, "--explain", "-o", "json").json["ledgers"]
            assert (ledgers[0]["beginPublishTimestamp"], ledgers[0]["endPublishTimestamp"]) == (START_MS, START_MS + 4)
            told = [ledger.get("publishTimestampsFrom") for ledger in ledgers]
            assert told == [source, source if properties else None, None, "entries"]


@pytest.mark.parametrize("texts", [("", ""), ("5", "x"), ("9", "5"), ("²", "9"), ("1" * 30, "1" * 30), ("-1", "5")])
def test_nonsense_states_nothing(texts: tuple[str, str]) -> None:
    assert stated_times(LedgerInfo(1, 5, 5, 1, properties=dict(zip((BEGIN, END), texts, strict=True)))) is None
