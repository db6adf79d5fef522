"""A topic: where a time is in it, its statistics, cursors, schemas, policies, compacted view, and plans that change them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack

from pulsar_admin import arguments
from pulsar_admin.api.plan import Plan, Planner, plan_of
from pulsar_admin.api.session import Session
from pulsar_admin.arguments import Clock, Count, Duration, JavaInt, LedgerId, Place, Time
from pulsar_admin.later import later
from pulsar_admin.store.codec.managedledger import SHADOW_SOURCE, managed_ledger_text
from pulsar_admin.store.db.tree import read_node
from pulsar_admin.store.errors import InvalidValue, NothingMatches, Refused, StoreError, reason_of
from pulsar_admin.store.files import read_file
from pulsar_admin.store.model import topics
from pulsar_admin.store.model.broken_beside import find_broken_beside
from pulsar_admin.store.names import (
    EARLIEST,
    LATEST,
    LONG_MAX,
    PERSISTENT,
    Position,
    TopicName,
    TopicSelection,
    shell_word,
)
from pulsar_admin.store.wording import Answer

if TYPE_CHECKING:
    import pyarrow as pa

    from pulsar_admin.api.cursors import Cursor
    from pulsar_admin.api.messages import Messages, Most, WantedMessages
    from pulsar_admin.api.pending import Delayed, TopicTransactions
    from pulsar_admin.store.changes import deleting as deleting
    from pulsar_admin.store.changes import policies as policy_changes
    from pulsar_admin.store.changes import resources as resource_changes
    from pulsar_admin.store.changes import schemas as schema_changes
    from pulsar_admin.store.changes import topics as topic_changes
    from pulsar_admin.store.changes.plan import ChangeKind, ChangeReport
    from pulsar_admin.store.changes.plan import Plan as StorePlan
    from pulsar_admin.store.changes.policies import PolicyJob
    from pulsar_admin.store.changes.resources import Grant
    from pulsar_admin.store.changes.schemas import NewSchema
    from pulsar_admin.store.codec.policies import PartitionedTopic, Policies
    from pulsar_admin.store.codec.schema import SchemaLocator
    from pulsar_admin.store.compaction.forms import Verification
    from pulsar_admin.store.compaction.last_id import LastId
    from pulsar_admin.store.compaction.occurrences import KeyHistory
    from pulsar_admin.store.compaction.reading import FoundInView
    from pulsar_admin.store.compaction.status import CompactionStatus
    from pulsar_admin.store.db.environment import Store as StoreFile
    from pulsar_admin.store.db.environment import Txn
    from pulsar_admin.store.dump.find_by_time import FindRule, FoundEntry, TimeQuestion
    from pulsar_admin.store.model.compacted_view import CompactedView
    from pulsar_admin.store.model.messages import LastMessageId
    from pulsar_admin.store.model.reader import EntryReader
    from pulsar_admin.store.nacks.holes import TopicNacks
    from pulsar_admin.store.policies import values as policy_values
    from pulsar_admin.store.policies.in_force import PoliciesInForce
    from pulsar_admin.store.policies.places import Options
    from pulsar_admin.store.policies.table import Policy
    from pulsar_admin.store.reports.describe import TopicDescription
    from pulsar_admin.store.reports.internal_info import InternalInfo
    from pulsar_admin.store.reports.internal_stats import InternalStats, PartitionedInternalStats
    from pulsar_admin.store.reports.stats import PartitionedTopicStats, TopicStats
    from pulsar_admin.store.reports.subscriptions import SubscriptionFacts
    from pulsar_admin.store.search.broker_setup import BrokerVersion
    from pulsar_admin.store.search.by_index import IndexFound
    from pulsar_admin.store.search.skew import TopicSkew
else:
    deleting = later("pulsar_admin.store.changes.deleting")
    policy_changes = later("pulsar_admin.store.changes.policies")
    resource_changes = later("pulsar_admin.store.changes.resources")
    schema_changes = later("pulsar_admin.store.changes.schemas")
    topic_changes = later("pulsar_admin.store.changes.topics")
    policy_values = later("pulsar_admin.store.policies.values")


QuotaKind = Literal["destination_storage", "message_age"]
QuotaPolicy = Literal["producer_request_hold", "producer_exception", "consumer_backlog_eviction"]


class PolicyPlans(Planner, ABC):
    """What has policies. Where a topic sets none, those of its namespace count, else a broker's configuration."""

    _group: str

    @abstractmethod
    def _plan_policy(self, job: PolicyJob) -> Plan:
        """Return the plan of a policy job."""

    def set_policy(self, name: str, value: Any) -> Plan:  # Any: JSON
        """Plan setting a policy to JSON as upstream stores it, None: removing it; raises InvalidValue for what upstream refuses."""
        return self._plan_policy(policy_changes.PolicyJob(f"{self._group} set-{name}", self._settable(name), value))

    def remove_policy(self, name: str) -> Plan:
        """Plan removing the policy ``name``: the namespace's or the broker's applies again. Raises InvalidValue."""
        return self._plan_policy(policy_changes.PolicyJob(f"{self._group} remove-{name}", self._settable(name)))

    def _settable(self, name: str) -> Policy:
        policy = policy_named(name, self._group)
        if policy.name == "backlog-quota":  # one of each kind
            raise InvalidValue(f"{name}: which kind?", hint="call set_backlog_quota() or remove_backlog_quota()")
        return policy

    def set_message_ttl(self, ttl: Duration | None) -> Plan:
        """Plan setting how long messages live, in whole seconds, 0: unlimited; or with None removing that. Raises InvalidValue."""
        return (
            self.remove_policy("message-ttl")
            if ttl is None
            else self._set("message-ttl", {"ttl": arguments.duration_ms(ttl)})
        )

    def set_retention(self, *, time: Duration | None, size: int | str | None) -> Plan:
        """Plan retaining consumed messages for a time and up to a size (bytes, or ``10G``); None: unlimited.

        Stored in whole minutes and MB, rounded down. Raises InvalidValue.
        """
        return self._set(
            "retention", {"time": -1 if time is None else arguments.duration_ms(time), "size": _size_bytes(size)}
        )

    def remove_retention(self) -> Plan:
        """Plan removing the retention: the namespace's or the broker's applies again."""
        return self.remove_policy("retention")

    def set_backlog_quota(
        self,
        policy: QuotaPolicy,
        *,
        size: int | str | None = None,
        time: Duration | None = None,
        kind: QuotaKind = "destination_storage",
    ) -> Plan:
        """Plan setting a backlog quota: the action beyond ``size`` (bytes, or ``10G``) or ``time``; None: no limit. Raises InvalidValue."""
        limits = {
            "limit": None if size is None else _size_bytes(size),
            "limit_time": None if time is None else arguments.duration_ms(time),
        }
        return self._set("backlog-quota", {**limits, "policy": policy, "type_": kind})

    def remove_backlog_quota(self, kind: QuotaKind = "destination_storage") -> Plan:
        """Plan removing a backlog quota."""
        return self.plan_policy(f"{self._group} remove-backlog-quota", "backlog-quota", {"type_": kind})

    def set_delayed_delivery(self, *, active: bool, tick: Duration = "1s", max_delay: Duration = "0") -> Plan:
        """Plan setting the policy of delayed messages; a ``max_delay`` of 0 is unlimited. Raises InvalidValue."""
        times = {"time": arguments.duration_ms(tick), "max_delay": arguments.duration_ms(max_delay)}
        return self._set("delayed-delivery", {"enable": active, "disable": not active, **times})

    def remove_delayed_delivery(self) -> Plan:
        """Plan removing the delayed delivery policy: the namespace's or the broker's applies again.

        For a namespace, the widths of the delayed-message index are removed as well.
        """
        return self.remove_policy("delayed-delivery")

    def plan_policy(self, command: str, name: str, options: Options) -> Plan:
        """Plan what a command (``topics set-retention``) does to a policy.

        Options are upstream's by their longest names in snake case, times in ms and sizes in bytes. Raises
        InvalidValue.
        """
        policy_named(name, self._group)
        _check_options(command, options)
        try:
            job = policy_changes.policy_job(command, name, options)
        except (
            AttributeError,
            LookupError,
            TypeError,
            ValueError,
        ) as error:  # on the command line a required option is missing
            raise InvalidValue(
                f"{command} does not take {options!r}", hint=f"see: pulsar-admin {command} --help"
            ) from error
        return self._plan_policy(job)

    def _set(self, name: str, options: Options) -> Plan:
        return self._plan_policy(policy_changes.policy_job(f"{self._group} set-{name}", name, options))


