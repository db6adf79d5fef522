"""``doctor``: all findings, ranked, each with a broker's reaction and the command that repairs it; ``store check``: unranked.

Reads only; ``store.rules`` judges. Scope "store": our own rows contradict each other or the files (``store index --rebuild`` derives
them anew). Scope "data": what Pulsar left is damaged, incomplete or contradicts itself. Memory is bounded: of each code the worst
findings are kept, and the rest is summed up.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from heapq import heappush, heappushpop
from itertools import chain
from typing import TYPE_CHECKING, Literal, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from pulsar_admin.store.db.environment import Store, Txn
from pulsar_admin.store.db.files import catalogued_bytes
from pulsar_admin.store.errors import InvalidValue, check_choice
from pulsar_admin.store.facts.deep import DeepFacts
from pulsar_admin.store.facts.parts import Counting
from pulsar_admin.store.facts.topics import ReadBudget
from pulsar_admin.store.model.reader import EntryReader, open_reader
from pulsar_admin.store.model.topics import count_topics
from pulsar_admin.store.rules.finding import Finding, Severity, place_of, sum_of
from pulsar_admin.store.rules.judging import judge_deep, judge_store, refuse_bundle, weight
from pulsar_admin.store.rules.table import check_codes, rule_of
from pulsar_admin.store.wording import counted

if TYPE_CHECKING:
    from pulsar_admin.store.engine.operation import Engine


EACH = 10
EACH_MOST = 100
"""Up to this many findings of a kind are told one by one by ``check_store``."""
_MORE, _ALIKE = "more", "alike"


class DoctorOptions(Struct, frozen=True):
    """What to diagnose. ``deep``: also read every byte; ``each``: how many findings per code are kept; ``codes``: only these.

    Raises InvalidValue.
    """

    deep: bool = False
    each: int = EACH
    codes: Collection[str] = ()
    severities: Collection[str] = ()

    def __post_init__(self) -> None:
        if self.each < 1:
            raise InvalidValue(f"each {self.each}: expected a whole number of 1 or more", value=self.each)
        check_codes(self.codes)
        for severity in self.severities:
            check_choice("severity", severity, Literal["critical", "warning", "note"])


def diagnose(
    store: Store,
    *,
    now_ms: int,
    options: DoctorOptions | None = None,
    look: Look | None = None,
    processes: int = 1,
    counting: Counting | None = None,
) -> Iterator[Finding]:
    """Yield the findings about a store and what Pulsar left in it, the worst first: by severity, then by messages and bytes at stake.

    ``now_ms`` is the time that ages and due messages are counted at. For many topics ``processes`` may be used, 0: one a core.
    ``counting``: topics are counted on the way if other processes are used.
    """
    options = options or DoctorOptions()
    ranking = Ranking(options.each)
    with _open_facts(store, look, options.deep) as facts:
        budget = ReadBudget(unlimited=options.deep)
        visit = (lambda: None) if options.deep else partial(facts.advance, 1)
        looked = judge_store(facts, now_ms=now_ms, budget=budget, visit=visit, processes=processes, counting=counting)
        for finding in chain(looked, judge_deep(facts) if options.deep else ()):
            is_meant = not options.codes or finding.code in options.codes
            if is_meant and (not options.severities or finding.severity in options.severities):
                ranking.add(finding)
    yield from ranking.ranked()


class Look(NamedTuple):
    """What a diagnosis reads with. ``reader`` caches facts; ``engine`` reads the files of a deep check (None: this process does);
    ``advance`` gets the bytes that a deep check has read, or the topics that another check has judged."""

    reader: EntryReader
    engine: Engine | None = None
    advance: Callable[[int], None] = lambda count: None


@contextmanager
def _open_facts(store: Store, look: Look | None, deep: bool) -> Iterator[DeepFacts]:
    if deep:
        refuse_bundle(store)
    with open_reader(store) if look is None else nullcontext(look.reader) as reader:
        _, engine, advance = look or Look(reader)
        facts = DeepFacts(reader, advance, engine)
        if deep:
            facts.meet()
        yield facts


def extent_of_look(txn: Txn, *, deep: bool) -> tuple[int, str]:
    """Return the total that ``Look.advance`` gets, and its unit: bytes if ``deep``, else topics."""
    with txn.passing_altered():  # the look tells of them
        return (catalogued_bytes(txn), "bytes") if deep else (count_topics(txn), "topics")


class Ranking:
    """Keeps, per severity and code, the ``each`` findings with most at stake, and sums up the rest in one more.

    More than ``each`` successive findings that differ only in the ledger, of one topic or of none, count as one.
    """

    def __init__(self, each: int) -> None:
        self._each = each
        self._kept: dict[tuple[Severity, str], list[tuple[tuple[int, int], int, Finding]]] = {}
        self._left: dict[tuple[Severity, str], list[int]] = {}
        self._runs: dict[tuple[Severity, str], _Run] = {}
        self._count = 0

    def add(self, finding: Finding) -> None:
        key, place = (finding.severity, finding.code), place_of(finding.where)
        if place == finding.where:  # it names no ledger
            self._keep(finding)
            return
        run = self._runs.get(key)
        if run is None or run.place != place:
            self._end(self._runs.pop(key, None))
            run = self._runs[key] = _Run(place)
        run.add(finding, self._each)

    def _end(self, run: _Run | None) -> None:
        for finding in () if run is None else run.told(self._each):
            self._keep(finding)

    def _keep(self, finding: Finding) -> None:
        self._count += 1
        key = finding.severity, finding.code
        kept = self._kept.setdefault(key, [])
        row = (finding.at_stake_messages, finding.at_stake_bytes), -self._count, finding
        if len(kept) < self._each:
            heappush(kept, row)
            return
        least = heappushpop(kept, row)[2]
        left = self._left.setdefault(key, [0, 0, 0])
        for index, more in enumerate((count_of(least), least.at_stake_bytes, least.at_stake_messages)):
            left[index] += more

    def ranked(self) -> Iterator[Finding]:
        """Yield the kept findings by severity, causes of others first, then by messages and bytes at stake; after the last finding of a
        code comes the sum of those left out."""
        while self._runs:
            self._end(self._runs.popitem()[1])
        for severity in Severity:
            groups = [key for key in self._kept if key[0] is severity]
            for key in sorted(groups, key=lambda key: (rule_of(key[1]).leads, max(self._kept[key])[0]), reverse=True):
                yield from (row[2] for row in sorted(self._kept[key], reverse=True))
                if key in self._left:
                    yield _rest(*key, *self._left[key])


class _Run:
    """Successive findings of a code that differ only in the ledger: the first ones, their number, bytes and messages at stake."""

    def __init__(self, place: str) -> None:
        self.place = place
        self._first: list[Finding] = []
        self._mend = ""
        """The command that repairs all of them; "": each has its own."""
        self._count = self._bytes = self._messages = 0

    def add(self, finding: Finding, each: int) -> None:
        if len(self._first) < each:
            self._first.append(finding)
        self._mend = finding.mend if self._count == 0 or finding.mend == self._mend else ""
        self._count += 1
        self._bytes += finding.at_stake_bytes
        self._messages += finding.at_stake_messages

    def told(self, each: int) -> Iterable[Finding]:
        """Return the findings of the run one by one, or as one if they are more than ``each``."""
        if self._count <= each:
            return self._first
        first = self._first[0]
        return [
            replace(
                sum_of(first, self._count, self._bytes, self._messages),
                evidence={_ALIKE: self._count, "first": first.where},
                mend=self._mend or list_of(first.code),
            )
        ]


def list_of(code: str) -> str:
    """Return the command that lists all findings of ``code``."""
    return f"pulsar-admin doctor --code {code} --each 1000000"


def _rest(severity: Severity, code: str, count: int, size_bytes: int, messages: int) -> Finding:
    cause = rule_of(code)
    return Finding(
        severity=severity,
        code=code,
        where=f"{count:,} more",
        message=f"{counted(count, 'more finding')} of this code with no additional loss",
        evidence={_MORE: count},
        at_stake_bytes=size_bytes,
        at_stake_messages=messages,
        broker=cause.broker,
        mend=list_of(code),
        page=cause.page,
        scope="use",
        hint="",
        repair="",
    )


def rest_of(one: Finding, count: int) -> Finding:
    """Return a finding that sums up ``count`` findings with the severity and code of ``one``, without place and stake."""
    return _rest(one.severity, one.code, count, 0, 0)


def is_rest(finding: Finding) -> bool:
    """Whether a finding sums up the findings of its code that a ranking left out."""
    return set(finding.evidence) == {_MORE}


def count_of(finding: Finding) -> int:
    """Return how many findings ``finding`` stands for."""
    count = finding.evidence.get(_MORE if is_rest(finding) else _ALIKE, 1)
    return count if isinstance(count, int) else 1


# -- check ------------------------------------------------------------------------------------------------------------


def check_store(store: Store, *, deep: bool = False, look: Look | None = None) -> Iterator[Finding]:
    """Yield every finding about a store, the worst first; then those of a deep check as they come. Many of one kind are one finding.

    ``deep`` reads every catalogued byte: all digests, index and metadata against the data. A bad row or record is a finding, never an
    error.
    """
    with _open_facts(store, look, deep) as facts:
        findings = judge_store(facts, now_ms=None, visit=lambda: None if deep else facts.advance(1))
        yield from sum_up(sorted(findings, key=weight))
        if deep:
            # In the same transaction: beside a writer, the catalogue of one and the index of another contradict each other.
            yield from judge_deep(facts)


def sum_up(findings: Iterable[Finding]) -> Iterator[Finding]:
    """Yield ``findings`` by kind; many that differ only in the ledger, of one topic or of none, as one.

    That one has the text of the first, and their number as ``ledgers`` in its evidence.
    """
    groups: dict[tuple[object, ...], list[Finding]] = {}
    for finding in findings:
        place = place_of(finding.where)
        groups.setdefault((finding.is_problem, finding.code, finding.scope, place), []).append(finding)
    for kind, group in groups.items():
        if len(group) <= EACH_MOST or kind[-1] == group[0].where:
            yield from group
            continue
        first, listing = group[0], list_of(group[0].code)
        size_bytes, messages = sum(one.at_stake_bytes for one in group), sum(one.at_stake_messages for one in group)
        yield replace(
            sum_of(first, len(group), size_bytes, messages),
            mend=first.mend if all(one.mend == first.mend for one in group) else listing,
            hint=first.hint if all(one.hint == first.hint for one in group) else f"list them with: {listing}",
            evidence={"ledgers": len(group)}
            | {key: value for key, value in first.evidence.items() if key == "ledgerId"},
        )
