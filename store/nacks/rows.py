"""Columns a caller gave → checked 64-bit columns → sorted groups without doubles."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pulsar_admin.store.errors import InvalidValue
from pulsar_admin.store.nacks.bitmaps import Int64s
from pulsar_admin.store.names import LONG_MAX


def check_column(name: str, values: npt.ArrayLike) -> Int64s:
    """Return VALUES (a column or one number) as int64; raises InvalidValue unless all are whole, 0 to 2^63 - 1."""
    try:
        column = np.asarray(values)
    except (ValueError, OverflowError) as error:
        raise _invalid(name, str(error)) from error
    if column.size == 0:
        return column.astype(np.int64)
    if column.dtype.kind not in "iu":
        raise _invalid(name, f"{column.dtype} is not a column of 64-bit integers")
    if int(column.min()) < 0:
        raise _invalid(name, f"{int(column.min())} is negative")
    if int(column.max()) > LONG_MAX:
        raise _invalid(name, f"{int(column.max())} is beyond 2^63 - 1")
    return column.astype(np.int64, copy=False)


def add_times(delays: Int64s, now: Int64s) -> Int64s:
    """Return the due times; raises InvalidValue when one is beyond 64 bits."""
    if delays.ndim and now.ndim and delays.shape != now.shape:
        raise InvalidValue("columns of different lengths", hint="give one delay and one time per entry")
    if delays.size and now.size and int(delays.max()) + int(now.max()) > LONG_MAX and (delays > LONG_MAX - now).any():
        raise _invalid("delay", "time + delay is beyond 2^63 - 1")
    return delays + now


def group_rows(
    buckets: Int64s, ledgers: Int64s, entries: Int64s, precision_bits: int
) -> tuple[Int64s, Int64s, Int64s, Int64s]:
    """Sort rows, drop doubles; return per group bucket and ledger, then the groups' starts and all entry ids.

    The columns are of one length, not empty. Group i holds ``entry_ids[starts[i]:starts[i + 1]]``.
    """
    packed = _pack(buckets, ledgers, entries, precision_bits)
    if packed is not None:
        return packed
    order = np.lexsort((entries, ledgers, buckets))
    buckets, ledgers, entries = buckets[order], ledgers[order], entries[order]
    changed = (buckets[1:] != buckets[:-1]) | (ledgers[1:] != ledgers[:-1])
    fresh = _rows_after(changed | (entries[1:] != entries[:-1]))
    buckets, ledgers, entries = buckets[fresh], ledgers[fresh], entries[fresh]
    firsts = _rows_after((buckets[1:] != buckets[:-1]) | (ledgers[1:] != ledgers[:-1]))
    return buckets[firsts], ledgers[firsts], np.append(firsts, len(entries)), entries


def _pack(
    buckets: Int64s, ledgers: Int64s, entries: Int64s, precision_bits: int
) -> tuple[Int64s, Int64s, Int64s, Int64s] | None:
    """The same through one 63-bit number a row, which sorts several times faster; None when it does not fit."""
    bucket_base, ledger_base, entry_base = int(buckets.min()), int(ledgers.min()), int(entries.min())
    ledger_bits = (int(ledgers.max()) - ledger_base).bit_length()
    entry_bits = (int(entries.max()) - entry_base).bit_length()
    bucket_bits = ((int(buckets.max()) - bucket_base) >> precision_bits).bit_length()
    if bucket_bits + ledger_bits + entry_bits > 63:
        return None
    keys = buckets - bucket_base
    keys >>= precision_bits
    keys <<= ledger_bits
    keys |= ledgers - ledger_base
    keys <<= entry_bits
    keys |= entries - entry_base
    increasing = keys[1:] > keys[:-1]
    if not increasing.all():
        keys.sort()
        keys = keys[_rows_after(keys[1:] != keys[:-1])]
    groups = keys >> entry_bits
    firsts = _rows_after(groups[1:] != groups[:-1])
    groups = groups[firsts]
    keys &= (1 << entry_bits) - 1
    keys += entry_base
    return (
        ((groups >> ledger_bits) << precision_bits) + bucket_base,
        (groups & ((1 << ledger_bits) - 1)) + ledger_base,
        np.append(firsts, len(keys)),
        keys,
    )


def _rows_after(changed: npt.NDArray[np.bool_]) -> Int64s:
    """Row 0 and every row that differs from the one before; ``changed[i]`` speaks of row i + 1."""
    return np.concatenate((np.zeros(1, dtype=np.int64), np.flatnonzero(changed) + 1))


def _invalid(name: str, what: str) -> InvalidValue:
    return InvalidValue(f"invalid {name}: {what}", hint="whole numbers from 0 to 2^63 - 1", column=name)
