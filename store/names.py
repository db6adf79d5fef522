"""Names and ids: topics, namespaces, positions, and the Codec that turns names into metadata path components.

Rules: upstream ``TopicName``, ``NamespaceName`` and ``Codec`` (java.net.URLEncoder), Pulsar 4.0.8.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Literal, get_args

from msgspec import Struct

from pulsar_admin.store.errors import InvalidValue
from pulsar_admin.store.wording import Answer

EVENTS = "__change_events"
"""The topic that holds a namespace's topic policies."""
_SNAPSHOT = "__transaction_buffer_snapshot"
_EVENT_TOPICS = {EVENTS, _SNAPSHOT, f"{_SNAPSHOT}_segments", f"{_SNAPSHOT}_indexes"}
TRANSACTION_LOG_PREFIX, PENDING_ACK_SUFFIX = "__transaction_log_", "__transaction_pending_ack"
PARTITION_SUFFIX = "-partition-"
MANAGED_LEDGERS = "/managed-ledgers"
SCALABLE_TOPICS = "/topics"
LEDGERS = "/ledgers"
PERSISTENT = "persistent"
SCALABLE, SEGMENT = "topic", "segment"
"""Domains of Pulsar 5.0: a scalable topic has no managed ledger of its own, each of its segments is one."""
LONG_MIN, LONG_MAX = -(2**63), 2**63 - 1
INT_MIN, INT_MAX = -(2**31), 2**31 - 1
"""Java's limits of ids, times and counts."""
Profile = Literal["pulsar-spark"]
PROFILES: tuple[Profile, ...] = get_args(Profile)
"""The tools whose names of columns are known here; what they are is in ``store.scan.typed_values``."""
_INT_DIGITS = 10
_MANY_NAMES = 1 << 14


class FileKind(StrEnum):
    """The kind of a bookie's file that holds entries."""

    ENTRY_LOG = "entry-log"
    JOURNAL = "journal"


_UNCHANGED = re.compile(r"[A-Za-z0-9._*-]*")


def encode_name(name: str) -> str:
    """Return ``name`` as one metadata path component, as Java's URLEncoder writes it."""
    if _UNCHANGED.fullmatch(name):
        return name
    from urllib.parse import quote_plus  # 2 ms, and few names need it

    try:
        return quote_plus(name, safe="*").replace("~", "%7E")
    except UnicodeEncodeError as error:
        raise InvalidValue(f"{name!r} is not Unicode", hint="names are UTF-8", value=name) from error


def decode_name(component: str) -> str:
    """Return the name that a metadata path component encodes (inverse of ``encode_name``)."""
    if "%" not in component and "+" not in component:
        return component
    from urllib.parse import unquote_plus

    return unquote_plus(component)


def in_hash_order(names: Iterable[str]) -> list[str]:
    """Return ``names`` in the order in which a Java HashMap or HashSet iterates over them after inserting them in this
    order, as many of Pulsar's answers list them."""
    listed = list(names)
    size = 16
    while len(listed) > size * 3 // 4:
        size *= 2

    if len(listed) > _MANY_NAMES:
        return _in_hash_order_at_once(listed, size)

    def bucket(name: str) -> int:
        units = name.encode("utf-16-be", "surrogatepass")
        code = 0
        for high, low in zip(units[::2], units[1::2], strict=True):
            code = (31 * code + (high << 8 | low)) & 0xFFFFFFFF
        return (code ^ code >> 16) & (size - 1)

    return sorted(listed, key=bucket)


def _in_hash_order_at_once(names: list[str], size: int) -> list[str]:
    """Return ``names`` in the order in which a Java HashMap of ``size`` buckets iterates over them, computed with
    numpy."""
    import numpy as np  # 70 ms

    codes = np.zeros(len(names), np.uint32)
    for at in range(0, len(names), _MANY_NAMES):
        some = names[at : at + _MANY_NAMES]
        raw = [name.encode("utf-16-le", "surrogatepass") for name in some]
        lengths = np.fromiter(map(len, raw), np.int64, len(raw)) // 2
        # Letters of all names as rows of a table, the first in column 0.
        table = np.array(raw, f"S{2 * max(int(lengths.max()), 1)}").view("<u2").reshape(len(raw), -1)
        hashes = np.zeros(len(raw), np.uint32)
        for column in range(table.shape[1]):
            hashes = np.where(column < lengths, hashes * np.uint32(31) + table[:, column], hashes)
        codes[at : at + len(raw)] = hashes
    buckets = (codes ^ codes >> np.uint32(16)) & np.uint32(size - 1)
    return [names[index] for index in np.argsort(buckets, kind="stable").tolist()]


