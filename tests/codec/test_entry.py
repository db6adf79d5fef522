"""Entry bodies: vectors, round trips, damage."""

import pytest

from pulsar_admin.store.codec.digest import DIGEST_SIZE, DigestType, compute_digest, master_key
from pulsar_admin.store.codec.entry import Entry, decode_entry, find_digest_type
from pulsar_admin.store.errors import EntryCorrupt
from tests.codec.bookkeeper_vectors import EMPTY_PASSWORD_KEY, KNOWN, SEALED_LOG, Known, header_bytes_of
from tests.encoders import encode_entry

SECRET = b"secret"


def _body(known: Known) -> bytes:
    return SEALED_LOG[known.offset + 4 : known.offset + 4 + known.size]


@pytest.mark.parametrize("digest_type", [DigestType.CRC32C, None])
@pytest.mark.parametrize("known", KNOWN, ids=lambda known: f"{known.ledger_id}:{known.entry_id}")
def test_sample_log(known: Known, digest_type: DigestType | None) -> None:
    entry = decode_entry(_body(known), digest_type, where="1.log")
    assert entry == Entry(
        known.ledger_id,
        known.entry_id,
        known.last_add_confirmed,
        known.length,
        DigestType.CRC32C,
        memoryview(known.payload),
    )
    assert encode_entry(entry) == _body(known)


@pytest.mark.parametrize(
    ("digest_type", "password", "tail"),
    [
        (DigestType.CRC32, b"", "0000000078544baa61"),
        (DigestType.HMAC, b"", "57dcc4d6d02ccd44a8ef58f411bc2fa212201e5361"),
        (DigestType.HMAC, SECRET, "a0f978d790a5fa13ab2e3534cd29aa2d1a9dd7ce61"),
        (DigestType.DUMMY, b"", "61"),
    ],
)
def test_other_digests_of_entry_1_0(digest_type: DigestType, password: bytes, tail: str) -> None:
    body = header_bytes_of(KNOWN[0]) + bytes.fromhex(tail)
    entry = decode_entry(body, digest_type, where="x", password=password)
    assert (bytes(entry.payload), entry.digest_type) == (b"a", digest_type)
    assert encode_entry(entry, password) == body
    found = None if digest_type is DigestType.DUMMY else digest_type
    assert find_digest_type(body, password) == found


def test_inference_fails_without_the_password_and_says_so() -> None:
    body = header_bytes_of(KNOWN[0]) + bytes.fromhex("a0f978d790a5fa13ab2e3534cd29aa2d1a9dd7ce61")
    with pytest.raises(EntryCorrupt, match="x: entry 1:0: CRC32C digest is a0f978d7, computed "):
        decode_entry(body, None, where="x")


def test_a_wrong_digest_names_where_expected_and_found() -> None:
    body = _body(KNOWN[0])[:-1] + b"`"
    with pytest.raises(EntryCorrupt) as caught:
        decode_entry(body, DigestType.CRC32C, where="1.log @ 0x400")
    assert caught.value.context["where"] == "1.log @ 0x400: entry 1:0"
    assert caught.value.context["found"] == "504955ed"
    assert caught.value.context["expected"] != "504955ed"
    assert bytes(decode_entry(body, DigestType.CRC32C, where="x", verify=False).payload) == b"`"


@pytest.mark.parametrize("digest_type", [DigestType.CRC32C, DigestType.CRC32, DigestType.HMAC])
def test_every_flipped_bit_is_detected(digest_type: DigestType) -> None:
    entry = Entry(1, 2, 1, 3, digest_type, memoryview(b"abc"))
    body = encode_entry(entry)
    for bit in range(8 * len(body)):
        damaged = bytearray(body)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(EntryCorrupt):
            decode_entry(bytes(damaged), digest_type, where="x")
        with pytest.raises(EntryCorrupt):
            decode_entry(bytes(damaged), None, where="x")


def test_every_truncation_is_detected() -> None:
    body = _body(KNOWN[3])
    for size in range(len(body)):
        with pytest.raises(EntryCorrupt):
            decode_entry(body[:size], DigestType.CRC32C, where="x")
    with pytest.raises(EntryCorrupt, match="wanted 52 bytes, got 42"):
        decode_entry(body, DigestType.HMAC, where="x", verify=False)


# -- digests and the master key, against independent vectors --------------------------------------------------------


@pytest.mark.parametrize("known", KNOWN, ids=lambda known: f"{known.ledger_id}:{known.entry_id}")
def test_crc32c_of_the_sample_log(known: Known) -> None:
    assert compute_digest(DigestType.CRC32C, header_bytes_of(known), known.payload).hex() == known.crc32c


@pytest.mark.parametrize(
    ("kind", "password", "expected"),
    [
        (DigestType.CRC32, b"", "0000000078544baa"),
        (DigestType.CRC32, b"secret", "0000000078544baa"),
        (DigestType.CRC32C, b"secret", "504955ed"),
        (DigestType.HMAC, b"", "57dcc4d6d02ccd44a8ef58f411bc2fa212201e53"),
        (DigestType.HMAC, b"secret", "a0f978d790a5fa13ab2e3534cd29aa2d1a9dd7ce"),
        (DigestType.DUMMY, b"", ""),
    ],
)
def test_every_type_of_entry_1_0(kind: DigestType, password: bytes, expected: str) -> None:
    digest = compute_digest(kind, memoryview(header_bytes_of(KNOWN[0])), memoryview(b"a"), password)
    assert digest.hex() == expected
    assert len(digest) == DIGEST_SIZE[kind]


def test_castagnoli_check_value() -> None:
    assert compute_digest(DigestType.CRC32C, b"1234", b"56789").hex() == "e3069283"
    assert compute_digest(DigestType.CRC32, b"1234", b"56789").hex() == "00000000cbf43926"


def test_master_keys() -> None:
    assert master_key(b"") == EMPTY_PASSWORD_KEY
    assert master_key(b"secret").hex() == "e793cbc379107648537183605cd361d3bb789a39"
