"""Arguments of the Python interface: their types and checks, and hints in Python's terms.

Python itself checks no types: a value of the wrong type would fail deep inside, or be written unchanged.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial, wraps
from inspect import CO_VARARGS
from math import isfinite
from operator import index
from os import fsencode
from pathlib import Path
from types import FunctionType, GeneratorType
from typing import TYPE_CHECKING, Any, Literal, SupportsIndex, TypeVar, cast, get_origin

from msgspec import Struct

from pulsar_admin.store.errors import InvalidValue, StoreError, check_choice
from pulsar_admin.store.names import INT_MAX, INT_MIN, LONG_MAX, Position, parse_position
from pulsar_admin.store.wording import Answer, Rows
from pulsar_admin.typable import runs, typable_in

if TYPE_CHECKING:
    from pulsar_admin.store.history.as_of import Moment as MetadataMoment
    from pulsar_admin.store.sources.roots import Wanted


Kind = TypeVar("Kind")
Duration = timedelta | str
"""A length of time: a timedelta, or ``5m``, ``3h``, ``2d`` and whatever else the command line takes."""
Delay = Duration | int
"""How long: a length of time, or milliseconds as an int."""
LedgerId = int
Count = int
"""0 or more."""
Rate = int
"""Bytes a second."""
JavaInt = int
"""A number that upstream takes."""
Time = datetime | timedelta | str | int
"""A point in time: a datetime with a zone; ``2024-05-01T09:00:00Z`` and whatever else the command line takes; so long ago as
``3h`` or a timedelta; epoch milliseconds as an int."""
Place = Position | str
"""A position: a ``Position``, or ``LEDGER:ENTRY``, ``LEDGER:ENTRY:BATCH``, ``earliest``, ``latest``."""
Clock = Literal["auto", "publish", "broker", "event"]
"""Which time of a message counts: the broker's where the entry carries one, else the publish time (auto); or always one of them."""


class Moment(Struct, frozen=True):
    """The time of a plan in epoch ms, whether the caller gave it, and the interceptors of the broker at that time."""

    now_ms: int
    is_given: bool
    interceptors: tuple[str, ...] | None


def given_text(what: str, value: object) -> str:
    """Return a text; raises InvalidValue for anything else."""
    if not isinstance(value, str):
        raise InvalidValue(f"{what} {value!r} is not a str", value=value)
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InvalidValue(f"{value!r} is not Unicode", value=value) from error
    return value


def given_texts(what: str, values: Iterable[str]) -> tuple[str, ...]:
    """Return texts; raises InvalidValue for anything else, including a single text, whose letters would be iterated."""
    return tuple(given_text(what, one) for one in given_items(what, values))


def wanted_of(chroot: str | None, ledgers_root: str | None) -> Wanted:
    """Return the choice of a cluster in a ZooKeeper, by its chroot and ledgers' root; raises InvalidValue."""
    from pulsar_admin.store.sources.roots import Wanted, parse_root

    return Wanted(
        None if chroot is None else parse_root(given_text("chroot", chroot), "chroot"),
        None if ledgers_root is None else parse_root(given_text("ledgers_root", ledgers_root), "ledgers_root"),
    )


def given_items(what: str, values: Iterable[Kind]) -> Iterable[Kind]:
    """Return items; raises InvalidValue if they cannot be iterated over, and for one text or mapping."""
    if isinstance(values, (str, bytes, Mapping)) or not isinstance(values, Iterable):
        wrong = "is a str" if isinstance(values, str) else "is not a list"
        hint = "" if values is None else f"write a list: {what}=[{values!r}]"
        raise InvalidValue(f"{what} {values!r} {wrong}", hint=hint, value=values)
    return values


def given_places(what: str, values: Iterable[Path | str]) -> tuple[str, ...]:
    """Return paths as texts; raises InvalidValue unless they are a list of paths."""
    places = tuple(given_items(what, values))
    for one in places:
        given_path(what, one)
    return tuple(map(str, places))


