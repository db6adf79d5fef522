"""Exit codes: one table from error class to number, and how an error looks on stderr.

The table is the source of ``docs/exit-codes.md``. Shell scripts test the numbers; the codes in messages, such as
``topic-not-found``, are more specific and also stable.
"""

import errno
import os
from typing import Any

import click

from pulsar_admin.global_options import HasLeft
from pulsar_admin.store import errors
from pulsar_admin.typable import typable
from pulsar_admin.visible import clean_lines, clean_text, wrapped, write_error

DONE = 0
PROBLEMS = 1
USAGE = 2
REFUSED = 3
BUSY = 4
NOT_FOUND = 5
DAMAGED = 6
UNSUPPORTED = 7
NO_ROOM = 8
BUG = 70
INTERRUPTED = 130

EXIT_CODES: dict[type[errors.StoreError], int] = {
    errors.InvalidValue: USAGE,
    errors.BadSql: USAGE,
    errors.Refused: REFUSED,
    errors.Cancelled: REFUSED,
    errors.NotWritable: REFUSED,
    errors.AlreadyExists: REFUSED,
    errors.StoreBusy: BUSY,
    errors.SourceBusy: BUSY,
    errors.StalePlan: BUSY,
    errors.UndoConflict: BUSY,
    errors.NotFound: NOT_FOUND,
    errors.StoreNotFound: NOT_FOUND,
    errors.SourceNotFound: NOT_FOUND,
    errors.NamespaceNotFound: NOT_FOUND,
    errors.TenantNotFound: NOT_FOUND,
    errors.ResourceNotFound: NOT_FOUND,
    errors.TopicNotFound: NOT_FOUND,
    errors.SubscriptionNotFound: NOT_FOUND,
    errors.LedgerNotFound: NOT_FOUND,
    errors.EntryNotFound: NOT_FOUND,
    errors.PathNotFound: NOT_FOUND,
    errors.ChangeNotFound: NOT_FOUND,
    errors.NothingMatches: NOT_FOUND,
    errors.NotSeen: DAMAGED,
    errors.SliceFailed: PROBLEMS,
    errors.Corrupt: DAMAGED,
    errors.EntryLogCorrupt: DAMAGED,
    errors.JournalCorrupt: DAMAGED,
    errors.EntryCorrupt: DAMAGED,
    errors.MetadataCorrupt: DAMAGED,
    errors.IndexCorrupt: DAMAGED,
    errors.SourceChanged: DAMAGED,
    errors.Unsupported: UNSUPPORTED,
    errors.NeedsBroker: UNSUPPORTED,
    errors.MissingComponent: UNSUPPORTED,
    errors.NotOnWorkers: UNSUPPORTED,
    errors.EncryptedPayload: UNSUPPORTED,
    errors.DiskFull: NO_ROOM,
    errors.DiskFailed: DAMAGED,
    errors.LimitExceeded: NO_ROOM,
}


class PipeClosed(Exception):
    """The reader of stdout closed the pipe: the program ends without a message."""


class Failure:
    """An error as a script sees it: exit number, stable code, message, hint, facts."""

    __slots__ = ("code", "context", "exit_code", "hint", "message", "plain")

    def __init__(self, exit_code: int, code: str, message: str, **more: Any) -> None:  # Any: hint, context, plain below
        from pulsar_admin.store.secrets import hide_secrets  # a command that works does without

        self.exit_code = exit_code
        self.code = code
        self.message = typable(hide_secrets(message))
        self.hint: str = typable(hide_secrets(more.get("hint", "")))
        self.context: dict[str, object] = {
            key: hide_secrets(value) if isinstance(value, str) else value
            for key, value in more.get("context", {}).items()
        }
        if isinstance(commands := self.context.get("commands"), list):
            self.context["commands"] = [typable(str(command)) for command in commands]
        plain: str | None = more.get("plain")  # the whole human text where it is not "error: message"
        self.plain = None if plain is None else hide_secrets(plain)

    def render_text(self) -> str:
        if self.plain is not None:
            return self.plain
        excerpt = str(self.context.get("excerpt", ""))  # lines, with a mark below the place that is wrong
        shown = f"\n{clean_lines(excerpt)}" if excerpt else ""
        hint = "\n" + wrapped(f"hint: {clean_text(self.hint)}") if self.hint else ""
        commands = self.context.get("commands", ())
        typed = (f"\n  $ {clean_text(str(command))}" for command in commands) if isinstance(commands, list) else ()
        return f"{wrapped(f'error: {clean_text(self.message)}')}{shown}{hint}{''.join(typed)}"

    def write(self, *, as_json: bool, colored: bool = False) -> None:
        """Write the error to stderr, as text or as a line of JSON."""
        write_error(self.render_json() if as_json else self.render_text(), colored=colored and not as_json)

    def render_json(self) -> str:
        from pulsar_admin.jsonify import dump_json

        body = {"code": self.code, "message": self.message, "hint": self.hint, "context": self.context}
        return dump_json({"error": body}, pretty=False)


