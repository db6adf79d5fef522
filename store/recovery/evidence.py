"""Finds the origin of ledgers without metadata from their entries: in one pass, on any engine, in bounded memory.

An executor returns sums for each batch of entries, which are combined here in entry order. Only the head of a large
entry is read. Upstream, Pulsar 4.0.8: ``MessageMetadata``, ``BrokerEntryMetadata``; of entries that are no messages
``PositionInfo`` (cursors), ``SchemaStorageFormat.SchemaEntry``, ``RawMessageImpl`` (compacted), delayed-bucket
snapshots, ``TransactionMetadataEntry``, ``PendingAckMetadataEntry``. All but compacted entries are bare protobuf
without a mark, so an entry may fit several kinds: a ledger has the kind that fits all its entries.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from pulsar_admin.store.codec.compactedentry import decode_compacted_entry
from pulsar_admin.store.codec.cursor import decode_position_info
from pulsar_admin.store.codec.delayedbucket import decode_snapshot_metadata, decode_snapshot_segment
from pulsar_admin.store.codec.policyevent import GLOBAL_PREFIX
from pulsar_admin.store.codec.schema import SchemaEntry, decode_schema_entry
from pulsar_admin.store.codec.transactions import decode_log_entry, decode_pending_ack
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.errors import StoreError
from pulsar_admin.store.model.ledgers import find_sums, has_node, iter_entry_ids, iter_indexed_ids
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.names import LONG_MAX, Position

if TYPE_CHECKING:
    import pyarrow as pa

    from pulsar_admin.store.aliases import Array
    from pulsar_admin.store.engine.slices import FileRange
    from pulsar_admin.store.scan.places import EntryBatch

MESSAGES, CURSOR, SCHEMA, COMPACTED, BUCKET = "messages", "cursor", "schema", "compacted", "delayed-bucket"
TRANSACTIONS, PENDING_ACKS, MIXED, UNKNOWN = "transaction-log", "pending-acks", "mixed", "unknown"
"""Kinds of ledgers: a ledger has the kind that all of its entries fit."""

_RECORD_BYTES = 36
"""About how many bytes an entry takes besides its payload: its size, ids and LAC."""
_TXNS = 4096
"""The most transactions that are kept per ledger."""


_NO_TOPICS: frozenset[str] = frozenset()
_NO_POINTS: Mapping[int, tuple[int, int]] = {}
_NO_TXNS: Mapping[tuple[int, int], frozenset[str]] = {}
"""Shared, because millions of ledgers may have no transactions."""


class Producer(Struct, frozen=True, gc=False, order=True):
    """A producer's name, and the cluster that its messages were replicated from ("": they were sent to this one)."""

    name: str
    replicated_from: str = ""

    def __str__(self) -> str:
        return f"{self.name} from {self.replicated_from}" if self.replicated_from else self.name


class ProducerRun(Struct, frozen=True, gc=False):
    """The messages of one producer in one ledger, in order. ``jumps``: the places where a number does not follow the previous one.

    ``first``, ``last``: sequence ids of its first and its last message; ``low``, ``high``: the bounds of all.
    """

    first: int
    last: int
    low: int
    high: int
    entries: int
    messages: int
    jumps: int
    first_publish_ms: int
    last_publish_ms: int
    first_entry: int
    last_entry: int


