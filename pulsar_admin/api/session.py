"""The session: its store, its "now", its scan engine, its warnings; and the checks of callers' arguments.

Python checks no types: a value of the wrong type would fail deep inside, or be written unchanged.
"""

from __future__ import annotations

import re
import sys
import time
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from functools import partial, wraps
from inspect import CO_VARARGS
from math import isfinite
from operator import index
from os import fsencode
from pathlib import Path
from threading import Lock
from types import FunctionType, GeneratorType
from typing import (
    TYPE_CHECKING,
    Any,
    Literal,
    NamedTuple,
    Protocol,
    SupportsIndex,
    TypeVar,
    TypeVarTuple,
    cast,
    get_origin,
)

from msgspec import Struct

from pulsar_admin.broken import broken_texts, texts_of_broken
from pulsar_admin.store.db.environment import Store as StoreFile
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.storeinfo import check_state
from pulsar_admin.store.errors import InvalidValue, NotWritable, Refused, StoreError, SubscriptionNotFound, check_choice
from pulsar_admin.store.model.reader import EntryReader, ignore, open_reader
from pulsar_admin.store.model.topics import Topic, read_topic, select_topics
from pulsar_admin.store.names import (
    EARLIEST,
    INT_MAX,
    INT_MIN,
    LATEST,
    LONG_MAX,
    Position,
    TopicName,
    TopicSelection,
    parse_position,
)
from pulsar_admin.store.pace import PACE
from pulsar_admin.store.wording import Answer, Rows, listed, plural
from pulsar_admin.typable import runs, typable_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pulsar_admin.confirm import Plan as Previewed
    from pulsar_admin.progress import Progress
    from pulsar_admin.store.codec.encryption import PrivateKeys
    from pulsar_admin.store.engine.operation import Engine, FailedSlice
    from pulsar_admin.store.history.as_of import Moment as MetadataMoment
    from pulsar_admin.store.model.copy_age import Now
    from pulsar_admin.store.model.cursors import Cursor
    from pulsar_admin.store.model.messages import Window
    from pulsar_admin.store.search.broker_setup import BrokerVersion
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
Clock = Literal["auto", "publish", "broker", "event"]
"""Which time of a message counts: the broker's where the entry carries one, else the publish time (auto); or always one of them."""


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
    """Return texts; raises InvalidValue for anything else, also for one text, which would be taken for its letters."""
    return tuple(given_text(what, one) for one in given_items(what, values))


def wanted_of(chroot: str | None, ledgers_root: str | None) -> Wanted:
    """Return which cluster of a ZooKeeper the caller names; raises InvalidValue."""
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
    """Return True or False; raises InvalidValue for anything else, as any text would be true."""
    if not isinstance(value, bool):
        raise InvalidValue(f"{what} {value!r} is not True or False", value=value)
    return value


def whole_number(what: str, value: object, least: int | None = None, most: int | None = None) -> int:
    """Return an int (or numpy's) from ``least`` to ``most``; raises InvalidValue for anything else, also text."""
    if not isinstance(value, SupportsIndex) or isinstance(value, bool):
        raise InvalidValue(f"{what} {value!r}: expected a whole number, such as 5", value=value)
    number = index(value)
    if (least is not None and number < least) or (most is not None and number > most):
        bounds = f"of {least} or more" if most is None else f"from {least} to {most}"
        raise InvalidValue(f"{what} {number}: expected a whole number {bounds}", value=number)
    return number


def duration_ms(value: Duration) -> int:
    """Return a duration in ms; raises InvalidValue."""
    from pulsar_admin.store.timespec import parse_duration_ms

    if isinstance(value, str):
        return parse_duration_ms(value)
    if not isinstance(value, timedelta):
        raise InvalidValue(f"{value!r} is not a length of time", hint='write "5m", or give a timedelta', value=value)
    return value // timedelta(milliseconds=1)


def delay_ms(value: Delay) -> int:
    """Return a duration in ms; raises InvalidValue, also for a negative one."""
    delay = duration_ms(value) if isinstance(value, (str, timedelta)) else whole_number("delay", value)
    if delay < 0:
        raise InvalidValue(f"delay {value!r} is negative")
    return delay


