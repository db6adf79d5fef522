"""Every error that may leave ``store``: one tree, each class with a stable ``code``.

A message says what happened, where, what was expected and found; ``hint`` says what to type or do next;
``context`` carries the same facts as plain values for JSON output. Exit codes live in ``pulsar_admin/errors.py``.
"""

from __future__ import annotations

import re
import struct
from typing import ClassVar, Self, get_args


class StoreError(Exception):
    """Root of the tree; never raised itself."""

    code: ClassVar[str] = "store-error"

    def __init__(self, message: str, *, hint: str = "", **context: object) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.context = context
        if hint:
            self.add_note(hint)  # which a traceback shows

    def change_hint(self, hint: str) -> None:
        """Say ``hint`` in place of the hint that it was made with."""
        notes = getattr(self, "__notes__", [])
        notes[:] = [hint if note == self.hint else note for note in notes]
        self.hint = hint


# -- the request is wrong ---------------------------------------------------------------------------------------------


class InvalidValue(StoreError):
    """A value on the command line is not valid (position, topic, time, duration, size …)."""

    code = "invalid-value"


class BadSql(InvalidValue):
    """A SQL statement is not valid, or fails on a value; ``excerpt`` in the context shows where."""

    code = "bad-sql"


class Refused(StoreError):
    """The request is valid, but the toolkit does not carry it out."""

    code = "refused"


class Cancelled(StoreError):
    """The user said no at the prompt."""

    code = "cancelled"


class NotWritable(StoreError):
    """The operating system denies access (read-only disk, permissions)."""

    code = "not-writable"


class AlreadyExists(StoreError):
    """The target already exists and is not overwritten."""

    code = "already-exists"


# -- somebody else is there -------------------------------------------------------------------------------------------


class StoreBusy(StoreError):
    """Another process holds the store's writer lock."""

    code = "store-busy"


class SourceBusy(StoreError):
    """A running process uses the directory to be read or written."""

    code = "source-busy"


class StalePlan(StoreError):
    """The store has changed since the plan was made."""

    code = "stale-plan"


class UndoConflict(StoreError):
    """A later change touched the same keys."""

    code = "undo-conflict"


# -- not there --------------------------------------------------------------------------------------------------------


class NotFound(StoreError):
    """Something the user named does not exist."""

    code = "not-found"


class StoreNotFound(NotFound):
    """The path is not a store."""

    code = "store-not-found"


class SourceNotFound(NotFound):
    """The path is not a Pulsar or BookKeeper directory, or only part of one."""

    code = "source-not-found"


class NamespaceNotFound(NotFound):
    """No such tenant or namespace."""

    code = "namespace-not-found"


class TenantNotFound(NamespaceNotFound):
    """No such tenant."""

    code = "tenant-not-found"


class ResourceNotFound(NotFound):
    """No such cluster, failure domain, resource group, isolation policy, bookie or setting."""

    code = "resource-not-found"


class TopicNotFound(NotFound):
    """No such topic."""

    code = "topic-not-found"


class SubscriptionNotFound(NotFound):
    """The topic has no such cursor."""

    code = "subscription-not-found"


class LedgerNotFound(NotFound):
    """Neither metadata nor entries of that ledger exist."""

    code = "ledger-not-found"


class EntryNotFound(NotFound):
    """The ledger has no such entry, or its bytes are lost."""

    code = "entry-not-found"


class NotSeen(StoreError):
    """The answer is unknown: it may be on a bookie or in tiered storage that is not imported."""

    code = "not-seen"


class PathNotFound(NotFound):
    """No node at that metadata path."""

    code = "path-not-found"


class ChangeNotFound(NotFound):
    """The audit log has no such change."""

    code = "change-not-found"


class NothingMatches(NotFound):
    """The data has no answer (for example, no entry is at or after the time)."""

    code = "nothing-matches"


# -- damaged ----------------------------------------------------------------------------------------------------------


class Corrupt(StoreError):
    """Bytes violate their format; ``context`` has where, expected, found."""

    code = "corrupt"

    @classmethod
    def expected(cls, where: str, what: str, expected: object, found: object) -> Self:
        """Return the error for ``what`` in ``where``."""
        return cls(f"{where}: {what}: expected {expected}, found {found}", where=where, expected=expected, found=found)


