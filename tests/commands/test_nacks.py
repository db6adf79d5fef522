"""``nacks``: kept negative acks, the planner. Expected values are recorded, or worked by hand."""

import json
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import pulsar_admin as pa
from pulsar_admin.store.codec.cursor import CursorInfo
from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.db.locks import take_writer_lock
from pulsar_admin.store.db.nacks import bucket_key, iter_wrong_rows, tracker_id, tracker_key
from pulsar_admin.store.errors import InvalidValue
from pulsar_admin.store.names import Position
from tests.commands.changing import rows_of
from tests.conftest import Cli
from tests.synthetic import CREATED_MS, Made, MadeTopic, make_store
from tests.worlds import assert_unchanged, oracle

PLAIN = "public/default/plain"
FULL = f"persistent://{PLAIN}"
NOW_MS = 1_795_260_000_000
HOUR_MS = 3_600_000
ROOT = Path(__file__).resolve().parent.parent.parent


class At:
    """Runs commands on one store at one time."""

    def __init__(self, cli: Cli, store: Path) -> None:
        self.cli = cli
        self.store = store

    def __call__(self, *words: object, now: int = NOW_MS, out: str = "json") -> Any:  # Any: CliResult
        return self.cli("--store", self.store, "--now", f"@{now}", "nacks", *words, "-o", out)

    def due(self, now: int, *words: object) -> list[Any]:  # Any: JSON
        result = self("due", *words, now=now, out="jsonl")
        assert result.exit_code == 0, result.stderr
        return result.json_lines  # type: ignore[no-any-return]


@pytest.fixture
def nacks(cli: Cli, store: Path) -> At:
    return At(cli, store)


def places(rows: list[Any]) -> list[tuple[int, int]]:
    return [(row["ledgerId"], row["entryId"]) for row in rows]


def recorded_holes(subscription: str) -> list[tuple[int, int]]:
    """The holes by the recorded answer of a broker: entry by entry."""
    internal = oracle("small")["topics"][PLAIN]["internal_stats"]
    cursor = internal["cursors"][subscription]
    mark = tuple(map(int, cursor["markDeletePosition"].split(":")))
    found = re.findall(r"\((\d+):(-?\d+)\.\.(\d+):(\d+)\]", cursor["individuallyDeletedMessages"])
    ranges = [((int(a), int(b)), (int(c), int(d))) for a, b, c, d in found]
    entries = [(ledger["ledgerId"], entry) for ledger in internal["ledgers"] for entry in range(ledger["entries"])]
    deleted = {entry for entry in entries if any(low < entry <= high for low, high in ranges)}
    return [entry for entry in entries if mark < entry < max(deleted) and entry not in deleted]


# -- add --------------------------------------------------------------------------------------------------------------


def test_add_holes(nacks: At) -> None:
    before = rows_of(nacks.store, "nacks")
    holes = recorded_holes("holes")
    done = nacks("add", PLAIN, "-s", "holes", "--delay", "1h", "--holes").json
    assert len(holes) > 50
    assert (done["change"], done["entries"], done["alreadyTracked"], done["precisionBits"]) == (1, len(holes), 0, 8)
    bucket = (NOW_MS + HOUR_MS) // 256 * 256
    assert done["before"] == {"pendingEntries": 0, "nextDeadline": None}
    assert done["after"] == {"pendingEntries": len(holes), "nextDeadline": bucket}
    assert nacks.due(bucket - 1) == []
    found = nacks.due(bucket)
    assert places(found) == holes
    head = {"topic": FULL, "subscription": "holes"}
    assert found[0] == head | {"ledgerId": holes[0][0], "entryId": holes[0][1], "dueTime": bucket}
    undone = nacks.cli("--store", nacks.store, "store", "undo", 1, "-o", "json").json
    assert undone["after"] == {"pendingEntries": 0, "nextDeadline": None}
    assert rows_of(nacks.store, "nacks") == before


def test_a_subscription_without_holes(nacks: At) -> None:
    with assert_unchanged(nacks.store / "meta" / "data.mdb"):
        done = nacks("add", PLAIN, "-s", "half", "--delay", "1h", "--holes").json
    assert (done["change"], done["entries"], done["dryRun"]) == (None, 0, False)


