"""Reading dumps of level ``entries`` back: every topic's entries in order, as columns, from Parquet or JSON lines, in bounded memory.

The days of a topic are files of their own; a skewed clock scatters neighbours over them. They are merged by position.
"""

from __future__ import annotations

from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Iterable, Iterator
from hashlib import file_digest, sha1, sha256
from itertools import groupby, starmap
from pathlib import Path
from typing import IO, Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct

from pulsar_admin.store.aliases import Array
from pulsar_admin.store.codec.entry import ENTRY_MAX_BYTES
from pulsar_admin.store.codec.strict_values import integer, json_object, text
from pulsar_admin.store.dump.files import MANIFEST
from pulsar_admin.store.engine.slices import filled
from pulsar_admin.store.errors import Corrupt, InvalidValue, LimitExceeded, NotFound, reason_of
from pulsar_admin.store.kernels.sha1 import sha1_spans
from pulsar_admin.store.names import INT_MAX
from pulsar_admin.store.scan.arrow import numbers_of
from pulsar_admin.store.scan.integer_rows import runs_of


class EntryRows(Struct):
    """Entries of one topic in order, as columns; ``data[starts[i]:][:sizes[i]]`` is the payload."""

    ledger_ids: Array  # i64
    entry_ids: Array  # i64
    messages: Array  # i64
    closed_ms: Array  # i64, 0 while the ledger was open
    data: Array  # u8
    starts: Array  # i64
    sizes: Array  # i64
    where: str  # the file, for messages

    def __len__(self) -> int:
        return len(self.ledger_ids)

    def slice(self, low: int, high: int) -> EntryRows:
        """Return rows ``low`` to ``high`` (excluded); ``data`` is shared."""
        part = slice(low, high)
        return EntryRows(
            self.ledger_ids[part],
            self.entry_ids[part],
            self.messages[part],
            self.closed_ms[part],
            self.data,
            self.starts[part],
            self.sizes[part],
            self.where,
        )


def ledger_runs(rows: EntryRows) -> Iterator[EntryRows]:
    """Cut rows where the ledger changes."""
    yield from starmap(rows.slice, runs_of(rows.ledger_ids))


def merged(streams: list[Iterator[EntryRows]]) -> Iterator[EntryRows]:
    """Merge streams that are each in order by position."""
    if len(streams) == 1:
        yield from streams[0]
        return
    heads = [(rows, stream) for stream in streams if (rows := next(stream, None)) is not None]
    while heads:
        bound = min((int(rows.ledger_ids[-1]), int(rows.entry_ids[-1])) for rows, _ in heads)
        taken: list[EntryRows] = []
        following: list[tuple[EntryRows, Iterator[EntryRows]]] = []
        for rows, stream in heads:
            before = (rows.ledger_ids < bound[0]) | ((rows.ledger_ids == bound[0]) & (rows.entry_ids <= bound[1]))
            count = int(before.sum())
            if count:
                taken.append(rows.slice(0, count))
            rest = rows.slice(count, len(rows)) if count < len(rows) else next(stream, None)
            if rest is not None:
                following.append((rest, stream))
        yield _joined(taken)
        heads = following


def _joined(parts: list[EntryRows]) -> EntryRows:
    """Put parts together in the order of their positions."""
    if len(parts) == 1:
        return parts[0]
    bases = np.cumsum([0, *(len(part.data) for part in parts)])
    columns = {
        name: np.concatenate([getattr(part, name) for part in parts])
        for name in ("ledger_ids", "entry_ids", "messages", "closed_ms", "sizes")
    }
    starts = np.concatenate([part.starts + base for part, base in zip(parts, bases, strict=False)])
    order = np.lexsort((columns["entry_ids"], columns["ledger_ids"]))
    sizes = columns.pop("sizes")[order]
    data = np.concatenate([part.data for part in parts])
    ledger_ids, entry_ids, messages, closed_ms = (column[order] for column in columns.values())
    return EntryRows(ledger_ids, entry_ids, messages, closed_ms, data, starts[order], sizes, parts[0].where)


Json = dict[str, Any]  # Any: JSON values

BATCH_ROWS = 1 << 15
BATCH_BYTES = 16 << 20
_BESIDE_BYTES_MAX = 1 << 20  # of a row, beside its payload
_LINE_BYTES_MAX = (ENTRY_MAX_BYTES + 3 * _BESIDE_BYTES_MAX) * 4 // 3  # its payload is in base64
_NEEDED = ("ledgerId", "entryId", "payload")
_COLUMNS = (*_NEEDED, "messages", "ledgerTimestamp", "sha1")


