"""Messages and entries of topics as files, and as JSON lines. Imports pyarrow when it is asked for them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypedDict, Unpack

from pulsar_admin.api.given import given_flags, given_keywords, given_path, given_text
from pulsar_admin.api.session import Place, Session, Time, check_choice
from pulsar_admin.store.errors import InvalidValue
from pulsar_admin.store.names import parse_topics

if TYPE_CHECKING:
    from pulsar_admin.store.dump.job import DumpReport, DumpSize
    from pulsar_admin.store.dump.options import DumpOptions
    from pulsar_admin.store.model.reader import EntryReader
    from pulsar_admin.store.model.topics import Topic
    from pulsar_admin.store.scan.profiles import Profile

Level = Literal["messages", "entries"]
Format = Literal["parquet", "jsonl"]


class DumpWanted(TypedDict, total=False):
    """Keywords of ``dump``: topics that match PATTERN, messages, or (LEVEL) entries as exact bytes for ``load``.

    Times SINCE (included) and UNTIL (excluded) on CLOCK, positions START and END (both included). PAYLOAD, VALUE and REDACT concern
    messages; so does COLUMNS: under the names and types that another tool gives them, decoded values among them, as bytes with
    PAYLOAD. STRIPPED: entries without broker metadata, as a client receives them.
    """

    pattern: str | None
    level: Level
    since: Time | None
    until: Time | None
    start: Place | None
    end: Place | None
    clock: Literal["auto", "publish", "broker"]
    payload: bool
    value: bool
    redact: bool
    columns: Profile | None
    stripped: bool


class Dumps:
    """The part of ``Store`` that writes topics as files and lines; all of it raises InvalidValue, TopicNotFound.

    What cannot be read is left out with a PartialData warning, and so are broken ledgers.
    """

    _session: Session

    def dump(
        self, directory: Path | str, *topics: str, form: Format = "parquet", **wanted: Unpack[DumpWanted]
    ) -> DumpReport:
        """Write messages, or entries, of TOPICS (default: all) into files of the new DIRECTORY; ``DumpWanted`` has what to choose by.

        Files are parted by topic and by day on the clock. Raises AlreadyExists, DiskFull.
        """
        from pulsar_admin.store.dump.job import dump_directory

        check_choice("form", form, Format)
        place = given_path("directory", directory)
        options = _options(self._session, wanted)
        with self._dumping(topics, wanted, options) as (reader, listed):
            report, problems = dump_directory(reader, listed, place, form, options, lambda entries: None)
        self._session.partial(problems)
        return report

    def dump_lines(self, *topics: str, **wanted: Unpack[DumpWanted]) -> Iterator[str]:
        """Yield what ``dump`` writes as JSON lines, in pieces of text that hold many lines, or a part of a long one."""
        from pulsar_admin.store.dump.job import Dumped, dump_text

        dumped, options = Dumped(), _options(self._session, wanted)
        with self._dumping(topics, wanted, options) as (reader, listed):
            yield from dump_text(reader, listed, options, dumped)
        self._session.partial(dumped.problems)

    def dump_size(self, *topics: str, **wanted: Unpack[DumpWanted]) -> DumpSize:
        """Return how much ``dump`` reads: topics, entries, messages, bytes between the positions; its times are not looked at."""
        from pulsar_admin.store.dump.job import preview_dump

        options = _options(self._session, wanted)
        with self._session.reader() as reader:
            return preview_dump(reader, self._listed(reader, topics, wanted), options)

    @contextmanager
    def _dumping(
        self, topics: Sequence[str], wanted: DumpWanted, options: DumpOptions
    ) -> Iterator[tuple[EntryReader, list[Topic]]]:
        from pulsar_admin.store.dump.job import preview_dump

        with self._session.reader() as reader:
            listed = self._listed(reader, topics, wanted)
            with self._session.scanning(reader, preview_dump(reader, listed, options).bytes, "dump"):
                yield reader, listed

    def _listed(self, reader: EntryReader, topics: Sequence[str], wanted: DumpWanted) -> list[Topic]:
        from pulsar_admin.api.cursors import read_topics

        return list(read_topics(self._session, reader, parse_topics(topics, wanted.get("pattern"))))


def _options(session: Session, wanted: DumpWanted) -> DumpOptions:
    from pulsar_admin.store.db.clocks import check_clock
    from pulsar_admin.store.dump.options import DumpOptions
    from pulsar_admin.store.scan.profiles import Profile

    given_keywords(wanted, DumpWanted)
    if (pattern := wanted.get("pattern")) is not None:
        given_text("pattern", pattern)
    given_flags(**{name: wanted.get(name, False) for name in ("payload", "value", "redact", "stripped")})
    level, profile, redact = wanted.get("level", "messages"), wanted.get("columns"), wanted.get("redact", False)
    check_choice("level", level, Level)
    if profile is not None:
        check_choice("columns", profile, Profile)
        if level == "entries" or redact:
            raise InvalidValue("columns: names are known of messages, whole", hint="leave level entries and redact out")
    bounds = wanted.get("since"), wanted.get("until"), wanted.get("start"), wanted.get("end")
    return DumpOptions(
        level,
        session.window(*bounds, clock=check_clock(wanted.get("clock", "auto"))),
        wanted.get("payload", False),
        wanted.get("value", False),
        stripped=wanted.get("stripped", False),
        redact=redact,
        profile=profile,
    )
