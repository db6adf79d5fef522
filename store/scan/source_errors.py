"""What is wrong with what the data source reads: one line of the error that Spark raises, or of a task's log."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from socket import gethostname
from typing import TypeVar

from store.engine.secrets import hide_secrets
from store.engine.spark_session import hide_traceback
from store.errors import StoreError
from store.scan.files import Problem
from store.scan.sources import shown_path

_SHOWN = 20
_log = logging.getLogger("pulsar_entries")
_T = TypeVar("_T")


def log_damage(path: str, problems: Sequence[Problem]) -> None:
    """Say in the task's log which bytes of the file at PATH are no good records."""
    path = shown_path(path)
    for problem in problems[:_SHOWN]:
        _log.warning("%s @ %#x: %d bytes: %s", path, problem.offset, problem.length_bytes, problem.reason)
    if len(problems) > _SHOWN:
        _log.warning("%s: %d more places are damaged", path, len(problems) - _SHOWN)


def in_one_line(work: Callable[[], _T], *, passing: type[OSError] | tuple[()] = ()) -> _T:
    """Return what WORK returns; what is wrong with an option or a file becomes one line of the error that Spark raises.

    PASSING: an error that the caller deals with.
    """
    try:
        return work()
    except passing:
        raise
    except StoreError as error:
        hint = error.hint.replace("with --store", "with the option store")  # a command's
        said = "; ".join(filter(None, [error.message, hint]))
    except OSError as error:
        said = f"{error.filename}: {error.strerror} (on {gethostname()})"
        if isinstance(error, FileNotFoundError | PermissionError):
            said += "; every machine that reads has to see it: name a path that they share, or a URL"
    hide_traceback()
    raise ValueError(f"pulsar_entries: {hide_secrets(said)}")