class LedgerEvidence(Struct, frozen=True, gc=False):
    """What the entries of one ledger say about their origin. ``kind``: ``MESSAGES`` or another of these constants.

    ``index``: broker index before the first message, of the first entry, and of the last one. ``broker_ms``: broker
    time of the first and the last entry that has one; ``publish_ms``: earliest and latest. ``points``: ledger → lowest
    and highest entry of the positions in its entries. ``topics``: the topics it claims to belong to. ``txns``: transactions, with
    their recorded states. ``is_keyed``: some batch of its entries begins with a message whose key is the name of a topic.
    """

    ledger_id: int
    kind: str
    entries: int
    first_entry: int
    last_entry: int
    size_bytes: int
    messages: int = 0
    producers: Mapping[Producer, ProducerRun] = field(default_factory=dict)
    index: tuple[int, int, int] | None = None
    broker_ms: tuple[int, int] | None = None
    publish_ms: tuple[int, int] | None = None
    schema_version: int = -1
    points: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    topics: frozenset[str] = frozenset()
    txns: Mapping[tuple[int, int], frozenset[str]] = field(default_factory=dict)
    is_keyed: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether every entry up to the last was read."""
        return self.first_entry == 0 and self.entries == self.last_entry + 1


def iter_unlisted(txn: Txn) -> Iterator[int]:
    """Yield the ledgers that have entries here and no metadata, by id."""
    return (ledger_id for ledger_id in iter_indexed_ids(txn) if not has_node(txn, ledger_id))


def unlisted_bytes(txn: Txn) -> int:
    """Return the bytes of the entries of ledgers without metadata."""
    sums = (find_sums(txn, ledger_id) for ledger_id in iter_unlisted(txn))
    return sum(one.payload_bytes + _RECORD_BYTES * one.entries for one in sums if one is not None)


def read_evidence(reader: EntryReader, ledger_ids: Iterable[int]) -> Iterator[LedgerEvidence]:
    """Yield the evidence in the entries of each ledger about their origin; the reader's engine reads them. Damaged entries are ignored."""
    from pulsar_admin.store.scan.entries import EntryScan
    from pulsar_admin.store.scan.operations import run_places

    wanted = sorted(set(ledger_ids))
    scan = EntryScan(reader, ((one, 0, LONG_MAX - 1) for one in wanted), heads=True)
    sums, producers, done = _LedgerSums(), dict[Producer, Producer](), 0
    if reader.engine is None:
        parts = ((places, None) for places in scan.groups())
    else:
        parts = run_places(reader.engine, SumHeads(), reader.files, scan.groups())  # type: ignore[assignment]
    for places, row in parts:
        sums_of_ledgers = (
            [json.loads(row["sums"])] if row is not None and row["sums"] else map(sum_batch, scan.read_here(places))
        )
        for part in sums_of_ledgers:
            for one in part:
                while wanted[done] < one["ledger"]:  # its entries are all read: parts are in order
                    yield from _finished(reader.txn, wanted[done], sums)
                    sums, done = _LedgerSums(), done + 1
                sums.add(one, producers)
        reader.advance(places.bytes)
    for ledger_id in wanted[done:]:
        yield from _finished(reader.txn, ledger_id, sums)
        sums = _LedgerSums()


def _finished(txn: Txn, ledger_id: int, sums: _LedgerSums) -> Iterator[LedgerEvidence]:
    times = find_sums(txn, ledger_id)
    if times is not None:
        yield sums.evidence(ledger_id, times.first_entry, times.last_entry, times.payload_bytes)


class SumHeads(Struct, frozen=True):
    """A scan that sums up the evidence in the entries at given places: JSON, one row per batch, which is empty if the
    digest of one of its entries does not match."""

    @property
    def schema(self) -> pa.Schema:
        import pyarrow as pa

        return pa.schema([("sums", pa.binary())])

    def run(self, piece: FileRange) -> Iterator[pa.RecordBatch]:
        """Yield one row per batch of places."""
        from pulsar_admin.store.scan.arrow import packed_row
        from pulsar_admin.store.scan.operations import iter_batches
        from pulsar_admin.store.scan.places import PlacesReader, doubtful

        for places, files in iter_batches(piece):
            batch = PlacesReader(files, True, None).read_places(places)
            encoded = b"" if doubtful(batch, places).any() else json.dumps(sum_batch(batch)).encode()
            yield packed_row(self.schema, encoded)


# -- one batch --------------------------------------------------------------------------------------------------------

Json = dict[str, Any]  # Any: JSON


def sum_batch(batch: EntryBatch) -> list[Json]:
    """Return the evidence in the entries of a batch, one object per ledger, in order."""
    import numpy as np

    from pulsar_admin.store.kernels.evidence import SENT, read_sent

    sent = np.zeros(len(batch), SENT)
    starts, ends = batch.starts, batch.ends
    read_sent(batch.data, starts, ends, sent)
    firsts = np.flatnonzero(np.diff(batch.ledger_ids, prepend=-1))
    of = np.repeat(np.arange(len(firsts)), np.diff(firsts, append=len(batch)))
    framed = sent["framed"] == 1
    sums: list[Json] = [
        {"ledger": ledger, "entries": entries, "framed": are_framed}
        for ledger, entries, are_framed in zip(
            batch.ledger_ids[firsts].tolist(),
            np.bincount(of, minlength=len(firsts)).tolist(),
            np.bincount(of[framed], minlength=len(firsts)).tolist(),
            strict=True,
        )
    ]
    _sum_messages(batch, sent, of, sums)
    raw = np.flatnonzero(~framed)
    for ledger, rows in _runs_of(raw, of[raw]):
        sums[ledger] |= _sum_contents(memoryview(batch.data.data)[starts[i] : ends[i]] for i in rows.tolist())
    return sums