_KINDS: Mapping[str, tuple[type, ...]] = {
    "boolean": (bool,),
    "double": (int, float),
    "List": (list, tuple),
    **dict.fromkeys(("int", "Integer", "long", "Long"), (int,)),
}
"""What values of upstream's options are, by their types in Java; of all others: texts, and what the command line makes of them."""


def _check_options(command: str, options: Options) -> None:
    """Raise InvalidValue for options that the command does not have, or of another type."""
    from pulsar_admin.upstream_list import name_of, upstream_commands

    row = upstream_commands().get(command)
    if row is None:
        raise InvalidValue(f"{command} is no command of pulsar-admin", value=command)
    kinds = {name_of(option["names"]): _KINDS.get(option["type"], (str, int)) for option in row.get("options", ())}
    for name, value in options.items():
        if name not in kinds:
            raise InvalidValue(f"{command} has no option {name!r}", hint=f"it has: {', '.join(kinds)}", value=name)
        is_flag = isinstance(value, bool)
        if value is not None and (not isinstance(value, kinds[name]) or is_flag != (kinds[name] == (bool,))):
            raise InvalidValue(
                f"{command} does not take {value!r} as {name}", hint=f"see: pulsar-admin {command} --help"
            )


def policy_named(name: str, group: str) -> Policy:
    """Return a policy of ``group``, ``namespaces`` or ``topics``; raises InvalidValue for an unknown name."""
    from pulsar_admin.store.policies.table import POLICIES, policies_by_name

    def is_known(policy: Policy) -> bool:
        return (policy.namespace if group == "namespaces" else policy.topic) is not None

    policy = policies_by_name().get(arguments.given_text("policy", name))
    if policy is None or not is_known(policy):
        names = ", ".join(one.name for one in POLICIES if is_known(one))
        raise InvalidValue(f"no policy of {group} is called {name}", hint=f"there are {names}", value=name)
    return policy


def _size_bytes(value: int | str | None) -> int:
    from pulsar_admin.store.timespec import parse_size_bytes

    if value is None:
        return -1
    return parse_size_bytes(value) if isinstance(value, str) else arguments.whole_number("size", value, -1, LONG_MAX)


class PolicyValue(Answer, frozen=True):
    """What a topic has of a policy, JSON as upstream stores it, and where that is set: ``source`` is None where it is not."""

    topic: str
    policy: str
    value: Any
    source: str | None


class TopicPolicies(PolicyPlans):
    """The policies of several topics, each as a whole. Methods that change them return one plan for all, for ``Store.apply``.

    All methods raise TopicNotFound, MetadataCorrupt, and InvalidValue for a partition; plans also Refused (a system topic).
    """

    _group = "topics"

    def __init__(self, session: Session, selection: TopicSelection) -> None:
        self._session = session
        self._selection = selection

    def values(
        self, name: str, *, applied: bool = False, subscription: str | None = None, global_: bool = False
    ) -> tuple[PolicyValue, ...]:
        """Return a policy's values in the topics: their own, or ``applied``: those in force.

        ``subscription`` selects those of one subscription; ``global_`` those shared by all clusters. Raises
        InvalidValue.
        """
        policy = policy_named(name, "topics")
        options = {"applied": applied, "subscription": subscription, "global_": global_}
        with self._session.read() as txn:
            names = self._names(txn)
            return tuple(
                PolicyValue(str(one), name, *policy_values.sourced_value(txn, one, policy, options)) for one in names
            )

    def answers(
        self, name: str, *, applied: bool = False, subscription: str | None = None, global_: bool = False
    ) -> tuple[Any, ...]:  # Any: JSON
        """Return the ``values`` alone; ``applied``: as upstream's brokers answer, which know no policies of all clusters."""
        policy = policy_named(name, "topics")
        options = {"applied": applied, "subscription": subscription, "global_": global_}
        read = policy_values.applied_value if applied else policy_values.own_value
        with self._session.read() as txn:
            return tuple(read(txn, one, policy, options) for one in self._names(txn))

    def remove_policies(self) -> Plan:
        """Plan removing all policies, global ones included, also of topics that no longer exist."""
        from pulsar_admin.store.changes.topic_policies import plan_delete

        broker = self._session.interceptors
        return self._planned_rows(
            lambda txn, now_ms: plan_delete(txn, self._selection.topics or self._names(txn), now_ms, broker)
        )

    def _plan_policy(self, job: PolicyJob) -> Plan:
        from pulsar_admin.store.changes.topic_policies import plan_changes

        broker = self._session.interceptors
        return self._planned(
            lambda reader, now_ms: plan_changes(reader.txn, self._names(reader.txn), job, now_ms, broker)
        )

    def _names(self, txn: Txn) -> list[TopicName]:
        for name in self._selection.topics:
            if name.domain != PERSISTENT:
                raise Refused(
                    f"{name} is no persistent topic: policies of its own are not known here",
                    hint=f"those of its namespace apply to it: pulsar-admin namespaces policies {shell_word(name.namespace)}",
                    topic=str(name),
                )
            if name != name.base:
                raise InvalidValue("Not allowed to set/get topic policy for a partition", value=str(name))
        chosen = (name for name in topics.select_topics(txn, self._selection) if name.domain == PERSISTENT)
        return list(dict.fromkeys(name.base for name in chosen))