class EntryDump(Struct, frozen=True):
    """A dump: a directory, one file, or a stream of JSON lines. ``stream`` can be read once."""

    path: Path
    stream: IO[bytes] | None = None

    def digest(self) -> str:
        """Return the SHA-256 (hex) over the files of the dump; raises as ``topics`` for a directory."""
        whole = sha256()
        for file in _complete_files(self.path) if self.path.is_dir() else [self.path]:
            with open(file, "rb") as stream:
                whole.update(file_digest(stream, "sha256").digest())
        return whole.hexdigest()

    def topics(self) -> Iterator[tuple[str, Iterator[EntryRows]]]:
        """Yield (topic, its entries in order); take a topic's entries before the next topic.

        Raises NotFound, InvalidValue for a folder that is no dump of entries, Corrupt for a damaged or incomplete one.
        """
        if self.stream is not None:
            yield from _json_topics(self.stream, "standard input")
        elif self.path.is_dir():
            yield from _directory_topics(self.path)
        elif not self.path.is_file():
            raise NotFound(
                f"no dump {self.path}",
                hint="create one with: pulsar-admin topics dump TOPIC --directory DIR",
                path=str(self.path),
            )
        elif self.path.suffix == ".parquet":
            yield _parquet_topic(self.path), _checked(_iter_parquet(self.path, BATCH_ROWS))
        else:
            with open(self.path, "rb") as stream:
                yield from _json_topics(stream, str(self.path))


# -- directories ------------------------------------------------------------------------------------------------------


