"""How much there is to read."""

from __future__ import annotations

from collections.abc import Sequence

from store.db.environment import Txn
from store.errors import StoreError
from store.model.topics import read_topic
from store.names import TopicName


def bytes_of(txn: Txn, names: Sequence[TopicName]) -> int:
    """Return the payload bytes of topics NAMES; none of one that cannot be read, of which the command itself will speak."""
    total = 0
    for name in names:
        try:
            total += read_topic(txn, name).total_size_bytes
        except StoreError:
            continue
    return total
