"""The options of ``pulsar_entries``: one table of their names, kinds, defaults and meanings, and the parser of a reader's text.

Spark hands over keys in lower case. With ``load([a, b])`` it adds ``paths``, a JSON list; with a table of its catalogue, the table's
properties, of which those that begin with ``option.`` are options (Spark 4.3, ``DataSourceV2Utils``, ``V2SessionCatalog``).
"""

import json
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC
from functools import partial
from typing import Any, Literal
from urllib.parse import unquote
from warnings import warn

from msgspec import Struct

from pulsar_admin.store.codec.message import decode_message_id
from pulsar_admin.store.codec.strict_values import parse_integer
from pulsar_admin.store.engine.slices import SLICE_BYTES
from pulsar_admin.store.errors import InvalidValue
from pulsar_admin.store.model.messages import check_times
from pulsar_admin.store.names import EARLIEST, LATEST, PROFILES, Position, TopicName, parse_namespace, parse_topic
from pulsar_admin.store.scan.sources import plain_path, split_paths
from pulsar_admin.store.timespec import parse_size_bytes, parse_time

LEAST_SLICE_BYTES = 4096
_CATALOGUE = "provider"  # a property of every table of a catalogue, and no option
_OPTION = "option."


class Option(Struct, frozen=True):
    """An option: ``read`` parses its text; ``shown`` is the default as a user would write it."""

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
        paths = json.loads(text)
    except ValueError:
        paths = None
    if not isinstance(paths, list) or not all(isinstance(path, str) for path in paths):
        raise InvalidValue("is no JSON list of texts", hint='write ["/a/current", "/b/current"]')
    return tuple(paths)


def _ledgers(text: str) -> tuple[int, ...]:
    ledger_ids = [parse_integer(name) for name in _listed(text)]
    if None in ledger_ids:
        raise InvalidValue("is no list of ledger ids", hint="write for example 3,17")
    return tuple(ledger for ledger in ledger_ids if ledger is not None)


def read_flag(text: str) -> bool:
    """Return the boolean that a text means; raises InvalidValue."""
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


def _read_time_ms(text: str) -> int:
    """Return a time in ms, from the forms of every command (``2026-11-21``, ``@1795253000``; UTC) or epoch milliseconds."""
    number = parse_integer(text.strip().removeprefix("-"))
    if number is not None:
        return -number if text.strip().startswith("-") else number
    return parse_time(text, now_ms=int(time.time() * 1000), tz=UTC)


def _read_slice_bytes(text: str) -> int:
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
    Option("startTime", _read_time_ms, None, "only entries from then on"),
    Option("endTime", _read_time_ms, None, "only entries before then"),
    Option("checksums", read_flag, True, "verify digests", "true"),
    Option("sliceBytes", _read_slice_bytes, SLICE_BYTES, "bytes a task reads", "64m"),
    Option("ignoreCorruptFiles", read_flag, False, "skip files that are not entry logs", "false"),
    Option("maxFilesPerTrigger", _count, 0, "files that a batch of a stream reads at most", "1000"),
    Option("maxBytesPerTrigger", _trigger_bytes, 0, "bytes that a batch of a stream reads, in place of files"),
    Option("failOnDataLoss", read_flag, True, "a stream fails if a file that it began to read is gone", "true"),
)

_OF_STREAMS = ("maxFilesPerTrigger", "maxBytesPerTrigger", "failOnDataLoss")


def refuse_stream_options(values: Mapping[str, Any]) -> None:
    """Raise InvalidValue if a batch read has a value of an option that only applies to streams."""
    for option in OPTIONS:
        if option.name in _OF_STREAMS and values[option.name] != option.default:
            raise InvalidValue(
                f"option {option.name} works only with streams", hint="leave it out, or use spark.readStream"
            )


def read_options(given: Mapping[str, str], known: Sequence[Option] = OPTIONS) -> dict[str, Any]:
    """Return the value of each known option, its default if it is not given; an empty text counts as not given.

    Raises InvalidValue, which names the option: an unknown name, or a wrong text.
    """
    by_lower = {option.name.lower(): option for option in known}
    values = {option.name: option.default for option in known}
    for name, text in _given(given).items():
        option = by_lower.get(name.lower())
        if option is None:
            hint = did_you_mean(name, [option.name for option in known])
            raise InvalidValue(f"there is no option {name}", hint=hint)
        if text.strip():
            try:
                values[option.name] = option.read(text)
            except InvalidValue as error:
                said = error.message if repr(text) in error.message else f"{text!r} {error.message}"
                raise InvalidValue(f"option {option.name}: {said}", hint=error.hint, value=text) from None
    return values


