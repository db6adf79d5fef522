"""Groups of ledgers that belong to one topic, judged by their entries: two witnesses must agree, or ledgers stay apart.

Cursor ledgers, compacted ledgers and delayed buckets hold positions of a single topic, so they say which ledgers belong together. Besides,
a producer continues in the next ledger with the next sequence id. A producer's name or the broker's index alone would join wrongly:
applications use one name on several topics, partitions of one producer share its name, and indexes of different topics coincide. The
order within a topic is that of ledger ids (``ManagedLedgerImpl``, Pulsar 4.0.8).

Names of topics are found in ``TransactionMetadataEntry`` (topics and subscriptions of a transaction), ``TransactionBufferSnapshot`` (a
topic and one of its positions), ``PulsarEvent`` (topics of the namespace whose ``__change_events`` has it) and ``SchemaInfo`` (its own).
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from itertools import islice, pairwise
from operator import itemgetter
from typing import Any

from msgspec import Struct, field

from pulsar_admin.store.codec.avro import avro_decoder
from pulsar_admin.store.codec.policyevent import GLOBAL_PREFIX, AvroSchema, builtin_schema, decode_policy_event
from pulsar_admin.store.codec.schema import SchemaEntry
from pulsar_admin.store.codec.value import DECODE_ERRORS
from pulsar_admin.store.errors import StoreError
from pulsar_admin.store.model.ledgers import iter_entry_ids
from pulsar_admin.store.model.messages import Message, MessageReader, ReadOptions
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.transactions import log_topic
from pulsar_admin.store.names import EVENTS, NamespaceName, Position, TopicName, parse_topic
from pulsar_admin.store.recovery.evidence import (
    BUCKET,
    COMPACTED,
    CURSOR,
    MESSAGES,
    PENDING_ACKS,
    SCHEMA,
    TRANSACTIONS,
    LedgerEvidence,
    Producer,
    ProducerRun,
    is_topic_key,
    iter_schema_entries,
)
from pulsar_admin.store.wording import counted

CLOCK_SKEW_MS = 5_000
"""The most by which the clocks of two brokers may differ; a broker time that goes back further is another topic's."""

_GIVEN = re.compile(r"(.+)-\d+-\d+")  # ``DistributedIdGenerator``: cluster, instance, counter
_DATA = (MESSAGES, TRANSACTIONS, PENDING_ACKS)
_POINTERS = (CURSOR, COMPACTED, BUCKET)
_RIVALS_MAX = 1_000
"""Pairs of ledgers that one number of a producer may follow in, up to which all are told. Of more none joins anything, but where one ledger
alone follows: the next one stands for them."""
_STEADY_PRODUCERS = 2  # needed to join ledgers on no other evidence: one that continues may be chance


ONE_WITNESS = "one witness only"
"""The reason why ledgers stay apart that an operator may join."""


class Join(Struct, frozen=True):
    """Two ledgers that belong to one topic, with the evidence; or, with a reason in ``refused``, two that stay apart."""

    ledger_id: int
    next_id: int
    witnesses: tuple[str, ...]
    refused: str = ""


class LedgerGroup(Struct, frozen=True):
    """Ledgers of one topic in their order. ``topic``: its name in the metadata, "" if unknown.

    ``beside``: cursor ledgers, compacted ledgers and buckets with positions in the group, by id.
    """

    kind: str
    ledger_ids: tuple[int, ...]
    topic: str = ""
    beside: tuple[int, ...] = ()


class Chains(Struct, frozen=True):
    """The groups by their first ledger, and what joined them. ``refused``: joins that one witness or a contradiction forbids."""

    groups: tuple[LedgerGroup, ...]
    joins: tuple[Join, ...]
    refused: tuple[Join, ...]

    def probable(self) -> dict[int, list[int]]:
        """Return group → groups that one witness alone would join to it, each by its first ledger."""
        first = {ledger: group.ledger_ids[0] for group in self.groups for ledger in group.ledger_ids}
        neighbours: dict[int, set[int]] = defaultdict(set)
        for join in self.refused:
            one, other = first[join.ledger_id], first[join.next_id]
            if join.refused == ONE_WITNESS and one != other:
                neighbours[one].add(other)
                neighbours[other].add(one)
        return {ledger: sorted(others) for ledger, others in neighbours.items()}


