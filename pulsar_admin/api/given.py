"""What callers give. Python checks no types: what is of a wrong kind would end deep inside, or be written as it is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from math import isfinite
from operator import index
from os import fsencode
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, SupportsIndex, TypeVar

from pulsar_admin.store.errors import InvalidValue
from pulsar_admin.store.names import LONG_MAX

if TYPE_CHECKING:
    from pulsar_admin.store.sources.roots import Wanted

Kind = TypeVar("Kind")

Duration = timedelta | str
"""A length of time: a timedelta, or ``5m``, ``3h``, ``2d`` and whatever else the command line takes."""
Delay = Duration | int
"""So long: a length of time, or milliseconds as an int."""

Clock = Literal["auto", "publish", "broker", "event"]
"""Which time of a message counts: the broker's where the entry carries one, else the publish time (auto); or always one of them."""


def given_text(what: str, value: object) -> str:
    """Return VALUE; raises InvalidValue unless it is a text."""
    if not isinstance(value, str):
        raise InvalidValue(f"{what} {value!r} is not a text", value=value)
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InvalidValue(f"{value!r} is not Unicode", value=value) from error
    return value


def given_texts(what: str, values: Iterable[str]) -> tuple[str, ...]:
    """Return VALUES; raises InvalidValue unless they are texts; one text alone would be taken for its letters."""
    return tuple(given_text(what, one) for one in given_items(what, values))


def wanted_of(chroot: str | None, ledgers_root: str | None) -> Wanted:
    """Return which cluster of a ZooKeeper the caller names; raises InvalidValue."""
    from pulsar_admin.store.sources.roots import Wanted, parse_root

    return Wanted(
        None if chroot is None else parse_root(given_text("chroot", chroot), "chroot"),
        None if ledgers_root is None else parse_root(given_text("ledgers_root", ledgers_root), "ledgers_root"),
    )


def given_items(what: str, values: Iterable[Kind]) -> Iterable[Kind]:
    """Return VALUES; raises InvalidValue for what cannot be iterated over, and for one text or mapping."""
    if isinstance(values, (str, bytes, Mapping)) or not isinstance(values, Iterable):
        wrong = "is a text" if isinstance(values, str) else "is not a list"
        raise InvalidValue(f"{what} {values!r} {wrong}", hint=f"write a list: {what}=[{values!r}]", value=values)
    return values


def given_places(what: str, values: Iterable[Path | str]) -> tuple[str, ...]:
    """Return the texts of the paths VALUES; raises InvalidValue unless they are a list of paths."""
    places = tuple(given_items(what, values))
    for one in places:
        given_path(what, one)
    return tuple(map(str, places))


def given_mapping(what: str, value: Any) -> Mapping[Any, Any]:  # Any: what callers give
    """Return VALUE; raises InvalidValue unless it is a mapping."""
    if not isinstance(value, Mapping):
        raise InvalidValue(f"{what} {value!r} is not a mapping", hint='write {"name": "value"}', value=value)
    return value


def given_properties(values: Mapping[str, str] | None) -> dict[str, str]:
    """Return VALUES, none for None; raises InvalidValue unless it is a mapping from text to text."""
    given = given_mapping("properties", {} if values is None else values)
    return {given_text("property", key): given_text(f"property {key}", one) for key, one in given.items()}


def given_path(what: str, value: Path | str) -> Path:
    """Return VALUE; raises InvalidValue unless it is a path or its text."""
    try:
        encoded = fsencode(value)
    except (TypeError, UnicodeEncodeError) as error:
        raise InvalidValue(f"{what} {value!r} is not a path", value=value) from error
    if isinstance(value, bytes) or b"\0" in encoded:
        raise InvalidValue(f"{what} {value!r} is not a path", value=value)
    return Path(value)


def given_flag(what: str, value: object) -> bool:
    """Return VALUE; raises InvalidValue unless it is True or False: any text is true."""
    if not isinstance(value, bool):
        raise InvalidValue(f"{what} {value!r} is not True or False", value=value)
    return value


