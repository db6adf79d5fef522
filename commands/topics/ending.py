"""``topics terminate``, ``trim-topic``, ``truncate`` and ``delete``, spelled as upstream spells them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from pulsar_admin.commands.topics.moving import read_lines
from pulsar_admin.context import App
from pulsar_admin.store.errors import InvalidValue, Refused, StalePlan, TopicNotFound
from pulsar_admin.store.names import TopicName, parse_topic
from pulsar_admin.upstream import mirrored

if TYPE_CHECKING:
    from pulsar_admin.api.plan import Plan

_NOTHING = "Nothing, like pulsar-admin; the change, what a broker then deletes, and the undo command are on stderr."
_DELETES = {
    "force": "Also a log of transactions, and where parts of its metadata cannot be read: what they name stays.",
    "delete_schema": "Accepted and ignored: the schema always goes, as with a broker.",
}


@mirrored(
    "topics terminate",
    changes=True,
    examples=["pulsar-admin topics terminate public/default/plain"],
    output="The position of the last entry, in a sentence.",
    errors=[TopicNotFound, Refused, StalePlan],
)
def terminate(app: App, topic: TopicName) -> None:
    """Terminate a topic: no more messages can be added."""
    plan = app.session.topic(topic).terminate()
    ((_, end),) = _ends(plan)
    app.change(plan)
    app.answer_change(f"Topic successfully terminated at {end}:-1")


@mirrored(
    "topics partitioned-terminate",
    changes=True,
    examples=["pulsar-admin topics partitioned-terminate acme/orders/parts"],
    output="A sentence a partition, with the position of its last entry.",
    errors=[TopicNotFound, Refused, StalePlan],
)
def partitioned_terminate(app: App, topic: TopicName) -> None:
    """Terminate all partitions of a topic: no more messages can be added."""
    plan = app.session.topic(topic).terminate(partitioned=True)
    ends = _ends(plan)
    app.change(plan)
    app.answer_change([f"Topic {name} successfully terminated at {end}:-1" for name, end in ends])


def _ends(plan: Plan) -> list[tuple[str | None, str]]:
    return [(part.topic, (part.after or {})["terminatedPosition"]) for part in plan.preview().parts]


@mirrored(
    "topics trim-topic",
    changes=True,
    examples=["pulsar-admin topics trim-topic public/default/plain"],
    output=_NOTHING,
    errors=[TopicNotFound, StalePlan],
)
def trim(app: App, topic: TopicName) -> None:
    """Delete the ledgers of a topic that every subscription has consumed and retention does not keep, except the last
    one.
    """
    app.change(app.session.topic(topic).trim())


@mirrored(
    "topics truncate",
    changes=True,
    examples=["pulsar-admin topics truncate public/default/plain"],
    output=_NOTHING,
    errors=[TopicNotFound, Refused, StalePlan],
)
def truncate(app: App, topic: TopicName) -> None:
    """Move every subscription of a topic to its end and delete its ledgers except the last one, regardless of
    retention.
    """
    app.change(app.session.topic(topic).truncate())


@mirrored(
    "topics delete",
    changes=True,
    texts=["topic"],
    examples=["pulsar-admin topics delete public/default/plain", "pulsar-admin topics delete -r 'public/default/.*'"],
    output=_NOTHING,
    errors=[TopicNotFound, Refused, InvalidValue, StalePlan],
    helps={
        **_DELETES,
        "r": "TOPIC is an expression that full names in its namespace match.",
        "from_file": "TOPIC is a file of names, one a line.",
    },
)
def delete(app: App, topic: str, force: bool, delete_schema: bool, r: bool, from_file: bool) -> None:
    """Delete a topic with its subscriptions, ledgers, schema and policies.

    Undo restores all of it until it is exported. Several topics are one change.
    """
    if r and from_file:
        raise InvalidValue("Could not apply regex when read topics from file.")
    names = read_lines(Path(topic)) if from_file else _matching(app, topic) if r else [topic]
    app.change(app.session.api.delete_topics(*names, force=force))


@mirrored(
    "topics delete-partitioned-topic",
    changes=True,
    examples=["pulsar-admin topics delete-partitioned-topic acme/orders/parts"],
    output=_NOTHING,
    errors=[TopicNotFound, Refused, StalePlan],
    helps=_DELETES,
)
def delete_partitioned(app: App, topic: TopicName, force: bool, delete_schema: bool) -> None:
    """Delete a partitioned topic and its partitions with their subscriptions, ledgers, schema and policies.

    Undo restores all of it until it is exported.
    """
    app.change(app.session.api.delete_topics(str(topic), partitioned=True, force=force))


def _matching(app: App, expression: str) -> list[str]:
    """Return the topics in the namespace of EXPRESSION that it matches whole, as upstream's ``topics list`` names them."""
    base = parse_topic(expression)
    return [name for name in app.session.api.topics(str(base.namespace)) if re.fullmatch(str(base), name)]