def shell_word(name: object) -> str:
    """Return ``name`` quoted as one word of a shell: it comes from data, and users paste the commands that messages
    suggest."""
    text = str(name)
    if text and text.isascii() and all(letter.isalnum() or letter in "_@%+=:,./-" for letter in text):
        return text
    if not text.isprintable():
        # A text that is shown has no such letters: bash, zsh, ksh and POSIX.1-2024 make them of what stands for them. For an older sh, such
        # as dash, it is one word that names nothing.
        return f"$'{''.join(map(_ansi_c, text))}'"
    import shlex  # 1 ms, and hardly any name needs it

    return shlex.quote(text)


def _ansi_c(letter: str) -> str:
    """Return ``letter`` as written between ``$'`` and ``'``: never as a quote, which ends the word in an sh without
    ``$'``."""
    if letter.isprintable() and letter not in "\\'":
        return letter
    is_byte = "\udc80" <= letter <= "\udcff"  # of a path that is no UTF-8
    return "".join(
        f"\\{byte:03o}" for byte in letter.encode("utf-8", "surrogateescape" if is_byte else "surrogatepass")
    )


def is_encoded(component: str) -> bool:
    """Return whether a metadata path component is exactly what ``encode_name`` returns for its name."""
    return _UNCHANGED.fullmatch(component) is not None or encode_name(decode_name(component)) == component


class Position(Struct, frozen=True, order=True):
    """A place in a managed ledger: ledger id, entry id and, inside a batch, the message's index (else −1)."""

    ledger_id: int
    entry_id: int
    batch_index: int = -1

    def __str__(self) -> str:
        text = f"{self.ledger_id}:{self.entry_id}"
        return text if self.batch_index < 0 else f"{text}:{self.batch_index}"

    @property
    def entry(self) -> Position:
        """The same position without its batch index."""
        return self if self.batch_index < 0 else Position(self.ledger_id, self.entry_id)

    @staticmethod
    def parse(text: str) -> Position:
        """Return the position that a text such as ``29:20``, ``29:20:1``, ``earliest`` or ``latest`` names; raises InvalidValue."""
        return parse_position(text)


class MessagePosition(Position, frozen=True):
    """A message's position; its JSON always has the batch index, −1 if the entry is not a batch."""


EARLIEST = Position(-1, -1)
LATEST = Position(LONG_MAX, LONG_MAX)

_POSITION = r"(-?\d{1,19}):(-?\d{1,19})(?::(-?\d{1,10}))?"


def parse_position(text: str) -> Position:
    """Parse ``L:E``, ``L:E:B``, ``earliest`` or ``latest``; raises InvalidValue."""
    if text == "earliest":
        return EARLIEST
    if text == "latest":
        return LATEST
    match = re.fullmatch(_POSITION, _text(text, "position"))
    if not match:
        raise InvalidValue(
            f"invalid position {text!r}", hint="write LEDGER:ENTRY, LEDGER:ENTRY:BATCH, earliest or latest", value=text
        )
    ledger_id, entry_id, batch_index = (int(part) if part is not None else -1 for part in match.groups())
    if ledger_id > LONG_MAX or entry_id > LONG_MAX or batch_index > INT_MAX:
        raise InvalidValue(f"position {text!r} is beyond 64 bits", hint="ids are signed 64-bit integers", value=text)
    return Position(ledger_id, entry_id, batch_index)


class NamespaceName(Answer, frozen=True, order=True):
    """``tenant/namespace`` (legacy ``tenant/cluster/namespace`` keeps its cluster)."""

    tenant: str
    namespace: str
    cluster: str = ""

    def __str__(self) -> str:
        if self.tenant and self.namespace and not self.cluster:  # nearly all; there may be a million topics
            return f"{self.tenant}/{self.namespace}"
        return "/".join(part for part in (self.tenant, self.cluster, self.namespace) if part)

    @property
    def managed_ledgers_path(self) -> str:
        """The metadata path whose children are this namespace's topics."""
        return f"{MANAGED_LEDGERS}/{self}/persistent"

    @property
    def policies_path(self) -> str:
        """The metadata node that holds its policies."""
        return f"/admin/policies/{self}"


_NAME = re.compile(r"[-=:.\w]+")