def find_chains(
    evidence: Iterable[LedgerEvidence],
    known: Mapping[int, str] | None = None,
    cluster: str = "",
    *,
    probable: bool = False,
) -> Chains:
    """Return groups of ledgers, each of one topic.

    ``known``: ledgers whose topic the metadata names. ``cluster``: the cluster's name, with which its brokers begin
    producers' names; "" for brokers' default names. ``probable``: one witness is enough.
    """
    by_ledger = {one.ledger_id: one for one in evidence}
    topics = dict(known or {})
    work = _LedgerSets(by_ledger, topics, probable)
    # What the metadata says is certain, so it comes before any witness, which it may contradict.
    for topic in dict.fromkeys(topics.values()):
        mine = sorted(ledger for ledger, name in topics.items() if name == topic and ledger in by_ledger)
        for pair in pairwise(mine):
            work.unite_known(*pair)
    pointers: list[LedgerEvidence] = []
    for one in by_ledger.values():
        if one.kind in _POINTERS:
            pointers.append(one)
            work.join_pointed(one)
    work.join_coordinators()
    names = cluster or likely_cluster(by_ledger.values())
    for join, refused in _links(by_ledger, names):
        work.join(join, refused)
    work.join_pending_acks()  # last: the logs belong together if the ledgers they point to do
    groups = tuple(_groups(work, pointers))
    return Chains(groups, tuple(work.joins), tuple(work.refused))


def _groups(work: _LedgerSets, pointers: Iterable[LedgerEvidence]) -> Iterator[LedgerGroup]:
    members: dict[int, list[int]] = defaultdict(list)
    for ledger_id in sorted(one.ledger_id for one in work.found.values() if one.kind in _DATA):
        members[work.root(ledger_id)].append(ledger_id)
    beside: dict[int, list[int]] = defaultdict(list)
    for one in pointers:
        roots = {work.root(ledger) for ledger in one.points if ledger in work.found}
        # A ledger with positions in two groups proves nothing, and goes to neither.
        if len(roots) == 1:
            beside[roots.pop()].append(one.ledger_id)
    for root, ledgers in members.items():
        topic = next((work.topics[one] for one in ledgers if one in work.topics), "")
        yield LedgerGroup(work.found[ledgers[0]].kind, tuple(ledgers), topic, tuple(sorted(beside[root])))


class _LedgerSet(Struct):
    """Ledgers of one topic by id; those with a broker's index, and with broker times; their kinds, and their names in
    the metadata.

    ``contradiction``: how ledgers that the metadata lists together contradict each other, "" if they do not.
    """

    ledgers: list[int]
    indexed: list[int]
    timed: list[int]
    kinds: set[str]
    names: set[str]
    contradiction: str = ""

    def take(self, other: _LedgerSet) -> None:
        """Add the ledgers of another set."""
        self.ledgers = _merged(self.ledgers, other.ledgers)
        self.indexed = _merged(self.indexed, other.indexed)
        self.timed = _merged(self.timed, other.timed)
        self.kinds |= other.kinds
        self.names |= other.names
        self.contradiction = self.contradiction or other.contradiction


def _merged(a: list[int], b: list[int]) -> list[int]:
    """Return two ascending lists merged; ``a`` is extended if ``b`` comes after it, as ledgers of a topic mostly do."""
    if not a or not b or a[-1] < b[0]:
        a += b
        return a
    return sorted(a + b)


def _meeting(a: list[int], b: list[int]) -> Iterable[tuple[int, int]]:
    """Return neighbours in two ascending lists merged, at least those whose members come from different lists."""
    if a and b and (a[-1] < b[0] or b[-1] < a[0]):
        return [(a[-1], b[0]) if a[-1] < b[0] else (b[-1], a[0])]
    return pairwise(sorted(a + b)) if a and b else ()