def given_number(what: str, value: object) -> float:
    """Return a finite number of Python's or numpy's; raises InvalidValue for anything else, also text."""
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
    """Return a session of Spark or of Spark Connect; raises InvalidValue for anything else."""
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
    """Return a function that raises InvalidValue for arguments without the annotated types, and whose hints use Python's words.

    Hints of errors during iteration do too. A parameter annotated with a ``Literal`` takes those words only; finer checks are left to
    the function that uses the value.
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
    """Reword the hints of errors that are raised meanwhile for a Python program.

    ``said``, ``values``: the annotations and the arguments of the function called; commands name the store of its object.
    """
    try:
        yield
    except StoreError as error:
        if not runs():
            hint = hint_in_python(error.hint, said)
            session = getattr(values[0], "_session", None) if values else None
            error.change_hint(hint if session is None else typable_in(hint, session.path))
        raise


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


Time = datetime | timedelta | str | int
"""A point in time: a datetime with a zone; ``2024-05-01T09:00:00Z`` and whatever else the command line takes; so long ago as
``3h`` or a timedelta; epoch milliseconds as an int."""
Place = Position | str
"""A position: a ``Position``, or ``LEDGER:ENTRY``, ``LEDGER:ENTRY:BATCH``, ``earliest``, ``latest``."""
Result = TypeVar("Result")
Given = TypeVarTuple("Given")
_AT: ContextVar[Moment | None] = ContextVar("moment", default=None)
"""The moment at which the current plan is made; a plan that is made anew uses the moment of its first making."""
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


@contextmanager
def open_engine(jobs: int, spark: SparkSession | None, problems: list[StoreError]) -> Iterator[Engine | None]:
    """Open the engine that scans entries: Spark's executors, ``jobs`` processes (0: one per core), or None for this process.

    Unreadable data is listed in ``problems`` at the end, each with a warning. Raises MissingComponent.
    """
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


class Scanning(NamedTuple):
    """How a reader scans: on an engine (None: in this process), which is told bytes as they are read, and what could not be."""

    engine: Engine | None = None
    advance: Callable[[int], None] = ignore
    failed: list[FailedSlice] | None = None


class Host(Protocol):
    """For whom a session works: a ``Program`` in Python, or a running command (``pulsar_admin.running.Running``)."""

    @property
    def clock_ms(self) -> int:
        """The time for changes, in epoch milliseconds: as given, otherwise the clock's, which is a ``FromNow``."""

    @property
    def now_ms(self) -> int:
        """The time for reading, in epoch milliseconds: as given, otherwise the time of the copy, otherwise the clock's."""

    @property
    def now(self) -> Now:
        """The now that ages are counted at, and what says it."""

    @property
    def moment(self) -> Moment:
        """When a plan is made that is made now."""

    def at(self, moment: Moment) -> AbstractContextManager[None]:
        """Plan as at ``moment`` while the block runs."""

    def time_ms(self, value: Time, *, changes: bool = False) -> int:
        """Return ``value`` in epoch milliseconds, relative times counted from ``now_ms``, or of ``changes`` from the clock's now, which
        then is a ``FromNow``; raises InvalidValue."""

    def opened(self, *, unindexed: bool = False) -> AbstractContextManager[StoreFile]:
        """Hold the store open while it is used; raises Refused when it was closed, and, unless ``unindexed``, has no index."""

    def writing(self) -> AbstractContextManager[StoreFile]:
        """Hold the store for work that writes in several transactions; raises NotWritable, StoreBusy, Refused."""

    def check_writable(self) -> None:
        """Raise NotWritable for a store that was opened for reading."""

    def close(self) -> None:
        """Refuse new work, and close the store when its last reader is done."""

    def engine(self, problems: list[StoreError], size_bytes: int = 0) -> AbstractContextManager[Engine | None]:
        """Open what scans of about ``size_bytes`` run on; raises InvalidValue for Spark if reading is bounded."""

    def scanning(self, size_bytes: int, label: str, problems: list[StoreError]) -> AbstractContextManager[Scanning]:
        """Open the same for a reader, with progress under ``label`` (empty: none)."""

    def progress(
        self, total: int | None, unit: str, label: str, *, resumes: bool = False
    ) -> AbstractContextManager[Progress]:
        """Show the progress of the work ``label``, ``total`` (None: unknown) of ``unit``; ``resumes``: a later call continues it."""

    def lacks(self, problem: StoreError | str) -> None:
        """Report what an answer lacks."""

    def fail(self, error: StoreError) -> None:
        """Report what an iteration leaves out."""

    def warn_of_broken(self, txn: Txn, names: Iterable[TopicName]) -> None:
        """Report the broken ledgers of the topics, which can be read."""

    def warn_of_broken_ledgers(self, txn: Txn, topic: Topic) -> None:
        """Report the broken ledgers of a topic."""

    def warn(self, text: str) -> None:
        """Report what callers should know of an answer that lacks nothing else."""

    def warnings(self) -> AbstractContextManager[Callable[[str], None]]:
        """Take what callers should know of work that writes, and say it."""

    def tell(self, text: str) -> None:
        """Say what a person at a terminal likes to know."""

    def confirm(self, plan: Previewed) -> None:
        """Go on to apply a plan; a command shows it instead, or asks first."""

    def each(
        self, items: Iterable[Item], work: Callable[[Item], Result], *, alone: bool | None = None
    ) -> Iterator[Result]:
        """Yield what ``work`` returns of each item; an error ends it (a command reports one of several, or not ``alone``, and goes on)."""


