"""Encrypted payloads, and the data keys beside them, as Pulsar's clients write them. Format: docs/formats/message.md.

Upstream: ``MessageCryptoBc`` (4.0.8), the C++ client's ``MessageCrypto``. The payload, compressed first, is AES-GCM with
``encryption_param`` for its nonce and its tag of 16 bytes after it. The data key lies in ``encryption_keys`` once for each key
name: encrypted with RSA (OAEP, SHA-1, MGF1), or on an elliptic curve with BouncyCastle's ECIES without a cipher (``IESEngine`` in
stream mode: KDF2 and HMAC of SHA-1, MAC key of 128 bits, no derivation and no encoding vector).

The ``cryptography`` package is imported on first use; private keys stay in this process.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from msgspec.structs import replace

from pulsar_admin.store.codec.message import EntryHeader, is_encrypted
from pulsar_admin.store.errors import EncryptedPayload, EntryCorrupt, InvalidValue
from pulsar_admin.store.extras import require
from pulsar_admin.store.files import open_file
from pulsar_admin.store.proto.pulsar_api_pb2 import MessageMetadata
from pulsar_admin.store.wording import counted

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
    """Return the RSA or EC key in a PEM text; raises InvalidValue, which reveals none of its bytes."""
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
        raise InvalidValue(f"{where}: expected a private key of RSA or of an elliptic curve, this one is neither")
    return key


def decrypt_data_key(key: PrivateKey, stored: bytes) -> bytes | None:
    """Return the data key that is encrypted for a private key; None if it is for another one, or damaged."""
    from cryptography.hazmat.primitives.asymmetric import padding
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.hashes import SHA1

    if len(stored) > _LIMIT_BYTES:
        return None
    if isinstance(key, EllipticCurvePrivateKey):
        return _decrypt_ecies(key, stored)
    try:
        return key.decrypt(stored, padding.OAEP(padding.MGF1(SHA1()), SHA1(), None))
    except ValueError:
        return None


def _decrypt_ecies(key: EllipticCurvePrivateKey, stored: bytes) -> bytes | None:
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
    # KDF2 of ISO 18033-2, with SHA-1.
    shared = point + secret
    size_bytes = _MAC_KEY_BYTES + len(sealed)
    blocks = range(1, size_bytes // 20 + 2)
    parts = (hashlib.sha1(shared + block.to_bytes(4), usedforsecurity=False).digest() for block in blocks)
    stream = b"".join(parts)[:size_bytes]
    expected = hmac.digest(stream[:_MAC_KEY_BYTES], sealed + _NO_VECTOR, "sha1")
    if not hmac.compare_digest(mac, expected):
        return None
    return bytes(one ^ other for one, other in zip(sealed, stream[_MAC_KEY_BYTES:], strict=True))


def _decrypt_payload(data_key: bytes, nonce: bytes, payload: bytes | memoryview) -> bytes | None:
    """Return the decrypted payload; None if its tag does not match: damaged, or of another data key."""
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    try:
        return AESGCM(data_key).decrypt(nonce, payload, None)
    except (InvalidTag, ValueError):
        return None


_PEM_LIMIT_BYTES = 1 << 16
_CACHED = 4096  # data keys; a producer makes a new one every four hours


class PrivateKeys:
    """Decrypts entries. Keys need no names: each one is tried on each data key."""

    def __init__(self, keys: Sequence[PrivateKey]) -> None:
        self._keys = tuple(keys)
        self._data_keys: dict[bytes, bytes | None] = {}

    def __repr__(self) -> str:
        return f"PrivateKeys({len(self._keys)})"

    def __reduce__(self) -> NoReturn:
        # No executor, plan or log gets them: entries that need them are read in this process.
        raise TypeError("private keys stay in the process that read them")

    def opened(self, header: EntryHeader, where: str) -> EntryHeader:
        """Return a header as if the entry had not been encrypted.

        Raises EncryptedPayload if no key opens it, EntryCorrupt if the payload does not match its tag.
        """
        metadata = header.metadata
        if not is_encrypted(metadata):
            return header
        data_keys = [found for found in map(self._data_key, (key.value for key in metadata.encryption_keys)) if found]
        for data_key in data_keys:
            plain = _decrypt_payload(data_key, metadata.encryption_param, header.payload)
            if plain is not None:
                clear = MessageMetadata()
                clear.CopyFrom(metadata)
                clear.ClearField("encryption_keys")
                return replace(header, metadata=clear, payload=memoryview(plain))
        if data_keys:
            raise EntryCorrupt(f"{where}: the encrypted payload does not match its tag: it is damaged")
        names = ", ".join(sorted({key.key for key in metadata.encryption_keys}))
        given = counted(len(self._keys), "private key that was given is", "private keys that were given are")
        raise EncryptedPayload(
            f"{where} is encrypted for {names}: {given} for none of these",
            hint=f"give --private-key the key of a consumer that reads {names}",
        )

    def _data_key(self, stored: bytes) -> bytes | None:
        if stored not in self._data_keys:
            if len(self._data_keys) >= _CACHED:
                self._data_keys.clear()
            data_keys = (decrypt_data_key(key, stored) for key in self._keys)
            self._data_keys[stored] = next((data_key for data_key in data_keys if data_key), None)
        return self._data_keys[stored]


def read_private_keys(paths: Iterable[Path]) -> PrivateKeys | None:
    """Return the keys in files, and in the files of directories; None for no paths.

    In a directory, files without a private key are skipped. Raises InvalidValue, MissingComponent.
    """
    listed = list(paths)
    if not listed:
        return None
    require("cryptography", "--private-key")
    files: list[Path] = []
    for path in listed:
        of_path = [path]
        if path.is_dir():
            of_path = [file for file in sorted(path.iterdir()) if file.is_file() and b"PRIVATE KEY-----" in _read(file)]
        if not of_path:
            raise InvalidValue(
                f"{path}: no file in it is a private key in PEM", hint="it has -----BEGIN … PRIVATE KEY-----"
            )
        files += of_path
    return PrivateKeys([load_private_key(_read(file), str(file)) for file in files])


def _read(path: Path) -> bytes:
    try:
        with open_file(path) as file:
            return file.read(_PEM_LIMIT_BYTES)
    except OSError as error:
        raise InvalidValue(f"{path}: {error.strerror}", hint="--private-key takes a file, or a directory") from error