class Topic(PolicyPlans):
    """A topic, one partition, or a partitioned topic as a whole. Nothing is read before a method is called.

    Methods raise TopicNotFound for a topic that was deleted, and for a partitioned one if each partition has an answer of its own.
    Policies belong to the topic as a whole. Plans that change them raise MetadataCorrupt, Refused (a system topic).
    """

    _group = "topics"

    def __init__(self, session: Session, name: TopicName) -> None:
        self._session = session
        self._name = name

    @property
    def name(self) -> str:
        """The full name, ``persistent://tenant/namespace/topic``."""
        return str(self._name)

    def partitions(self) -> tuple[Topic, ...]:
        """Return the partitions of a partitioned topic, none of any other."""
        with self._session.reader() as reader:
            count = topics.partition_count(reader.txn, self._name)
        return tuple(Topic(self._session, self._name.partition(index)) for index in range(count))

    def partitioned_metadata(self) -> PartitionedTopic:
        """Return how many partitions it has (0: it is not partitioned), whether it is deleted, its properties.

        Raises TopicNotFound, MetadataCorrupt.
        """
        return self._session.ask(topics.read_existing, self._name)

    def shadow_source(self) -> str | None:
        """Return the topic whose entries it shows, None: it is no shadow topic. Raises TopicNotFound."""
        return self.properties().get(SHADOW_SOURCE)

    # -- reading ------------------------------------------------------------------------------------------------------

    def find(
        self,
        time: Time,
        *,
        clock: Clock = "auto",
        rule: FindRule = "first-at-or-after",
        batch_index: bool = False,
        explain: bool = False,
        broker_version: BrokerVersion | None = None,
    ) -> FoundEntry:
        """Return the first entry at or after ``time`` in topic order, exact even on clocks that run backwards.

        ``rule`` ``all-before`` returns the last entry up to which all are older than the time; ``broker`` the answer of a
        live broker of ``broker_version``. ``batch_index`` names the message in its batch. ``explain`` adds
        the proof, and the broker's answer. ``exact`` of the answer is False if a lost entry could be an earlier one,
        None if that is unknown; for ``broker``, whether a broker is certain to answer this. Raises InvalidValue,
        TopicNotFound (also for a partitioned topic: ask its partitions), and for ``broker`` LedgerNotFound,
        EntryNotFound or EntryCorrupt where a broker fails, NotSeen if its answer is unknown.
        """
        from pulsar_admin.store.dump.find_by_time import TimeQuestion
        from pulsar_admin.store.search.broker_setup import BrokerSetup

        wanted_ms, broker = self._session.time_ms(time), BrokerSetup(self._session.broker_version(broker_version))
        question = TimeQuestion(wanted_ms, clock, rule, broker, batch_index)
        return find_by_time(self._session, self._name, question, explain=explain)

    def find_by_index(self, index: Count) -> IndexFound:
        """Return the entry that covers a message index, which brokers with AppendIndexMetadataInterceptor count
        from 0 (PIP-70).

        ``position``, with its index in a batch, is None if no entry covers ``index``; ``next_index`` is the least one
        after it; ``indexed`` says whether any entry has an index. Raises TopicNotFound, MetadataCorrupt, InvalidValue.
        """
        from pulsar_admin.store.search.by_index import find_by_index

        with self._session.scan() as reader:
            entry = find_by_index(reader, topics.read_topic(reader.txn, self._name), index)
            self._session.warn_of_broken(reader.txn, [self._name])
        return entry

    def nth_position(self, number: int, *, from_end: bool = False) -> Position:
        """Return the position of an entry by its number (from 1), markers included, from the beginning or
        ``from_end``.

        Raises TopicNotFound, NothingMatches (too few entries), InvalidValue.
        """
        from pulsar_admin.store.model.messages import nth_position

        count = arguments.whole_number("number", number, 1)
        with self._session.read() as txn:
            return nth_position(topics.read_topic(txn, self._name), count, from_end=from_end)

    def skew(self, *, tolerance: Duration = "1s", clock: Literal["publish", "broker"] = "publish") -> TopicSkew:
        """Return whose clock is wrong: counts of the topic, ``blame``, and of each of ``producers``, the most wrong
        one first.

        Offsets are publish minus broker time in ms, None without broker times; ``future`` and ``late`` count entries
        off by more than ``tolerance``, ``inversions`` entries before the previous one on ``clock``.
        ``pandas.DataFrame(skew.producers)`` has them as columns. Reads the header of every entry. Raises
        TopicNotFound, InvalidValue.
        """
        (skew,) = skews_of(self._session, [self._name], tolerance, clock)
        return skew

    def timeline(
        self,
        bucket: Duration | None = None,
        *,
        since: Time | None = None,
        until: Time | None = None,
        clock: Literal["auto", "publish", "broker"] = "auto",
    ) -> pa.Table:
        """Return how much arrived in each bucket of time, one row for each bucket with entries: ``start`` (timestamp), ``entries``,
        ``messages``, ``bytes``.

        ``bucket`` is the width (None: chosen from the data), ``start`` a multiple of the width since 1970 UTC. Times from
        ``since`` (included) to ``until`` (excluded) on ``clock``. Raises TopicNotFound, InvalidValue, LimitExceeded
        (too many buckets).
        """
        from pulsar_admin.api.messages import timeline_table

        times = [None if value is None else self._session.time_ms(value) for value in (since, until)]
        width_ms = None if bucket is None else arguments.duration_ms(bucket)
        if width_ms is not None and width_ms <= 0:
            raise InvalidValue(f"bucket {bucket!r} is not above 0")
        return timeline_table(self._session, self._name, clock, width_ms, *times)

    def messages(
        self,
        *,
        since: Time | None = None,
        until: Time | None = None,
        start: Place = EARLIEST,
        end: Place = LATEST,
        clock: Clock = "auto",
        key: str | None = None,
        columns: Sequence[str] | None = None,
        subscription: str | None = None,
        limit: Most = None,
        uncommitted: bool = False,
        markers: bool = False,
    ) -> Messages:
        """Return messages, read during iteration: batches split, chunks joined, payloads decompressed.

        Times from ``since`` (included) to ``until`` (excluded) on ``clock``, positions from ``start`` to ``end`` (both
        included), one ``key``, at most ``limit``. ``columns`` are described at ``Messages``; other columns are not
        decoded. ``subscription`` selects its backlog only. ``uncommitted`` includes messages of open and aborted
        transactions; ``markers`` a broker's own entries. Raises InvalidValue, and when read SubscriptionNotFound.
        """
        from pulsar_admin.api.messages import chosen_columns, messages_of
        from pulsar_admin.store.dump.messages import MessageQuery

        window = self._session.window(since, until, start, end, clock=clock, key=key)
        query = MessageQuery(
            window, chosen_columns(columns), subscription, limit, uncommitted=uncommitted, markers=markers
        )
        return messages_of(self._session, lambda txn: topics.expand_topic(txn, self._name), query, self.name)

    def search(self, **wanted: Unpack[WantedMessages]) -> Messages:
        """Return the messages that match everything wanted, as ``messages`` does; ``WantedMessages`` lists the
        criteria.

        Encrypted or undecodable messages that may match are in ``problems``. Raises InvalidValue.
        """
        from pulsar_admin.api.messages import search_of

        return search_of(self._session, lambda txn: topics.expand_topic(txn, self._name), wanted, self.name)

    @contextmanager
    def _reporting(self, *, partitions: bool = False) -> Iterator[tuple[EntryReader, list[StoreError]]]:
        """Open a reader, and a list for what the answer lacks: at the end that is reported, and broken ledgers of the topic, or of
        its partitions.
        """
        with self._session.reporting() as problems, self._session.reader() as reader:
            yield reader, problems
            names = topics.existing_partitions(reader.txn, self._name) if partitions else [self._name]
            self._session.warn_of_broken(reader.txn, names)

    def stats(self, *, earliest_time: bool = False, backlog_size: bool = True, newer_keys: bool = False) -> TopicStats:
        """Return sizes, backlogs and subscriptions with upstream's names (``backlog_size``,
        ``subscriptions[name].msg_backlog`` …).

        Sizes are bytes. ``earliest_time`` adds the publish time of each backlog's oldest entry; without
        ``backlog_size`` that of each subscription is −1; ``newer_keys`` adds the keys of brokers from 4.1 on. Raises
        TopicNotFound, MetadataCorrupt.
        """
        from pulsar_admin.store.reports.stats import StatsOptions, read_topic_stats

        wanted = StatsOptions(backlog_size, earliest_time, newer_keys)
        with self._reporting() as (reader, problems):
            return read_topic_stats(reader, self._name, wanted, problems=problems)

    def last_message_id(self) -> Position:
        """Return the position of the last message, with its index inside a batch; entry −1 for a topic without one.

        The last entry counts even if it is a marker. Raises TopicNotFound, MetadataCorrupt.
        """
        last = self.last_entry_id()
        return Position(last.ledger_id, last.entry_id, last.batch_index)

    def last_entry_id(self) -> LastMessageId:
        """Return what ``last_message_id`` does with upstream's names, and those of the batch that it is in."""
        from pulsar_admin.store.model.messages import read_last_id

        with self._reporting() as (reader, problems):
            return read_last_id(reader, self._name, problems)

    def partitioned_stats(
        self, *, per_partition: bool = False, earliest_time: bool = False, backlog_size: bool = True
    ) -> PartitionedTopicStats:
        """Return the stats of a partitioned topic, summed over its partitions; ``per_partition`` adds those of each;
        see ``stats``.

        Raises TopicNotFound (also for a topic without partitions), MetadataCorrupt.
        """
        from pulsar_admin.store.reports.stats import StatsOptions, read_partitioned_stats

        wanted = StatsOptions(backlog_size, earliest_time)
        with self._reporting(partitions=True) as (reader, problems):
            name = topics.check_partitioned(reader.txn, self._name)
            return read_partitioned_stats(reader, name, wanted, per_partition=per_partition, problems=problems)

    def internal_stats(self, *, metadata: bool = False, publish_times: bool = True) -> InternalStats:
        """Return ledgers, cursors, schema and compacted ledgers with upstream's names, positions as text.

        ``metadata`` adds each ledger's metadata in BookKeeper; ``publish_times`` its first and last publish time.
        Raises TopicNotFound, MetadataCorrupt.
        """
        from pulsar_admin.store.reports.internal_stats import read_internal_stats

        with self._reporting() as (reader, problems):
            return read_internal_stats(
                reader, self._name, metadata=metadata, publish_times=publish_times, problems=problems
            )

    def partitioned_internal_stats(
        self, *, metadata: bool = False, publish_times: bool = True
    ) -> PartitionedInternalStats:
        """Return the ``internal_stats`` of every partition of a partitioned topic, by their names.

        Raises TopicNotFound (also for a topic without partitions), MetadataCorrupt.
        """
        from pulsar_admin.store.reports.internal_stats import read_partitioned_internals

        with self._reporting(partitions=True) as (reader, problems):
            name = topics.check_partitioned(reader.txn, self._name)
            return read_partitioned_internals(
                reader, name, metadata=metadata, publish_times=publish_times, problems=problems
            )

    def describe(self, *, quick: bool = False) -> TopicDescription:
        """Return size, times, policies with their origins, schema, compaction, facts of every subscription, and
        ledgers.

        Subscriptions have backlog, oldest unacknowledged entry, holes, delayed messages and TTL; ``quick`` reads no
        entries. Raises TopicNotFound (also for a partitioned topic: ask its partitions), MetadataCorrupt.
        """
        from pulsar_admin.store.reports.describe import describe_topic
        from pulsar_admin.store.reports.subscriptions import Asked

        with self._session.reporting() as problems, self._session.scan() as reader:
            description = describe_topic(reader, self._name, Asked.of(self._session.now_ms, quick=quick), problems)
            self._session.warn_of_broken(reader.txn, [self._name])
            return description

    def internal_info(self, *, publish_times: bool = True) -> InternalInfo:
        """Return the stored metadata of the topic and its cursors with upstream's names; a cursor's actual position
        may differ.

        ``publish_times`` adds the first and last publish time of each ledger. Raises TopicNotFound, MetadataCorrupt.
        """
        from pulsar_admin.store.reports.internal_info import read_internal_info

        with self._session.reporting() as problems, self._session.read() as txn:
            return read_internal_info(txn, self._name, publish_times=publish_times, problems=problems)

    def backlog_size(self, position: Place = EARLIEST) -> int:
        """Return the bytes after a position, estimated as the broker does: 0 after the end. Raises InvalidValue, MetadataCorrupt."""
        from pulsar_admin.store.model.cursors import backlog_size_bytes

        place = arguments.position_of(position)
        with self._session.read() as txn:
            topic = topics.read_topic(txn, self._name)
        return topic.total_size_bytes if place == EARLIEST else backlog_size_bytes(topic, place)

    def schemas(self) -> tuple[SchemaVersion, ...]:
        """Return the versions of its schema, oldest first, since the last deletion; raises MetadataCorrupt, EntryCorrupt."""
        from pulsar_admin.store.model.schemas import live_versions

        with self._session.reader() as reader:
            return tuple(
                SchemaVersion(version, entry.type_name, entry.definition, entry.timestamp_ms, entry.properties)
                for version, entry in live_versions(reader, self._name)
            )

    def schema(self, version: int | None = None) -> SchemaVersion:
        """Return a version of the topic's schema, None: the newest; raises NothingMatches if it does not exist, and as ``schemas``."""
        versions = [one for one in self.schemas() if version in (None, one.version)]
        if not versions:
            what = "none" if version is None else f"no version {version}"
            raise NothingMatches(f"Schema not found: {self._name} has {what}", topic=self.name)
        return versions[-1]

    def schema_locator(self) -> SchemaLocator | None:
        """Return where its schema is stored: the ``newest`` version, and ``index`` for all; None if it never had one.

        Raises MetadataCorrupt.
        """
        from pulsar_admin.store.model.schemas import find_locator

        return self._session.ask(find_locator, self._name)

    def policies(self) -> Policies:
        """Return the policies of the topic's own, each None where it sets none; raises MetadataCorrupt."""
        from pulsar_admin.store.codec.policies import Policies
        from pulsar_admin.store.policies.in_force import find_topic_policies

        return self._session.ask(find_topic_policies, self._name) or Policies()

    def policies_in_force(self) -> PoliciesInForce:
        """Return the policies in force and where each is set: ``source`` is topic, global-topic or namespace.

        None: nothing in the store sets it, so a broker's configuration applies. Raises MetadataCorrupt.
        """
        from pulsar_admin.store.policies.in_force import read_in_force

        return self._session.ask(read_in_force, self._name)

    def delayed(self, subscription: str | None = None) -> Delayed:
        """Return the delayed messages of a subscription; None: of one that would be created at the topic's beginning."""
        from pulsar_admin.api.pending import Delayed

        return Delayed(self._session, self._name, subscription)

    def measured_nacks(self, subscription: str | None = None) -> TopicNacks:
        """Return the topic's entries per second, and a subscription's acknowledgement holes, for ``nack_sizes``,
        from the index.

        Raises TopicNotFound (also for a partitioned topic: ask its partitions), SubscriptionNotFound, InvalidValue (no
        times).
        """
        from pulsar_admin.store.model.cursors import read_cursor
        from pulsar_admin.store.nacks.holes import read_topic_nacks

        with self._session.reader() as reader:
            topic = topics.read_topic(reader.txn, self._name)
            cursor = None if subscription is None else read_cursor(reader.txn, reader, topic, subscription)
            return read_topic_nacks(reader.txn, topic, cursor)

    def transactions(self) -> TopicTransactions:
        """Return the transactions that the topic's entries record."""
        from pulsar_admin.api.pending import TopicTransactions

        return TopicTransactions(self._session, self._name)

    def compaction(self) -> Compaction:
        """Return the compacted view of the topic."""
        return Compaction(self._session, self._name)

    def policy(self, name: str) -> Any:  # Any: JSON
        """Return the topic's own policy (``max-producers``, named as in commands), None: unset. Raises InvalidValue."""
        return self._session.ask(policy_values.own_value, self._name, policy_named(name, self._group), {})

    # -- cursors ------------------------------------------------------------------------------------------------------

    def subscriptions(self) -> tuple[str, ...]:
        """Return the names of the subscriptions, sorted; of a partitioned topic those of any partition. Raises TopicNotFound."""
        from pulsar_admin.store.model.cursors import is_subscription, iter_cursor_names

        with self._session.reader() as reader:
            names = {
                name
                for part in topics.expand_topic(reader.txn, self._name)
                for name in iter_cursor_names(reader.txn, part)
                if is_subscription(name)
            }
        return tuple(sorted(names))

    def subscription_facts(self, *, quick: bool = False) -> tuple[SubscriptionFacts, ...]:
        """Return the facts in ``describe`` about every subscription; for a partitioned topic, those of each partition.

        Unreadable subscriptions are left out with a PartialData warning. Raises TopicNotFound.
        """
        from pulsar_admin.store.reports.subscriptions import Asked, iter_subscription_facts

        with self._session.reporting() as problems, self._session.scan() as reader:
            names, asked = topics.expand_topic(reader.txn, self._name), Asked.of(self._session.now_ms, quick=quick)
            facts = tuple(iter_subscription_facts(reader, names, asked, problems.append))
            self._session.warn_of_broken(reader.txn, names)
            return facts

    def cursor(self, name: str) -> Cursor:
        """Return the cursor of a subscription; for a partitioned topic, those of all partitions together.

        Raises SubscriptionNotFound if no partition has it; ``Store.cursors(…).histories()`` shows what is left of a
        deleted one.
        """
        from pulsar_admin.api.cursors import Cursor
        from pulsar_admin.store.model.cursors import check_subscription

        with self._session.read() as txn:
            check_subscription(txn, self._name, name)
        return Cursor(self._session, self._name, name)

    def create_subscription(
        self, name: str, *, start: Place = LATEST, replicated: bool = False, properties: Mapping[str, str] | None = None
    ) -> Plan:
        """Plan creating a subscription that starts at ``start``, on all partitions.

        Raises AlreadyExists, LedgerNotFound, EntryNotFound, InvalidValue, Refused.
        """
        from pulsar_admin.api.cursors import Cursor

        return Cursor(self._session, self._name, name).create(start=start, replicated=replicated, properties=properties)

    # -- plans; those of a partitioned topic mostly change its partitions ----------------------------------------------

    def terminate(self, *, partitioned: bool = False) -> Plan:
        """Plan terminating the topic, or a ``partitioned`` one with all partitions.

        ``after`` of the plan's parts has the end, ``terminatedPosition``. Raises TopicNotFound (also for a topic without
        partitions if ``partitioned``, and for one with some if not), Refused (a topic without a ledger).
        """
        if not partitioned:
            return self._planned(deleting.plan_terminate, deleting.TERMINATE, [self._name])

        def make(reader: EntryReader, now_ms: int) -> StorePlan:
            names = topics.existing_partitions(reader.txn, topics.check_partitioned(reader.txn, self._name))
            return deleting.plan_terminate(reader, deleting.TERMINATE_PARTITIONED, names, now_ms)

        return self._planned(make)

    def _plan_policy(self, job: PolicyJob) -> Plan:
        return TopicPolicies(self._session, TopicSelection((self._name.base,)))._plan_policy(job)

    def trim(self) -> Plan:
        """Plan deleting the ledgers, but the last, that every subscription has consumed and retention does not keep."""
        return self._planned_parts(deleting.plan_trim)

    def truncate(self) -> Plan:
        """Plan moving every subscription to the end, and deleting all ledgers but the last, whatever retention keeps."""
        return self._planned_parts(deleting.plan_truncate)

    def _planned_parts(self, plan: Callable[[EntryReader, Sequence[TopicName], int], StorePlan]) -> Plan:
        return self._planned(lambda reader, now_ms: plan(reader, topics.expand_topic(reader.txn, self._name), now_ms))

    def set_partitions(self, partitions: JavaInt) -> Plan:
        """Plan increasing the number of partitions; new ones get the first one's subscriptions, at their end.

        Keys map to other partitions from then on. Raises InvalidValue, Refused (fewer, or not partitioned).
        """
        return self._planned(topic_changes.plan_partitions, self._name, partitions)

    def create_missed_partitions(self) -> Plan:
        """Plan creating the partitions of a partitioned topic that do not exist; also raises TopicNotFound for any other topic."""
        return self._planned(topic_changes.plan_missing_partitions, self._name)

    # -- the managed ledger -------------------------------------------------------------------------------------------

    def managed_ledger_text(self) -> str:
        """Return the stored ManagedLedgerInfo in protobuf's text format; raises TopicNotFound, MetadataCorrupt."""
        with self._session.read() as txn:
            topics.read_topic(txn, self._name)
            return managed_ledger_text(read_node(txn, self._name.path).value, self._name.path)

    def forget_ledgers(self, *ledgers: LedgerId) -> Plan:
        """Plan removing ledgers from the topic's list; they stay in BookKeeper. Raises LedgerNotFound.

        Cursors skip them; ``store.delete_ledgers`` deletes ledgers.
        """
        from pulsar_admin.store.changes.log_writer import plan_forget_ledgers

        return self._planned_rows(plan_forget_ledgers, self._name, ledgers)

    # -- schema --------------------------------------------------------------------------------------------------------

    def check_schema(self, schema: Mapping[str, Any] | Path | str) -> None:  # Any: JSON
        """Raise Refused unless a schema, as of ``upload_schema``, is compatible with the topic's versions."""
        with self._session.reader() as reader:
            schema_changes.check_compatible(reader, self._name, given_schema(schema))

    def upload_schema(self, schema: Mapping[str, Any] | Path | str) -> Plan:  # Any: JSON
        """Plan a new version of its schema: ``{"type": "AVRO", "schema": "{…}", "properties": {}}``, or a file with this JSON.

        A version that exists changes nothing. Raises InvalidValue, NamespaceNotFound, Refused (it is not compatible).
        """
        return self._planned(schema_changes.plan_upload, self._name, given_schema(schema))

    def delete_schema(self, *, force: bool = False) -> Plan:
        """Plan a version that marks the schema as deleted, or with ``force`` removing all versions.

        Raises MetadataCorrupt, and Refused if a topic of a newer Pulsar has the same schema.
        """
        return self._planned_rows(
            lambda txn, now_ms: schema_changes.plan_delete_schema(txn, self._name, force=force, now_ms=now_ms)
        )

    # -- properties and permissions -----------------------------------------------------------------------------------

    def properties(self) -> Mapping[str, str]:
        """Return its properties in a broker's order; raises TopicNotFound."""
        return self._session.ask(topic_changes.read_properties, self._name)

    def set_properties(self, properties: Mapping[str, str]) -> Plan:
        """Plan setting properties and keeping the others; raises MetadataCorrupt."""
        return self._plan_properties(topic_changes.UPDATE_PROPERTIES, properties, ())

    def remove_properties(self, *keys: str) -> Plan:
        """Plan removing properties; raises MetadataCorrupt."""
        return self._plan_properties(topic_changes.REMOVE_PROPERTIES, {}, keys)

    def _plan_properties(self, kind: ChangeKind, given: Mapping[str, str], removed: Sequence[str]) -> Plan:

        def change(found: dict[str, str]) -> dict[str, str]:
            return {key: value for key, value in {**found, **given}.items() if key not in removed}

        return self._planned_rows(topic_changes.plan_properties, kind, self._name, change)

    def permissions(self) -> Mapping[str, Sequence[str]]:
        """Return what each role may do: its own permissions and those of its namespace. Raises NamespaceNotFound, MetadataCorrupt."""
        return self._session.ask(resource_changes.read_topic_permissions, self._name)

    def grant_permission(self, role: str, actions: Sequence[str]) -> Plan:
        """Plan replacing a role's permissions by ``actions`` (``produce``, ``consume`` …); raises InvalidValue."""
        grant = resource_changes.Grant(role, actions)
        return self._plan_grant(resource_changes.GRANT_ON_TOPIC, grant)

    def revoke_permission(self, role: str) -> Plan:
        """Plan revoking a role's permissions on the topic; those on the namespace stay."""
        return self._plan_grant(resource_changes.REVOKE_ON_TOPIC, resource_changes.Grant(role))

    def _plan_grant(self, kind: ChangeKind, grant: Grant) -> Plan:
        return self._planned_rows(resource_changes.plan_topic_permission, kind, self._name, grant)