def exit_code_of(error: errors.StoreError) -> int:
    """Return the exit code of an error's class, or of its nearest base class in the table."""
    return next(EXIT_CODES[cls] for cls in type(error).__mro__ if cls in EXIT_CODES)


def failure_of(error: BaseException) -> Failure:
    """Return how an error is reported; one that is not in the table is a bug, reported with its traceback."""
    if isinstance(error, errors.StoreError):
        return Failure(exit_code_of(error), error.code, error.message, hint=error.hint, context=error.context)
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        return Failure(USAGE, "usage", "a command is missing", plain=error.format_message())
    if isinstance(error, click.ClickException):
        return _usage_failure(error)
    if isinstance(error, (click.Abort, KeyboardInterrupt)):
        return Failure(INTERRUPTED, "interrupted", "interrupted")
    if isinstance(error, MemoryError):
        return Failure(NO_ROOM, "out-of-memory", "out of memory", hint="lower --memory or --jobs")
    if isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}:
        where = error.filename or "the output"
        return Failure(NO_ROOM, errors.DiskFull.code, f"no space left writing {where}", hint="free some space")
    if isinstance(error, OSError) and error.errno in {errno.EIO, errno.ESTALE}:
        where = error.filename or "a file"
        hint = "see the kernel's messages (dmesg): neither the data nor this toolkit is known to be wrong"
        return Failure(DAMAGED, errors.DiskFailed.code, f"the disk failed at {where}: {error.strerror}", hint=hint)
    if isinstance(error, OSError) and error.filename is not None and error.errno in _NAMES:
        code, number = _NAMES[error.errno]
        hint = "check permissions" if isinstance(error, PermissionError) else "name another file"
        return Failure(number, code, f"{error.strerror}: {os.fsdecode(error.filename)}", hint=hint)
    if isinstance(error, FileNotFoundError) and error.filename is None:  # as os.getcwd raises it, and pyarrow
        try:
            os.getcwd()
        except FileNotFoundError:
            message = "the current directory no longer exists"
            return Failure(NOT_FOUND, errors.SourceNotFound.code, message, hint="change to another one: cd DIR")
    return _bug_failure(error)


_NAMES = {
    errno.ENAMETOOLONG: (errors.InvalidValue.code, USAGE),
    errno.ELOOP: (errors.InvalidValue.code, USAGE),
    errno.EACCES: (errors.Refused.code, REFUSED),
    errno.EPERM: (errors.Refused.code, REFUSED),
}
"""What the system says of a name, wherever it is met first: no bug of ours."""
_BROKER_OPTIONS = ("--admin-url", "--auth-p", "--request-timeout", "--tls-")


def _usage_failure(error: click.ClickException) -> Failure:
    path = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else "pulsar-admin"
    hint = f"see: {path} --help"
    if isinstance(error, click.NoSuchOption) and error.option_name.startswith(_BROKER_OPTIONS):
        hint = "leave it out: no broker is asked, --store names the data"
    if isinstance(error, HasLeft):
        hint = ""
    return Failure(USAGE, "usage", " ".join(error.format_message().split()), hint=hint)


def _bug_failure(error: BaseException) -> Failure:
    import traceback

    message = f"{type(error).__name__}: {clean_text(str(error))}"
    trace = "".join(traceback.format_exception(error)).rstrip().replace(str(error), clean_text(str(error)))
    hint = "this is a bug in pulsar-admin-toolkit, not in your data: please report it with the lines above"
    text = f"{trace}\nerror: {message}\nhint: {hint}"
    return Failure(BUG, "bug", message, hint=hint, context={"traceback": trace}, plain=text)
