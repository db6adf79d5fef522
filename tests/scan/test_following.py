"""Following files that grow, against a bookie of the test: each entry once, whatever is cut, killed and planned again."""

import json
import os
import random
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from pulsar_admin.store.codec.bookie import Cookie, LogMark, encode_cookie, encode_last_mark
from pulsar_admin.store.errors import EntryLogCorrupt, InvalidValue, SourceChanged, SourceNotFound, StoreError
from pulsar_admin.store.scan import following
from pulsar_admin.store.scan.following import (
    FIRST,
    IDS,
    KEPT_BYTES,
    KEPT_LOGS,
    FilePart,
    Followed,
    Follower,
    FoundFile,
    Limit,
    Looked,
    Offset,
    Recent,
    list_files,
    pieces_without,
)
from pulsar_admin.store.scan.operations import ReadEntries
from tests.deep import deep_but_for
from tests.growing import Bookie, Id, ids, record

ALL = Limit()
COLUMNS = ("ledger_id", "entry_id", "offset", "digest_ok")


def _read(followed: Followed, start: Offset, end: Offset) -> list[Id]:
    """Return the entries of a batch, planned by a process that knows nothing but the offsets."""
    rows = []
    for pieces in Follower(followed).plan(start, end):
        for piece in pieces:
            for batch in ReadEntries(columns=COLUMNS).run(piece):
                rows += [(row["ledger_id"], row["entry_id"]) for row in batch.to_pylist() if row["digest_ok"]]
    return rows


def _followed(folder: Path, *, journals: bool = False, **options: object) -> Followed:
    paths = [f"{folder}/current/*.log", *([f"{folder}/current/*.txn"] if journals else [])]
    return Followed(paths, **options)  # type: ignore[arg-type]


def _drain(follower: Follower, followed: Followed, start: Offset, limit: Limit = ALL) -> tuple[list[Id], Offset]:
    found: list[Id] = []
    while (end := json.loads(json.dumps(follower.latest(start, limit)))) != start:
        found += _read(followed, start, end)
        start = end
    return found, start


