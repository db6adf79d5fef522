"""Who asks, of which store: its "now", what scans run on, warnings; and how what callers give is understood.

Python checks no types: what is of a wrong kind would end deep inside, or be written as it is.
"""

from __future__ import annotations

import re
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from functools import wraps
from inspect import CO_VARARGS
from math import isfinite
from operator import index
from os import fsencode
from pathlib import Path
from threading import Lock
from types import FunctionType
from typing import TYPE_CHECKING, Any, Literal, SupportsIndex, TypeVar, TypeVarTuple, cast, get_origin

from msgspec import Struct

from pulsar_admin.broken import broken_texts, texts_of_broken
from pulsar_admin.store.db.environment import Store as StoreFile
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.storeinfo import check_state
from pulsar_admin.store.errors import InvalidValue, NotWritable, Refused, StoreError, SubscriptionNotFound, check_choice
from pulsar_admin.store.model.reader import EntryReader, open_reader
from pulsar_admin.store.names import (
    EARLIEST,
    INT_MAX,
    LATEST,
    LONG_MAX,
    Position,
    TopicName,
    TopicSelection,
    parse_position,
)
from pulsar_admin.store.pace import PACE

if TYPE_CHECKING:
    from inspect import Parameter

    from pyspark.sql import SparkSession

    from pulsar_admin.confirm import Plan as Previewed
    from pulsar_admin.store.codec.encryption import PrivateKeys
    from pulsar_admin.store.engine.operation import Engine
    from pulsar_admin.store.history.as_of import Moment as MetadataMoment
    from pulsar_admin.store.model.copy_age import Now
    from pulsar_admin.store.model.cursors import Cursor
    from pulsar_admin.store.model.messages import Window
    from pulsar_admin.store.model.topics import Topic
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


def given_properties(what: str, values: Mapping[str, str]) -> dict[str, str]:
    """Return VALUES; raises InvalidValue unless it is a mapping from text to text."""
    given = given_mapping(what, values)
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


def given_ledgers(ledgers: Iterable[int]) -> tuple[int, ...]:
    """Return the ids LEDGERS; raises InvalidValue for what cannot be one."""
    return tuple(whole_number("ledger", one, 0, LONG_MAX) for one in ledgers)


def given_spark(
    what: str, value: Any
) -> Any:  # Any: what callers give; importing pyspark to look takes longer than most answers
    """Return VALUE; raises InvalidValue unless it is a session of Spark or of Spark Connect."""
    if not any((one.__name__, one.__module__[:8]) == ("SparkSession", "pyspark.") for one in type(value).__mro__):
        raise InvalidValue(
            f"{what} {value!r} is not a Spark session", hint="give SparkSession.builder.getOrCreate()", value=value
        )
    return value


def given_object(what: str, value: Any, kind: type[Kind]) -> Kind:  # Any: what callers give
    """Return VALUE; raises InvalidValue unless it is of KIND."""
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
    "float": given_number,
    "Path | str": _same_path,
    "Sequence[str]": given_texts,
    "Collection[str]": given_texts,
    "Iterable[str | GivenBookie]": given_items,
    "Mapping[str, str]": given_properties,
    "SparkSession": given_spark,
}
"""What checks a parameter, by what its annotation says; of None, too, unless it says that."""
Function = TypeVar("Function", bound=Callable[..., Any])


def checked(function: Function) -> Function:
    """Return FUNCTION that takes what its parameters say and raises InvalidValue for what is of another kind.

    A parameter of one of the words of a ``Literal`` of its module takes these alone; what only some values of a kind are for is checked
    by whoever uses them.
    """
    code, said, scope = function.__code__, function.__annotations__, function.__globals__

    @wraps(function)
    def call(*values: Any, **options: Any) -> Any:  # Any: the function's own
        places, rest = code.co_varnames[: code.co_argcount], values[code.co_argcount :]
        given = [_kept_of(scope, said.get(name), name, one) for name, one in zip(places, values, strict=False)]
        if rest and code.co_flags & CO_VARARGS:
            name = code.co_varnames[code.co_argcount + code.co_kwonlyargcount]
            rest = tuple(_kept_of(scope, said.get(name), name, one) for one in rest)
        options = {name: _kept_of(scope, said.get(name), name, one) for name, one in options.items()}
        return function(*given, *rest, **options)

    return cast(Function, call)


