"""The rules applied to the facts of one snapshot of a store, for ``store check`` and ``doctor``."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import chain, groupby

from msgspec.structs import replace

from pulsar_admin.store.db.environment import Store
from pulsar_admin.store.errors import IndexCorrupt, Refused, StoreError, TopicNotFound
from pulsar_admin.store.facts.cluster import ClusterFacts, UnreadableTopic
from pulsar_admin.store.facts.deep import DeepFacts
from pulsar_admin.store.facts.parts import Counting
from pulsar_admin.store.facts.quiet import FoundQuiet, QuietTopics
from pulsar_admin.store.facts.starts import StartFact
from pulsar_admin.store.facts.topics import ReadBudget, TopicFacts
from pulsar_admin.store.facts.values import look_at_nodes
from pulsar_admin.store.names import EVENTS, PERSISTENT, SEGMENT, TopicName, shell_word
from pulsar_admin.store.rules.backlogs import BACKLOGS_LEFT_OUT
from pulsar_admin.store.rules.copies import LEDGERS_DELETED, LEDGERS_GONE, LEDGERS_UNREFERENCED
from pulsar_admin.store.rules.deep import DEEP_SWEEPS
from pulsar_admin.store.rules.finding import Finding
from pulsar_admin.store.rules.masking import NAMELESS
from pulsar_admin.store.rules.other_processes import Beside, to_the_end
from pulsar_admin.store.rules.starts import code_of, evidence_of
from pulsar_admin.store.rules.storage import CLOSING_RULES, DISK_RULES, LEAK_SWEEP
from pulsar_admin.store.rules.table import ALL_TOPIC_RULES, RULES, SWEEPS, rule_of
from pulsar_admin.store.rules.topic_data import TOPIC_SWEEP, TOPIC_UNREADABLE, mend_row
from pulsar_admin.store.rules.words import unchanging
from pulsar_admin.store.wording import Answer

_WORST = (
    *(
        "pages-damaged",
        "rows-altered",
        "node-rows-altered",
        "catalogue-damaged",
        "node-damaged",
        "metadata-incomplete",
        "topic-unreadable",
        "value-undecodable",
    ),
    *("ledger-missing", "ledger-without-metadata", "entries-missing", "schema-ledger-without-metadata"),
    *("compacted-ledger-without-metadata", "cursor-unreadable"),
)
"""Codes of problems by impact: whole namespaces and topics first, then messages, then positions and the rest."""
_BY_NEED = [(needs, tuple(rules)) for needs, rules in groupby(ALL_TOPIC_RULES, key=lambda rule: rule.needs)]
_LEADING = {rule.code for rule in RULES if rule.leads}
_UNREFERENCED = {rule.code for rule in (LEDGERS_UNREFERENCED, LEDGERS_DELETED, LEDGERS_GONE)}


class StartFault(Answer, frozen=True):
    """A fault that affects a start. ``code``: its rule's; ``starts``: whether the start succeeds, with the consequence in ``text``;
    ``cure``: the command that repairs it."""

    code: str
    starts: bool
    where: str
    text: str
    cure: str


def refuse_bundle(store: Store) -> None:
    """Raise Refused for a store that a deep look cannot read."""
    if store.info.is_bundled:
        raise Refused(
            "this store comes from an incident bundle, which contains no entries", hint="check it without --deep"
        )


def judge_store(
    facts: ClusterFacts,
    *,
    now_ms: int | None,
    budget: ReadBudget | None = None,
    visit: Callable[[], None] = lambda: None,
    processes: int = 1,
    counting: Counting | None = None,
) -> Iterator[Finding]:
    """Yield the findings of all rules but the deep ones; ``visit`` is called for each persistent topic.

    Without ``now_ms``, rules of topics with scope "use" are left out, because ages and due messages depend on the time. ``processes``
    may be used, including this one (0: one per core). If others are used, ``counting`` runs in the meantime.
    """
    with facts.reader.txn.passing_altered():  # the rules tell of altered rows
        beside = Beside(facts, now_ms, processes, counting)
        if not beside.begins:
            look_at_nodes(facts.reader, processes)  # what it keeps, several rules ask for
        with beside:
            if beside.begins:
                look_at_nodes(facts.reader, processes, beside.see_topics)
            budget = budget or ReadBudget()
            findings = _judge_data(facts, now_ms, budget, visit, beside)
            if facts.is_refresh_unfinished or facts.is_incomplete:
                first = "continue the refresh" if facts.is_refresh_unfinished else "provide intact metadata, then run"
                findings = (_unchanged(one, first) for one in findings)
            yield from findings if now_ms is None else _with_uses(facts, findings)
            yield from BACKLOGS_LEFT_OUT.judge(budget)


def _unchanged(finding: Finding, first: str) -> Finding:
    mend = unchanging(finding.mend)
    return finding if mend == finding.mend else replace(finding, mend=mend, hint=f"{first}: {mend}")


def _judge_data(
    facts: ClusterFacts, now_ms: int | None, budget: ReadBudget, visit: Callable[[], None], beside: Beside
) -> Iterator[Finding]:
    for rule in RULES:
        yield from to_the_end(rule.judge(facts), f"rule {rule.code}")
    quiet = beside.quiet if beside.is_used else QuietTopics(facts.reader.txn, now_ms)
    swept = [beside.judge(sweep) for sweep in SWEEPS]
    yield from to_the_end(_judge_topics(facts, now_ms, budget, visit, quiet), "the topics")
    yield from chain.from_iterable(swept)


def judge_deep(facts: DeepFacts) -> Iterator[Finding]:
    """Yield what only reading every catalogued byte shows."""
    with facts.reader.txn.passing_altered():  # the rules tell of them
        for sweep in DEEP_SWEEPS:
            yield from to_the_end(sweep.judge(facts), sweep.what)


def _judge_topics(
    facts: ClusterFacts,
    now_ms: int | None,
    budget: ReadBudget,
    visit: Callable[[], None],
    quiet: QuietTopics | FoundQuiet,
) -> Iterator[Finding]:
    def passes(name: TopicName) -> bool:
        one = quiet.find(name)
        if one is None or (one.has_backlog and budget.has_edges and now_ms is not None):
            return False
        if one.has_backlog and now_ms is not None:
            budget.leave_out(name)
        if one.is_open and now_ms is not None:
            facts.unclosed.add_topic(name, one.last_write_ms)
        visit()
        return True

    for topic in facts.iter_topics(now_ms or 0, budget, passes):
        if isinstance(topic, UnreadableTopic):
            mend = mend_row(topic.error) if isinstance(topic.error, IndexCorrupt) else None
            if isinstance(topic.error, TopicNotFound):  # its cursors are left, and show what it had
                mend = f"pulsar-admin store ls {shell_word(topic.path)}"
            yield TOPIC_UNREADABLE.of(topic.error, topic.name, mend, path=topic.path)
            continue
        yield from TOPIC_SWEEP.judge(topic)
        name = topic.topic.name
        if now_ms is not None and name.domain in (PERSISTENT, SEGMENT):
            yield from _judge_use(topic)
            facts.unclosed.add(topic)
        if name.domain == PERSISTENT:
            visit()


def _judge_use(topic: TopicFacts) -> Iterator[Finding]:
    """Yield the findings of the rules with scope "use" about a topic."""
    for needs, rules in _BY_NEED:
        try:
            if needs and not getattr(topic, needs):
                continue
        except StoreError:
            pass  # each rule meets it, or does without
        for rule in rules:
            try:
                yield from rule.judge(topic)
            except StoreError:
                continue  # the judgement of the data names unreadable things


def _with_uses(facts: ClusterFacts, found: Iterator[Finding]) -> Iterator[Finding]:
    """Yield the findings, then those of the rules about unclosed ledgers, leaks and disks.

    Unreferenced ledgers are summed up by the kind that their metadata claims, unless damage may hide a reference.
    """
    unreferenced: list[Finding] = []
    trusted = True
    for finding in found:
        trusted &= finding.code not in NAMELESS
        if finding.code in _UNREFERENCED:
            unreferenced.append(finding)
        else:
            yield finding
    if not trusted:
        yield from unreferenced
    for rule in (*CLOSING_RULES, *((LEAK_SWEEP,) if trusted else ()), *DISK_RULES):
        with suppress(StoreError):  # the judgement of the data names unreadable things
            yield from rule.judge(facts)


def fault_of(fact: StartFact) -> StartFault:
    """Return the fault that a fact of a start shows, in the words of ``store preflight``."""
    shown, code = evidence_of(fact), code_of(fact)
    cure = rule_of(code).mend_of(shown)
    return StartFault(code, shown.values["starts"] is True, shown.where, shown.sentence, cure)


def weight(finding: Finding) -> tuple[int, int]:
    """Return the key that findings are sorted by: problems before notes, those that concern most first."""
    code = finding.code
    if not finding.is_problem:
        return 1, 0
    if code in _LEADING:
        return 0, -2
    if EVENTS in finding.where:  # no topic of its namespace loads
        return 0, -1
    return 0, _WORST.index(code) if code in _WORST else len(_WORST)
