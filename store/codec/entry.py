"""One ledger entry as the client built it: the body of an entry-log record or of a journal data record.

Source: ``DigestManager``, ``PendingAddOp``, ``LedgerHandle``; BookKeeper 4.14 to 4.18.

======  ====  =========================================================================================
offset  size  field
======  ====  =========================================================================================
0       8     ledgerId i64
8       8     entryId i64
16      8     lastAddConfirmed i64: what the writer knew when it sent the entry, -1 = none
24      8     length i64: payload bytes of entries 0 up to and including this one
32      m     digest, m = 0, 4, 8 or 20 by the ledger's digest type
32+m    rest  payload, possibly empty
======  ====  =========================================================================================

Replicas need not be byte-identical: re-replication rewrites lastAddConfirmed (which may then reach or pass entryId)
and the digest; length and payload survive.
"""

import struct

from msgspec import Struct

from pulsar_admin.store.codec.digest import DIGEST_SIZE, DigestType, compute_digest
from pulsar_admin.store.errors import EntryCorrupt

ENTRY_HEADER_BYTES = 32
ENTRY_MAX_BYTES = 5_253_120 - 500  # BookKeeper warns above nettyMaxFrameSizeBytes − 500; this is the one Pulsar ships
RECORD_MAX_BYTES = 256 << 20
"""The largest entry in any log: a record whose size field is larger is damaged."""
_HEADER = struct.Struct(
    ">q"  # ledgerId
    "q"  # entryId
    "q"  # lastAddConfirmed
    "q"  # length
)
# CRC32C first: Pulsar writes it everywhere but in compacted-topic ledgers, which use CRC32.
_INFERRED = (DigestType.CRC32C, DigestType.CRC32, DigestType.HMAC)


class Entry(Struct, frozen=True):
    """A decoded entry; ``payload`` is a view into the bytes it was decoded from."""

    ledger_id: int
    entry_id: int
    last_add_confirmed: int
    length: int
    digest_type: DigestType
    payload: memoryview


def decode_entry(
    body: bytes | memoryview, digest_type: DigestType | None, *, where: str, password: bytes = b"", verify: bool = True
) -> Entry:
    """Return the entry in a body, which starts at its ledger id; raises EntryCorrupt naming ``where``, expected and found.

    ``digest_type`` None finds the type by trying CRC32C, CRC32, then HMAC with the password; a DUMMY ledger has no
    digest to find it by. ``verify=False`` skips the comparison of a known type; finding the type always compares.
    """
    view = memoryview(body)
    _check_size(view, ENTRY_HEADER_BYTES, where)
    ledger_id, entry_id, last_add_confirmed, length = _HEADER.unpack_from(view)
    if ledger_id < 0 or entry_id < 0 or last_add_confirmed < -1 or length < 0:
        raise EntryCorrupt(
            f"{where}: no entry header: ledger {ledger_id}, entry {entry_id}, last add confirmed "
            f"{last_add_confirmed}, length {length}",
            where=where,
            expected="ledger >= 0, entry >= 0, last add confirmed >= -1, length >= 0",
            found=[ledger_id, entry_id, last_add_confirmed, length],
        )
    name = f"{where}: entry {ledger_id}:{entry_id}"
    if digest_type is None:
        digest_type = find_digest_type(view, password)
        if digest_type is None:
            raise _digest_error(view, _INFERRED[0], name, password)
    elif verify:
        _check_size(view, ENTRY_HEADER_BYTES + DIGEST_SIZE[digest_type], name)
        if not _digest_matches(view, digest_type, password):
            raise _digest_error(view, digest_type, name, password)
    start = ENTRY_HEADER_BYTES + DIGEST_SIZE[digest_type]
    _check_size(view, start, name)
    return Entry(ledger_id, entry_id, last_add_confirmed, length, digest_type, view[start:])


def find_digest_type(body: bytes | memoryview, password: bytes = b"") -> DigestType | None:
    """Return the first of CRC32C, CRC32 and HMAC whose digest the body carries, or None."""
    view = memoryview(body)
    return next((kind for kind in _INFERRED if _digest_matches(view, kind, password)), None)


def _check_size(view: memoryview, wanted: int, where: str) -> None:
    if len(view) < wanted:
        raise EntryCorrupt(
            f"{where}: wanted {wanted} bytes, got {len(view)}", where=where, expected=wanted, found=len(view)
        )


def _digest_matches(view: memoryview, kind: DigestType, password: bytes) -> bool:
    end = ENTRY_HEADER_BYTES + DIGEST_SIZE[kind]
    if len(view) < end:
        return False
    return view[ENTRY_HEADER_BYTES:end] == compute_digest(kind, view[:ENTRY_HEADER_BYTES], view[end:], password)


def _digest_error(view: memoryview, kind: DigestType, name: str, password: bytes) -> EntryCorrupt:
    end = ENTRY_HEADER_BYTES + DIGEST_SIZE[kind]
    found = bytes(view[ENTRY_HEADER_BYTES:end]).hex()
    expected = compute_digest(kind, view[:ENTRY_HEADER_BYTES], view[end:], password).hex()
    return EntryCorrupt(
        f"{name}: {kind.name} digest is {found}, computed {expected}",
        where=name,
        digest_type=kind.name,
        expected=expected,
        found=found,
    )
