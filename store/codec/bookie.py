"""Small files of a bookie's ``current`` directories.

Source: ``Cookie``, ``LogMark``, ``LedgerDirUtil``; BookKeeper 4.14 to 4.18.

=================  ============================================================================================
file               content
=================  ============================================================================================
``VERSION``        cookie: decimal layout version LF, then by version: 3: bookie id LF journal directories LF
                   ledger directories LF; 4 and 5: CookieFormat in protobuf's text format
``lastMark``       journalId i64, offset i64 (``lastMark.<i>`` with several journal directories)
``lastId``         newest allocated entry-log id: hex, LF
=================  ============================================================================================

In a cookie, journal directories are joined by commas; ledger and index directories are a count, then each directory,
all separated by TAB.
"""

import re
import struct

from msgspec import Struct

from pulsar_admin.store.codec.protobuf import parse_text, render_text
from pulsar_admin.store.codec.strict_values import parse_integer
from pulsar_admin.store.errors import MetadataCorrupt, Unsupported
from pulsar_admin.store.proto.bookkeeper_pb2 import CookieFormat

COOKIE_FILE = "VERSION"
LAST_MARK_FILE = "lastMark"
PUT_ASIDE = "-before-salvage"
"""The end of the names that salvage gives what it replaces."""
LAST_MARK_BYTES = 16
LAST_ID_FILE = "lastId"

_TEXT_COOKIE_VERSION = 3
_PROTO_COOKIE_VERSIONS = (4, 5)
_FIRST_INDEX_DIRS_VERSION = 5

_MARK = struct.Struct(
    ">q"  # journalId
    "q"  #  offset
)


class Cookie(Struct, frozen=True):
    """Who a bookie is: ``bookie_id`` is its name in ensembles; the order of ``ledger_dirs`` assigns ledgers to them."""

    layout_version: int
    bookie_id: str
    journal_dirs: tuple[str, ...]
    ledger_dirs: tuple[str, ...]
    instance_id: str | None = None
    index_dirs: tuple[str, ...] | None = None


class LogMark(Struct, frozen=True, order=True):
    """Journal id and byte offset before which everything is in entry logs; of several copies the greatest holds."""

    journal_id: int
    offset: int


def decode_cookie(data: bytes, where: str) -> Cookie:
    """Return the decoded cookie; raises MetadataCorrupt, or Unsupported for another layout version than 3, 4, 5."""
    first, _, rest = data.partition(b"\n")
    if not re.fullmatch(rb"\d{1,9}", first.strip()):
        shown = first[:40].hex() if data else "an empty file"
        raise MetadataCorrupt.expected(where, "first line of a cookie", "a layout version", shown)
    version = int(first)
    if version == _TEXT_COOKIE_VERSION:
        lines = rest.decode("utf-8", "replace").split("\n")
        if len(lines) < 3:
            raise MetadataCorrupt.expected(where, "lines of a cookie", 3, len(lines))
        return Cookie(_TEXT_COOKIE_VERSION, lines[0], tuple(lines[1].split(",")), _decode_dirs(lines[2], where))
    if version not in _PROTO_COOKIE_VERSIONS:
        raise Unsupported(f"{where}: cookie layout version {version}, known are 3 to 5", where=where, version=version)
    message = parse_text(CookieFormat, rest, where)
    return Cookie(
        layout_version=version,
        bookie_id=message.bookieHost,
        journal_dirs=tuple(message.journalDir.split(",")),
        ledger_dirs=_decode_dirs(message.ledgerDirs, where),
        instance_id=message.instanceId or None,
        index_dirs=_decode_dirs(message.indexDirs, where) if message.indexDirs else None,
    )


def encode_cookie(cookie: Cookie) -> bytes:
    """Return the bytes of a cookie; versions 3 and 4 have no room for index directories, 3 none for the instance id."""
    journal_dirs = ",".join(cookie.journal_dirs)
    ledger_dirs = _encode_dirs(cookie.ledger_dirs)
    head = b"%d\n" % cookie.layout_version
    if cookie.layout_version == _TEXT_COOKIE_VERSION:
        return head + f"{cookie.bookie_id}\n{journal_dirs}\n{ledger_dirs}\n".encode()
    message = CookieFormat(bookieHost=cookie.bookie_id, journalDir=journal_dirs, ledgerDirs=ledger_dirs)
    if cookie.instance_id is not None:
        message.instanceId = cookie.instance_id
    if cookie.index_dirs is not None and cookie.layout_version >= _FIRST_INDEX_DIRS_VERSION:
        message.indexDirs = _encode_dirs(cookie.index_dirs)
    return head + render_text(message)


def encode_last_mark(mark: LogMark) -> bytes:
    """Return the 16 bytes of a mark."""
    return _MARK.pack(mark.journal_id, mark.offset)


def decode_last_mark(data: bytes, where: str) -> LogMark:
    """Return the mark of a ``lastMark`` file; raises MetadataCorrupt."""
    if len(data) != _MARK.size:
        raise MetadataCorrupt.expected(where, "last log mark", f"{_MARK.size} bytes", len(data))
    return LogMark(*_MARK.unpack(data))


def decode_last_id(data: bytes, where: str) -> int:
    """Return the newest allocated entry-log id, which may name a log of 0 bytes; raises MetadataCorrupt."""
    line = data.partition(b"\n")[0].strip()
    if not re.fullmatch(rb"[0-9a-fA-F]{1,16}", line):
        raise MetadataCorrupt.expected(where, "last log id", "a hexadecimal number", data[:40].hex())
    return int(line, 16)


def encode_last_id(log_id: int) -> bytes:
    """Return the content of ``lastId``."""
    return b"%x\n" % log_id


def _decode_dirs(text: str, where: str) -> tuple[str, ...]:
    count, *dirs = text.split("\t")
    if parse_integer(count) != len(dirs):
        raise MetadataCorrupt.expected(where, "directories", f"{count} of them", dirs)
    return tuple(dirs)


def _encode_dirs(dirs: tuple[str, ...]) -> str:
    return "\t".join((str(len(dirs)), *dirs))
