"""A row of the table of rules."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from textwrap import wrap
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from msgspec import Struct, field
from msgspec.structs import force_setattr, replace

from pulsar_admin.store.errors import StoreError
from pulsar_admin.store.names import parse_topic, shell_word
from pulsar_admin.store.rules.finding import Finding, Severity

if TYPE_CHECKING:
    from pulsar_admin.store.facts.topics import SubscriptionFacts, TopicFacts

_Item = TypeVar("_Item")
Facts = TypeVar("Facts")
"""What a rule looks at: ``ClusterFacts``, ``TopicFacts`` or ``SubscriptionFacts``."""
_PLACE = re.compile(r"\{(\w+)\}")
_MESSAGES = ("messages", "missing", "entries", "unseen")
"""Keys of evidence that say how many messages are at stake, the best first."""
_REBUILD = "rebuild the index with: pulsar-admin store index --rebuild"


class Evidence(Struct, frozen=True):
    """One place where a rule applies: the place, the sentence, and the evidence, names and numbers by key as JSON values.

    ``where``: "" for the place of the facts that the rule looks at.
    ``values`` fill the placeholders of the rule's command; ``bytes`` and ``messages``, ``entries`` or ``missing`` are at stake.
    ``hint``: what to do, if the store's state decides it; "" if the rule's own advice applies.
    ``severity``: if it differs from the rule's. ``mend``: the command, if it differs from the rule's; "" for none.
    """

    where: str
    sentence: str
    values: Mapping[str, object] = field(default_factory=dict)
    hint: str = ""
    severity: Severity | None = None
    mend: str | None = None


here = partial(Evidence, "")
"""Makes evidence at the place of the facts that the rule looks at."""

Holds = Callable[[Facts], Iterator[Evidence]]
"""Facts → evidence, one for each place."""


def _swept(facts: object) -> Iterator[Evidence]:
    """Return no evidence: a ``Sweep`` judges the rule together with others."""
    return iter(())


class Rule(Struct, Generic[Facts], frozen=True):
    """One thing that can be wrong: a row of the table. ``code`` never changes.

    ``means``: what the fault is and what shows it; ``broker``: what Pulsar and BookKeeper do (4.0.8); ``how`` and ``prevent``: in words;
    ``mend``: the command, with ``{keys}`` of the evidence in it, and ``{base}``: the topic, for a partition the partitioned topic.
    ``leads``: it may cause other findings, so it comes first.
    A rule for a single subscription (``topics why``) has only a title, and a command if that is always the same.

    ``holds``: facts → evidence, one for each place. ``loss``: the data lost while the fault lasts, or by the repair; "" for nothing.
    ``scope``: "store" for our own rows, "data" for damaged or inconsistent data of Pulsar, "use" if nothing is damaged (a clock, a quota,
    an acknowledgement): ``store check`` reports the first two, ``doctor`` all. ``of_disks``: the rule reads bookies' own files, which an
    incident bundle does not have. ``repair``: "index" if ``store index --rebuild`` repairs it, otherwise "". ``needs``: the name of a
    cheap fact of a topic without which the rule cannot apply, so that most topics are not examined in detail.
    """

    JSON_HIDDEN = ("leads", "holds", "loss", "scope", "of_disks", "repair", "needs")

    code: str
    severity: Severity
    title: str
    means: str = ""
    broker: str = ""
    mend: str = ""
    how: str = ""
    prevent: str = ""
    leads: bool = False
    holds: Holds[Facts] = _swept
    loss: str = ""
    scope: str = "data"
    of_disks: bool = False
    repair: str = ""
    needs: str = ""

    def __call__(self, holds: Holds[Facts]) -> Holds[Facts]:
        """Have the rule hold where the decorated function finds evidence."""
        force_setattr(self, "holds", holds)
        return holds

    def text(self) -> str:
        """Return the rule as text for a terminal, with every part."""
        parts = (
            (f"{self.code} ({self.severity}): {self.title}", _wrapped(self.means)),
            ("What a broker does", _wrapped(self.broker)),
            ("Can be lost", _wrapped(self.loss)),
            # The command in one line, to be pasted.
            ("Repair", f"{_wrapped(self.how)}\n  {self.command({})}".lstrip("\n")),
            ("Prevent", _wrapped(self.prevent)),
        )
        return "\n\n".join(f"{title}\n{text}" for title, text in parts if text.strip()) + f"\n\nSee {self.page}"

    @property
    def page(self) -> str:
        """The section of the documentation."""
        return f"docs/doctor/{self.code}.md"

    def command(self, values: Mapping[str, object]) -> str:
        """Return the rule's command with ``values`` filled in; a placeholder without a value stays, in capitals."""

        def filled(place: re.Match[str]) -> str:
            key = place[1]
            if key == "base":
                return shell_word(parse_topic(str(values["topic"])).base) if "topic" in values else "TOPIC"
            if key not in values:
                return re.sub(r"(?<!^)([A-Z])", r"-\1", key).upper()
            value = values[key]
            return " ".join(shell_word(str(one)) for one in (value if isinstance(value, (list, tuple)) else [value]))

        return _PLACE.sub(filled, self.mend)

    def mend_of(self, evidence: Evidence, **more: str) -> str:
        """Return the command that repairs what ``evidence`` shows. ``more``: values in addition to the evidence's."""
        if evidence.mend is not None:
            return evidence.mend
        return self.command({**more, **evidence.values, "where": evidence.where})

    def judge(self, facts: Facts) -> Iterator[Finding]:
        """Yield the findings of the rule."""
        for evidence in self.holds(facts):  # not before the first is asked for: who asks meets what cannot be read
            yield self.found(evidence)

    def at(self, where: str, sentence: str, hint: str = "", mend: str | None = None, /, **values: object) -> Finding:
        """Return the finding at a place, as a ``Sweep`` yields it."""
        return self.found(Evidence(where, sentence, values, hint, mend=mend))

    def of(self, error: StoreError, where: str, mend: str | None = None, /, **values: object) -> Finding:
        """Return the finding for ``error`` at a place; ``values`` are added to those of the error."""
        return self.at(where, error.message, error.hint, mend, **{**error.context, **values})

    def found(self, evidence: Evidence) -> Finding:
        """Return what ``evidence`` shows as a finding."""
        values = evidence.values
        size, messages = values.get("bytes"), next((values[key] for key in _MESSAGES if key in values), 0)
        mend = self.mend_of(evidence)
        repair = _REBUILD if self.repair else f"{self.how.removesuffix('.')}: {mend}"
        return Finding(
            severity=evidence.severity or self.severity,
            code=self.code,
            where=evidence.where,
            message=evidence.sentence,
            evidence=dict(values),
            at_stake_bytes=size if isinstance(size, int) else 0,
            at_stake_messages=messages if isinstance(messages, int) else 0,
            broker=self.broker,
            mend=mend,
            page=self.page,
            scope=self.scope,
            hint=evidence.hint or repair,
            repair=self.repair,
        )


