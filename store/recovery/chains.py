"""Which ledgers are of one topic, by what their entries say: two witnesses or they stay apart, and every join with its evidence.

The broker names what belongs together in cursor ledgers, compacted ledgers and delayed buckets: positions of one topic alone. Beyond
that a producer goes on in the next ledger with the next sequence id; its name alone, or the broker's index alone, joins wrongly:
applications give one name on several topics, partitions of one producer share its name, indexes of topics coincide. Order within a
topic is that of ledger ids (``ManagedLedgerImpl``, Pulsar 4.0.8).
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import pairwise

from msgspec import Struct, field

from pulsar_admin.store.recovery.contents import BUCKET, COMPACTED, CURSOR, MESSAGES, PENDING_ACKS, TRANSACTIONS
from pulsar_admin.store.recovery.evidence import LedgerEvidence, Producer, Run

CLOCK_SKEW_MS = 5_000
"""What the clocks of two brokers may differ by: a broker time that goes back further is of another topic."""

_GIVEN = re.compile(r"(.+)-\d+-\d+")  # ``DistributedIdGenerator``: cluster, instance, counter
_DATA = (MESSAGES, TRANSACTIONS, PENDING_ACKS)
_POINTERS = (CURSOR, COMPACTED, BUCKET)
_TWO = 2


class Join(Struct, frozen=True):
    """Two ledgers that belong to one topic, or stay apart (``refused``: why), with what says so."""

    ledger_id: int
    next_id: int
    witnesses: tuple[str, ...]
    refused: str = ""


class Group(Struct, frozen=True):
    """Ledgers of one topic in their order. ``topic``: as ``known`` names it; "": unknown. ``beside``: pointers into it, by ledger id."""

    kind: str
    ledger_ids: tuple[int, ...]
    topic: str = ""
    beside: tuple[int, ...] = ()


class Chains(Struct, frozen=True):
    """The groups by their first ledger, and what joined them. ``refused``: joins that one witness or a contradiction forbids."""

    groups: tuple[Group, ...]
    joins: tuple[Join, ...]
    refused: tuple[Join, ...]


def find_chains(
    evidence: Iterable[LedgerEvidence], known: Mapping[int, str] | None = None, cluster: str = ""
) -> Chains:
    """Return the groups of ledgers of one topic each.

    KNOWN: ledgers whose topic the metadata names. CLUSTER: its name, with which its brokers begin producers' names; "": as most do.
    """
    found = {one.ledger_id: one for one in evidence}
    topics = dict(known or {})
    work = _Work(found, topics)
    for topic in dict.fromkeys(topics.values()):
        mine = sorted(ledger for ledger, name in topics.items() if name == topic and ledger in found)
        for pair in pairwise(mine):
            work.unite(*pair)
    pointers: list[LedgerEvidence] = []
    for one in found.values():
        if one.kind in _POINTERS:
            pointers.append(one)
            work.join_pointed(one)
    work.join_coordinators()
    names = cluster or likely_cluster(found.values())
    for join, refused in _links(found, names):
        work.join(join, refused)
    work.join_pending_acks()  # they are of one topic where what they name is
    groups = tuple(_groups(work, pointers))
    return Chains(groups, tuple(work.joins), tuple(work.refused))


def _groups(work: _Work, pointers: Iterable[LedgerEvidence]) -> Iterator[Group]:
    members: dict[int, list[int]] = defaultdict(list)
    for ledger_id in sorted(one.ledger_id for one in work.found.values() if one.kind in _DATA):
        members[work.root(ledger_id)].append(ledger_id)
    beside: dict[int, list[int]] = defaultdict(list)
    for one in pointers:
        roots = {work.root(ledger) for ledger in one.points if ledger in work.found}
        if len(roots) == 1:
            beside[roots.pop()].append(one.ledger_id)
    for root, ledgers in members.items():
        topic = next((work.topics[one] for one in ledgers if one in work.topics), "")
        yield Group(work.found[ledgers[0]].kind, tuple(ledgers), topic, tuple(sorted(beside[root])))


class _Work(Struct):
    """Sets of ledgers that grow together where nothing contradicts."""

    found: dict[int, LedgerEvidence]
    topics: dict[int, str]
    joins: list[Join] = field(default_factory=list)
    refused: list[Join] = field(default_factory=list)
    _parent: dict[int, int] = field(default_factory=dict)
    _members: dict[int, list[int]] = field(default_factory=dict)

    def root(self, ledger_id: int) -> int:
        """Return the ledger that stands for the set of LEDGER_ID."""
        while (up := self._parent.get(ledger_id, ledger_id)) != ledger_id:
            self._parent[ledger_id] = self._parent.get(up, up)
            ledger_id = up
        return ledger_id

    def unite(self, a: int, b: int) -> None:
        """Make the sets of two ledgers one."""
        a, b = self.root(a), self.root(b)
        if a != b:
            low, high = (a, b) if len(self.members(a)) < len(self.members(b)) else (b, a)
            self._members[high] = sorted(self.members(high) + self.members(low))
            self._parent[low] = high

    def members(self, root: int) -> list[int]:
        """Return the ledgers of the set that ROOT stands for, in order."""
        return self._members.get(root, [root])

    def join(self, join: Join, refused: str = "") -> None:
        """Unite the sets of a join, unless REFUSED or a contradiction says why not."""
        a, b = self.root(join.ledger_id), self.root(join.next_id)
        if a == b:
            if not refused:
                self.joins.append(join)
            return
        refused = refused or self._contradiction(self.members(a), self.members(b))
        if refused:
            self.refused.append(Join(join.ledger_id, join.next_id, join.witnesses, refused))
            return
        self.unite(a, b)
        self.joins.append(join)

    def join_pointed(self, one: LedgerEvidence) -> None:
        """Join the ledgers that a cursor ledger, a compacted ledger or a bucket names positions of."""
        there = [ledger for ledger in sorted(one.points) if self._fits(ledger, one.points[ledger])]
        if len({self.found[ledger].kind for ledger in there}) > 1:
            return
        for a, b in pairwise(there):
            said = [f"{one.kind} ledger {one.ledger_id} names {_span(ledger, one.points[ledger])}" for ledger in (a, b)]
            self.join(Join(a, b, tuple(said)))

    def _fits(self, ledger_id: int, bounds: tuple[int, int]) -> bool:
        """Whether these entries can be of the ledger."""
        one = self.found.get(ledger_id)
        return one is not None and one.kind in _DATA and bounds[0] >= -1 and bounds[1] <= one.last_entry

    def join_coordinators(self) -> None:
        """Join the logs of one transaction coordinator, which a transaction that goes on names as well."""
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
                said = (f"both are the log of coordinator {coordinator}", *([second] if follows else []))
                self.join(Join(a.ledger_id, b.ledger_id, said), "" if follows else "one witness only")

    def join_pending_acks(self) -> None:
        """Join the logs of pending acknowledgements that only one subscription can have, by what coordinators say of their transactions."""
        of: dict[tuple[int, str], list[LedgerEvidence]] = defaultdict(list)
        for one in self.found.values():
            if one.kind == PENDING_ACKS:
                said = find_subscriptions(one, self.found.values())
                roots = {self.root(ledger) for ledger in one.points if ledger in self.found}
                if len(said) == 1 and len(roots) == 1:
                    of[roots.pop(), said[0]].append(one)
        for (_, subscription), logs in of.items():
            name = subscription.replace("\0", " ")
            for a, b in pairwise(sorted(logs, key=lambda log: log.ledger_id)):
                witnesses = (f"their transactions acknowledge on {name} alone", "they name positions of one topic")
                self.join(Join(a.ledger_id, b.ledger_id, witnesses))

    def _contradiction(self, a: Collection[int], b: Collection[int]) -> str:
        """Return why two sets cannot be of one topic; "": nothing says so."""
        names = {self.topics[one] for one in (*a, *b) if one in self.topics}
        if len(names) > 1:
            return "the metadata names them " + " and ".join(sorted(names))
        together = [self.found[one] for one in sorted((*a, *b)) if one in self.found]
        if len({one.kind for one in together}) > 1:
            return "what they hold is unlike"
        index = [one for one in together if one.index is not None]
        for before, after in pairwise(index):
            if after.index is not None and before.index is not None and after.index[1] <= before.index[2]:
                return f"the broker's index goes back from ledger {before.ledger_id} to {after.ledger_id}"
        timed = [one for one in together if one.broker_ms is not None]
        for before, after in pairwise(timed):
            if after.broker_ms and before.broker_ms and after.broker_ms[0] < before.broker_ms[1] - CLOCK_SKEW_MS:
                return f"the broker's time goes back from ledger {before.ledger_id} to {after.ledger_id}"
        return ""


def find_subscriptions(one: LedgerEvidence, evidence: Iterable[LedgerEvidence]) -> list[str]:
    """Return the subscriptions, as ``topic\\0subscription``, on which all transactions of a log of acknowledgements are said to be."""
    said: list[frozenset[str]] = []
    for log in evidence:
        if log.kind == TRANSACTIONS:
            of = (log.txns[txn] for txn in one.txns if txn in log.txns)
            said += [found for says in of if (found := frozenset(text for text in says if "\0" in text))]
    return sorted(frozenset.intersection(*said)) if said else []


def _span(ledger_id: int, bounds: tuple[int, int]) -> str:
    low, high = bounds
    return f"{ledger_id}:{low}" if low == high else f"{ledger_id}:{low} to {ledger_id}:{high}"


# -- producers --------------------------------------------------------------------------------------------------------


def likely_cluster(evidence: Iterable[LedgerEvidence]) -> str:
    """Return the cluster that most names of producers begin with as brokers make them."""
    counts: Counter[str] = Counter()
    for one in evidence:
        for producer in one.producers:
            match = None if producer.replicated_from else _GIVEN.fullmatch(producer.name)
            if match is not None:
                counts[match[1]] += 1
    return counts.most_common(1)[0][0] if counts else ""


class _Names(Struct, frozen=True):
    """What is known of producers: those whose ranges of one ledger lie in another's, and those that leave numbers out.

    ``twins``: those that end two ledgers with one number at one index, as partitions that get equally many do.
    """

    shared: frozenset[Producer]
    twins: frozenset[Producer]
    jumping: frozenset[Producer]
    cluster: str

    def is_given(self, producer: Producer) -> bool:
        """Whether a broker gave the name, so that one producer has it."""
        match = _GIVEN.fullmatch(producer.name)
        return match is not None and match[1] == (producer.replicated_from or self.cluster)

    def is_good(self, producer: Producer) -> bool:
        """Whether its next number proves something."""
        return producer not in self.shared and producer not in self.jumping


def _links(found: Mapping[int, LedgerEvidence], cluster: str) -> Iterator[tuple[Join, str]]:
    """Yield pairs of ledgers where a producer goes on, and why they are not joined; "": they are. Those with most witnesses first."""
    runs: dict[Producer, list[tuple[Run, int]]] = defaultdict(list)
    for one in found.values():
        if one.kind == MESSAGES:
            for producer, run in one.producers.items():
                runs[producer].append((run, one.ledger_id))
    names = _Names(
        frozenset(_shared(runs)),
        frozenset(_twins(found, runs)),
        frozenset(p for p, mine in runs.items() if any(r.jumps for r, _ in mine)),
        cluster,
    )
    pairs: dict[tuple[int, int], list[Producer]] = defaultdict(list)
    rivals: Counter[tuple[Producer, int, bool]] = Counter()
    for producer, before, after in _successions(runs):
        pairs[before, after].append(producer)
        rivals[producer, before, False] += 1
        rivals[producer, after, True] += 1
    judged = [_judge(found[a], found[b], producers, names, rivals) for (a, b), producers in pairs.items()]
    yield from sorted(
        judged, key=lambda pair: (bool(pair[1]), -len(pair[0].witnesses), pair[0].ledger_id, pair[0].next_id)
    )


def _successions(runs: Mapping[Producer, list[tuple[Run, int]]]) -> Iterator[tuple[Producer, int, int]]:
    """Yield (producer, ledger, later ledger that its next message is in)."""
    for producer, mine in runs.items():
        starts: dict[int, list[int]] = defaultdict(list)
        for run, ledger_id in mine:
            starts[run.first].append(ledger_id)
        for run, ledger_id in mine:
            yield from ((producer, ledger_id, after) for after in starts.get(run.last + 1, ()) if after > ledger_id)


def _shared(runs: Mapping[Producer, list[tuple[Run, int]]]) -> Iterator[Producer]:
    """Yield the producers whose numbers of one ledger come up in another one, or that wrote to two at one time.

    They are of another topic, or the producer began again: a topic has one ledger that is written (``ManagedLedgerImpl``, Pulsar 4.0.8).
    """
    for producer, mine in runs.items():
        numbers = sorted((run.low, run.high) for run, _ in mine)
        times = sorted((run.first_publish_ms, run.last_publish_ms) for run, _ in mine)
        if any(after[0] <= before[1] for before, after in pairwise(numbers)) or any(
            after[0] < before[1] for before, after in pairwise(times)
        ):
            yield producer


def _twins(found: Mapping[int, LedgerEvidence], runs: Mapping[Producer, list[tuple[Run, int]]]) -> Iterator[Producer]:
    """Yield the producers of which two ledgers have one last number, and one index."""
    for producer, mine in runs.items():
        ends = Counter((run.last, index[2]) for run, ledger in mine if (index := found[ledger].index) is not None)
        if any(count > 1 for count in ends.values()):
            yield producer


def _judge(
    a: LedgerEvidence,
    b: LedgerEvidence,
    producers: list[Producer],
    names: _Names,
    rivals: Mapping[tuple[Producer, int, bool], int],
) -> tuple[Join, str]:
    """Return the join of A and B, which PRODUCERS go on from one to the other, and why it is refused."""
    good = [one for one in producers if names.is_good(one)]
    said = [f"producer {one} goes on from {a.producers[one].last} to {b.producers[one].first}" for one in producers]
    unique = [one for one in producers if rivals[one, a.ledger_id, False] == 1 and rivals[one, b.ledger_id, True] == 1]
    steady = [one for one in unique if one not in names.jumping]
    index = False
    if a.index is not None and b.index is not None and a.index[2] in (b.index[0], b.index[1] - 1):
        # Where a producer was alone on its topic, its numbers are the index: of another topic, too, so that says nothing more.
        index = any(a.producers[one].last != a.index[2] for one in steady if one not in names.twins)
        said += [f"the broker's index goes on behind {a.index[2]}"] if index else []
    given = [one for one in good if names.is_given(one)]
    if given:
        said.append(f"a broker gave the name {given[0]}, and its numbers are in no other ledger")
    refused = _clock(a, b, producers)
    if not refused and not unique:
        refused = "more than one ledger goes on with these numbers"
    if not refused and not (index or len(steady) >= _TWO or given):
        refused = "one witness only" if good else "the producer's numbers come up in several ledgers"
    return Join(a.ledger_id, b.ledger_id, tuple(said)), refused


def _clock(a: LedgerEvidence, b: LedgerEvidence, producers: Iterable[Producer]) -> str:
    back = [one for one in producers if b.producers[one].first_publish_ms < a.producers[one].last_publish_ms]
    return f"the clock of producer {back[0]} goes back" if back else ""
