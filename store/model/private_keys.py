"""The private keys of a consumer, with which the payloads of entries are opened. They stay in the process that read them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from pulsar_admin.store.codec.encryption import load_private_key, open_data_key, open_payload
from pulsar_admin.store.codec.message import EntryHeader, is_encrypted
from pulsar_admin.store.errors import EncryptedPayload, EntryCorrupt, InvalidValue
from pulsar_admin.store.extras import require
from pulsar_admin.store.files import open_file
from pulsar_admin.store.proto.pulsar_api_pb2 import MessageMetadata
from pulsar_admin.store.wording import counted

if TYPE_CHECKING:
    from pulsar_admin.store.codec.encryption import PrivateKey

_PEM_LIMIT_BYTES = 1 << 16
_CACHED = 4096  # data keys; a producer makes a new one every four hours


class PrivateKeys:
    """Opens entries. Which key is whose does not matter: a data key opens for one of them or for none."""

    def __init__(self, keys: Sequence[PrivateKey]) -> None:
        self._keys = tuple(keys)
        self._data_keys: dict[bytes, bytes | None] = {}

    def __repr__(self) -> str:
        return f"PrivateKeys({len(self._keys)})"

    def __reduce__(self) -> NoReturn:
        # No executor, plan or log gets them: entries that need them are read in this process.
        raise TypeError("private keys stay in the process that read them")

    def opened(self, header: EntryHeader, where: str) -> EntryHeader:
        """Return HEADER as if it had not been encrypted.

        Raises EncryptedPayload where no key is for it, EntryCorrupt where the payload does not match its tag.
        """
        metadata = header.metadata
        if not is_encrypted(metadata):
            return header
        data_keys = [found for found in map(self._data_key, (key.value for key in metadata.encryption_keys)) if found]
        for data_key in data_keys:
            plain = open_payload(data_key, metadata.encryption_param, header.payload)
            if plain is not None:
                clear = MessageMetadata()
                clear.CopyFrom(metadata)
                clear.ClearField("encryption_keys")
                return header._replace(metadata=clear, payload=memoryview(plain))
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
            found = (open_data_key(key, stored) for key in self._keys)
            self._data_keys[stored] = next((data_key for data_key in found if data_key), None)
        return self._data_keys[stored]


def read_private_keys(paths: Iterable[Path]) -> PrivateKeys | None:
    """Return the keys in the files PATHS, and in the files of directories among them; None for no paths.

    In a directory files without a private key are passed over. Raises InvalidValue, MissingComponent.
    """
    listed = list(paths)
    if not listed:
        return None
    require("cryptography", "--private-key")
    files = [file for path in listed for file in (_iter_keys(path) if path.is_dir() else [path])]
    return PrivateKeys([load_private_key(_read(file), str(file)) for file in files])


def _iter_keys(path: Path) -> list[Path]:
    """Return the files of a directory in which is a private key; raises InvalidValue where there is none."""
    found = [file for file in sorted(path.iterdir()) if file.is_file() and b"PRIVATE KEY-----" in _read(file)]
    if not found:
        raise InvalidValue(
            f"{path}: no file in it is a private key in PEM", hint="it has -----BEGIN … PRIVATE KEY-----"
        )
    return found


def _read(path: Path) -> bytes:
    try:
        with open_file(path) as file:
            return file.read(_PEM_LIMIT_BYTES)
    except OSError as error:
        raise InvalidValue(f"{path}: {error.strerror}", hint="--private-key takes a file, or a directory") from error
