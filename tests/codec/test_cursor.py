import json
import random
import re
from collections.abc import Iterable, Iterator
from itertools import accumulate
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from pulsar_admin.store.changes.subscriptions import own_ledgers
from pulsar_admin.store.codec import cursor as cursor_codec
from pulsar_admin.store.codec.cursor import (
    CursorInfo,
    CursorState,
    RangeColumns,
    decode_cursor_head,
    decode_cursor_info,
    decode_cursor_ledger,
    decode_position_info,
    encode_cursor_info,
    find_plain_cursor,
)
from pulsar_admin.store.codec.wrapper import Wrapping, wrap
from pulsar_admin.store.errors import EntryCorrupt, LimitExceeded, MetadataCorrupt, StoreError, Unsupported
from pulsar_admin.store.model.references import read_namings
from pulsar_admin.store.names import Position
from pulsar_admin.store.proto import managed_ledger_pb2
from tests.encoders import encode_position_info

VECTOR_10 = bytes.fromhex("080a1001 1a0c 0a04080a1002 1204080a1004 2a08 0a04080a1002 1002")
VECTOR_11 = bytes.fromhex("080a1001 3204 080a1018")
VECTOR_12 = bytes.fromhex("08ffffffffffffffffff01 100a 1801")
RANGE_10 = (Position(10, 2), Position(10, 4))
STATE_10 = CursorState(Position(10, 1), (RANGE_10,), {Position(10, 2): (2,)})

# acme/orders/codecs, subscription keys, of a Pulsar 4.0.8 after a clean stop; its live broker showed
# markDeletePosition 7:-1 and individuallyDeletedMessages [(7:1..7:2],(7:5..7:6],(7:9..7:10]].
REAL = bytes.fromhex(
    "08ffffffffffffffffff01 1007 18ffffffffffffffffff01 220c 0a04 0807 1001 1204 0807 1002 220c 0a04 0807 1005 1204 0807"
    "1006 220c 0a04 0807 1009 1204 0807 100a 30f2d1aceb9f34 3a08 0a04 0807 1000 100f 3a08 0a04 0807 1009 1014"
    "3a08 0a04 0807 100b 100e 3a08 0a04 0807 100c 101e"
)


def test_position_info_vectors() -> None:
    assert decode_position_info(VECTOR_10, "12:0") == STATE_10
    assert encode_position_info(STATE_10) == VECTOR_10
    assert decode_position_info(VECTOR_11, "12:0") == CursorState(Position(10, 1), (RANGE_10,))


def test_cursor_info_vector() -> None:
    expected = CursorInfo(-1, Position(10, 1))
    assert decode_cursor_info(VECTOR_12, "/path") == expected
    assert encode_cursor_info(expected) == VECTOR_12


def test_a_value_of_a_real_broker() -> None:
    found = decode_cursor_info(REAL, "/path")
    assert found == CursorInfo(
        cursors_ledger_id=-1,
        mark_delete=Position(7, -1),
        ranges=tuple((Position(7, low), Position(7, high)) for low, high in ((1, 2), (5, 6), (9, 10))),
        batch_deletes={Position(7, 0): (15,), Position(7, 9): (20,), Position(7, 11): (14,), Position(7, 12): (30,)},
        last_active_ms=1795253020914,
    )
    assert encode_cursor_info(found) == REAL
    assert decode_cursor_head(REAL, "/path") == CursorInfo(-1, Position(7, -1), last_active_ms=1795253020914)


def test_properties() -> None:
    value = VECTOR_12 + bytes.fromhex("2a18 0a14") + b"CompactedTopicLedger" + bytes.fromhex("105b")
    value += bytes.fromhex("42 08 0a01 6b 1203") + b"v-1"
    found = decode_cursor_info(value, "/path")
    assert (found.properties, found.cursor_properties) == ({"CompactedTopicLedger": 91}, {"k": "v-1"})
    assert encode_cursor_info(found) == value
    assert encode_cursor_info(replace(found, properties={}, cursor_properties={}), value) == VECTOR_12


def test_unknown_fields_and_wrapping_survive() -> None:
    unknown = bytes.fromhex("a23f03616263")
    base = wrap((VECTOR_12 + unknown) * 1, Wrapping(4), "cursor")
    found = decode_cursor_info(base, "/path")
    assert encode_cursor_info(found, base) == base
    moved = encode_cursor_info(replace(found, mark_delete=Position(10, 3)), base)
    assert moved == wrap(VECTOR_12[:-1] + b"\x03" + unknown, Wrapping(4), "cursor")


