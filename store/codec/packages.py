"""Packages of functions, sinks and sources as a broker keeps them in BookKeeper: streams of DistributedLog, and their descriptions.

Upstream: ``LogSegmentMetadata``, ``EnvelopedEntry``, ``LogRecord`` (DistributedLog 4.17, 4.18); ``PackageMetadata``, a serialized Java
object before Pulsar 5.0 and JSON since.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

from pulsar_admin.store.codec import compression
from pulsar_admin.store.codec.policies import decode_json_object
from pulsar_admin.store.errors import EntryCorrupt, MetadataCorrupt, Unsupported

_SEGMENT_PATH = re.compile("(/pulsar/(?:functions|packages)/.+)/<[^/]*>/ledgers/[^/]+", re.DOTALL)
_SEGMENT_VERSIONS = (4, 5)  # enveloped entries, before and after sequence ids
_COMPLETED = (10, 11)  # fields of a segment that was closed
_ENVELOPE, _RECORD = struct.Struct(">Biii"), struct.Struct(">qqi")
_CONTROL, _END_OF_STREAM, _RECORD_SET = 1, 2, 4
_JAVA_MAGIC = b"\xac\xed\x00\x05"
_NULL, _REFERENCE, _CLASS, _OBJECT, _STRING, _BLOCK, _END = 0x70, 0x71, 0x72, 0x73, 0x74, 0x77, 0x78
_FIRST_HANDLE, _DEPTH_LIMIT = 0x7E0000, 20
_FORMATS = {"B": ">b", "C": ">H", "D": ">d", "F": ">f", "I": ">i", "J": ">q", "S": ">h", "Z": ">?"}
"""Of Java's primitive types, by the letters of a class description."""


class LogSegment(NamedTuple):
    """A segment of a stream: its number, the ledger with its content, and the version of that content."""

    sequence: int
    ledger_id: int
    version: int

    def check(self, where: str) -> None:
        """Raise Unsupported if the ledger's content has an unknown version."""
        if self.version not in _SEGMENT_VERSIONS:
            raise Unsupported(f"{where}: a DistributedLog of version {self.version}", where=where, found=self.version)


def stream_of_path(path: str) -> str | None:
    """Return the path of the stream of which the node at ``path`` is a segment, None for any other node."""
    match = _SEGMENT_PATH.fullmatch(path)
    return None if match is None else match[1]


def decode_log_segment(value: bytes, where: str) -> LogSegment:
    """Return a decoded node of a segment; raises MetadataCorrupt."""
    try:
        numbers = [int(part) for part in value.decode("ascii").split(";")]
    except ValueError:
        numbers = []
    if len(numbers) < 4:
        raise MetadataCorrupt(f"{where}: no segment of a DistributedLog", where=where, found=value[:64].hex())
    return LogSegment(numbers[5 if len(numbers) in _COMPLETED else 3], numbers[1], numbers[0] & 0xFF)


def unknown_segment(value: bytes, where: str) -> tuple[str, ...]:
    """Return (): a decodable segment has no unknown part. Raises as ``decode_log_segment`` and ``check``."""
    decode_log_segment(value, where).check(where)
    return ()


def iter_records(payload: bytes | memoryview, where: str) -> Iterator[bytes | None]:
    """Yield the records in an entry of a stream, without control records; None stands for the end of the stream.

    Raises EntryCorrupt, Unsupported.
    """
    try:
        version, flags, size_bytes, stored_bytes = _ENVELOPE.unpack_from(payload)
        if version != 1:
            raise Unsupported(f"{where}: an entry of a DistributedLog of version {version}", where=where, found=version)
        stored = bytes(payload[_ENVELOPE.size : _ENVELOPE.size + stored_bytes])
        if len(stored) != stored_bytes:
            raise EntryCorrupt(f"{where}: {len(stored)} of {stored_bytes} bytes are stored", where=where)
        data = bytes(compression.decompress(flags & 3, stored, size_bytes, where=where))
        at = 0
        while at < len(data):
            metadata, _, length = _RECORD.unpack_from(data, at)
            at += _RECORD.size + length
            if length < 0 or at > len(data):
                raise EntryCorrupt(f"{where}: a record of {length} bytes goes beyond its entry", where=where)
            if metadata & _RECORD_SET:
                raise Unsupported(f"{where}: a set of records of a DistributedLog", where=where)
            if metadata & _END_OF_STREAM:
                yield None
            elif not metadata & _CONTROL:
                yield data[at - length : at]
    except struct.error as error:
        raise EntryCorrupt(f"{where}: no entry of a DistributedLog", where=where, size_bytes=len(payload)) from error