class _LedgerSets(Struct):
    """Sets of ledgers of one topic, merged pair by pair unless something contradicts."""

    found: dict[int, LedgerEvidence]
    topics: dict[int, str]
    probable: bool
    joins: list[Join] = field(default_factory=list)
    refused: list[Join] = field(default_factory=list)
    _parent: dict[int, int] = field(default_factory=dict)
    _sets: dict[int, _LedgerSet] = field(default_factory=dict)

    def root(self, ledger_id: int) -> int:
        """Return the ledger that represents the set of this ledger."""
        while (up := self._parent.get(ledger_id, ledger_id)) != ledger_id:
            self._parent[ledger_id] = self._parent.get(up, up)
            ledger_id = up
        return ledger_id

    def unite(self, a: int, b: int, contradiction: str = "") -> None:
        """Merge the sets of two ledgers, recording a ``contradiction`` between them."""
        a, b = self.root(a), self.root(b)
        if a != b:
            # The smaller set joins the larger, so that each ledger moves few times.
            low, high = (a, b) if len(self._of(a).ledgers) < len(self._of(b).ledgers) else (b, a)
            self._of(high).take(self._of(low))
            self._of(high).contradiction = self._of(high).contradiction or contradiction
            self._parent[low] = high
            del self._sets[low]

    def unite_known(self, a: int, b: int) -> None:
        """Merge the sets of two ledgers that the metadata lists together."""
        self.unite(a, b, self._contradiction(self._of(self.root(a)), self._of(self.root(b))))

    def _of(self, root: int) -> _LedgerSet:
        if root not in self._sets:
            one = self.found.get(root)
            indexed = [root] if one is not None and one.index is not None else []
            timed = [root] if one is not None and one.broker_ms is not None else []
            names = {self.topics[root]} if root in self.topics else set()
            self._sets[root] = _LedgerSet([root], indexed, timed, {one.kind} if one is not None else set(), names)
        return self._sets[root]

    def join(self, join: Join, refused: str = "") -> None:
        """Merge the sets of two ledgers, unless the join is refused or the sets contradict each other."""
        refused = "" if self.probable and refused == ONE_WITNESS else refused
        a, b = self.root(join.ledger_id), self.root(join.next_id)
        if a == b:
            if not refused:
                self.joins.append(join)
            return
        refused = refused or self._contradiction(self._of(a), self._of(b))
        if refused:
            self.refused.append(Join(join.ledger_id, join.next_id, join.witnesses, refused))
            return
        self.unite(a, b)
        self.joins.append(join)

    def join_pointed(self, one: LedgerEvidence) -> None:
        """Join the ledgers in which the positions in a cursor ledger, a compacted ledger or a bucket lie."""
        joined = []
        for ledger, (low, high) in sorted(one.points.items()):
            pointed = self.found.get(ledger)
            if pointed is not None and pointed.kind in _DATA and low >= -1 and high <= pointed.last_entry:
                joined.append(ledger)
        # A topic's ledgers are of one kind, so some of these positions mislead.
        if len({self.found[ledger].kind for ledger in joined}) > 1:
            return
        for a, b in pairwise(joined):
            witnesses = [
                f"{one.kind} ledger {one.ledger_id} names {_span(ledger, one.points[ledger])}" for ledger in (a, b)
            ]
            self.join(Join(a, b, tuple(witnesses)))

    def join_coordinators(self) -> None:
        """Join the logs of one transaction coordinator, also by a transaction that continues from one log in the next."""
        of: dict[int, list[LedgerEvidence]] = defaultdict(list)
        for one in self.found.values():
            coordinators = {most for most, _ in one.txns} if one.kind == TRANSACTIONS else set()
            if len(coordinators) == 1:
                of[coordinators.pop()].append(one)
        for coordinator, logs in of.items():
            for a, b in pairwise(sorted(logs, key=lambda log: log.ledger_id)):
                last, first = max(a.txns), min(b.txns)
                shared = a.txns.keys() & b.txns.keys()
                second = f"transaction {max(shared)} is in both" if shared else f"transaction {first} follows {last}"
                follows = bool(shared) or first[1] == last[1] + 1
                witnesses = (f"both are the log of coordinator {coordinator}", *([second] if follows else []))
                self.join(Join(a.ledger_id, b.ledger_id, witnesses), "" if follows else ONE_WITNESS)

    def join_pending_acks(self) -> None:
        """Join logs of pending acknowledgements whose transactions, by the coordinators' records, concern only one
        subscription."""
        of: dict[tuple[int, str], list[LedgerEvidence]] = defaultdict(list)
        coordinators = [one for one in self.found.values() if one.kind == TRANSACTIONS]
        for one in self.found.values():
            if one.kind == PENDING_ACKS:
                subscriptions = find_subscriptions(one, coordinators)
                roots = {self.root(ledger) for ledger in one.points if ledger in self.found}
                if len(subscriptions) == 1 and len(roots) == 1:
                    of[roots.pop(), subscriptions[0]].append(one)
        for (_, subscription), logs in of.items():
            name = subscription.replace("\0", " ")
            for a, b in pairwise(sorted(logs, key=lambda log: log.ledger_id)):
                witnesses = (f"their transactions acknowledge on {name} alone", "they name positions of one topic")
                self.join(Join(a.ledger_id, b.ledger_id, witnesses))

    def _contradiction(self, a: _LedgerSet, b: _LedgerSet) -> str:
        """Return why two sets cannot belong to one topic, "" if nothing contradicts."""
        if len(a.names | b.names) > 1:
            return "the metadata names them " + " and ".join(sorted(a.names | b.names))
        if len(a.kinds | b.kinds) > 1:
            return "their contents differ in kind"
        for before, after in _meeting(a.indexed, b.indexed):
            earlier, later = self.found[before].index, self.found[after].index
            if earlier is not None and later is not None and later[1] <= earlier[2]:
                return f"the broker's index goes back from ledger {before} to {after}"
        for before, after in _meeting(a.timed, b.timed):
            first, second = self.found[before].broker_ms, self.found[after].broker_ms
            if first is not None and second is not None and second[0] < first[1] - CLOCK_SKEW_MS:
                return f"the broker's time goes back from ledger {before} to {after}"
        return a.contradiction or b.contradiction