def _kept_of(scope: Mapping[str, Any], said: str | None, what: str, value: Any) -> Any:  # Any: what callers give
    """Return VALUE of the parameter WHAT, which is SAID to be of a kind; raises InvalidValue."""
    if said is None or (value is None and said.endswith(" | None")):
        return value
    said = said.removesuffix(" | None")
    if said in _KINDS:
        return _KINDS[said](what, value)
    if get_origin(scope.get(said)) is Literal:
        check_choice(what, value, scope[said])
    return value


def check_keywords(given: Mapping[str, Any], kind: type) -> None:  # Any: what callers give
    """Raise InvalidValue for a keyword that KIND, a TypedDict, does not have, and for what is not of the kind that it says."""
    unknown = sorted(set(given) - set(kind.__annotations__))
    if unknown:
        raise InvalidValue(
            f"unknown keyword: {', '.join(unknown)}", hint=f"there are {', '.join(kind.__annotations__)}"
        )
    scope = vars(sys.modules[kind.__module__])
    for name, value in given.items():
        _kept_of(scope, kind.__annotations__[name].__forward_arg__, name, value)


class Checked:
    """What callers have of us: its public methods are ``checked``."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for name, method in list(vars(cls).items()):
            if isinstance(method, FunctionType) and not name.startswith("_"):
                setattr(cls, name, checked(method))


Time = datetime | timedelta | str | int
"""A point in time: a datetime with a zone; ``2024-05-01T09:00:00Z`` and whatever else the command line takes; so long ago as
``3h`` or a timedelta; epoch milliseconds as an int."""
Place = Position | str
"""A position: a ``Position``, or ``LEDGER:ENTRY``, ``LEDGER:ENTRY:BATCH``, ``earliest``, ``latest``."""
Item = TypeVar("Item")
Result = TypeVar("Result")
Given = TypeVarTuple("Given")
_AT: ContextVar[Moment | None] = ContextVar("moment", default=None)
"""When plans are made, while one is: one that is made again is made as at the moment of then."""
_NOT_CALLERS = frozenset({"contextlib", "pulsar_admin"})
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)


class Moment(Struct, frozen=True):
    """When a plan was made: the clock in epoch milliseconds, whether the caller named it, and the broker's interceptors in force."""

    now_ms: int
    is_given: bool
    interceptors: tuple[str, ...] | None


class PartialData(UserWarning):
    """An answer lacks what could not be read: an entry that is lost or damaged, a cursor, a value without its schema.

    Turn it into an error with ``warnings.simplefilter("error", pulsar_admin.PartialData)``.
    """


def check_engine(jobs: int, spark: SparkSession | None) -> None:
    """Raise InvalidValue unless JOBS is a number of processes, 0 for one a core, and 1 beside SPARK, which is a session."""
    if whole_number("jobs", jobs) < 0 or (spark is not None and jobs != 1):
        raise InvalidValue(f"jobs={jobs}: give 0 (one process a core) or more, and not with spark")
    if spark is not None:
        given_spark("spark", spark)


@contextmanager
def open_engine(jobs: int, spark: SparkSession | None, problems: list[StoreError]) -> Iterator[Engine | None]:
    """Open what scans of many entries run on: SPARK's executors, JOBS processes (0: one a core), or None: this process.

    What it could not read is in PROBLEMS at the end, and each of them is warned of. Raises InvalidValue, MissingComponent.
    """
    check_engine(jobs, spark)
    with ExitStack() as stack:
        engine: Engine | None = None
        if spark is not None:
            from pulsar_admin.store.engine.spark import SparkEngine

            engine = SparkEngine(spark)
        elif jobs != 1:
            from pulsar_admin.store.engine.local import LocalEngine

            engine = stack.enter_context(LocalEngine(jobs))
        yield engine
        problems += [failed.error() for failed in (engine.failed if engine is not None else ())]
    warn_partial(problems)


