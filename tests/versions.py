"""How many answers of live brokers and clients the toolkit gives, by Pulsar's version: ``python -m tests.versions`` prints the table of
docs/what-a-store-knows.md, and what differs.

Answers are those of the recorded worlds (``tests/golden/README.md``); each cell is: the same / asked.
"""

import hashlib
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from msgspec.structs import replace

import pulsar_admin
from pulsar_admin.jsonify import to_json
from pulsar_admin.store.changes.cursors import cleared
from pulsar_admin.store.changes.resets import reset_to_time
from pulsar_admin.store.codec.cursor import CursorState
from pulsar_admin.store.codec.encryption import read_private_keys
from pulsar_admin.store.compaction.last_id import find_last_id
from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.model.cursors import pending_intervals, read_cursor
from pulsar_admin.store.model.messages import MessageReader, ReadOptions, read_last_id
from pulsar_admin.store.model.reader import EntryReader, open_reader
from pulsar_admin.store.model.scalable import read_scalable
from pulsar_admin.store.model.topics import read_topic
from pulsar_admin.store.names import EARLIEST, Position, TopicName, parse_position, parse_topic
from pulsar_admin.store.reports.internal_stats import read_internal_stats
from pulsar_admin.store.reports.scalable import read_scalable_stats
from pulsar_admin.store.search.broker import BrokerSearch
from pulsar_admin.store.search.broker_setup import BrokerSetup, told_version
from tests.compaction.test_recorded import read_rows
from tests.live.conftest import run_toolkit
from tests.plans.test_mutations import CLOCK_WINDOW_MS, moved, shown
from tests.stores import copied, imported
from tests.test_scalable import known
from tests.worlds import CLUSTER, GOLDEN, RELOADED, asked_topics, oracle, world

WORLDS = {
    "2.11.0": ("compacted-old", "small-old"),
    "4.0.8": ("small", "nometa", CLUSTER),
    "4.2.4": ("compacted", "small-newer"),
    "5.0.1": ("scalable", "five", "small-newest"),
}
Answer = tuple[str, str, object, object]
"""Feature, of what, ours, theirs."""
CHANGED = "five"
"""The world of whose cursors 5.0.1 moved some later, and of which it served an export: ``changes-5.0.1.json``."""
_RANGE = re.compile(r"\((\d+):(-?\d+)\.\.(\d+):(-?\d+)]")


def changes() -> Any:  # Any: JSON
    """Return what ``tests.live.recording_changes`` recorded."""
    return json.loads((GOLDEN / "changes-5.0.1.json").read_text())


def answers_of(name: str) -> Iterator[Answer]:
    """Yield what can be compared in a world."""
    with open_store(imported(name, "clean")) as store, open_reader(store) as reader:
        keys = imported_keys(name)
        reader.keys = read_private_keys([keys]) if keys.is_file() else None
        for topic, said in asked_topics(name).items():
            if name == "five":
                yield from _of_scalable(reader, topic, said)
            else:
                yield from _of_topic(reader, name, topic, said)
        mutations = changes()["mutations"] if name == CHANGED else oracle(name).get("mutations", [])
        for number, mutation in enumerate(mutations):
            what = f"{number} {mutation['kind']} {mutation['topic']} {mutation['subscription']}"
            yield "cursors that the broker moved", what, *_moved(reader, name, mutation)
        for topic, said in oracle(name).get("scalable", {}).items():
            yield "stats of scalable topics", topic, *_stats(reader, topic, said["stats"])


def imported_keys(name: str) -> Path:
    """Return where the private key of a world's encrypted messages is; what was compacted by 4.2.4 has that of ``small``."""
    return world("small" if name == "compacted" else name) / "keys" / "priv.pem"