def given_mapping(what: str, value: Any) -> Mapping[Any, Any]:  # Any: what callers give
    """Return a mapping; raises InvalidValue for anything else."""
    if not isinstance(value, Mapping):
        raise InvalidValue(f"{what} {value!r} is not a mapping", hint='write {"name": "value"}', value=value)
    return value


def given_properties(what: str, values: Mapping[str, str]) -> dict[str, str]:
    """Return a mapping from text to text; raises InvalidValue for anything else."""
    given = given_mapping(what, values)
    return {given_text("property", key): given_text(f"property {key}", one) for key, one in given.items()}


def _optional_properties(what: str, values: Mapping[str, str | None]) -> Mapping[str, str | None]:
    """Return a mapping from text to text or None; raises InvalidValue for anything else."""
    given = given_mapping(what, values)
    given_properties(what, {name: "" if one is None else one for name, one in given.items()})
    return given


def given_path(what: str, value: Path | str) -> Path:
    """Return a path or its text as a path; raises InvalidValue for anything else."""
    try:
        encoded = fsencode(value)
    except (TypeError, UnicodeEncodeError) as error:
        raise InvalidValue(f"{what} {value!r} is not a path", value=value) from error
    if isinstance(value, bytes) or b"\0" in encoded:
        raise InvalidValue(f"{what} {value!r} is not a path", value=value)
    return Path(value)


def given_flag(what: str, value: object) -> bool:
    """Return True or False; raises InvalidValue for anything else, because every non-empty text would be true."""
    if not isinstance(value, bool):
        raise InvalidValue(f"{what} {value!r} is not True or False", value=value)
    return value


def whole_number(what: str, value: object, least: int | None = None, most: int | None = None) -> int:
    """Return an int (or numpy integer) from ``least`` to ``most``; raises InvalidValue for anything else, including text."""
    if not isinstance(value, SupportsIndex) or isinstance(value, bool):
        raise InvalidValue(f"{what} {value!r}: expected a whole number, such as 5", value=value)
    number = index(value)
    if (least is not None and number < least) or (most is not None and number > most):
        bounds = f"of {least} or more" if most is None else f"from {least} to {most}"
        raise InvalidValue(f"{what} {number}: expected a whole number {bounds}", value=number)
    return number


def duration_ms(value: Duration, *, allow_negative: bool = False) -> int:
    """Return a duration in ms; raises InvalidValue, without ``allow_negative`` also for a negative one."""
    from pulsar_admin.store.timespec import parse_duration_ms

    if isinstance(value, str):
        return parse_duration_ms(value, allow_negative=allow_negative)
    if not isinstance(value, timedelta):
        raise InvalidValue(f"{value!r} is not a length of time", hint='write "5m", or give a timedelta', value=value)
    if value < timedelta() and not allow_negative:
        raise InvalidValue(f"duration {value!r} is negative", value=value)
    return value // timedelta(milliseconds=1)


def size_bytes(value: int | str | None) -> int:
    """Return a size in bytes, as a number or a text such as ``10G``, −1 for None; raises InvalidValue."""
    from pulsar_admin.store.timespec import parse_size_bytes

    if value is None:
        return -1
    return parse_size_bytes(value) if isinstance(value, str) else whole_number("size", value, -1, LONG_MAX)


def delay_ms(value: Delay) -> int:
    """Return a duration in ms; raises InvalidValue, including for a negative one."""
    return duration_ms(value) if isinstance(value, (str, timedelta)) else whole_number("delay", value, 0)


def given_number(what: str, value: object) -> float:
    """Return a finite Python or numpy number; raises InvalidValue for anything else, including text."""
    wrong = InvalidValue(f"{what} {value!r}: expected a number, such as 0.5", value=value)
    if not isinstance(value, (int, float, SupportsIndex)) or isinstance(value, bool):
        raise wrong
    try:
        number = float(value)
    except OverflowError as error:
        raise wrong from error
    if not isfinite(number):
        raise wrong
    return number


