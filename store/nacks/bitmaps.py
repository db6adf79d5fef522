"""Encoding and decoding many small 64-bit Roaring bitmaps at once: groups of sorted entry ids to and from one byte array.

Each group's bytes are one bitmap in the portable Roaring format with the 64-bit extension (RoaringFormatSpec,
"Extension for 64-bit implementations"): number of 32-bit bitmaps (u64), then per bitmap its high half (u32) and a
standard 32-bit Roaring bitmap. All integers are little-endian.

Groups whose ids differ only in their low 16 bits have one container, as nearly all groups of a tracker do; they are
written and read here column by column. Groups with several containers or a bitset go through pyroaring. A group is
always written in the smaller of the run form and the array form, so equal ids give equal bytes.
"""

from array import array

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap64

from pulsar_admin.store.errors import Corrupt

Int64s = npt.NDArray[np.int64]
Uint32s = npt.NDArray[np.uint32]
Bytes = npt.NDArray[np.uint8]
ARRAY_LIMIT = 4096
"""Largest cardinality of an array container; beyond it Roaring uses a bitset of 8 KiB."""

_RUN_COOKIE = 12347
_ARRAY_COOKIE = 12346
_BITSET_RUNS = 2049  # a run container of more runs is not smaller than the bitset
_RUN_FORM = np.dtype(
    [
        ("bitmaps", "<u8"),  # 1
        ("high", "<u4"),  # id >> 32
        ("cookie", "<u2"),  # 12347: run containers may follow
        ("last", "<u2"),  # containers - 1 = 0
        ("flags", "u1"),  # bit 0: the container is a run container
        ("key", "<u2"),  # (id >> 16) & 0xffff
        ("last_value", "<u2"),  # cardinality - 1
        ("runs", "<u2"),  # then per run: start u16, length - 1 u16
    ]
)
_ARRAY_FORM = np.dtype(
    [
        ("bitmaps", "<u8"),  # 1
        ("high", "<u4"),  # id >> 32
        ("cookie", "<u4"),  # 12346: no run containers
        ("containers", "<u4"),  # 1
        ("key", "<u2"),  # (id >> 16) & 0xffff
        ("last_value", "<u2"),  # cardinality - 1; then per value: u16
        ("offset", "<u4"),  # of the values, from the cookie: 16
    ]
)
_RUN_HEADER = _RUN_FORM.itemsize
_ARRAY_HEADER = _ARRAY_FORM.itemsize


def ranges(starts: Int64s, counts: Int64s) -> Int64s:
    """Return the numbers start, start + 1, … (``count`` of them) for each pair of start and count, concatenated."""
    total = int(counts.sum())
    before = np.cumsum(counts) - counts
    result: Int64s = np.arange(total, dtype=np.int64) + np.repeat(starts - before, counts)
    return result


def encode_groups(starts: Int64s, entry_ids: Int64s) -> tuple[Uint32s, Bytes]:
    """Return the length in bytes of each group's bitmap, and the concatenated bitmaps.

    Group i is ``entry_ids[starts[i]:starts[i + 1]]``, never empty, so ``starts`` has one number more than there are
    groups. Entry ids are not negative and strictly increasing in a group.
    """
    firsts, counts = starts[:-1], np.diff(starts)
    run_begins = np.ones(len(entry_ids), dtype=np.bool_)
    np.not_equal(entry_ids[1:], entry_ids[:-1] + 1, out=run_begins[1:])
    run_begins[firsts] = True
    run_rows = np.flatnonzero(run_begins)
    run_bounds = np.searchsorted(run_rows, starts)
    run_counts = np.diff(run_bounds)
    one_container = entry_ids[firsts] >> 16 == entry_ids[starts[1:] - 1] >> 16
    small = counts <= ARRAY_LIMIT
    as_runs = one_container & np.where(small, 2 * run_counts <= counts + 2, run_counts <= _BITSET_RUNS)
    as_array = one_container & small & ~as_runs
    lengths = np.where(as_runs, _RUN_HEADER + 4 * run_counts, _ARRAY_HEADER + 2 * counts)
    others: dict[int, bytes] = {}
    for group in np.flatnonzero(~(as_runs | as_array)).tolist():
        large = BitMap64(array("Q", entry_ids[starts[group] : starts[group + 1]].tobytes()))
        large.run_optimize()
        others[group] = bytes(large.serialize())
        lengths[group] = len(others[group])
    ends = np.cumsum(lengths)
    offsets = ends - lengths
    target = np.empty(int(ends[-1]) if len(ends) else 0, dtype=np.uint8)
    run_rows = np.append(run_rows, len(entry_ids))
    _write_runs(target, offsets, starts, entry_ids, (np.flatnonzero(as_runs), run_rows, run_bounds))
    _write_arrays(target, offsets, starts, entry_ids, np.flatnonzero(as_array))
    for group, bitmap in others.items():
        target[offsets[group] : ends[group]] = np.frombuffer(bitmap, dtype=np.uint8)
    return lengths.astype(np.uint32), target


