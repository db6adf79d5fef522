"""Digests and the master key against independent vectors."""

from __future__ import annotations

import pytest

from pulsar_admin.store.codec.digest import DIGEST_SIZE, DigestType, compute_digest, master_key
from tests.codec.bookkeeper_vectors import EMPTY_PASSWORD_KEY, KNOWN, Known, header_bytes_of


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
