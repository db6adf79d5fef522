"""Who changed which metadata node, when and how: each version of a node with the value before it."""

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
    """Whether the node at a path has short-lived values: a counter, a load report, the owner of a bundle."""
    return path.startswith(_PASSING)


class MetadataChange(Answer, frozen=True):
    """A change of the metadata node at ``path`` by transaction ``zxid`` at ``time_ms``.

    ``session``: the client's session, None if only a snapshot shows the change; ``who``: the broker or bookie that
    registered in that session, "" if unknown; ``kind``: create, set, delete or snapshot; ``what``: the change in words;
    ``old``, ``new``: the exact values.
    """

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
    """A version of a node, and the value ``before`` it (None: the node did not exist, or the value is unknown).

    ``who``: the broker or bookie that registered in the same session, "" if none did.
    """

    version: Version
    before: bytes | None
    who: str

    @property
    def what(self) -> str:
        """The change in words."""
        version = self.version
        if version.kind == "set" and self.before is None:
            return f"value set, the previous one is unknown; since then: {describe(version.path, None, version.value)}"
        return describe(version.path, self.before, version.value)

    @property
    def change(self) -> MetadataChange:
        """The event as a record for callers."""
        version = self.version
        where = (version.time_ms, version.zxid, version.session, self.who, version.kind, version.path)
        return MetadataChange(*where, self.what, self.before, version.value)


class Span(Struct, frozen=True):
    """The history from ``since`` to ``until``, both included; None: unbounded."""

    since: Moment | None = None
    until: Moment | None = None

    def has_begun(self, zxid: int, time_ms: int) -> bool:
        """Whether a transaction is at or after ``since``."""
        return self.since is None or _compare(self.since, zxid, time_ms) >= 0

    def is_over(self, zxid: int, time_ms: int) -> bool:
        """Whether a transaction is after ``until``."""
        return self.until is not None and _compare(self.until, zxid, time_ms) > 0


_ALWAYS = Span()


def _compare(moment: Moment, zxid: int, time_ms: int) -> int:
    return zxid - (moment.zxid or 0) if moment.time_ms is None else time_ms - moment.time_ms


class Question:
    """Selects the nodes and events of a history: those at or below ``path``, by default all.

    ``passing``: also nodes with short-lived values and, without a path, empty nodes.
    """

    def __init__(self, path: str = "", *, passing: bool = True) -> None:
        self._path = path
        self._passing = passing

    def wants(self, path: str) -> bool:
        """Whether versions of the node at a path have to be read."""
        if self._path:
            return path == self._path or path.startswith(self._path.rstrip("/") + "/")
        return self._passing or not is_passing(path)

    def keeps(self, path: str) -> bool:
        """Whether to remember the value of a wanted node, to compare its next version with; called after ``takes``."""
        return True

    def takes(self, event: Event) -> bool:
        """Whether the history includes an event of a wanted node."""
        version = event.version
        empty = not version.value and not event.before and names.topic_of_path(version.path) is None
        return bool(self._path) or self._passing or not empty


class TopicQuestion(Question):
    """Selects the nodes of a topic (ledger list, cursors, partitions, schema, ledgers), or those of all topics of a
    namespace and its policies.

    Which ledgers belong to it is learned from their custom metadata as versions are read.
    """

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
    """Yield the names of the managed ledgers to which a ledger belongs according to its custom metadata."""
    custom = _decoded(path, value, "custom") or {}
    for key, text in custom.items():
        if key in (TOPIC_KEY, COMPACTED_TOPIC, SCHEMA_KEY):
            yield _managed_ledger_name(key, text.decode("utf-8", "replace"))


def _managed_ledger_name(key: str, text: str) -> str:
    """Return the managed ledger that ``text``, the value of a custom metadata ``key``, means: it names a managed
    ledger, a topic or a schema. "" if it names no topic."""
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
    """Selects a ledger's metadata, and each change of its entry in a topic's list, a cursor or a schema."""

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
        """Return the part of a node's value that concerns the ledger, None if the value does not name it."""
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
    """Return an attribute of a node's decoded value; None if the value cannot be decoded or has no such attribute."""
    try:
        return None if value is None else getattr(decode_structure(path, value)[1], name, None)
    except StoreError:
        return None


def parse_question(text: str | None, *, passing: bool = False) -> Question:
    """Return the selection that a text names: a path, a topic, a tenant/namespace or a ledger id; None selects all
    nodes, without ``passing`` all but those with short-lived values. Raises InvalidValue."""
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
    """Yield the events that a question selects within a span, in zxid order, among the Gaps and Flaws of
    ``iter_versions``.

    Memory holds the last value of each wanted node.
    """
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
    """Return the deletion of the node at a path if that is its last event in the servers' files, else None."""
    events = (
        item for item in iter_events(servers, Question(path)) if isinstance(item, Event) and item.version.path == path
    )
    last = deque(events, 1)
    return last[0] if last and last[0].version.kind == "delete" else None
