"""The order of Java's ``HashMap``: brokers keep a topic's properties in one, and write and print them in its order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from pulsar_admin.store.names import in_hash_order

Value = TypeVar("Value")


def in_hash_map_order(found: Mapping[str, Value]) -> dict[str, Value]:
    """Return a mapping in the order of a Java ``HashMap`` that was filled in its order."""
    return {key: found[key] for key in in_hash_order(found)}
