"""Who changed what in the metadata, when: each version of a node beside the one before it."""

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from msgspec import Struct

from pulsar_admin.store import names
from pulsar_admin.store.codec.claims import COMPACTED_TOPIC, SCHEMA_KEY, TOPIC_KEY
from pulsar_admin.store.codec.ledgermetadata import ledger_id_of_path, ledger_path
from pulsar_admin.store.errors import StoreError
from pulsar_admin.store.history.as_of import Moment
from pulsar_admin.store.history.versions import Advance, Flaw, Version, iter_versions
from pulsar_admin.store.history.words import describe
from pulsar_admin.store.model.nodes import cursor_of_path, decode_structure
from pulsar_admin.store.sources.zookeeper import Gap, ServerFiles
from pulsar_admin.store.wording import Answer

_PASSING = ("/counters/", "/loadbalance/", "/ledgers/idgen", "/ledgers/LAYOUT", "/namespace/", "/zookeeper")
"""Nodes with short-lived values: counters, load reports, the owner of a bundle."""
_REGISTERED = (
    ("/loadbalance/brokers/", "broker "),
    ("/ledgers/available/readonly/", "bookie "),
    ("/ledgers/available/", "bookie "),
)
_REGISTRIES = tuple(prefix for prefix, _ in _REGISTERED)


def is_passing(path: str) -> bool:
    """Whether the node at a path is written for the moment."""
    return path.startswith(_PASSING)


class MetadataChange(Answer, frozen=True):
    """One change of a metadata node: at ``time_ms``, by transaction ``zxid`` of ``session`` (None: only a snapshot has it) and ``who``, the
    broker or bookie of that session. ``kind``: create, set, delete, snapshot; ``what`` in words; ``old`` and ``new`` are exact bytes."""

    time_ms: int
    zxid: int
    session: int | None
    who: str
    kind: str
    path: str
    what: str
    old: bytes | None
    new: bytes | None


class Event(NamedTuple):
    """A version of a node, the value before it (None: the node was not there, or its value is not known), and who wrote it:
    the broker or bookie that registered in the same session, "" where none did."""

    version: Version
    before: bytes | None
    who: str

    @property
    def what(self) -> str:
        """Return what was done, in words."""
        version = self.version
        if version.kind == "set" and self.before is None:
            return f"value set, the previous one is unknown; since then: {describe(version.path, None, version.value)}"
        return describe(version.path, self.before, version.value)

    @property
    def change(self) -> MetadataChange:
        """Return it as a record."""
        version = self.version
        where = (version.time_ms, version.zxid, version.session, self.who, version.kind, version.path)
        return MetadataChange(*where, self.what, self.before, version.value)


class Span(Struct, frozen=True):
    """From ``since`` to ``until``, both included; None: no end."""

    since: Moment | None = None
    until: Moment | None = None

    def has_begun(self, zxid: int, time_ms: int) -> bool:
        """Whether the transaction is not before ``since``."""
        return self.since is None or _compare(self.since, zxid, time_ms) >= 0

    def is_over(self, zxid: int, time_ms: int) -> bool:
        """Whether the transaction is after ``until``."""
        return self.until is not None and _compare(self.until, zxid, time_ms) > 0


_ALWAYS = Span()


def _compare(moment: Moment, zxid: int, time_ms: int) -> int:
    return zxid - (moment.zxid or 0) if moment.time_ms is None else time_ms - moment.time_ms


class Question:
    """Which nodes a history is asked of; what a topic or ledger is named in comes up as its versions are seen."""

    def __init__(self, path: str = "", *, passing: bool = True) -> None:
        self._path = path
        self._passing = passing

    def wants(self, path: str) -> bool:
        """Whether versions of the node at a path have to be looked at."""
        if self._path:
            return path == self._path or path.startswith(self._path.rstrip("/") + "/")
        return self._passing or not is_passing(path)

    def keeps(self, path: str) -> bool:
        """Whether the value of the node at a path is needed to compare the next one with; ``takes`` is already true for the node."""
        return True

    def takes(self, event: Event) -> bool:
        """Whether an event of a wanted node belongs to the answer."""
        version = event.version
        empty = not version.value and not event.before and names.topic_of_path(version.path) is None
        return bool(self._path) or self._passing or not empty


class TopicQuestion(Question):
    """Of one topic or all of a namespace: lists, cursors, partitions, schemas, policies of the namespace, and their ledgers."""

    def __init__(self, name: names.TopicName | names.NamespaceName) -> None:
        super().__init__()
        self._ledgers: set[str] = set()
        self._needles: tuple[bytes, ...]  # how a ledger's metadata may spell the name
        self._prefixes: tuple[str, ...]
        self._claims: tuple[str, ...]
        if isinstance(name, names.TopicName):
            self._needles = (names.encode_name(name.local_name).encode(), name.local_name.encode())
            self._paths = {name.path, name.partitioned_path, name.schema_path}
            self._prefixes = (name.path + "/", f"{name.path}-partition-")
            self._claims = (f"{name.managed_ledger_name}\0", f"{name.managed_ledger_name}-partition-")
        else:
            self._needles = (str(name).encode(),)
            below = (f"/admin/partitioned-topics/{name}/", f"/schemas/{name}/")
            self._paths = {name.policies_path, f"/admin/local-policies/{name}"}
            self._prefixes = (name.managed_ledgers_path + "/", *below)
            self._claims = (f"{name}/",)

    def keeps(self, path: str) -> bool:
        return path in self._ledgers or ledger_id_of_path(path) is None

    def wants(self, path: str) -> bool:
        return path in self._paths or path.startswith(self._prefixes) or ledger_id_of_path(path) is not None

    def takes(self, event: Event) -> bool:
        path = event.version.path
        if ledger_id_of_path(path) is None or path in self._ledgers:
            return True
        value = event.version.value or event.before or b""
        if not any(needle in value for needle in self._needles):  # decoding costs ten times as much
            return False
        if not any(f"{name}\0".startswith(self._claims) for name in iter_claims(path, value)):
            return False
        self._ledgers.add(path)
        return True