def _of_topic(reader: EntryReader, recorded: str, name: str, said: Any) -> Iterator[Answer]:
    topic = read_topic(reader.txn, parse_topic(name))
    if "messages" in said:
        ours = {row[:3]: row[3:] for row in _messages(reader, topic.name)}
        for row in said["messages"]:
            if row[0] == "stopped" or not isinstance(row[0], int):
                continue
            key, sha1 = (row[5], row[8]) if len(row) > 6 else row[3:5]
            yield "messages that a client read", f"{name} {row[:3]}", ours.get(tuple(row[:3])), (key or "", sha1)
    for time_ms, position in (said.get("by_time") or {}).items():
        if isinstance(position, list):
            if recorded in RELOADED and position in ([one.ledger_id, one.entries] for one in topic.ledgers[-2:-1]):
                position = [topic.ids[-1], 0]  # clients had the broker load the topic again while it stopped
            found = BrokerSearch(reader, topic, _broker(reader, recorded)).message_id_by_time(int(time_ms))
            yield "times", f"{name} {time_ms}", [found.ledger_id, found.entry_id], position
    last = said.get("last_message_id")
    if isinstance(last, dict):
        # 2.11 leaves out what an id outside batches has, and writes the acknowledgements of its own client into one in a batch.
        theirs = {"batchIndex": -1, "batchSize": 0} | {key: one for key, one in last.items() if key != "acker"}
        yield "last message ids", name, to_json(read_last_id(reader, topic.name, [])), theirs
    elif last:
        place = find_last_id(reader, topic, verify=True).position
        yield "last message ids", name, [place.ledger_id, place.entry_id, place.batch_index], last
    yield from _internal(reader, topic.name, name, said["internal_stats"])
    if said.get("compacted_messages"):
        ours_rows = Counter((ledger, entry, index) for ledger, entry, index, *_ in read_rows(reader, name))
        for row in said["compacted_messages"]:
            if isinstance(row[0], int) and not _was_compacted_out(row):
                yield "messages of compacted views", f"{name} {row[:3]}", ours_rows[tuple(row[:3])], 1


def _broker(reader: EntryReader, recorded: str) -> BrokerSetup:
    """Return which broker was asked: by its name, as data of one version look like those of another."""
    named = {"2.11.0": "2.11", "4.2.4": "4.2"}
    version = next((named.get(version) for version, worlds in WORLDS.items() if recorded in worlds), None)
    return BrokerSetup(version or told_version(reader.txn)[0])


def _was_compacted_out(row: Any) -> bool:
    """Whether a row is an empty message that the C++ client makes of one that is not there any more."""
    key, size = row[4:6] if len(row) > 6 else (row[3], row[5])
    return bool(row[2] >= 0 and key == "" and size == 0)


def _moved(reader: EntryReader, recorded: str, mutation: Any) -> tuple[object, object]:
    """Return where a cursor goes and where it went; all that were right, where the time of the request is not known to the millisecond."""
    broker = _broker(reader, recorded)
    name, after = parse_topic(mutation["topic"]), mutation["after"]
    if mutation["kind"] in ("seek", "clear-backlog"):  # of a subscription on some segments, by number: their backlogs
        time_ms, left = mutation["path"].rpartition("=")[2], {}
        for segment in read_scalable(reader.txn, name).segments:
            if str(segment.segment_id) in after:
                topic = read_topic(reader.txn, segment.topic)
                cursor = read_cursor(reader.txn, reader, topic, "all")
                state = cleared(topic, cursor.state)
                if mutation["kind"] == "seek":
                    found = BrokerSearch(reader, topic, broker).reset_read_position(int(time_ms))
                    state = reset_to_time(topic, cursor, found)
                intervals = pending_intervals(topic, state)
                left[str(segment.segment_id)] = sum(end - start for start, end in intervals)
        return left, after
    topic = read_topic(reader.txn, name)
    cursor = read_cursor(reader.txn, reader, topic, "s1" if recorded == CHANGED else mutation["subscription"])
    if recorded == CHANGED:  # made later, and only there
        before = mutation["before"]
        rows = [[*map(int, row)] for row in _RANGE.findall(before["individuallyDeletedMessages"])]
        ranges = tuple((Position(*row[:2]), Position(*row[2:])) for row in rows)
        cursor = replace(cursor, state=CursorState(parse_position(before["markDeletePosition"]), ranges))
    window = CLOCK_WINDOW_MS.get(
        CLUSTER if recorded in ("small-old", "small-newer", "small-newest") else recorded, range(1)
    )
    states = map(shown, moved(reader, topic, cursor, mutation, window[::5], broker))
    theirs = after["markDeletePosition"], after["individuallyDeletedMessages"]
    return theirs if theirs in (ours := [*states]) else ours, theirs


