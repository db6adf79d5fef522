"""What ledgers say of themselves in BookKeeper's metadata, and at which level a store's metadata can be made again.

Upstream: ``LedgerMetadataUtils`` writes the custom metadata, ``LedgerLayout`` the node ``/ledgers/LAYOUT`` (Pulsar 4.0.8, BookKeeper 4.17).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from msgspec import Struct, field

from pulsar_admin.store.codec.claims import (
    BUCKET_CURSOR,
    BUCKET_KEY,
    BUCKET_TOPIC,
    COMPACTED_COMPONENT,
    COMPACTED_TO,
    COMPACTED_TOPIC,
    COMPONENT,
    CURSOR_KEY,
    SCHEMA_KEY,
    TOPIC_KEY,
)
from pulsar_admin.store.codec.ledgermetadata import LEDGERS_ROOT, LedgerMetadata, ledger_path
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.own_ledgers import find_own_ledgers
from pulsar_admin.store.db.tree import find_node, iter_children
from pulsar_admin.store.errors import InvalidValue, MetadataCorrupt, Unsupported
from pulsar_admin.store.facts import Unknown
from pulsar_admin.store.facts.unlisted import UnlistedLedgers
from pulsar_admin.store.model.ledgers import find_metadata, iter_indexed_ids, sorted_ledger_ids
from pulsar_admin.store.model.topics import iter_topics
from pulsar_admin.store.names import MANAGED_LEDGERS, Position, TopicName, parse_topic, topic_of_path
from pulsar_admin.store.proto.pulsar_api_pb2 import MessageIdData

_LAYOUT = f"{LEDGERS_ROOT}/LAYOUT"
KNOWN_LAYOUT = "2\norg.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory:1"


class CompactedClaim(NamedTuple):
    """A compacted ledger, and the last position of its topic that it stands for."""

    ledger_id: int
    horizon: Position


class BucketClaim(NamedTuple):
    """A bucket of delayed messages: its ledger, and the cursor's property that names it."""

    ledger_id: int
    key: str


class Survey(Struct):
    """The ledgers that metadata lists by what they say they are, ids ascending. ``silent``: say nothing that we know."""

    data: dict[TopicName, list[int]] = field(default_factory=dict)
    cursors: dict[TopicName, dict[str, list[int]]] = field(default_factory=dict)
    schemas: dict[TopicName, list[int]] = field(default_factory=dict)
    compacted: dict[TopicName, list[CompactedClaim]] = field(default_factory=dict)
    buckets: dict[TopicName, dict[str, list[BucketClaim]]] = field(default_factory=dict)
    silent: list[int] = field(default_factory=list)
    passed_over: dict[str, str] = field(default_factory=dict)
    """Nodes that cannot be decoded: path → why. Nothing is made of them, and nothing that they name is touched."""
    left_out: list[str] = field(default_factory=list)
    """What is not made although it is lost, as sentences."""

    def add(self, ledger_id: int, metadata: LedgerMetadata) -> None:
        """Note what a ledger says it is."""
        try:
            told = self._add(ledger_id, metadata.custom)
        except (InvalidValue, ValueError):  # a name that is none
            told = False
        if not told:
            self.silent.append(ledger_id)

    def _add(self, ledger_id: int, claims: Mapping[str, bytes]) -> bool:
        if claims.get(COMPONENT) == COMPACTED_COMPONENT:
            to = MessageIdData.FromString(claims.get(COMPACTED_TO, b""))
            claim = CompactedClaim(ledger_id, Position(to.ledgerId, to.entryId))
            self.compacted.setdefault(_topic(claims, COMPACTED_TOPIC), []).append(claim)
        elif BUCKET_KEY in claims:
            buckets = self.buckets.setdefault(_topic(claims, BUCKET_TOPIC), {})
            claim_of = BucketClaim(ledger_id, claims[BUCKET_KEY].decode())
            buckets.setdefault(claims[BUCKET_CURSOR].decode(), []).append(claim_of)
        elif SCHEMA_KEY in claims:
            name = parse_topic(f"persistent://{claims[SCHEMA_KEY].decode()}")
            self.schemas.setdefault(name, []).append(ledger_id)
        elif TOPIC_KEY in claims:
            name = topic_of_path(f"{MANAGED_LEDGERS}/{claims[TOPIC_KEY].decode()}") or parse_topic("")
            if CURSOR_KEY in claims:
                self.cursors.setdefault(name, {}).setdefault(claims[CURSOR_KEY].decode(), []).append(ledger_id)
            else:
                self.data.setdefault(name, []).append(ledger_id)
        else:
            return False
        return True