def is_allowed_name(text: str) -> bool:
    """Whether a new tenant, namespace, cluster … may have this name (upstream ``NamedEntity``); an empty one may
    not."""
    return re.fullmatch(_NAME.pattern, text, re.ASCII) is not None


def _text(name: object, what: str = "name") -> str:
    if not isinstance(name, str):  # from Python: a list would become the name "['a']"
        raise InvalidValue(f"{what} {name!r} is not a str", value=name)
    return name


def parse_namespace(text: str) -> NamespaceName:
    """Parse ``tenant/namespace``; raises InvalidValue."""
    parts = _text(text).split("/")
    if len(parts) not in (2, 3) or not all(_NAME.fullmatch(part) for part in parts):
        raise InvalidValue(f"invalid namespace {text!r}", hint="write tenant/namespace", value=text)
    if len(parts) == 2:
        return NamespaceName(parts[0], parts[1])
    return NamespaceName(parts[0], parts[2], parts[1])


class TopicName(Answer, frozen=True, order=True):
    """A persistent topic or a partition of one, or a scalable topic or a segment of one.

    The ``local_name`` of a segment is ``TOPIC/0000-7fff-3``. A name with any other ``domain`` (of a newer Pulsar)
    stands only for a managed ledger, which owns ledgers; its ``local_name`` is the rest of the metadata path, not
    decoded, as the meaning of its parts is unknown.
    """

    namespace: NamespaceName
    local_name: str
    domain: str = PERSISTENT

    def __str__(self) -> str:
        return f"{self.domain}://{self.namespace}/{self.local_name}"

    @property
    def managed_ledger_name(self) -> str:
        """Upstream's persistence name, ``t/ns/persistent/encoded``."""
        local = self.local_name
        if self.domain in (PERSISTENT, SCALABLE):
            local = encode_name(local)
        elif self.domain == SEGMENT:
            topic, _, segment = local.rpartition("/")
            local = f"{encode_name(topic)}/{segment}"
        return f"{self.namespace}/{self.domain}/{local}"

    @property
    def path(self) -> str:
        """Metadata path of the topic's ManagedLedgerInfo; its children are the cursors."""
        return f"{MANAGED_LEDGERS}/{self.managed_ledger_name}"

    @property
    def partitioned_path(self) -> str:
        """Metadata path of the partitioned-topic record of this name's base topic."""
        return f"/admin/partitioned-topics/{self.namespace}/persistent/{encode_name(self.base.local_name)}"

    @property
    def schema_id(self) -> str:
        """The id under which Pulsar keeps the schema of this name's base topic."""
        return f"{self.namespace}/{encode_name(self.whole.base.local_name)}"

    @property
    def schema_path(self) -> str:
        """Metadata path of the schema of this name's base topic."""
        return f"/schemas/{self.schema_id}"

    @property
    def partition_index(self) -> int:
        """The number after the last ``-partition-``; −1 if there is none, or if Java does not print it like that
        (``t-partition-07`` is a topic)."""
        _, found, number = self.local_name.rpartition(PARTITION_SUFFIX)
        if not found or not number.isascii() or not number.isdigit() or len(number) > _INT_DIGITS:
            return -1
        index = int(number)
        return index if index <= INT_MAX and str(index) == number else -1

    @property
    def is_partition(self) -> bool:
        """Whether the name ends in ``-partition-N``."""
        return self.partition_index >= 0

    @property
    def base(self) -> TopicName:
        """The topic without its partition suffix."""
        if not self.is_partition:
            return self
        return TopicName(self.namespace, self.local_name.rpartition(PARTITION_SUFFIX)[0], self.domain)

    @property
    def whole(self) -> TopicName:
        """The scalable topic that a segment belongs to; any other name itself."""
        if self.domain != SEGMENT:
            return self
        return TopicName(self.namespace, self.local_name.rpartition("/")[0], SCALABLE)

    @property
    def scalable_path(self) -> str:
        """Metadata path of a scalable topic's DAG of segments; for a persistent topic, of the one it was migrated
        to."""
        return f"{SCALABLE_TOPICS}/{self.namespace}/{encode_name(self.whole.local_name)}"

    def segment(self, start: int, end: int, segment_id: int) -> TopicName:
        """Return the name of a segment of this scalable topic (upstream ``SegmentTopicName``); ``start``, ``end``: its
        hashes."""
        return TopicName(self.namespace, f"{self.local_name}/{start:04x}-{end:04x}-{segment_id}", SEGMENT)

    def partition(self, index: int) -> TopicName:
        """Return the name of the partition ``index``."""
        return TopicName(self.namespace, f"{self.local_name}{PARTITION_SUFFIX}{index}", self.domain)

    def cursor_path(self, cursor: str) -> str:
        """Metadata path of the cursor's ManagedCursorInfo; ``cursor``: its name, not encoded."""
        return f"{self.path}/{encode_name(cursor)}"

    def pending_ack(self, subscription: str) -> TopicName:
        """Return the topic that logs a subscription's acknowledgements in transactions, as brokers from 4.2 on name it."""
        return self.pending_acks(subscription)[0]

    def pending_acks(self, subscription: str) -> list[TopicName]:
        """Return the topics that may log a subscription's acknowledgements in transactions, the newest brokers' name first."""
        return [TopicName(self.namespace, name) for name in pending_ack_names(self.local_name, subscription)]

    @property
    def is_system(self) -> bool:
        """Whether ``topics list`` hides the topic (upstream SystemTopicNames)."""
        if (
            "__" not in self.local_name and self.namespace.tenant != "pulsar"
        ):  # nearly all; there may be a million topics
            return False
        return self.is_of_transactions or self.base.local_name in _EVENT_TOPICS

    @property
    def is_of_transactions(self) -> bool:
        """Whether ``topics list`` hides the topic even when it lists system topics (upstream
        ``isTransactionInternalName``)."""
        if str(self.namespace) == "pulsar/system" and self.local_name.startswith(
            (TRANSACTION_LOG_PREFIX, "transaction_coordinator_assign")
        ):
            return True
        return self.local_name.endswith(PENDING_ACK_SUFFIX)


