"""The versions of a topic's schema from its schema ledgers (upstream ``BookkeeperSchemaStorage``, Pulsar 4.0.8)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256

from msgspec import Struct, field

from pulsar_admin.store.codec.schema import (
    IndexEntry,
    SchemaEntry,
    SchemaLocator,
    decode_schema_entry,
    decode_schema_locator,
    encode_schema_locator,
)
from pulsar_admin.store.errors import StoreError
from pulsar_admin.store.model.ledgers import iter_entry_ids
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.names import Position


class Version(Struct, frozen=True):
    """A version of a schema and where it lies."""

    number: int
    position: Position
    hash: bytes

    @property
    def ledger_id(self) -> int:
        return self.position.ledger_id


class MadeLocator(Struct):
    """A locator that was made again, as a value to store."""

    value: bytes
    versions: list[Version]
    warnings: list[str] = field(default_factory=list)


def made_locator(reader: EntryReader, ledger_ids: Sequence[int], before: bytes | None) -> MadeLocator | None:
    """Return the locator of what is in LEDGER_IDS, and of what was BEFORE; None where there is nothing.

    An entry lists the versions in front of it: a position that another entry lists is the one that counts. Of two that nothing lists,
    as two registrations at once leave them, the first ledger has it.
    """
    found: dict[int, list[Version]] = {}
    listed: dict[int, Version] = {}
    for position, entry in _iter_entries(reader, ledger_ids):
        version = Version(_number(entry), position, b"" if entry.deleted else sha256(entry.definition).digest())
        found.setdefault(version.number, []).append(version)
        for item in entry.index:
            if item.position.ledger_id >= 0:
                listed[item.version] = Version(item.version, item.position, item.hash)
    if before:
        locator = decode_schema_locator(before, "the earlier locator")
        listed |= {item.version: Version(item.version, item.position, item.hash) for item in locator.index}
    versions = [listed.get(number) or found[number][0] for number in sorted({*found, *listed})]
    if not versions:
        return None
    index = tuple(IndexEntry(one.number, one.position, one.hash) for one in versions)
    value = encode_schema_locator(SchemaLocator(index[-1], index), before or b"")
    return MadeLocator(value, versions, list(_doubts(found, listed)))


def _iter_entries(reader: EntryReader, ledger_ids: Iterable[int]) -> Iterator[tuple[Position, SchemaEntry]]:
    for ledger_id in ledger_ids:
        for entry_id in iter_entry_ids(reader.txn, ledger_id):
            try:
                payload = reader.read(ledger_id, entry_id).payload
                yield Position(ledger_id, entry_id), decode_schema_entry(payload, f"{ledger_id}:{entry_id}")
            except StoreError:
                continue


def _number(entry: SchemaEntry) -> int:
    """Return the version that ENTRY is: behind all that it lists; the first one lists itself, at −1:−1."""
    return max((item.version for item in entry.index if item.position.ledger_id >= 0), default=-1) + 1


def _doubts(found: dict[int, list[Version]], listed: dict[int, Version]) -> Iterator[str]:
    for number, versions in found.items():
        if number not in listed and len({one.hash for one in versions}) > 1:
            ledgers = ", ".join(str(one.ledger_id) for one in versions)
            yield f"version {number} lies in ledgers {ledgers} with unlike definitions: the first is taken"
