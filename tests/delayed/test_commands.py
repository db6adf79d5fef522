"""The commands on delayed messages, on the recorded worlds."""

import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pulsar_admin.store.changes.plan import ChangeKind, ChangePart, Plan, apply_plan, put_value_step
from pulsar_admin.store.codec.cursor import decode_cursor_info, encode_cursor_info
from pulsar_admin.store.codec.ledgermetadata import ledger_path
from pulsar_admin.store.db.delayed import index_key
from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.db.tree import find_node
from pulsar_admin.store.delayed.runs import open_runs
from pulsar_admin.store.delayed.trackers import iter_buckets
from pulsar_admin.store.delayed.waiting import open_waiting
from pulsar_admin.store.engine.local import LocalEngine
from pulsar_admin.store.engine.operation import Finished, Operation, Results
from pulsar_admin.store.engine.slices import FileRange
from pulsar_admin.store.model.cursors import cursor_of_nobody, read_cursor
from pulsar_admin.store.model.reader import open_reader
from pulsar_admin.store.model.topics import iter_topics, read_topic
from pulsar_admin.store.names import parse_topic
from tests.conftest import Cli
from tests.delayed.test_build import message
from tests.delayed.world import TOPIC, held, sent, waiting
from tests.stores import copied, imported, put_node, write_rows
from tests.synthetic import MadeTopic, make_store

FAR = "2100-01-01T00:00:00Z"
SHORT = "acme/delayed/reminders"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return copied("small", "clean", tmp_path)


def rows(cli: Cli, path: Path, *arguments: object) -> list[Any]:
    result = cli.done("--store", path, "delayed", *arguments, "-o", "jsonl")
    return result.json_lines


def place(row: Any) -> tuple[int, int]:
    return row["ledgerId"], row["entryId"]


def test_a_damaged_index_of_one_subscription_hides_no_other(cli: Cli, path: Path) -> None:
    every = rows(cli, path, "due", "--all-topics", "--until", FAR)
    assert len({(row["topic"], row["subscription"]) for row in every}) > 1
    name, subscription = every[0]["topic"], every[0]["subscription"]
    write_rows(path, lambda txn: txn.put("delayed", index_key(parse_topic(name), subscription), b"damaged"))
    found = cli("--store", path, "delayed", "due", "--all-topics", "--until", FAR, "-o", "jsonl").ends(1, name)
    assert found.json_lines == [row for row in every if (row["topic"], row["subscription"]) != (name, subscription)]


def test_due_with_and_without_an_index(cli: Cli, path: Path) -> None:
    """In order of time, the same messages from the entries and from the index: those sent that wait and are due by then."""
    wanted = sent("small")
    with open_store(path) as store:
        still = waiting(store, "workers")
    until = sorted(wanted.values())[60]
    before = rows(cli, path, "due", SHORT, "-s", "workers", "--until", f"@{until}")
    rows(cli, path, "build", SHORT)
    after = rows(cli, path, "due", SHORT, "-s", "workers", "--until", f"@{until}")
    assert before == after
    times = [row["deliverAt"] for row in after]
    assert times == sorted(times)
    # A tick begins before what is due in it: what lies in the last tick may be due up to a second later.
    found = {place(row) for row in after}
    assert {position for position, due in wanted.items() if due <= until and position in still} <= found
    assert all(wanted[position] < until + 1000 for position in found)