class SchemaVersion(Answer, frozen=True):
    """One version of a topic's schema: ``type`` by upstream's name, ``definition`` as uploaded, such as JSON of Avro."""

    version: int
    type: str
    definition: bytes
    timestamp_ms: int
    properties: Mapping[str, str]


def given_schema(schema: Mapping[str, Any] | Path | str) -> NewSchema:  # Any: JSON
    """Return a schema from upstream's ``PostSchemaPayload`` or the path of a file with one; raises InvalidValue."""
    if isinstance(schema, Mapping):
        return schema_changes.parse_schema(
            {**schema, "properties": arguments.given_properties("properties", schema.get("properties") or {})}, "schema"
        )
    path = arguments.given_path("schema", schema)
    try:
        return schema_changes.parse_schema(read_file(path), str(schema))
    except FileNotFoundError as error:
        raise InvalidValue(f"Schema file {schema} is not found.", path=str(schema)) from error
    except OSError as error:
        raise InvalidValue(
            f"{schema} cannot be read: {error.strerror or reason_of(error)}", path=str(schema)
        ) from error


Form = Literal["indexed", "legacy", "reduced"]
Rule = Literal["4.2", "4.0"]
Encrypted = Literal["keep", "by-key"]
ViewRule = Literal["first-at-or-after", "broker"]


