"""How many answers of live brokers and clients the toolkit gives, by Pulsar's version: ``python -m tests.versions`` prints the table of
docs/what-a-store-knows.md, and what differs.

Answers are those of the recorded worlds (``tests/golden/README.md``); each cell is: the same / asked.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pulsar_admin.jsonify import to_json
from pulsar_admin.store.codec.encryption import read_private_keys
from pulsar_admin.store.compaction.last_id import find_last_id
from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.model.messages import MessageReader, ReadOptions, read_last_id
from pulsar_admin.store.model.reader import EntryReader, open_reader
from pulsar_admin.store.model.topics import read_topic
from pulsar_admin.store.names import EARLIEST, TopicName, parse_topic
from pulsar_admin.store.reports.internal_stats import read_internal_stats
from pulsar_admin.store.reports.scalable import read_scalable_stats
from pulsar_admin.store.search.broker import BrokerSearch
from tests.compaction.test_recorded import read_rows
from tests.stores import imported
from tests.test_scalable import known
from tests.worlds import CLUSTER, asked_topics, oracle, world

WORLDS = {
    "2.11.0": ("compacted-old",),
    "4.0.8": ("small", "nometa", CLUSTER),
    "4.2.4": ("compacted",),
    "5.0.1": ("scalable", "five"),
}
Answer = tuple[str, str, object, object]
"""Feature, of what, ours, theirs."""


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
            if recorded == CLUSTER and position in ([one.ledger_id, one.entries] for one in topic.ledgers[-2:-1]):
                position = [topic.ids[-1], 0]  # clients had the broker load the topic again while it stopped
            found = BrokerSearch(reader, topic).message_id_by_time(int(time_ms))
            yield "times", f"{name} {time_ms}", [found.ledger_id, found.entry_id], position
    last = said.get("last_message_id")
    if isinstance(last, dict):
        yield "last message ids", name, to_json(read_last_id(reader, topic.name, [])), last
    elif last:
        place = find_last_id(reader, topic, verify=True).position
        yield "last message ids", name, [place.ledger_id, place.entry_id, place.batch_index], last
    yield from _internal(reader, topic.name, name, said["internal_stats"])
    if said.get("compacted_messages"):
        ours_rows = Counter((ledger, entry, index) for ledger, entry, index, *_ in read_rows(reader, name))
        for row in said["compacted_messages"]:
            if isinstance(row[0], int) and not _was_compacted_out(row):
                yield "messages of compacted views", f"{name} {row[:3]}", ours_rows[tuple(row[:3])], 1


def _was_compacted_out(row: Any) -> bool:
    """Whether a row is an empty message that the C++ client makes of one that is not there any more."""
    key, size = row[4:6] if len(row) > 6 else (row[3], row[5])
    return bool(row[2] >= 0 and key == "" and size == 0)


def _messages(reader: EntryReader, name: TopicName) -> Iterator[tuple[Any, ...]]:
    topic = read_topic(reader.txn, name)
    for one in MessageReader(reader, ReadOptions()).iter_messages(topic.iter_positions(EARLIEST)):
        at = one.position
        yield at.ledger_id, at.entry_id, at.batch_index, one.key or "", hashlib.sha1(one.payload).hexdigest()


def _internal(reader: EntryReader, topic: TopicName, name: str, said: Any) -> Iterator[Answer]:
    ours = to_json(read_internal_stats(reader, topic, problems=[]))
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
    for version, worlds in WORLDS.items():
        for recorded in worlds:
            for feature, what, ours, theirs in answers_of(recorded):
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