def given_spark(
    what: str, value: Any
) -> Any:  # Any: what callers give; importing pyspark to look takes longer than most answers
    """Return a Spark or Spark Connect session; raises InvalidValue for anything else."""
    if not any((one.__name__, one.__module__[:8]) == ("SparkSession", "pyspark.") for one in type(value).__mro__):
        raise InvalidValue(
            f"{what} {value!r} is not a Spark session", hint="give SparkSession.builder.getOrCreate()", value=value
        )
    return value


def given_object(what: str, value: Any, kind: type[Kind]) -> Kind:  # Any: what callers give
    """Return an object of type ``kind``; raises InvalidValue for anything else."""
    if not isinstance(value, kind):
        raise InvalidValue(f"{what} {value!r} is not a {kind.__name__}", value=value)
    return value


def _same_path(what: str, value: Path | str) -> Path | str:
    given_path(what, value)
    return value  # as it was given: it may be a URL


_KINDS: Mapping[str, Callable[[str, Any], Any]] = {  # Any: what callers give
    "str": given_text,
    "bool": given_flag,
    "int": whole_number,
    "LedgerId": lambda what, value: whole_number("ledger", value, 0, LONG_MAX),
    "Count": partial(whole_number, least=0),
    "Rate": partial(whole_number, least=1),
    "JavaInt": partial(whole_number, least=INT_MIN, most=INT_MAX),
    "float": given_number,
    "Path | str": _same_path,
    "Sequence[str]": given_texts,
    "Collection[str]": given_texts,
    "Iterable[str | GivenBookie]": given_items,
    "Iterable[Path | str]": given_places,
    "Sequence[Path | str]": given_places,
    "Mapping[str, str]": given_properties,
    "Mapping[str, str | None]": _optional_properties,
    "SparkSession": given_spark,
}
"""Checks of parameters by annotation; they also refuse None unless the annotation allows it."""
Item = TypeVar("Item")
Function = TypeVar("Function", bound=Callable[..., Any])


def checked(function: Function) -> Function:
    """Return ``function`` with checks of its arguments against their annotations (InvalidValue) and hints in Python's terms.

    This includes hints of errors during iteration. A parameter annotated with a ``Literal`` accepts those words only;
    further checks are left to the function that uses the value.
    """
    code, said, scope = function.__code__, function.__annotations__, function.__globals__

    @wraps(function)
    def call(*values: Any, **options: Any) -> Any:  # Any: the function's own
        places, rest = code.co_varnames[: code.co_argcount], values[code.co_argcount :]
        with _python_words(said, values):
            given = [_kept_of(scope, said.get(name), name, one) for name, one in zip(places, values, strict=False)]
            if rest and code.co_flags & CO_VARARGS:
                name = code.co_varnames[code.co_argcount + code.co_kwonlyargcount]
                rest = tuple(_kept_of(scope, said.get(name), name, one) for one in rest)
            options = {name: _kept_of(scope, said.get(name), name, one) for name, one in options.items()}
            answer = function(*given, *rest, **options)
        if type(answer) is tuple and answer and isinstance(answer[0], Answer):
            return Rows(answer)
        return _iterated(answer, said, values) if isinstance(answer, GeneratorType) else answer

    return cast(Function, call)


@contextmanager
def _python_words(said: Mapping[str, str], values: tuple[Any, ...]) -> Iterator[None]:  # Any: what callers give
    """Reword hints of errors raised in the block, and options in their messages, for a Python program.

    ``said``, ``values``: annotations and arguments of the called function; commands get the store of its object.
    """
    try:
        yield
    except StoreError as error:
        if not runs():
            hint = hint_in_python(error.hint, said)
            session = getattr(values[0], "_session", None) if values else None
            error.change_hint(hint if session is None else typable_in(hint, session.path))
            error.change_message(
                re.sub(r"(?<!\S)--([a-z]+(?:-[a-z]+)*)(?![^\s:])", partial(_parameter, said), error.message)
            )
        raise