def pending_ack_names(local: str, subscription: str) -> dict[str, None]:
    """Return the names that brokers give the log of a subscription's acknowledgements in transactions
    (``MLPendingAckStore``): from 4.2 on the subscription is encoded, before it was not."""
    return dict.fromkeys(f"{local}-{one}{PENDING_ACK_SUFFIX}" for one in (encode_name(subscription), subscription))


_SEGMENT = r"(?i)([0-9a-f]{1,4})-([0-9a-f]{1,4})-([0-9]{1,18})"
"""The name of a segment within its topic: its first and last hash, and its id."""


class TopicSelection(Struct, frozen=True):
    """The topics that a command is about: the named ones, all of the store, or those whose names match the glob
    ``pattern``; the latter two without the broker's own topics."""

    topics: tuple[TopicName, ...] = ()
    all_topics: bool = False
    pattern: str | None = None

    @property
    def single(self) -> TopicName | None:
        """The topic if exactly one is named, else None."""
        return self.topics[0] if len(self.topics) == 1 else None


def parse_topic(text: str) -> TopicName:
    """Parse ``persistent://t/ns/topic``, ``t/ns/topic`` or ``topic`` (= public/default), the name of a scalable topic
    (``topic://t/ns/topic``) or of a segment (``segment://t/ns/topic/0000-7fff-3``); raises InvalidValue.
    """
    domain, rest = PERSISTENT, _text(text)
    if "://" in text:
        domain, rest = text.split("://", 1)
        if domain == "non-persistent":
            raise InvalidValue(
                f"{text} is non-persistent: it has no data on disk", hint="name a persistent topic", value=text
            )
        if domain not in (PERSISTENT, SCALABLE, SEGMENT):
            raise InvalidValue(
                f"invalid topic domain {domain!r} in {text!r}",
                hint="write persistent://t/ns/topic, or topic://t/ns/topic for a scalable topic",
            )
    elif "/" not in text:
        rest = f"public/default/{text}"
    parts = rest.split("/", 2)
    if "://" not in text and rest.count("/") > 2 and not text.startswith("/"):
        words = "it should be in the format of <tenant>/<namespace>/<topic> or <topic>"
        raise InvalidValue(f"Invalid short topic name '{text}', {words}", hint=f"write persistent://{text}", value=text)
    if len(parts) != 3 or not parts[2] or not all(_NAME.fullmatch(part) for part in parts[:2]):
        raise InvalidValue(
            f"invalid topic name {text!r}",
            hint="write persistent://tenant/namespace/topic or its short form",
            value=text,
        )
    name = TopicName(NamespaceName(parts[0], parts[1]), parts[2], domain)
    if domain != SEGMENT:
        return name
    topic, _, segment = parts[2].rpartition("/")
    match = re.fullmatch(_SEGMENT, segment)
    start, end, segment_id = (0, -1, 0) if match is None else (int(match[1], 16), int(match[2], 16), int(match[3]))
    if not topic or end < start:
        raise InvalidValue(
            f"invalid segment name {text!r}",
            hint="write segment://tenant/namespace/topic/START-END-ID, hashes as four hex digits, such as 0000-7fff-3",
            value=text,
        )
    return TopicName(name.namespace, topic, SCALABLE).segment(start, end, segment_id)


