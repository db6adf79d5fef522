"""Where ZooKeeper's newest log ends: zeros of preallocation, a write that was stopped, or damage that looks like them."""

import os
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from pulsar_admin.store.codec.zookeeper_log import BadRecord, Transaction
from pulsar_admin.store.sources.zookeeper import last_transaction, read_log
from tests.conftest import Cli
from tests.cures.curing import diagnoses, run_printed
from tests.worlds import scratch_copy, world
from tests.zookeeper_files import read_zookeeper_nodes

MIB = 1 << 20
NEWEST = "log.482"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A version-2 of three logs, each with some zeros behind its records; the files' times are those of the copy."""
    made = tmp_path / "zk" / "version-2"
    made.mkdir(parents=True)
    for file in (world("cluster") / "crashed" / "zookeeper" / "version-2").iterdir():
        with file.open("rb") as source:
            (made / file.name).write_bytes(source.read(MIB))
    return made


def told(folder: Path) -> tuple[list[str], list[str]]:
    problems: list[str] = []
    notes: list[str] = []
    assert [*read_zookeeper_nodes(folder, problems, notes)]
    return problems, notes


def borders(log: Path) -> list[int]:
    """Where each record begins, and the end of the last, by their lengths alone."""
    raw, found = log.read_bytes(), [16]
    while length := int.from_bytes(raw[found[-1] + 8 : found[-1] + 12], "big"):
        found.append(found[-1] + 13 + length)
    return found


def zero(log: Path, begin: int, end: int | None = None) -> None:
    raw = log.read_bytes()
    end = len(raw) if end is None else end
    log.write_bytes(raw[:begin] + bytes(end - begin) + raw[end:])


def last_ms(folder: Path) -> int:
    last = last_transaction(folder)
    return last.time_ms


def test_a_sound_log_says_nothing(folder: Path) -> None:
    assert told(folder) == ([], [])


def test_zeros_from_inside_a_record_on_are_damage_unless_a_write_stops_there(folder: Path) -> None:
    """Of 600 places in a row, about as many as there are in front of a sector's border may be a write that was stopped."""
    for snapshot in folder.glob("snapshot.*"):
        snapshot.unlink()
    raw = (folder / NEWEST).read_bytes()
    inside = borders(folder / NEWEST)
    middle = 8_000
    count = {"damage": 0, "unsure": 0, "silent": 0}
    for begin in range(middle, middle + 600):
        (folder / NEWEST).write_bytes(raw[:begin] + bytes(len(raw) - begin))
        *_, last = read_log(folder / NEWEST)
        if isinstance(last, Transaction):
            count["silent"] += 1
            assert any(border <= begin <= border + 4 for border in inside)  # four zeros begin a record
            continue
        assert isinstance(last, BadRecord)
        count["unsure" if last.unfinished else "damage"] += 1
        if begin % 512 == 0:
            assert last.unfinished
    assert count["damage"] > 500
    assert count["unsure"] > 0


def test_the_zeroed_tail_is_told_and_the_store_is_incomplete(folder: Path, tmp_path: Path, cli: Cli) -> None:
    """60 nodes were other ones, without a word."""
    sound = {node.path: node for node in read_zookeeper_nodes(folder, [])}
    zero(folder / NEWEST, 8303)
    assert sum(node != sound.get(node.path) for node in read_zookeeper_nodes(folder, [])) > 10
    store = tmp_path / "s"
    answer = cli("--store", store, "store", "import", "cluster", "--zookeeper", folder.parent)
    assert (answer.exit_code, "zeros where no write stops" in answer.stderr) == (1, True)
    rows = cli("--store", store, "store", "check", "-o", "json").json
    assert [row["severity"] for row in rows if row.get("code") == "metadata-incomplete"] == ["problem"]


def test_metadata_that_ends_early_is_refreshed_or_rolled_forward_without_the_rest(tmp_path: Path, cli: Cli) -> None:
    source, store = scratch_copy("cluster", "clean", tmp_path), tmp_path / "s"
    os.truncate(source / "zookeeper" / "version-2" / "log.1", 60_000)
    bookies = [word for place in sorted(source.glob("bookkeeper*")) for word in ("--bookie", place)]
    imported = cli("--store", store, "store", "import", "cluster", "--zookeeper", source / "zookeeper", *bookies)
    imported.ends(1, "if you have none, roll it forward without what could not be read")
    older = next(row for row in cli("--store", store, "doctor", "-o", "json").json if row["code"] == "metadata-older")
    assert older["mend"] == "pulsar-admin store refresh"
    cli.on(store, "store recover --level B --accept-unknown-tree / --cluster test").ends(1)
    assert "metadata-older" not in cli("--store", store, "doctor", "-o", "json").stdout


def test_a_write_that_may_have_been_stopped_is_a_note_until_the_whole_log_comes(
    folder: Path, tmp_path: Path, cli: Cli, whole_cli: Cli
) -> None:
    raw, store = (folder / NEWEST).read_bytes(), tmp_path / "s"
    begins = {*borders(folder / NEWEST)}
    begin = next(sector for sector in range(8192, 1 << 16, 512) if not begins & {*range(sector - 5, sector + 1)})
    zero(folder / NEWEST, begin)
    answer = cli.done("--store", store, "store", "import", "cluster", "--zookeeper", folder.parent)
    assert "the last transaction was being written, or damage begins there" in answer.stderr
    found = {row["code"]: row for row in cli("--store", store, "store", "check", "-o", "json").json if "code" in row}
    assert found["zookeeper-log-end"]["severity"] == "note"
    assert "bytes of a record, then zeros" in found["zookeeper-log-end"]["message"]
    assert "metadata-incomplete" not in found
    assert "metadata-file-damaged" not in found
    (folder / NEWEST).write_bytes(raw)
    (told,) = [row for row in diagnoses(whole_cli, store) if row["code"] == "zookeeper-log-end"]
    run_printed(whole_cli, told["mend"])
    assert "zookeeper-log-end" not in cli("--store", store, "store", "check", "-o", "json").stdout