def _given(given: Mapping[str, str]) -> dict[str, str]:
    """Return the given options; for a table of the catalogue only those that its ``OPTIONS`` named."""
    lower = {name.lower(): text for name, text in given.items()}
    if _CATALOGUE not in lower:
        return lower
    named = {name.removeprefix(_OPTION): text for name, text in lower.items() if name.startswith(_OPTION)}
    if "path" in lower:
        path = lower["path"]
        if path.startswith("file:") and "://" not in path:  # Spark makes ``file:/a%20b`` of a table's location
            path = unquote(path.removeprefix("file:"))
        named.setdefault("path", path)
    return named


def is_catalogue(given: Mapping[str, str]) -> bool:
    """Whether the given options are the properties of a table in a catalogue."""
    return _CATALOGUE in (name.lower() for name in given)


def table_options(given: Mapping[str, str]) -> str:
    """Return, as JSON, the options of a table that a catalogue stores."""
    return json.dumps(_given(given), sort_keys=True)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a hint with the known name that was most likely meant, or with all of them."""
    from difflib import get_close_matches

    by_lower = {one.lower(): one for one in known}
    matches = get_close_matches(name.lower(), by_lower, 1)
    return f"did you mean {by_lower[matches[0]]}?" if matches else f"there are {', '.join(by_lower.values())}"


def paths_of(values: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the paths that options name; raises InvalidValue if there are none.

    As in Spark's own sources ``file:/a%20b`` and ``file:///a%20b`` are the path ``/a%20b``: nothing in it is decoded.
    """
    paths = tuple(plain_path(path) for path in (*values["path"], *values["paths"]))
    if not paths:
        raise InvalidValue(
            "no entry logs are named",
            hint='write .load("/pulsar/data/bookkeeper/current/*.log"); '
            "of a table that was created with columns of its own: SELECT … FROM t WITH (path = '…')",
        )
    return paths


# -- connector options -------------------------------------------------------------------------------------------------
# The options of the Spark connector, for jobs written for ``format("pulsar")``: what they mean for data on a disk.
#
# Upstream: ``PulsarOptions``, ``PulsarProvider`` and ``PulsarHelper`` of streamnative/pulsar-spark 3.4.1, as a batch read takes them.
# Options that concern a live cluster are taken and have no meaning here, which is said once; so a job needs no change but the format's
# name.


CONF = "spark.pulsar_entries."
"""Settings of a session that begin so are defaults of options, of reads with the connector's options."""
EARLIEST_TIME, LATEST_TIME = -1, -2

_IGNORED = (
    "service.url",
    "admin.url",
    "predefinedSubscription",
    "subscriptionPrefix",
    "pollTimeoutMs",
    "waitingForNonExistedTopic",
    "maxBytesPerTrigger",
    "path",
)
_IGNORED_PREFIXES = ("pulsar.client.", "pulsar.admin.", "pulsar.reader.", "pulsar.producer.")
_COMPACTED = "pulsar.reader.readcompacted"
_SIGNS = (
    "service.url",
    "admin.url",
    "topic",
    "topicsPattern",
    "startingOffsets",
    "endingOffsets",
    "startingTime",
    "endingTime",
    "allowDifferentTopicSchemas",
)

Place = Position | int
"""Where a topic begins or ends: a position, or a time in ms."""


class TopicPlaces(Struct, frozen=True):
    """Where topics begin or end: one place for all, or one each, by full name."""

    all: Place | None = None
    each: Mapping[str, Place] | None = None

    def of(self, topic: TopicName) -> Place | None:
        """Return the place of a topic, None if none is given."""
        return self.all if self.each is None else self.each.get(str(topic))


class ConnectorRead(Struct, frozen=True):
    """A read with the connector's options; ``kind``, the option that names the topics, and its text."""

    store: str
    kind: Literal["topic", "topics", "topicsPattern"]
    text: str
    start: TopicPlaces
    end: TopicPlaces
    fail: bool
    raw: bool
    slice_bytes: int


