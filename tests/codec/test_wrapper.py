from __future__ import annotations

import pytest

from pulsar_admin.store.codec.wrapper import PLAIN, Kind, Wrapping, unwrap, wrap
from pulsar_admin.store.errors import LimitExceeded, MetadataCorrupt, Unsupported

VECTOR_7 = bytes.fromhex("0a0e080a100518f4032080d095ffbc31 0a04080b2000")
VECTOR_8 = bytes.fromhex("4778 00000004 08011016 f007 0a0e080a100518f4032080d095ffbc310a04080b2000")
KINDS: tuple[Kind, ...] = ("managed-ledger", "cursor")


@pytest.mark.parametrize("kind", KINDS)
def test_vector(kind: Kind) -> None:
    assert unwrap(VECTOR_8, kind, "/path") == (VECTOR_7, Wrapping(1))
    assert unwrap(VECTOR_7, kind, "/path") == (VECTOR_7, PLAIN)
    assert unwrap(b"", kind, "/path") == (b"", PLAIN)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("compression", range(5))
def test_every_codec(kind: Kind, compression: int) -> None:
    value = wrap(VECTOR_7 * 100, Wrapping(compression), kind)
    assert (value[:2] == b"\x47\x78") == (compression != 0)
    assert unwrap(value, kind, "/path") == (VECTOR_7 * 100, Wrapping(compression))


def test_a_wrapped_none_is_read_and_written_plain() -> None:
    value = bytes.fromhex("4778 00000004 08001016") + VECTOR_7
    assert unwrap(value, "cursor", "/path") == (VECTOR_7, PLAIN)


@pytest.mark.parametrize("size", range(2, len(VECTOR_8)))
def test_cut_anywhere(size: int) -> None:
    with pytest.raises(MetadataCorrupt, match="/path"):
        unwrap(VECTOR_8[:size], "managed-ledger", "/path")


def test_an_unknown_codec() -> None:
    with pytest.raises(Unsupported):
        unwrap(bytes.fromhex("4778 00000004 08071016 00"), "cursor", "/path")


def test_a_size_beyond_the_limit() -> None:
    with pytest.raises(LimitExceeded):
        unwrap(bytes.fromhex("4778 00000008 080110ffffffff07 00"), "cursor", "/path")