def _scatter(target: Bytes, offsets: Int64s, records: npt.NDArray[np.void] | npt.NDArray[np.unsignedinteger]) -> None:
    """Write each record at its own offset."""
    size = records.dtype.itemsize
    flat = records.view(np.uint8).reshape(-1, size)
    window = _window(target, offsets, size)
    if window is None:
        target[offsets[:, None] + np.arange(size)] = flat
    else:
        window[:] = flat


def _window(source: Bytes, offsets: Int64s, size: int) -> Bytes | None:
    """Return a view of ``size`` bytes at every offset if the offsets are evenly spaced (rows of one length), else None."""
    if len(offsets) < 2:
        return None
    step = int(offsets[1] - offsets[0])
    end = int(offsets[0]) + step * len(offsets)
    if step < size or end > len(source) or (np.diff(offsets) != step).any():
        return None
    return source[int(offsets[0]) : end].reshape(len(offsets), step)[:, :size]


def _write_runs(
    target: Bytes, offsets: Int64s, starts: Int64s, entry_ids: Int64s, runs: tuple[Int64s, Int64s, Int64s]
) -> None:
    groups, run_rows, run_bounds = runs
    if not len(groups):
        return
    counts = run_bounds[groups + 1] - run_bounds[groups]
    header = _headers(_RUN_FORM, _RUN_COOKIE, starts, entry_ids, groups)
    header["flags"] = 1
    header["runs"] = counts
    _scatter(target, offsets[groups], header)
    rows = ranges(run_bounds[groups], counts)
    begins = run_rows[rows]
    ends = np.minimum(run_rows[rows + 1], np.repeat(starts[groups + 1], counts))
    packed = (entry_ids[begins] & 0xFFFF) | (ends - begins - 1) << 16
    places = ranges(np.zeros_like(counts), counts) * 4 + np.repeat(offsets[groups] + _RUN_HEADER, counts)
    _scatter(target, places, packed.astype("<u4"))


def _headers(
    form: np.dtype[np.void], cookie: int, starts: Int64s, entry_ids: Int64s, groups: Int64s
) -> npt.NDArray[np.void]:
    """Return the headers of single-container bitmaps, with the fields that both forms share filled in."""
    first_ids = entry_ids[starts[groups]]
    header = np.zeros(len(groups), form)
    header["bitmaps"] = 1
    header["high"] = first_ids >> 32
    header["cookie"] = cookie
    header["key"] = first_ids >> 16 & 0xFFFF
    header["last_value"] = starts[groups + 1] - starts[groups] - 1
    return header


def _write_arrays(target: Bytes, offsets: Int64s, starts: Int64s, entry_ids: Int64s, groups: Int64s) -> None:
    if not len(groups):
        return
    counts = starts[groups + 1] - starts[groups]
    header = _headers(_ARRAY_FORM, _ARRAY_COOKIE, starts, entry_ids, groups)
    header["containers"] = 1
    header["offset"] = 16
    _scatter(target, offsets[groups], header)
    places = ranges(np.zeros_like(counts), counts) * 2 + np.repeat(offsets[groups] + _ARRAY_HEADER, counts)
    _scatter(target, places, entry_ids[ranges(starts[groups], counts)].astype("<u2"))


def decode_groups(lengths: Uint32s, bitmaps: Bytes) -> tuple[Int64s, Int64s]:
    """Return ``(starts, entry_ids)`` as ``encode_groups`` takes them; raises Corrupt for anything that is not a bitmap."""
    ends = np.cumsum(lengths, dtype=np.int64)
    offsets = ends - lengths
    run_groups, array_groups, other_groups = _classify(lengths, bitmaps, offsets)
    run_header = _gather(bitmaps, offsets[run_groups], _RUN_FORM)
    array_header = _gather(bitmaps, offsets[array_groups], _ARRAY_FORM)
    others = {int(group): decode_bitmap(bitmaps[offsets[group] : ends[group]].tobytes()) for group in other_groups}
    counts = np.zeros(len(lengths), dtype=np.int64)
    counts[run_groups] = run_header["last_value"].astype(np.int64) + 1
    counts[array_groups] = array_header["last_value"].astype(np.int64) + 1
    for group, bitmap in others.items():
        counts[group] = len(bitmap)
    starts = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(counts)))
    entry_ids = np.empty(int(starts[-1]), dtype=np.int64)
    _read_runs(bitmaps, offsets[run_groups], run_header, entry_ids, starts[run_groups])
    _read_arrays(bitmaps, offsets[array_groups], array_header, entry_ids, starts[array_groups])
    for group, bitmap in others.items():
        entry_ids[starts[group] : starts[group + 1]] = np.frombuffer(bitmap.to_array(), dtype=np.int64)
    if len(entry_ids) and int(entry_ids.min()) < 0:
        raise _corrupt("an entry id is beyond 63 bits", 0)
    return starts, entry_ids


