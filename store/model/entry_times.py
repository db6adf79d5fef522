"""The times of entries, read from their headers: of one entry, or of a block of the index."""

from collections.abc import Iterator

from pulsar_admin.store.codec.message import decode_entry_times
from pulsar_admin.store.db.blocks import Block
from pulsar_admin.store.db.clocks import Clock
from pulsar_admin.store.errors import EntryCorrupt, EntryNotFound
from pulsar_admin.store.model.ledgers import find_block
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.names import Position

_ENTRY_HEADER_BYTES = 32
_HEAD_BYTES = 512  # holds broker metadata and message metadata of nearly every entry
_READ_AHEAD_BYTES = 1 << 20


def clock_time(publish_ms: int, broker_ms: int | None, clock: Clock) -> int | None:
    """Return the time of an entry on a clock; None if it has none there."""
    if clock == "publish":
        return publish_ms
    if clock == "broker":
        return broker_ms
    return publish_ms if broker_ms is None else broker_ms


def is_doubtful(time_ms: int | None, earliest_ms: int, clock: Clock) -> bool:
    """Whether the header of an entry may have been damaged since it was indexed: it has no time, or one before ``earliest_ms``, the
    earliest of its block. On clock ``broker`` many sound entries have none."""
    return clock != "broker" if time_ms is None else time_ms < earliest_ms


def iter_block_times(reader: EntryReader, block: Block, clock: Clock) -> Iterator[tuple[int, int | None]]:
    """Yield (entry id, time in ms or None) of a block's entries, reading their headers only."""
    for index, head in enumerate(_iter_heads(reader, block)):
        yield block.entry_id(index), _time_of_head(reader, block, index, head, clock)


def _iter_heads(reader: EntryReader, block: Block) -> Iterator[memoryview]:
    """Yield the first bytes of each entry's payload; neighbours in one file are read together."""
    base, chunk, chunk_file = 0, memoryview(b""), -1
    skip = 4 + _ENTRY_HEADER_BYTES + block.header.digest_bytes
    for index in range(len(block)):
        file_id, offset, size = block.place(index)
        wanted = min(4 + size, skip + _HEAD_BYTES)
        if file_id != chunk_file or not base <= offset <= base + len(chunk) - wanted:
            # Up to the end of the block where that is near, else one head.
            last_file, last_offset, last_size = block.place(len(block) - 1)
            length = last_offset + 4 + last_size - offset
            if last_file != file_id or not wanted <= length <= _READ_AHEAD_BYTES:
                length = wanted
            base, chunk, chunk_file = offset, memoryview(reader.files.read(file_id, offset, length)), file_id
        start = offset - base
        yield chunk[start + skip : start + wanted]


def _time_of_head(reader: EntryReader, block: Block, index: int, head: memoryview, clock: Clock) -> int | None:
    try:
        return clock_time(*decode_entry_times(head), clock)
    except EntryCorrupt:
        # Cut because its metadata is long, or no message at all.
        place = block.place(index)
    try:
        whole = reader.read_at(block.ledger_id, block.entry_id(index), place)
        return clock_time(*decode_entry_times(whole.payload), clock)
    except EntryCorrupt:
        return None


def read_entry_time(reader: EntryReader, position: Position, clock: Clock) -> int | None:
    """Return the time of one entry, None when it is not a message; raises EntryNotFound."""
    block = find_block(reader.txn, position.ledger_id, position.entry_id)
    index = block.index_of(position.entry_id) if block is not None else 0
    if block is None or index >= len(block) or block.entry_id(index) != position.entry_id:
        raise EntryNotFound(
            f"entry {position} is not in any imported file", ledgerId=position.ledger_id, entryId=position.entry_id
        )
    file_id, offset, size = block.place(index)
    skip = 4 + _ENTRY_HEADER_BYTES + block.header.digest_bytes
    wanted = min(4 + size, skip + _HEAD_BYTES)
    head = memoryview(reader.files.read(file_id, offset, wanted))[skip:]
    return _time_of_head(reader, block, index, head, clock)