def test_from_file(nacks: At, tmp_path: Path) -> None:
    file = tmp_path / "positions.jsonl"
    file.write_text(
        "29:20\n\n"
        + json.dumps({"topic": FULL, "ledgerId": 29, "entryId": 21, "batchIndex": 4, "key": None})
        + "\n"
        + json.dumps(
            {"ledgerId": 29, "entryId": 24, "chunks": ["29:22", {"ledgerId": 29, "entryId": 23}], "delay": "5s"}
        )
        + '\n{"ledgerId":18,"entryId":3,"delay":1500}\n'
    )
    done = nacks("add", PLAIN, "-s", "half", "--delay", "1m", "--bits", 0, "--from-file", file).json
    assert done["entries"] == 6
    rows = [(row["dueTime"] - NOW_MS, row["ledgerId"], row["entryId"]) for row in nacks.due(NOW_MS + 60_000)]
    chunks = [(5000, 29, entry) for entry in (22, 23, 24)]
    assert rows == [(1500, 18, 3), *chunks, (60_000, 29, 20), (60_000, 29, 21)]


@pytest.mark.parametrize(
    ("words", "exit_code", "code", "text"),
    [
        (("--delay", "-1h", "29:20"), 2, "invalid-value", "negative"),
        (("--delay", "99999999999999999999h", "29:20"), 2, "invalid-value", "too large"),
        (("--delay", "9223372036854775807ms", "29:20"), 2, "invalid-value", "beyond 64 bits"),
        (("--delay", "1h", "29:9223372036854775808"), 2, "invalid-value", "beyond 64 bits"),
        (("--delay", "1h", "29:-1"), 2, "invalid-value", "is not an entry"),
        (("--delay", "1h", "latest"), 2, "invalid-value", "is not an entry"),
        (("--delay", "1h", "29:20", "29:99"), 5, "entry-not-found", "no entry 29:99"),
        (("--delay", "1h", "29:20", "--bits", "63"), 2, "invalid-value", "63 precision bits"),
        (("--delay", "1h", "29:20", "--bits", "-1"), 2, "invalid-value", "-1 precision bits"),
        (("--delay", "1h", "--from-file", "/nowhere"), 2, "invalid-value", "cannot be read"),
        (("--delay", "1h", "--holes", "29:20"), 2, "usage", "name positions, or"),
        (("--delay", "1h"), 2, "usage", "name positions, or"),
    ],
    ids=str,
)
def test_bad_requests_add_nothing(nacks: At, words: tuple[str, ...], exit_code: int, code: str, text: str) -> None:
    with assert_unchanged(nacks.store / "meta" / "data.mdb"):
        result = nacks("add", PLAIN, "-s", "half", *words)
    assert (result.exit_code, result.error["code"]) == (exit_code, code)
    assert text in result.error["message"]


@pytest.mark.parametrize(
    "line",
    [
        *('{"ledgerId":29}', '{"ledgerId":29,"entryId":true}', '{"ledgerId":29,"entryId":1.5}'),
        '{"ledgerId":29,"entryId":20,"delay":-1}',
        '{"ledgerId":29,"entryId":20,"delay":9223372036854775808}',
        *('{"ledgerId":29,"entryId":20,"delay":[1]}', '{"ledgerId":29,"entryId":20,"chunks":4}'),
        *('{"ledgerId":29,"entryId":20,"chunks":[4]}', '{"ledgerId":29,"entryId":9223372036854775808}'),
        *('{"topic":"public/default/other","ledgerId":29,"entryId":20}', '{"ledgerId":29', "29"),
        "[" * 100_000,
    ],
    ids=lambda line: line[:40],
)
def test_bad_lines_add_nothing(nacks: At, tmp_path: Path, line: str) -> None:
    file = tmp_path / "positions"
    file.write_text(f"29:20\n{line}\n")
    with assert_unchanged(nacks.store / "meta" / "data.mdb"):
        result = nacks("add", PLAIN, "-s", "half", "--delay", "1h", "--from-file", file)
    assert (result.exit_code, result.error["code"]) == (2, "invalid-value")
    assert "line 2" in result.error["message"]


def test_force_tracks_what_the_store_does_not_know(nacks: At) -> None:
    done = nacks("add", PLAIN, "-s", "later", "--delay", "1s", "5000:7", "--force").json
    assert done["entries"] == 1
    assert places(nacks.due(NOW_MS + 1000)) == [(5000, 7)]
    found = nacks.cli("--store", nacks.store, "store", "check", "-o", "jsonl").stdout
    assert "nacks-of-nobody" in found


