"""A row of the table of rules."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from store.errors import StoreError
from store.frozen import frozen, replace
from store.rules.cause import MEND, Cause, Severity
from store.rules.finding import Finding

if TYPE_CHECKING:
    from store.facts.subscriptions import SubscriptionFacts
    from store.facts.topics import TopicFacts

Facts = TypeVar("Facts")
"""What a rule looks at: ``ClusterFacts``, ``TopicFacts`` or ``SubscriptionFacts``."""
_MESSAGES = ("messages", "missing", "entries", "unseen")
"""Keys of evidence that say how many messages are at stake, the best first."""
_REBUILD = "rebuild the index with: pulsar-admin store index --rebuild"


@frozen
class Evidence:
    """Where a rule holds, the sentence that says so, and what shows it: names and numbers by key, JSON values.

    ``values`` fill the places of the cause's command; ``bytes`` and ``messages``, ``entries`` or ``missing`` are what is at stake.
    ``hint``: what to do here, where the store's state decides it; "" where the cause says it.
    ``severity``: where it is another than the cause's.
    """

    where: str
    sentence: str
    values: Mapping[str, object] = field(default_factory=dict)
    hint: str = ""
    severity: Severity | None = None


def _swept(facts: object) -> Iterator[Evidence]:
    """The evidence of a rule that a ``Sweep`` judges together with others."""
    return iter(())


@frozen
class Rule(Generic[Facts]):
    """One thing that can be wrong. ``cause``: code, severity, words, cure. ``holds``: facts → evidence, one for each place.

    ``loss``: what is lost as long as it holds, or by the cure; "" for nothing. ``scope``: "store" for our own rows, "data" for what
    Pulsar left damaged or inconsistent, "use" where nothing is damaged (a clock, a quota, an acknowledgement): ``store check`` tells
    the first two, ``doctor`` all. ``of_disks``: it looks at bookies' own files, which an incident bundle has not. ``repair``: the
    derived databases that ``store index --rebuild`` makes again ("index"), or "". ``needs``: a cheap fact of a topic, by name, without
    which it holds nowhere there: of what is wrong with few topics most are not asked.
    """

    cause: Cause
    holds: Callable[[Facts], Iterator[Evidence]] = _swept
    loss: str = ""
    scope: str = "data"
    of_disks: bool = False
    repair: str = ""
    needs: str = ""

    def judge(self, facts: Facts) -> Iterator[Finding]:
        """Yield what the rule finds in FACTS."""
        return map(self.found, self.holds(facts))

    def at(self, where: str, sentence: str, hint: str = "", /, **values: object) -> Finding:
        """Return that the rule holds at WHERE, as a ``Sweep`` yields it."""
        return self.found(Evidence(where, sentence, values, hint))

    def of(self, error: StoreError, where: str, /, **values: object) -> Finding:
        """Return that ERROR at WHERE shows that the rule holds; VALUES beside what it says itself."""
        return self.found(Evidence(where, error.message, {**error.context, **values}, error.hint))

    def found(self, evidence: Evidence) -> Finding:
        """Return what EVIDENCE shows as a finding."""
        cause, values = self.cause, evidence.values
        size, messages = values.get("bytes"), next((values[key] for key in _MESSAGES if key in values), 0)
        mend = cause.command({**values, "where": evidence.where})
        repair = _REBUILD if self.repair else f"{cause.how.removesuffix('.')}: {mend}"
        return Finding(
            severity=evidence.severity or cause.severity,
            code=cause.code,
            where=evidence.where,
            message=evidence.sentence,
            evidence={key: value for key, value in values.items() if key != MEND},
            at_stake_bytes=size if isinstance(size, int) else 0,
            at_stake_messages=messages if isinstance(messages, int) else 0,
            broker=cause.broker,
            mend=mend,
            page=cause.page,
            scope=self.scope,
            hint=evidence.hint or repair,
            repair=self.repair,
        )


@frozen
class Sweep(Generic[Facts]):
    """``rules`` that one pass over many rows judges together. ``what``: what it looks at, in words."""

    what: str
    judge: Callable[[Facts], Iterator[Finding]]
    rules: tuple[Rule[Any], ...]  # Any: some are of topics, too


def of_topic(rule: Rule[SubscriptionFacts]) -> Rule[TopicFacts]:
    """Return ``rule`` as one of topics: it holds where it does for a subscription."""
    return Rule(rule.cause, partial(_of_subscriptions, rule), rule.loss, rule.scope, needs=rule.needs)


def _of_subscriptions(rule: Rule[SubscriptionFacts], facts: TopicFacts) -> Iterator[Evidence]:
    for subscription in facts.subscriptions:
        whose = {"topic": facts.where, "subscription": subscription.cursor.name}
        for evidence in rule.holds(subscription):
            yield replace(evidence, values=whose | dict(evidence.values))
