"""The session: its store, its "now", its scan engine, its warnings."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, TypeVarTuple

from pulsar_admin.arguments import Moment, Place, Time, position_of, time_ms_of, whole_number
from pulsar_admin.broken import broken_texts, texts_of_broken, warn_partial
from pulsar_admin.store.db.environment import SharedStore, Txn
from pulsar_admin.store.db.environment import Store as StoreFile
from pulsar_admin.store.errors import InvalidValue, StoreError
from pulsar_admin.store.model.reader import EntryReader, Scanning, open_reader
from pulsar_admin.store.model.topics import Topic, read_topic, select_topics
from pulsar_admin.store.names import EARLIEST, LATEST, TopicName, TopicSelection
from pulsar_admin.store.pace import PACE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pulsar_admin.confirm import Plan as Previewed
    from pulsar_admin.progress import Progress
    from pulsar_admin.running import Running
    from pulsar_admin.store.codec.encryption import PrivateKeys
    from pulsar_admin.store.engine.operation import Engine
    from pulsar_admin.store.model.copy_age import Now
    from pulsar_admin.store.model.cursors import Cursor
    from pulsar_admin.store.model.messages import Window


Item = TypeVar("Item")
Result = TypeVar("Result")
Given = TypeVarTuple("Given")
_AT: ContextVar[Moment | None] = ContextVar("moment", default=None)
"""The moment at which the current plan is made; a plan that is made anew uses the moment of its first making."""


class Program:
    """A Python program as the host of a session, perhaps with an open store; that of a command is ``pulsar_admin.running.Running``.

    Scans run on ``jobs`` processes (0: one per core) or ``spark``; incomplete answers give a warning at the program's line.
    """

    def __init__(self, store: StoreFile | None, now: Time | None, jobs: int, spark: SparkSession | None) -> None:
        if whole_number("jobs", jobs) < 0 or (spark is not None and jobs != 1):
            raise InvalidValue(f"jobs={jobs}: give 0 (one process a core) or more, and not with spark")
        shared = SharedStore(store)
        self.opened, self.writing, self.close = shared.opened, shared.writing, shared.close
        self._has_store = store is not None
        self._jobs = jobs
        self._spark = spark
        self._now_ms = None if now is None else int(time_ms_of(now, int(time.time() * 1000)))

    # -- now ----------------------------------------------------------------------------------------------------------

    @property
    def clock_ms(self) -> int:
        """The time for changes, in epoch milliseconds: as given, otherwise the clock's, which is a ``FromNow``."""
        from pulsar_admin.store.timespec import FromNow

        at, given_ms = _AT.get(), self._given_ms
        return FromNow(time.time() * 1000 if at is None else at.now_ms) if given_ms is None else given_ms

    @property
    def _given_ms(self) -> int | None:
        at = _AT.get()
        return self._now_ms if at is None else at.now_ms if at.is_given else None

    @property
    def now_ms(self) -> int:
        """The time for reading, in epoch milliseconds: as given, otherwise the time of the copy, otherwise the clock's."""
        return self.now.time_ms if self._has_store else self.clock_ms

    @property
    def now(self) -> Now:
        """The time from which ages are counted back, and its source."""
        from pulsar_admin.store.model.copy_age import Now, find_as_of

        given_ms = self._given_ms
        if given_ms is not None:
            return Now.of(None, given_ms, is_given=True)
        with self.opened(unindexed=True) as store, store.read() as txn:
            return Now.of(find_as_of(txn), int(self.clock_ms))

    @property
    def moment(self) -> Moment:
        """The moment for plans made now."""
        at = _AT.get()
        return Moment(self.clock_ms, self._given_ms is not None, None if at is None else at.interceptors)

    @contextmanager
    def at(self, moment: Moment) -> Iterator[None]:
        """Make plans as of ``moment`` in the block."""
        token = _AT.set(moment)
        try:
            yield
        finally:
            _AT.reset(token)

    def time_ms(self, value: Time, *, changes: bool = False) -> int:
        """Return ``value`` in epoch milliseconds, relative times counted from ``now_ms``, or of ``changes`` from the clock's now, which
        then is a ``FromNow``; raises InvalidValue."""
        moment_ms = time_ms_of(value, self.clock_ms if changes else self.now_ms)
        return moment_ms if changes and self._given_ms is None else int(moment_ms)

    # -- scans and messages -------------------------------------------------------------------------------------------

    @contextmanager
    def engine(self, problems: list[StoreError], size_bytes: int = 0) -> Iterator[Engine | None]:
        """Open the engine for scans of about ``size_bytes``: Spark, processes, or None for this process.

        Unreadable data is listed in ``problems`` at the end, each with a warning. Raises InvalidValue for Spark if reading is bounded,
        MissingComponent.
        """
        with ExitStack() as stack:
            engine: Engine | None = None
            if self._spark is not None:
                if PACE.is_limited:
                    raise InvalidValue(
                        "max_rate bounds what this process reads, Spark reads in others", hint="give one of them"
                    )
                from pulsar_admin.store.engine.spark import SparkEngine

                engine = SparkEngine(self._spark)
            elif self._jobs != 1 and not PACE.is_limited:  # other processes would each read as fast
                from pulsar_admin.store.engine.local import LocalEngine

                engine = stack.enter_context(LocalEngine(self._jobs))
            yield engine
            problems += [failed.error() for failed in (engine.failed if engine is not None else ())]
        warn_partial(problems)

    @contextmanager
    def scanning(self, size_bytes: int, label: str, problems: list[StoreError]) -> Iterator[Scanning]:
        """Open the same for a reader, with progress under ``label`` (empty: none)."""
        with self.engine(problems) as engine:
            failed = [] if engine is None else engine.failed
            yield Scanning(engine, failed=failed)
            if engine is None:
                problems += [one.error() for one in failed]

    def progress(
        self, total: int | None, unit: str, label: str, *, resumes: bool = False
    ) -> AbstractContextManager[Progress]:
        """Show the progress of the work ``label``, ``total`` (None: unknown) of ``unit``; ``resumes``: a later call continues it."""
        from pulsar_admin.progress import Progress

        return nullcontext(Progress(total, unit, label, int))

    def lacks(self, problem: StoreError | str) -> None:
        """Report what an answer lacks, an iteration leaves out, or callers should know of an answer that lacks nothing."""
        warn_partial([problem])

    fail = warn = lacks

    def warn_of_broken(self, txn: Txn, names: Iterable[TopicName]) -> None:
        """Report the broken ledgers of the topics, which can be read."""
        warn_partial(broken_texts(txn, names))

    def warn_of_broken_ledgers(self, txn: Txn, topic: Topic) -> None:
        """Report the broken ledgers of a topic."""
        warn_partial(texts_of_broken(txn, topic))

    @contextmanager
    def warnings(self) -> Iterator[Callable[[str], None]]:
        """Hand out a function for warnings about work that writes; they are reported at the end of the block."""
        texts: list[str] = []
        yield texts.append
        warn_partial(texts)

    def tell(self, text: str) -> None:
        """Ignore a note that is meant for a person at a terminal."""

    def confirm(self, plan: Previewed) -> None:
        """Confirm nothing: the caller of a library has decided to apply the plan."""

    def each(
        self, items: Iterable[Item], work: Callable[[Item], Result], *, alone: bool | None = None
    ) -> Iterator[Result]:
        """Yield the result of ``work`` for each item; an error ends it (a command reports it and continues, unless ``alone``)."""
        return map(work, items)