def test_precision_changes_only_while_nothing_waits(nacks: At) -> None:
    nacks("add", PLAIN, "-s", "half", "--delay", "1s", "29:20", "--bits", 0)
    refused = nacks("add", PLAIN, "-s", "half", "--delay", "1s", "29:21", "--bits", 10)
    assert (refused.exit_code, refused.error["code"]) == (3, "refused")
    assert nacks("add", PLAIN, "-s", "half", "--delay", "2s", "29:21").json["precisionBits"] == 0
    nacks("due", "--pop", now=NOW_MS + 5000)
    assert nacks("add", PLAIN, "-s", "half", "--delay", "1s", "29:21", "--bits", 10).json["precisionBits"] == 10
    assert nacks("stats", PLAIN).json[0]["precisionBits"] == 10


# -- due --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def filled(nacks: At) -> At:
    """Two entries due after 1 s, one after an hour."""
    nacks("add", PLAIN, "-s", "half", "--delay", "1s", "29:20", "29:21", "--bits", 0)
    nacks("add", PLAIN, "-s", "half", "--delay", "1h", "29:22")
    return nacks


def test_pop(filled: At) -> None:
    before = rows_of(filled.store, "nacks")
    rows = filled.due(NOW_MS + 1000, "--pop")
    assert [(row["entryId"], row["change"]) for row in rows] == [(20, 3), (21, 3)]
    assert filled.due(NOW_MS + 1000) == []
    assert places(filled.due(NOW_MS + HOUR_MS)) == [(29, 22)]
    log = filled.cli("--store", filled.store, "store", "log", 3, "-o", "json").json[0]
    assert (log["command"], log["reports"][0]["entries"]) == ("nacks due --pop", 2)
    assert log["reports"][0]["before"] == {"dueEntries": 2, "nextDeadline": NOW_MS + 1000}
    assert log["reports"][0]["after"] == {"dueEntries": 0, "nextDeadline": NOW_MS + HOUR_MS}
    assert filled("due", "--popped", 3, out="jsonl").json_lines == rows
    check_undo_rows(filled, 3, before)
    assert filled.due(NOW_MS + 1000, "--pop")[0]["change"] == 5


def check_undo_rows(nacks: At, change: int, before: Any) -> None:
    assert nacks.cli("--store", nacks.store, "store", "undo", change).exit_code == 0
    assert rows_of(nacks.store, "nacks") == before


def test_pop_planned_shown_and_applied_later(filled: At, tmp_path: Path) -> None:
    file = tmp_path / "pop.plan"
    with assert_unchanged(filled.store / "meta" / "data.mdb"):
        shown = filled("due", "--pop", "--dry-run", now=NOW_MS + 1000).json
        planned = filled("due", "--pop", "--plan", file, now=NOW_MS + 1000).json
        assert filled("due", "--plan", tmp_path / "no", now=NOW_MS + 1000).exit_code == 2
    assert shown == planned
    assert (shown["entries"], shown["dryRun"]) == (2, True)
    assert filled.cli("--store", filled.store, "apply", file, "-o", "json").json["entries"] == 2
    assert len(filled("due", "--popped", 3, out="jsonl").json_lines) == 2


def test_another_writer(filled: At) -> None:
    lock = take_writer_lock(filled.store)
    try:
        for words in (("due", "--pop"), ("add", PLAIN, "-s", "half", "--delay", "1s", "29:23")):
            busy = filled(*words, now=NOW_MS + 1000)
            assert (busy.exit_code, busy.error["code"]) == (4, "store-busy")
        assert len(filled.due(NOW_MS + 1000)) == 2
        timer = threading.Timer(0.3, lambda: __import__("os").close(lock))
        timer.start()
        assert len(filled.due(NOW_MS + 1000, "--pop", "--wait", "20s")) == 2
        timer.join()
    finally:
        assert filled.due(NOW_MS + 1000) == []


def _python(code: str, store: Path, *words: object) -> subprocess.CompletedProcess[str]:
    command = ["--store", str(store), "--now", f"@{NOW_MS + 1000}", "nacks", *map(str, words), "-o", "jsonl"]
    program = f"{code}\nfrom pulsar_admin.cli import run\nimport sys\nsys.exit(run({command!r}))\n"
    return subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)