class Program:
    """A Python program as the host of a session, with or without an open store. "Now" is given, or the clock's; scans run on ``jobs``
    or ``spark``, see ``open_engine``; incomplete answers give a warning at the program's line.

    An iteration in progress keeps LMDB's map open: reading the map after the file has shrunk would kill the process. So ``close``
    refuses new work, and the last reader closes the map.
    """

    def __init__(self, store: StoreFile | None, now: Time | None, jobs: int, spark: SparkSession | None) -> None:
        if whole_number("jobs", jobs) < 0 or (spark is not None and jobs != 1):
            raise InvalidValue(f"jobs={jobs}: give 0 (one process a core) or more, and not with spark")
        self._store = store
        self._jobs = jobs
        self._spark = spark
        self._now_ms = None if now is None else int(time_ms_of(now, int(time.time() * 1000)))
        self._lock = Lock()
        self._users = 0
        self._closed = False

    # -- now ----------------------------------------------------------------------------------------------------------

    @property
    def clock_ms(self) -> int:
        from pulsar_admin.store.timespec import FromNow

        at, given_ms = _AT.get(), self._given_ms
        return FromNow(time.time() * 1000 if at is None else at.now_ms) if given_ms is None else given_ms

    @property
    def _given_ms(self) -> int | None:
        at = _AT.get()
        return self._now_ms if at is None else at.now_ms if at.is_given else None

    @property
    def now_ms(self) -> int:
        return self.clock_ms if self._store is None else self.now.time_ms

    @property
    def now(self) -> Now:
        from pulsar_admin.store.model.copy_age import Now, find_as_of

        given_ms = self._given_ms
        if given_ms is not None:
            return Now.of(None, given_ms, is_given=True)
        with self.opened(unindexed=True) as store, store.read() as txn:
            return Now.of(find_as_of(txn), int(self.clock_ms))

    @property
    def moment(self) -> Moment:
        at = _AT.get()
        return Moment(self.clock_ms, self._given_ms is not None, None if at is None else at.interceptors)

    @contextmanager
    def at(self, moment: Moment) -> Iterator[None]:
        token = _AT.set(moment)
        try:
            yield
        finally:
            _AT.reset(token)

    def time_ms(self, value: Time, *, changes: bool = False) -> int:
        moment_ms = time_ms_of(value, self.clock_ms if changes else self.now_ms)
        return moment_ms if changes and self._given_ms is None else int(moment_ms)

    # -- the open store -----------------------------------------------------------------------------------------------

    @property
    def _file(self) -> StoreFile:
        assert self._store is not None  # without a store, nobody asks
        return self._store

    @contextmanager
    def opened(self, *, unindexed: bool = False) -> Iterator[StoreFile]:
        with self._lock:
            if self._closed:
                raise Refused(f"{self._file.path} was closed", hint="open it again: pulsar_admin.open_store")
            check_state(self._file.path, self._file.info, unindexed=unindexed)
            self._users += 1
        try:
            yield self._file
        finally:
            with self._lock:
                self._users -= 1
                ends = self._closed and not self._users
            if ends:
                self._file.close()

    @contextmanager
    def writing(self) -> Iterator[StoreFile]:
        """LMDB's map may grow then, which readers in this process would not survive."""
        with self.opened() as store:
            self.check_writable()
            if self._users > 1:
                raise Refused(f"an iteration still reads {store.path}", hint="end it first, or close its generator")
            yield store

    def check_writable(self) -> None:
        if not self._file.writable:
            raise NotWritable(
                f"{self._file.path} was opened for reading",
                hint="open it with open_store(…, writable=True)",
                path=str(self._file.path),
            )

    def close(self) -> None:
        with self._lock:
            ends = not self._closed and not self._users
            self._closed = True
        if ends:
            self._file.close()

    # -- scans and messages -------------------------------------------------------------------------------------------

    def engine(self, problems: list[StoreError], size_bytes: int = 0) -> AbstractContextManager[Engine | None]:
        if PACE.is_limited:  # other processes would each read as fast
            if self._spark is not None:
                raise InvalidValue(
                    "max_rate bounds what this process reads, Spark reads in others", hint="give one of them"
                )
            return nullcontext(None)
        return open_engine(self._jobs, self._spark, problems)

    @contextmanager
    def scanning(self, size_bytes: int, label: str, problems: list[StoreError]) -> Iterator[Scanning]:
        with self.engine(problems) as engine:
            failed = [] if engine is None else engine.failed
            yield Scanning(engine, failed=failed)
            if engine is None:
                problems += [one.error() for one in failed]

    def progress(
        self, total: int | None, unit: str, label: str, *, resumes: bool = False
    ) -> AbstractContextManager[Progress]:
        from pulsar_admin.progress import Progress

        return nullcontext(Progress(total, unit, label))

    def lacks(self, problem: StoreError | str) -> None:
        warn_partial([problem])

    fail = warn = lacks

    def warn_of_broken(self, txn: Txn, names: Iterable[TopicName]) -> None:
        warn_partial(broken_texts(txn, names))

    def warn_of_broken_ledgers(self, txn: Txn, topic: Topic) -> None:
        warn_partial(texts_of_broken(txn, topic))

    @contextmanager
    def warnings(self) -> Iterator[Callable[[str], None]]:
        texts: list[str] = []
        yield texts.append
        warn_partial(texts)

    def tell(self, text: str) -> None:
        """There is no terminal."""

    def confirm(self, plan: Previewed) -> None:
        """Whoever calls has looked at the plan."""

    def each(
        self, items: Iterable[Item], work: Callable[[Item], Result], *, alone: bool | None = None
    ) -> Iterator[Result]:
        return map(work, items)


