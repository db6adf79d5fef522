"""What the recorded worlds say of delayed messages: who sent what for when, and what a subscription still waits for."""

from typing import Any

from pulsar_admin.store.db.delayed import Index, find_index
from pulsar_admin.store.db.delayed_entries import DelayedRows, join_rows
from pulsar_admin.store.db.environment import Store
from pulsar_admin.store.delayed import build as building
from pulsar_admin.store.delayed.runs import open_runs
from pulsar_admin.store.model.cursors import iter_backlog, read_cursor
from pulsar_admin.store.model.reader import open_reader
from pulsar_admin.store.model.topics import read_topic
from pulsar_admin.store.names import parse_topic
from tests.worlds import oracle

TOPIC = "persistent://acme/delayed/reminders"
NOW_MS = 1_795_260_000_000
Message = tuple[int, int, int]


def sent(name: str, topic: str = TOPIC) -> dict[tuple[int, int], int]:
    """(ledger, entry) → due time as the producers wished it."""
    rows = [row for row in oracle(name)["sent"] if row["due"] is not None and row["topic"] == topic]
    return {(row["id"][0], row["id"][1]): row["due"] for row in rows}


def waiting(store: Store, subscription: str, topic: str = TOPIC) -> set[tuple[int, int]]:
    """What a subscription has still to be given, position by position."""
    with open_reader(store) as reader:
        found = read_topic(reader.txn, parse_topic(topic))
        state = read_cursor(reader.txn, reader, found, subscription).state
        return {(position.ledger_id, position.entry_id) for position in iter_backlog(found, state)}


def build(store: Store, subscription: str, topic: str = TOPIC, *, rebuild: bool = False) -> Any:
    """Build one index and return what the build says of itself."""
    with open_runs() as file:
        with open_reader(store) as reader:
            draft = building.draft_index(
                reader, building.WantedIndex(parse_topic(topic), subscription), NOW_MS, file, rebuild=rebuild
            )
            building.read_drafts([draft])
            building.finish_draft(draft)
        return building.result_of(draft, building.apply_draft(store, draft))


def index_of(store: Store, subscription: str, topic: str = TOPIC) -> Index:
    with store.read() as txn:
        index = find_index(txn, parse_topic(topic), subscription)
    assert index is not None
    return index


def held(store: Store, subscription: str, topic: str = TOPIC) -> list[Message]:
    """Everything an index holds, as (tick, ledger, entry)."""
    with open_reader(store) as reader:
        return messages_of(
            join_rows(list(building.PartitionSource(reader, index_of(store, subscription, topic)).iter_rows()))
        )


def messages_of(rows: DelayedRows) -> list[Message]:
    return list(zip(rows.times_ms.tolist(), rows.ledger_ids.tolist(), rows.entry_ids.tolist(), strict=True))