class Session:
    """Who asks, and the open store that is asked, None where none is needed: "now" (NOW fixed, None: see ``now_ms`` and ``clock_ms``), what
    scans run on (JOBS, SPARK: see ``open_engine``), and how it hears of progress and of what answers lack. A command has one of its own.

    A snapshot that is read, by an iteration in progress, keeps the map open: reading it after the file has shrunk kills the process.
    So ``close`` refuses new work, and the last reader closes.
    """

    wait_ms = 0
    """How long to wait while another process writes."""
    keys: PrivateKeys | None = None
    """What opens encrypted payloads."""
    memory_bytes: int | None = None
    """What a process may take; None: the usual."""

    def __init__(
        self,
        store: StoreFile | None = None,
        now: Time | None = None,
        *,
        jobs: int = 1,
        spark: SparkSession | None = None,
    ) -> None:
        check_engine(jobs, spark)
        self._store = store
        self._jobs = jobs
        self._spark = spark
        self._now_ms = None if now is None else int(time_ms_of(now, int(time.time() * 1000)))
        self._lock = Lock()
        self._users = 0
        self._closed = False

    @property
    def processes(self) -> int:
        """How many processes a pass over all topics may use; 0: one a core."""
        return self._jobs

    @property
    def clock_ms(self) -> int:
        """Now for what writes, in epoch milliseconds: as given, else the clock, which is a ``FromNow``."""
        from pulsar_admin.store.timespec import FromNow

        at, given_ms = _AT.get(), self._given_ms
        return FromNow(time.time() * 1000 if at is None else at.now_ms) if given_ms is None else given_ms

    @property
    def interceptors(self) -> tuple[str, ...] | None:
        """Those of the broker whose events of policies are written; None: those that wrote the last event."""
        at = _AT.get()
        return None if at is None else at.interceptors

    @property
    def _given_ms(self) -> int | None:
        at = _AT.get()
        return self._now_ms if at is None else at.now_ms if at.is_given else None

    @property
    def moment(self) -> Moment:
        """When a plan is made that is made now."""
        return Moment(self.clock_ms, self._given_ms is not None, self.interceptors)

    @contextmanager
    def at(self, moment: Moment) -> Iterator[None]:
        """Plan as at MOMENT while the block runs."""
        token = _AT.set(moment)
        try:
            yield
        finally:
            _AT.reset(token)

    def partial(self, problems: Iterable[StoreError | str]) -> None:
        """Report what the answer of a method lacks."""
        warn_partial(problems)

    def fail(self, problem: StoreError) -> None:
        """Report what an iteration leaves out."""
        warn_partial([problem])

    def say_in_python(self, error: StoreError, parameters: Mapping[str, Parameter]) -> None:
        """Name PARAMETERS of the method that raised ERROR in its hint, in place of the command line's options."""
        error.change_hint(hint_in_python(error.hint, parameters))

    def each(
        self, items: Iterable[Item], work: Callable[[Item], Result], *, alone: bool | None = None
    ) -> Iterator[Result]:
        """Yield WORK of every one of ITEMS; an error ends it (of several, or unless ALONE, a command reports it and goes on)."""
        return map(work, items)

    def warn(self, texts: Iterable[str]) -> None:
        """Report what callers should know of an answer that lacks nothing else."""
        warn_partial(texts)

    @contextmanager
    def warnings(self) -> Iterator[Callable[[str], None]]:
        """Take what callers should know of work that writes, and say it when that is done."""
        texts: list[str] = []
        yield texts.append
        warn_partial(texts)

    def tell(self, text: str) -> None:
        """Say what a person at a terminal likes to know; nobody is there."""

    def confirm(self, plan: Previewed) -> None:
        """Go on to apply PLAN; a command shows it instead, or asks first."""

    def progress(
        self, total: int | None, unit: str, label: str, *, resumes: bool = False
    ) -> AbstractContextManager[Callable[[int], None]]:
        """Show how far the work LABEL is, TOTAL (None: unknown) of UNIT: the function it opens is told each part of them.

        RESUMES: what is stopped goes on when it is called again.
        """
        return nullcontext(lambda count: None)

    def engine(self, problems: list[StoreError], size_bytes: int = 0) -> AbstractContextManager[Engine | None]:
        """Open what scans, of about SIZE_BYTES, run on, see ``open_engine``; raises InvalidValue for Spark where reading is bounded."""
        if PACE.is_limited:  # other processes would each read as fast
            if self._spark is not None:
                raise InvalidValue(
                    "max_rate bounds what this process reads, Spark reads in others", hint="give one of them"
                )
            return nullcontext(None)
        return open_engine(self._jobs, self._spark, problems)

    def time_ms(self, value: Time, *, changes: bool = False) -> int:
        """Return VALUE in epoch milliseconds, relative times counted from ``now_ms``, or by CHANGES from the clock's now, which then is a
        ``FromNow``; raises InvalidValue."""
        try:
            found = time_ms_of(value, self.clock_ms if changes else self.now_ms)
        except InvalidValue as error:
            self.say_in_python(error, {})
            raise
        return found if changes and self._given_ms is None else int(found)

    # -- the open store -------------------------------------------------------------------------------------------------

    @property
    def path(self) -> Path:
        """The directory of the store."""
        return self._file.path

    @property
    def _file(self) -> StoreFile:
        assert self._store is not None  # who has none asks nothing of it
        return self._store

    @property
    def now_ms(self) -> int:
        """Now for what reads, in epoch milliseconds: as given, else the time that a store is a copy of, else the clock."""
        return self.clock_ms if self._store is None else self.now.time_ms

    @property
    def now(self) -> Now:
        """The now that ages are counted at, and what says it."""
        from pulsar_admin.store.model.copy_age import Now, find_as_of

        given_ms = self._given_ms
        if given_ms is not None:
            return Now.of(None, given_ms, is_given=True)
        with self.opened(unindexed=True) as store, store.read() as txn:
            return Now.of(find_as_of(txn), int(self.clock_ms))

    @contextmanager
    def opened(self, *, unindexed: bool = False) -> Iterator[StoreFile]:
        """Hold the store open while it is used; raises Refused when it was closed, and, but for UNINDEXED, has no index."""
        with self._lock:
            if self._closed:
                raise Refused(f"{self.path} was closed", hint="open it again: pulsar_admin.open_store")
            check_state(self.path, self._file.info, unindexed=unindexed)
            self._users += 1
        try:
            yield self._file
        finally:
            with self._lock:
                self._users -= 1
                ends = self._closed and not self._users
            if ends:
                self._file.close()

    def close(self) -> None:
        """Refuse new work, and close the store when nobody reads it any more."""
        with self._lock:
            ends = not self._closed and not self._users
            self._closed = True
        if ends:
            self._file.close()

    @contextmanager
    def read(self) -> Iterator[Txn]:
        """Open one snapshot of the store's rows."""
        with self.opened() as store, store.read() as txn:
            yield txn

    @contextmanager
    def reader(self, *, unindexed: bool = False) -> Iterator[EntryReader]:
        """Open one snapshot, entries too; UNINDEXED: see ``opened``."""
        with self.opened(unindexed=unindexed) as store, open_reader(store) as reader:
            reader.keys = self.keys
            yield reader

    def warn_of_broken(self, txn: Txn, names: Iterable[TopicName]) -> None:
        """Report the broken ledgers of the topics NAMES, which can be read."""
        warn_partial(broken_texts(txn, names))

    def warn_of_broken_ledgers(self, txn: Txn, topic: Topic) -> None:
        """Report the broken ledgers of TOPIC."""
        warn_partial(texts_of_broken(txn, topic))

    def ask(self, read: Callable[[Txn, *Given], Result], *given: *Given) -> Result:
        """Return what READ finds in one snapshot of the store's rows with what is GIVEN; an iteration would outlive it."""
        with self.read() as txn:
            return read(txn, *given)

    def window(
        self,
        since: Time | None,
        until: Time | None,
        start: Place | None = None,
        end: Place | None = None,
        *,
        clock: str = "auto",
        key: str | None = None,
    ) -> Window:
        """Return which messages are meant, None: all on that side; raises InvalidValue."""
        from pulsar_admin.store.model.messages import Window

        start_ms, end_ms = (None if value is None else self.time_ms(value) for value in (since, until))
        first = EARLIEST if start is None else position_of(start)
        last = LATEST if end is None else position_of(end)
        return Window(first, last, start_ms, end_ms, clock, key).checked()

    @contextmanager
    def scan(self, problems: list[StoreError] | None = None, *, unindexed: bool = False) -> Iterator[EntryReader]:
        """Open one snapshot whose entries are scanned on ``engine``; PROBLEMS are warned of at the end. UNINDEXED: see ``opened``."""
        with self.reader(unindexed=unindexed) as reader, self._scanning(reader, [] if problems is None else problems):
            yield reader

    def scanning(self, reader: EntryReader, size_bytes: int, label: str) -> AbstractContextManager[None]:
        """Let what READER scans, about SIZE_BYTES, run on ``engine``, with progress under LABEL."""
        return self._scanning(reader, [])

    @contextmanager
    def _scanning(self, reader: EntryReader, problems: list[StoreError]) -> Iterator[None]:
        with self.engine(problems) as engine:
            reader.engine = engine
            reader.failed = [] if engine is None else engine.failed
            yield
            if engine is None:
                problems += [failed.error() for failed in reader.failed]

    # -- topics and cursors that are meant -----------------------------------------------------------------------------

    def read_topics(self, reader: EntryReader, selection: TopicSelection) -> Iterator[Topic]:
        """Yield the topics meant, partitions of a partitioned one each, and report their broken ledgers; raises TopicNotFound."""
        from pulsar_admin.store.model.topics import read_topic, select_topics

        names = dict.fromkeys(select_topics(reader.txn, selection))
        for topic in self.each(names, lambda name: read_topic(reader.txn, name), alone=bool(selection.topics)):
            self.warn_of_broken_ledgers(reader.txn, topic)
            yield topic

    def read_cursors(
        self, reader: EntryReader, topic: Topic, names: Iterable[str], *, named: bool, is_replaced: bool = False
    ) -> Iterator[Cursor]:
        """Yield the cursors NAMES of TOPIC, which was NAMED or is one of many: see ``each``; IS_REPLACED: damaged ones, too."""
        from pulsar_admin.store.model.cursors import read_cursor, read_damaged_cursor

        read = read_damaged_cursor if is_replaced else read_cursor
        return self.each(names, lambda name: read(reader.txn, reader, topic, name), alone=named)

    def iter_cursors(
        self, reader: EntryReader, selection: TopicSelection, subscription: str, *, is_replaced: bool = False
    ) -> Iterator[tuple[Topic, Cursor]]:
        """Yield the cursor SUBSCRIPTION of every topic meant, partitions of a partitioned one each.

        A topic named must have it; of all topics, or those of a pattern, those that have it are taken. Raises TopicNotFound and
        SubscriptionNotFound, the latter also when no topic has it.
        """
        from pulsar_admin.store.model.cursors import iter_cursor_names

        named = bool(selection.topics)
        found = False
        for topic in self.read_topics(reader, selection):
            if named or subscription in iter_cursor_names(reader.txn, topic.name):
                for cursor in self.read_cursors(reader, topic, (subscription,), named=named, is_replaced=is_replaced):
                    found = True
                    yield topic, cursor
        if not found:
            raise SubscriptionNotFound(
                f"no topic that matches has a subscription {subscription!r}", subscription=subscription
            )

    def check_writable(self) -> None:
        """Raise NotWritable for a store that was opened for reading."""
        if not self._file.writable:
            raise NotWritable(
                f"{self.path} was opened for reading",
                hint="open it with open_store(…, writable=True)",
                path=str(self.path),
            )

    @contextmanager
    def writing(self) -> Iterator[StoreFile]:
        """Hold the store for work that writes in several transactions; raises NotWritable, and Refused while an iteration reads it.

        LMDB's map may grow then, which readers in this process would not survive.
        """
        with self.opened() as store:
            self.check_writable()
            if self._users > 1:
                raise Refused(f"an iteration still reads {self.path}", hint="end it first, or close its generator")
            yield store


