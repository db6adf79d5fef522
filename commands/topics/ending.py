"""``topics terminate``, ``trim-topic``, ``truncate`` and ``delete``, spelled as upstream spells them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from commands.topics.moving import read_lines
from pulsar_admin.context import App
from pulsar_admin.upstream import mirrored
from store.changes.ending import (
    check_deletable,
    partitions_to_delete,
    plan_delete,
    plan_terminate,
    plan_trim,
    plan_truncate,
    terminal_position,
)
from store.changes.topic_policies import forget_policies
from store.db.environment import Txn
from store.errors import InvalidValue, Refused, StalePlan, TopicNotFound
from store.model.partitions import check_partitioned, existing_partitions
from store.model.reader import EntryReader
from store.model.topics import expand_topic, iter_topics, read_topic
from store.names import TopicName, parse_topic

_NOTHING = "Nothing, like pulsar-admin; the change, what a broker then deletes, and the undo command are on stderr."
_DELETES = {
    "force": "Also where parts of its metadata cannot be read: what they name stays.",
    "delete_schema": "Accepted and ignored: the schema always goes, as with a broker.",
}


@dataclass(frozen=True, slots=True)
class Deleting:
    """What a command deletes: topics, and of BASES the records of partitions, schemas and policies."""

    command: str
    names: Sequence[TopicName]
    bases: Sequence[TopicName]
    force: bool


@mirrored(
    "topics terminate",
    changes=True,
    writes_first=True,
    examples=["pulsar-admin topics terminate public/default/plain"],
    output="The position of the last entry, in a sentence.",
    errors=[TopicNotFound, Refused, StalePlan],
)
def terminate(app: App, topic: TopicName) -> None:
    """Terminate a topic: no more messages can be added."""
    with app.session.reader() as reader:
        end = terminal_position(read_topic(reader.txn, topic))
        plan = plan_terminate(reader, "topics terminate", [topic], app.now_ms)
    app.change(plan)
    app.answer_change(f"Topic successfully terminated at {end}:-1")


@mirrored(
    "topics partitioned-terminate",
    changes=True,
    writes_first=True,
    examples=["pulsar-admin topics partitioned-terminate acme/orders/parts"],
    output="A sentence a partition, with the position of its last entry.",
    errors=[TopicNotFound, Refused, StalePlan],
)
def partitioned_terminate(app: App, topic: TopicName) -> None:
    """Terminate all partitions of a topic: no more messages can be added."""
    with app.session.reader() as reader:
        names = existing_partitions(reader.txn, check_partitioned(reader.txn, topic))
        ends = {name: terminal_position(read_topic(reader.txn, name)) for name in names}
        plan = plan_terminate(reader, "topics partitioned-terminate", names, app.now_ms)
    app.change(plan)
    app.answer_change([f"Topic {name} successfully terminated at {end}:-1" for name, end in ends.items()])


@mirrored(
    "topics trim-topic",
    changes=True,
    writes_first=True,
    examples=["pulsar-admin topics trim-topic public/default/plain"],
    output=_NOTHING,
    errors=[TopicNotFound, StalePlan],
)
def trim(app: App, topic: TopicName) -> None:
    """Delete the ledgers of a topic that every subscription has consumed and retention does not keep, except the last
    one.
    """
    with app.session.reader() as reader:
        plan = plan_trim(reader, expand_topic(reader.txn, topic), app.now_ms)
    app.change(plan)


@mirrored(
    "topics truncate",
    changes=True,
    writes_first=True,
    examples=["pulsar-admin topics truncate public/default/plain"],
    output=_NOTHING,
    errors=[TopicNotFound, StalePlan],
)
def truncate(app: App, topic: TopicName) -> None:
    """Move every subscription of a topic to its end and delete its ledgers except the last one, regardless of
    retention.
    """
    with app.session.reader() as reader:
        plan = plan_truncate(reader, expand_topic(reader.txn, topic), app.now_ms)
    app.change(plan)


@mirrored(
    "topics delete",
    changes=True,
    writes_first=True,
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
    with app.session.reader() as reader:
        names = read_lines(Path(topic)) if from_file else _matching(reader.txn, topic) if r else [topic]
        found = list(app.each(names, lambda name: check_deletable(reader.txn, parse_topic(name), force=force)))
        bases = [name for name in found if name.partition_index < 0]
        _delete(app, reader, Deleting("topics delete", found, bases, force))


@mirrored(
    "topics delete-partitioned-topic",
    changes=True,
    writes_first=True,
    examples=["pulsar-admin topics delete-partitioned-topic acme/orders/parts"],
    output=_NOTHING,
    errors=[TopicNotFound, Refused, StalePlan],
    helps=_DELETES,
)
def delete_partitioned(app: App, topic: TopicName, force: bool, delete_schema: bool) -> None:
    """Delete a partitioned topic and its partitions with their subscriptions, ledgers, schema and policies.

    Undo restores all of it until it is exported.
    """
    with app.session.reader() as reader:
        names = partitions_to_delete(reader.txn, topic)
        _delete(app, reader, Deleting("topics delete-partitioned-topic", names, [topic], force))


def _matching(txn: Txn, expression: str) -> list[str]:
    """Return the topics in the namespace of EXPRESSION that it matches whole, as upstream's ``topics list`` names them."""
    base = parse_topic(expression)
    found = (str(name) for name in iter_topics(txn, base.namespace) if not name.is_system)
    return [name for name in found if re.fullmatch(str(base), name)]


def _delete(app: App, reader: EntryReader, job: Deleting) -> None:
    plan = plan_delete(reader, job.command, job.names, job.bases, app.now_ms, force=job.force)
    app.change(forget_policies(reader.txn, plan, job.bases, app.now_ms, app.settings.interceptors, force=job.force))
