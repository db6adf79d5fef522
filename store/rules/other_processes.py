"""Work of other processes while this one judges the rules of many topics: finding quiet topics, and reading the index and the pages.

Separate from ``store.rules.judging``, because importing all rules would cost each process 0.1 s.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Self

from msgspec import Struct

from pulsar_admin.store.errors import IndexCorrupt
from pulsar_admin.store.facts.cluster import ClusterFacts
from pulsar_admin.store.facts.file_sums import FileSums
from pulsar_admin.store.facts.parts import Counting, TopicsPart, parts_of
from pulsar_admin.store.facts.processes import MANY_NODES, Spread, others_that_pay
from pulsar_admin.store.facts.quiet import FoundQuiet, LookedAt, Quiet, find_quiet
from pulsar_admin.store.facts.values import TOPICS, NodesPart, SeenNodes, see_nodes
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.rules.files import FILE_SWEEPS
from pulsar_admin.store.rules.finding import Finding
from pulsar_admin.store.rules.index import INDEX_SWEEPS
from pulsar_admin.store.rules.rows import CHECK_STOPPED
from pulsar_admin.store.rules.rule import Sweep

_SWEEPS = INDEX_SWEEPS[0], FILE_SWEEPS[0]
"""Of the location index, and of the database's pages: they need nothing that other rules ask for, too."""
_FIRST, _FIRST_OF_FEW = 6, 16
"""Parts that a process has to do while all that comes before topics is judged here; of few topics these parts are small."""


class _Swept(Struct, frozen=True):
    """The findings of one of ``_SWEEPS``, and the facts that a pass over the location index leaves in a snapshot."""

    findings: tuple[Finding, ...]
    sums: Mapping[int, FileSums] | None


_Part = NodesPart | TopicsPart | int
"""Nodes, topics, or one of ``_SWEEPS``."""
_Found = SeenNodes | LookedAt | _Swept


class Beside(Spread[_Part, _Found]):
    """Judges ``facts`` in other processes, and counts topics there for ``counting``.

    At most ``processes`` are used in all (0: one per core), no other one for few topics."""

    def __init__(self, facts: ClusterFacts, now_ms: int | None, processes: int, counting: Counting | None) -> None:
        self._facts, self._counting = facts, counting
        self._now_ms = now_ms
        others = others_that_pay(facts.reader.txn, processes)
        self.is_used = bool(others)
        self.begins = self.is_used and facts.reader.txn.count("tree") < MANY_NODES
        """Whether it is to begin before nodes are looked at, with those of topics."""
        parts: list[_Part] = [*range(len(_SWEEPS))] if others else []
        super().__init__(
            facts.reader,
            judge_part,
            [TOPICS, *parts] if self.begins else parts,
            others,
            _FIRST_OF_FEW if self.begins else _FIRST,
        )
        self._answers = iter(self)
        self._swept = list[_Swept]()
        self.quiet = FoundQuiet(self._find_quiet())

    def __enter__(self) -> Self:
        super().__enter__()
        if self.is_used:
            self.extend(parts_of(self._facts.reader.txn, self._now_ms, self._counting))
        return self

    def see_topics(self) -> SeenNodes:
        """Return the results of the pass over the nodes of topics, the first answer of the processes."""
        seen = next(self._answers)
        assert isinstance(seen, SeenNodes)
        return seen

    def _find_quiet(self) -> Iterator[list[Quiet | None]]:
        """Yield, part by part, which topics are quiet; keep the results of sweeps, and count topics on the way.

        Sweeps are answered first, because this process waits for no answer while it judges many rules."""
        for answer in self._answers:
            if isinstance(answer, _Swept):
                self._swept.append(answer)
                continue
            assert isinstance(answer, LookedAt)
            if self._counting is not None:
                self._counting.add(answer.tallies)
            yield answer.quiet
        self.end()
        if self._counting is not None:
            self._counting.end()

    def judge(self, sweep: Sweep[ClusterFacts]) -> Iterable[Finding]:
        """Return the findings of a sweep, to be reported after those of topics.

        While other processes examine topics, this process at once runs the sweeps that they do not run."""
        if self.is_used and sweep in _SWEEPS:
            return self._told(sweep)
        findings = to_the_end(sweep.judge(self._facts), sweep.what)
        return [*findings] if self.is_used else findings

    def _told(self, sweep: Sweep[ClusterFacts]) -> Iterator[Finding]:
        """Yield what other processes found in a sweep."""
        self.quiet.pass_rest()  # where an error ended these
        swept = self._swept[_SWEEPS.index(sweep)]
        if swept.sums is not None:
            self._facts.reader.txn.memo[FileSums] = swept.sums
        yield from swept.findings


def judge_part(reader: EntryReader, part: _Part) -> _Found:
    """Return the findings of one part."""
    if isinstance(part, NodesPart):
        return see_nodes(reader, part)
    if isinstance(part, TopicsPart):
        return find_quiet(reader, part)
    txn, sweep = reader.txn, _SWEEPS[part]
    with txn.passing_altered():  # the rules tell of them
        findings = tuple(to_the_end(sweep.judge(ClusterFacts(reader)), sweep.what))
    return _Swept(findings, txn.memo.get(FileSums))


def to_the_end(found: Iterator[Finding], what: str) -> Iterator[Finding]:
    """Yield the findings; if a damaged row ends them early, yield a finding that ``what`` was not checked to its end."""
    try:
        yield from found
    except IndexCorrupt as error:
        yield CHECK_STOPPED.of(error, what)