class Compaction(Planner):
    """What compaction left of a topic, as a reader with read-compacted gets it."""

    def __init__(self, session: Session, name: TopicName) -> None:
        self._session = session
        self._name = name

    def status(self, *, leaked: bool = True) -> CompactionStatus:
        """Return the horizon, the compacted ledger, the entries, messages and bytes after the horizon, and
        ``problems`` in words.

        ``leaked`` also searches all ledgers for unreferenced compacted ones. Raises TopicNotFound, MetadataCorrupt.
        """
        from pulsar_admin.store.compaction.status import read_status

        with self._session.reader() as reader:
            topic = topics.read_topic(reader.txn, self._name)
            return read_status(reader, topic, None if leaked else ())

    def last_id(self, *, verify: bool = False) -> LastId:
        """Return the last message: ``position`` (ids −1 if nothing remains), ``publish_ms``, and the ``rule`` that
        found it.

        Only the entry's metadata is read if that suffices (PIP-429); ``verify`` reads the whole entry. Raises TopicNotFound,
        MetadataCorrupt, EntryCorrupt.
        """
        from pulsar_admin.store.compaction.last_id import find_last_id

        with self._session.reporting() as problems, self._session.reader() as reader:
            return find_last_id(reader, topics.read_topic(reader.txn, self._name), verify=verify, problems=problems)

    def find(self, time: Time, *, rule: ViewRule = "first-at-or-after") -> FoundInView | None:
        """Return the first entry of the compacted ledger published at or after ``time``; ``position`` None if there
        are only older ones.

        ``rule`` ``broker`` bisects, assuming clocks that never run backwards. None if the topic was never compacted.
        Raises TopicNotFound, InvalidValue, MetadataCorrupt, EntryCorrupt.
        """
        from pulsar_admin.store.model.compacted_view import open_view

        wanted_ms = self._session.time_ms(time)
        with self._session.reporting() as problems, self._session.scan(problems) as reader:
            topic = topics.read_topic(reader.txn, self._name)
            view = open_view(reader, topic, problems)
            return None if view is None else _find_in(reader, topic, view, wanted_ms, rule)

    def verify(self) -> Verification | None:
        """Compare the compacted ledger with the entries that it was made from; None if the topic was never
        compacted.

        ``total`` counts differences, ``findings`` has kind, position and message of the first ones;
        ``status().problems`` has those that metadata shows. Raises TopicNotFound, MetadataCorrupt, EntryCorrupt.
        """
        from pulsar_admin.store.compaction.keys import keys_for
        from pulsar_admin.store.compaction.verify import verify_view
        from pulsar_admin.store.model.compacted_view import open_view

        with self._session.scan() as reader:
            topic = topics.read_topic(reader.txn, self._name)
            view = open_view(reader, topic)
            if view is None:
                return None
            total, limit_keys = 2 * topic.rank(view.horizon), keys_for(self._session.memory_bytes)
            with self._session.progress(total, "entries", f"{self._name}: verify") as advance:
                return verify_view(reader, topic, view, limit_keys=limit_keys, advance=advance)

    def explain(self, key: str, *, rule: Rule = "4.2") -> KeyHistory:
        """Return the messages with a key (``occurrences``): positions, whether the compacted ledger holds them, and
        the reason.

        Raises TopicNotFound, MetadataCorrupt.
        """
        from pulsar_admin.store.compaction.occurrences import explain_key
        from pulsar_admin.store.model.compacted_view import open_view

        with self._session.reader() as reader:
            topic = topics.read_topic(reader.txn, self._name)
            view = open_view(reader, topic)
            with self._session.progress(topic.number_of_entries, "entries", f"{self._name}: explain") as advance:
                explanation = explain_key(reader, topic, view, key, rule=rule, advance=advance)
        self._session.partial(explanation.damaged)
        return explanation

    def run(
        self,
        *,
        form: Form = "indexed",
        rule: Rule = "4.2",
        retain_null_key: bool = False,
        encrypted: Encrypted = "keep",
        from_start: bool = False,
        skip_damaged: bool = False,
    ) -> Plan:
        """Plan keeping the latest message of every key in a new compacted ledger; its preview reads everything and
        writes nothing.

        ``form`` and ``rule`` concern batches and null values, docs/howto/compaction.md compares them. ``encrypted``
        batches are kept, or with ``by-key`` each is one message with the entry's key. ``from_start`` reads the topic
        from its first entry, ``skip_damaged`` leaves out unreadable entries. Raises InvalidValue; previewed or applied
        TopicNotFound, MetadataCorrupt, EntryCorrupt, and applied DiskFull.
        """
        flags: CompactionOptions = {"from_start": from_start, "skip_damaged": skip_damaged}
        flags |= {"form": form, "rule": rule, "retain_null_key": retain_null_key, "by_key": encrypted == "by-key"}
        return Compactions(self._session, (self._name,)).plan("compaction run", **flags)

    def upgrade(self) -> Plan:
        """Plan rewriting the compacted ledger as Pulsar 4.2 writes it, nothing dropped; raises as ``run``."""
        return Compactions(self._session, (self._name,)).plan("compaction upgrade", everything=True)

    def attach(self, ledger_id: LedgerId) -> Plan:
        """Plan attaching a ledger as the compacted view of a topic that lost it, as after a broker's truncate.

        Raises TopicNotFound, LedgerNotFound, MetadataCorrupt, EntryCorrupt, Refused.
        """
        from pulsar_admin.store.changes.compaction import plan_attach

        return self._planned(plan_attach, self._name, ledger_id)

    def messages(
        self, *, keys: Collection[str] | None = None, columns: Sequence[str] | None = None, limit: Most = None
    ) -> Messages:
        """Return the messages of the view, read during iteration: those that compaction kept, then those after it.

        Only those with ``keys``, at most ``limit``; ``columns`` as ``Topic.messages``. Raises InvalidValue.
        """
        from pulsar_admin.api.messages import chosen_columns, messages_of
        from pulsar_admin.store.dump.messages import MessageQuery

        chosen = () if keys is None else keys
        limit = limit if keys is None or chosen else 0
        wanted = MessageQuery(columns=chosen_columns(columns), limit=limit, compacted=True, keys=tuple(chosen))
        return messages_of(self._session, lambda txn: [self._name], wanted, str(self._name))


