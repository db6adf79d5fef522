"""Facts of a store whose every catalogued byte is read."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from store.db.environment import Store
from store.facts.cluster import ClusterFacts
from store.model.reader import EntryReader

if TYPE_CHECKING:
    from store.engine.operation import Engine


class DeepFacts(ClusterFacts):
    """``ClusterFacts`` of a deep look: ``engine`` reads the files, or this process; ``advance`` gets the bytes read."""

    def __init__(
        self, store: Store, reader: EntryReader, advance: Callable[[int], None], engine: Engine | None
    ) -> None:
        super().__init__(store, reader)
        self.advance = advance
        self.engine = engine
