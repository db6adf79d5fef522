"""The state of a running command: settings, the store (opened on first use), scans, confirmation, items, exit code."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

import click
from msgspec.structs import replace

from pulsar_admin.config import Settings, colors_text
from pulsar_admin.errors import NO_ROOM, NOT_FOUND, PROBLEMS, exit_code_of, failure_of
from pulsar_admin.global_options import GIVEN
from pulsar_admin.results import Result, Results
from pulsar_admin.store import errors
from pulsar_admin.store.names import TopicName, parse_topic, shell_word
from pulsar_admin.store.pace import PACE
from pulsar_admin.store.wording import counted
from pulsar_admin.typable import own_items
from pulsar_admin.visible import wrapped, write_error

if TYPE_CHECKING:
    from pathlib import Path

    from pulsar_admin.arguments import Moment, Time
    from pulsar_admin.confirm import Plan
    from pulsar_admin.engine import Choice
    from pulsar_admin.progress import Progress
    from pulsar_admin.query import Query
    from pulsar_admin.store.changes.plan import ChangeReport
    from pulsar_admin.store.db.environment import Store, Txn
    from pulsar_admin.store.engine.operation import Engine, FailedSlice
    from pulsar_admin.store.model.copy_age import AsOf, Now
    from pulsar_admin.store.model.reader import Scanning
    from pulsar_admin.store.model.topics import Topic

INDEX_ANSWERS = "the index answers this: nothing was scanned"
_PROBLEMS_SHOWN = 5

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")


class Running(Results):
    """One run of one command.

    The store and everything else is opened on first use and closed at the end of the command.
    """

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._store: Store | None = None
        self._lock: int | None = None
        self._items = 0
        self._failed_slices: list[FailedSlice] = []
        self._misses = 0
        self._out_of_memory = False
        self._choice: Choice | None = None
        self._as_of: AsOf | None = None
        self._from_now: str | None = None
        self._told_incomplete = False
        self._told_altered = False
        self.broken_topics = 0
        self.partial: list[errors.StoreError] = []
        """Problems that make answers incomplete; reported at the end of the command."""
        self.screen_of: Callable[[Any], Result] = Result  # Any: the report of the command
        """Makes the answer of ``--dry-run`` from the preview of a plan."""

    @property
    def clock_ms(self) -> int:
        """The run's "now" for changes, in epoch milliseconds: ``--now``, otherwise the clock at the start as a
        ``FromNow``."""
        if self.settings.now_given:
            return self.settings.now_ms
        from pulsar_admin.store.timespec import FromNow  # 1 ms, and no cold question asks

        return FromNow(self.settings.now_ms)

    @property
    def now_ms(self) -> int:
        """The run's "now" for answers, in epoch ms: ``--now``, otherwise the time of the store's copy, otherwise the clock.

        Raises StoreNotFound.
        """
        return self.settings.now_ms if self.settings.now_given else self.now.time_ms

    @property
    def now(self) -> Now:
        """The time from which ages are counted back, and its source."""
        from pulsar_admin.store.model.copy_age import Now

        is_given = self.settings.now_given
        return Now.of(None if is_given else self.as_of, self.settings.now_ms, is_given=is_given)

    @property
    def as_of(self) -> AsOf | None:
        """The time of the copy in the store; None if it is unknown. Raises StoreNotFound."""
        if self._as_of is None:
            from pulsar_admin.store.model.copy_age import find_as_of

            altered: list[bytes] = []
            try:
                with (self._store or self.store).read() as txn, txn.passing_altered(altered.append):
                    self._as_of = find_as_of(txn)
            except errors.IndexCorrupt:
                altered.append(b"")
            if altered and not self._told_altered:  # a doctor has to go on past them
                self._told_altered = True
                self.lacks(
                    "rows of the store were altered, so the time that it is a copy of is not known (see: pulsar-admin store check)"
                )
        return self._as_of

    @property
    def store(self) -> Store:
        """The store, open for reading; raises StoreNotFound. Writers go through ``apply`` or ``open_for_writing``.

        With ``--wait`` a changing command holds the writer lock from here on, so that its plan cannot become stale.
        """
        if self._store is None:
            if self.settings.wait_ms and self._is_changing():
                self._hold_lock()
            self._store = self._opened()
            self._tell_now()
            self._tell_incomplete()
        return self._store

    @property
    def unindexed_store(self) -> Store:
        """As ``store``, but also takes a store without an index."""
        if self._store is None:
            self._store = self._opened(unindexed=True)
            self._tell_incomplete()
        return self._store

    @property
    def store_path(self) -> Path:
        """The store's directory, for commands that need its path."""
        return self.settings.store

    def _opened(self, *, unindexed: bool = False) -> Store:
        from pulsar_admin.store.db.environment import open_store

        return open_store(self.settings.store, unindexed=unindexed)

    def close(self) -> None:
        """Close the store; the next use of ``store`` opens it again."""
        if self._store is not None:
            self._store.close()
            self._store = None

    def open_for_writing(self) -> Store:
        """Close the store and open it for writing, for the caller to close; raises StoreBusy if --wait is over."""
        from pulsar_admin.store.db.environment import open_store

        self.close()  # LMDB forbids a process to open one environment twice
        if self.settings.wait_ms:
            self._hold_lock()
        return open_store(self.settings.store, writable=True, lock=self._lock)

    def end(self) -> None:
        """Close the store and let other processes write it: the command is over."""
        self.close_pager()
        self.close()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _hold_lock(self) -> None:
        from pulsar_admin.store.db.locks import take_writer_lock
        from pulsar_admin.store.db.storeinfo import read_store_info

        if self._lock is None:
            read_store_info(self.settings.store)  # a wrong path gets no lock file
            self._lock = take_writer_lock(self.settings.store, wait_ms=self.settings.wait_ms)

    def _is_changing(self) -> bool:
        """Whether the running command will change the store: it can, and neither --dry-run nor --plan is given."""
        command = click.get_current_context().command
        return getattr(command, "changes", False) and not self.settings.dry_run and self.settings.plan is None

    def parse_time(self, parse: Callable[..., object], text: str) -> object:
        """Return the parsed time; the first time counted from now is explained in a note.

        Changes count from the clock's now and get a ``FromNow``: one that would differ when counted from the copy's
        own end is refused.
        """
        from pulsar_admin.store.timespec import FromNow

        time_ms = parse(text, now_ms=self.clock_ms, tz=self.settings.tz)
        if not isinstance(time_ms, FromNow) or self.settings.now_given:
            return int(time_ms) if isinstance(time_ms, FromNow) else time_ms
        self._from_now = text if self._from_now is None else self._from_now
        if not getattr(click.get_current_context().command, "changes", False):
            with suppress(
                errors.StoreError
            ):  # without a store, now is the clock's; a command that needs a store reports that it is missing
                time_ms = parse(text, now_ms=self.now_ms, tz=self.settings.tz)
        self._tell_now()
        return time_ms

    def _tell_incomplete(self) -> None:
        """Warn once if the metadata is incomplete, so that any answer may be wrong; the exit code becomes 1."""
        if self._store is None or self._told_incomplete:
            return
        self._told_incomplete = True
        from pulsar_admin.broken import incomplete_text

        if text := incomplete_text(self._store):
            self.lacks(text)

    def tell_incomplete_tables(self, reason: str) -> None:
        """Warn about tables exported from an incomplete store (``reason``); the exit code becomes 1."""
        if reason and not self._told_incomplete:
            from pulsar_admin.broken import tables_text

            self._told_incomplete = True
            self.lacks(tables_text(reason))

    def _tell_now(self) -> None:
        if self._from_now and self._store is not None:
            changes = getattr(click.get_current_context().command, "changes", False)
            self.tell(_now_text(self._from_now, self.clock_ms, self.as_of, changes=changes))
            self._from_now = ""

    @property
    def query(self) -> Query | None:
        """The query on rows; its times count from the same now as those of the rows."""
        query = self.settings.query
        if query is None or self._store is None:
            return query
        return replace(query, now_ms=self.now_ms)

    # -- what the Python interface asks of a command, as of ``pulsar_admin.api.session.Program`` ----------------------

    @property
    def moment(self) -> Moment:
        """The moment for plans made now."""
        from pulsar_admin.arguments import Moment

        return Moment(self.settings.now_ms, self.settings.now_given, self.settings.interceptors)

    @contextmanager
    def at(self, moment: Moment) -> Iterator[None]:
        """Make plans as of ``moment`` in the block."""
        settings = self.settings
        self.settings = replace(
            settings, now_ms=moment.now_ms, now_given=moment.is_given, interceptors=moment.interceptors
        )
        try:
            yield
        finally:
            self.settings = settings

    def time_ms(self, value: Time, *, changes: bool = False) -> int:
        """Return a time: an int or ``FromNow`` unchanged, a text parsed as options are."""
        if isinstance(value, str):
            from pulsar_admin.store.timespec import parse_time_or_ago

            try:
                value = self.parse_time(parse_time_or_ago, value)  # type: ignore[assignment]  # of a text an int
            except errors.InvalidValue as error:
                raise errors.InvalidValue(f"time: {error.message}", hint=error.hint, **error.context) from error
        assert isinstance(value, int)
        return value

    @contextmanager
    def opened(self, *, unindexed: bool = False) -> Iterator[Store]:
        """Hand out the store, which stays open for reading until the command ends."""
        yield self.unindexed_store if unindexed else self.store

    def writing(self, *, beside_readers: bool = False) -> Store:
        """Open the store for writing."""
        return self.open_for_writing()

    def lacks(self, problem: errors.StoreError | str) -> None:
        """Report that an answer is incomplete; the exit code becomes 1.

        A text is printed at once, an error at the end of the command together with equal ones.
        """
        if isinstance(problem, str):
            self.warn(problem)
            self.problems(1)
        else:
            self.partial.append(problem)

    @contextmanager
    def warnings(self) -> Iterator[Callable[[str], None]]:
        """Hand out the function that prints a warning at once."""
        yield self.warn

    def warn_of_broken(self, txn: Txn, names: Iterable[TopicName]) -> None:
        """Report the broken ledgers of the topics, each topic once; the exit code becomes 1."""
        from pulsar_admin.broken import warn_of_broken

        left = [name for name in names if name not in self.topics]
        self.topics.update(left)
        warn_of_broken(self, txn, left)

    def warn_of_broken_ledgers(self, txn: Txn, topic: Topic) -> None:
        """Report the broken ledgers of a topic; the exit code becomes 1."""
        from pulsar_admin.broken import warn_of_broken_ledgers

        self.topics.add(topic.name)
        warn_of_broken_ledgers(self, txn, topic)

    def warn_of_more_broken(self) -> None:
        """Report the topics with broken ledgers that were counted only, at the end of the command."""
        if self.broken_topics:
            from pulsar_admin.broken import warn_of_more_broken

            warn_of_more_broken(self)

    # -- everything but the result ---------------------------------------------------------------------------------

    @contextmanager
    def progress(self, total: int | None, unit: str, label: str, *, resumes: bool = False) -> Iterator[Progress]:
        """Show progress on stderr while the block runs: ``with app.progress(size, "bytes", "scan") as bar``.

        After Ctrl-C it says how far the work was, and with ``resumes`` that running the command once more continues
        it.
        """
        from pulsar_admin.progress import open_progress

        with open_progress(self.settings.progress, total, unit, label, lambda: len(self._failed_slices)) as progress:
            try:
                yield progress
            except KeyboardInterrupt:
                progress.stop()
                of_all = f" of {progress.total:,}" if progress.total else ""
                again = "continues where it stopped" if resumes else "starts again"
                self.warn(f"{label}: stopped after {progress.done:,}{of_all} {unit}; the same command {again}")
                raise

    @contextmanager
    def scanning(
        self, size_bytes: int, label: str, problems: list[errors.StoreError], *, unused: str = INDEX_ANSWERS
    ) -> Iterator[Scanning]:
        """Choose the engine and the progress (none without a label) for scanning about ``size_bytes``, by the settings.

        Unreadable slices are left out, listed at the end, and make the exit code 1; without a label they end the scan.
        ``unused``: see ``bulk``.
        """
        from pulsar_admin.store.model.reader import Scanning

        if not label:
            with self.engine(problems, size_bytes) as engine:
                yield Scanning(engine)
            return
        with self.bulk(size_bytes, unused=unused) as engine, self.progress(size_bytes, "bytes", label) as progress:
            yield Scanning(engine, progress.advance, self._failed_slices)

    @contextmanager
    def engine(self, problems: list[errors.StoreError], size_bytes: int = 0) -> Iterator[Engine | None]:
        """Choose the engine as ``bulk``, but None with ``--max-rate``, which is refused with ``--spark`` (InvalidValue)."""
        if PACE.is_limited:  # other processes would each read as fast
            if self.settings.spark:
                raise errors.InvalidValue(
                    "--max-rate bounds what this process reads, --spark reads in others", hint="give one of them"
                )
            yield None
            return
        with self.bulk(size_bytes) as engine:
            yield engine

    @contextmanager
    def bulk(self, size_bytes: int = 0, *, unused: str = INDEX_ANSWERS) -> Iterator[Engine | None]:
        """Choose the engine for scanning about ``size_bytes``.

        Spark with ``--spark``, started by the first slice; processes for ``--jobs`` and for much data; otherwise None:
        this process. Afterwards it reports failed slices, and that Spark was not used, with the reason ``unused``.
        """
        from pulsar_admin.engine import choose_engine

        with choose_engine(self.settings, size_bytes, self._failed_slices, self) as choice:
            if choice.advice:
                self.warn(choice.advice)
            self._choice = choice
            yield choice.engine
        if choice.unused:
            self.tell(f"{unused}, Spark was not started")
        self._report_failed_slices()

    def _report_failed_slices(self) -> None:
        """List the slices without a result: the exit code is 1, or 8 if one did not fit into memory."""
        as_json = self.writes_json
        for failed in self._failed_slices:
            failure_of(failed.error()).write(as_json=as_json)
        self._problems += len(self._failed_slices)
        self._out_of_memory |= any(failed.out_of_memory for failed in self._failed_slices)
        self._failed_slices.clear()

    # -- changes ------------------------------------------------------------------------------------------------------

    def confirm(self, plan: Plan) -> None:
        """Return only if the plan may be applied; with ``--dry-run`` and ``--plan`` show it, change nothing and end the command."""
        if self.settings.dry_run or self.settings.plan is not None:
            self.show_preview(plan)
            raise click.exceptions.Exit(self.exit_code)
        from pulsar_admin.confirm import confirm_loss

        confirm_loss(plan.loses, yes=self.settings.yes)

    def show_preview(self, plan: Plan) -> None:
        """Show the report of a dry run."""
        self.render(self.screen_of(plan.preview()))

    def show(self, *reports: ChangeReport) -> None:
        """Write the reports of changes: by default one as text, several as a table."""
        from pulsar_admin.changes import SEVERAL, iter_texts

        documents = (own_items(document) for report in reports for document in report.iter_documents())
        if len(reports) != 1:
            self.emit_rows(documents, SEVERAL)
            return
        report, texts = reports[0], iter_texts(reports[0], self.settings.plan)
        if self.settings.output is None and self.is_upstreams() and not report.dry_run:
            self._say_report(wrapped("".join(texts).removesuffix("\n")))
        elif len(report.parts) > 1:
            self.render(Result(rows=documents, screen=lambda _: texts))
        else:
            self.render(Result(next(documents, {}), screen=lambda _: texts))

    def _say_report(self, text: str) -> None:
        if not self.settings.quiet:
            write_error(text, colored=colors_text(self.settings.color))

    # -- many items, one exit code ------------------------------------------------------------------------------------

    def each(
        self, items: Iterable[Item], work: Callable[[Item], Outcome], *, alone: bool | None = None
    ) -> Iterator[Outcome]:
        """Yield the result of ``work`` for each item; of several, a failed one is reported and the others continue
        (exit code 1).

        A broken engine ends the command, as the other items would fail too. ``alone`` says whether an error ends the
        command; by default it does if there is one item only.
        """
        listed = list(items)
        alone = len(listed) == 1 if alone is None else alone
        for item in listed:
            try:
                result = work(item)
            except errors.StoreError as error:
                self._fail_one(error, alone=alone)
                continue
            self._items += 1
            yield result

    @contextmanager
    def one_item(self, *, alone: bool) -> Iterator[None]:
        """Work on one item in the block: an error is reported and suppressed unless the item is ``alone``; see ``each``."""
        try:
            yield
        except errors.StoreError as error:
            self._fail_one(error, alone=alone)
        else:
            self._items += 1

    def _fail_one(self, error: errors.StoreError, *, alone: bool) -> None:
        if alone or (self._choice is not None and self._choice.broken is error):
            raise error
        self.fail(error)

    def count_items(self, count: int) -> None:
        """Count items that were processed elsewhere as if ``each`` had yielded their results."""
        self._items += count

    def fail(self, error: errors.StoreError) -> None:
        """Report the error of one item among several on stderr and continue with the next one."""
        self.suggest(error)
        self._failed.append(error)
        failure_of(error).write(as_json=self.writes_json)

    def suggest(self, error: errors.StoreError) -> None:
        """Add to an error's hint what only a command line can offer: similar names, or this command with each meaning
        of now."""
        nows = error.context.pop("nows", None)
        if isinstance(nows, list):
            error.context["commands"] = [self._command_line("--now", now) for now in nows]
        self._suggest_names(error)

    def _command_line(self, *options: str) -> str:
        """Return the running command as a line to type, with ``options`` added."""
        import shlex  # no answer needs it

        ctx = click.get_current_context()
        own = ctx.command.own_words(ctx)  # type: ignore[attr-defined]  # a Command of pulsar_admin.options
        flags, arguments = own[: own.index("--")], own[own.index("--") + 1 :]
        words = (*flags, *self._how(), *options)
        is_plain = not any(word.startswith("-") for word in arguments)
        words = (*arguments, *words) if is_plain else (*words, "--", *arguments)
        return shlex.join((*ctx.command_path.split(), *words))

    def _how(self) -> Iterator[str]:
        """Yield the given global options that affect how a change is made."""
        given = click.get_current_context().meta.get(GIVEN, {})
        for name in ("dry_run", "plan", "yes", "clock", "interceptors", "broker_conf"):
            value = given.get(name)
            if value is not None and value is not False:
                yield f"--{name.replace('_', '-')}"
                yield from () if value is True else (str(value),)

    def _suggest_names(self, error: errors.StoreError) -> None:
        """Add to the hint of an error about an unknown name when the topic was deleted, or similar names."""
        if self._store is None or not isinstance(error, errors.NotFound) or "near" in error.context:
            return
        is_usual = error.hint.startswith("list the existing ")  # another hint knows more
        if isinstance(error, errors.TopicNotFound) and "topic" in error.context and is_usual and not self._failed:
            from pulsar_admin.deleted import deletion_hint

            with suppress(errors.StoreError, OSError), self._store.read() as txn:
                if hint := deletion_hint(txn, parse_topic(str(error.context["topic"]))):
                    error.hint = hint
                    return
        from pulsar_admin.store.model.suggestions import near_names

        with suppress(errors.StoreError), self._store.read() as txn:
            if near := near_names(txn, error):
                error.context["near"] = near
                error.hint = f"did you mean {' or '.join(map(shell_word, near))}? {error.hint}".strip()

    def report(self, problems: Sequence[errors.StoreError]) -> None:
        """Report unreadable data and make the exit code 1; the first few in full, all counted.

        A problem of a whole file is reported once, and so is an unknown format.
        """
        alike: dict[object, list[errors.StoreError]] = {}
        for error in problems:
            of_file = isinstance(error, errors.SourceChanged) and error.context.get("path")
            of_format = (
                isinstance(error, errors.Unsupported)
                and "found" in error.context
                and (error.code, str(error.context["found"]))
            )
            alike.setdefault(of_file or of_format or error.message, []).append(error)
        for first, *more in islice(alike.values(), _PROBLEMS_SHOWN):
            hint = f"; {first.hint}" if first.hint else ""
            times = f" ({counted(1 + len(more), 'problem')}{hint})" if more else ""
            self.warn(f"{first.message}{times}")
        if len(alike) > _PROBLEMS_SHOWN:
            self.warn(f"{counted(len(problems), 'problem')} in all; the first {_PROBLEMS_SHOWN} are shown")
        self.problems(len(problems))

    def nothing_matches(self) -> None:
        """Count an item without a match: the exit code is 5 if no item had one."""
        self._misses += 1

    def _went_wrong(self) -> bool:
        return self.exit_code != 0

    @property
    def exit_code(self) -> int:
        """The exit code so far."""
        if self._out_of_memory:
            return NO_ROOM
        if self._failed and not self._items:
            codes = {exit_code_of(error) for error in self._failed}
            return codes.pop() if len(codes) == 1 else PROBLEMS
        if self._problems or self._failed or self.partial:
            return PROBLEMS
        if self._misses:
            return NOT_FOUND if self._misses >= self._items else PROBLEMS
        return 0


def _now_text(text: str, clock_ms: int, as_of: AsOf | None, *, changes: bool) -> str:
    """Return the note that explains ``text``, a time counted back from now: from the clock's for a command that
    ``changes``."""
    from pulsar_admin.store.timespec import format_age_ms, format_time_ms

    if as_of is None:
        return f"{text} is counted back from now ({format_time_ms(clock_ms)}); the time of this copy is not known"
    copy = f"{format_time_ms(as_of.time_ms)}, {format_age_ms(clock_ms - as_of.time_ms)} ago ({as_of.said_by})"
    if changes:
        return f"{text} is counted back from now ({format_time_ms(clock_ms)}), but this copy ends {copy}"
    back = "is" if text == "now" else "is counted back from"
    return f"{text} {back} the time of this copy, {copy}; --now now counts from the clock"
