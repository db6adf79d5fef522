"""Why a subscription stands where it does: the rules of subscriptions (``store.rules.subscriptions``) on its facts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pulsar_admin.store.facts.topics import ReadBudget, SubscriptionFacts, TopicFacts
from pulsar_admin.store.model.cursors import Cursor, read_topic_cursor
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.topics import Topic
from pulsar_admin.store.names import TopicName
from pulsar_admin.store.rules.backlogs import CHUNK_RULES, MARKER_RULES
from pulsar_admin.store.rules.subscriptions import STOPPING_RULES, SUBSCRIPTION_RULES
from pulsar_admin.store.wording import Answer


class Reason(Answer, frozen=True):
    """Why. ``evidence``: the figures that the sentence is made of; ``command``: what to type next, empty where nothing is to be done.

    ``code``: of a row of ``store.rules.subscriptions``, or of ``store.rules.holders``.
    """

    SHOWN = ("code", "sentence")

    code: str
    sentence: str
    evidence: Mapping[str, Any]  # Any: JSON values
    command: str = ""


class Why(Answer, frozen=True):
    """The answer: reasons, the first one first. ``held``: whether something in the store holds the subscription where it stands."""

    topic: TopicName
    subscription: str
    held: bool
    reasons: tuple[Reason, ...]


def why_subscription(reader: EntryReader, topic: Topic, cursor: Cursor, now_ms: int) -> Why:
    """Return why ``cursor`` of ``topic`` stands where it does; reads the headers of its backlog.

    Raises SourceChanged, EntryLogCorrupt, MetadataCorrupt.
    """
    facts = SubscriptionFacts(TopicFacts(reader, topic, None, now_ms, ReadBudget(unlimited=True)), cursor)
    matches = [(rule, evidence) for rule in SUBSCRIPTION_RULES for evidence in rule.holds(facts)]
    reasons = []
    for rule, evidence in matches:
        text, command = (
            evidence.sentence,
            evidence.hint or rule.mend_of(evidence, topic=facts.of.where, subscription=cursor.name),
        )
        sentence = text if text.endswith(".") else f"{text[:1].upper()}{text[1:]}."  # of the doctor's rows
        reasons.append(Reason(rule.code, sentence, dict(evidence.values), command))
    return Why(topic.name, cursor.name, any(rule in STOPPING_RULES for rule, _ in matches), tuple(reasons))


def why_nothing_is_given(reader: EntryReader, name: TopicName, subscription: str, now_ms: int) -> tuple[str, ...]:
    """Return why a backlog has no message for a client although it has entries, without reading a long one; () if unknown.

    Raises TopicNotFound, SubscriptionNotFound, MetadataCorrupt.
    """
    topic, cursor = read_topic_cursor(reader, name, subscription)
    facts = SubscriptionFacts(TopicFacts(reader, topic, None, now_ms), cursor)
    return tuple(evidence.sentence for rule in (*CHUNK_RULES, *MARKER_RULES) for evidence in rule.holds(facts))