def find_subscriptions(acks: LedgerEvidence, evidence: Iterable[LedgerEvidence]) -> list[str]:
    """Return the subscriptions, as ``topic\\0subscription``, that all transactions in a log of acknowledgements may
    concern."""
    candidates: list[frozenset[str]] = []
    for log in evidence:
        if log.kind == TRANSACTIONS:
            shared = (log.txns[txn] for txn in acks.txns if txn in log.txns)
            candidates += [names for texts in shared if (names := frozenset(text for text in texts if "\0" in text))]
    return sorted(frozenset.intersection(*candidates)) if candidates else []


def _span(ledger_id: int, bounds: tuple[int, int]) -> str:
    low, high = bounds
    return f"{ledger_id}:{low}" if low == high else f"{ledger_id}:{low} to {ledger_id}:{high}"


# -- producers --------------------------------------------------------------------------------------------------------


def likely_cluster(evidence: Iterable[LedgerEvidence]) -> str:
    """Return the cluster with which most producers' names begin that brokers generated, "" without such names."""
    counts: Counter[str] = Counter()
    for one in evidence:
        for producer in one.producers:
            match = None if producer.replicated_from else _GIVEN.fullmatch(producer.name)
            if match is not None:
                counts[match[1]] += 1
    return counts.most_common(1)[0][0] if counts else ""


class _KnownProducers(Struct, frozen=True):
    """How far producers' sequence ids prove that ledgers belong together. ``jumping``: producers that skip ids.

    ``shared``: their ranges of ids, or of times, in two ledgers overlap. ``twins``: they end two ledgers with the same
    id at the same index, as in partitions with equally many messages.
    """

    shared: frozenset[Producer]
    twins: frozenset[Producer]
    jumping: frozenset[Producer]
    cluster: str

    def is_given(self, producer: Producer) -> bool:
        """Whether a broker generated the producer's name, so that no other producer has it."""
        match = _GIVEN.fullmatch(producer.name)
        return match is not None and match[1] == (producer.replicated_from or self.cluster)

    def is_good(self, producer: Producer) -> bool:
        """Whether the producer's next sequence id proves that a ledger follows another."""
        return producer not in self.shared and producer not in self.jumping


def _links(by_ledger: Mapping[int, LedgerEvidence], cluster: str) -> Iterator[tuple[Join, str]]:
    """Yield pairs of ledgers between which a producer continues, most witnesses first, with the reason of a refusal, or
    ""."""
    runs: dict[Producer, list[tuple[ProducerRun, int]]] = defaultdict(list)
    for one in by_ledger.values():
        if one.kind == MESSAGES:
            for producer, run in one.producers.items():
                runs[producer].append((run, one.ledger_id))
    names = _KnownProducers(
        frozenset(_shared(runs)),
        frozenset(_twins(by_ledger, runs)),
        frozenset(p for p, mine in runs.items() if any(r.jumps for r, _ in mine)),
        cluster,
    )
    pairs: dict[tuple[int, int], None] = {}
    rivals: dict[tuple[Producer, int, bool], int] = {}
    for producer, mine in runs.items():
        ends, starts = defaultdict[int, list[int]](list), defaultdict[int, list[int]](list)
        for run, ledger_id in sorted(mine, key=itemgetter(1)):
            ends[run.last + 1].append(ledger_id)
            starts[run.first].append(ledger_id)
        # The producer's next message is in a later ledger.
        for number in ends.keys() & starts.keys():
            befores, afters = ends[number], starts[number]
            rivals |= {(producer, before, False): len(afters) - bisect_right(afters, before) for before in befores}
            rivals |= {(producer, after, True): bisect_left(befores, after) for after in afters}
            most = len(afters) if len(befores) * len(afters) <= _RIVALS_MAX else 1
            for before in befores:
                at = bisect_right(afters, before)
                pairs |= dict.fromkeys((before, after) for after in afters[at : at + most])
    order = {producer: number for number, producer in enumerate(runs)}
    nearby = _nearby(by_ledger)
    judged = []
    for before, after in pairs:
        a, b = by_ledger[before], by_ledger[after]
        shared = sorted(a.producers.keys() & b.producers.keys(), key=order.__getitem__)
        going_on = [name for name in shared if b.producers[name].first == a.producers[name].last + 1]
        join, refused = _judge(a, b, going_on, names, rivals)
        said = nearby.pop((before, after), "")
        if refused and said:
            join, refused = Join(before, after, (*join.witnesses, said)), ONE_WITNESS
        judged.append((join, refused))
    judged += [(Join(*pair, (said,)), ONE_WITNESS) for pair, said in nearby.items()]
    yield from sorted(
        judged, key=lambda pair: (bool(pair[1]), -len(pair[0].witnesses), pair[0].ledger_id, pair[0].next_id)
    )


