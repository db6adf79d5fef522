"""The options of ``pulsar_entries``: one table of their names, kinds, defaults and meanings, and what a reader's text makes of it.

Spark hands over keys in lower case. With ``load([a, b])`` it adds ``paths``, a JSON list; with a table of its catalogue, the table's
properties, of which those that begin with ``option.`` are options (Spark 4.3, ``DataSourceV2Utils``, ``V2SessionCatalog``).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC
from functools import partial
from typing import Any
from urllib.parse import unquote

from store.codec.given import parse_integer
from store.engine.slices import SLICE_BYTES
from store.errors import InvalidValue
from store.frozen import frozen
from store.scan.sources import plain_path, split_paths
from store.timespec import parse_size_bytes, parse_time

LEAST_SLICE_BYTES = 4096
_CATALOGUE = "provider"  # a property of every table of a catalogue, and no option
_OPTION = "option."


@frozen
class Option:
    """``read`` makes its value of text; ``shown`` is the default as one would write it."""

    name: str
    read: Callable[[str], Any]  # Any: a value of the option's kind
    default: Any
    meaning: str
    shown: str = ""


def _listed(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _path_list(text: str) -> tuple[str, ...]:
    return tuple(path for path in split_paths(text) if path)


def _paths(text: str) -> tuple[str, ...]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, list) or not all(isinstance(path, str) for path in found):
        raise InvalidValue("is no JSON list of texts", hint='write ["/a/current", "/b/current"]')
    return tuple(found)


def _ledgers(text: str) -> tuple[int, ...]:
    found = [parse_integer(name) for name in _listed(text)]
    if None in found:
        raise InvalidValue("is no list of ledger ids", hint="write for example 3,17")
    return tuple(ledger for ledger in found if ledger is not None)


def read_flag(text: str) -> bool:
    """Return whether TEXT is true; raises InvalidValue."""
    word = text.strip().lower()
    if word not in ("true", "false", "1", "0", "yes", "no"):
        raise InvalidValue("is neither true nor false", hint="write true or false")
    return word in ("true", "1", "yes")


def _one_of(*words: str) -> Callable[[str], str]:
    return partial(_chosen, words)


def _chosen(words: tuple[str, ...], text: str) -> str:
    if text.strip().lower() not in words:
        raise InvalidValue(f"is none of {', '.join(words)}")
    return text.strip().lower()


def read_time_ms(text: str) -> int:
    """Return a time as every command takes it (``2026-11-21``, ``@1795253000``; UTC), or epoch milliseconds, in ms."""
    number = parse_integer(text.strip().removeprefix("-"))
    if number is not None:
        return -number if text.strip().startswith("-") else number
    return parse_time(text, now_ms=int(time.time() * 1000), tz=UTC)


def read_slice_bytes(text: str) -> int:
    """Return how many bytes a task reads (``64m``); raises InvalidValue."""
    size_bytes = parse_size_bytes(text)
    if size_bytes < LEAST_SLICE_BYTES:
        raise InvalidValue(f"is less than {LEAST_SLICE_BYTES} bytes", hint="write for example 64m")
    return size_bytes


def _trigger_bytes(text: str) -> int:
    size_bytes = parse_size_bytes(text)
    if not size_bytes:
        raise InvalidValue("is no size from 1 on", hint="write for example 512m; leave it out for no bound")
    return size_bytes


def _count(text: str) -> int:
    number = parse_integer(text.strip())
    if not number:
        raise InvalidValue("is no number from 1 on")
    return number


OPTIONS = (
    Option("path", _path_list, (), "files, directories or globs, separated by commas; journals (`*.txn`) too"),
    Option("paths", _paths, (), "the same as a JSON list, which `load([a, b])` makes; a comma is part of a path"),
    Option("recursiveFileLookup", read_flag, False, "also the logs in directories below a directory", "false"),
    Option("level", _one_of("entries", "messages"), "entries", "what a row is", "entries"),
    Option("columns", _listed, (), "only these columns, in this order", "all"),
    Option("payload", read_flag, False, "with `level` messages, also column `payload`, decompressed", "false"),
    Option("redact", read_flag, False, "SHA-256 and length instead of keys, properties, payloads and values", "false"),
    Option("store", str.strip, "", "the directory of a store, which knows the topics of ledgers and their schemas"),
    Option(
        "topics", str.strip, "", "with `store`, topics, globs or namespaces; without, JSON: ledger id → topic", "all"
    ),
    Option(
        "value", _one_of("none", "json", "typed"), None, "with `level` messages and `store`: decoded values", "none"
    ),
    Option("ledgers", _ledgers, (), "only these ledger ids", "all"),
    Option("startTime", read_time_ms, None, "only entries from then on"),
    Option("endTime", read_time_ms, None, "only entries before then"),
    Option("checksums", read_flag, True, "verify digests", "true"),
    Option("sliceBytes", read_slice_bytes, SLICE_BYTES, "bytes a task reads", "64m"),
    Option("ignoreCorruptFiles", read_flag, False, "pass over files that are no entry logs", "false"),
    Option("maxFilesPerTrigger", _count, 0, "files that a batch of a stream reads at most", "1000"),
    Option("maxBytesPerTrigger", _trigger_bytes, 0, "bytes that a batch of a stream reads, in place of files"),
    Option("failOnDataLoss", read_flag, True, "a stream fails where what it began to read is gone", "true"),
)

_OF_STREAMS = ("maxFilesPerTrigger", "maxBytesPerTrigger", "failOnDataLoss")


def refuse_stream_options(values: Mapping[str, Any]) -> None:
    """Raise InvalidValue for a value of a batch that says something to streams alone."""
    for option in OPTIONS:
        if option.name in _OF_STREAMS and values[option.name] != option.default:
            raise InvalidValue(f"option {option.name} is of streams", hint="leave it out, or use spark.readStream")


def read_options(given: Mapping[str, str], known: Sequence[Option] = OPTIONS) -> dict[str, Any]:
    """Return a value for each of the KNOWN options by its name, its default where it is not GIVEN; an empty text is not given.

    Raises InvalidValue, which names the option: there is none of that name, or its text is wrong.
    """
    by_lower = {option.name.lower(): option for option in known}
    values = {option.name: option.default for option in known}
    for name, text in _given(given).items():
        option = by_lower.get(name.lower())
        if option is None:
            raise _unknown(name, [option.name for option in known])
        if text.strip():
            values[option.name] = _read(option, text)
    return values


def _given(given: Mapping[str, str]) -> dict[str, str]:
    """Return the options in GIVEN: of a table of the catalogue those that its ``OPTIONS`` named, else all."""
    lower = {name.lower(): text for name, text in given.items()}
    if _CATALOGUE not in lower:
        return lower
    found = {name.removeprefix(_OPTION): text for name, text in lower.items() if name.startswith(_OPTION)}
    if "path" in lower:
        found.setdefault("path", _plain_path(lower["path"]))
    return found


def _plain_path(path: str) -> str:
    """Return what Spark made ``file:/a%20b`` of, in a table's location."""
    return unquote(path.removeprefix("file:")) if path.startswith("file:") and "://" not in path else path


