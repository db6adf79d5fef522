"""The message that a subscription is to be given next: the first one that is not acknowledged."""

from msgspec import Struct

from pulsar_admin.store.codec.buffer import signed
from pulsar_admin.store.codec.cursor import CursorState
from pulsar_admin.store.codec.message import is_batch, is_marker, transaction_id
from pulsar_admin.store.model.messages import MARKER_NAMES, MessageReader, explode
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.names import Position

_WORD_BITS = 64


class NextMessage(Struct, frozen=True):
    """The first entry of a backlog. ``left_in_batch``: unacknowledged messages of its batch, None if that is all of them.

    ``deliver_at_ms``: 0 if it is not delayed.
    """

    position: Position
    publish_ms: int
    broker_ms: int | None
    producer: str
    key: str | None
    sequence_id: int
    deliver_at_ms: int
    transaction: tuple[int, int] | None
    marker: str | None
    batch_size: int
    left_in_batch: int | None
    encrypted: bool

    @property
    def born_ms(self) -> int:
        """What a TTL counts from: the broker's time, else that of the publisher."""
        return self.publish_ms if self.broker_ms is None else self.broker_ms


def read_next_message(reader: EntryReader, state: CursorState, position: Position) -> NextMessage:
    """Return the entry at ``position``, the first that is not acknowledged in ``state``; raises ``store.model.messages.ENTRY_ERRORS``."""
    header = MessageReader(reader).read_header(position)
    metadata = header.metadata
    words = state.batch_deletes.get(position)
    # The first message whose bit is set in the words: it is not acknowledged.
    messages = [] if is_marker(metadata) else list(explode(header, position))
    left = [word & (1 << _WORD_BITS) - 1 for word in words or ()]
    first = messages[0] if messages else None
    for message in messages if words else ():
        place, bit = divmod(max(message.position.batch_index, 0), _WORD_BITS)
        if place < len(left) and left[place] >> bit & 1:
            first = message
            break
    return NextMessage(
        position,
        signed(metadata.publish_time),
        None if header.broker is None or header.broker.timestamp_ms is None else signed(header.broker.timestamp_ms),
        metadata.producer_name,
        first.key if first is not None else None,
        signed(first.sequence_id if first is not None else metadata.sequence_id),
        first.deliver_at_ms if first is not None else 0,
        transaction_id(metadata),
        MARKER_NAMES.get(metadata.marker_type, str(metadata.marker_type)) if is_marker(metadata) else None,
        metadata.num_messages_in_batch if is_batch(metadata) else 0,
        sum(word.bit_count() for word in left) if words else None,
        first is not None and first.encrypted,
    )