def _directory_topics(path: Path) -> Iterator[tuple[str, Iterator[EntryRows]]]:
    files = _complete_files(path)
    for _, group in groupby(files, key=lambda file: file.relative_to(path).parts[0]):
        listed = list(group)
        streams: list[Iterator[EntryRows]] = []
        rows = max(256, BATCH_ROWS // len({file.parent for file in listed}))
        for _, parts in groupby(listed, key=lambda file: file.parent):
            streams.append(_iter_files({file: files[file] for file in parts}, rows))
        yield _topic_of(listed[0]), _checked(merged(streams))


def _complete_files(path: Path) -> dict[Path, int]:
    """Return part file → its rows by the manifest, in order of topic, day and number.

    Raises Corrupt without a manifest (it is written last) and if the manifest lists other files.
    """
    # The directories of a dump, or of a part of one, and no others: PATH may be all of a file system.
    places = ("topic=*/**/part-*", "day=*/part-*", "part-*")
    files = (file for place in places for kind in ("parquet", "jsonl") for file in path.glob(f"{place}.{kind}"))
    complete = sorted(
        files, key=lambda file: (file.parent, len(file.name), file.name)
    )  # also with more than 99,999 files a day
    manifest = path / MANIFEST
    if not complete and not manifest.exists():
        raise NotFound(
            f"{path} holds no dump",
            hint="create one with: pulsar-admin topics dump TOPIC --directory DIR",
            path=str(path),
        )
    if not manifest.is_file():
        raise Corrupt(
            f"{path}: a dump without {MANIFEST}: it is unfinished, or a part of one",
            hint="write the dump again; a single file can be loaded by name",
            path=str(path),
        )
    try:
        fields = json_object(manifest.read_bytes())
        rows = {path / text(row["path"], "path"): integer(row["rows"], "rows") for row in fields["files"]}
    except (ValueError, KeyError, TypeError) as error:
        raise _damaged(str(manifest), reason_of(error)) from error
    if set(rows) != set(complete):
        odd = sorted(set(rows) ^ set(complete))[0]
        state = "is missing" if odd in rows else "is not in its manifest"
        raise _damaged(str(path), f"it is not whole: {odd} {state}")
    return {file: rows[file] for file in complete}


def _iter_files(files: dict[Path, int], rows: int) -> Iterator[EntryRows]:
    """Yield the entries of files; raises Corrupt if a file has another number of entries than the manifest says."""
    for file, expected in files.items():
        count = 0
        for batch in _iter_parquet(file, rows) if file.suffix == ".parquet" else _iter_json_file(file):
            count += len(batch)
            yield batch
        if count != expected:
            raise _damaged(str(file), f"it has {count} rows, its manifest says {expected}")


def _iter_json_file(file: Path) -> Iterator[EntryRows]:
    with open(file, "rb") as stream:
        yield from _iter_json(_json_objects(stream, str(file)), str(file))


def _topic_of(file: Path) -> str:
    if file.suffix == ".parquet":
        return _parquet_topic(file)
    with open(file, "rb") as stream:
        return text(_parse_line(stream.readline(_LINE_BYTES_MAX), f"{file}, line 1")["topic"], "topic")


def _checked(stream: Iterable[EntryRows]) -> Iterator[EntryRows]:
    """Yield the rows of a stream; raises Corrupt unless positions ascend, LimitExceeded for too large an entry."""
    last = (-1, -1)
    for rows in stream:
        ledgers = np.append(last[0], rows.ledger_ids)
        entries = np.append(last[1], rows.entry_ids)
        wrong = (ledgers[1:] < ledgers[:-1]) | ((ledgers[1:] == ledgers[:-1]) & (entries[1:] <= entries[:-1]))
        negative = (rows.ledger_ids < 0) | (rows.entry_ids < 0) | (rows.messages < 0) | (rows.closed_ms < 0)
        if negative.any():
            at = int(np.flatnonzero(negative)[0])
            raise _damaged(rows.where, f"entry {rows.ledger_ids[at]}:{rows.entry_ids[at]} has a negative number")
        if wrong.any():
            at = int(np.flatnonzero(wrong)[0])
            position = f"{rows.ledger_ids[at]}:{rows.entry_ids[at]}"
            raise _damaged(rows.where, f"entry {position} exists twice or is out of order")
        last = (int(ledgers[-1]), int(entries[-1]))
        _check_entry(int(rows.sizes.max(initial=0)) + _BESIDE_BYTES_MAX, rows.where)
        yield rows


# -- Parquet ----------------------------------------------------------------------------------------------------------


def _parquet_topic(file: Path) -> str:
    try:
        metadata = pq.read_schema(file).metadata or {}
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise _damaged(str(file), reason_of(error)) from error
    if b"topic" in metadata:
        try:
            return str(metadata[b"topic"].decode())
        except UnicodeDecodeError as error:
            raise _damaged(str(file), f"its topic is not UTF-8: {reason_of(error)}") from error
    named = [part for part in file.parts if part.startswith("topic=")]
    if not named:
        raise _damaged(str(file), "it names no topic")
    return unquote(named[-1].removeprefix("topic="))


def _iter_parquet(file: Path, rows: int) -> Iterator[EntryRows]:
    try:
        with pq.ParquetFile(file, page_checksum_verification=True) as opened:
            names = opened.schema_arrow.names
            _check_columns(names, str(file))
            _check_types(opened.schema_arrow, str(file))
            columns = [name for name in _COLUMNS if name in names]
            for index in range(opened.num_row_groups):
                group = opened.metadata.row_group(index)
                row_bytes = group.total_byte_size // max(group.num_rows, 1)
                _check_entry(row_bytes, str(file))
                count = min(rows, max(BATCH_BYTES // max(row_bytes, 1), 1))
                batches = opened.iter_batches(count, row_groups=[index], columns=columns)
                yield from (_rows_of(batch, str(file)) for batch in batches if len(batch))
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise _damaged(str(file), reason_of(error)) from error


def _check_entry(size_bytes: int, where: str) -> None:
    """Refuse a row so large that it holds more than any entry, before it is in memory several times."""
    if size_bytes > ENTRY_MAX_BYTES + _BESIDE_BYTES_MAX:
        raise LimitExceeded(
            f"{where}: an entry of about {size_bytes} bytes, a bookie takes {ENTRY_MAX_BYTES}",
            hint="no cluster with default settings wrote it",
        )


def _check_columns(names: Iterable[str], where: str) -> None:
    missing = [name for name in _NEEDED if name not in names]
    if missing:
        raise InvalidValue(
            f"{where} is not a dump of entries: it has no column {missing[0]}",
            hint="create one with: pulsar-admin topics dump TOPIC --level entries --directory DIR",
            path=where,
        )


def _check_types(schema: pa.Schema, where: str) -> None:
    """Refuse columns of other types than a dump's: their buffers would be read as something else."""
    for field in schema:
        known = pa.types.is_integer(field.type)
        if field.name == "payload":
            known = pa.types.is_binary(field.type) or pa.types.is_large_binary(field.type)
        elif field.name == "sha1":
            known = field.type == pa.binary(20)
        if field.name in _COLUMNS and not known:
            raise InvalidValue(
                f"{where} is not a dump of entries: its column {field.name} is of type {field.type}",
                hint="create one with: pulsar-admin topics dump TOPIC --level entries --directory DIR",
                path=where,
            )


def _rows_of(batch: pa.RecordBatch, where: str) -> EntryRows:
    payload = batch.column("payload")
    if any(batch.column(name).null_count for name in (*_NEEDED, *({"sha1"} & {*batch.schema.names}))):
        raise _damaged(where, "a position, payload or digest is null")
    _, offset_buffer, data_buffer = payload.buffers()
    wide = pa.types.is_large_binary(payload.type)
    offsets = np.frombuffer(offset_buffer, np.int64 if wide else np.int32)[payload.offset :][: len(payload) + 1]
    data = np.frombuffer(data_buffer, np.uint8) if data_buffer is not None else np.zeros(0, np.uint8)
    starts = offsets[:-1].astype(np.int64)
    sizes = np.diff(offsets).astype(np.int64)
    if "sha1" in batch.schema.names:
        stated = np.frombuffer(b"".join(batch.column("sha1").to_pylist()), np.uint8).reshape(-1, 20)
        wrong = (sha1_spans(data, starts, sizes) != stated).any(axis=1)
        if wrong.any():
            at = int(np.flatnonzero(wrong)[0])
            position = f"{batch.column('ledgerId')[at]}:{batch.column('entryId')[at]}"
            raise _damaged(where, f"the payload of entry {position} has another SHA-1")
    return EntryRows(
        _integers(batch, "ledgerId", 0),
        _integers(batch, "entryId", 0),
        _integers(batch, "messages", 1),
        _integers(batch, "ledgerTimestamp", 0),
        data,
        starts,
        sizes,
        where,
    )


def _integers(batch: pa.RecordBatch, name: str, default: int) -> Array:
    if name not in batch.schema.names:
        return np.full(len(batch), default, np.int64)
    values, present = numbers_of(batch.column(name).cast(pa.int64()))
    return np.where(present, values, default)


# -- JSON lines -------------------------------------------------------------------------------------------------------


def _json_topics(stream: IO[bytes], where: str) -> Iterator[tuple[str, Iterator[EntryRows]]]:
    seen: set[str] = set()
    for topic, group in groupby(_json_objects(stream, where), key=lambda row: text(row[1]["topic"], "topic")):
        if topic in seen:
            raise InvalidValue(f"{where}: the entries of {topic} are not together", hint="sort the lines by topic")
        seen.add(topic)
        yield topic, _checked(_iter_json(group, where))


def _json_objects(stream: IO[bytes], where: str) -> Iterator[tuple[str, Json]]:
    """Yield (file and line, object) of every line that has text."""
    # A longer line is refused before its rest is in memory.
    for number, line in enumerate(iter(lambda: stream.readline(_LINE_BYTES_MAX), b""), 1):
        at = f"{where}, line {number}"
        _check_entry(len(line) * 3 // 4, at)  # base64
        if line.strip():
            yield at, _parse_line(line, at)


def _parse_line(line: bytes, where: str) -> Json:
    try:
        row = json_object(line)
        text(row.get("topic"), "topic")
    except ValueError as error:
        raise _damaged(where, f"it is not a row of a dump: {reason_of(error)}") from error
    _check_columns(row, where)
    return row


def _iter_json(objects: Iterable[tuple[str, Json]], where: str) -> Iterator[EntryRows]:
    rows = (_json_row(row, at) for at, row in objects)
    for some in filled(rows, lambda row: len(row[4]), BATCH_BYTES, BATCH_ROWS):
        yield _json_batch(some, where)


def _json_row(row: Json, where: str) -> tuple[int, int, int, int, bytes]:

    try:
        payload = b64decode(row["payload"], validate=True)
        head = (
            integer(row["ledgerId"], "ledgerId"),
            integer(row["entryId"], "entryId"),
            integer(row.get("messages", 1), "messages", high=INT_MAX),
        )
        closed_ms = integer(row.get("ledgerTimestamp") or 0, "ledgerTimestamp")
    except (ValueError, TypeError, Base64Error) as error:
        raise _damaged(where, reason_of(error)) from error
    digest = sha1(payload, usedforsecurity=False).hexdigest()
    if row.get("sha1", digest) != digest:
        raise _damaged(where, f"the payload has SHA-1 {digest}, not {row['sha1']}")
    return *head, closed_ms, payload


def _json_batch(rows: list[tuple[int, int, int, int, bytes]], where: str) -> EntryRows:
    ledgers, entries, messages, closed = (np.array([row[column] for row in rows], np.int64) for column in range(4))
    payloads = [row[4] for row in rows]
    sizes = np.array([len(payload) for payload in payloads], np.int64)
    data = np.frombuffer(b"".join(payloads), np.uint8)
    return EntryRows(ledgers, entries, messages, closed, data, np.cumsum(sizes) - sizes, sizes, where)


def _damaged(where: str, what: str) -> Corrupt:
    return Corrupt(f"{where}: damaged dump: {what}", hint="make the dump again", path=where)
