"""Entries of the index and the rules of partitions."""

import random
import struct
import zlib
from typing import Any

import google_crc32c
import numpy as np
import pytest
from pyroaring import BitMap

from pulsar_admin.store import errors
from pulsar_admin.store.db import delayed_rules as rules
from pulsar_admin.store.db.delayed_entries import (
    ENTRY_MESSAGES_MAX,
    DelayedRows,
    decode_entry_rows,
    iter_encoded,
    sorted_rows,
)
from tests.deep import deep_but_for
from tests.delayed.world import messages_of

TICK_MS = 1000


def rows_from(messages: Any) -> DelayedRows:
    columns = np.array(sorted(messages), np.int64).reshape(-1, 3)
    return sorted_rows(columns[:, 0], columns[:, 1], columns[:, 2])


def decoded(entries: list[bytes]) -> list[tuple[int, int, int]]:
    found = []
    for entry in entries:
        tick_ms, rows = decode_entry_rows(entry, "here")
        assert tick_ms == TICK_MS
        found += messages_of(rows)
    return found


def encoded(rows: DelayedRows, limit: int = 1 << 18) -> list[bytes]:
    return [entry for entry, _ in iter_encoded(rows, TICK_MS, limit)]


@deep_but_for((0, 1, 2), "seed", range(30))
def test_round_trip(seed: int) -> None:
    draw = random.Random(seed)
    ticks = draw.choice([1, 5, 300, 10**9])
    ledgers = [draw.randrange(0, draw.choice([10, 10**6, 2**62])) for _ in range(draw.choice([1, 3, 40]))]
    if seed % 2:
        wanted = {
            (draw.randrange(ticks) * TICK_MS, draw.choice(ledgers), draw.randrange(draw.choice([20, 2**32])))
            for _ in range(draw.choice([1, 30, 500]))
        }
    else:
        start = draw.randrange(2**31)
        together = draw.choice([1, 3, 40, 400])
        wanted = {(n // together * TICK_MS, ledgers[n // 700 % len(ledgers)], start + n) for n in range(1000)}
    rows = rows_from(wanted)
    limit = draw.choice([1, 7, 1 << 18])
    assert decoded(encoded(rows, limit)) == sorted(wanted)


def test_every_body_is_used() -> None:
    numbers = np.arange(ENTRY_MESSAGES_MAX)
    runs = encoded(sorted_rows(numbers // 500 * 200 * TICK_MS, np.full(len(numbers), 7), numbers))
    assert len(decoded(runs)) == ENTRY_MESSAGES_MAX
    scattered = encoded(rows_from({(n * 7919 % 300 * TICK_MS, 7 + n % 3, n) for n in range(5000)}))
    few = encoded(rows_from({(n // 3 * TICK_MS, 7 + n // 2000, n % 2000) for n in range(5000)}))
    assert [entry[5] for entry in runs + scattered + few] == [0, 1, 2]
    assert len(runs[0]) < len(numbers) * 0.1
    assert len(few[0]) < 5000 * 0.1
    assert len(scattered[0]) < 5000 * 1.6


HEAD = "<4sBBBBqqIIII"
BY_HAND = [(100_000, 12, 4), (100_000, 12, 5), (103_000, 10, 4), (103_000, 10, 5)]


def entry_by_hand(
    form: int, low_bits: int, table: bytes, body: bytes, *, deflated: int = 0, tick_ms: int = TICK_MS, ledgers: int = 2
) -> bytes:
    counts = (4, ledgers, len(table), 5)  # messages, ledgers, bytes of the table, largest entry id
    head = struct.pack(HEAD, b"\x89PDI", 1, form, low_bits, deflated, tick_ms, 100, *counts) + table + body
    return head + struct.pack("<I", google_crc32c.value(head))


@pytest.mark.parametrize("deflated", [False, True])
def test_roaring_written_by_hand(deflated: bool) -> None:
    """Laid out as docs/formats/delayed-index.md says, by struct and pyroaring alone."""
    bitmap = bytes(BitMap([4, 5]).serialize())
    body = bytes([0, 1, len(bitmap)]) + bitmap + bytes([3, 0, len(bitmap)]) + bitmap
    table = zlib.compress(bytes([10, 2])) if deflated else bytes([10, 2])
    assert decoded([entry_by_hand(0, 0, table, body, deflated=deflated)]) == BY_HAND
    wrong: dict[str, Any]
    for wrong in ({"tick_ms": 0}, {"ledgers": 0}, {"ledgers": 5}, {"deflated": 2}):
        with pytest.raises(errors.EntryCorrupt, match="header contradicts itself"):
            decoded([entry_by_hand(0, 0, table, body, **{"deflated": deflated, **wrong})])
    with pytest.raises(errors.EntryCorrupt, match="a cell of it contradicts the header"):
        decoded([entry_by_hand(0, 0, table, bytes([0, 2]) + body[2:], deflated=deflated)])


def test_packed_written_by_hand() -> None:
    """Two ledgers, entry ids up to 5: the numbers (tick × 2 + place) × 6 + entry are 10, 11, 40, 41, from 0 on 10, 1, 29, 1 apart."""
    planes = [0b1110, 0b0001, 0b0100]  # bit i of plane b: bit b of distance i; 10 = 001·010, 29 = 011·101
    unary = 0b1_1000_1_10  # 1, 0, 3 and 0 noughts, each with a one behind, from the lowest bit up
    assert decoded([entry_by_hand(1, 3, bytes([10, 2]), bytes([*planes, unary]))]) == BY_HAND


def test_steps_written_by_hand() -> None:
    """In the order of the topic: places 4, 5, 10, 11 (ledger × 6 + entry), ticks 3, 3, 0, 0."""
    columns = bytes([1, 5, 1]) + struct.pack("<3b", 0, -3, 0)
    assert decoded([entry_by_hand(2, 0, bytes([10, 2]), bytes([4, 3]) + zlib.compress(columns))]) == BY_HAND
    for place, tick in ((5, 3), (4, 2)):  # behind the last ledger, and before the first tick
        with pytest.raises(errors.EntryCorrupt, match="out of its ledgers"):
            decoded([entry_by_hand(2, 0, bytes([10, 2]), bytes([place, tick]) + zlib.compress(columns))])


def test_any_damage_is_found() -> None:
    (entry,) = encoded(rows_from({(n * 7919 % 300 * TICK_MS, 7 + n % 3, n) for n in range(50)}))
    for place in range(len(entry)):
        flipped = entry[:place] + bytes([entry[place] ^ 1 << place % 8]) + entry[place + 1 :]
        with pytest.raises(errors.EntryCorrupt):
            decode_entry_rows(flipped, "here")
        with pytest.raises(errors.EntryCorrupt):
            decode_entry_rows(entry[:place], "here")


def test_wrong_bytes_with_a_right_checksum() -> None:
    """Whatever the bytes say, only errors of the tree leave the decoder."""
    draw = random.Random(5)
    entries = encoded(rows_from({(n // 9 * TICK_MS, 7, n) for n in range(90)}))
    entries += encoded(rows_from({(n * 7919 % 300 * TICK_MS, 7 + n % 3, n) for n in range(50)}))
    entries += encoded(rows_from({(n // 3 * TICK_MS, 7, n) for n in range(90)}))
    refused = 0
    for number in range(1500):
        whole = bytearray(entries[number % 3][:-4])
        for _ in range(draw.randrange(1, 4)):
            whole[draw.randrange(8, len(whole))] = draw.randrange(256)
        try:
            decode_entry_rows(bytes(whole) + struct.pack("<I", google_crc32c.value(bytes(whole))), "here")
        except errors.StoreError:
            refused += 1
    assert 100 < refused < 1500  # some changes are seen, some say something else


def test_newer_format_is_named() -> None:
    (entry,) = encoded(rows_from({(0, 1, 1)}))
    newer = entry[:4] + b"\x02" + entry[5:-4]
    with pytest.raises(errors.Unsupported, match="format 2"):
        decode_entry_rows(newer + struct.pack("<I", google_crc32c.value(newer)), "here")


def test_entry_ids_beyond_a_bitmap() -> None:
    last = {(0, 1, 0), (0, 1, 2**32 - 1)}
    assert decoded(encoded(rows_from(last))) == sorted(last)
    for beyond in (2**32, -1):
        with pytest.raises(errors.LimitExceeded):
            encoded(rows_from({(0, 1, 0), (0, 1, beyond)}))


@pytest.mark.parametrize("bits", range(60, 67))
def test_rows_are_in_order_whether_a_key_has_room_for_them_or_not(bits: int) -> None:
    rows = [(1 << bits - 40, 5, 3), (0, (1 << 20) + 4, 2), (0, 5, (1 << 19) + 2), (0, 5, 2)]
    columns = np.array(rows, np.int64)
    assert messages_of(sorted_rows(columns[:, 0], columns[:, 1], columns[:, 2])) == sorted(rows)


# -- rules ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "width_ms"),
    [
        ("30s", 30_000),
        ("5m", 300_000),
        ("1h", 3_600_000),
        ("3d", 259_200_000),
        ("2w", 1_209_600_000),
        (f"{2**63 - 1}ms", 2**63 - 1),
    ],
)
def test_grammar_of_the_seed(text: str, width_ms: int) -> None:
    assert rules.parse_width_ms(text) == width_ms


@pytest.mark.parametrize(
    "text",
    [
        "",
        "5",
        "0s",
        "-5m",
        "5 m",
        "1h30m",
        "5x",
        "99999999999999999999w",
        "9223372036854775807w",
        f"{2**63}ms",
        "m",
        "٣s",
    ],
)
def test_bad_widths(text: str) -> None:
    with pytest.raises(errors.InvalidValue):
        rules.parse_width_ms(text)


def test_rules() -> None:
    for right in (rules.IndexRules(), rules.IndexRules(1000, 1000), rules.IndexRules(rules.SLOTS_MAX, 1)):
        rules.check_rules(right)
    assert rules.IndexRules().slots == 300
    for granularity_ms, tick_ms, said in (
        (1000, 2000, "may not exceed"),
        (0, 1, "above 0"),
        (5, 0, "above 0"),
        (rules.SLOTS_MAX + 1, 1, "at most"),
    ):
        with pytest.raises(errors.InvalidValue, match=said):
            rules.check_rules(rules.IndexRules(granularity_ms, tick_ms))
    for width_ms in (300_000, 600_000):
        rules.check_growth(rules.IndexRules(300_000), rules.IndexRules(width_ms), split=False)
    with pytest.raises(errors.Refused, match=r"300000 ms.*120000 ms"):
        rules.check_growth(rules.IndexRules(300_000), rules.IndexRules(120_000), split=False)
    rules.check_growth(rules.IndexRules(300_000), rules.IndexRules(120_000), split=True)


def test_rules_row() -> None:
    assert rules.decode_rules(rules.encode_rules(rules.IndexRules(60_000, 500)), "a/b") == rules.IndexRules(60_000, 500)
    with pytest.raises(errors.Unsupported):
        rules.decode_rules(rules.encode_rules(rules.IndexRules()).replace(b'"format": 1', b'"format": 2'), "a/b")
    for damaged in (b"", b"[]", b"{}", rules.encode_rules(rules.IndexRules(1, 5))):
        with pytest.raises(errors.IndexCorrupt):
            rules.decode_rules(damaged, "a/b")