def answers_of_export(path: Path) -> Iterator[Answer]:
    """Yield what v5 clients got of the export of the store at ``path``, where the recorded changes were made."""
    with pulsar_admin.open_store(path) as store:
        for topic, subscription, values in changes()["read"]:
            rows = store.topic(f"topic://{topic}").messages(subscription=subscription, columns=["value"]).rows()
            ours, theirs = Counter(row["value"] for row in rows), Counter(values)
            for value in sorted(ours | theirs):
                yield "messages that a client read of an export", f"{topic} {value}", ours[value], theirs[value]


def _messages(reader: EntryReader, name: TopicName) -> Iterator[tuple[Any, ...]]:
    topic = read_topic(reader.txn, name)
    for one in MessageReader(reader, ReadOptions()).iter_messages(topic.iter_positions(EARLIEST)):
        at = one.position
        yield at.ledger_id, at.entry_id, at.batch_index, one.key or "", hashlib.sha1(one.payload).hexdigest()


def _internal(reader: EntryReader, topic: TopicName, name: str, said: Any) -> Iterator[Answer]:
    ours = to_json(read_internal_stats(reader, topic, False, True, []))
    for key in ("numberOfEntries", "totalSize", "lastConfirmedEntry", "state"):
        yield "internal stats", f"{name} {key}", ours[key], said[key]
    ids = [[[one[key] for key in ("ledgerId", "entries", "size")] for one in row["ledgers"]] for row in (ours, said)]
    yield "internal stats", f"{name} ledgers", ids[0], ids[1]
    for cursor, theirs in said["cursors"].items():
        here = ours["cursors"].get(cursor, {})
        for key in ("markDeletePosition", "individuallyDeletedMessages"):
            yield "cursors", f"{name} {cursor} {key}", here.get(key), theirs[key]


def _of_scalable(reader: EntryReader, name: str, said: Any) -> Iterator[Answer]:
    if name == "namespace":
        return
    if name == "plain":
        yield from _internal(reader, parse_topic("acme/five/plain"), name, said)
        return
    ours = Counter(
        (row[3], row[4])
        for segment in said["layout"]["segments"].values()
        for row in _messages(reader, parse_topic(_segment(name, segment)))
    )
    for _, key, value, _ in said["rows"]:
        yield "messages that a client read", f"{name} {value}", ours[key, hashlib.sha1(value.encode()).hexdigest()], 1
    if not said["stats"]["producers"]:  # with them, rates are those of the moment
        yield "stats of scalable topics", name, *_stats(reader, name, said["stats"])


def _segment(name: str, segment: Any) -> str:
    if segment.get("legacyTopicName"):
        return str(segment["legacyTopicName"])
    start, end = segment["hashRange"]["start"], segment["hashRange"]["end"]
    return f"segment://{name}/{start:04x}-{end:04x}-{segment['segmentId']}"


def _stats(reader: EntryReader, name: str, said: Any) -> tuple[object, object]:
    found = to_json(read_scalable_stats(reader, parse_topic(f"topic://{name}"), []))
    return known(found), known(said)


def count() -> tuple[list[str], list[str]]:
    """Return the lines of the table, and what differs."""
    cells: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    differences: list[str] = []
    with TemporaryDirectory() as folder:
        path = copied(CHANGED, "clean", Path(folder))
        for line in changes()["changes"]:
            run_toolkit(path, *line.split(), "--yes")
        exported = [*answers_of_export(path)]
    for version, worlds in WORLDS.items():
        for recorded in worlds:
            for feature, what, ours, theirs in [*answers_of(recorded), *(exported if recorded == CHANGED else ())]:
                cell = cells[feature, version]
                cell[0] += ours == theirs
                cell[1] += 1
                if ours != theirs:
                    differences.append(f"{version} {recorded} {feature}: {what}: {ours} | {theirs}"[:300])
    lines = [f"| the same / asked | {' | '.join(WORLDS)} |", f"|{'---|' * (1 + len(WORLDS))}"]
    for feature in dict.fromkeys(one for one, _ in cells):
        row = [cells[feature, version] for version in WORLDS]
        lines.append(f"| {feature} | {' | '.join(f'{same:,} / {asked:,}' if asked else '' for same, asked in row)} |")
    return lines, differences


if __name__ == "__main__":
    table, found = count()
    print(*table, "", *found, sep="\n")