def _offsets(unbounded: Mapping[str, Position], refused: str, text: str) -> TopicPlaces:
    """Return ``earliest``, ``latest``, or JSON: topic → message id, as a list of bytes (the connector's form) or ``ledger:entry``."""
    word = text.strip().lower()
    if word == refused:
        raise InvalidValue(f"can't be {refused}", hint="the connector also refuses it")
    if word in unbounded:
        return TopicPlaces(unbounded[word])
    positions = {name: _message_id(value) for name, value in _json_object(text).items()}
    if any(place == {"latest": LATEST, "earliest": EARLIEST}[refused] for place in positions.values()):
        raise InvalidValue(f"can't be {refused} for a topic", hint="the connector also refuses it")
    return TopicPlaces(each=_by_topic(positions))


def _message_id(value: Any) -> Position:  # Any: JSON
    """Return the position in a serialized ``MessageIdData``, without its batch index: the connector reads whole batches."""
    text = value if isinstance(value, str) else ""
    match = re.fullmatch(r"(-?\d{1,18}):(-?\d{1,18})(:-?\d{1,9})*", text)
    if match is not None:
        return Position(int(match[1]), int(match[2]))
    try:
        return decode_message_id(bytes(byte & 0xFF for byte in value)).entry
    except (ValueError, TypeError) as error:
        raise InvalidValue(
            f"has no message id {json.dumps(value)[:60]}", hint='write bytes, [8,25,16,0], or "25:0"'
        ) from error


def _times(text: str) -> TopicPlaces:
    """Return epoch milliseconds, one value for all topics or JSON: topic → ms."""
    if not text.strip().startswith("{"):
        return TopicPlaces(_time(text))
    return TopicPlaces(each=_by_topic({name: _time(str(value)) for name, value in _json_object(text).items()}))


def _time(text: str) -> Place:
    number = parse_integer(text.strip().removeprefix("-"))
    if number is not None and text.strip().startswith("-"):
        number = -number
    if number == EARLIEST_TIME:
        return EARLIEST
    if number == LATEST_TIME:
        return LATEST
    if number is None or number <= 0:
        raise InvalidValue("is no time", hint="write epoch milliseconds, for example 1795253000000")
    return number


def _json_object(text: str) -> dict[str, Any]:  # Any: JSON
    try:
        parsed = json.loads(text)
    except ValueError:
        parsed = None
    if not isinstance(parsed, dict):
        raise InvalidValue("is no JSON object of topic → place", hint='write {"persistent://t/ns/topic": …}')
    return parsed


def _by_topic(found: Mapping[str, Any]) -> dict[str, Any]:  # Any: a place
    return {str(parse_topic(name)): place for name, place in found.items()}


_STARTS, _ENDS = {"earliest": EARLIEST}, {"latest": LATEST}
CONNECTOR_OPTIONS = (
    Option("store", str.strip, "", "the directory of the store"),
    Option(
        "columns",
        _one_of(*PROFILES),
        "pulsar-spark",
        "whose names the columns have: " + ", ".join(PROFILES),
        "pulsar-spark",
    ),
    Option("topic", str.strip, "", "one topic, all its partitions"),
    Option("topics", str.strip, "", "topics, separated by commas"),
    Option("topicsPattern", str.strip, "", "a regular expression of topics of one namespace"),
    Option("startingOffsets", partial(_offsets, _STARTS, "latest"), None, "the first message", "earliest"),
    Option("endingOffsets", partial(_offsets, _ENDS, "earliest"), None, "the last message, and its batch", "latest"),
    Option("startingTime", _times, None, "from the first entry at or after this time"),
    Option("endingTime", _times, None, "through the first entry at or after this time"),
    Option("failOnDataLoss", read_flag, False, "what cannot be read fails the job, otherwise it is skipped", "false"),
    Option(
        "allowDifferentTopicSchemas", read_flag, False, "column `value` with the bytes, whatever the schemas", "false"
    ),
    Option("sliceBytes", _read_slice_bytes, SLICE_BYTES, "bytes a task reads", "64m"),
)


def is_connector_read(given: Mapping[str, str]) -> bool:
    """Whether the options include some that only the connector has, or ask for its column names."""
    return bool(connector_names(given))


def connector_names(given: Mapping[str, str]) -> list[str]:
    """Return the names of the given options that mark a read with the connector's options."""
    lower = {name.lower(): text for name, text in given.items()}
    signs = [sign for sign in _SIGNS if sign.lower() in lower]
    return signs + ["columns"] * (lower.get("columns", "").strip().lower() in PROFILES)