def decode_bitmap(raw: bytes) -> BitMap64:
    """Return one bitmap; raises Corrupt when the bytes are damaged, empty or longer than their bitmap."""
    try:
        bitmap = BitMap64.deserialize(raw)
    except (ValueError, IndexError) as error:
        raise _corrupt(str(error) or "no bitmap", len(raw)) from error
    if not bitmap or len(bitmap.serialize()) != len(raw):
        raise _corrupt("an empty bitmap, or bytes after it", len(raw))
    return bitmap


def _classify(lengths: Uint32s, bitmaps: Bytes, offsets: Int64s) -> tuple[Int64s, Int64s, Int64s]:
    """Return the indexes of groups in the run form, in the array form, and in any other; checks lengths and constant
    fields."""
    long_enough = lengths >= _ARRAY_HEADER
    shortest = np.flatnonzero(lengths > _RUN_HEADER)
    head = _gather(bitmaps, offsets[shortest], _RUN_FORM)
    run_form = (head["bitmaps"] == 1) & (head["cookie"] == _RUN_COOKIE) & (head["last"] == 0) & (head["flags"] == 1)
    run_form &= lengths[shortest] == _RUN_HEADER + 4 * head["runs"].astype(np.int64)
    longest = np.flatnonzero(long_enough)
    wide = _gather(bitmaps, offsets[longest], _ARRAY_FORM)
    array_form = (wide["bitmaps"] == 1) & (wide["cookie"] == _ARRAY_COOKIE) & (wide["containers"] == 1)
    array_form &= (wide["last_value"] < ARRAY_LIMIT) & (wide["offset"] == 16)
    array_form &= lengths[longest] == _ARRAY_HEADER + 2 * (wide["last_value"].astype(np.int64) + 1)
    run_groups, array_groups = shortest[run_form], longest[array_form]
    rest = np.ones(len(lengths), dtype=np.bool_)
    rest[run_groups] = False
    rest[array_groups] = False
    return run_groups, array_groups, np.flatnonzero(rest)


def _gather(source: Bytes, offsets: Int64s, form: np.dtype[np.void]) -> npt.NDArray[np.void]:
    return _gather_bytes(source, offsets, form.itemsize).view(form)


def _gather_bytes(source: Bytes, offsets: Int64s, size: int) -> Bytes:
    window = _window(source, offsets, size)
    rows = source[offsets[:, None] + np.arange(size)] if window is None else window
    return np.ascontiguousarray(rows).reshape(-1)


def _high_bits(header: npt.NDArray[np.void]) -> Int64s:
    high: Int64s = header["high"].astype(np.int64) << 32 | header["key"].astype(np.int64) << 16
    return high


def _read_runs(bitmaps: Bytes, offsets: Int64s, header: npt.NDArray[np.void], target: Int64s, starts: Int64s) -> None:
    counts = header["runs"].astype(np.int64)
    if not len(counts):
        return
    owner = np.repeat(np.arange(len(counts)), counts)
    places = ranges(np.zeros_like(counts), counts) * 4 + (offsets + _RUN_HEADER)[owner]
    packed = _gather_bytes(bitmaps, places, 4).view("<u4").astype(np.int64)
    first, sizes = packed & 0xFFFF, (packed >> 16) + 1
    ordered = (first[1:] > (first + sizes)[:-1]) | (owner[1:] != owner[:-1])
    cardinalities = np.bincount(owner, weights=sizes, minlength=len(counts)).astype(np.int64)
    if not ordered.all() or int((first + sizes).max()) > 0x10000 or (cardinalities - 1 != header["last_value"]).any():
        raise _corrupt("runs overlap, leave their container or do not add up", int(offsets[0]))
    values = ranges(first + _high_bits(header)[owner], sizes)
    target[ranges(starts, cardinalities)] = values


def _read_arrays(bitmaps: Bytes, offsets: Int64s, header: npt.NDArray[np.void], target: Int64s, starts: Int64s) -> None:
    counts = header["last_value"].astype(np.int64) + 1
    if not len(counts):
        return
    owner = np.repeat(np.arange(len(counts)), counts)
    places = ranges(np.zeros_like(counts), counts) * 2 + (offsets + _ARRAY_HEADER)[owner]
    values = _gather_bytes(bitmaps, places, 2).view("<u2").astype(np.int64)
    if not ((values[1:] > values[:-1]) | (owner[1:] != owner[:-1])).all():
        raise _corrupt("array values are not strictly increasing", int(offsets[0]))
    target[ranges(starts, counts)] = values + _high_bits(header)[owner]


def _corrupt(what: str, offset: int) -> Corrupt:
    return Corrupt(
        f"damaged Roaring bitmap: {what}", hint="the bytes are not a portable 64-bit Roaring bitmap", at=offset
    )
