"""Entry digests and the ledger master key.

Source: ``org.apache.bookkeeper.proto.checksum`` (DigestManager, MacDigestManager, CRC32DigestManager,
CRC32CDigestManager, DummyDigestManager), BookKeeper 4.14 to 4.18.

The digest covers the 32 header bytes of an entry and its payload, skipping the digest itself. No password enters a
CRC. A digest authenticates nothing but HMAC's, and no entry is encrypted.

===========  =====  ==============================================================
type         bytes  value
===========  =====  ==============================================================
CRC32 (1)    8      i64: upper 4 bytes zero, lower 4 the CRC-32 of zlib
HMAC (2)     20     HMAC-SHA1 under the key SHA1("mac" + password)
CRC32C (3)   4      CRC-32C (Castagnoli)
DUMMY (4)    0      nothing: cannot be verified
===========  =====  ==============================================================
"""

import struct
import zlib
from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import assert_never, cast

_CRC32 = struct.Struct(">Q")
_CRC32C = struct.Struct(">I")


class DigestType(IntEnum):
    """``LedgerMetadataFormat.DigestType``; the API calls HMAC "MAC"."""

    CRC32 = 1
    HMAC = 2
    CRC32C = 3
    DUMMY = 4


DIGEST_SIZE: Mapping[DigestType, int] = MappingProxyType(
    {DigestType.CRC32: 8, DigestType.HMAC: 20, DigestType.CRC32C: 4, DigestType.DUMMY: 0}
)
"""Bytes a digest takes between the 32-byte header and the payload."""


def master_key(password: bytes) -> bytes:
    """Return the 20 bytes a bookie stores to recognise a ledger's writers."""
    import hashlib  # 2 ms, and hardly any ledger has a password

    return hashlib.sha1(b"ledger" + password).digest()


def compute_digest(
    kind: DigestType, header: bytes | memoryview, payload: bytes | memoryview, password: bytes = b""
) -> bytes:
    """Return the ``DIGEST_SIZE[kind]`` bytes over a 32-byte header and its payload; the password matters only to HMAC."""
    if kind is DigestType.CRC32C:
        # The library accepts bytes only, not views.
        import google_crc32c  # 2 ms; many questions read no entry

        crc = cast(int, google_crc32c.extend(google_crc32c.value(bytes(header)), bytes(payload)))
        return _CRC32C.pack(crc)
    if kind is DigestType.CRC32:
        return _CRC32.pack(zlib.crc32(payload, zlib.crc32(header)))
    if kind is DigestType.HMAC:
        import hashlib
        import hmac

        mac = hmac.new(hashlib.sha1(b"mac" + password).digest(), header, hashlib.sha1)
        mac.update(payload)
        return mac.digest()
    if kind is not DigestType.DUMMY:
        assert_never(kind)
    return b""