def read_connector_options(
    given: Mapping[str, str], defaults: Mapping[str, str], *, warns: bool = True
) -> ConnectorRead:
    """Return the read that the connector's options describe, completed by the session's defaults.

    ``warns``: issue a Python warning that names the options without an effect here. Raises InvalidValue.
    """
    lower = {**defaults, **{name.lower(): text for name, text in given.items()}}
    if lower.get(_COMPACTED, "").strip().lower() == "true":
        raise InvalidValue(
            "option pulsar.reader.readCompacted: compacted views are not read here",
            hint="there is: pulsar-admin compaction read TOPIC",
        )
    ignored = {name.lower() for name in _IGNORED} & lower.keys() | {
        name for name in lower if name.startswith(_IGNORED_PREFIXES)
    }
    named = sorted(ignored - {"service.url", "admin.url", "path"})
    if named and warns:
        warn(f"pulsar_entries reads disks: without a meaning here are {', '.join(named)}", stacklevel=2)
    values = read_options({name: text for name, text in lower.items() if name not in ignored}, CONNECTOR_OPTIONS)
    if not values["store"]:
        raise InvalidValue(
            "topics are read through a store",
            hint=f"create one with `pulsar-admin store import standalone DIR`, and give option store, or the session's {CONF}store",
        )
    kind, text = _topics(values)
    _check_times(values["startingTime"], values["endingTime"])
    return ConnectorRead(
        values["store"],
        kind,
        text,
        _places(values, "starting"),
        _places(values, "ending"),
        values["failOnDataLoss"],
        values["allowDifferentTopicSchemas"],
        values["sliceBytes"],
    )


def _topics(values: Mapping[str, Any]) -> tuple[Literal["topic", "topics", "topicsPattern"], str]:
    kinds: tuple[Literal["topic", "topics", "topicsPattern"], ...] = ("topic", "topics", "topicsPattern")
    given = [kind for kind in kinds if values[kind]]
    if len(given) != 1:
        said = "none is" if not given else f"{' and '.join(given)} are"
        raise InvalidValue(f"one of topic, topics and topicsPattern says what to read; {said} given")
    if given[0] == "topic" and "," in values["topic"]:
        raise InvalidValue("option topic: names one topic", hint='use "topics" for more than one')
    return given[0], values[given[0]]


def _places(values: Mapping[str, Any], side: str) -> TopicPlaces:
    offsets, times = values[f"{side}Offsets"], values[f"{side}Time"]
    if offsets is not None and times is not None:
        raise InvalidValue(f"{side}Offsets and {side}Time are both given", hint="give only one of them")
    places: TopicPlaces = offsets or times or TopicPlaces()
    return places


def _check_times(start: TopicPlaces | None, end: TopicPlaces | None) -> None:
    """Raise InvalidValue for an end before the start: for all topics, or for one."""
    if start is None or end is None:
        return
    for topic in {*(start.each or ()), *(end.each or ())} or {""}:
        first, last = (side.all if side.each is None else side.each.get(topic) for side in (start, end))
        if isinstance(first, int) and isinstance(last, int):
            check_times(first, last)


def pattern_topics(text: str, topics: Sequence[TopicName]) -> list[TopicName]:
    """Return the topics, partitions under their topic's name, that a ``topicsPattern`` matches completely, without the scheme."""
    rest = text.partition("://")[2] or text
    rest = rest if "/" in rest else f"public/default/{rest}"
    try:
        pattern = re.compile(rest)
    except re.error as error:
        raise InvalidValue(f"option topicsPattern: {text!r} is not a regular expression: {error}") from error
    return [topic for topic in topics if pattern.fullmatch(str(topic.base).partition("://")[2])]


def pattern_namespace(text: str) -> str:
    """Return the namespace of a ``topicsPattern``, which is never a pattern itself; raises InvalidValue."""
    rest = text.partition("://")[2] or text
    parts = rest.split("/", 2)
    if len(parts) == 1:
        return "public/default"
    if len(parts) == 2:
        raise InvalidValue(f"option topicsPattern: {text!r} names no namespace", hint="write tenant/namespace/pattern")
    return str(parse_namespace("/".join(parts[:2])))