_KILL = "import os, signal\ndef kill(*_, **__): os.kill(os.getpid(), signal.SIGKILL)\n"
_BEFORE_APPLY = _KILL + "from pulsar_admin.context import App\nApp.apply = kill"
_IN_APPLY = _KILL + (
    "from pulsar_admin.store.db.environment import Txn\noriginal, calls = Txn.delete, []\n"
    "def delete(*arguments):\n"
    "    calls.append(1)\n"
    "    kill() if len(calls) == 2 else None\n"
    "    return original(*arguments)\n"
    "Txn.delete = delete"
)
_BEFORE_RECORD = _KILL + "from pulsar_admin.store.db import audit_log\naudit_log.append_change = kill"
_BEFORE_OUTPUT = _KILL + "from pulsar_admin import output\noutput.emit_records = kill"


@pytest.mark.parametrize("stop", [_BEFORE_APPLY, _IN_APPLY, _BEFORE_RECORD], ids=["planned", "applying", "recording"])
def test_killed_before_the_commit_loses_none(filled: At, stop: str) -> None:
    filled("add", PLAIN, "-s", "holes", "--delay", "1s", "18:3", "--bits", 0)
    before = rows_of(filled.store, "nacks", "changes")
    assert _python(stop, filled.store, "due", "--pop").returncode == -signal.SIGKILL
    assert rows_of(filled.store, "nacks", "changes") == before
    assert len(filled.due(NOW_MS + 1000, "--pop")) == 3


def test_killed_after_the_commit_the_record_has_them(filled: At) -> None:
    killed = _python(_BEFORE_OUTPUT, filled.store, "due", "--pop")
    assert (killed.returncode, killed.stdout) == (-signal.SIGKILL, "")
    assert filled.due(NOW_MS + 1000) == []
    assert places(filled("due", "--popped", 3, out="jsonl").json_lines) == [(29, 20), (29, 21)]


def test_jobs_at_once_get_each_entry_once(nacks: At) -> None:
    nacks("add", PLAIN, "-s", "holes", "--delay", "0s", "--holes")
    command = [sys.executable, "-m", "pulsar_admin", "--store", str(nacks.store), "--now", f"@{NOW_MS}", "nacks", "due"]
    jobs = [
        subprocess.Popen(
            [*command, "--pop", "--wait", "30s", "-o", "jsonl"], cwd=ROOT, stdout=subprocess.PIPE, text=True
        )
        for _ in range(4)
    ]
    answers = [job.communicate()[0].splitlines() for job in jobs]
    assert [job.returncode for job in jobs] == [0] * 4
    popped = [json.loads(line) for answer in answers for line in answer]
    assert sorted(places(popped)) == recorded_holes("holes")
    assert sum(bool(answer) for answer in answers) == 1


# -- damage -----------------------------------------------------------------------------------------------------------

KEY = bucket_key(tracker_id(FULL, "half"), NOW_MS + 1000, 29)
TRACKER_KEY = tracker_key(tracker_id(FULL, "half"))


def overwrite(store: Path, key: bytes, value: bytes) -> None:
    with open_store(store, writable=True) as opened:
        opened.write(lambda txn: txn.put("nacks", key, value))


@pytest.mark.usefixtures("damages_stores")
@pytest.mark.parametrize("key", [KEY, TRACKER_KEY], ids=["bitmap", "tracker"])
@pytest.mark.parametrize("at", [0, 2, 8, -1])
def test_a_damaged_row(filled: At, key: bytes, at: int) -> None:
    row = bytearray(rows_of(filled.store, "nacks")["nacks"][key])
    row[at] ^= 0x40
    overwrite(filled.store, key, bytes(row))
    for words in (("due",), ("due", "--pop"), ("add", PLAIN, "-s", "half", "--delay", "1s", "29:23")):
        with assert_unchanged(filled.store / "meta" / "data.mdb"):
            result = filled(*words, now=NOW_MS + 1000 if words[0] == "due" else NOW_MS)
        wanted = ("unsupported", 7) if at == 0 else ("index-corrupt", 6)
        assert (result.error["code"], result.exit_code) == wanted
    check = filled.cli("--store", filled.store, "store", "check", "-o", "jsonl")
    assert check.exit_code == 1
    assert "nacks-damaged" in check.stdout


