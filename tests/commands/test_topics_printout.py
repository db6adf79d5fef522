"""Messages as text. The dumps were printed by netty 4.1.128 (``ByteBufUtil.prettyHexDump``), which pulsar-admin 4.0.8 uses."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from pulsar_admin.commands.topics.printout import Printing, hex_dump, render_message
from pulsar_admin.store.model.messages import Message
from pulsar_admin.store.names import Position

HEAD = """\
         +-------------------------------------------------+
         |  0  1  2  3  4  5  6  7  8  9  a  b  c  d  e  f |
+--------+-------------------------------------------------+----------------+
"""
RULE = "+--------+-------------------------------------------------+----------------+"
COUNTING = bytes((37 * index + 10) % 256 for index in range(33))
DUMPS = {
    b"hi": "|00000000| 68 69                                           |hi              |\n",
    COUNTING[:15]: "|00000000| 0a 2f 54 79 9e c3 e8 0d 32 57 7c a1 c6 eb 10    |./Ty....2W|.... |\n",
    COUNTING[:16]: "|00000000| 0a 2f 54 79 9e c3 e8 0d 32 57 7c a1 c6 eb 10 35 |./Ty....2W|....5|\n",
    COUNTING: "|00000000| 0a 2f 54 79 9e c3 e8 0d 32 57 7c a1 c6 eb 10 35 |./Ty....2W|....5|\n"
    "|00000010| 5a 7f a4 c9 ee 13 38 5d 82 a7 cc f1 16 3b 60 85 |Z.....8].....;`.|\n"
    "|00000020| aa                                              |.               |\n",
}


@pytest.mark.parametrize("payload", DUMPS, ids=len)
def test_hex_dump(payload: bytes) -> None:
    assert "\n".join(hex_dump(payload)) == HEAD + DUMPS[payload] + RULE


def test_hex_dump_of_nothing() -> None:
    assert list(hex_dump(b"")) == []


def test_only_printable_ascii_is_text() -> None:
    shown = "".join(line[-17:-1] for line in list(hex_dump(bytes(range(256))))[3:-1])
    assert shown == "." * 32 + "".join(map(chr, range(0x20, 0x7F))) + "." * 129


MESSAGE = Message(Position(10, 3), 1_700_000_000_000, None, None, 0, None, None, "p", 4, {}, b"")


def test_least_message() -> None:
    assert render_message(MESSAGE) == "Message ID: 10:3\nPublish time: 1700000000000\nEvent time: 0\n\n"
    shown = render_message(MESSAGE, Printing(iso=True))
    assert shown == "Message ID: 10:3\nPublish time: 2023-11-14T22:13:20.000Z\nEvent time: 0\n\n"


def test_every_line() -> None:
    message = replace(
        MESSAGE,
        position=Position(10, 3, 0),
        broker_ms=1_700_000_000_003,
        broker_index=41,
        event_ms=7,
        properties={"key": "value", "bell": "\x07"},
        deliver_at_ms=1_700_000_005_000,
        marker_type=21,
    )
    assert render_message(message, Printing(redelivery=True, markers=True)) == (
        "Batch Message ID: 10:3:0\n"
        "Publish time: 1700000000000\n"
        "Event time: 7\n"
        "Redelivery count: 0\n"
        "Deliver at time: 1700000005000\n"
        "Marker Type: TXN_COMMIT\n"
        "Broker entry metadata timestamp: 1700000000003\n"
        "Broker entry metadata index: 41\n"
        "Properties:\n"
        "key    value\n"
        "bell    \\x07\n"
        "\n"
    )