def test_protobuf_text() -> None:
    text = b"cursorsLedgerId: -1\nmarkDeleteLedgerId: 10\nmarkDeleteEntryId: 1\n"
    assert decode_cursor_info(text, "/path") == CursorInfo(-1, Position(10, 1))


@pytest.mark.parametrize("value", [b"", b"\x10\x0a", b"\x08", VECTOR_12 + b"\x22\x00", b"cursors"])
def test_values_that_are_no_cursor(value: bytes) -> None:
    with pytest.raises(MetadataCorrupt, match="/path"):
        decode_cursor_info(value, "/path")


def test_a_range_that_ends_before_it_begins() -> None:
    with pytest.raises(EntryCorrupt, match="10:4, 10:2"):
        decode_position_info(bytes.fromhex("080a1001 1a0c 0a04080a1004 1204080a1002"), "12:0")


# -- bitmaps ----------------------------------------------------------------------------------------------------------


def _bitmap_entry(*maps: tuple[int, list[int]]) -> bytes:
    message = managed_ledger_pb2.PositionInfo(ledgerId=10, entryId=-1)
    for key, values in maps:
        message.individualDeletedMessageRanges.add(key=key, values=values)
    return message.SerializeToString()


def _runs(entry_ids: set[int]) -> Iterator[tuple[int, int]]:
    for entry_id in sorted(entry_ids):
        if entry_id - 1 not in entry_ids:
            end = entry_id
            while end + 1 in entry_ids:
                end += 1
            yield entry_id - 1, end


@settings(derandomize=True, deadline=None, max_examples=24)
@given(st.lists(st.sampled_from([0, -1, 1, -(2**63), 2**63 - 1, 0x55]) | st.integers(-(2**63), 2**63 - 1), max_size=6))
def test_bitmaps_against_brute_force(values: list[int]) -> None:
    entry_ids = {64 * index + bit for index, word in enumerate(values) for bit in range(64) if word >> bit & 1}
    expected = tuple((Position(20, low), Position(20, high)) for low, high in _runs(entry_ids))
    assert decode_position_info(_bitmap_entry((20, values)), "12:0").ranges == expected


def test_bitmaps_of_several_ledgers_come_in_order() -> None:
    found = decode_position_info(_bitmap_entry((20, [1]), (10, [0, 6])), "12:0")
    assert found.ranges == ((Position(10, 64), Position(10, 66)), (Position(20, -1), Position(20, 0)))


def test_ranges_win_over_bitmaps() -> None:
    both = VECTOR_10 + bytes.fromhex("3204 080a 107f")
    assert decode_position_info(both, "12:0") == STATE_10


def test_more_ranges_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cursor_codec, "RANGES_LIMIT", 64)
    alternating = 0x5555555555555555
    assert len(decode_position_info(_bitmap_entry((20, [alternating] * 2)), "12:0").ranges) == 64
    with pytest.raises(LimitExceeded):
        decode_position_info(_bitmap_entry((20, [alternating] * 2 + [1])), "12:0")


