"""Phase one's way through a topic: here, or on an engine."""

from __future__ import annotations

from collections.abc import Iterator

from pulsar_admin.store.compaction.batches import MessageSource
from pulsar_admin.store.compaction.facts import EntryFacts
from pulsar_admin.store.compaction.keys import LatestKeys


def iter_facts(source: MessageSource, keys: LatestKeys, retain_keyless: bool) -> Iterator[tuple[EntryFacts, bool]]:
    """Enter SOURCE's keys into KEYS; yield (facts of some entries, whether of the compacted ledger) in order.

    Work of the engine of SOURCE's reader, where it has one.
    """
    if source.reader.engine is not None:
        from pulsar_admin.store.compaction.spread import facts_on  # brings pyarrow

        yield from facts_on(source.reader.engine, source, keys, retain_keyless)
        return
    for batch in keys.adding(source.batches()):
        yield EntryFacts.of([batch], retain_keyless), batch.compacted
