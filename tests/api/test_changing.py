"""Plans, changes and undo through the Python interface: the same bytes and reports as the commands, and the recorded mutations."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from io import BytesIO
from pathlib import Path

import pytest

import pulsar_admin as pa
from pulsar_admin.jsonify import to_json
from tests.conftest import Cli
from tests.stores import NOW_MS
from tests.worlds import assert_unchanged, oracle

PLAIN = "public/default/plain"


def mutation(kind: str) -> dict[str, object]:
    found: dict[str, object] = next(row for row in oracle("small")["mutations"] if row["kind"] == kind)
    return found


def cursor_of(store: pa.Store, recorded: dict[str, object]) -> pa.Cursor:
    return store.topic(str(recorded["topic"])).cursor(str(recorded["subscription"]))


def mark_after(recorded: dict[str, object]) -> str:
    after = recorded["after"]
    assert isinstance(after, dict)
    return str(after["markDeletePosition"])


def test_a_reset_from_plan_to_undo(path: Path, cli: Cli) -> None:
    """To where the live broker went; nothing is written before apply, and undo brings back what was there."""
    recorded = mutation("reset-cursor-position")
    with pa.open_store(path, writable=True, now=NOW_MS) as store:
        cursor = cursor_of(store, recorded)
        before = cursor.state()
        plan = cursor.reset(to="18:8")
        preview = plan.preview()
        assert (preview.dry_run, preview.number, cursor.state()) == (True, None, before)
        assert store.changes() == ()
        change = store.apply(plan)
        assert (change.dry_run, change.number) == (False, 1)
        assert str(cursor.state().mark_delete) == mark_after(recorded)
        (part,) = change.parts
        assert part.after["markDeletePosition"] == mark_after(recorded)
        assert change.skipped.entries == before.backlog_entries - cursor.state().backlog_entries
        assert change.number is not None
        undone = store.undo(change.number)
        assert cursor.state() == before
        log = store.changes()
        assert [(row.command, row.undoes, row.undone_by) for row in log] == [
            ("topics reset-cursor", None, 2),
            ("store undo 1", 1, None),
        ]
        assert undone.number == 2
        (named,) = store.change_log(1)
        assert (named, tuple(store.change_log())) == (log[0], log)
        with pytest.raises(pa.ChangeNotFound):
            next(store.change_log(3))
    shown = cli("--store", path, "store", "log", "--steps", "-o", "json").json
    for change, row in zip(log, shown, strict=True):
        assert (change.number, change.time_ms, list(change.reports)) == (row["change"], row["time"], row["reports"])
        assert to_json(change.steps) == row["steps"]


@pytest.mark.parametrize(
    ("options", "plan"),
    [
        (("reset-cursor", "-m", "9:3", "-e"), lambda cursor: cursor.reset(to=pa.Position(9, 3), exclude=True)),
        (("reset-cursor", "-t", "3h", "--rule", "broker"), lambda cursor: cursor.reset(time="3h", rule="broker")),
        (("reset-cursor", "--shift-by", "-100"), lambda cursor: cursor.reset(shift_by=-100)),
        (("reset-cursor", "--to-subscription", "holes"), lambda cursor: cursor.reset(like="holes")),
        (("skip", "-n", "7"), lambda cursor: cursor.skip(7)),
        (("expire", "-t", "1h"), lambda cursor: cursor.expire(before="1h")),
        (("unsubscribe",), lambda cursor: cursor.delete()),
    ],
)
def test_plans_are_those_of_the_commands(path: Path, cli: Cli, options: tuple[str, ...], plan: object) -> None:
    command, *rest = options
    words = ("--store", path, "--now", f"@{NOW_MS}", "topics", command, PLAIN, "-s", "half", *rest, "--dry-run")
    with assert_unchanged(path / "meta" / "data.mdb"), pa.open_store(path, now=NOW_MS) as store:
        made = plan(store.topic(PLAIN).cursor("half"))  # type: ignore[operator]
        report = made.preview()
    assert report.documents()[0] == cli(*words, "-o", "json").json
    assert str(report) + "\n" == cli(*words).stdout


def test_a_partitioned_topic_is_one_change(path: Path, cli: Cli) -> None:
    with pa.open_store(path, writable=True, now=NOW_MS) as store:
        topic = store.topic("acme/orders/parts")
        change = store.apply(topic.create_subscription("audit", start="earliest", properties={"owner": "billing"}))
        assert len(change.parts) == 3
        assert topic.subscriptions() == ("audit",)
        messages = sum(len(batch) for batch in topic.messages())
        assert topic.cursor("audit").backlog().messages == messages
        skipped = store.apply(topic.cursor("audit").clear()).skipped
        assert skipped.messages == messages
        with pytest.raises(pa.InvalidValue, match="position 9:3 is in one of them"):
            topic.cursor("audit").reset(to="9:3")
    assert [
        row["subscription"] for row in cli("--store", path, "store", "log", 2, "-o", "json").json[0]["reports"]
    ] == ["audit"] * 3


def test_every_subscription_expires_as_each_alone(path: Path) -> None:
    """The broker's own cursors stay; nothing else does."""
    limit = "2026-11-21T09:23:14Z"
    with pa.open_store(path, now=NOW_MS) as store:
        every = store.cursors(None, PLAIN).expire(before=limit)
        topic = store.topic(PLAIN)
        alone = {name: topic.cursor(name).expire(before=limit, force=True).preview() for name in topic.subscriptions()}
        assert {part.subscription: part.skipped for part in every.preview().parts} == {
            name: report.skipped for name, report in alone.items()
        }
        rows = {one.subscription: one.rows for one in store.cursors(None, PLAIN).forecast("1h", ttl="1h")}
        assert rows == {name: topic.cursor(name).forecast("1h", ttl="1h")[0].rows for name in topic.subscriptions()}
        assert sum(row.extent.entries for row in rows["half"]) == topic.cursor("half").backlog().entries
        for named in (
            lambda: store.cursors(None, PLAIN).create(),
            lambda: list(store.cursors(None, PLAIN).histories()),
            lambda: store.cursors(None, PLAIN).reset(as_of="1h"),
        ):
            with pytest.raises(pa.InvalidValue, match="name the subscription"):
                named()
        with pytest.raises(pa.SubscriptionNotFound, match="no subscription to expire"):
            store.cursors(None, "acme/orders/parts").expire(before=limit)


