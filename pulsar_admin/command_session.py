"""What the objects of the Python interface work on when a command uses them: its store, its snapshot, its engine, its stderr."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from pulsar_admin.api.session import Item, Moment, Result, Session, Time
from pulsar_admin.broken import warn_of_broken, warn_of_broken_ledgers
from pulsar_admin.store.errors import InvalidValue, StoreError
from pulsar_admin.store.model.reader import open_reader
from pulsar_admin.store.pace import PACE

if TYPE_CHECKING:
    from inspect import Parameter

    from pulsar_admin.api.cursors import Cursors
    from pulsar_admin.api.ledgers import Ledger
    from pulsar_admin.api.namespaces import Namespace, Resources
    from pulsar_admin.api.pending import DelayedBacklogs, KeptNacks
    from pulsar_admin.api.store import Store as ApiStore
    from pulsar_admin.api.topics import Topic
    from pulsar_admin.confirm import Plan as Previewed
    from pulsar_admin.running import Running
    from pulsar_admin.store.db.environment import Store, Txn
    from pulsar_admin.store.engine.operation import Engine
    from pulsar_admin.store.model.copy_age import Now
    from pulsar_admin.store.model.reader import EntryReader
    from pulsar_admin.store.model.topics import Topic as TopicModel
    from pulsar_admin.store.names import NamespaceName, TopicName, TopicSelection


class CommandSession(Session):
    """The session of a running command. While a reader is open, all questions read its snapshot and scan with its engine."""

    def __init__(self, app: Running) -> None:
        self._app = app
        self._reader: EntryReader | None = None
        self._warned: set[TopicName] = set()
        self.keys = None
        self.memory_bytes = app.settings.memory_bytes
        self.wait_ms = app.settings.wait_ms

    @property
    def path(self) -> Path:
        return self._app.settings.store

    @property
    def processes(self) -> int:
        return self._app.settings.jobs

    @property
    def clock_ms(self) -> int:
        return self._app.clock_ms

    @property
    def now_ms(self) -> int:
        return self._app.now_ms

    @property
    def now(self) -> Now:
        return self._app.now

    @property
    def interceptors(self) -> tuple[str, ...] | None:
        return self._app.settings.interceptors

    @property
    def moment(self) -> Moment:
        settings = self._app.settings
        return Moment(settings.now_ms, settings.now_given, settings.interceptors)

    @contextmanager
    def at(self, moment: Moment) -> Iterator[None]:
        app, settings = self._app, self._app.settings
        app.settings = replace(
            settings, now_ms=moment.now_ms, now_given=moment.is_given, interceptors=moment.interceptors
        )
        try:
            yield
        finally:
            app.settings = settings

    @property
    def api(self) -> ApiStore:
        """The store as the Python interface has it."""
        from pulsar_admin.api.store import Store

        return Store(self)

    @property
    def resources(self) -> Resources:
        """What the store has of tenants, clusters, bookies, brokers and limits as the Python interface has it."""
        from pulsar_admin.api.namespaces import Resources

        return Resources(self)

    def topic(self, name: TopicName) -> Topic:
        """Return the topic NAME as the Python interface has it; whether it is there is seen when it is used."""
        from pulsar_admin.api.topics import Topic

        return Topic(self, name)

    def namespace(self, name: NamespaceName) -> Namespace:
        """Return the namespace NAME as the Python interface has it; whether it is there is seen when it is used."""
        from pulsar_admin.api.namespaces import Namespace

        return Namespace(self, name)

    def cursors(self, selection: TopicSelection, subscription: str | None) -> Cursors:
        """Return the cursors of SUBSCRIPTION (None: of all) in the topics meant as the Python interface has them."""
        from pulsar_admin.api.cursors import Cursors

        return Cursors(self, selection, subscription)

    def delayed(self, selection: TopicSelection, subscription: str | None) -> DelayedBacklogs:
        """Return what SUBSCRIPTION, None: each that may delay, waits for in the topics meant as the Python interface has it."""
        from pulsar_admin.api.pending import DelayedBacklogs

        return DelayedBacklogs(self, selection, subscription)

    def nacks(self, topics: Sequence[TopicName], subscription: str | None) -> KeptNacks:
        """Return the nacks of SUBSCRIPTION (None: of all) in TOPICS (none: in all) as the Python interface has them."""
        from pulsar_admin.api.pending import KeptNacks

        return KeptNacks(self, topics, subscription)

    def ledger(self, ledger_id: int) -> Ledger:
        """Return a ledger as the Python interface has it; whether it is there is seen when it is used."""
        from pulsar_admin.api.ledgers import Ledger

        return Ledger(self, ledger_id)

    @contextmanager
    def opened(self, *, unindexed: bool = False) -> Iterator[Store]:
        yield self._app.unindexed_store if unindexed else self._app.store

    @contextmanager
    def read(self) -> Iterator[Txn]:
        with self.reader() as reader:
            yield reader.txn

    @contextmanager
    def reader(self, *, unindexed: bool = False) -> Iterator[EntryReader]:
        if self._reader is not None:
            yield self._reader
            return
        with self.opened(unindexed=unindexed) as store, open_reader(store) as reader:
            reader.keys = self.keys
            self._reader = reader
            try:
                yield reader
            finally:
                self._reader = None

    @contextmanager
    def engine(self, problems: list[StoreError], size_bytes: int = 0) -> Iterator[Engine | None]:
        if PACE.is_limited:  # other processes would each read as fast
            if self._app.settings.spark:
                raise InvalidValue(
                    "--max-rate bounds what this process reads, --spark reads in others", hint="give one of them"
                )
            yield None
            return
        with self._app.bulk(size_bytes) as engine:
            yield engine

    @contextmanager
    def scan(self, problems: list[StoreError] | None = None, *, unindexed: bool = False) -> Iterator[EntryReader]:
        if self._reader is not None:
            yield self._reader
            return
        with self.engine([]) as engine, self.reader(unindexed=unindexed) as reader:
            reader.engine = engine
            yield reader

    @contextmanager
    def writing(self) -> Iterator[Store]:
        with self._app.open_for_writing() as store:
            yield store

    @contextmanager
    def progress(
        self, total: int | None, unit: str, label: str, *, resumes: bool = False
    ) -> Iterator[Callable[[int], None]]:
        with self._app.progress(total, unit, label, resumes=resumes) as progress:
            yield progress.advance

    def time_ms(self, value: Time, *, changes: bool = False) -> int:
        """Return VALUE, which options parsed already: an int, or a ``FromNow``; a text as they would parse it."""
        from pulsar_admin.store.timespec import parse_time_or_ago

        if isinstance(value, str):
            try:
                found = self._app.parse_time(parse_time_or_ago, value)
            except InvalidValue as error:
                raise InvalidValue(f"time: {error.message}", hint=error.hint, **error.context) from error
        else:
            found = value
        assert isinstance(found, int)
        return found

    def partial(self, problems: Iterable[StoreError | str]) -> None:
        """Warn of texts at once, of errors at the end of the command, when those alike are counted; the exit code becomes 1."""
        for problem in problems:
            if isinstance(problem, str):
                self._app.warn(problem)
                self._app.problems(1)
            else:
                self._app.partial.append(problem)

    def say_in_python(self, error: StoreError, parameters: Mapping[str, Parameter]) -> None:
        """A command's hints name its options."""

    def fail(self, problem: StoreError) -> None:
        self._app.fail(problem)

    def each(
        self, items: Iterable[Item], work: Callable[[Item], Result], *, alone: bool | None = None
    ) -> Iterator[Result]:
        return self._app.each(items, work, alone=alone)

    @contextmanager
    def scanning(self, reader: EntryReader, size_bytes: int, label: str) -> Iterator[None]:
        with self._app.scan(reader, size_bytes, label):
            yield

    def warn(self, texts: Iterable[str]) -> None:
        for text in texts:
            self._app.warn(text)

    @contextmanager
    def warnings(self) -> Iterator[Callable[[str], None]]:
        yield self._app.warn

    def tell(self, text: str) -> None:
        self._app.tell(text)

    def confirm(self, plan: Previewed) -> None:
        """Return when PLAN may be applied; ``--dry-run`` shows it and ends the command."""
        self._app.confirm(plan)

    def warn_of_broken(self, txn: Txn, names: Iterable[TopicName]) -> None:
        """Report the broken ledgers of the topics NAMES, once; the exit code becomes 1."""
        left = []
        for name in names:
            if name not in self._warned:
                self._warned.add(name)
                left.append(name)
        warn_of_broken(self._app, txn, left)

    def warn_of_broken_ledgers(self, txn: Txn, topic: TopicModel) -> None:
        warn_of_broken_ledgers(self._app, txn, topic)