def decode_package_metadata(data: bytes, where: str) -> dict[str, Any]:  # Any: JSON
    """Return the description of a package, in whichever form it is; raises EntryCorrupt."""
    try:
        if data.startswith(_JAVA_MAGIC):
            content = _JavaObjects(data[len(_JAVA_MAGIC) :]).content()
            if isinstance(content, dict) and not all(map(_is_described, content, content.values())):
                raise _NoObject("its fields are neither texts nor numbers nor maps of texts")
        else:
            content = decode_json_object(data, where)
    except (struct.error, IndexError, TypeError, ValueError, _NoObject, MetadataCorrupt) as error:
        raise EntryCorrupt(f"{where}: no description of a package: {error}", where=where) from error
    if not isinstance(content, dict) or "description" not in content:
        raise EntryCorrupt(f"{where}: no description of a package", where=where)
    order = ("description", "contact", "createTime", "modificationTime", "properties")
    return {key: content[key] for key in (*order, *content) if content.get(key) is not None}


def _is_described(name: object, value: object) -> bool:
    """Whether a description may have the field. In a short stream, references may nest objects in themselves or repeat
    them endlessly."""
    if isinstance(value, dict):
        return all(isinstance(one, str | None) for pair in value.items() for one in pair)
    return isinstance(name, str) and isinstance(value, str | int | None)


class _NoObject(Exception):
    pass


class _Class(NamedTuple):
    fields: list[tuple[str, str]]  # type, name
    has_more: bool  # than its fields: what its own method wrote
    parent: _Class | None


class _JavaObjects:
    """Reads a stream of ``ObjectOutputStream``: strings as texts, objects as dicts of their fields, maps as dicts."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at, self._depth = data, 0, 0
        self._handles: list[Any] = []  # Any: texts, dicts and classes, as in the stream

    def _read(self, format_: str) -> Any:  # Any: of a type that FORMAT_ says
        (value,) = struct.unpack_from(format_, self._data, self._at)
        self._at += struct.calcsize(format_)
        return value

    def _text(self) -> str:
        size_bytes: int = self._read(">H")
        raw = self._data[self._at : self._at + size_bytes]
        self._at += size_bytes
        text = raw.replace(b"\xc0\x80", b"\0").decode("utf-8", "surrogatepass")  # Java's own form of UTF-8
        return text.encode("utf-16", "surrogatepass").decode("utf-16")

    def content(self) -> Any:  # Any: a text, a dict, bytes, a class, None, or _NoObject at an end
        """Return the next thing in the stream."""
        self._depth += 1
        if self._depth > _DEPTH_LIMIT:
            raise _NoObject(f"more than {_DEPTH_LIMIT} objects in each other")
        try:
            return self._content(self._read(">B"))
        finally:
            self._depth -= 1

    def _content(self, kind: int) -> Any:
        if kind == _NULL:
            return None
        if kind == _REFERENCE:
            return self._handles[self._read(">I") - _FIRST_HANDLE]
        if kind == _CLASS:
            return self._class()
        if kind == _OBJECT:
            return self._object()
        if kind == _STRING:
            self._handles.append(text := self._text())
            return text
        if kind == _BLOCK:
            size_bytes: int = self._read(">B")
            self._at += size_bytes
            return self._data[self._at - size_bytes : self._at]
        if kind == _END:
            return _NoObject
        raise _NoObject(f"type {kind:#04x}")

    def _class(self) -> _Class:
        self._text(), self._read(">q")
        place = len(self._handles)
        self._handles.append(None)
        flags: int = self._read(">B")
        fields = []
        for _ in range(self._read(">H")):
            letter, name = chr(self._read(">B")), self._text()
            fields.append((letter, name))
            if letter in "L[":
                self.content()
        while self.content() is not _NoObject:
            pass
        self._handles[place] = described = _Class(fields, bool(flags & 1), self.content())
        return described

    def _object(self) -> dict[str, Any]:
        members: dict[str, Any] = {}
        description = self.content()
        self._handles.append(members)
        chain: list[_Class] = []
        while isinstance(description, _Class):
            chain.insert(0, description)
            description = description.parent
        for one in chain:
            values = {
                name: self._read(_FORMATS[letter]) if letter in _FORMATS else self.content()
                for letter, name in one.fields
            }
            if one.has_more:  # of maps: how large they are, then keys and values in turn
                values = {}
                more = [part for part in iter(self.content, _NoObject) if not isinstance(part, bytes)]
                members.update(zip(more[::2], more[1::2], strict=True))
            elif len(chain) == 1:
                members.update(values)
        return members