@pytest.mark.parametrize("journals", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_each_entry_once(tmp_path: Path, journals: bool, seed: int) -> None:
    """A bookie that writes, flushes, seals, marks, is killed and replays, in any order, and a stream that restarts."""
    draw = random.Random(seed)
    bookie = Bookie(tmp_path, log_bytes=8000)
    followed = _followed(tmp_path, journals=journals, slice_bytes=4096)
    follower, offset, found, written = Follower(followed), FIRST, [], 0
    for _ in range(6):
        what = draw.choice(["write", "write", "flush", "flush", "kill", "stream", "stream", "restart"])
        if what == "write":
            count = draw.randrange(1, 60)
            bookie.write(ids(written, count))
            written += count
        elif what == "flush":
            bookie.flush(marks=draw.random() < 0.7, pieces=draw.choice([1, 3]))
        elif what == "kill":
            bookie.kill(torn_bytes=draw.randrange(0, 150))
            bookie.start()
        elif what == "stream":
            end = follower.latest(offset, draw.choice([Limit(), Limit(files=1), Limit(size_bytes=5000)]))
            end = json.loads(json.dumps(end))
            batch = _read(followed, offset, end)
            assert _read(followed, offset, end) == batch
            assert (end == offset) == (not batch) or not batch
            found += batch
            offset = end
        else:
            follower = Follower(followed)
    bookie.flush()
    found += _drain(follower, followed, offset)[0]
    assert [entry for entry, count in Counter(found).items() if count > 1] == []
    assert set(found) == set(ids(0, written))


@pytest.mark.parametrize("unwritten", [False, True])
@deep_but_for((1,), "files", [1, 100])
def test_a_flush_of_several_logs_that_a_killed_bookie_writes_again(tmp_path: Path, unwritten: bool, files: int) -> None:
    """As a real one did: lastMark moves when all of the flush is written. UNWRITTEN: the last log's bytes were in memory still."""
    bookie = Bookie(tmp_path, log_bytes=4000)
    for first in (0, 200):
        bookie.write(ids(first, 200))
        bookie.flush(marks=first == 0)
    if unwritten:
        os.truncate(tmp_path / "current" / f"{bookie.log_id:x}.log", 0)
    bookie.kill()
    bookie.start()
    bookie.write(ids(400, 100))
    bookie.flush()
    followed = _followed(tmp_path)
    found, _ = _drain(Follower(followed), followed, FIRST, Limit(files=files))
    assert Counter(found) == Counter(ids(0, 500))


def test_of_several_journals_the_least_mark_counts(tmp_path: Path) -> None:
    """A bookie that had one journal once keeps the file of that time: it says nothing."""
    bookie, followed = Bookie(tmp_path), _followed(tmp_path, journals=True)
    bookie.write(ids(0, 10))
    here, far = LogMark(bookie.journal, 0), LogMark(bookie.journal + 9, 0)
    (bookie.current / "VERSION").write_bytes(encode_cookie(Cookie(5, "b", ("/j0", "/j1"), ("/l",))))
    follower = Follower(followed)
    found, offset, told = [], FIRST, []
    for marks in ((far, here), (far, None), (far, far)):
        for name, mark in zip(("lastMark", "lastMark.0", "lastMark.1"), (far, *marks), strict=True):
            (bookie.current / name).write_bytes(b"" if mark is None else encode_last_mark(mark))
        if marks == (far, far):
            bookie.flush(marks=False)
        more, offset = _drain(follower, followed, offset)
        found += more
        told.append(offset["marks"].get("b", [0])[0] - bookie.journal)
    assert told == [0, 0, 9]
    assert Counter(found) == Counter(ids(0, 10))


def test_the_journal_is_ahead_of_the_logs(tmp_path: Path) -> None:
    bookie = Bookie(tmp_path)
    followed = _followed(tmp_path, journals=True)
    follower = Follower(followed)
    bookie.write(ids(0, 10))
    found, offset = _drain(follower, followed, FIRST)
    assert sorted(found) == sorted(ids(0, 10))
    bookie.flush()
    bookie.write(ids(10, 1))
    found, offset = _drain(follower, followed, offset)
    assert found == ids(10, 1)
    bookie.flush()
    bookie.write(ids(11, 1))
    found, offset = _drain(follower, followed, offset)
    assert found == ids(11, 1)
    recent = offset["recent"]
    assert sum(len(one) for one in recent.values()) <= 2, "what the mark passed is forgotten"


def test_a_torn_tail_waits_and_damage_in_the_middle_does_not(tmp_path: Path) -> None:
    bookie = Bookie(tmp_path)
    bookie.memory = ids(0, 20)
    bookie.flush()
    log = tmp_path / "current" / "0.log"
    followed = _followed(tmp_path)
    follower = Follower(followed)
    found, offset = _drain(follower, followed, FIRST)
    assert sorted(found) == sorted(ids(0, 20))
    broken, good = bytearray(record((3, 1000))), record((3, 1001))
    broken[40] ^= 1
    for raw, expected in ((good[:50], []), (good[50:], [(3, 1001)]), (bytes(broken), []), (b"rubbish", [])):
        with log.open("ab") as file:
            file.write(raw)
        found, offset = _drain(follower, followed, offset)
        assert found == expected
    with log.open("ab") as file:
        file.write(record((3, 1002)))
    assert _drain(follower, followed, offset)[0] == [(3, 1002)]


def test_a_file_that_is_no_log_ends_a_stream_unless_it_is_to_be_passed_over(tmp_path: Path) -> None:
    """Also one whose header is cut waits, as a bookie that makes a log leaves it, and so do zeros."""
    bookie = Bookie(tmp_path)
    bookie.memory = ids(0, 20)
    bookie.flush()
    other = tmp_path / "current" / "7.log"
    followed = _followed(tmp_path, needs_logs=True)
    for head in (b"BK", b"BKLO\0\0", bytes(5000)):
        other.write_bytes(head)
        assert len(_drain(Follower(followed), followed, FIRST)[0]) == 20
    other.write_bytes(b"PK\3\4" * 1000)
    with pytest.raises(EntryLogCorrupt, match=f"^{other} is not an entry log: it starts with 504b0304, not 424b4c4f"):
        _drain(Follower(followed), followed, FIRST)
    followed = _followed(tmp_path)
    assert len(_drain(Follower(followed), followed, FIRST)[0]) == 20


def test_a_batch_lists_the_files_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once more where a folder comes that was not there before, whose lastMark is to be read in front of its files; a plan never."""
    bookie = Bookie(tmp_path / "a", log_bytes=4000)
    bookie.memory = ids(0, 200)
    bookie.flush()
    followed = Followed([f"{tmp_path}/*/current/*.log"])
    follower, offset, listed = Follower(followed), FIRST, []
    monkeypatch.setattr(following, "list_files", lambda *paths, **how: listed.append(1) or list_files(*paths, **how))
    for times in (2, 1, 1):
        before, offset = offset, follower.latest(offset, Limit(files=2))
        assert len(listed) == times
        assert offset != before
        follower.plan(before, offset)
        assert len(listed) == times
        listed.clear()
    other = Bookie(tmp_path / "b")
    other.memory = [(9, 0)]
    other.flush()
    follower.latest(offset, Limit(files=2))
    assert len(listed) == 2


def test_a_preallocated_log(tmp_path: Path) -> None:
    """Zeros are what was not written yet: also those in front of other bytes, while the log is the newest."""
    bookie = Bookie(tmp_path)
    log = tmp_path / "current" / "0.log"
    followed = _followed(tmp_path)
    os.truncate(log, 1 << 20)
    assert _drain(Follower(followed), followed, FIRST) == ([], FIRST)
    with log.open("r+b") as file:
        file.seek(1024)
        file.write(record((1, 1)))
        place = file.tell()
        file.seek(place + len(record((1, 2))))
        file.write(record((1, 3)))
        file.flush()
        found, offset = _drain(Follower(followed), followed, FIRST)
        assert found == [(1, 1)]
        file.seek(place)
        file.write(record((1, 2)))
    assert _drain(Follower(followed), followed, offset)[0] == [(1, 2), (1, 3)]
    bookie.kill()


def test_lost_pages_of_a_log_that_nothing_is_appended_to(tmp_path: Path) -> None:
    log = tmp_path / "current" / "0.log"
    bookie = Bookie(tmp_path)
    bookie.kill()
    with log.open("ab") as file:
        file.write(record((1, 1)) + bytes(4096) + record((1, 2)))
    bookie.start()
    bookie.memory = [(2, 0)]
    bookie.flush()
    followed = _followed(tmp_path)
    found, offset = _drain(Follower(followed), followed, FIRST)
    assert found == [(1, 1), (2, 0)]
    os.utime(log, (1, 1))
    bookie.memory = [(2, 1)]
    bookie.flush()
    assert _drain(Follower(followed), followed, offset)[0] == [(1, 2), (2, 1)]


@deep_but_for(
    (1, 3),
    ("limit", "entries"),
    [(Limit(files=1), 200), (Limit(files=7), 200), (Limit(size_bytes=3000), 200), (Limit(size_bytes=1), 80)],
)
def test_limits(tmp_path: Path, limit: Limit, entries: int) -> None:
    bookie = Bookie(tmp_path, log_bytes=4000)
    bookie.memory = ids(0, entries)
    bookie.flush()
    followed = _followed(tmp_path)
    start, found, files = FIRST, [], len(list((tmp_path / "current").glob("*.log")))
    batches = 0
    while (end := Follower(followed).latest(start, limit)) != start:
        tasks = Follower(followed).plan(start, end)
        pieces = [piece for task in tasks for piece in task]
        assert len({piece.path for piece in pieces}) <= (limit.files or files)
        assert (
            sum(piece.bytes for piece in pieces) <= max(limit.size_bytes, 0 if limit.files else 1) + 1024 + 600
            or limit.files
        )
        found += _read(followed, start, end)
        start, batches = end, batches + 1
    assert Counter(found) == Counter(ids(0, entries))
    assert batches > 2


def test_an_offset_stays_small(tmp_path: Path) -> None:
    bookie = Bookie(tmp_path, log_bytes=1500)
    followed = _followed(tmp_path)
    offset, sizes = FIRST, []
    for number in range(30):
        bookie.write(ids(10 * number, 10))
        bookie.flush()
        offset = _drain(Follower(followed), followed, offset)[1]
        sizes.append(len(json.dumps(offset)))
    assert len(list((tmp_path / "current").glob("*.log"))) > 30
    assert max(sizes) < 1600  # what the last flushes wrote, and no more the longer it goes
    assert max(sizes[15:]) < max(sizes[:15]) + 50
    (folder,) = offset["logs"].values()
    assert "," not in folder["done"]


def test_what_a_replay_may_write_again_is_known() -> None:
    """As many logs and bytes later, of the same folder alone."""
    delivered = np.array([b"x"], IDS)
    for passed, is_known in (
        ([("a", 1, KEPT_BYTES + 1)], True),
        ([("b", 2, KEPT_BYTES + 1)], True),
        ([("a", 2, KEPT_BYTES)], True),
        ([("a", 2, KEPT_BYTES), ("a", 3, 1)], False),
        ([("a", 2 + log, 0) for log in range(KEPT_LOGS)], True),
        ([("a", 2 + log, 0) for log in range(KEPT_LOGS + 1)], False),
    ):
        recent = Recent()
        recent.add("a", 1, (0, 0), (0, 0), delivered)
        for folder, log, size in passed:
            recent.pass_by(folder, log, size, is_begun=True)
        assert recent.known(delivered).tolist() == [is_known], passed
    for folder, mark, is_known in (("", (3, 5), True), ("", (3, 6), False), ("a", (3, 6), True)):
        recent = Recent()
        recent.add(folder, 1, (1, 0), (3, 5), delivered)
        recent.forget(mark)
        assert recent.known(delivered).tolist() == [is_known], (folder, mark)


def test_a_log_that_shrinks_vanishes_or_is_another(tmp_path: Path) -> None:
    bookie = Bookie(tmp_path)
    bookie.memory = ids(0, 30)
    bookie.flush()
    followed = _followed(tmp_path)
    offset = _drain(Follower(followed), followed, FIRST)[1]
    log = tmp_path / "current" / "0.log"
    raw = log.read_bytes()

    def said(start: Offset, how: Followed = followed) -> str:
        with pytest.raises(SourceChanged) as raised:
            Follower(how).latest(start, Limit())
        with pytest.raises(SourceChanged):
            Follower(how).plan(FIRST, start)
        assert len(raised.value.message.splitlines()) == 1
        return raised.value.message

    log.write_bytes(raw[:-1])
    assert said(offset) == f"{log} became shorter: expected {len(raw)} bytes or more, found {len(raw) - 1}"
    log.write_bytes(raw[:1024] + record((5, 5)) + raw)
    assert "is not the file of which the stream has read" in said(offset)
    log.unlink()
    (tmp_path / "current" / "1.log").write_bytes(raw)
    assert said(offset) == f"{log} is gone; the stream has read its first {len(raw)} bytes"
    anyway = _followed(tmp_path, fails=False)
    assert sorted(_drain(Follower(anyway), anyway, offset)[0]) == []


@pytest.mark.parametrize(
    ("paths", "error", "said"),
    [
        (["/nowhere/*.log"], SourceNotFound, "no entry log at /nowhere"),
        (["{here}/*.log", "/nowhere/*.log"], SourceNotFound, "no entry log at /nowhere"),
        (["{here}/odd.bin"], InvalidValue, "is called neither as an entry log nor as a journal"),
        (["{here}/*.txn"], InvalidValue, "no bookie file says which entries of"),
    ],
)
def test_what_cannot_be_followed(tmp_path: Path, paths: list[str], error: type[StoreError], said: str) -> None:
    (tmp_path / "odd.bin").write_bytes(b"x")
    (tmp_path / "5.txn").write_bytes(b"BKLG\0\0\0\6" + bytes(504))
    with pytest.raises(error, match=said):
        Follower(Followed([path.format(here=tmp_path) for path in paths])).latest(FIRST, Limit())


def test_a_folder_that_is_empty_still(tmp_path: Path) -> None:
    followed = _followed(tmp_path)
    (tmp_path / "current").mkdir()
    assert Follower(followed).latest(FIRST, Limit()) == FIRST


def test_objects_that_arrive_in_any_order_and_longer(tmp_path: Path) -> None:
    """A copy of each log, at a URL: the newest is put there again as it grows, cut anywhere; the others come when they like."""
    bookie, target = Bookie(tmp_path / "bookie", log_bytes=6000), tmp_path / "bucket"
    target.mkdir()
    bookie.memory = ids(0, 150)
    bookie.flush()
    logs = sorted(bookie.current.glob("*.log"), key=lambda path: path.stat().st_mtime_ns, reverse=True)
    followed = Followed([f"{target.as_uri()}/*.log"], slice_bytes=2000)
    found, offset = _drain(Follower(followed), followed, FIRST)
    assert (found, offset) == ([], FIRST)
    for log in logs:
        raw = log.read_bytes()
        for part in (raw[: len(raw) // 2], raw):
            (target / log.name).write_bytes(part)
            new, offset = _drain(Follower(followed), followed, offset)
            found += new
    assert len(logs) > 4
    assert Counter(found) == Counter(ids(0, 150))


@pytest.mark.parametrize(
    ("again", "slice_bytes", "tasks"),
    [
        ([], 1000, [[(100, 600)]]),
        ([0, 1, 2, 3, 4], 1000, []),
        ([0], 1000, [[(200, 600)]]),
        ([4], 1000, [[(100, 500)]]),
        ([1, 3], 1000, [[(100, 200), (300, 400), (500, 600)]]),
        ([1, 3], 200, [[(100, 200), (300, 400)], [(500, 600)]]),
        ([1, 3], 199, [[(100, 200)], [(300, 400)], [(500, 600)]]),
        ([1, 2], 1000, [[(100, 200), (400, 600)]]),
        ([1], 100, [[(300, 400)], [(400, 500)], [(500, 600)], [(100, 200)]]),
        ([0, 2, 4], 1000, [[(200, 300), (400, 500)]]),
    ],
)
def test_what_came_lately_is_left_out_and_nothing_beside_it(
    again: list[int], slice_bytes: int, tasks: list[list[tuple[int, int]]]
) -> None:
    """Five records of 100 bytes each from byte 100 on: small pieces share a task, long ones are cut."""
    part = FilePart(
        FoundFile("f/0.log", "f", "0.log", 0, 600), 100, 600, complete=True, looked_at=True, remembered=True
    )
    starts = np.arange(100, 600, 100)
    looked = Looked(np.zeros(5, IDS), starts, starts + 100, 600)
    chosen = np.isin(np.arange(5), again)
    found = pieces_without(part, looked, chosen, slice_bytes)
    assert [[(piece.start, piece.end) for piece in task] for task in found] == tasks
