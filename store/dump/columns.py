"""The columns of level ``messages``, and how those that a value needs become the value."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from store.model.schemas import TopicSchemas
from store.scan.entries import EntryBatch
from store.scan.messages import message_schema, schema_of

_VALUE_FIELDS = (("schemaVersion", pa.int64()), ("value", pa.string()), ("valueError", pa.string()))
Finish = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


@dataclass(frozen=True)
class DumpColumns:
    """Which columns, of one topic. ``schemas``: its schemas when values are decoded, as JSON text; ``markers``: they are rows.

    ``compacted``: the entries are a compacted ledger's. ``only``: these columns, of those that need no schema; empty: all.
    """

    payload: bool = False
    schemas: TopicSchemas | None = None
    markers: bool = False
    only: tuple[str, ...] = ()
    compacted: bool = False

    @property
    def schema(self) -> pa.Schema:
        """The columns of a dump."""
        if self.only:
            return schema_of(self.only)
        fields = list(message_schema(payload=self.payload, markers=self.markers))
        return pa.schema(fields + [pa.field(*field) for field in (_VALUE_FIELDS if self.schemas else ())])

    @property
    def names(self) -> tuple[str, ...]:
        """The columns to read them from, names of ``store.scan.messages``."""
        if self.only:
            return self.only
        names = message_schema(payload=self.payload, markers=self.markers).names
        if self.schemas is None:
            return tuple(names)
        from store.scan.value_columns import NEEDS

        return (*names, *NEEDS)

    def unwrap(self, entries: EntryBatch) -> EntryBatch:
        """Return ENTRIES, or of a compacted ledger's the topic's entries in them."""
        if not self.compacted:
            return entries
        from store.compaction.unwrap import unwrapped

        return unwrapped(entries)

    def finisher(self) -> Finish:
        """Return what makes batches of the columns ``names`` batches of ``schema``."""
        if self.schemas is None:
            return lambda batches: iter(batches)
        from store.scan.value_columns import ValueColumns, Values

        schema, values = self.schema, ValueColumns(Values({"": self.schemas}))

        def finish(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                found = values.read(batch, [""] * len(batch), whole=True)
                made = {"value": found["value"], "valueError": found["value_error"]}
                columns = [made[name] if name in made else batch.column(name) for name in schema.names]
                yield pa.RecordBatch.from_arrays(columns, schema=schema)

        return finish
