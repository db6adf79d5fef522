"""Phase one on an engine: executors read entries and return facts and keys, never messages.

A slice returns a row per batch of places: facts of the entries as columns and, in some rows, the latest messages of the
keys since the last row with keys, 24 bytes each. The driver merges them in bounded memory. Entries whose digest is not
proven, or whose transaction is unknown, are read again by the driver.
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from msgspec import Struct
from msgspec.structs import astuple

from pulsar_admin.store.compaction.batches import MessageSource, decode_rows, drop_uncommitted, explode, transactional
from pulsar_admin.store.compaction.keys import EntryFacts, LatestKeys, Survey
from pulsar_admin.store.engine.operation import Engine
from pulsar_admin.store.engine.slices import FileRange
from pulsar_admin.store.scan.arrow import packed_row
from pulsar_admin.store.scan.entries import EntryScan
from pulsar_admin.store.scan.operations import EntryPlaces, iter_batches, run_places
from pulsar_admin.store.scan.places import EntryBatch, Places, PlacesReader, doubtful

Row = dict[str, bytes]  # the columns of _SCHEMA

_BATCH_BITS = 40  # a message in a slice: number of the batch of places << 40 | number in the batch
_IN_BATCH = np.uint64((1 << _BATCH_BITS) - 1)
_KEYS_A_ROW = 1 << 19  # 12 MiB: a slice that holds this many hands them over
_KEY_BYTES = 24
_BYTES_AN_ENTRY = 64  # of keys; what an entry weighs in a round, which then is 64 MiB of keys
_SCHEMA = pa.schema(
    [
        (name, pa.binary())
        for name in (
            "numbers",  # i64: number of the batch of places in its slice, whether it is proven, messages, then its Survey
            "runs",  # i64
            "counts",  # u32; nothing: all 1
            "always",  # bool; nothing: none
            "chunk_ends",  # i64: number of a message, bytes of its uuid
            "uuids",
            *("first", "second", "last"),  # u64: the keys
        )
    ]
)
"""A row of an unproven batch has no facts or keys of that batch; keys in it are of earlier batches."""


def facts_on(
    engine: Engine, source: MessageSource, keys: LatestKeys, retain_keyless: bool
) -> Iterator[tuple[EntryFacts, bool]]:
    """Add the source's keys to ``keys``, with the topic's entries read on the engine; yield as ``iter_facts``.

    The compacted ledger is read in this process, because a single slice cannot check the order of its entries.
    """
    for scan, compacted in source.scans():
        if not compacted:
            for facts in _Merging(source, keys, retain_keyless).run(engine, scan):
                yield facts, False
            continue
        for entries in scan.batches():
            yield EntryFacts.of(keys.adding(source.exploded(entries, True)), retain_keyless), True


# -- on an executor ---------------------------------------------------------------------------------------------------


class FindKeys(Struct, frozen=True):
    """Finds the latest message of every key of a slice. ``committed``: the committed transactions; None: unknown."""

    encrypted_by_key: bool
    rule: str
    retain_keyless: bool
    committed: frozenset[tuple[int, int]] | None

    @property
    def schema(self) -> pa.Schema:
        return _SCHEMA

    def run(self, piece: FileRange) -> Iterator[pa.RecordBatch]:
        """Yield one row per batch of places."""
        assert isinstance(piece, EntryPlaces)
        with LatestKeys() as keys:
            for number, (places, files) in enumerate(iter_batches(piece)):
                keys.ordinal = number << _BATCH_BITS
                batch = PlacesReader(files, False, None).read_places(places)
                facts = self._facts(batch, places, keys)
                is_due = number == len(piece.batches) - 1 or keys.held >= _KEYS_A_ROW
                columns = keys.take() if is_due else (np.empty(0, np.uint64),) * 3
                known = EntryFacts(0, 0, (), None, None) if facts is None else facts
                numbers = [number, facts is not None, known.messages, *astuple(known.survey)]
                yield packed_row(
                    _SCHEMA,
                    np.array(numbers, np.int64).tobytes(),
                    np.array(known.runs, np.int64).tobytes(),
                    b"" if known.counts is None else known.counts.tobytes(),
                    b"" if known.always is None else known.always.tobytes(),
                    np.array([(place, len(uuid)) for uuid, place in known.chunk_ends], np.int64).tobytes(),
                    b"".join(uuid for uuid, _ in known.chunk_ends),
                    *(column.tobytes() for column in columns),
                )

    def _facts(self, entries: EntryBatch, places: Places, keys: LatestKeys) -> EntryFacts | None:
        if doubtful(entries, places).any():
            return None
        rows = decode_rows(entries, compacted=False, encrypted_by_key=self.encrypted_by_key, rule=self.rule)
        if transactional(rows).any():
            if self.committed is None:
                return None
            drop_uncommitted(rows, self.committed)
        return EntryFacts.of(keys.adding(explode(entries, rows, compacted=False)), self.retain_keyless)


# -- on the driver ----------------------------------------------------------------------------------------------------


class _Merging:
    """Merges the rows of one scan in order."""

    def __init__(self, source: MessageSource, keys: LatestKeys, retain_keyless: bool) -> None:
        self._source = source
        self._keys = keys
        self._retain_keyless = retain_keyless
        self._bases: list[int] = []  # ordinal of the first message of each batch of the slice so far
        self._share = 0.5  # bytes of keys per byte of log so far; at first a guess for small messages in batches
        self._seen = [0, 0]  # bytes of keys, bytes of log

    def run(self, engine: Engine, scan: EntryScan) -> Iterator[EntryFacts]:
        """Yield the facts of a scan's entries after adding their keys."""
        source = self._source
        committed = source.transactions().committed if source.transactional else None
        work = FindKeys(source.encrypted_by_key, source.rule, self._retain_keyless, committed)
        for places, row in run_places(engine, work, source.reader.files, scan.groups(), self._weight):
            if row is not None and self._merge(row, places):
                yield _facts_of(row)
                continue
            entries = scan.without_damaged(scan.read_places(places), places)
            batches = source.exploded(entries, False)
            yield EntryFacts.of(self._keys.adding(batches), self._retain_keyless)

    def _weight(self, places: Places) -> int:
        return max(len(places), round(int(places.sizes.sum(dtype=np.int64)) * self._share) // _BYTES_AN_ENTRY)

    def _merge(self, row: Row, places: Places) -> bool:
        """Add the keys of a row; return whether its batch was proven, so that this or a later row has the batch's keys."""
        batch, is_proven, messages = np.frombuffer(row["numbers"], np.int64)[:3].tolist()
        if batch == 0:
            self._bases = []
        self._bases.append(self._keys.ordinal)
        first, second, last = (np.frombuffer(row[name], np.uint64) for name in ("first", "second", "last"))
        number = last >> np.uint64(1)
        bases = np.array(self._bases, np.uint64)[(number >> np.uint64(_BATCH_BITS)).astype(np.int64)]
        self._keys.merge((first, second, (bases + (number & _IN_BATCH)) << np.uint64(1) | last & np.uint64(1)))
        self._keys.ordinal += messages
        self._seen[0] += _KEY_BYTES * len(last)
        self._seen[1] += int(places.sizes.sum(dtype=np.int64))
        self._share = self._seen[0] / self._seen[1]
        return bool(is_proven)


def _facts_of(row: Row) -> EntryFacts:
    messages, *numbers = np.frombuffer(row["numbers"], np.int64)[2:].tolist()
    chunk_ends, at = [], 0
    for place, size in np.frombuffer(row["chunk_ends"], np.int64).reshape(-1, 2).tolist():
        chunk_ends.append((row["uuids"][at : at + size], place))
        at += size
    return EntryFacts(
        numbers[0],
        messages,
        tuple(
            (ledger, entry, count)
            for ledger, entry, count in np.frombuffer(row["runs"], np.int64).reshape(-1, 3).tolist()
        ),
        np.frombuffer(row["counts"], np.uint32) if row["counts"] else None,
        np.frombuffer(row["always"], np.bool_) if row["always"] else None,
        chunk_ends,
        Survey(*numbers),
    )