@pytest.mark.usefixtures("damages_stores")
def test_rows_that_do_not_belong(filled: At) -> None:
    rows = rows_of(filled.store, "nacks")["nacks"]
    wrong = [(KEY + b"x", rows[KEY]), (bucket_key(tracker_id(FULL, "none"), 5, 5), rows[KEY]), (KEY, rows[KEY][:7])]
    for key, value in wrong:
        overwrite(filled.store, key, value)
        assert "nacks-damaged" in filled.cli("--store", filled.store, "store", "check", "-o", "jsonl").stdout
    with open_store(filled.store) as store, store.read() as txn:  # by now all three, with good rows around them
        assert len([*iter_wrong_rows(txn)]) == len(wrong)


# -- plan -------------------------------------------------------------------------------------------------------------


def test_plan_of_the_founding_document(cli: Cli, tmp_path: Path) -> None:
    picture = tmp_path / "plan.svg"
    found = cli("nacks", "plan", "--rate", 10_000, "--delay", "1h", "--svg", picture, "-o", "json").json
    assert found["load"]["pendingEntries"] == 36_000_000
    rows = found["precisions"]
    assert [row["precisionBits"] for row in rows] == list(range(17))
    assert [row["worstEarly"] for row in rows] == [2**bits - 1 for bits in range(17)]
    assert [row["precisionBits"] for row in rows if row["wanted"]] == [9]  # 86.6 MB at 8 bits, 65.2 MB at 9
    eight, sixteen = rows[8], rows[16]
    assert eight["bytesJavaClient"] / 36_000_000 == pytest.approx(
        2.455, rel=0.03
    )  # as measured, tests/nacks/test_sizes.py
    assert (eight["meanEarly"], eight["firingsPerMinute"]) == (127.5, 60_000 / 256)
    assert (eight["bytesFormula"], eight["bytesPairMap"]) == (4 * 36_000_000, 2**31)
    assert sixteen["bytesFormula"] == round(8192 / 50_000 * 36_000_000)
    assert eight["bytesSerialized"] < 36_000_000 * 0.2
    drawn = picture.read_text()
    assert drawn.startswith("<?xml")
    for line in ("HashMap", "pair map", "PIP-393", "Java 4.0.8", "resident"):
        assert drawn.count(f"<!-- {line} -->") == 1
    said = {row["figure"]: (row["document"], row["really"]) for row in found["document"]}
    assert said["of which used"] == ("30 MB", "30.5 MiB")
    assert said["space utility rate"] == ("0.46", "0.477")
    assert said["pair map at its fullest, 32/0.66 N = 48 N; N = 36,000,000"] == ("1.61 GiB", "2 GiB")
    assert said["pair map at its emptiest, 32/0.15 N = 213 N"] == ("7.14 GiB", "4 GiB")
    more = cli("nacks", "plan", "--rate", 10_000, "--delay", "1h", "--memory", "128M", "-o", "json").json["precisions"]
    assert [row["precisionBits"] for row in more if row["wanted"]] == [8]


def test_a_delay_below_the_clients_least(cli: Cli) -> None:
    found = cli("nacks", "plan", "--rate", 10_000, "--delay", "20ms", "-o", "json")
    assert found.json["load"]["delay"] == 100
    assert "the Java, C++ and Python clients make it 100ms" in found.stderr


def test_plan_from_a_topic(cli: Cli, demo_store: Path) -> None:
    arguments = ("--store", demo_store, "nacks", "plan", "--topic", PLAIN, "-o", "json")
    found = cli(*arguments, "-s", "holes", "--delay", "10m", "--precision", "1s").json
    holes = recorded_holes("holes")
    internal = oracle("small")["topics"][PLAIN]["internal_stats"]
    assert found["load"]["holes"] == len(holes)
    assert found["load"]["entriesPerLedger"] == max(ledger["entries"] for ledger in internal["ledgers"])
    ranks = {
        entry: rank
        for rank, entry in enumerate(
            (ledger["ledgerId"], entry) for ledger in internal["ledgers"] for entry in range(ledger["entries"])
        )
    }
    last = re.findall(r"\.\.(\d+):(\d+)\]", internal["cursors"]["holes"]["individuallyDeletedMessages"])[-1]
    mark = tuple(map(int, internal["cursors"]["holes"]["markDeletePosition"].split(":")))
    region = ranks[(int(last[0]), int(last[1]))] - ranks[(mark[0], mark[1])]
    assert found["load"]["nackedShare"] == pytest.approx(len(holes) / region)
    assert [row["precisionBits"] for row in found["precisions"] if row["wanted"]] == [9]