def _wrapped(text: str) -> str:
    return "\n".join(
        "\n".join(wrap(line, 78, initial_indent="  ", subsequent_indent="  ")) for line in text.splitlines()
    )


class Rules(list[Rule[Facts]], Generic[Facts]):
    """A part of the table: its rows in the order of their findings; ``scope``: that of each row."""

    def __init__(self, scope: str = "data") -> None:
        self._scope = scope

    def row(
        self,
        code: str,
        severity: Severity,
        title: str,
        means: str = "",
        broker: str = "",
        mend: str = "",
        how: str = "",
        prevent: str = "",
        *,
        leads: bool = False,
        loss: str = "",
        scope: str = "",
        of_disks: bool = False,
        repair: str = "",
        needs: str = "",
    ) -> Rule[Facts]:
        """Add the ``Rule`` of these parts, which decorates the function that finds its evidence, if no ``Sweep`` judges it."""
        texts = (code, severity, title, means, broker, mend, how, prevent)
        rule: Rule[Facts] = Rule(*texts, leads, _swept, loss, scope or self._scope, of_disks, repair, needs)
        self.append(rule)
        return rule


class Sweep(Rules[Any], Generic[Facts]):  # Any: also rules of topics
    """Rules that one pass over many rows judges together. ``what``: the rows, in words."""

    judge: Callable[[Facts], Iterator[Finding]]

    def __init__(self, what: str, scope: str = "data") -> None:
        super().__init__(scope)
        self.what = what

    def by(self, judge: Callable[[Facts], Iterator[Finding]]) -> Callable[[Facts], Iterator[Finding]]:
        """Have the decorated function judge the rules."""
        self.judge = judge
        return judge


def each_subscription(holds: Holds[SubscriptionFacts]) -> Holds[TopicFacts]:
    """Return a condition on topics: the evidence of ``holds`` for each subscription of a topic, with the subscription's name."""

    def of_topic(facts: TopicFacts) -> Iterator[Evidence]:
        for one in facts.subscriptions:
            for evidence in holds(one):
                yield _named(evidence, one.where, subscription=one.cursor.name)

    return of_topic


def of_topic(rule: Rule[TopicFacts]) -> Rule[TopicFacts]:
    """Return ``rule`` with the topic in its evidence."""

    def holds(facts: TopicFacts) -> Iterator[Evidence]:
        for evidence in rule.holds(facts):
            yield _named(evidence, facts.where, topic=facts.where)

    return replace(rule, holds=holds)


def of_subscriptions(rule: Rule[SubscriptionFacts]) -> Rule[TopicFacts]:
    """Return ``rule`` as a rule about topics: it holds for a topic if it holds for one of its subscriptions."""
    return cast("Rule[TopicFacts]", replace(cast("Rule[Any]", rule), holds=each_subscription(rule.holds)))


def first_of(items: Iterable[_Item], most: int = 10) -> list[_Item]:
    """Return the first items, as many as evidence names."""
    return list(items)[:most]


def _named(evidence: Evidence, where: str, **whose: str) -> Evidence:
    return replace(evidence, where=evidence.where or where, values=whose | dict(evidence.values))
