"""What is wrong with what the data source reads, as one line of the error that Spark raises."""

from __future__ import annotations

from collections.abc import Callable
from socket import gethostname
from typing import TypeVar

from store.engine.secrets import hide_secrets
from store.engine.spark_session import hide_traceback
from store.errors import StoreError

_T = TypeVar("_T")


def in_one_line(work: Callable[[], _T], *, passing: type[OSError] | tuple[()] = ()) -> _T:
    """Return what WORK returns; what is wrong with an option or a file becomes one line of the error that Spark raises.

    PASSING: an error that the caller deals with.
    """
    try:
        return work()
    except passing:
        raise
    except StoreError as error:
        said = "; ".join(filter(None, [error.message, error.hint]))
    except OSError as error:
        said = f"{error.filename}: {error.strerror} (on {gethostname()})"
        if isinstance(error, FileNotFoundError | PermissionError):
            said += "; every machine that reads has to see it: name a path that they share, or a URL"
    hide_traceback()
    raise ValueError(f"pulsar_entries: {hide_secrets(said)}")
