"""What other processes look at while rules are judged here, where there are many topics: which of these are quiet, and the index.

Apart from ``store.rules.judging``, as each of them would import all rules: 0.1 s.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct

from pulsar_admin.store.errors import IndexCorrupt
from pulsar_admin.store.facts.cluster import ClusterFacts
from pulsar_admin.store.facts.file_sums import FileSums
from pulsar_admin.store.facts.parts import Counting, TopicsPart, parts_of
from pulsar_admin.store.facts.processes import Spread, others_that_pay
from pulsar_admin.store.facts.quiet import FoundQuiet, LookedAt, Quiet, find_quiet
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.rules.finding import Finding
from pulsar_admin.store.rules.index import INDEX_SWEEPS
from pulsar_admin.store.rules.rows import CHECK_STOPPED

INDEX_SWEEP = INDEX_SWEEPS[0]


class _Index(Struct, frozen=True):
    """The findings about the location index, and the facts that its pass leaves in a snapshot."""

    findings: tuple[Finding, ...]
    sums: Mapping[int, FileSums] | None


_Part = TopicsPart | None
"""None: the location index."""
_Found = LookedAt | _Index


class Beside(Spread[_Part, _Found]):
    """Looks at ``facts`` in other processes; ``processes`` may be used in all (0: one a core), none for few topics. What is to be
    counted is counted there too."""

    def __init__(
        self, facts: ClusterFacts, now_ms: int | None, processes: int, counting: Counting | None = None
    ) -> None:
        self._facts, self._counting = facts, counting
        txn = facts.reader.txn
        others = others_that_pay(txn, processes)
        parts: list[_Part] = [None, *parts_of(txn, now_ms, counting)] if others else []
        super().__init__(facts.reader, judge_part, parts, others)
        self.is_used = bool(others)
        self._index = _Index((), None)
        self.quiet = FoundQuiet(self._find_quiet())

    def _find_quiet(self) -> Iterator[list[Quiet | None]]:
        """Yield the findings of topics; the index comes first, as this process asks for nothing while it judges many rules."""
        for answer in self:
            if isinstance(answer, _Index):
                self._index = answer
                continue
            if self._counting is not None:
                self._counting.add(answer.tallies)
            yield answer.quiet
        self.end()
        if self._counting is not None:
            self._counting.end()

    def judge_index(self) -> Iterator[Finding]:
        """Yield the findings of the location index, after the topics."""
        self.quiet.pass_rest()  # where an error ended these
        if self._index.sums is not None:
            self._facts.reader.txn.memo[FileSums] = self._index.sums
        yield from self._index.findings


def judge_part(reader: EntryReader, part: _Part) -> _Found:
    """Return the findings of one part."""
    if part is not None:
        return find_quiet(reader, part)
    txn = reader.txn
    with txn.passing_altered():  # the rules tell of them
        findings = tuple(to_the_end(INDEX_SWEEP.judge(ClusterFacts(txn.store, reader)), INDEX_SWEEP.what))
    return _Index(findings, txn.memo.get(FileSums))


def to_the_end(found: Iterator[Finding], what: str) -> Iterator[Finding]:
    """Yield the findings; where a row stops them that a later rule can do without, say that ``what`` was not looked at to its end."""
    try:
        yield from found
    except IndexCorrupt as error:
        yield CHECK_STOPPED.of(error, what)
