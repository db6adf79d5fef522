"""Checks the digests of many byte ranges of a file that may be entries and may overlap, in bounded time.

Heads in damaged bytes may claim any length, so digesting n claimed ranges may read the file n times. The CRC of a range
follows from those of two prefixes of the file, so one pass keeps a CRC every STEP_BYTES, and then a range of any length
costs at most 2 × STEP_BYTES. HMAC has no such property: all ranges together may digest HMAC_TIMES the bytes of the
file; when this budget is used up, no further range is proven. Records that follow one another have a budget of the same
size of their own, which bytes in payloads that look like heads cannot use up.
"""

import struct
import zlib
from array import array
from collections.abc import Callable, Collection
from functools import cache, partial

from pulsar_admin.store.codec.buffer import Bytes, written_end
from pulsar_admin.store.codec.digest import DIGEST_SIZE, DigestType, compute_digest
from pulsar_admin.store.codec.entry import ENTRY_HEADER_BYTES

STEP_BYTES = 1 << 10
HMAC_TIMES = 64  # a second for each 16 MB, about as long as the rest takes
_READ_BYTES = STEP_BYTES << 6  # at once: chance heads in slices of a log claim hundreds of megabytes

_COUNTERS = struct.Struct(">qqqq")  # as in ``entry``
_ALL_ONES = 0xFFFFFFFF
_POLYNOMIALS = {DigestType.CRC32C: 0x82F63B78, DigestType.CRC32: 0xEDB88320}
_Extend = Callable[[int, bytes], int]
_Tables = tuple[tuple[int, ...], ...]


class Proofs:
    """Checks digests of entries in the data of a whole file; bytes are read once, and each check then takes constant
    time.

    Sums are kept from the first range checked on, and restart after a part of the file that was not checked.
    """

    def __init__(self, data: Bytes) -> None:
        import google_crc32c  # 2 ms; undamaged files need none of this

        self._data = data
        self._crc32c = _Sums(data, DigestType.CRC32C, google_crc32c.extend)
        self._crc32 = _Sums(data, DigestType.CRC32, lambda crc, part: zlib.crc32(part, crc))
        self._hmac_bytes_left = [HMAC_TIMES * len(data)] * 2
        self.lengths: dict[int, tuple[int, int]] = {}
        """Ledger → the id of the entry that was read last, and the payload bytes up to its end."""
        self.digest_sizes: Callable[[int], Collection[int]] = lambda ledger_id: DIGEST_SIZE.values()
        """Returns how many bytes the digests of a ledger may have."""
        self.written_end: Callable[[int], int] = cache(partial(written_end, data, 0))
        """Returns the position after the last byte before a limit that is not zero."""

    def digest_type(self, start: int, end: int, *, in_turn: bool = False) -> DigestType | None:
        """Return as ``find_digest_type`` for the entry body from ``start`` to ``end``, as long as the budget of HMAC lasts.

        ``in_turn``: it follows a record, and is not one of many that may begin anywhere.
        """
        for sums in (self._crc32c, self._crc32):
            if sums.prove(start, end):
                return sums.kind
        payload = start + ENTRY_HEADER_BYTES + DIGEST_SIZE[DigestType.HMAC]
        if payload > end or end - start > self._hmac_bytes_left[in_turn]:
            return None
        # The length in an entry counts its own payload, and most of what only looks like a head claims more.
        if end - payload > _COUNTERS.unpack(self._data[start : start + ENTRY_HEADER_BYTES])[3]:
            return None
        self._hmac_bytes_left[in_turn] -= end - start
        header, found = self._data[start : start + ENTRY_HEADER_BYTES], self._data[start + ENTRY_HEADER_BYTES : payload]
        proves = found == compute_digest(DigestType.HMAC, header, self._data[payload:end])
        return DigestType.HMAC if proves else None

    def note(self, start: int) -> None:
        """Record the length field of the entry body at ``start``, for ``is_too_long`` and ``is_counted``."""
        head = bytes(self._data[start : start + ENTRY_HEADER_BYTES])
        if len(head) == ENTRY_HEADER_BYTES:
            ledger_id, entry_id, _, length = _COUNTERS.unpack(head)
            if min(entry_id, length) >= 0:
                self.lengths[ledger_id] = entry_id, length

    def is_too_long(self, start: int, end: int) -> bool:
        """Whether the entry body from ``start`` to ``end`` is longer than the lengths in its ledger's entries allow."""
        ledger_id, entry_id, _, length = _COUNTERS.unpack(self._data[start : start + ENTRY_HEADER_BYTES])
        last_id, before = self.lengths.get(ledger_id, (-1, 0))
        counted = length - (before if entry_id > last_id else 0)
        return bool(end - start - ENTRY_HEADER_BYTES - max(self.digest_sizes(ledger_id)) > counted)

    def is_counted(self, start: int, end: int) -> bool:
        """Whether the payload of the entry body from ``start`` to ``end`` has exactly the size by which its length
        field exceeds that of the entry before it."""
        ledger_id, entry_id, _, length = _COUNTERS.unpack(self._data[start : start + ENTRY_HEADER_BYTES])
        last_id, before = self.lengths.get(ledger_id, (-1, 0))
        payload = end - start - ENTRY_HEADER_BYTES - (length - before)
        return entry_id == last_id + 1 and payload in self.digest_sizes(ledger_id)