def test_lines_move_cursors_as_each_alone(path: Path) -> None:
    lines = [
        f'{{"topic": "{PLAIN}", "subscription": "half", "messageId": "9:3"}}',
        "",
        '{"topic": "acme/iot/skewed", "time": "2026-11-20T00:00:00Z"}',
    ]
    with pa.open_store(path, now=NOW_MS) as store:
        found = store.reset_cursors(lines, "reset-me").preview()
        assert [(part.topic, part.after) for part in found.parts] == [
            (part.topic, part.after)
            for plan in (
                store.topic(PLAIN).cursor("half").reset(to="9:3"),
                store.topic("acme/iot/skewed").cursor("reset-me").reset(time="2026-11-20T00:00:00Z"),
            )
            for part in plan.preview().parts
        ]
        assert found.parts[0].after == {"markDeletePosition": "9:2"} | (found.parts[0].after or {})
        for wrong, says in (
            ([], "the lines holds no change"),
            (["[]"], "the lines line 1"),
            ([lines[0]] * 2, "moved by"),
        ):
            with pytest.raises(pa.InvalidValue, match=says):
                store.reset_cursors(wrong)


def test_rows_of_resets_have_the_names_of_reset(path: Path) -> None:
    """Of any kind that ``reset`` takes; a saved plan of them is made again."""
    moment = datetime(2026, 11, 20, tzinfo=UTC)
    rows: list[dict[str, object]] = [
        {"topic": PLAIN, "subscription": "half", "to": pa.Position(9, 3)},
        {"topic": PLAIN, "subscription": "never", "to": "9:5"},
        {"topic": PLAIN, "subscription": "holes", "like": "half"},
        {"topic": PLAIN, "subscription": "expire-me", "shift_by": 3},
        {"topic": "acme/iot/skewed", "time": moment, "exclude": True},
    ]
    with pa.open_store(path, writable=True, now=NOW_MS) as store:
        plain = store.topic(PLAIN)
        singles = [
            plain.cursor("half").reset(to="9:3"),
            plain.cursor("never").reset(to="9:5"),
            plain.cursor("holes").reset(like="half"),
            plain.cursor("expire-me").reset(shift_by=3),
            store.topic("acme/iot/skewed").cursor("reset-me").reset(time=moment, exclude=True),
        ]
        plan = store.reset_cursors(rows, "reset-me")
        expected = [part.after for single in singles for part in single.preview().parts]
        assert [part.after for part in plan.preview().parts] == expected
        plan.save(path.parent / "plan")
        assert store.apply(store.load_plan(path.parent / "plan")).number == 1
        for wrong, says in (({"topic": PLAIN, "too": "9:3"}, "unknown key 'too'"), ({"to": {1, 2}}, "says no reset")):
            with pytest.raises(pa.InvalidValue, match=says):
                store.reset_cursors([wrong], "half")


