"""Bytes that the product writes and never reads: a bookie's marks and what it keeps about a ledger."""

import struct

from pulsar_admin.store.codec.bookie import LogMark
from pulsar_admin.store.codec.dbledger import LedgerData
from pulsar_admin.store.proto import bookkeeper_pb2

_MARK = struct.Struct(">qq")
_LEDGER_KEY = struct.Struct(">q")


def decode_last_mark(data: bytes) -> LogMark:
    """Return the mark in the file ``lastMark``."""
    return LogMark(*_MARK.unpack(data))


def decode_ledgers_row(key: bytes, value: bytes) -> tuple[int, LedgerData]:
    """Return ledger id and data of a row of ``ledgers``."""
    message = bookkeeper_pb2.LedgerData.FromString(value)
    return _LEDGER_KEY.unpack(key)[0], LedgerData(
        exists=message.exists,
        fenced=message.fenced,
        master_key=message.masterKey,
        explicit_lac=message.explicitLac if message.HasField("explicitLac") else None,
        limbo=message.limbo if message.HasField("limbo") else None,
    )