def _nearby(by_ledger: Mapping[int, LedgerEvidence]) -> dict[tuple[int, int], str]:
    """Return pairs of ledgers that the broker's index makes neighbours, with the evidence: a person may know whether they belong together.

    The index continues from one ledger to the other, and no other ledger ends or begins there, or none of this producer is nearer in time.
    Other topics have the same numbers, so this alone never joins ledgers.
    """
    ends: dict[tuple[int, Producer | None], list[tuple[int, int]]] = defaultdict(list)
    starts: dict[tuple[int, Producer | None], list[tuple[int, int]]] = defaultdict(list)
    for one in by_ledger.values():
        if one.kind == MESSAGES and one.index is not None and one.broker_ms is not None:
            for producer in (None, *one.producers):
                ends[one.index[2], producer].append((one.broker_ms[1], one.ledger_id))
                if one.index[0] >= 0:
                    starts[one.index[0], producer].append((one.broker_ms[0], one.ledger_id))
    joins: dict[tuple[int, int], str] = {}
    for key in ends:  # in the same order in every process: applying makes the plan again and compares
        befores, afters = sorted(ends[key]), sorted(starts.get(key, ()))
        index, producer = key
        for end_ms, before in befores:
            at = bisect_left(afters, (end_ms, -1))
            if at < len(afters):
                start_ms, after = afters[at]
                nearest = befores[bisect_right(befores, (start_ms, after)) - 1][1]
                is_told = producer is not None or len(befores) == len(afters) == 1
                if before < after and nearest == before and is_told:
                    more = "" if producer is None else f", and of producer {producer} no other ledger is nearer in time"
                    joins.setdefault((before, after), f"the broker's index continues after {index}{more}")
    return joins


def _shared(runs: Mapping[Producer, list[tuple[ProducerRun, int]]]) -> Iterator[Producer]:
    """Yield the producers whose ranges of sequence ids, or of publish times, in two ledgers overlap.

    The ledgers are of different topics, or the producer began again: a topic has one open ledger
    (``ManagedLedgerImpl``, Pulsar 4.0.8).
    """
    for producer, mine in runs.items():
        numbers = sorted((run.low, run.high) for run, _ in mine)
        times = sorted((run.first_publish_ms, run.last_publish_ms) for run, _ in mine)
        if any(after[0] <= before[1] for before, after in pairwise(numbers)) or any(
            after[0] < before[1] for before, after in pairwise(times)
        ):
            yield producer


def _twins(
    by_ledger: Mapping[int, LedgerEvidence], runs: Mapping[Producer, list[tuple[ProducerRun, int]]]
) -> Iterator[Producer]:
    """Yield the producers whose last sequence ids, and indexes, are equal in two ledgers."""
    for producer, mine in runs.items():
        ends = Counter((run.last, index[2]) for run, ledger in mine if (index := by_ledger[ledger].index) is not None)
        if any(count > 1 for count in ends.values()):
            yield producer