def test_a_bitmap_whose_65th_range_goes_on_in_the_next_chunk() -> None:
    """And one that is behind a chunk without any."""
    entries = {*range(0, 256, 4), *range(65_000, 65_600), *range(70_000, 70_010), *range(200_000, 200_010)}
    words = [sum(1 << place for place in range(64) if 64 * n + place in entries) for n in range(200_010 // 64 + 1)]
    words = [word - 2**64 if word >> 63 else word for word in words]
    found = decode_position_info(_bitmap_entry((20, words)), "12:0").ranges
    assert found == tuple((Position(20, low), Position(20, high)) for low, high in _runs(entries))


def _words(pairs: Iterable[tuple[int, int]]) -> list[int]:
    bits = sum((1 << high + 1) - (1 << low + 1) for low, high in pairs)
    words = [int(one[::-1], 2) for one in re.findall(".{1,64}", f"{bits:b}"[::-1])]
    return [word - 2**64 if word >> 63 else word for word in words]


@pytest.mark.parametrize("gap", [4, 300, 5000])
def test_very_many_ranges_are_what_each_message_and_bit_says(gap: int) -> None:
    """Numbers of one to three bytes, ledgers of one and of seven, and −1 as what is before a ledger's first range."""
    source = random.Random(gap)
    pairs = {}
    for ledger_id, first in ((10, 3), (300, -1), (2**40, 40)):
        ends = list(accumulate((source.randint(1, gap) for _ in range(239)), initial=first))
        pairs[ledger_id] = list(zip(ends[::2], ends[1::2], strict=True))
    ranges = tuple((Position(key, low), Position(key, high)) for key, some in pairs.items() for low, high in some)
    state = CursorState(Position(10, 1), ranges, {Position(10, 2): (2,)}, {"of": 7})
    found = decode_position_info(encode_position_info(state), "12:0")
    assert (found, type(found.ranges)) == (state, RangeColumns)
    info = CursorInfo(-1, Position(10, -1), ranges, state.batch_deletes, state.properties, {"a": "b"}, 5)
    found_info = decode_cursor_info(encode_cursor_info(info), "/path")
    assert (found_info, type(found_info.ranges)) == (info, RangeColumns)
    maps = {key: _words(some) for key, some in pairs.items()}
    of_bits = decode_position_info(_bitmap_entry(*maps.items()), "12:0").ranges
    assert of_bits == found.ranges == RangeColumns(of_bits.parts)
    assert RangeColumns([(key, bits) for key, bits in of_bits.parts if key > 10]) != of_bits


def test_very_many_ranges_that_no_broker_writes_so_are_read_one_by_one() -> None:
    pairs = [(Position(10, 3 * n), Position(10, 3 * n + 1)) for n in range(600)]
    moved = [*pairs[1:], pairs[0]]
    met = [*pairs[:300], (pairs[299][1], Position(10, 899)), *pairs[300:]]
    far = [*pairs, (Position(10, 2**40), Position(10, 2**40 + 1))]
    each = [(Position(10 + n, 1), Position(10 + n, 2)) for n in range(600)]
    two = [*pairs, (Position(10, 2000), Position(11, 2))]
    for ranges in (moved, met, far, each, two):
        state = CursorState(Position(10, 1), tuple(ranges))
        assert decode_position_info(encode_position_info(state), "12:0") == state
    state = CursorState(Position(10, 1), tuple(pairs))
    whole = encode_position_info(state)
    assert decode_position_info(whole + bytes.fromhex("1a0c 0a04080a1064 1204080a1065"), "12:0").ranges == (
        *pairs,
        (Position(10, 100), Position(10, 101)),
    )
    with pytest.raises(EntryCorrupt, match="ends before"):
        decode_position_info(whole + bytes.fromhex("1a0c 0a04080a1004 1204080a1002"), "12:0")
    with pytest.raises(EntryCorrupt, match=r"\(10:4, 10:2\]"):
        decode_position_info(whole + bytes.fromhex("2000 1a0c 0a04080a1004 1204080a1002"), "12:0")
    with pytest.raises(EntryCorrupt, match="cannot be parsed"):
        decode_position_info(whole + b"\x2a", "12:0")


# -- the forms of a cursor ledger -------------------------------------------------------------------------------------

BIG = encode_position_info(
    CursorState(Position(10, 1), tuple((Position(10, 2 * n), Position(10, 2 * n + 1)) for n in range(1, 50)))
)
OTHER = encode_position_info(CursorState(Position(9, 9)))


def _parts(data: bytes, size: int) -> list[bytes]:
    return [data[start : start + size] for start in range(0, len(data), size)]


def _footer(parts: list[bytes]) -> bytes:
    return json.dumps({"numParts": len(parts), "length": sum(map(len, parts))}).encode()


def test_the_newest_entry_is_the_state() -> None:
    assert decode_cursor_ledger([VECTOR_10, OTHER], "ledger 12") == STATE_10
    assert decode_cursor_ledger([memoryview(VECTOR_11)], "ledger 12") == decode_position_info(VECTOR_11, "12:0")
    assert decode_cursor_ledger([], "ledger 12") is None


@pytest.mark.parametrize("size", [1, 7, 100, len(BIG)])
def test_parts_with_a_footer(size: int) -> None:
    parts = _parts(BIG, size)
    entries = [OTHER, *parts, _footer(parts)]
    assert decode_cursor_ledger(reversed(entries), "ledger 12") == decode_position_info(BIG, "12:0")


def test_only_the_entries_needed_are_taken() -> None:
    parts = _parts(BIG, 100)
    entries = iter([_footer(parts), *reversed(parts), OTHER, VECTOR_10])
    decode_cursor_ledger(entries, "ledger 12")
    assert list(entries) == [OTHER, VECTOR_10]
    for newest, left in ((b"", [OTHER, VECTOR_10]), (b"\x08\x0a\x1f\x01", [VECTOR_10])):
        entries = iter([newest, OTHER, VECTOR_10])
        with pytest.raises(StoreError, match="the newest entry is"):
            decode_cursor_ledger(entries, "ledger 12")
        assert list(entries) == left


@pytest.mark.parametrize("size", [23, 50, 100, 150, 300])
def test_a_crash_inside_the_parts_falls_back_to_the_last_whole_form(size: int) -> None:
    parts, old_parts = _parts(BIG, size), _parts(VECTOR_10, 9)
    assert any(part[:1] == b"\x08" for part in parts[1:]) == (size <= 100)  # they look like a first part
    for kept in range(1, len(parts)):
        entries = [VECTOR_10, OTHER, *parts[:kept]]
        assert decode_cursor_ledger(reversed(entries), "ledger 12") == CursorState(Position(9, 9))
        entries = [*old_parts, _footer(old_parts), *parts[:kept]]
        assert decode_cursor_ledger(reversed(entries), "ledger 12") == STATE_10


def test_a_cut_between_two_fields() -> None:
    """A first part that is whole by accident is known by the part behind it."""
    first, second = VECTOR_10[:18], VECTOR_10[18:]
    assert decode_position_info(first, "12:0").mark_delete == Position(10, 1)
    assert decode_cursor_ledger([second[:5], first, OTHER], "ledger 12") == CursorState(Position(9, 9))
    assert decode_cursor_ledger([second, first, OTHER], "ledger 12") == CursorState(Position(9, 9))


def test_parts_alone() -> None:
    with pytest.raises(EntryCorrupt, match="ledger 12"):
        decode_cursor_ledger([BIG[:9]], "ledger 12")


@pytest.mark.parametrize("newest", [b"", b"\x3b\x30\x00\x00", b"\x00", b"[1]", b'{"a":1}', b"{", b"\xff" * 30])
@pytest.mark.parametrize("older", [[], [VECTOR_10], [BIG]])
def test_other_forms_are_refused(newest: bytes, older: list[bytes]) -> None:
    with pytest.raises(Unsupported, match="ledger 12"):
        decode_cursor_ledger([newest, *older], "ledger 12")


def test_a_damaged_newest_entry_is_no_reason_to_take_an_older_one() -> None:
    reversed_range = bytes.fromhex("080a1001 1a0c 0a04080a1004 1204080a1002")
    for damaged in (b"\x08\x0a\x1f\x01", b"\x08" + b"\xff" * 11, reversed_range):
        with pytest.raises(EntryCorrupt):
            decode_cursor_ledger([damaged, VECTOR_10], "ledger 12")


@pytest.mark.parametrize(
    "footer",
    [
        {"numParts": 3, "length": 20},
        {"numParts": 2, "length": 18},
        {"numParts": 2, "length": 21},
        {"numParts": 0, "length": 0},
        {"numParts": -1, "length": 20},
        {"numParts": 2, "length": -1},
    ],
)
def test_a_footer_that_does_not_fit_its_parts(footer: dict[str, int]) -> None:
    first, second = VECTOR_10[:10], VECTOR_10[10:20]
    with pytest.raises((EntryCorrupt, Unsupported)):
        decode_cursor_ledger([json.dumps(footer).encode(), second, first], "ledger 12")


def test_a_footer_with_an_absurd_length() -> None:
    with pytest.raises(LimitExceeded):
        decode_cursor_ledger([b'{"numParts":2,"length":99999999999}', b"", b""], "ledger 12")


def test_parts_of_another_form() -> None:
    with pytest.raises(Unsupported):
        decode_cursor_ledger([b'{"numParts":1,"length":4}', b"\x28\xb5\x2f\xfd"], "ledger 12")


# -- properties -------------------------------------------------------------------------------------------------------


def test_ledger_0_is_a_ledger() -> None:
    def cursor(ledger_id: int) -> Any:
        return SimpleNamespace(info=CursorInfo(ledger_id), state=SimpleNamespace(properties={}))

    assert (own_ledgers(cursor(0)), own_ledgers(cursor(-1))) == ((0,), ())
    for properties in ({}, {"p": 1}):  # as a cursor nearly always is, and with more
        infos = [CursorInfo(one, Position(1, 2), properties=properties) for one in (0, -1)]
        assert [find_plain_cursor(encode_cursor_info(info)) is None for info in infos] == [True, False]
    for name in ("plain", "with%2Fslash"):  # of names as they nearly always are, and of others
        path = f"/managed-ledgers/a/b/persistent/{name}/s"
        named = [one.ledger_ids for one in read_namings(path, encode_cursor_info(CursorInfo(0, Position(1, 2))))]
        assert (named, read_namings(path, encode_cursor_info(CursorInfo(-1, Position(1, 2))))) == ([[0]], [])