class Session:
    """The context of every call: who asks (``host``), the store, the number of processes for a pass over all topics (0: one per core),
    a memory limit for each process (None: the default), how long to wait for another writer, and the keys for encrypted payloads.

    A command reads one snapshot (``one_snapshot``): while that is open, every call uses it and the command's engine.
    """

    def __init__(
        self,
        host: Host,
        path: Path | None,
        *,
        processes: int = 1,
        memory_bytes: int | None = None,
        wait_ms: int = 0,
        keys: PrivateKeys | None = None,
        one_snapshot: bool = False,
    ) -> None:
        self._host, self._path = host, path
        self.processes, self.memory_bytes, self.wait_ms, self.keys = processes, memory_bytes, wait_ms, keys
        self._one_snapshot = one_snapshot
        self.asked: EntryReader | None = None
        """The reader that a command asks everything of."""
        self.at, self.time_ms = host.at, host.time_ms
        self.opened, self.writing, self.engine = host.opened, host.writing, host.engine
        self.check_writable, self.close = host.check_writable, host.close
        self.fail, self.tell, self.confirm, self.warnings = host.fail, host.tell, host.confirm, host.warnings
        self.warn_of_broken, self.warn_of_broken_ledgers = host.warn_of_broken, host.warn_of_broken_ledgers
        self.each = host.each

    @property
    def path(self) -> Path:
        """The directory of the store."""
        assert self._path is not None  # without a store, nobody asks
        return self._path

    @property
    def clock_ms(self) -> int:
        return self._host.clock_ms

    @property
    def now_ms(self) -> int:
        return self._host.now_ms

    @property
    def now(self) -> Now:
        return self._host.now

    @property
    def moment(self) -> Moment:
        return self._host.moment

    @property
    def interceptors(self) -> tuple[str, ...] | None:
        """The interceptors of the broker as which policy events are written; None: those that wrote the last event."""
        return self._host.moment.interceptors

    def partial(self, problems: Iterable[StoreError | str]) -> None:
        """Report what the answer of a method lacks."""
        for problem in problems:
            self._host.lacks(problem)

    @contextmanager
    def reporting(self) -> Iterator[list[StoreError]]:
        """Report at the end of the block what an answer lacks, which is put into the list."""
        problems: list[StoreError] = []
        yield problems
        self.partial(problems)

    def warn(self, texts: Iterable[str]) -> None:
        """Report what callers should know of an answer that lacks nothing else."""
        for text in texts:
            self._host.warn(text)

    @contextmanager
    def progress(
        self, total: int | None, unit: str, label: str, *, resumes: bool = False
    ) -> Iterator[Callable[[int], None]]:
        """Show how far work is, see ``Host.progress``; the function is told each part that is done."""
        with self._host.progress(total, unit, label, resumes=resumes) as progress:
            yield progress.advance

    # -- snapshots ----------------------------------------------------------------------------------------------------

    @contextmanager
    def read(self) -> Iterator[Txn]:
        """Open one snapshot of the store's rows."""
        if self._one_snapshot:
            with self.reader() as reader:
                yield reader.txn
            return
        with self.opened() as store, store.read() as txn:
            yield txn

    @contextmanager
    def reader(self, *, unindexed: bool = False) -> Iterator[EntryReader]:
        """Open one snapshot, entries too; for ``unindexed`` see ``Host.opened``."""
        if self.asked is not None:
            yield self.asked
            return
        with self.opened(unindexed=unindexed) as store, open_reader(store) as reader:
            reader.keys = self.keys
            with self.asked_of(reader):
                yield reader

    @contextmanager
    def scan(self, problems: list[StoreError] | None = None, *, unindexed: bool = False) -> Iterator[EntryReader]:
        """Open one snapshot whose entries are scanned on ``engine``; its ``problems`` are warned of at the end."""
        if self.asked is not None:
            yield self.asked
            return
        with self.reader(unindexed=unindexed) as reader, self.scanning(reader, 0, "", problems) as scanning:
            yield scanning

    @contextmanager
    def scanning(
        self, reader: EntryReader, size_bytes: int, label: str, problems: list[StoreError] | None = None
    ) -> Iterator[EntryReader]:
        """Open a reader of the same snapshot that scans, about ``size_bytes``, on ``engine``, with progress under ``label``."""
        with (
            self._host.scanning(size_bytes, label, [] if problems is None else problems) as how,
            self.asked_of(reader.scanning_on(*how)) as scanning,
        ):
            yield scanning

    @contextmanager
    def asked_of(self, reader: EntryReader) -> Iterator[EntryReader]:
        """Ask everything of this reader while the block runs, where it is a command's."""
        before = self.asked
        self.asked = reader if self._one_snapshot else None
        try:
            yield reader
        finally:
            self.asked = before

    def ask(self, read: Callable[[Txn, *Given], Result], *given: *Given) -> Result:
        """Return the result of ``read`` on one snapshot of the store's rows; not for iterators, which would outlive it."""
        with self.read() as txn:
            return read(txn, *given)

    def ask_entries(self, read: Callable[[EntryReader, *Given], Result], *given: *Given) -> Result:
        """Return the result of ``read`` as ``ask`` does, of what also reads entries."""
        with self.reader() as reader:
            return read(reader, *given)

    def broker_version(self, given: BrokerVersion | None) -> BrokerVersion:
        """Return the broker's version that is ``given``, otherwise the one that wrote the metadata, as far as the metadata shows it."""
        from pulsar_admin.store.search.broker_setup import told_version

        return self.ask(told_version)[0] if given is None else given

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

    # -- topics and cursors that are meant -----------------------------------------------------------------------------

    def read_topics(self, reader: EntryReader, selection: TopicSelection) -> Iterator[Topic]:
        """Yield the topics meant, partitions of a partitioned one each, and report their broken ledgers; raises TopicNotFound."""
        names = dict.fromkeys(select_topics(reader.txn, selection))
        for topic in self.each(names, lambda name: read_topic(reader.txn, name), alone=bool(selection.topics)):
            self.warn_of_broken_ledgers(reader.txn, topic)
            yield topic

    def read_cursors(
        self, reader: EntryReader, topic: Topic, names: Iterable[str], *, named: bool, is_replaced: bool = False
    ) -> Iterator[Cursor]:
        """Yield a topic's cursors; ``named`` says whether the topic was named (see ``each``); ``is_replaced`` includes damaged ones."""
        from pulsar_admin.store.model.cursors import read_cursor, read_damaged_cursor

        read = read_damaged_cursor if is_replaced else read_cursor
        return self.each(names, lambda name: read(reader.txn, reader, topic, name), alone=named)

    def iter_cursors(
        self, reader: EntryReader, selection: TopicSelection, subscription: str | None, *, is_replaced: bool = False
    ) -> Iterator[tuple[Topic, Cursor]]:
        """Yield the cursor of a subscription (None: those of all but the broker's own) in every selected topic, partitions one by one.

        A named topic must have the subscription; among all topics, or those of a pattern, topics without it are skipped.
        Raises TopicNotFound, and SubscriptionNotFound, also if no topic has it.
        """
        from pulsar_admin.store.model.cursors import is_consumed, iter_cursor_names

        named, topics = bool(selection.topics), []
        is_any = False
        for topic in self.read_topics(reader, selection):
            topics.append(str(topic.name))
            names = iter_cursor_names(reader.txn, topic.name)
            if subscription is None:
                chosen = sorted(filter(is_consumed, names))
            else:
                chosen = [subscription] if named or subscription in names else []
            for cursor in self.read_cursors(reader, topic, chosen, named=named, is_replaced=is_replaced):
                is_any = True
                yield topic, cursor
        if not is_any and subscription is None:
            have = plural(len(topics), "has", "have")
            raise SubscriptionNotFound(f"{listed(topics, 3)} {have} no subscription", topics=topics)
        if not is_any:
            raise SubscriptionNotFound(
                f"no topic that matches has a subscription {subscription!r}", subscription=subscription
            )


