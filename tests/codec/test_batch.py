from __future__ import annotations

import pytest

from pulsar_admin.store.codec.batch import encode_batch, iter_batch, last_index, placeholder
from pulsar_admin.store.errors import EntryCorrupt
from pulsar_admin.store.proto.pulsar_api_pb2 import SingleMessageMetadata

VECTOR_3 = bytes.fromhex("00000006 12026b30 18027630 00000006 12026b31 18027631")
VECTOR_5 = bytes.fromhex("00000004 18002001 00000006 12026b31 18027631")
SLOT_1 = VECTOR_3[12:]


def _read(data: bytes, count: int, indexes: tuple[int, ...] = (), **options: bool) -> list[tuple[int, str, bytes]]:
    return [
        (message.index, message.metadata.partition_key, bytes(message.payload))
        for message in iter_batch(data, count, "10:1", indexes, **options)
    ]


def test_vector_3() -> None:
    assert _read(VECTOR_3, 2) == [(0, "k0", b"v0"), (1, "k1", b"v1")]
    assert last_index(VECTOR_3, 2, "10:1") == 1
    assert encode_batch(iter_batch(VECTOR_3, 2, "10:1")) == VECTOR_3


def test_vector_5_with_and_without_the_retained_indexes() -> None:
    for indexes in ((), (1,)):
        assert _read(VECTOR_5, 2, indexes) == [(1, "k1", b"v1")]
        assert last_index(VECTOR_5, 2, "10:1", indexes) == 1
    assert _read(VECTOR_5, 2, placeholders=True) == [(0, "", b""), (1, "k1", b"v1")]
    kept = SingleMessageMetadata(partition_key="k1")
    assert encode_batch([placeholder(), (kept, b"v1")]) == VECTOR_5


def test_only_the_retained_messages_are_there() -> None:
    """The other reading of the proposal: four messages, only index 1 kept, no placeholders."""
    assert _read(SLOT_1, 4, (1,)) == [(1, "k1", b"v1")]
    assert _read(VECTOR_3, 4, (0, 2)) == [(0, "k0", b"v0"), (2, "k1", b"v1")]
    assert last_index(VECTOR_3, 4, "10:1", (0, 2)) == 2


def test_nothing_left() -> None:
    gone = VECTOR_5[:8] * 2
    assert _read(gone, 2) == []
    assert last_index(gone, 2, "10:1") is None


@pytest.mark.parametrize(
    ("data", "count", "indexes"),
    [
        (VECTOR_3, 3, ()),
        (VECTOR_3, 1, ()),
        (VECTOR_3, 0, ()),
        (VECTOR_3, -1, ()),
        (b"", 1, ()),
        (VECTOR_3, 4, (1,)),
        (VECTOR_3, 4, (0, 1, 2)),
        (VECTOR_3, 4, (2, 1)),
        (VECTOR_3, 4, (1, 1)),
        (VECTOR_3, 4, (1, 4)),
        (VECTOR_3, 4, (-1, 1)),
    ],
)
def test_counts_that_disagree(data: bytes, count: int, indexes: tuple[int, ...]) -> None:
    with pytest.raises(EntryCorrupt, match="10:1"):
        _read(data, count, indexes)


@pytest.mark.parametrize("size", [size for size in range(1, 24) if size != 12])
def test_cut_anywhere(size: int) -> None:
    with pytest.raises(EntryCorrupt, match="10:1"):
        _read(VECTOR_3[:size], 2)


@pytest.mark.parametrize("slot", ["00000002 187f", "0000000b 18ffffffffffffffffff01", "00000003 120161", "ffffffff"])
def test_slots_that_lie(slot: str) -> None:
    with pytest.raises(EntryCorrupt):
        _read(bytes.fromhex(slot), 1)
