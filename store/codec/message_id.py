"""Message ids as clients serialize them: ``MessageIdData`` of PulsarApi.proto (``MessageId.toByteArray``, Pulsar 4.0.8)."""

from __future__ import annotations

from google.protobuf.message import DecodeError

from pulsar_admin.store.codec.buffer import signed
from pulsar_admin.store.names import Position
from pulsar_admin.store.proto.pulsar_api_pb2 import MessageIdData


def decode_message_id(data: bytes) -> Position:
    """Return where the message lies, of a batch with its index; raises ValueError.

    ``MessageId.earliest`` is −1:−1, ``MessageId.latest`` the greatest long twice.
    """
    try:
        found = MessageIdData.FromString(data)
    except DecodeError as error:
        raise ValueError(f"no message id: {error}") from error
    if not found.IsInitialized():
        raise ValueError("no whole message id: it lacks its ledger or its entry")
    return Position(signed(found.ledgerId), signed(found.entryId), found.batch_index)