class CompactionOptions(TypedDict, total=False):
    """Keywords of ``Compactions.plan``, which ``CompactionJob`` describes."""

    form: Form
    rule: Rule
    retain_null_key: bool
    by_key: bool
    from_start: bool
    skip_damaged: bool
    everything: bool


class Compactions(Planner):
    """Compactions of topics, one change each."""

    def __init__(self, session: Session, names: Sequence[TopicName]) -> None:
        self._session = session
        self._names = tuple(names)

    def plan(self, command: str, **job: Unpack[CompactionOptions]) -> Plan:
        """Plan a compaction command: see ``CompactionJob``. Raises InvalidValue."""
        from pulsar_admin.store.changes.compaction import kind_of
        from pulsar_admin.store.changes.plan import WritingPlan
        from pulsar_admin.store.compaction.forms import CompactionJob

        arguments.check_keywords(job, CompactionOptions)
        session, names, asked = self._session, self._names, CompactionJob(command, **job)

        def compact(store: StoreFile, *, previews: bool) -> tuple[ChangeReport, ...]:
            from pulsar_admin.store.changes.compaction import Compactor

            def warn(text: str) -> None:
                session.warn([text])

            with session.engine([], size_bytes) as engine:
                compactor = Compactor(store, engine, session.clock_ms, session.memory_bytes, warn, session.progress)
                return tuple(session.each(names, lambda name: compactor.compact(name, asked, previews=previews)))

        def shown() -> tuple[ChangeReport, ...]:
            with session.opened() as store:
                return compact(store, previews=True)

        with session.read() as txn:
            size_bytes = 0 if asked.everything else topics.topics_bytes(txn, names)
            return plan_of(
                WritingPlan(kind_of(asked), txn.id, shown, lambda store: compact(store, previews=False)), txn
            )