def parse_scalable(text: str) -> TopicName:
    """Parse the name of a scalable topic, also without its domain, as upstream's commands of these topics take it; raises InvalidValue."""
    name = parse_topic(text)
    if name.domain == SEGMENT:
        raise InvalidValue(f"{text} is a segment", hint=f"name its topic: {name.whole}", value=text)
    return TopicName(name.namespace, name.local_name, SCALABLE)


def parse_topics(texts: Sequence[str], pattern: str | None = None) -> TopicSelection:
    """Return the selection of the named topics, or of those that match the glob ``pattern``; without either, of all
    topics.

    Raises InvalidValue.
    """
    if texts and pattern is not None:
        raise InvalidValue("give topics or a pattern, not both", value=pattern)
    glob = None if pattern is None else _text(pattern)
    return TopicSelection(tuple(map(parse_topic, texts)), not texts and pattern is None, glob)


def topic_of_path(path: str) -> TopicName | None:
    """Return the topic whose ManagedLedgerInfo lies at the metadata ``path``, or None for any other path."""
    parts = path.split("/")
    if len(parts) < 6 or parts[1] != "managed-ledgers":
        return None
    if len(parts) == 6 and parts[4] == "persistent":
        return TopicName(NamespaceName(parts[2], parts[3]), decode_name(parts[5]))
    if len(parts) == 7 and parts[5] == "persistent" and parts[4] != "persistent" and not _is_segment(parts):
        return TopicName(NamespaceName(parts[2], parts[4], parts[3]), decode_name(parts[6]))
    return None


def _is_segment(parts: list[str]) -> bool:
    """Whether a managed ledger's path, split at slashes, is that of a segment of a scalable topic called
    ``persistent``. Before Pulsar 2.0 such a path could be a topic in a namespace called ``segment``.

    Upstream (5.0.1): a segment is named by its range of hashes and its id, ``0000-7fff-3``.
    """
    return parts[4] == SEGMENT and re.fullmatch(_SEGMENT, parts[6]) is not None


def managed_ledger_of_path(path: str) -> TopicName | None:
    """Return the name of the managed ledger at a metadata path, of any domain; None if the path cannot have one."""
    topic = topic_of_path(path)
    parts = path.split("/")
    if topic is not None or len(parts) < 6 or parts[1] != "managed-ledgers" or parts[4] == PERSISTENT:
        return topic
    namespace, rest = NamespaceName(parts[2], parts[3]), "/".join(parts[5:])
    if parts[4] != SEGMENT:
        return TopicName(namespace, rest, parts[4])
    if len(parts) != 7 or not parts[5] or not _is_segment(parts):
        return None
    name = TopicName(namespace, f"{decode_name(parts[5])}/{parts[6]}", SEGMENT)
    return name if name.path == path else None  # else no name of Pulsar's leads to it


def parse_owner(text: str) -> TopicName:
    """Return the managed ledger, of any domain, that a text names in the form of ``str(TopicName)``; raises
    InvalidValue.

    Metadata may hold names that users may not give, such as an empty one.
    """
    domain, found, rest = text.partition("://")
    parts = rest.split("/", 2)
    if not found or len(parts) != 3:
        return parse_topic(text)
    return TopicName(NamespaceName(parts[0], parts[1]), parts[2], domain)


def parse_managed_ledger(text: str) -> TopicName:
    """Parse ``tenant/namespace/persistent/topic``, the topic encoded; raises InvalidValue."""
    name = topic_of_path(f"{MANAGED_LEDGERS}/{text}")
    if name is None:
        raise InvalidValue(f"invalid managed ledger {text!r}", hint="write tenant/namespace/persistent/topic")
    return name


def java_hash(text: str) -> int:
    """Return upstream's ``JavaStringHash`` of a text, which decides the partition of a key."""
    units = text.encode("utf-16-be")
    found = 0
    for index in range(0, len(units), 2):
        found = (31 * found + int.from_bytes(units[index : index + 2], "big")) & 0xFFFFFFFF
    return found & 0x7FFFFFFF