class EntryLogCorrupt(Corrupt):
    """The header, record framing or ledgers map of an entry log is damaged."""

    code = "entry-log-corrupt"


class JournalCorrupt(Corrupt):
    """The header or record framing of a journal is damaged."""

    code = "journal-corrupt"


class EntryCorrupt(Corrupt):
    """An entry is damaged: digest, lengths, message framing, batch or compression."""

    code = "entry-corrupt"


class MetadataCorrupt(Corrupt):
    """A metadata value is damaged: ManagedLedgerInfo, ManagedCursorInfo, LedgerMetadata, policies, RocksDB value header."""

    code = "metadata-corrupt"


class IndexCorrupt(Corrupt):
    """A row of the store itself is damaged; ``store index --rebuild`` restores derived rows."""

    code = "index-corrupt"


class SliceFailed(StoreError):
    """Part of a file could not be read in two attempts; the rest of the result is complete."""

    code = "slice-failed"


class SourceChanged(Corrupt):
    """A referenced file has changed or disappeared since import."""

    code = "source-changed"


# -- unsupported or missing -------------------------------------------------------------------------------------------


class Unsupported(StoreError):
    """A format, or a version of one, that this toolkit does not know."""

    code = "unsupported"


class NeedsBroker(Unsupported):
    """Only a running broker, worker or proxy can do this."""

    code = "needs-broker"


class MissingComponent(StoreError):
    """A codec, Java, a package or a key is missing, or the server of a URL does not answer."""

    code = "missing-component"


class NotOnWorkers(MissingComponent):
    """A machine that reads for Spark does not see a file, or sees another one."""

    code = "not-on-workers"


class EncryptedPayload(StoreError):
    """The payload is encrypted, and no key that decrypts it was given."""

    code = "encrypted-payload"


# -- out of room ------------------------------------------------------------------------------------------------------


class DiskFull(StoreError):
    """There is no space left to write to; the old state is intact."""

    code = "disk-full"


class DiskFailed(StoreError):
    """The disk or the file system fails (EIO, ESTALE); it is neither a bug nor damaged data."""

    code = "disk-failed"


class LimitExceeded(StoreError):
    """A limit that protects memory is exceeded: an absurd length, a decompression bomb, or more than ``--memory`` allows."""

    code = "limit-exceeded"


# -- errors of Python's in our words ----------------------------------------------------------------------------------


def check_choice(what: str, value: object, literal: object) -> None:
    """Raise InvalidValue unless ``value`` is one of ``literal``'s: a word that is not known would be taken for another."""
    choices = get_args(literal)
    if not isinstance(value, str) or value not in choices:
        raise InvalidValue(f"{what} {value!r} is not one of {', '.join(map(repr, choices))}", value=value)


def check_one(**given: object) -> None:
    """Raise InvalidValue unless exactly one of the values is not None."""
    if sum(value is not None for value in given.values()) != 1:
        raise InvalidValue(f"give exactly one of {', '.join(given)}")


def reason_of(error: Exception) -> str:
    """Return why something cannot be decoded: what ``error`` says, where that is about the data and not about Python."""
    from json import JSONDecodeError

    if isinstance(error, UnicodeDecodeError):
        return f"byte {error.start} is not {error.encoding.upper()}: {error.object[error.start]:#04x}"
    if isinstance(error, UnicodeEncodeError):
        return "half of a surrogate pair is no character"
    if isinstance(error, JSONDecodeError):
        return f"it is not JSON at line {error.lineno}, column {error.colno}"
    if isinstance(error, KeyError):
        return f"{error.args[0]} is missing" if error.args else "a key is missing"
    if isinstance(error, IndexError):
        return "a number in it chooses nothing that is defined"
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, struct.error) and (size := re.match(r"unpack(_from)? requires .*?([0-9]+) bytes", str(error))):
        return f"it ends too early: {size[2]} bytes are needed" if size[1] else f"it is not {size[2]} bytes long"
    if isinstance(error, EOFError):
        return f"it ends too early{f' ({error})' if str(error) else ''}"
    if str(error).startswith("Exceeds the limit"):  # of int()
        return "a number has more digits than any that is meant"
    return str(error) or type(error).__name__