def test_a_log_without_the_transaction_that_it_is_named_for_is_a_note(folder: Path) -> None:
    zero(folder / NEWEST, 16)
    problems, (note,) = told(folder)
    assert problems == []
    assert f"{NEWEST} was created for transaction 0x482, and is empty" in note


@pytest.mark.parametrize(("step", "is_told"), [(2 * MIB, True), (4 * MIB, False)])
def test_a_log_that_was_extended_further_than_its_records_reach_has_lost_some(
    step: int, is_told: bool, folder: Path
) -> None:
    """The older logs tell by how much; where they are extended by as much, nothing shows that more was written."""
    for log in folder.glob("log.*"):
        os.truncate(log, 16 + (4 * MIB if log.name == NEWEST else step))
    problems, notes = told(folder)
    assert notes == []
    if is_told:
        (text,) = problems
        assert f"was extended to {16 + 4 * MIB} bytes" in text
    else:
        assert problems == []


def test_a_log_that_was_written_after_its_last_transaction_may_have_lost_some(folder: Path) -> None:
    """Zeros begin with a record, as they do in a sound log: its time tells, if times of files were kept by what copied them."""
    log = folder / NEWEST
    zero(log, borders(log)[20])
    for file in folder.iterdir():
        os.utime(file, (0, last_ms(folder) / 1000 - 60))
    os.utime(log, (0, last_ms(folder) / 1000 + 3))
    assert told(folder) == ([], [])
    os.utime(log, (0, last_ms(folder) / 1000 + 3600))
    problems, (note,) = told(folder)
    assert (problems, f"{NEWEST} was written at" in note) == ([], True)
    for file in folder.iterdir():  # the time of a copy
        os.utime(file, (0, last_ms(folder) / 1000 + 3600))
    assert told(folder) == ([], [])


def test_an_epoch_that_began_behind_the_last_transaction_is_a_note(folder: Path) -> None:
    (folder / "currentEpoch").write_text("0")
    assert told(folder) == ([], [])
    (folder / "currentEpoch").write_text("3\n")
    problems, (note,) = told(folder)
    assert (problems, "epoch 3 began" in note) == ([], True)


@pytest.mark.parametrize("zeros", [3 * MIB, 9 * MIB])
def test_a_hole_of_zeros_is_no_end(zeros: int, folder: Path) -> None:
    """However large: records behind it are read, and those that stood in it are counted."""
    log = folder / NEWEST
    raw, places = log.read_bytes(), borders(log)
    log.write_bytes(raw[: places[10]] + bytes(zeros) + raw[places[30] :])
    (text,) = told(folder)[0]
    assert f"{NEWEST} @ {places[10]:#x}: " in text
    assert "20 transactions before" in text


def test_a_record_behind_a_hole_whose_checksum_begins_with_zero_is_found(folder: Path) -> None:
    log = folder / NEWEST
    raw, places = log.read_bytes(), borders(log)
    body = bytearray(raw[places[30] + 12 : places[31] - 1])
    while zlib.adler32(body) >= 1 << 24:
        body[27] = (body[27] + 1) % 256  # the end of its time
        body[26] = (body[26] + (body[27] == 0)) % 256
    begun = struct.pack(">qi", zlib.adler32(body), len(body)) + body + b"B"
    log.write_bytes(raw[: places[10]] + bytes(5000) + begun + raw[places[31] :])
    zxids = [int.from_bytes(raw[place + 24 : place + 32], "big") for place in places[:-1]]
    found = [one.zxid for one in read_log(log) if isinstance(one, Transaction)]
    assert found == zxids[:10] + zxids[30:]


def _of_the_next_epoch(log: Path) -> bytes:
    """Return the first record of LOG as the first of epoch 1."""
    raw = log.read_bytes()
    body = bytearray(raw[28 : borders(log)[1] - 1])
    struct.pack_into(">q", body, 12, (1 << 32) + 1)
    return struct.pack(">qi", zlib.adler32(body), len(body)) + body + b"B"


@pytest.mark.parametrize(
    ("place", "is_told"), [(lambda begin: begin + 40, True), (lambda begin: begin // 512 * 512 + 512, False)]
)
def test_a_log_before_a_new_epoch_that_turns_into_zeros_is_damage(
    place: Callable[[int], int], is_told: bool, folder: Path
) -> None:
    """How many transactions of the epoch are lost cannot be counted."""
    log = folder / NEWEST
    (folder / "log.100000001").write_bytes(log.read_bytes()[:16] + _of_the_next_epoch(log) + bytes(5000))
    begin = next(begin for begin in borders(log)[20:] if 60 < begin % 512 < 400)
    zero(log, place(begin))
    problems, notes = told(folder)
    assert notes == []
    assert [f"{NEWEST} @ " in text for text in problems] == [True] * is_told