def _judge(
    a: LedgerEvidence,
    b: LedgerEvidence,
    producers: list[Producer],
    names: _KnownProducers,
    rivals: Mapping[tuple[Producer, int, bool], int],
) -> tuple[Join, str]:
    """Return the join of two ledgers between which these producers continue, with a reason if it is refused."""
    good = [one for one in producers if names.is_good(one)]
    said = [f"producer {one} continues from {a.producers[one].last} to {b.producers[one].first}" for one in producers]
    unique = [one for one in producers if rivals[one, a.ledger_id, False] == 1 and rivals[one, b.ledger_id, True] == 1]
    steady = [one for one in unique if one not in names.jumping]
    index = False
    if a.index is not None and b.index is not None and a.index[2] in (b.index[0], b.index[1] - 1):
        # Where a producer was alone on its topic, its numbers are the index: another topic has the same, so they prove nothing more.
        index = any(a.producers[one].last != a.index[2] for one in steady if one not in names.twins)
        said += [f"the broker's index continues after {a.index[2]}"] if index else []
    given = [one for one in good if names.is_given(one)]
    if given:
        said.append(f"a broker assigned the name {given[0]}, and its numbers are in no other ledger")
    back = [one for one in producers if b.producers[one].first_publish_ms < a.producers[one].last_publish_ms]
    refused = f"the clock of producer {back[0]} goes back" if back else ""
    if not refused and not unique:
        refused = "more than one ledger continues these numbers"
    if not refused and not (index or len(steady) >= _STEADY_PRODUCERS or given):
        refused = ONE_WITNESS if good else "the producer's numbers occur in several ledgers"
    return Join(a.ledger_id, b.ledger_id, tuple(said)), refused


# -- names of groups --------------------------------------------------------------------------------------------------


SNAPSHOTS = "__transaction_buffer_snapshot"
_PERSISTENT = "persistent://"
_EVENTS_LIMIT = 10_000
_VALUES = 20
"""How many messages of a group are tested against a schema."""


LOST_AND_FOUND = NamespaceName("lost-and-found", "ledgers")
"""The namespace of topics whose name is unknown."""


class GroupName(Struct, frozen=True):
    """The name of a group of ledgers, and the evidence for it."""

    topic: TopicName
    witnesses: tuple[str, ...]


def name_of(group: LedgerGroup, names: Mapping[LedgerGroup, GroupName], taken: Container[TopicName] = ()) -> TopicName:
    """Return the name of a group of ledgers: the known one, otherwise that of its entries unless it is taken, or a generated one."""
    if group.topic:
        return parse_topic(group.topic)
    naming = names.get(group)
    if naming is not None and naming.topic not in taken:
        return naming.topic
    return generated_name(group.ledger_ids[0])


def generated_name(ledger_id: int) -> TopicName:
    """Return the generated name of a nameless topic that begins with this ledger."""
    return TopicName(LOST_AND_FOUND, f"from-{ledger_id}")


class _NamesSaid(Struct):
    """Names that witnesses give to groups; if a group has two names, or a name two groups, they do not count."""

    by_ledger: Mapping[int, LedgerGroup]
    said: dict[LedgerGroup, dict[TopicName, list[str]]]

    def say(self, group: LedgerGroup, topic: str, witness: str) -> None:
        try:
            name = parse_topic(topic)
        except StoreError:
            return
        self.said.setdefault(group, {}).setdefault(name, []).append(witness)

    def taken(self) -> dict[LedgerGroup, GroupName]:
        """Return the groups whose name two witnesses confirm and nobody contradicts."""
        one = {group: next(iter(names.items())) for group, names in self.said.items() if len(names) == 1}
        count: dict[TopicName, int] = defaultdict(int)
        for name, _ in one.values():
            count[name] += 1
        return {
            group: GroupName(name, tuple(dict.fromkeys(said)))
            for group, (name, said) in one.items()
            if count[name] == 1 and len(dict.fromkeys(said)) > 1
        }


