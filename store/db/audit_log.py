"""Rows of the store's database ``changes``: the audit log, from which changes can be undone.  Format:
docs/formats/store.md.

Row: key change number u64 big-endian; value zlib-compressed JSON: the fields of ``Change``, and ``previous``.

The audit log is a chain: ``previous`` is the SHA-256 (hex) of the key and value of the preceding row, so that no row
can be changed, added or removed alone. ``state`` has the number and digest of the last row. A store older than the
chain gets it with its next change, whose ``previous`` is the digest of the digests of all rows. The chain detects
edited rows; it does not detect someone who computes the whole chain anew: keep the head elsewhere for that.
"""

import json
import struct
import zlib
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from msgspec import Struct, convert, to_builtins

from pulsar_admin.store.db.environment import DATABASES, Txn
from pulsar_admin.store.errors import ChangeNotFound, IndexCorrupt, reason_of
from pulsar_admin.store.wording import Answer

_NUMBER = struct.Struct(">Q")


class Step(Answer, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One row to write: its bytes before (None: not there) and after (None: delete). In audit records a list, bytes as base64."""

    database: str
    key: bytes
    before: bytes | None
    after: bytes | None


class Change(Struct, frozen=True):
    """One change in the audit log. ``reports``: the reports on its parts, as JSON."""

    change: int
    time_ms: int
    command: str
    reports: tuple[Mapping[str, Any], ...]  # Any: JSON values
    steps: tuple[Step, ...]
    undoes: int | None = None


def iter_changes(txn: Txn) -> Iterator[Change]:
    """Yield the audit log, oldest first."""
    for key, row in txn.items("changes"):
        yield _decode_change(key, bytes(row))


def iter_changes_at(txn: Txn, prefix: bytes) -> Iterator[Change]:
    """Yield the changes of rows whose keys begin with ``prefix``, oldest first; damaged records are left out."""
    text = b64encode(prefix[: len(prefix) // 3 * 3])  # decoding changes of many rows takes long
    for key, row in txn.items("changes"):
        with suppress(IndexCorrupt, zlib.error):  # told where it is listed
            if text in zlib.decompress(row):
                yield _decode_change(key, bytes(row))


def change_numbers(txn: Txn) -> tuple[int, ...]:
    """Return the numbers of all changes in the audit log, oldest first, those whose record is damaged included."""
    return tuple(_NUMBER.unpack(key)[0] for key in txn.keys("changes", b"") if len(key) == _NUMBER.size)


def read_change(txn: Txn, number: int) -> Change:
    """Return one change; raises ChangeNotFound."""
    key = _NUMBER.pack(number) if 0 <= number < 2**64 else b""
    row = txn.get("changes", key) if key else None
    if row is None:
        raise ChangeNotFound(f"no change {number}", hint="list them with: pulsar-admin store log", change=number)
    return _decode_change(key, row)


def read_undoings(txn: Txn) -> dict[int, int]:
    """Return undone change → the change that undid it; damaged records are left out."""
    undone = {}
    for number in change_numbers(txn):
        with suppress(IndexCorrupt):  # told where it is listed
            row = read_change(txn, number)
            if row.undoes is not None:
                undone[row.undoes] = row.change
    return undone


def append_change(
    txn: Txn,
    now_ms: int,
    command: str,
    reports: tuple[Mapping[str, Any], ...],  # Any: JSON values
    steps: Sequence[Step] = (),
    undoes: int | None = None,
) -> int:
    """Append a change to the audit log and return its number; without ``steps`` if it changes no row (an export)."""
    last = txn.last("changes")
    number = 1 if last is None else int(_NUMBER.unpack(last[0])[0]) + 1
    change = Change(number, now_ms, command, reports, tuple(steps), undoes)
    put_link(txn, _NUMBER.pack(number), _encode_change(change, next_link(txn)))
    return number


def _encode_change(change: Change, previous: str) -> bytes:
    fields = {
        "time": change.time_ms,
        "command": change.command,
        "reports": list(change.reports),
        "steps": to_builtins(change.steps),
        "undoes": change.undoes,
        "previous": previous,
    }
    return zlib.compress(json.dumps(fields).encode())


def _decode_change(key: bytes, row: bytes) -> Change:
    try:
        fields = json.loads(zlib.decompress(row))
        return Change(
            _NUMBER.unpack(key)[0],
            fields["time"],
            fields["command"],
            tuple(fields["reports"]),
            tuple(_step_of(step) for step in fields["steps"]),
            fields["undoes"],
        )
    except (ValueError, KeyError, TypeError, RecursionError, struct.error, zlib.error) as error:
        raise IndexCorrupt(
            f"the audit record {key.hex()} is damaged: {reason_of(error)}",
            hint="undo of that change is lost; the others still work",
        ) from error


def _step_of(row: list[str | None]) -> Step:
    """Return the step in a row of an audit record; raises ValueError, TypeError."""
    step = convert(row, Step)
    if step.database not in DATABASES or not step.key:
        raise ValueError(f"a step without a key, or in no database: {step.database!r}")
    return step


# -- the chain of the audit log ----------------------------------------------------------------------------------------


CHAIN_HEAD = b"changes-head"
"""Key in ``state``: number u64 big-endian and digest of the last row."""


def next_link(txn: Txn) -> str:
    """Return the ``previous`` of the next row: a digest that chains it to the rows before it."""
    last = txn.last("changes")
    if last is not None and txn.get("state", CHAIN_HEAD) is not None:
        return _record_digest(*last).hex()
    return _sealed([_record_digest(key, row) for key, row in txn.items("changes")])


def put_link(txn: Txn, key: bytes, row: bytes) -> None:
    """Write a row of ``changes``, and record it as the last one of the chain."""
    txn.put("changes", key, row)
    txn.put("state", CHAIN_HEAD, key + _record_digest(key, row))


def iter_breaks(txn: Txn) -> Iterator[tuple[int, str]]:
    """Yield (change number, problem) for each break in the audit log's chain; raises IndexCorrupt."""
    digests: list[bytes] = []
    begun = False
    for key, row in txn.items("changes"):
        number = int.from_bytes(key, "big")
        if number != len(digests) + 1:
            yield len(digests) + 1, f"missing; the next one is change {number}"
            return
        link = _link_of(number, row)
        if link is not None or begun:
            expected = digests[-1].hex() if begun else _sealed(digests)
            begun = True
            if link != expected:
                yield number, "its digest does not match the records before it: one of them, or this one, was changed"
        digests.append(_record_digest(key, row))
    head = txn.get("state", CHAIN_HEAD)
    if (begun or head is not None) and head != len(digests).to_bytes(8, "big") + (digests[-1] if digests else b""):
        yield len(digests), "it is not the last change that was written: later ones are gone, or it was changed"


def check_unaltered(txn: Txn, number: int) -> None:
    """Raise IndexCorrupt unless the following row's ``previous`` matches the row of a change; rows older than the chain are accepted."""
    key = _NUMBER.pack(number)
    row = txn.get("changes", key) or b""
    following = txn.get("changes", (number + 1).to_bytes(8, "big"))
    head = txn.get("state", CHAIN_HEAD)
    link = _link_of(number + 1, following) if following is not None else head and head[8:].hex()
    if _link_of(number, row) is not None and link != _record_digest(key, row).hex():
        raise IndexCorrupt(
            f"the audit record of change {number} is not the one that was written",
            hint="nothing is undone by it; see: pulsar-admin store check",
            change=number,
        )


def _link_of(number: int, row: bytes | memoryview) -> object:
    try:
        return json.loads(zlib.decompress(row)).get("previous")
    except (ValueError, AttributeError, zlib.error, RecursionError) as error:
        raise IndexCorrupt(
            f"the audit record of change {number} is damaged: {reason_of(error)}", hint="undo of that change is lost"
        ) from error


def _record_digest(key: bytes, row: bytes | memoryview) -> bytes:
    from hashlib import sha256  # 2 ms, and most commands import this module for its Step alone

    return sha256(key + row).digest()


def _sealed(digests: list[bytes]) -> str:
    from hashlib import sha256

    return sha256(b"".join(digests)).hexdigest()
