"""Which topic a ledger belongs to, for scans that see no store."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from store.meta import open_store
from store.topics import read_topic, select_topics


def topics_option(store: Path | str, topics: Sequence[str] = (), *, pattern: str | None = None) -> str:
    """Return the option ``topics`` of ``pulsar_entries``: JSON, ledger id → topic.

    Of the store at STORE all topics, or the TOPICS named, or those that match PATTERN. Raises StoreNotFound, TopicNotFound.
    """
    from store.names import parse_topic

    found: dict[int, str] = {}
    with open_store(Path(store)) as opened, opened.read() as txn:
        every = not topics and pattern is None
        for name in select_topics(txn, tuple(map(parse_topic, topics)), all_topics=every, pattern=pattern):
            found |= dict.fromkeys(read_topic(txn, name).ids, str(name))
    return json.dumps(found)
