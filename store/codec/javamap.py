"""The order of Java's ``HashMap``: brokers keep a topic's properties in one, and write and print them in its order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

Value = TypeVar("Value")
_FIRST_TABLE = 16


def java_hash_code(text: str) -> int:
    """Return ``String.hashCode`` as an unsigned 32-bit integer."""
    units = text.encode("utf-16-be", "surrogatepass")
    found = 0
    for index in range(0, len(units), 2):
        found = (31 * found + int.from_bytes(units[index : index + 2], "big")) & 0xFFFFFFFF
    return found


def in_hash_map_order(found: Mapping[str, Value]) -> dict[str, Value]:
    """Return FOUND in the order of a ``HashMap`` of strings that was filled in its order (no bin of eight keys and more)."""
    table = _FIRST_TABLE
    while len(found) * 4 > table * 3:
        table *= 2
    hashes = {key: java_hash_code(key) for key in found}
    return {key: found[key] for key in sorted(found, key=lambda key: (hashes[key] ^ hashes[key] >> 16) & (table - 1))}