def _find_in(
    reader: EntryReader, topic: topics.Topic, view: CompactedView, time_ms: int, rule: ViewRule
) -> FoundInView:
    from pulsar_admin.store.compaction.reading import bisect_view, find_in_view, view_extent
    from pulsar_admin.store.search.window import is_few

    if rule == "broker":
        return bisect_view(reader, view, time_ms)
    if is_few(view_extent(reader.txn, topic, view), None):
        return find_in_view(reader, view, time_ms)
    from pulsar_admin.store.compaction.entries import find_published

    return find_published(reader, view, time_ms)


def find_by_time(session: Session, name: TopicName, question: TimeQuestion, *, explain: bool = False) -> FoundEntry:
    """Return where a time is in the topic ``name``, and report what the answer lacks; see ``Topic.find``."""
    from pulsar_admin.store.dump.find_by_time import BROKER, find_entry, gaps_before, texts_of_answer
    from pulsar_admin.store.search.by_time import texts_of_clock

    def progress(size_bytes: int) -> AbstractContextManager[Callable[[int], None]]:
        return session.progress(size_bytes, "bytes", "find-by-time")

    with session.scan() as reader:
        topic = topics.read_topic(reader.txn, name)
        if question.rule != BROKER:
            session.warn(texts_of_clock(reader, topic, question.clock))
        if question.rule == BROKER or explain:
            session.partial(f"{name}: {text}" for text in find_broken_beside(reader.txn, topic))
        entry = find_entry(reader, topic, question, explain=explain, progress=progress)
        session.partial(gaps_before(entry))
        session.warn(texts_of_answer(reader.txn, topic, entry))
    return entry


def skews_of(
    session: Session, names: Sequence[TopicName], tolerance: Duration, clock: Literal["publish", "broker"]
) -> Iterator[TopicSkew]:
    """Yield whose clock is wrong in each topic, see ``Topic.skew``."""
    from pulsar_admin.api.messages import each_of_topics
    from pulsar_admin.store.db.clocks import check_clock
    from pulsar_admin.store.search.skew import SkewOfTopics, SkewOptions

    options = SkewOptions(check_clock(clock), arguments.duration_ms(tolerance), session.now_ms)
    ask = partial(SkewOfTopics, options=options)
    return each_of_topics(session, names, ask, attrgetter("missing", "unreadable"))