class Session:
    """The context of every call: who asks (``host``), the store, the number of processes for a pass over all topics (0: one per core),
    a memory limit for each process (None: the default), how long to wait for another writer, and the keys for encrypted payloads.

    A command reads one snapshot (``one_snapshot``): while that is open, every call uses it and the command's engine.
    """

    def __init__(
        self,
        host: Program | Running,
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
        self.opened, self.writing, self.close = host.opened, host.writing, host.close
        self.engine, self.each = host.engine, host.each
        self.fail, self.tell, self.confirm, self.warnings = host.fail, host.tell, host.confirm, host.warnings
        self.warn_of_broken, self.warn_of_broken_ledgers = host.warn_of_broken, host.warn_of_broken_ledgers

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
        """Report warnings about an answer that is complete."""
        for text in texts:
            self._host.warn(text)

    @contextmanager
    def progress(
        self, total: int | None, unit: str, label: str, *, resumes: bool = False
    ) -> Iterator[Callable[[int], None]]:
        """Show the progress of work, see ``Program.progress``; call the function that it gives with each amount done."""
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
        """Open one snapshot, entries too; for ``unindexed`` see ``Program.opened``."""
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
        """In a command, use this reader for all answers in the block."""
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

    def ask_entries(
        self, read: Callable[[EntryReader, *Given], Result], *given: *Given, of: TopicName | None = None
    ) -> Result:
        """Return the result of ``read`` on one snapshot, entries too, and report the broken ledgers ``of`` a topic; not for iterators."""
        with self.reader() as reader:
            answer = read(reader, *given)
            self.warn_of_broken(reader.txn, () if of is None else (of,))
            return answer

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
        """Return the selection of messages by times, positions and key (None: no limit); raises InvalidValue."""
        from pulsar_admin.store.model.messages import Window

        start_ms, end_ms = (None if value is None else self.time_ms(value) for value in (since, until))
        first = EARLIEST if start is None else position_of(start)
        last = LATEST if end is None else position_of(end)
        return Window(first, last, start_ms, end_ms, clock, key).checked()

    # -- topics and cursors that are meant -----------------------------------------------------------------------------

    def read_topics(self, reader: EntryReader, selection: TopicSelection) -> Iterator[Topic]:
        """Yield the selected topics, partitioned ones as partitions, and report broken ledgers; raises TopicNotFound."""
        names = dict.fromkeys(select_topics(reader.txn, selection))
        for topic in self.each(names, lambda name: read_topic(reader.txn, name), alone=bool(selection.topics)):
            self.warn_of_broken_ledgers(reader.txn, topic)
            yield topic

    def iter_cursors(
        self,
        reader: EntryReader,
        selection: TopicSelection,
        subscription: str | None,
        *,
        is_replaced: bool = False,
        unsubscribed: bool = False,
    ) -> Iterator[tuple[Topic, Cursor]]:
        """Yield the cursors of a subscription in the selected topics; see ``iter_selected_cursors``."""
        from pulsar_admin.store.model.cursors import iter_selected_cursors, read_cursor, read_damaged_cursor

        named, read = bool(selection.topics), read_damaged_cursor if is_replaced else read_cursor

        def read_some(topic: Topic, names: Iterable[str]) -> Iterator[Cursor]:
            return self.each(names, lambda name: read(reader.txn, reader, topic, name), alone=named)

        topics = self.read_topics(reader, selection)
        return iter_selected_cursors(reader.txn, topics, selection, subscription, read_some, unsubscribed=unsubscribed)


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
