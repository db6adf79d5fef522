"""Encrypted payloads, and the data keys beside them, as Pulsar's clients write them. Format: docs/formats/message.md.

Upstream: ``MessageCryptoBc`` (4.0.8), the C++ client's ``MessageCrypto``. The payload, compressed first, is AES-GCM with
``encryption_param`` for its nonce and its tag of 16 bytes behind it. The data key lies in ``encryption_keys`` once for each key
name: encrypted with RSA (OAEP, SHA-1, MGF1), or on an elliptic curve with BouncyCastle's ECIES without a cipher (``IESEngine`` in
stream mode: KDF2 and HMAC of SHA-1, MAC key of 128 bits, no derivation and no encoding vector).

The ``cryptography`` package does the work and is imported when there is some; private keys stay in this process.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import TYPE_CHECKING

from pulsar_admin.store.errors import InvalidValue

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

    PrivateKey = RSAPrivateKey | EllipticCurvePrivateKey

_MAC_KEY_BYTES = 16
_MAC_BYTES = 20
_NO_VECTOR = bytes(8)  # the length of an encoding vector that is not there
_LIMIT_BYTES = 4096  # of an encrypted data key
_WHOLE_POINT = (4, 6, 7)  # of a point's first byte: both coordinates follow


def load_private_key(pem: bytes, where: str) -> PrivateKey:
    """Return the RSA or EC key in PEM text; raises InvalidValue, which says nothing of its bytes."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key(pem, None)
    except TypeError:
        hint = "write it without one, for this: openssl pkey -in FILE -out NEW"
        raise InvalidValue(f"{where}: the private key has a passphrase", hint=hint) from None
    except (ValueError, UnsupportedAlgorithm):
        hint = "give the consumer's own key in PEM: -----BEGIN … PRIVATE KEY-----"
        raise InvalidValue(f"{where}: no private key in PEM", hint=hint) from None
    if not isinstance(key, (RSAPrivateKey, EllipticCurvePrivateKey)):
        raise InvalidValue(f"{where}: a private key of RSA or of an elliptic curve is wanted, this one is neither")
    return key


def open_data_key(key: PrivateKey, stored: bytes) -> bytes | None:
    """Return the data key that is STORED for KEY; None where it is for another one, or damaged."""
    from cryptography.hazmat.primitives.asymmetric import padding
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.hashes import SHA1

    if len(stored) > _LIMIT_BYTES:
        return None
    if isinstance(key, EllipticCurvePrivateKey):
        return _open_ecies(key, stored)
    try:
        return key.decrypt(stored, padding.OAEP(padding.MGF1(SHA1()), SHA1(), None))
    except ValueError:
        return None


def _open_ecies(key: EllipticCurvePrivateKey, stored: bytes) -> bytes | None:
    """Undo ``IESEngine``: a point, the data key XORed with a stream of the shared secret, a MAC."""
    from cryptography.hazmat.primitives.asymmetric.ec import ECDH, EllipticCurvePublicKey

    width = (key.key_size + 7) // 8
    end = 1 + width * (2 if stored[:1] and stored[0] in _WHOLE_POINT else 1)
    point, sealed, mac = stored[:end], stored[end:-_MAC_BYTES], stored[-_MAC_BYTES:]
    if not sealed or len(mac) < _MAC_BYTES:
        return None
    whole = b"\4" + point[1:] if point[0] in _WHOLE_POINT else point
    try:
        secret = key.exchange(ECDH(), EllipticCurvePublicKey.from_encoded_point(key.curve, whole))
    except ValueError:
        return None
    stream = _kdf2(point + secret, _MAC_KEY_BYTES + len(sealed))
    expected = hmac.digest(stream[:_MAC_KEY_BYTES], sealed + _NO_VECTOR, "sha1")
    if not hmac.compare_digest(mac, expected):
        return None
    return bytes(one ^ other for one, other in zip(sealed, stream[_MAC_KEY_BYTES:], strict=True))


def _kdf2(secret: bytes, size_bytes: int) -> bytes:
    """Return bytes derived by KDF2 of ISO 18033-2 with SHA-1."""
    blocks = range(1, size_bytes // 20 + 2)
    parts = (hashlib.sha1(secret + block.to_bytes(4), usedforsecurity=False).digest() for block in blocks)
    return b"".join(parts)[:size_bytes]


def open_payload(data_key: bytes, nonce: bytes, payload: bytes | memoryview) -> bytes | None:
    """Return the plain payload; None where its tag does not match, and so it is damaged, or of another data key."""
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    try:
        return AESGCM(data_key).decrypt(nonce, payload, None)
    except (InvalidTag, ValueError):
        return None