def test_the_cursors_of_several_topics_are_one_change(path: Path, cli: Cli) -> None:
    """As the commands make it; of a pattern the topics that have the subscription, and one that is named must have it."""
    words = ("--store", path, "--now", f"@{NOW_MS}", "topics")
    with pa.open_store(path, now=NOW_MS) as store:
        reset = store.cursors("reset-me", pattern="acme/iot/*").reset(time="2026-11-20T00:00:00Z").preview()
        made = store.cursors("audit", "acme/iot/skewed", PLAIN).create(start="earliest").preview()
        with pytest.raises(pa.SubscriptionNotFound):
            store.cursors("half", PLAIN, "acme/iot/skewed").skip(1)
        with pytest.raises(pa.InvalidValue):
            store.cursors("half", PLAIN, pattern="acme/*")
        states = store.topic(PLAIN).cursor("half").history()
        assert list(store.cursors("half", PLAIN).histories()) == [(f"persistent://{PLAIN}", one) for one in states]
    options = ("-s", "reset-me", "-t", "2026-11-20T00:00:00Z", "--dry-run", "-o", "jsonl")
    shown = cli(*words, "reset-cursor", "--pattern", "acme/iot/*", *options).json_lines
    assert to_json(reset.documents()) == shown
    assert {row["topic"] for row in shown} == {f"persistent://acme/iot/skewed{end}" for end in ("", "-batched")}
    options = ("-s", "audit", "-m", "earliest", "--dry-run", "-o", "jsonl")
    assert (
        to_json(made.documents()) == cli(*words, "create-subscription", "acme/iot/skewed", PLAIN, *options).json_lines
    )


def test_a_plan_of_another_state_is_refused(path: Path) -> None:
    with pa.open_store(path, writable=True) as store:
        cursor = store.topic(PLAIN).cursor("half")
        late = cursor.clear()
        store.apply(cursor.skip(1))
        with pytest.raises(pa.StalePlan):
            store.apply(late)
        assert len(store.changes()) == 1
        assert store.apply(cursor.skip(1)).number == 2
        with pytest.raises(pa.UndoConflict):
            store.undo(1)


def test_what_is_as_wanted_already_writes_nothing(path: Path) -> None:
    with pa.open_store(path, writable=True) as store:
        plan = store.topic(PLAIN).cursor("half").reset(to=pa.Position(30, 0), rule="broker")
        assert plan.changes_nothing
        change = store.apply(plan)
        assert (change.number, change.dry_run) == (None, False)
        assert str(change).startswith("no change: ")
        assert store.changes() == ()


def test_a_store_that_was_opened_for_reading_is_not_written(path: Path) -> None:
    with assert_unchanged(path / "meta" / "data.mdb"), pa.open_store(path) as store:
        plan = store.topic(PLAIN).cursor("half").clear()
        with pytest.raises(pa.NotWritable):
            store.apply(plan)


def test_a_store_is_opened_once(path: Path) -> None:
    """In one process; that a second process may read and not write is tested with the commands."""
    with pa.open_store(path, writable=True):
        with pytest.raises(pa.StoreBusy):
            pa.open_store(path, writable=True)
        with pytest.raises(pa.StoreBusy, match="in this process already"):
            pa.open_store(path)
    with pa.open_store(path) as store:
        assert store.topics()


def test_plans_travel_as_files(path: Path, tmp_path: Path, cli: Cli) -> None:
    """A file that Python wrote is applied by the command, one that the command wrote by Python."""
    ours, theirs = tmp_path / "ours.plan", tmp_path / "theirs.plan"
    with pa.open_store(path) as store:
        store.topic(PLAIN).cursor("half").clear().save(ours)
        with pytest.raises(pa.AlreadyExists):
            store.topic(PLAIN).cursor("half").clear().save(ours)
    assert cli("--store", path, "apply", ours, "--yes").exit_code == 0
    assert cli("--store", path, "--plan", theirs, "topics", "skip", PLAIN, "-s", "never", "-n", 5).exit_code == 0
    with pa.open_store(path, writable=True) as store:
        assert store.apply(store.load_plan(theirs)).skipped.entries == 5
        assert [row.command for row in store.changes()] == ["topics clear-backlog", "topics skip"]
        with pytest.raises(pa.StalePlan):
            store.load_plan(theirs)