def test_what_is_measured_of_a_topic_is_what_its_entries_are(tmp_path: Path) -> None:
    """Two blocks, a ledger that is lost, one whose entries have no time, and a few more; times to the millisecond."""
    ledgers = [[Made(CREATED_MS + 10 * n, batch=3) for n in range(1100)], [Made(CREATED_MS, lost=True)] * 4]
    ledgers += [[Made(0, raw=b"\0\0\0\1no message")] * 5, [Made(CREATED_MS + 20_000 + n, batch=3) for n in range(9)]]
    acked = (
        (Position(10, 5), Position(10, 7)),
        (Position(10, 1025), Position(10, 1030)),
        (Position(13, 1), Position(13, 2)),
    )
    topic = MadeTopic(
        ledgers, cursors={"s": CursorInfo(-1, Position(10, 4), acked), "none": CursorInfo(-1, Position(10, 4))}
    )
    every = [(10 + number, entry) for number, some in enumerate(ledgers) for entry in range(len(some))]
    holes = [
        one for one in every[5 : every.index((13, 3))] if not any(low < Position(*one) <= high for low, high in acked)
    ]
    times = {(10 + at, entry): one.publish_ms for at in (0, 3) for entry, one in enumerate(ledgers[at])}
    with pa.open_store(
        make_store(
            tmp_path / "store",
            {
                PLAIN: topic,
                "public/default/timeless": MadeTopic([ledgers[2]]),
                "public/default/at-once": MadeTopic([[Made(CREATED_MS)] * 3]),
            },
        )
    ) as store:
        for name, waiting in (("s", holes), ("none", []), (None, [])):
            found = store.topic(PLAIN).measured_nacks(name)
            rows = zip(found.ledger_ids.tolist(), found.entry_ids.tolist(), found.times_ms.tolist(), strict=True)
            read = {(ledger, entry): time for ledger, entry, time in rows}
            assert read == pytest.approx({one: times[one] for one in waiting or every if one in times}, abs=1)
            kept = sorted(times.values())[11:-11]
            assert found.entries_per_second == pytest.approx(1000 * (len(kept) - 1) / (kept[-1] - kept[0]), rel=1e-3)
            share = len(holes) / (every.index((13, 2)) - every.index((10, 4))) if waiting else 1
            assert (found.holes, found.nacked_share) == (len(waiting), share)
            assert found.nacked_entries_per_second == found.entries_per_second * share
            assert (found.entries, found.entries_per_ledger, found.batch_size) == (1118, 1100, 3)
        once = store.topic("public/default/at-once").measured_nacks()
        assert (once.entries_per_second, once.nacked_entries_per_second) == (None, None)
        with pytest.raises(InvalidValue, match="no entry with a time"):
            store.topic("public/default/timeless").measured_nacks()


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("-s", "x", "--rate", "5"),
        ("--rate", "nan"),
        ("--rate", "10", "--delay", "0s"),
        ("--rate", "10", "--delay", "300000000y"),
        ("--rate", "10", "--acknowledged-every", "1"),
        ("--rate", "10", "--png", "x.gif"),
    ],
    ids=str,
)
def test_plans_that_make_no_sense(cli: Cli, words: tuple[str, ...]) -> None:
    result = cli("nacks", "plan", *words, "-o", "json").ends(2)
    assert result.stdout == ""


# -- in Python ---------------------------------------------------------------------------------------------------------