def find_names(reader: EntryReader, evidence: Iterable[LedgerEvidence], chains: Chains) -> dict[LedgerGroup, GroupName]:
    """Return the names of those groups of ledgers whose entries name their topic."""
    by_ledger = {one.ledger_id: one for one in evidence}
    names = _NamesSaid({ledger: group for group in chains.groups for ledger in group.ledger_ids}, {})
    for group in chains.groups:
        if group.kind == TRANSACTIONS:
            coordinators = {most for ledger in group.ledger_ids for most, _ in by_ledger[ledger].txns}
            count = sum(len(by_ledger[ledger].txns) for ledger in group.ledger_ids)
            for coordinator in coordinators if len(coordinators) == 1 else ():
                name = str(log_topic(coordinator))
                names.say(group, name, "its entries are steps of transactions")
                names.say(group, name, f"{counted(count, 'transaction')} are of coordinator {coordinator}")
    _name_by_transactions(names, by_ledger, chains)
    _name_pending_acks(names, by_ledger, chains)
    entries = iter_schema_entries(reader, [one.ledger_id for one in by_ledger.values() if one.kind == SCHEMA])
    schemas = [_Schema(f"{_PERSISTENT}{entry.schema_id}", entry) for _, entry in entries if not entry.deleted]
    for group in chains.groups:
        # The broker's own clients send with a schema, whose version another storage of schemas may number otherwise, and without batches.
        if group.kind == MESSAGES and any(
            by_ledger[one].schema_version >= 0 or by_ledger[one].is_keyed for one in group.ledger_ids
        ):
            _name_by_keys(names, group, _Sample(reader, group), schemas)
    _name_by_schema(names, reader, chains, by_ledger, schemas)
    return names.taken()


# -- transactions -----------------------------------------------------------------------------------------------------


def _name_by_transactions(names: _NamesSaid, by_ledger: Mapping[int, LedgerEvidence], chains: Chains) -> None:
    """Name groups by the one topic that coordinators say all of their transactions wrote to."""
    said: dict[tuple[int, int], set[str]] = defaultdict(set)
    for one in by_ledger.values():
        for txn, texts in one.txns.items() if one.kind == TRANSACTIONS else ():
            said[txn].update(texts)
    for group in chains.groups:
        if group.kind != MESSAGES:
            continue
        known = [
            (txn, topics)
            for ledger in group.ledger_ids
            for txn in by_ledger[ledger].txns
            if (topics := frozenset(text for text in said.get(txn, ()) if "\0" not in text))
        ]
        common = frozenset.intersection(*(topics for _, topics in known)) if known else frozenset()
        for topic in common if len(common) == 1 else ():
            for txn, _ in known[:2]:
                names.say(group, topic, f"transaction {txn} wrote to it, and is in these ledgers")


def _name_pending_acks(names: _NamesSaid, by_ledger: Mapping[int, LedgerEvidence], chains: Chains) -> None:
    logs = [one for one in by_ledger.values() if one.kind == TRANSACTIONS]
    for group in chains.groups:
        if group.kind != PENDING_ACKS:
            continue
        common = [frozenset(find_subscriptions(by_ledger[ledger], logs)) for ledger in group.ledger_ids]
        both = frozenset.intersection(*common)
        targets = {names.by_ledger.get(point) for ledger in group.ledger_ids for point in by_ledger[ledger].points}
        if len(both) != 1 or len(targets) != 1:
            continue
        topic, _, subscription = next(iter(both)).partition("\0")
        target = targets.pop()
        try:
            own = str(parse_topic(topic).pending_ack(subscription))
        except StoreError:
            continue
        names.say(group, own, f"its transactions acknowledge only on {subscription} of {topic}")
        if target is not None:
            names.say(group, own, f"it names positions of ledger {target.ledger_ids[0]} and those that follow")
            names.say(target, topic, f"transactions acknowledge on {subscription} of {topic}")
            names.say(target, topic, f"ledger {group.ledger_ids[0]} of their acknowledgements names positions in it")


# -- messages ---------------------------------------------------------------------------------------------------------


class _Schema(Struct, frozen=True):
    topic: str
    entry: SchemaEntry


class _Sample(Struct, frozen=True):
    """Reads the first messages of a group."""

    reader: EntryReader
    group: LedgerGroup

    def messages(self, limit: int) -> Iterator[Message]:
        positions = (
            Position(ledger, entry)
            for ledger in self.group.ledger_ids
            for entry in iter_entry_ids(self.reader.txn, ledger)
        )
        reader = MessageReader(self.reader, ReadOptions(committed=False, whole=False))
        return islice(reader.iter_messages(islice(positions, limit)), limit)