class _Sums:
    """CRCs of one kind: after i steps from ``_base`` on, a state that began with 0 is ``_states[i]``."""

    def __init__(self, data: Bytes, kind: DigestType, extend: _Extend) -> None:
        self.kind = kind
        self._data = data
        self._extend = extend
        self._base = 0
        self._states = array("I", [0])

    def prove(self, start: int, end: int) -> bool:
        """Whether the digest of this kind proves the entry body from ``start`` to ``end``."""
        at = start + ENTRY_HEADER_BYTES
        payload = at + DIGEST_SIZE[self.kind]
        if payload > end:
            return False
        expected = int.from_bytes(self._data[at:payload], "big")
        if expected > _ALL_ONES:
            return False
        state = self._advance(_ALL_ONES, start, at)
        return self._state(state, payload, end) ^ _ALL_ONES == expected

    def _state(self, state: int, start: int, end: int) -> int:
        """Return a checksum state advanced over the bytes from ``start`` to ``end``."""
        if end - start < 4 * STEP_BYTES:
            return self._advance(state, start, end)
        if not self._base <= start <= self._base + (len(self._states) - 1) * STEP_BYTES:
            self._base, self._states = start, array("I", [0])
        first, last = -(-(start - self._base) // STEP_BYTES), (end - self._base) // STEP_BYTES
        known, until = self._base + (len(self._states) - 1) * STEP_BYTES, self._base + last * STEP_BYTES
        for at in range(known, until, _READ_BYTES):
            part = bytes(self._data[at : min(at + _READ_BYTES, until)])
            for begin in range(0, len(part), STEP_BYTES):
                step = part[begin : begin + STEP_BYTES]
                self._states.append(self._extend(self._states[-1] ^ _ALL_ONES, step) ^ _ALL_ONES)
        state = self._advance(state, start, self._base + first * STEP_BYTES)
        # What two states have in common goes: the bytes between add the same to every state.
        state = _over_zeros(self.kind, state ^ self._states[first], last - first) ^ self._states[last]
        return self._advance(state, self._base + last * STEP_BYTES, end)

    def _advance(self, state: int, start: int, end: int) -> int:
        return self._extend(state ^ _ALL_ONES, bytes(self._data[start:end])) ^ _ALL_ONES


def _over_zeros(kind: DigestType, state: int, steps: int) -> int:
    """Return a checksum state advanced over ``steps`` × STEP_BYTES zeros."""
    power = 0
    while steps:
        if steps & 1:
            a, b, c, d = _zeros_table(kind, power)
            state = a[state & 0xFF] ^ b[state >> 8 & 0xFF] ^ c[state >> 16 & 0xFF] ^ d[state >> 24]
        steps >>= 1
        power += 1
    return state


@cache
def _zeros_table(kind: DigestType, power: int) -> _Tables:
    """Return tables, one for each byte of a state, that advance it over STEP_BYTES << ``power`` zeros."""
    columns = []
    for bit in range(32):
        state = 1 << bit
        if power:
            columns.append(_over_zeros(kind, _over_zeros(kind, state, 1 << (power - 1)), 1 << (power - 1)))
            continue
        for _ in range(8 * STEP_BYTES):
            state = state >> 1 ^ (_POLYNOMIALS[kind] if state & 1 else 0)
        columns.append(state)
    return tuple(_sums_of_bits(columns[first : first + 8]) for first in range(0, 32, 8))


def _sums_of_bits(columns: list[int]) -> tuple[int, ...]:
    """Return, for every byte, the sum of the columns of its bits."""
    sums = [0]
    for column in columns:
        sums += [known ^ column for known in sums]
    return tuple(sums)