def is_catalogue(given: Mapping[str, str]) -> bool:
    """Whether GIVEN are the properties of a table that a catalogue is to keep."""
    return _CATALOGUE in (name.lower() for name in given)


def table_options(given: Mapping[str, str]) -> str:
    """Return the options of a table that a catalogue is to keep, as JSON."""
    return json.dumps(_given(given), sort_keys=True)


def _read(option: Option, text: str) -> Any:
    try:
        return option.read(text)
    except InvalidValue as error:
        said = error.message if repr(text) in error.message else f"{text!r} {error.message}"
        raise InvalidValue(f"option {option.name}: {said}", hint=error.hint, value=text) from None


def _unknown(name: str, known: Iterable[str]) -> InvalidValue:
    near = nearest(name, known)
    return InvalidValue(
        f"there is no option {name}", hint=f"did you mean {near}?" if near else f"there are {', '.join(known)}"
    )


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the one of KNOWN that NAME was most likely meant to be."""
    from difflib import get_close_matches

    by_lower = {one.lower(): one for one in known}
    found = get_close_matches(name.lower(), by_lower, 1)
    return by_lower[found[0]] if found else None


def paths_of(values: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the paths that options name; raises InvalidValue where there are none.

    As to Spark's own sources ``file:/a%20b`` and ``file:///a%20b`` are the path ``/a%20b``: nothing in it is decoded.
    """
    paths = tuple(plain_path(path) for path in (*values["path"], *values["paths"]))
    if not paths:
        raise InvalidValue(
            "no entry logs are named",
            hint='write .load("/pulsar/data/bookkeeper/current/*.log"); '
            "of a table that was created with columns of its own: SELECT … FROM t WITH (path = '…')",
        )
    return paths