_LEAST_SECONDS, _LEAST_MS = 10**8, 10**11
"""Ints between these are seconds since 1970, of the years from 1973 on, where milliseconds are wanted: there they would be before 1974."""
_YEAR_MS = 31_556_952_000


def time_ms_of(value: Time, now_ms: int) -> int:
    """Return VALUE in epoch milliseconds; raises InvalidValue, also for a datetime without a zone."""
    from pulsar_admin.store.timespec import MAX_TIME_MS, FromNow, parse_time_or_ago

    if isinstance(value, str):
        return parse_time_or_ago(value, now_ms=now_ms)
    if isinstance(value, timedelta):
        if value < timedelta():
            raise InvalidValue(
                f"{value!r} is an age, and negative: the time would be after now",
                hint=f"for that long ago give {-value!r}, for a time to come a datetime with a zone",
            )
        found: int = FromNow(now_ms - value // _MS)
    elif isinstance(value, datetime):
        if value.tzinfo is None:
            raise InvalidValue(
                f"{value!r} has no time zone", hint="give it one: datetime(2024, 5, 1, 9, tzinfo=timezone.utc)"
            )
        found = (value - _EPOCH) // _MS
    elif type(value) is int:
        found = value
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
    if not 0 <= found <= MAX_TIME_MS:
        raise InvalidValue(f"time {value!r} is not between 1970 and the year 9999")
    return found


def moment_of(value: Time | MetadataMoment) -> MetadataMoment:
    """Return VALUE as a moment of a cluster's metadata; a text may be a zxid."""
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
    """Return VALUE as a position; raises InvalidValue."""
    if not isinstance(value, (str, Position)):
        raise InvalidValue(f"{value!r} is not a position", hint='write "LEDGER:ENTRY", or take a Position', value=value)
    if isinstance(value, str):
        return parse_position(value)
    return Position(
        whole_number("ledger_id", value.ledger_id, -LONG_MAX, LONG_MAX),
        whole_number("entry_id", value.entry_id, -LONG_MAX, LONG_MAX),
        whole_number("batch_index", value.batch_index, -1, INT_MAX),
    )


def warn_partial(problems: Iterable[StoreError | str]) -> None:
    """Warn of what an answer lacks, at the line that called this library."""
    for problem in problems:
        text = problem if isinstance(problem, str) else problem.message
        warnings.warn(text, PartialData, stacklevel=_callers_level())


def hint_in_python(hint: str, parameters: Mapping[str, Parameter]) -> str:
    """Return HINT with ``force=True`` for ``--force`` and ``to=NAME`` for ``--to NAME`` where PARAMETERS have such a name; commands in it
    stay. A zone, which no method takes, is that of a datetime."""
    if "--" not in hint:
        return hint

    def said(found: re.Match[str]) -> str:
        name, value = (found["option"] or "").replace("-", "_"), found["value"] or ""
        if name not in parameters:
            return found.group()
        if parameters[name].annotation == "bool":
            return f"{name}=True{value}"
        value = value.strip()
        return f"{name}={value!r}" if value.islower() else f"{name}={value}"

    hint = hint.replace("add --tz Europe/Berlin (your zone)", "give a datetime with a zone").replace(" with --tz", "")
    return re.sub(r"pulsar-admin [^;,]*|--(?P<option>[a-z]+(?:-[a-z]+)*)(?P<value> \w+)?", said, hint)


def _callers_level() -> int:
    """Return the ``stacklevel`` of the line that called this library, counted from the function that calls this one."""
    level, frame = 1, sys._getframe(1)
    # ``with`` blocks and wrapped methods put frames of contextlib between ours.
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _NOT_CALLERS:
        level, frame = level + 1, frame.f_back
    return level