def test_plans_that_write_ledgers_travel_too(path: Path, tmp_path: Path, cli: Cli) -> None:
    ours, theirs = tmp_path / "ours.plan", tmp_path / "theirs.plan"
    with pa.open_store(path) as store:
        store.topic(PLAIN).set_message_ttl(timedelta(hours=2)).save(ours)
    assert cli("--store", path, "apply", ours).exit_code == 0
    assert cli("--store", path, "--plan", theirs, "topics", "set-message-ttl", PLAIN, "-t", "3h").exit_code == 0
    with pa.open_store(path, writable=True) as store:
        store.apply(store.load_plan(theirs))
        assert store.topic(PLAIN).policy("message-ttl") == 3 * 3600


def test_a_plan_of_a_stream_is_not_kept(path: Path, tmp_path: Path) -> None:
    with pa.open_store(path) as store:
        store.dump(tmp_path / "dumped", PLAIN, level="entries", form="jsonl")
        lines = b"".join(one.read_bytes() for one in sorted((tmp_path / "dumped").rglob("*.jsonl")))
        with pytest.raises(pa.Refused, match="is not kept"):
            store.load(BytesIO(lines), topic="public/default/copy").save(tmp_path / "a.plan")


def test_what_cannot_be_meant_is_refused(path: Path) -> None:
    with pa.open_store(path) as store:
        cursor = store.topic(PLAIN).cursor("half")
        for wrong in (
            {},
            {"to": "9:3", "shift_by": 1},
            {"time": "1h", "clock": "event"},
            {"shift_by": 1, "exclude": True},
            {"as_of": "metadata", "exclude": True},
            {"as_of": "metadata", "to": "9:3"},
            {"as_of": "3h", "if_unsure": "guess"},
            {"to": "29:20", "if_unsure": "redeliver"},
            {"to": "29:20", "zookeeper": ["zk"]},
            {"time": "1h", "rule": "all"},
        ):
            with pytest.raises(pa.InvalidValue):
                cursor.reset(**wrong)  # type: ignore[arg-type]
        for wrong in (
            {},
            {"before": "1h", "by_ttl": True},
            {"before": "2026-11-21T09:23:30Z", "exclude": True, "force": True},
            {"before": "1h", "rule": "broker", "clock": "publish"},
            {"before": "1h", "rule": "exact"},
        ):
            with pytest.raises(pa.InvalidValue):
                cursor.expire(**wrong)  # type: ignore[arg-type]
        for words in ({"rule": "first"}, {"clock": "wall"}, {"broker_version": "3.0"}):
            with pytest.raises(pa.InvalidValue, match="is not one of"):
                store.topic(PLAIN).find("3h", **words)  # type: ignore[arg-type]
        with pytest.raises(pa.InvalidValue, match="is not one of"):
            store.namespace("acme/delayed").set_backlog_quota("drop", size=5)  # type: ignore[arg-type]
        with pytest.raises(pa.InvalidValue):
            cursor.skip(-1)
        with pytest.raises(pa.Refused):
            store.topic("acme/orders/compacted").cursor("__compaction").clear()


def test_closing_ends_no_iteration(path: Path) -> None:
    """One that goes on reads its snapshot to the end, and closes behind it; whatever begins later is refused."""
    store = pa.open_store(path, writable=True)
    topic, ledger = store.topic(PLAIN), store.ledger(9)
    entries, messages = ledger.entries(), iter(topic.messages(columns=["key"]))
    assert next(entries).state == "ok"
    store.close()
    store.close()
    with pytest.raises(pa.StoreBusy):
        pa.open_store(path, writable=True)
    assert len(list(entries)) == 24
    for refused in (store.topics, topic.stats, lambda: topic.find("3h"), lambda: next(messages), lambda: store.undo(1)):
        with pytest.raises(pa.Refused, match="was closed"):
            refused()
    with pa.open_store(path, writable=True) as again:
        assert again.topics()


def test_what_is_no_number_or_position_is_refused_in_words(path: Path) -> None:
    with pa.open_store(path, writable=True, now=NOW_MS) as store:
        topic = store.topic("public/default/plain")
        change = store.apply(topic.cursor("half").skip(1))
        calls: tuple[Callable[[], object], ...] = (
            lambda: store.undo(change),  # type: ignore[arg-type]
            lambda: store.undo("1"),  # type: ignore[arg-type]
            lambda: topic.cursor("half").skip("5"),  # type: ignore[arg-type]
            lambda: topic.cursor("half").skip(True),
            lambda: topic.messages(start=5),  # type: ignore[arg-type]
            lambda: topic.cursor("half").reset(to=9),  # type: ignore[arg-type]
        )
        for call in calls:
            with pytest.raises(pa.InvalidValue):
                call()
