"""Every error that may leave ``store``: one tree, each class with a stable ``code``.

A message says what happened, where, what was expected and found; ``hint`` says what to type or do next;
``context`` carries the same facts as plain values for JSON output. Exit codes live in ``pulsar_admin/errors.py``.
"""

import re
import struct
from typing import ClassVar, Self, get_args


class StoreError(Exception):
    """Root of the tree; never raised itself."""

    code: ClassVar[str] = "store-error"

    def __init_subclass__(cls) -> None:
        """Give the class its code: its name in small letters, the words joined by hyphens."""
        cls.code = "".join(f"-{letter.lower()}" if letter.isupper() else letter for letter in cls.__name__)[1:]

    def __init__(self, message: str, *, hint: str = "", **context: object) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.context = context
        if hint:
            self.add_note(hint)  # which a traceback shows

    def change_hint(self, hint: str) -> None:
        """Replace the hint."""
        notes = getattr(self, "__notes__", [])
        notes[:] = [hint if note == self.hint else note for note in notes]
        self.hint = hint

    def change_message(self, message: str) -> None:
        """Replace the message."""
        self.message, self.args = message, (message,)


# -- the request is wrong ---------------------------------------------------------------------------------------------


class InvalidValue(StoreError):
    """A value on the command line is not valid (position, topic, time, duration, size …)."""


class BadSql(InvalidValue):
    """A SQL statement is not valid, or fails on a value; ``excerpt`` in the context shows where."""


class Refused(StoreError):
    """The request is valid, but the toolkit does not carry it out."""


class Cancelled(StoreError):
    """The user said no at the prompt."""


class NotWritable(StoreError):
    """The operating system denies access (read-only disk, permissions)."""


class AlreadyExists(StoreError):
    """The target already exists and is not overwritten."""


# -- somebody else is there -------------------------------------------------------------------------------------------


class StoreBusy(StoreError):
    """Another process holds the store's writer lock."""


class SourceBusy(StoreError):
    """A running process uses the directory to be read or written."""


class StalePlan(StoreError):
    """The store has changed since the plan was made."""


class UndoConflict(StoreError):
    """A later change touched the same keys."""


# -- not there --------------------------------------------------------------------------------------------------------


class NotFound(StoreError):
    """Something the user named does not exist."""


class StoreNotFound(NotFound):
    """The path is not a store."""


class SourceNotFound(NotFound):
    """The path is not a Pulsar or BookKeeper directory, or only part of one."""


class NamespaceNotFound(NotFound):
    """No such tenant or namespace."""


class TenantNotFound(NamespaceNotFound):
    """No such tenant."""


class ResourceNotFound(NotFound):
    """No such cluster, failure domain, resource group, isolation policy, bookie or setting."""


class TopicNotFound(NotFound):
    """No such topic."""


class SubscriptionNotFound(NotFound):
    """The topic has no such cursor."""


class LedgerNotFound(NotFound):
    """Neither metadata nor entries of that ledger exist."""


class EntryNotFound(NotFound):
    """The ledger has no such entry, or its bytes are lost."""


class NotSeen(StoreError):
    """The answer is unknown: it may be on a bookie or in tiered storage that is not imported."""


class PathNotFound(NotFound):
    """No node at that metadata path."""


class ChangeNotFound(NotFound):
    """The audit log has no such change."""


class NothingMatches(NotFound):
    """The data has no answer (for example, no entry is at or after the time)."""


# -- damaged ----------------------------------------------------------------------------------------------------------


class Corrupt(StoreError):
    """Bytes violate their format; ``context`` has where, expected, found."""

    @classmethod
    def expected(cls, where: str, what: str, expected: object, found: object) -> Self:
        """Return the error for ``what`` in ``where``."""
        return cls(f"{where}: {what}: expected {expected}, found {found}", where=where, expected=expected, found=found)


class EntryLogCorrupt(Corrupt):
    """The header, record framing or ledgers map of an entry log is damaged."""


class JournalCorrupt(Corrupt):
    """The header or record framing of a journal is damaged."""


class EntryCorrupt(Corrupt):
    """An entry is damaged: digest, lengths, message framing, batch or compression."""


ENTRY_UNREADABLE = (LedgerNotFound, EntryNotFound, EntryCorrupt)
"""Why an entry that a topic lists cannot be read: nothing of its ledger exists, its bytes are lost, or it is damaged."""


class MetadataCorrupt(Corrupt):
    """A metadata value is damaged: ManagedLedgerInfo, ManagedCursorInfo, LedgerMetadata, policies, RocksDB value header."""


class IndexCorrupt(Corrupt):
    """A row of the store itself is damaged; ``store index --rebuild`` restores derived rows."""


class SliceFailed(StoreError):
    """Part of a file could not be read in two attempts; the rest of the result is complete."""


class SourceChanged(Corrupt):
    """A referenced file has changed or disappeared since import."""


# -- unsupported or missing -------------------------------------------------------------------------------------------


class Unsupported(StoreError):
    """A format, or a version of one, that this toolkit does not know."""


class NeedsBroker(Unsupported):
    """Only a running broker, worker or proxy can do this."""


class MissingComponent(StoreError):
    """A codec, Java, a package or a key is missing, or the server of a URL does not answer."""


class NotOnWorkers(MissingComponent):
    """A machine that reads for Spark does not see a file, or sees another one."""


class EncryptedPayload(StoreError):
    """The payload is encrypted, and no key that decrypts it was given."""


# -- out of room ------------------------------------------------------------------------------------------------------


class DiskFull(StoreError):
    """There is no space left to write to; the old state is intact."""


class DiskFailed(StoreError):
    """The disk or the file system fails (EIO, ESTALE); it is neither a bug nor damaged data."""


class LimitExceeded(StoreError):
    """A limit that protects memory is exceeded: an absurd length, a decompression bomb, or more than ``--memory`` allows."""


# -- errors of Python's in our words ----------------------------------------------------------------------------------


def check_choice(what: str, value: object, literal: object) -> None:
    """Raise InvalidValue unless ``value`` is one of the words of a ``Literal`` type, which Python itself does not
    check."""
    choices = get_args(literal)
    if not isinstance(value, str) or value not in choices:
        raise InvalidValue(f"{what} {value!r} is not one of {', '.join(map(repr, choices))}", value=value)


def check_one(**given: object) -> None:
    """Raise InvalidValue unless exactly one of the values is not None."""
    if sum(value is not None for value in given.values()) != 1:
        raise InvalidValue(f"give exactly one of {', '.join(given)}")


def stale(what: str, planned: str) -> StalePlan:
    """Return the error for a plan of ``planned`` that is void because ``what`` changed; the same command plans it
    again."""
    return StalePlan(f"{what} changed since {planned} was planned", hint="run the command again")


def brief(text: object) -> str:
    """Return another program's error text on one line, cut to 300 characters."""
    return " ".join(str(text).split())[:300]


def reason_of(error: Exception) -> str:
    """Return why a value cannot be decoded: Python's ``error`` in words about the data."""
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


def unread_text(path: object, error: OSError | StoreError) -> str:
    """Return that a file cannot be read, and why, with its path once."""
    why = error.message if isinstance(error, StoreError) else error.strerror or str(error)
    return f"{path} cannot be read: {why.removeprefix(str(path)).removeprefix(' cannot be read').lstrip(': ')}"
