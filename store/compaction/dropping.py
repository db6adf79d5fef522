"""Which keys are in no ledger that anybody reads any more, once a topic's compacted view is dropped with its ledgers."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from pulsar_admin.store.compaction.reading import CompactedReader
from pulsar_admin.store.compaction.view import CompactedView
from pulsar_admin.store.model.messages import Message, MessageReader, ReadOptions
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.topics import Topic
from pulsar_admin.store.names import Position

_READ_MAX = 20_000
"""Entries of a topic and its view that are read for their keys."""


class DroppedKeys(Struct, frozen=True):
    """``of_view``: keys of which the compacted ledger has the latest message that is left; ``gone``: of which no ledger has it."""

    of_view: tuple[str, ...]
    gone: tuple[str, ...]


def find_dropped_keys(reader: EntryReader, topic: Topic, view: CompactedView, kept: int) -> DroppedKeys | None:
    """Return the keys that readers of TOPIC get no more without VIEW and the entries below rank KEPT; None: there is too much to read."""
    horizon = topic.place(view.horizon)
    if view.last_entry_id + 1 + topic.number_of_entries - min(horizon, kept) > _READ_MAX:
        return None
    compacted = CompactedReader(reader, ReadOptions(committed=False))
    entries = (Position(view.ledger_id, entry_id) for entry_id in range(view.last_entry_id + 1))
    of_view = _latest(compacted.iter_messages(entries))
    plain = MessageReader(reader)
    left = _latest(plain.iter_messages(map(topic.at_rank, range(kept, topic.number_of_entries))))
    plain = MessageReader(reader)
    gone = _latest(plain.iter_messages(map(topic.at_rank, range(horizon, kept))))
    return DroppedKeys(
        tuple(key for key, is_null in of_view.items() if not is_null and key not in gone and key not in left),
        tuple(key for key, is_null in gone.items() if not is_null and key not in left),
    )


def _latest(messages: Iterable[Message]) -> dict[str, bool]:
    """Return the keys of MESSAGES, and whether the latest message of each deletes it."""
    found: dict[str, bool] = {}
    for message in messages:
        if message.key is not None:
            found[message.key] = message.null_value or not message.payload
    return found