def _parameter(said: Mapping[str, str], option: re.Match[str]) -> str:
    """Return the Python parameter for an option, or the option if the annotations ``said`` lack that name."""
    name = option[1].replace("-", "_")
    return name if name in said else option[0]


def _iterated(
    found: Generator[Item, None, None], said: Mapping[str, str], values: tuple[Any, ...]
) -> Generator[Item, None, None]:
    with _python_words(said, values):
        yield from found


def _kept_of(scope: Mapping[str, Any], said: str | None, what: str, value: Any) -> Any:  # Any: what callers give
    """Return an argument checked against its annotation; raises InvalidValue."""
    if said is None or (value is None and said.endswith(" | None")):
        return value
    said = said.removesuffix(" | None")
    if said in _KINDS:
        return _KINDS[said](what, value)
    if get_origin(scope.get(said)) is Literal:
        check_choice(what, value, scope[said])
    return value


def check_keywords(given: Mapping[str, Any], kind: type) -> None:  # Any: what callers give
    """Raise InvalidValue for a keyword that the TypedDict ``kind`` does not have, or of another type."""
    unknown = sorted(set(given) - set(kind.__annotations__))
    if unknown:
        raise InvalidValue(
            f"unknown keyword: {', '.join(unknown)}", hint=f"there are {', '.join(kind.__annotations__)}"
        )
    scope = vars(sys.modules[kind.__module__])
    for name, value in given.items():
        _kept_of(scope, kind.__annotations__[name].__forward_arg__, name, value)


class Checked:
    """Base of the classes that callers use: their public methods are ``checked``."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for name, method in list(vars(cls).items()):
            if isinstance(method, FunctionType) and not name.startswith("_"):
                setattr(cls, name, checked(method))


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)
_LEAST_SECONDS, _LEAST_MS = 10**8, 10**11
"""Ints between these are seconds since 1970, of the years from 1973 on, where milliseconds are wanted: there they would be before 1974."""
_YEAR_MS = 31_556_952_000


def time_ms_of(value: Time, now_ms: int) -> int:
    """Return a time in epoch milliseconds; raises InvalidValue, also for a datetime without a zone."""
    from pulsar_admin.store.timespec import MAX_TIME_MS, FromNow, parse_time_or_ago

    if isinstance(value, str):
        return parse_time_or_ago(value, now_ms=now_ms)
    if isinstance(value, timedelta):
        if value < timedelta():
            raise InvalidValue(
                f"{value!r} is an age, and negative: the time would be after now",
                hint=f"for that long ago give {-value!r}, for a time to come a datetime with a zone",
            )
        moment_ms: int = FromNow(now_ms - value // _MS)
    elif isinstance(value, datetime):
        if value.tzinfo is None:
            raise InvalidValue(
                f"{value!r} has no time zone", hint="give it one: datetime(2024, 5, 1, 9, tzinfo=timezone.utc)"
            )
        moment_ms = (value - _EPOCH) // _MS
    elif type(value) is int:
        moment_ms = value
        if _LEAST_SECONDS <= value < _LEAST_MS:
            raise InvalidValue(
                f"time {value} counts seconds: as milliseconds it would be in {1970 + value // _YEAR_MS}",
                hint=f"give milliseconds: {value}000; or datetime.fromtimestamp({value}, timezone.utc)",
                value=value,
            )
    else:
        raise InvalidValue(
            f"{value!r} is not a time", hint='give a datetime, "3h", "2024-05-01T09:00:00Z", or epoch ms'
        )
    if not 0 <= moment_ms <= MAX_TIME_MS:
        raise InvalidValue(f"time {value!r} is not between 1970 and the year 9999")
    return moment_ms


def moment_of(value: Time | MetadataMoment) -> MetadataMoment:
    """Return a moment in the history of a cluster's metadata; a text is a zxid (``0x4a1``), an absolute time, or ``-3h``."""
    from pulsar_admin.store.history.as_of import Moment as MetadataMoment
    from pulsar_admin.store.history.as_of import parse_moment

    if isinstance(value, MetadataMoment):
        return value
    now_ms = int(time.time() * 1000)
    return (
        parse_moment(value, now_ms=now_ms)
        if isinstance(value, str)
        else MetadataMoment(time_ms=time_ms_of(value, now_ms))
    )


