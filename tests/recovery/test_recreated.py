"""A topic that was deleted and created again under its name: ZooKeeper's log of a recorded cluster goes on with what a broker does then."""

import struct
import zlib
from pathlib import Path
from typing import Any

import pytest

from pulsar_admin.store.recovery.deleted_nodes import Fate, Past
from pulsar_admin.store.transfer.imports import ImportOptions
from tests.conftest import Cli
from tests.recovery.written import writes_of
from tests.stores import NOW_MS, import_standalone
from tests.worlds import CLUSTER, scratch_copy, world

TOPIC = "acme/delayed/reminders"
PATH = "/managed-ledgers/acme/delayed/persistent/reminders"
AGAIN = 128
"""A ledger of 20 entries that another deletion left on the bookies: the topic that is created again has it."""
ENTRIES, READ = 20, 5
HOUR_MS = 3_600_000
Change = tuple[str, bytes | None]


def values_of(version_2: Path) -> dict[str, bytes | None]:
    """Path → its value at the end of ZooKeeper's logs, None of what was deleted."""
    return {path: value for _, path, value in writes_of(version_2)}


def go_on(version_2: Path, changes: list[Change]) -> int:
    """Write a log of transactions, each of one second and one change (None deletes), after the last one; return the time of the last."""
    last = max(version_2.glob("log.*"), key=lambda file: int(file.name[4:], 16))
    raw, offset = last.read_bytes(), 16
    zxid = time_ms = 0
    while (size := struct.unpack_from(">qi", raw, offset)[1]) > 0:
        zxid, time_ms = struct.unpack_from(">qq", raw, offset + 24)
        offset += 12 + size + 1
    log = raw[:16]
    for number, (path, value) in enumerate(changes, 1):
        place = struct.pack(">i", len(path)) + path.encode()
        body = struct.pack(
            ">qiqqi", 1, number, zxid + number, time_ms + HOUR_MS + 1000 * number, 2 if value is None else 1
        )
        body += place
        if value is not None:
            acl = struct.pack(">iii", 1, 31, 5) + b"world" + struct.pack(">i", 6) + b"anyone"
            body += struct.pack(">i", len(value)) + value + acl + struct.pack(">?i", False, -1)
        log += struct.pack(">qi", zlib.adler32(body), len(body)) + body + b"B"
    (version_2 / f"log.{zxid + 1:x}").write_bytes(log + bytes(1024))
    return int(time_ms) + HOUR_MS + 1000 * len(changes)


def varint(number: int) -> bytes:
    return bytes([number & 127 | 128]) + varint(number >> 7) if number > 127 else bytes([number])


def position(ledger_id: int, entry_id: int) -> bytes:
    return b"\x08" + varint(ledger_id) + b"\x10" + varint(entry_id)


@pytest.fixture
def sources(tmp_path: Path) -> tuple[Path, int]:
    """A copy of the cluster in which the topic was deleted, and a subscriber created it again and read some; and when that was."""
    source = scratch_copy(CLUSTER, "crashed", tmp_path)
    version_2 = source / "zookeeper" / "version-2"
    values = values_of(version_2)
    ledger = next(
        value for _, path, value in writes_of(version_2) if path.endswith("/L0128") and value and b"doomed" in value
    )
    listed = b"\x08" + varint(AGAIN) + b"\x10" + varint(ENTRIES) + b"\x18" + varint(4000) + b"\x20" + varint(1)
    # ManagedCursorInfo: no cursor ledger (-1), and the position.
    cursor = b"\x08" + b"\xff" * 9 + b"\x01" + b"\x10" + varint(AGAIN) + b"\x18" + varint(READ - 1)
    cursors = [path for path, value in values.items() if path.startswith(f"{PATH}/") and value is not None]
    assert {path.rpartition("/")[2] for path in cursors} == {"workers", "audit"}
    ids = ledgers_of(values[PATH] or b"")
    gone = [
        *cursors,
        *(f"/ledgers/00/0000/L{one:04}" for one in ids if values.get(f"/ledgers/00/0000/L{one:04}")),
        PATH,
    ]
    created = [
        ("/ledgers/00/0000/L0128", ledger),
        (PATH, b"\x0a" + varint(len(listed)) + listed),
        (f"{PATH}/workers", cursor),
    ]
    end_ms = go_on(version_2, [(path, None) for path in gone] + created)
    return source, end_ms - 1000 * len(created)


def ledgers_of(value: bytes) -> list[int]:
    from pulsar_admin.store.proto import managed_ledger_pb2

    return [info.ledgerId for info in managed_ledger_pb2.ManagedLedgerInfo.FromString(value).ledgerInfo]


def imported_from(source: Path, store: Path) -> Path:
    import_standalone(source, store, ImportOptions(now_ms=NOW_MS), lambda _: None)
    return store