def test_due_from_an_index_compiles_nothing(cli: Cli, path: Path) -> None:
    """With an index that is current no entry is decoded: neither numba nor pyarrow is imported."""
    rows(cli, path, "build", SHORT)
    asked = (("due", SHORT, "--until", FAR), ("status", SHORT), ("replay", SHORT, "--until", FAR))
    code = (
        "import sys\nfrom pulsar_admin.cli import run\n"
        f"for words in {asked!r}:\n"
        f"    assert run(['--store', {str(path)!r}, 'delayed', *words]) == 0\n"
        "    assert {'numba', 'pyarrow'}.isdisjoint(sys.modules), words\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_replay_gives_each_message_once_in_order(cli: Cli, path: Path) -> None:
    rows(cli, path, "build", SHORT)
    given = rows(cli, path, "replay", SHORT, "--until", FAR)
    times = [row["deliverAt"] for row in given]
    assert times == sorted(times)
    with open_store(path) as store:
        for subscription in ("workers", "audit"):
            mine = [(row["deliverAt"], *place(row)) for row in given if row["subscription"] == subscription]
            assert mine == held(store, subscription)


def test_replay_goes_on(cli: Cli, path: Path) -> None:
    whole = rows(cli, path, "replay", SHORT, "-s", "workers", "--until", FAR)
    middle = whole[70]["deliverAt"]
    first = rows(cli, path, "replay", SHORT, "-s", "workers", "--until", f"@{middle - 1}")
    rest = rows(cli, path, "replay", SHORT, "-s", "workers", "--from-time", f"@{middle}", "--until", FAR)
    assert first + rest == whole


def test_replay_keeps_its_pace(cli: Cli, monkeypatch: Any) -> None:
    """At ten times the speed: the clock that the wheel waits for moves a tenth of the time between first and last message."""
    clock = [100.0]
    # Only the command's own: threads that other tests left wait, too.
    own = SimpleNamespace(monotonic=lambda: clock[0], sleep=lambda seconds: clock.__setitem__(0, clock[0] + seconds))
    monkeypatch.setattr("pulsar_admin.commands.delayed.time", own)
    given = rows(cli, imported("small", "clean"), "replay", SHORT, "-s", "workers", "--until", FAR, "--speed", "10")
    span = (given[-1]["deliverAt"] - given[0]["deliverAt"]) / 1000
    assert clock[0] - 100.0 == pytest.approx(span / 10)


def test_stopped_replay_says_how_to_go_on(cli: Cli, monkeypatch: Any) -> None:
    def stop(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("pulsar_admin.commands.delayed.time", SimpleNamespace(monotonic=lambda: 0.0, sleep=stop))
    result = cli.on(imported("small", "clean"), f"delayed replay {SHORT} --until {FAR} --speed 1")
    assert result.exit_code == 130
    assert "--start-time 2026-11-21T09:23:" in result.stderr


@pytest.mark.parametrize(
    ("speed", "code"), [("0", "invalid-value"), ("-1", "invalid-value"), ("nan", "usage"), ("inf", "usage")]
)
def test_bad_speed(cli: Cli, speed: str, code: str) -> None:
    store = imported("small", "clean")
    result = cli.on(store, f"delayed replay {SHORT} --until {FAR} --speed {speed} -o json")
    assert (result.exit_code, result.error["code"]) == (2, code)


def test_histogram_counts(cli: Cli, path: Path, tmp_path: Path) -> None:
    """Counts by brute force over what the producers sent; a picture is written."""
    now = 1_795_265_000_000
    with open_store(path) as store:
        still = waiting(store, "workers")
    due = np.array([due for position, due in sent("small").items() if position in still])
    for _ in range(2):
        png = tmp_path / f"{len(list(tmp_path.glob('*.png')))}.png"
        arguments = ("delayed", "histogram", SHORT, "-s", "workers", "--now", f"@{now}", "--png", png, "-o", "json")
        found = cli("--store", path, *arguments).json
        for name, ahead in (("now", 0), ("within1h", 3_600_000), ("within1d", 86_400_000)):
            assert found["due"][name] == int((due <= now + ahead).sum()), name
        assert found["messages"] == len(due) == found["due"]["later"] + found["due"]["within1d"]
        partitions = Counter({row["start"]: row["messages"] for row in found["partitions"]})
        assert partitions == Counter((due // 300_000 * 300_000).tolist())
        assert png.read_bytes().startswith(b"\x89PNG")
        rows(cli, path, "build", SHORT)
    lines = cli("--store", path, *arguments[:-4], "-o", "jsonl").json_lines
    assert {(row["topic"], row["subscription"]) for row in lines} == {(f"persistent://{SHORT}", "workers")}
    text = cli.on(path, f"delayed histogram {SHORT}").stdout
    assert "delayed messages are waiting" in text


def test_the_entries_of_all_topics_are_read_in_one_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """With an engine, whose jobs cost time each; what waits is the same as of one topic after the other, without one."""
    asked: list[int] = []
    run = LocalEngine.run

    def counted(self: LocalEngine, operation: Operation, pieces: Sequence[FileRange], finished: Finished) -> Results:
        asked.append(len(pieces))
        return run(self, operation, pieces, finished)

    monkeypatch.setattr(LocalEngine, "run", counted)
    with open_store(imported("small", "clean")) as store, open_runs() as file:
        with open_reader(store) as reader:
            topics = [read_topic(reader.txn, name) for name in iter_topics(reader.txn)]
            cursors = [(topic, cursor_of_nobody(topic)) for topic in topics]
            alone = [found.loads for one in cursors for found in open_waiting(reader, [one], file)]
        with open_reader(store, LocalEngine(1)) as reader:
            together = [found.loads for found in open_waiting(reader, cursors, file)]
    assert together == alone
    assert sum(map(bool, alone)) > 1
    assert len(asked) == 1


# -- the broker's buckets ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "state"), [("small", "clean"), ("nometa", "mutated"), ("small", "crashed")])
def test_index_equals_the_brokers_buckets(name: str, state: str) -> None:
    """What buckets hold and still waits has the same time in both, rounded down to the tick; the rest is of newer ledgers."""
    with open_store(imported(name, state)) as store, open_reader(store) as reader, open_runs() as file:
        topic = read_topic(reader.txn, parse_topic(TOPIC))
        cursor = read_cursor(reader.txn, reader, topic, "workers")
        buckets = list(iter_buckets(reader, cursor))
        (waiting,) = open_waiting(reader, [(topic, cursor)], file)
        found = waiting.source.load(0, 2**62)
    assert buckets
    mine = dict(
        zip(zip(found.ledger_ids.tolist(), found.entry_ids.tolist(), strict=True), found.times_ms.tolist(), strict=True)
    )
    compared = 0
    for bucket in buckets:
        assert bucket.rows is not None
        for time, *position in messages(bucket.rows):
            if tuple(position) in mine:
                assert mine.pop((position[0], position[1])) == time // 1000 * 1000
                compared += 1
    assert compared >= 90
    assert all(ledger > max(bucket.last_ledger_id for bucket in buckets) for ledger, _ in mine)


def messages(found: Any) -> Any:
    return zip(found.times_ms.tolist(), found.ledger_ids.tolist(), found.entry_ids.tolist(), strict=True)


def verified(cli: Cli, path: Path) -> tuple[int, dict[str, Any], list[str]]:
    result = cli.on(path, f"delayed verify {SHORT} -s workers -o json")
    kinds = [finding["kind"] for row in result.json for finding in row["findings"]]
    return result.exit_code, result.json[0], kinds


def change_bucket(path: Path, make: Any) -> None:
    """Rewrite the pointers of the cursor's buckets."""
    node_path = parse_topic(TOPIC).cursor_path("workers")
    with open_store(path, writable=True) as store:
        with store.read() as txn:
            node = find_node(txn, node_path)
            info = decode_cursor_info(node.value, node_path)
            from msgspec.structs import replace

            changed = replace(info, cursor_properties=make(dict(info.cursor_properties)))
            step = put_value_step(txn, node_path, encode_cursor_info(changed, node.value), 1)
            plan = Plan(ChangeKind("test", "test"), txn.id, (step,), (ChangePart(),))
        apply_plan(store, plan, 1)


def _twice(found: dict[str, str]) -> dict[str, str]:
    ((key, ledger),) = found.items()
    last = key.rpartition("_")[2]
    return {**found, f"#pulsar.internal.delayed.bucket_{last}_{int(last) + 1}": ledger}


@pytest.mark.parametrize(
    ("change", "kinds", "in_buckets"),
    [
        (lambda found: dict.fromkeys(found, "987654321"), {"bucket-ledger-gone", "bucket-ledger-leaked"}, 0),
        (lambda found: {}, {"bucket-ledger-leaked"}, 0),
        (lambda found: {"#a": "5", "#pulsar.internal.delayed.bucket_0_1": "x", **found}, {"bucket-ledger-gone"}, 100),
        (
            lambda found: {"#pulsar.internal.delayed.bucket_0_1": "987654321", **_twice(found)},
            {"bucket-ledger-gone", "double", "buckets-overlap", "in-no-bucket"},
            100,
        ),
    ],
)
def test_verify_names_what_is_wrong_with_buckets(
    cli: Cli, path: Path, change: Any, kinds: set[str], in_buckets: int, damages_stores: None
) -> None:
    """Whatever other properties a cursor has, and with a ledger whose metadata cannot be read."""
    change_bucket(path, change)
    put_node(path, ledger_path(1), b"no metadata")
    code, row, found = verified(cli, path)
    assert (code, {*found}, len(found)) == (1, kinds, len(kinds))
    assert (row["inBuckets"], row["outside"]) == (in_buckets, row["waiting"] - in_buckets)


def test_status_computes_the_ttl_conflict(cli: Cli, path: Path) -> None:
    """Delays against publish (or broker) time by brute force over the sent rows; the quota that evicts is named."""
    before = cli.json(path, f"delayed status {SHORT} -s workers")[0]
    assert before["ttlConflict"] is None
    assert before["evictingQuotas"] == []
    set_ttl(path, 0)
    assert cli.json(path, f"delayed status {SHORT} -s workers")[0]["ttlConflict"] is None
    set_ttl(path, 86_400)
    rows(cli, path, "build", SHORT)
    result = cli.on(path, f"delayed status {SHORT} -s workers -o json")
    found = result.json[0]
    with open_store(path) as store:
        still = waiting(store, "workers")
    # All were sent within a minute of each other, 09:23 to 09:24: none is due within a minute of a day later.
    begin = 1_795_253_000_000
    wanted = [due for position, due in sent("small").items() if position in still and due > begin + 86_400_000 + 60_000]
    assert found["ttlConflict"]["messages"] == len(wanted) > 50
    assert found["evictingQuotas"] == ["destination_storage"]
    assert "before they are due" in result.stderr
    assert found["index"]["current"] is True
    assert [tracker["name"][:8] for tracker in found["trackers"]] == ["InMemory", "InMemory", "BucketDe"]
    # What 4.0.8 read again after its restart: everything behind the mark-delete, or what no bucket holds.
    assert found["trackers"][0]["rebuildEntries"] == 145


def set_ttl(path: Path, seconds: int) -> None:
    from msgspec.structs import replace

    from pulsar_admin.store.changes.policies import change_policies
    from pulsar_admin.store.codec.policies import BacklogQuota
    from pulsar_admin.store.names import parse_namespace

    quota = BacklogQuota(10**12, -1, "consumer_backlog_eviction")
    with open_store(path, writable=True) as store:
        with store.read() as txn:
            changed = change_policies(
                txn,
                parse_namespace("acme/delayed"),
                lambda old: replace(old, message_ttl_seconds=seconds, backlog_quotas={"destination_storage": quota}),
                1,
            )
            plan = Plan(ChangeKind("test", "test"), txn.id, changed.steps, (ChangePart(),))
        apply_plan(store, plan, 1)


def test_unknown_subscription(cli: Cli) -> None:
    result = cli.on(imported("small", "clean"), f"delayed due {SHORT} -s nobody -o json")
    assert result.error["code"] == "subscription-not-found"


def test_due_rows_carry_the_exact_time(cli: Cli, path: Path, monkeypatch: Any) -> None:
    """As the producers wished it (clients round up by 3 ms at most), from entries and from an index, one by one and as columns."""
    wanted = sent("small")
    one_by_one = rows(cli, path, "due", SHORT, "-s", "workers", "--until", FAR)
    for row in one_by_one:
        assert row["deliverAt"] <= row["dueTime"] < row["deliverAt"] + 1000
        assert 0 <= row["dueTime"] - wanted[place(row)] <= 3
    monkeypatch.setattr("pulsar_admin.store.delayed.backlog._ONE_BY_ONE_MAX", 1)
    rows(cli, path, "build", SHORT)
    assert rows(cli, path, "due", SHORT, "-s", "workers", "--until", FAR) == one_by_one


def test_a_disabled_policy_makes_everything_due_at_once(cli: Cli, path: Path) -> None:
    """In the order of the topic, whether the messages are due or not; said on stderr."""
    asked = rows(cli, path, "due", SHORT, "-s", "workers", "--until", FAR)
    assert cli.on(path, "namespaces disable-delayed-message acme/delayed").exit_code == 0
    now = 1_795_000_000_000  # before the first is due
    words = (SHORT, "-s", "workers", "--now", f"@{now}")
    found = cli("--store", path, "delayed", "due", *words, "-o", "jsonl")
    assert "delayed delivery is disabled (namespace policy): a broker gives all" in found.stderr
    assert [place(row) for row in found.json_lines] == sorted(map(place, asked))
    assert {row["deliverAt"] for row in found.json_lines} == {now}
    exact = {place(row): row["dueTime"] for row in asked}
    assert {place(row): row["dueTime"] for row in found.json_lines} == exact
    replayed = rows(cli, path, "replay", *words, "--until", FAR)
    assert [place(row) for row in replayed] == sorted(exact)
    histogram = cli("--store", path, "delayed", "histogram", *words, "-o", "json").json
    assert set(histogram["due"].values()) == {len(asked), 0}
    assert histogram["due"]["later"] == 0
    status = cli("--store", path, "delayed", "status", *words, "-o", "json").json[0]
    assert (status["due"]["now"], status["messages"], status["ttlConflict"]) == (len(asked), len(asked), None)
    assert (status["policy"]["active"], status["firstDue"], status["lastDue"]) == (False, now, now)


def test_a_relative_delay_shows_in_read_and_dump(cli: Cli, tmp_path: Path) -> None:
    """``delayed_ms`` of the first proposal, field 18 as a varint: delivered that long after it was published."""
    store = tmp_path / "store"
    hour = b"\x90\x01" + b"\x80\xdd\xdb\x01"  # 18 varint 3_600_000
    made = [message(6_000, raw_tail=hour), message(7_000), message(8_000, deliver_at=9_000, raw_tail=hour)]
    make_store(store, {"persistent://a/b/c": MadeTopic([made])})
    read = cli.rows(store, "topics read a/b/c")
    assert [row.get("deliverAtTime") for row in read] == [3_606_000, None, 9_000]
    single = cli.on(store, "topics get-message-by-id a/b/c -l 10 -e 0").stdout
    assert "Deliver at time: 3606000\n" in single  # ms, as pulsar-admin prints it
    dumped = cli.on(store, "topics dump a/b/c").json_lines
    assert [row.get("deliverAtTime") for row in dumped] == [3_606_000, None, 9_000]