def iter_claims(path: str, value: bytes | None) -> Iterator[str]:
    """Yield the names of the managed ledgers to which the metadata of a ledger says it belongs."""
    custom = _decoded(path, value, "custom") or {}
    for key, text in custom.items():
        if key in (TOPIC_KEY, COMPACTED_TOPIC, SCHEMA_KEY):
            yield _managed_ledger_name(key, text.decode("utf-8", "replace"))


def _managed_ledger_name(key: str, text: str) -> str:
    """Return the managed ledger's name for a key of custom metadata, which names that, a topic, or a schema's tenant/namespace/topic."""
    if key == TOPIC_KEY:
        return text
    if key == SCHEMA_KEY:
        namespace, _, topic = text.rpartition("/")
        return f"{namespace}/persistent/{topic}"
    try:
        return names.parse_topic(text).managed_ledger_name
    except StoreError:
        return ""


class LedgerQuestion(Question):
    """Of one ledger: its metadata, and the lists and cursors that came to name it, or name it no more."""

    def __init__(self, ledger_id: int) -> None:
        super().__init__()
        self._ledger_id = ledger_id
        self._path = ledger_path(ledger_id)

    def wants(self, path: str) -> bool:
        return path == self._path or path.startswith((names.MANAGED_LEDGERS + "/", "/schemas/"))

    def takes(self, event: Event) -> bool:
        path = event.version.path
        return path == self._path or self._named(path, event.before) != self._named(path, event.version.value)

    def _named(self, path: str, value: bytes | None) -> object:
        """Return what a value has of the ledger."""
        if value is None:
            return None
        if names.topic_of_path(path) is not None:
            return next(
                (one for one in _decoded(path, value, "ledgers") or () if one.ledger_id == self._ledger_id), None
            )
        if cursor_of_path(path) is not None:
            return _decoded(path, value, "cursors_ledger_id") == self._ledger_id or None
        return self._ledger_id in (_decoded(path, value, "ledger_ids") or ()) or None


def _decoded(path: str, value: bytes | None, name: str) -> Any:  # Any: the attribute's type
    """Return the named attribute of the structure in a value, None without one."""
    try:
        return None if value is None else getattr(decode_structure(path, value)[1], name, None)
    except StoreError:
        return None


def parse_question(text: str | None, *, passing: bool = False) -> Question:
    """Parse a path, a topic, a tenant/namespace or a ledger id; None asks for all but nodes with short-lived values.
    Raises InvalidValue."""
    if text is None:
        return Question(passing=passing)
    if text.startswith("/"):
        return Question(text)
    if text.isascii() and text.isdigit():
        return LedgerQuestion(int(text))
    if text.count("/") == 1:
        return TopicQuestion(names.parse_namespace(text))
    return TopicQuestion(names.parse_topic(text))


def iter_events(
    servers: Sequence[ServerFiles], question: Question, span: Span = _ALWAYS, advance: Advance = lambda size_bytes: None
) -> Iterator[Event | Gap | Flaw]:
    """Yield what ``iter_versions`` has for a question in a span as events. The last value of each wanted node is in memory."""
    values: dict[str, bytes] = {}
    sessions: dict[int, str] = {}

    def wanted(path: str) -> bool:
        return question.wants(path) or path.startswith(_REGISTRIES)

    for item in iter_versions(servers, wanted, advance):
        if not isinstance(item, Version):
            yield item
            continue
        if span.is_over(item.zxid, item.time_ms):
            return
        if item.session is not None and item.kind == "create" and item.path.startswith(_REGISTRIES):
            prefix, noun = next(known for known in _REGISTERED if item.path.startswith(known[0]))
            sessions[item.session] = noun + item.path.removeprefix(prefix)
        if not question.wants(item.path):
            continue
        event = Event(item, values.pop(item.path, None), sessions.get(item.session or 0, ""))
        taken = question.takes(event)
        if item.value is not None and question.keeps(item.path):
            values[item.path] = item.value
        if taken and span.has_begun(item.zxid, item.time_ms):
            yield event


def find_deletion(servers: Sequence[ServerFiles], path: str) -> Event | None:
    """Return the deletion of the node at a path, None for a node that exists or never did; from its last record in the servers' files."""
    events = (
        item for item in iter_events(servers, Question(path)) if isinstance(item, Event) and item.version.path == path
    )
    last = deque(events, 1)
    return last[0] if last and last[0].version.kind == "delete" else None