def _name_by_keys(names: _NamesSaid, group: LedgerGroup, sample: _Sample, schemas: list[_Schema]) -> None:
    """Name topics of the broker's own, whose keys are names of topics: policies, and snapshots of transaction buffers."""
    first = next(sample.messages(_VALUES), None)
    key = "" if first is None or first.encrypted else (first.key or "")
    if not is_topic_key(key):
        return
    namespaces: set[NamespaceName] = set()
    kinds: set[str] = set()
    snapshot = next((one.entry.definition for one in schemas if one.topic.endswith("/" + SNAPSHOTS)), None)
    for message in sample.messages(_EVENTS_LIMIT):
        kind, topic = _read_own(message, snapshot)
        if topic is None:
            return
        kinds |= {kind} - {""}
        namespaces.add(topic.topic.namespace)
        if topic.position is not None and topic.position.ledger_id in names.by_ledger:
            target = names.by_ledger[topic.position.ledger_id]
            names.say(target, str(topic.topic), f"snapshot {message.position} of its transaction buffer has its name")
            names.say(target, str(topic.topic), f"snapshot {message.position} names position {topic.position} in it")
    # A broker's own log is of one namespace and has one kind of value; anything else is an application's topic.
    if len(namespaces) == 1 and len(kinds) == 1:
        name = str(TopicName(namespaces.pop(), kinds.pop()))
        names.say(group, name, "its keys are names of topics of the namespace")
        names.say(group, name, "its values say the same names")


class _Own(Struct, frozen=True):
    topic: TopicName
    position: Position | None = None


def _read_own(message: Message, snapshot: bytes | None) -> tuple[str, _Own | None]:
    """Return (the topic of a broker's own message, the object that it names); None if key and value disagree."""
    try:
        topic = parse_topic((message.key or "").removeprefix(GLOBAL_PREFIX))
        if message.null_value or not len(message.payload):
            return "", _Own(topic)  # deleted: either may be
        if snapshot is not None:
            record = avro_decoder(snapshot)(bytes(message.payload))
            if isinstance(record, dict) and record.get("topicName") == message.key:
                at = Position(int(record["maxReadPositionLedgerId"]), int(record["maxReadPositionEntryId"]))
                return SNAPSHOTS, _Own(topic, at)
    except (*DECODE_ERRORS, StoreError, KeyError, TypeError):
        pass
    try:
        event = decode_policy_event(message.payload, AvroSchema(builtin_schema()), "event")
        topic = parse_topic((message.key or "").removeprefix(GLOBAL_PREFIX))
    except StoreError:
        return "", None
    return EVENTS, _Own(topic) if event is not None and event.topic.base == topic.base else None


def _name_by_schema(
    names: _NamesSaid,
    reader: EntryReader,
    chains: Chains,
    by_ledger: Mapping[int, LedgerEvidence],
    schemas: list[_Schema],
) -> None:
    """Name groups by the one schema that their values fit, where no other group fits it."""
    # System topics have the same schema in every namespace: it cannot name one of them.
    own = [one for one in schemas if not one.topic.endswith(("/" + EVENTS, "/" + SNAPSHOTS))]
    decoders = {one.topic: made for one in own if (made := _decoder_of(one.entry)) is not None}
    fits: dict[LedgerGroup, set[str]] = {}
    for group in chains.groups:
        if group.kind != MESSAGES or all(by_ledger[ledger].schema_version < 0 for ledger in group.ledger_ids):
            continue
        values = [bytes(one.payload) for one in _Sample(reader, group).messages(_VALUES) if not one.encrypted]
        fits[group] = {topic for topic, fit in decoders.items() if values and all(fit(value) for value in values)}
    for group, topics in fits.items():
        for topic in topics if len(topics) == 1 else ():
            if sum(topic in others for others in fits.values()) == 1:
                names.say(group, topic, "its values fit the schema of this topic and no other one")
                names.say(group, topic, "no other ledgers have values of this schema")


def _decoder_of(entry: SchemaEntry) -> Callable[[bytes], bool] | None:
    """Return a function that tests whether a value fits the schema; None for kinds of schema that nearly every value fits."""
    import json

    if entry.type_name == "AVRO":
        try:
            decode = avro_decoder(entry.definition)
        except (*DECODE_ERRORS, StoreError):
            return None
        return lambda value: _decodes(decode, value)
    if entry.type_name == "JSON":
        try:
            fields = {field["name"] for field in json.loads(entry.definition)["fields"]}
        except (ValueError, KeyError, TypeError, RecursionError):
            return None
        return lambda value: _has_fields(value, fields)
    return None


def _decodes(decode: Callable[[bytes], Any], value: bytes) -> bool:  # Any: by the schema
    try:
        decode(value)
    except (*DECODE_ERRORS, StoreError):
        return False
    return True


def _has_fields(value: bytes, fields: set[str]) -> bool:
    import json

    try:
        record = json.loads(value)
    except (ValueError, RecursionError):
        return False
    return isinstance(record, dict) and bool(record) and set(record) <= fields