def position_of(value: Place) -> Position:
    """Return a position; raises InvalidValue."""
    if not isinstance(value, (str, Position)):
        raise InvalidValue(f"{value!r} is not a position", hint='write "LEDGER:ENTRY", or take a Position', value=value)
    if isinstance(value, str):
        return parse_position(value)
    return Position(
        whole_number("ledger_id", value.ledger_id, -LONG_MAX, LONG_MAX),
        whole_number("entry_id", value.entry_id, -LONG_MAX, LONG_MAX),
        whole_number("batch_index", value.batch_index, -1, INT_MAX),
    )


_ELSEWHERE = {
    "end-time": "until",
    "exclude-reset-position": "exclude",
    "no-index": "index=False",
    "start-time": "since",
    "store": "path",
    "tick-duration": "tick",
    "time-partition-granularity": "granularity",
}
"""Options of the command line whose parameter has another name, and that name."""
_WHEN_OPENED = {"jobs": "jobs", "now": "now", "private-key": "private_keys", "spark": "spark"}
"""Options that are parameters of ``open_store``."""
_AGES = ("ttl", "before", "time")
"""The parameter that is ``-t`` on the command line: the first of these that the method has."""
_VALUES = frozenset({"broker", "entries", "indexed", "now", "reduced"})
"""Words of hints that are the value of the option before them; others go on with the sentence."""


def hint_in_python(hint: str, said: Mapping[str, str]) -> str:
    """Return a hint about command-line options reworded for a Python function with the annotations ``said``.

    ``--force`` becomes ``force=True``, ``--to NAME`` becomes ``to=NAME`` if the function has that parameter, global
    options become ``open_store(now=NAME)``; commands stay. Other options are marked as those of the command line.
    Methods have no parameter for the time zone, so the hint refers to the datetime's.
    """
    if "--" not in hint and " -t" not in hint:
        return hint
    is_python, age = True, next((name for name in _AGES if name in said), None)

    def option(found: re.Match[str]) -> str:
        nonlocal is_python
        if age is not None and found.group().startswith("-t"):
            return age if found["age"] is None else f"{age}={found['age']!r}"
        if found["option"] is None:
            return found.group()
        word, rest = (found["value"] or "").strip(), ""
        if word.isalpha() and word.islower() and word not in _VALUES:
            word, rest = "", f" {word}"
        value = word if word.isdecimal() or (word.replace("_", "").isalpha() and word.isupper()) else repr(word)
        name = _ELSEWHERE.get(found["option"], found["option"].replace("-", "_"))
        if name.partition("=")[0] not in said:
            is_python = is_python and found["option"] in _WHEN_OPENED
            name = _WHEN_OPENED.get(found["option"], name)
            return f"open_store({name}={value if word else '…'}){rest}"
        if said.get(name) == "bool":
            return f"{name}=True{rest}"
        return f"{name}={value}" if word else f"{name}{rest}"

    words = hint.replace("add --tz Europe/Berlin (your zone)", "give a datetime with a zone").replace(" with --tz", "")
    words = words.replace(" with -p", "")
    words = re.sub(
        r"pulsar-admin [^;,]*|`[a-z][^`]*`|--(?P<option>[a-z]+(?:-[a-z]+)*)(?P<value> \w([\w:.+-]*\w)?)?"
        r"|(?<!\S)-t\b( (?P<age>\d([\w:.+-]*\w)?))?",
        option,
        words,
    )
    return words if is_python else f"on the command line: {hint}"