def _topic(claims: Mapping[str, bytes], key: str) -> TopicName:
    return parse_topic(claims.get(key, b"").decode())


def read_survey(txn: Txn) -> Survey:
    """Return what every ledger of the metadata says that it is; one that cannot be decoded is passed over."""
    found = Survey()
    for ledger_id in sorted_ledger_ids(txn):
        try:
            metadata = find_metadata(txn, ledger_id)
        except MetadataCorrupt as error:
            found.passed_over[ledger_path(ledger_id)] = error.message
            continue
        if metadata is not None:
            found.add(ledger_id, metadata)
    return found


def check_layout(txn: Txn) -> None:
    """Raise Unsupported where ledgers lie otherwise than we write them: their paths would be made wrong."""
    node = find_node(txn, _LAYOUT)
    if node is not None and node.value.decode("utf-8", "replace") not in (KNOWN_LAYOUT, f"{KNOWN_LAYOUT}\n"):
        found = " ".join(node.value.decode("utf-8", "replace").split())
        raise Unsupported(
            f"{_LAYOUT}: expected version 2 and HierarchicalLedgerManagerFactory:1, found {found!r}",
            hint="metadata of another layout is not made again: bring back ZooKeeper's files, or ask its makers",
            path=_LAYOUT,
        )


# -- the level --------------------------------------------------------------------------------------------------------


class Condition(Struct, frozen=True):
    """What is there of a store's metadata: how many ledgers it lists, which are too young for it to know, and topics that ledgers name
    and that have no node, nor has any other of their namespace. ``leftovers``: topics without a node beside others, as a deletion that was
    stopped leaves their ledgers. ``headless``: topics of which subscriptions alone are listed. ``unsure``: ledgers
    above all that it lists, where nobody knows which ids it gave."""

    listed: int
    younger: tuple[int, ...]
    unsure: int
    lost_topics: tuple[TopicName, ...]
    lost_schemas: tuple[TopicName, ...]
    namespaces_without_policies: tuple[str, ...]
    leftovers: tuple[TopicName, ...] = ()
    headless: tuple[TopicName, ...] = ()

    @property
    def level(self) -> str | None:
        """A: ledgers are listed, what names them is gone. B: ledgers are listed, younger ones are not. C: none is listed. None: whole."""
        if not self.listed:
            return "C"
        if self.lost_topics or self.lost_schemas or self.namespaces_without_policies:
            return "A"
        return "B" if self.younger else None


def read_condition(txn: Txn, survey: Survey) -> Condition:
    """Return what is there of the store's metadata."""
    listed = sorted_ledger_ids(txn)
    newest = newest_known(txn)
    own = find_own_ledgers(txn)
    ours = range(0) if own is None else range(own.first_id, own.next_id)
    unlisted = UnlistedLedgers(txn)
    above = tuple(one for one in iter_indexed_ids(txn) if one > newest and one not in ours and unlisted.is_absent(one))
    is_known = not isinstance(unlisted.next_ledger_id, Unknown)
    topics = {name for name in survey.data if find_node(txn, name.path) is None}
    alive = {
        one for one in {name.namespace for name in topics} if next(iter_children(txn, one.managed_ledgers_path), None)
    }
    leftovers = {name for name in topics if name.namespace in alive}
    topics -= leftovers
    bases = {name.base for name in survey.data.keys() - leftovers}
    schemas = tuple(one for one in survey.schemas if one in bases and find_node(txn, one.schema_path) is None)
    spaces = {name.namespace for name in survey.data.keys() - leftovers if not name.namespace.cluster}
    bare = sorted(str(one) for one in spaces if find_node(txn, one.policies_path) is None)
    return Condition(
        len(listed),
        above if is_known else (),
        0 if is_known else len(above),
        tuple(sorted(topics)),
        schemas,
        tuple(bare),
        tuple(sorted(leftovers)),
        tuple(one for one in iter_topics(txn) if one not in survey.data and find_node(txn, one.path) is None),
    )


def newest_known(txn: Txn) -> int:
    """Return the largest ledger id that the metadata gave; where it does not say, the largest that it lists, -1 without any."""
    next_id = UnlistedLedgers(txn).next_ledger_id
    listed = sorted_ledger_ids(txn)
    newest = listed[-1] if len(listed) else -1
    return newest if isinstance(next_id, Unknown) else next_id - 1