def given_flag_or_none(what: str, value: object) -> None:
    """Raise InvalidValue unless VALUE is True, False or None."""
    if value is not None:
        given_flag(what, value)


def given_flags(**flags: object) -> None:
    """Raise InvalidValue unless each of FLAGS is True or False."""
    for what, value in flags.items():
        given_flag(what, value)


def given_rate(max_rate: int | None) -> int | None:
    """Return MAX_RATE, bytes a second, None: no bound; raises InvalidValue."""
    return None if max_rate is None else whole_number("max_rate", max_rate, 1)


def whole_number(what: str, value: object, least: int | None = None, most: int | None = None) -> int:
    """Return VALUE; raises InvalidValue unless it is an int or one of numpy's, LEAST to MOST where they are given; text is not."""
    if not isinstance(value, SupportsIndex) or isinstance(value, bool):
        raise InvalidValue(f"{what} {value!r}: a whole number is wanted, such as 5", value=value)
    number = index(value)
    if (least is not None and number < least) or (most is not None and number > most):
        raise InvalidValue(f"{what} {number}: a whole number from {least} to {most} is wanted", value=number)
    return number


def duration_ms(value: Duration) -> int:
    """Return VALUE in ms; raises InvalidValue."""
    from pulsar_admin.store.timespec import parse_duration_ms

    if isinstance(value, str):
        return parse_duration_ms(value)
    if not isinstance(value, timedelta):
        raise InvalidValue(f"{value!r} is not a length of time", hint='write "5m", or give a timedelta', value=value)
    return value // timedelta(milliseconds=1)


def delay_ms(value: Delay) -> int:
    """Return VALUE in ms; raises InvalidValue, also for one that is negative."""
    found = duration_ms(value) if isinstance(value, (str, timedelta)) else whole_number("delay", value)
    if found < 0:
        raise InvalidValue(f"delay {value!r} is negative")
    return found


def given_number(what: str, value: object) -> float:
    """Return VALUE; raises InvalidValue unless it is a finite number of Python's or numpy's; text is not."""
    wrong = InvalidValue(f"{what} {value!r}: a number is wanted, such as 0.5", value=value)
    if not isinstance(value, (int, float, SupportsIndex)) or isinstance(value, bool):
        raise wrong
    try:
        number = float(value)
    except OverflowError as error:
        raise wrong from error
    if not isfinite(number):
        raise wrong
    return number


def given_keywords(given: Mapping[str, object], kind: type) -> None:
    """Raise InvalidValue for a keyword that KIND, a TypedDict, does not have."""
    unknown = sorted(set(given) - set(kind.__annotations__))
    if unknown:
        raise InvalidValue(
            f"unknown keyword: {', '.join(unknown)}", hint=f"there are {', '.join(kind.__annotations__)}"
        )


def given_ledgers(ledgers: Iterable[int]) -> tuple[int, ...]:
    """Return the ids LEDGERS; raises InvalidValue for what cannot be one."""
    return tuple(whole_number("ledger", one, 0, LONG_MAX) for one in ledgers)


def given_spark(value: Any) -> None:  # Any: what callers give; importing pyspark to look takes longer than most answers
    """Raise InvalidValue unless VALUE is a session of Spark or of Spark Connect."""
    if not any((one.__name__, one.__module__[:8]) == ("SparkSession", "pyspark.") for one in type(value).__mro__):
        raise InvalidValue(
            f"spark {value!r} is not a Spark session", hint="give SparkSession.builder.getOrCreate()", value=value
        )


def given_object(what: str, value: Any, kind: type[Kind]) -> Kind:  # Any: what callers give
    """Return VALUE; raises InvalidValue unless it is of KIND."""
    if not isinstance(value, kind):
        raise InvalidValue(f"{what} {value!r} is not a {kind.__name__}", value=value)
    return value
