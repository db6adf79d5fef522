"""Options for reading or dumping topics; importing them does not load pyarrow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from msgspec import Struct, field

from pulsar_admin.store.errors import InvalidValue, StoreError
from pulsar_admin.store.model.messages import Window

if TYPE_CHECKING:
    from pulsar_admin.store.dump.spread import WindowsAsOne
    from pulsar_admin.store.model.compacted_view import CompactedView
    from pulsar_admin.store.model.reader import EntryReader
    from pulsar_admin.store.model.topics import Topic
    from pulsar_admin.store.names import Profile
    from pulsar_admin.store.scan.messages import Match

Level = Literal["messages", "entries"]


class DumpOptions(Struct, frozen=True):
    """What to dump. ``payload`` to ``only`` concern level ``messages``; entries always have their payload, and no value.

    ``redact``: messages as ``store.model.redaction`` shows them. ``stripped``: entries without broker entry metadata,
    as a client receives them. ``committed`` and ``markers`` are those of ``ReadOptions``, ``only`` and ``match`` those
    of ``store.dump.tables.DumpColumns``. ``view``: its compacted ledger instead of the window's positions. ``whole``: a
    chunk without the ones before it is damage, wherever the window begins. ``profile``: the names and types of another
    tool's columns, among them the value, which with ``payload`` is raw bytes. ``typed``: ``value`` is a column with the
    fields of all versions of the topic's schema, else JSON text. ``batch_bytes``: the most that this process reads at
    once. ``as_one``: reads the window together with those of other topics. ``lenient``: a value that cannot be decoded
    is no problem.
    """

    level: Level = "messages"
    window: Window = field(default_factory=Window)
    payload: bool = False
    value: bool = False
    committed: bool = True
    markers: bool = False
    only: tuple[str, ...] = ()
    stripped: bool = False
    redact: bool = False
    view: CompactedView | None = None
    whole: bool = False
    match: Match | None = None
    profile: Profile | None = None
    typed: bool = False
    batch_bytes: int | None = None
    as_one: WindowsAsOne | None = None
    lenient: bool = False

    def __post_init__(self) -> None:
        """Raise InvalidValue if entries, which are exact bytes, are to be changed."""
        if self.level == "entries" and self.redact:
            raise InvalidValue("entries are exact bytes, which nothing hides", hint="leave out --redact or --level")
        if self.profile is not None and (self.level == "entries" or self.redact):
            hint = "leave out --columns, or --level and --redact"
            raise InvalidValue("other columns are for whole messages alone", hint=hint)


class AskedMessages:
    """A request for at most ``limit`` messages in a topic's window; read errors are added to ``problems``."""

    def __init__(
        self, reader: EntryReader, topic: Topic, options: DumpOptions, limit: int | None, problems: list[StoreError]
    ) -> None:
        self.reader, self.topic, self.options, self.limit, self.problems = reader, topic, options, limit, problems