def session_of(
    store: StoreFile | None = None,
    now: Time | None = None,
    *,
    jobs: int = 1,
    spark: SparkSession | None = None,
    keys: PrivateKeys | None = None,
) -> Session:
    """Return the session of a program in Python; see ``Program``."""
    return Session(Program(store, now, jobs, spark), None if store is None else store.path, processes=jobs, keys=keys)


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
    """Return a moment of a cluster's metadata; a text is a zxid (``0x4a1``), an absolute time, or ``-3h``."""
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


def warn_partial(problems: Iterable[StoreError | str]) -> None:
    """Warn about parts that an answer lacks, at the line that called this library."""
    for problem in problems:
        text = problem if isinstance(problem, str) else problem.message
        warnings.warn(text, PartialData, stacklevel=_callers_level())


_ELSEWHERE = {
    "end-time": "until",
    "exclude-reset-position": "exclude",
    "no-index": "index=False",
    "start-time": "since",
    "store": "path",
    "tick-duration": "tick",
    "time-partition-granularity": "granularity",
}
"""Options of the command line: the parameter that is called otherwise."""
_WHEN_OPENED = {"jobs": "jobs", "now": "now", "private-key": "private_keys", "spark": "spark"}
"""Options that are parameters of ``open_store``."""
_AGES = ("ttl", "before", "time")
"""The parameter that is ``-t`` on the command line: the first of these that the method has."""
_VALUES = frozenset({"broker", "entries", "indexed", "now", "reduced"})
"""Words of hints that are the value of the option before them; others go on with the sentence."""


def hint_in_python(hint: str, said: Mapping[str, str]) -> str:
    """Return a hint about command-line options in the words of a Python function with the annotations ``said``.

    ``--force`` becomes ``force=True``, ``--to NAME`` becomes ``to=NAME`` if the function has that parameter, global options become
    ``open_store(now=NAME)``; commands stay. Other options are marked as those of the command line. No method takes a time
    zone, so the hint names the datetime's.
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
        r"|(?<!\S)-t\b( (?P<age>\d\w*))?",
        option,
        words,
    )
    return words if is_python else f"on the command line: {hint}"


def _callers_level() -> int:
    """Return the ``stacklevel`` of the line that called this library, counted from the function that calls this one."""
    level, frame = 1, sys._getframe(1)
    # ``with`` blocks and wrapped methods put frames of contextlib between ours.
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _NOT_CALLERS:
        level, frame = level + 1, frame.f_back
    return level