def is_topic_key(key: str) -> bool:
    """Whether a key is the name of a topic, as keys of the broker's own topics are."""
    return key.removeprefix(GLOBAL_PREFIX).startswith("persistent://")


def _number_producers(batch: EntryBatch, sent: Array) -> tuple[Array, list[list[str]]]:
    """Return (number of each entry's producer, −1: none; the producers by number)."""
    import numpy as np

    from pulsar_admin.store.kernels.producers import number_spans

    both = np.zeros(len(sent), np.int64)
    texts = []
    for name in ("producer", "replicated"):
        spans = np.column_stack([sent[name + "_start"], sent[name + "_size"]])
        column, firsts = np.empty(len(spans), np.int32), np.empty(len(spans), np.int32)
        table = np.full(1 << (2 * len(spans)).bit_length(), -1, np.int32)
        count = number_spans(batch.data, spans, column, firsts, table)
        texts_of = [
            bytes(batch.data[a : a + n]).decode("utf-8", "backslashreplace") for a, n in spans[firsts[:count]].tolist()
        ]
        both = both * (len(texts_of) + 1) + column + 1
        texts.append(texts_of)
    left_out = (sent["framed"] == 0) | (sent["is_marker"] == 1) | (sent["producer_size"] < 0)
    keys, numbers = np.unique(np.where(left_out, -1, both), return_inverse=True)
    wide = len(texts[1]) + 1
    pairs = [
        ["", ""] if one < 0 else [texts[0][one // wide - 1], texts[1][one % wide - 1] if one % wide else ""]
        for one in keys.tolist()
    ]
    return np.where(left_out, -1, numbers.reshape(-1)), pairs


class _Runs(Struct, frozen=True):
    """Consecutive rows in groups: where each group begins and ends, and its number."""

    rows: Array
    groups: Array
    firsts: Array
    lasts: Array

    def __iter__(self) -> Iterator[tuple[int, Array]]:
        """Yield the number of each group, and its rows."""
        for group, first, last in zip(self.groups.tolist(), self.firsts.tolist(), self.lasts.tolist(), strict=True):
            yield group, self.rows[first : last + 1]

    def reduced(self, function: Any, values: Array) -> Array:  # Any: numpy has no type for its functions
        """Return the result of the function for each group's part of ``values``, which has all rows."""
        values_of_runs: Array = function.reduceat(values[self.rows], self.firsts)
        return values_of_runs

    def ends(self, values: Array) -> tuple[Array, Array]:
        """Return the first and the last value of each group."""
        return values[self.rows[self.firsts]], values[self.rows[self.lasts]]


def _runs_of(rows: Array, groups: Array) -> _Runs:
    import numpy as np

    firsts = np.flatnonzero(np.diff(groups, prepend=-1))
    return _Runs(rows, groups[firsts], firsts, np.append(firsts[1:], len(rows)) - 1 if len(rows) else firsts)


def _sum_messages(batch: EntryBatch, sent: Array, of: Array, sums: list[Json]) -> None:
    """Add the evidence in the messages of a batch to ``sums``; ``of``: index in ``sums`` of each entry's ledger."""
    import numpy as np

    def put(name: str, runs: _Runs, *columns: Array) -> None:
        for ledger, *values in zip(runs.groups.tolist(), *(column.tolist() for column in columns), strict=True):
            sums[ledger][name] = values if len(values) > 1 else values[0]

    def chosen(mask: Array) -> _Runs:
        rows = np.flatnonzero(mask)
        return _runs_of(rows, of[rows])

    framed, broker_ms, publish_ms = sent["framed"] == 1, batch.rows["broker_ms"], batch.rows["publish_ms"]
    is_data = framed & (sent["is_marker"] == 0)
    if not framed.any():
        return
    whole = chosen(framed)
    put("messages", whole, whole.reduced(np.add, np.where(is_data, sent["messages"], 0)))
    put("schema", whole, whole.reduced(np.maximum, sent["schema_version"]))
    for name, runs in (
        ("index", chosen(framed & (sent["broker_index"] >= 0))),
        ("broker", chosen(framed & (broker_ms > 0))),
    ):
        if name == "broker":
            put(name, runs, *runs.ends(broker_ms))
        else:
            first, last = runs.ends(sent["broker_index"])
            put(name, runs, first - runs.ends(sent["messages"])[0], last)
            put("index_first", runs, first)
    data = chosen(is_data)
    for ledger, start, size in zip(
        data.groups.tolist(), *(data.ends(sent[name])[0].tolist() for name in ("key_start", "key_size")), strict=True
    ):
        if size > 0 and is_topic_key(bytes(batch.data[start : start + size]).decode("utf-8", "replace")):
            sums[ledger]["is_keyed"] = True
    dated = chosen(is_data & (publish_ms > 0))
    if len(dated.rows):
        put("publish", dated, dated.reduced(np.minimum, publish_ms), dated.reduced(np.maximum, publish_ms))
    for ledger, rows in chosen(framed & (sent["txn_least"] >= 0)):
        txns = np.unique(sent[rows][["txn_most", "txn_least"]])[:_TXNS]
        sums[ledger]["txns"] = [[*map(int, one), []] for one in txns.tolist()]
    numbers, names = _number_producers(batch, sent)
    rows = np.flatnonzero(numbers >= 0)
    rows = rows[np.lexsort((numbers[rows], of[rows]))]
    runs = _runs_of(rows, of[rows] * len(names) + numbers[rows])
    if len(rows):
        for run, *fields in zip(
            runs.groups.tolist(), *(one.tolist() for one in _run_fields(batch, sent, runs)), strict=True
        ):
            ledger, number = divmod(run, len(names))
            sums[ledger].setdefault("runs", []).append([*names[number], *fields])


def _run_fields(batch: EntryBatch, sent: Array, runs: _Runs) -> tuple[Array, ...]:
    """Return the fields of ``ProducerRun``, in order."""
    import numpy as np

    rows, first, last = runs.rows, sent["sequence_id"], sent["last_sequence_id"]
    before, after = rows[:-1], rows[1:]
    step = first[after] - last[before]
    together = (
        batch.entry_ids[after] - batch.entry_ids[before] == after - before
    )  # no entry of the ledger is missing in between
    # Chunks of one message share its sequence id, so a step of 0 is no jump there.
    jumps = np.zeros(len(sent), np.int64)
    jumps[after] = together & (step != 1) & ((step != 0) | (sent["is_chunk"][after] == 0))
    jumps[rows[runs.firsts]] = 0
    (low, _), (_, high) = runs.ends(first), runs.ends(last)
    return (
        *(low, high, runs.reduced(np.minimum, first), runs.reduced(np.maximum, last)),
        *(runs.lasts - runs.firsts + 1, runs.reduced(np.add, sent["messages"]), runs.reduced(np.add, jumps)),
        *(*runs.ends(batch.rows["publish_ms"]), *runs.ends(batch.entry_ids)),
    )


def _sum_contents(payloads: Iterable[memoryview]) -> Json:
    """Return, for each kind that fits every payload, the contents decoded as that kind."""
    kinds: dict[str, list[Content]] | None = None
    for payload in payloads:
        by_kind = {one.kind: one for one in read_contents(payload)}
        if kinds is None:
            kinds = {kind: [] for kind in by_kind}
        kinds = {kind: [*rest, by_kind[kind]] for kind, rest in kinds.items() if kind in by_kind}
    return {} if kinds is None else {"kinds": {kind: _said(said) for kind, said in kinds.items()}}


def _said(contents: Iterable[Content]) -> list[Any]:  # Any: JSON
    points: dict[int, list[int]] = {}
    txns: dict[tuple[int, int], set[str]] = {}
    topics: dict[str, None] = {}
    for one in contents:
        for position in one.points:
            low, high = points.get(position.ledger_id, (position.entry_id, position.entry_id))
            points[position.ledger_id] = [min(low, position.entry_id), max(high, position.entry_id)]
        for txn, says in one.txns:
            txns.setdefault(txn, set()).update(says)
        if one.topic:
            topics[one.topic] = None
    return [
        [[ledger, *bounds] for ledger, bounds in points.items()],
        list(topics),
        [[*txn, sorted(says)] for txn, says in txns.items()],
    ]


# -- batches together -------------------------------------------------------------------------------------------------


class _LedgerSums(Struct):
    """The sums of one ledger's batches, added in entry order."""

    entries: int = 0
    framed: int = 0
    messages: int = 0
    runs: dict[Producer, ProducerRun] = field(default_factory=dict)
    bounds: dict[str, list[int]] = field(default_factory=dict)
    index_first: int = -1
    schema: int = -1
    is_keyed: bool = False
    kinds: dict[str, list[Any]] | None = None  # Any: JSON; None: every entry so far is a message
    txns: dict[tuple[int, int], set[str]] = field(default_factory=dict)

    def add(self, part: Json, known: dict[Producer, Producer]) -> None:
        """Add the next batch; of equal producers one is kept, which ``known`` has."""
        self.entries += part["entries"]
        self.framed += part["framed"]
        self.messages += part.get("messages", 0)
        self.schema = max(self.schema, part.get("schema", -1))
        self.is_keyed |= "is_keyed" in part
        for name in ("index", "broker", "publish"):
            if name in part:
                low, high = part[name]
                old = self.bounds.setdefault(name, [low, high])
                self.bounds[name] = [min(old[0], low), max(old[1], high)] if name == "publish" else [old[0], high]
        if self.index_first < 0:
            self.index_first = part.get("index_first", -1)
        for name, replicated, *numbers in part.get("runs", ()):
            producer, run = Producer(name, replicated), ProducerRun(*numbers)
            producer = known.setdefault(producer, producer)
            self.runs[producer] = _joined(self.runs[producer], run) if producer in self.runs else run
        self._add_txns(part.get("txns", ()))
        if "kinds" in part:
            old_kinds = part["kinds"] if self.kinds is None else self.kinds
            self.kinds = {
                kind: [[*a, *b] for a, b in zip(old_kinds[kind], said, strict=True)] if self.kinds is not None else said
                for kind, said in part["kinds"].items()
                if kind in old_kinds
            }

    def _add_txns(self, txns: Iterable[list[Any]]) -> None:
        for most, least, says in txns:
            if len(self.txns) < _TXNS or (most, least) in self.txns:
                self.txns.setdefault((most, least), set()).update(says)

    def evidence(self, ledger_id: int, first_entry: int, last_entry: int, size_bytes: int) -> LedgerEvidence:
        """Return the evidence of the whole ledger."""
        nothing: list[Any] = [[], [], []]
        if self.framed:
            kind, said = (MESSAGES if self.framed == self.entries else MIXED), nothing
        else:
            kinds = self.kinds or {}
            kind, said = next(iter(kinds.items())) if len(kinds) == 1 else (UNKNOWN, nothing)
        points: dict[int, tuple[int, int]] = {}
        for ledger, low, high in said[0]:
            old = points.get(ledger, (low, high))
            points[ledger] = min(old[0], low), max(old[1], high)
        self._add_txns(said[2])
        index = self._pair("index")
        return LedgerEvidence(
            ledger_id=ledger_id,
            kind=kind,
            entries=self.entries,
            first_entry=first_entry,
            last_entry=last_entry,
            size_bytes=size_bytes,
            messages=self.messages,
            producers=self.runs,
            index=None if index is None else (index[0], self.index_first, index[1]),
            broker_ms=self._pair("broker"),
            publish_ms=self._pair("publish"),
            schema_version=self.schema,
            points=points or _NO_POINTS,
            topics=frozenset(said[1]) if said[1] else _NO_TOPICS,
            txns={txn: frozenset(says) for txn, says in self.txns.items()} or _NO_TXNS,
            is_keyed=self.is_keyed,
        )

    def _pair(self, name: str) -> tuple[int, int] | None:
        bound = self.bounds.get(name)
        return None if bound is None else (bound[0], bound[1])


def _joined(a: ProducerRun, b: ProducerRun) -> ProducerRun:
    """Return the runs of a producer in two batches joined, ``b`` after ``a``.

    A repeated number may be a further chunk of a message. A number that is missing because its entry is lost counts as a jump: then
    fewer ledgers of that producer are joined, but none wrongly.
    """
    return ProducerRun(
        a.first,
        b.last,
        min(a.low, b.low),
        max(a.high, b.high),
        a.entries + b.entries,
        a.messages + b.messages,
        a.jumps + b.jumps + (b.first not in (a.last, a.last + 1)),
        a.first_publish_ms,
        b.last_publish_ms,
        a.first_entry,
        b.last_entry,
    )


# -- one entry that is no message -------------------------------------------------------------------------------------


_LIMIT = 1 << 24  # an entry that is not a message and larger than this stays unknown
_FOOTER = b"{"  # of a cursor state in parts (PIP-381): JSON


class Content(Struct, frozen=True):
    """One entry, read as one of its possible kinds. ``points``: positions of other ledgers' entries that it names.

    ``topic``: the topic to which it claims to belong (a schema's id, a compacted key…). ``txns``: (most, least) → the
    recorded state of that transaction.
    """

    kind: str
    points: tuple[Position, ...] = ()
    topic: str = ""
    txns: tuple[tuple[tuple[int, int], tuple[str, ...]], ...] = ()


def read_contents(payload: bytes | memoryview) -> tuple[Content, ...]:
    """Return the possible readings of a payload, one for each kind that fits; empty if none fits."""
    if not payload or len(payload) > _LIMIT:
        return ()
    readings: list[Content] = []
    for read in _READERS:
        try:
            content = read(payload)
        except StoreError:
            continue
        if content is not None:
            readings.append(content)
    return tuple(readings)


def _compacted(payload: bytes | memoryview) -> Content | None:
    if bytes(payload[:3]) != b"\0\0\0":  # the size of a MessageIdData: tens of bytes
        return None
    return Content(COMPACTED, (decode_compacted_entry(payload, "entry").position,))


def _schema(payload: bytes | memoryview) -> Content | None:
    entry = decode_schema_entry(payload, "entry", strict=True)
    points = tuple(one.position for one in entry.index if one.position.ledger_id >= 0)
    return Content(SCHEMA, points, entry.schema_id) if entry.schema_id.count("/") >= 2 else None


def _cursor(payload: bytes | memoryview) -> Content | None:
    if bytes(payload[:1]) == _FOOTER:
        return Content(CURSOR)
    state = decode_position_info(payload, "entry", strict=True)
    ends = (edge for pair in state.ranges for edge in pair)
    return Content(CURSOR, tuple(_ends((state.mark_delete, *ends, *state.batch_deletes))))


def _ends(positions: Iterable[Position]) -> Iterator[Position]:
    """Yield the first and the last position of each ledger."""
    bounds: dict[int, tuple[int, int]] = {}
    for ledger_id, entry_id, *_ in ((one.ledger_id, one.entry_id) for one in positions):
        low, high = bounds.get(ledger_id, (entry_id, entry_id))
        bounds[ledger_id] = min(low, entry_id), max(high, entry_id)
    for ledger_id, (low, high) in bounds.items():
        yield Position(ledger_id, low)
        if high != low:
            yield Position(ledger_id, high)


def _bucket(payload: bytes | memoryview) -> Content | None:
    try:
        indexes = decode_snapshot_segment(payload, "entry", strict=True)
        if indexes:
            return Content(BUCKET, tuple(_ends(Position(one.ledger_id, one.entry_id) for one in indexes)))
    except StoreError:
        pass
    segments = decode_snapshot_metadata(payload, "entry", strict=True)
    if not segments or not any(one.bitmaps for one in segments):
        return None
    return Content(BUCKET)


def _transaction(payload: bytes | memoryview) -> Content:
    entry = decode_log_entry(payload, "entry", strict=True)
    says = (*entry.partitions, *(f"{topic}\0{subscription}" for topic, subscription in entry.subscriptions))
    return Content(TRANSACTIONS, txns=(((entry.txn.most, entry.txn.least), says),))


def _pending_ack(payload: bytes | memoryview) -> Content:
    entry = decode_pending_ack(payload, "entry", strict=True)
    return Content(PENDING_ACKS, tuple(_ends(entry.positions)), txns=(((entry.txn.most, entry.txn.least), ()),))


_READERS: tuple[Callable[[bytes | memoryview], Content | None], ...] = (
    _compacted,
    _schema,
    _cursor,
    _bucket,
    _transaction,
    _pending_ack,
)


def iter_schema_entries(reader: EntryReader, ledger_ids: Iterable[int]) -> Iterator[tuple[Position, SchemaEntry]]:
    """Yield the versions of schemas in ledgers, with their places; unreadable entries are skipped."""
    for ledger_id in ledger_ids:
        for entry_id in iter_entry_ids(reader.txn, ledger_id):
            try:
                payload = reader.read(ledger_id, entry_id).payload
                yield Position(ledger_id, entry_id), decode_schema_entry(payload, f"{ledger_id}:{entry_id}")
            except StoreError:
                continue