def positions(cli: Cli, store: Path, topic: str) -> Any:  # Any: JSON
    cursors = cli("--store", store, "-o", "json", "topics", "stats-internal", topic).json["cursors"]
    return {name: (one["markDeletePosition"], one["individuallyDeletedMessages"]) for name, one in cursors.items()}


def backlogs(cli: Cli, store: Path, topic: str) -> dict[str, int]:
    stats = cli("--store", store, "-o", "json", "topics", "stats", topic).json["subscriptions"]
    return {name: one["msgBacklog"] for name, one in stats.items()}


def payloads(cli: Cli, store: Path, topic: str) -> list[str]:
    return [row["sha1"] for row in cli("--store", store, "topics", "read", topic, "-o", "jsonl").json_lines]


def test_of_a_node_its_last_values_and_that_of_a_time_are_kept() -> None:
    """Written, deleted, made again, changed and deleted: as of each time from before the first to after the last."""
    events = [(10, b"a"), (20, None), (30, b"b"), (40, b"c"), (50, None)]
    for at_ms in range(9, 52):
        past = Past()
        for time_ms, value in events:
            past.put("/x", value, time_ms, at_ms)
        then = [None, *(value for time_ms, value in events if time_ms <= at_ms)][-1]
        assert past.fates == {"/x": Fate(b"c", 40, 50, then, Fate(b"a", 10, 20))}, at_ms


@pytest.mark.usefixtures("damages_stores")
def test_it_comes_back_as_it_was_when_it_was_deleted(cli: Cli, tmp_path: Path, sources: tuple[Path, int]) -> None:
    source, deleted_ms = sources
    before = imported_from(world(CLUSTER) / "crashed", tmp_path / "before")
    store = imported_from(source, tmp_path / "store")
    was, left, messages = (answer(cli, before, TOPIC) for answer in (positions, backlogs, payloads))
    assert any(ranges != "[]" for _, ranges in was.values())
    assert payloads(cli, store, TOPIC) != messages

    rows = {row["topic"]: row for row in cli("--store", store, "-o", "json", "topics", "undelete").json}
    row = rows[f"persistent://{TOPIC}"]
    assert (row["deleted"], row["recreated"]) == (deleted_ms, deleted_ms + 2000)
    assert rows["persistent://public/default/doomed"]["recreated"] is None

    report = cli("--store", store, "-o", "json", "topics", "undelete", TOPIC, "--hold", "").json[0]
    assert report["after"]["deleted"] == deleted_ms
    assert payloads(cli, store, f"{TOPIC}-restored") == messages
    assert positions(cli, store, f"{TOPIC}-restored") == was
    assert backlogs(cli, store, f"{TOPIC}-restored") == left
    assert backlogs(cli, store, TOPIC) == {"workers": ENTRIES - READ}
    cli("--store", store, "store", "undo", "1")

    new = payloads(cli, store, TOPIC)
    assert cli("--store", store, "topics", "undelete", TOPIC, "--in-place", "--hold", "").exit_code == 0
    assert payloads(cli, store, TOPIC) == messages + new
    # What each had acknowledged is acknowledged; the other subscriptions get the new messages as well.
    assert backlogs(cli, store, TOPIC) == {
        name: count + (ENTRIES - READ if name == "workers" else ENTRIES) for name, count in left.items()
    }
    assert cli("--store", store, "topics", "undelete", TOPIC, "--in-place").exit_code == 5
    cli("--store", store, "store", "undo", "3")
    assert backlogs(cli, store, TOPIC) == {"workers": ENTRIES - READ}


def test_the_history_of_a_deleted_topic(cli: Cli, tmp_path: Path) -> None:
    source = scratch_copy(CLUSTER, "crashed", tmp_path)
    version_2 = source / "zookeeper" / "version-2"
    before = imported_from(source, tmp_path / "before")
    history = ("topics", "subscription-history", TOPIC, "-s", "workers", "-o", "json")
    states = cli("--store", before, *history).json
    values = values_of(version_2)
    cursors = [path for path, value in values.items() if path.startswith(f"{PATH}/") and value is not None]
    gone = [*(f"/ledgers/00/0000/L{one:04}" for one in ledgers_of(values[PATH] or b"")), PATH]
    go_on(version_2, [(path, None) for path in [*cursors, *gone] if values.get(path)])
    store = imported_from(source, tmp_path / "store")
    assert cli("--store", store, "topics", "stats", TOPIC).exit_code == 5
    *found, last = cli("--store", store, *history).json
    assert last["problem"] == "the subscription was deleted"
    assert len(found) == len(states) > 1
    for one, other in zip(found, states, strict=True):
        for key in ("state", "markDeletePosition", "individuallyDeletedMessages", "acknowledged", "backlogEntries"):
            assert one[key] == other[key]
    missing = cli("--store", store, "topics", "subscription-history", TOPIC, "-s", "nobody", "-o", "json")
    assert missing.error["code"] == "subscription-not-found"
    never = cli.on(store, "topics subscription-history public/default/never-was -s workers -o json")
    assert never.error["code"] == "topic-not-found"
