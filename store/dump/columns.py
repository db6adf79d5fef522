"""The columns of level ``messages``, and how those that a value needs become the value."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa
from msgspec import Struct

from pulsar_admin.store.model.schemas import TopicSchemas
from pulsar_admin.store.scan.arrow import column
from pulsar_admin.store.scan.messages import UNDECIDED, Match, message_schema, schema_of
from pulsar_admin.store.scan.places import EntryBatch
from pulsar_admin.store.scan.typed_values import KnownColumns

_VALUE_FIELDS = (("schemaVersion", pa.int64()), ("value", pa.string()), ("valueError", pa.string()))
HELPERS = (
    pa.field("publishTime", pa.int64()),
    pa.field("brokerTime", pa.int64()),
    pa.field("valueError", pa.string()),
)
"""Behind another tool's columns: a row's times, which say its day, and why there is no value. Nobody sees them."""
Finish = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class DumpColumns(Struct, frozen=True):
    """Which columns, of one topic. ``schemas``: its schemas when values are decoded, as JSON text; ``markers``: they are rows.

    ``compacted``: the entries are a compacted ledger's. ``only``: these columns, of those that need no schema; empty: all.
    ``match``: only what it looks for, and, marked in a column of its own, what nobody can tell of. ``known``: another tool's
    columns instead, and HELPERS.
    """

    payload: bool = False
    schemas: TopicSchemas | None = None
    markers: bool = False
    only: tuple[str, ...] = ()
    compacted: bool = False
    match: Match | None = None
    known: KnownColumns | None = None

    @property
    def schema(self) -> pa.Schema:
        """The columns of a dump."""
        if self.known is not None:
            return pa.schema([*self.known.schema, *HELPERS])
        schema = schema_of(self.only) if self.only else self._whole_schema
        return schema if self.match is None else schema.append(pa.field(UNDECIDED, pa.bool_()))

    @property
    def _whole_schema(self) -> pa.Schema:
        fields = list(message_schema(payload=self.payload, markers=self.markers))
        return pa.schema(fields + [pa.field(*field) for field in (_VALUE_FIELDS if self.schemas else ())])

    @property
    def names(self) -> tuple[str, ...]:
        """The columns to read them from, names of ``store.scan.messages``."""
        if self.known is not None:
            return (*self.known.needs, "publishTime", "brokerTime")
        names = self.only or message_schema(payload=self.payload, markers=self.markers).names
        if self.schemas is not None:
            from pulsar_admin.store.scan.typed_values import NEEDS

            names = (*names, *NEEDS)
        return (*names, *(self.match.needs if self.match else ()))

    def screened(self, entries: EntryBatch) -> EntryBatch:
        """Return ENTRIES without those in which is nothing to look for."""
        return entries if self.match is None or self.compacted else self.match.screened(entries)

    def unwrap(self, entries: EntryBatch) -> EntryBatch:
        """Return ENTRIES, or of a compacted ledger's the topic's entries in them."""
        if not self.compacted:
            return entries
        from pulsar_admin.store.compaction.unwrap import unwrapped

        return unwrapped(entries)

    def finisher(self) -> Finish:
        """Return what makes batches of the columns ``names`` batches of ``schema``."""
        if self.known is not None:
            return self._known_finisher(self.known)
        if self.schemas is None and self.match is None:
            return lambda batches: iter(batches)
        read = self._values()
        schema, match = self.schema, self.match

        def finish(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                if match is not None:
                    batch = batch.filter(column(match.mask(batch)))
                made = read(batch)
                if match is not None:
                    found, undecided = match.settle(batch, made.get("value"), made.get("valueError"))
                    made[UNDECIDED] = column(undecided)
                columns = [made[name] if name in made else batch.column(name) for name in schema.names]
                whole = pa.RecordBatch.from_arrays(columns, schema=schema)
                yield whole if match is None else whole.filter(column(found | undecided))

        return finish

    def _known_finisher(self, known: KnownColumns) -> Finish:
        convert, schema = known.converter(), self.schema

        def finish(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                made, errors = convert(batch)
                columns = [*made.columns, batch.column("publishTime"), batch.column("brokerTime"), errors]
                yield pa.RecordBatch.from_arrays(columns, schema=schema)

        return finish

    def _values(self) -> Callable[[pa.RecordBatch], dict[str, pa.Array]]:
        """Return what makes the values of a batch of messages, and why there are none, where they are decoded."""
        if self.schemas is None:
            return lambda batch: {}
        from pulsar_admin.store.scan.typed_values import ValueColumns, Values

        values = ValueColumns(Values({"": self.schemas}))

        def read(batch: pa.RecordBatch) -> dict[str, pa.Array]:
            found = values.read(batch, [""] * len(batch), whole=True)
            return {"value": found["value"], "valueError": found["value_error"]}

        return read
