"""Encrypted payloads: those that the Java client's own class made (``tests/golden/encrypted``), whole and damaged."""

import base64
import pickle
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

pytest.importorskip("cryptography")

from pulsar_admin.store.codec.encryption import PrivateKeys, decrypt_data_key, load_private_key, read_private_keys
from pulsar_admin.store.codec.message import EntryHeader, decode_message_entry, encode_message_entry
from pulsar_admin.store.errors import EncryptedPayload, EntryCorrupt, InvalidValue
from pulsar_admin.store.proto.pulsar_api_pb2 import MessageMetadata

GOLDEN = Path(__file__).resolve().parent.parent / "golden" / "encrypted"


class Sealed(NamedTuple):
    names: list[str]
    metadata: MessageMetadata
    payload: bytes
    plain: bytes

    def header(self) -> EntryHeader:
        return decode_message_entry(encode_message_entry(self.metadata, self.payload), "entry 1:2")


def rows() -> list[Sealed]:
    found = []
    for line in (GOLDEN / "encrypted.tsv").read_text().splitlines():
        names, metadata, payload, plain = line.split("\t")
        decoded = MessageMetadata.FromString(base64.b64decode(metadata))
        found.append(Sealed(names.split(","), decoded, base64.b64decode(payload), plain.encode()))
    return found


def keys_of(*names: str) -> PrivateKeys:
    found = read_private_keys(GOLDEN / f"{name}.priv.pem" for name in names)
    assert found is not None
    return found


@pytest.mark.parametrize("name", ["rsa", "ec256", "ec521"])
def test_what_the_client_sealed_for_a_key_opens_with_it_and_with_no_other(name: str) -> None:
    keys = keys_of(name)
    opened = [row for row in rows() if name in row.names]
    assert len(opened) >= 2
    for row in opened:
        header = keys.opened(row.header(), "entry 1:2")
        assert bytes(header.payload) == row.plain
        assert not header.metadata.encryption_keys
        assert row.metadata.encryption_keys
    for row in rows():
        if name not in row.names:
            with pytest.raises(EncryptedPayload, match=f"encrypted for {row.names[0]}: 1 private key"):
                keys.opened(row.header(), "entry 1:2")


def test_a_directory_gives_all_its_keys(tmp_path: Path) -> None:
    for name in ("rsa", "ec256"):
        shutil.copy(GOLDEN / f"{name}.priv.pem", tmp_path)
    (tmp_path / "note.txt").write_text("no key")
    (tmp_path / "folder").mkdir()
    keys = read_private_keys([tmp_path])
    assert repr(keys) == "PrivateKeys(2)"
    assert [bytes(keys.opened(row.header(), "e").payload) for row in rows() if row.names != ["ec521"]] == [
        row.plain for row in rows() if row.names != ["ec521"]
    ]


@pytest.mark.parametrize("name", ["rsa", "ec256", "ec521"])
def test_a_damaged_payload_and_a_damaged_data_key_are_told_apart(name: str) -> None:
    row = next(row for row in rows() if row.names == [name])
    keys = keys_of(name)
    for at in range(len(row.payload)):
        payload = bytearray(row.payload)
        payload[at] ^= 1
        with pytest.raises(EntryCorrupt, match="does not match its tag"):
            keys.opened(row._replace(payload=bytes(payload)).header(), "entry 1:2")
    stored = row.metadata.encryption_keys[0].value
    private = load_private_key((GOLDEN / f"{name}.priv.pem").read_bytes(), name)
    assert decrypt_data_key(private, stored) is not None
    for at in range(0, len(stored), 7):
        assert decrypt_data_key(private, stored[:at] + bytes([stored[at] ^ 0x10]) + stored[at + 1 :]) is None
        assert decrypt_data_key(private, stored[:at]) is None
    assert decrypt_data_key(private, bytes(100_000)) is None


def test_keys_do_not_leave_the_process() -> None:
    with pytest.raises(TypeError, match="stay in the process"):
        pickle.dumps(keys_of("rsa"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"", "no private key in PEM"),
        (b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", "no private key in PEM"),
        (b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "no private key in PEM"),
    ],
)
def test_what_is_no_key(text: bytes, said: str, tmp_path: Path) -> None:
    file = tmp_path / "key.pem"
    file.write_bytes(text)
    with pytest.raises(InvalidValue, match=said) as raised:
        read_private_keys([file])
    assert "AAAA" not in str(raised.value)


def test_other_kinds_of_keys_are_refused(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import (
        BestAvailableEncryption,
        Encoding,
        NoEncryption,
        PrivateFormat,
    )

    key = Ed25519PrivateKey.generate()
    (tmp_path / "ed").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    (tmp_path / "locked").write_bytes(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"word"))
    )
    (tmp_path / "empty").mkdir()
    for name, said in (
        ("ed", "neither"),
        ("locked", "passphrase"),
        ("none", "No such file"),
        ("empty", "no file in it"),
    ):
        with pytest.raises(InvalidValue, match=said):
            read_private_keys([tmp_path / name])