def test_nacks_of_a_store_are_those_of_the_command_line(cli: Cli, store: Path, tmp_path: Path) -> None:
    (tmp_path / "rows").write_text('29:20\n{"ledgerId": 29, "entryId": 21, "delay": "20m"}\n')
    options = ("-s", "half", "--delay", "10m", "--from-file", tmp_path / "rows", "--dry-run", "-o", "json")
    expected = cli("--store", store, "--now", f"@{NOW_MS}", "nacks", "add", PLAIN, *options).json
    with pa.open_store(store, writable=True, now=NOW_MS) as opened:
        lines = opened.topic(PLAIN).cursor("half").nacks().add_lines((tmp_path / "rows").read_text().split("\n"), "10m")
        assert lines.preview().documents()[0] == expected
        opened.apply(lines)
        opened.apply(opened.topic(PLAIN).cursor("holes").nacks().add_holes("5m"))
        with pytest.raises(pa.InvalidValue, match="my rows line 2"):
            opened.topic(PLAIN).cursor("half").nacks().add_lines(["1:2", "{"], "1m", source="my rows", force=True)
    later = ("--store", store, "--now", f"@{NOW_MS + 600_000}", "nacks")
    stats, rows = cli(*later, "stats", "-o", "json").json, cli(*later, "due", "-o", "jsonl").json_lines
    with pa.open_store(store, writable=True, now=NOW_MS + 600_000) as opened:
        assert [(one.topic, one.subscription, one.entries, one.due_entries) for one in opened.nacks(None).stats()] == [
            (row["topic"], row["subscription"], row["entries"], row["dueEntries"]) for row in stats
        ]
        assert {row["subscription"] for row in stats} == {"half", "holes"}
        assert due_rows(opened.nacks(None)) == rows
        assert due_rows(opened.nacks("holes", PLAIN)) == [row for row in rows if row["subscription"] == "holes"]
        assert {group.subscription: len(group.entry_ids) for group in opened.nacks("half").due_groups()} == {"half": 1}
        with pytest.raises(pa.SubscriptionNotFound, match="'none'"):
            opened.nacks("none").due()
        with pytest.raises(pa.TopicNotFound):
            opened.nacks("half", "none").due()
        number = opened.apply(opened.nacks(None).pop()).number
        assert number is not None
        assert due_rows(opened.nacks(None)) == []
        assert due_rows(opened.nacks(None), number) == rows
        with pytest.raises(pa.NothingMatches):
            opened.nacks(None).due(popped=1)


def due_rows(nacks: pa.KeptNacks, popped: int | None = None) -> list[dict[str, object]]:
    return [
        {
            "topic": one.topic,
            "subscription": one.subscription,
            "ledgerId": one.position.ledger_id,
            "entryId": one.position.entry_id,
            "dueTime": one.due_ms,
        }
        for one in nacks.due(popped=popped)
    ]


SIZED = {
    "precisionBits": "precision_bits",
    "bucket": "bucket_ms",
    "worstEarly": "worst_early_ms",
    "pendingEntries": "pending_entries",
    "buckets": "buckets",
    "firingsPerMinute": "firings_per_minute",
    "bytesJavaClient": "java_bytes",
    "bytesPairMap": "pair_map_bytes",
    "bytesSerialized": "serialized_bytes",
    "bytesResident": "resident_bytes",
}


def check_sizes(sizes: pa.NackSizes, bits: int, shown: dict[str, Any]) -> None:
    for sizing, row in zip(sizes.precisions, shown["precisions"], strict=True):
        assert {key: getattr(sizing, field) for key, field in SIZED.items()} == {key: row[key] for key in SIZED}
    assert [row["precisionBits"] for row in shown["precisions"] if row["wanted"]] == [bits]
    assert sizes.load.entries_per_second == shown["load"]["entriesPerSecond"]


def test_sizes_of_a_load(cli: Cli) -> None:
    options = ("--rate", 500, "--delay", "5m", "--batch-size", 4, "--acknowledged-every", 3)
    sizes = pa.nack_sizes(500, "5m", batch_size=4, acknowledged_every=3)
    shown = cli("nacks", "plan", *options, "--precision", "1s", "-o", "json").json
    check_sizes(sizes, sizes.recommended_bits("1s"), shown)
    shown = cli("nacks", "plan", *options, "--memory", "1K", "-o", "json").json
    check_sizes(sizes, sizes.recommended_bits(memory_bytes=1024), shown)
    assert sizes.recommended_bits("1s") == 9  # 2^9 - 1 ms are within a second, 2^10 - 1 are not
    assert [sizes.recommended_bits(f"{ms}ms") for ms in (510, 511)] == [8, 9]
    assert sizes.recommended_bits("1h") == 16
    with pytest.raises(pa.InvalidValue, match="how many nacks"):
        pa.nack_sizes()
