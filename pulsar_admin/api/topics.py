"""A topic: where a time is in it, its statistics, cursors, schemas, policies, compacted view, and plans that change them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack

from pulsar_admin import arguments
from pulsar_admin.api.plan import Plan, Planner, plan_of
from pulsar_admin.api.session import Given, Result, Session
from pulsar_admin.arguments import Clock, Count, Duration, JavaInt, LedgerId, Place, Time
from pulsar_admin.later import later, laters
from pulsar_admin.store.codec.managedledger import SHADOW_SOURCE
from pulsar_admin.store.db.clocks import check_clock
from pulsar_admin.store.errors import InvalidValue, NothingMatches, StoreError
from pulsar_admin.store.model import topics
from pulsar_admin.store.model.broken_beside import find_broken_beside
from pulsar_admin.store.names import EARLIEST, LATEST, Position, TopicName, TopicSelection
from pulsar_admin.store.wording import counted

if TYPE_CHECKING:
    import pyarrow as pa

    from pulsar_admin.api import cursors as api_cursors
    from pulsar_admin.api import messages as api_messages
    from pulsar_admin.api import pending as api_pending
    from pulsar_admin.store.changes import compaction as compaction_changes
    from pulsar_admin.store.changes import deleting, log_writer, resources, topic_policies
    from pulsar_admin.store.changes import plan as store_plans
    from pulsar_admin.store.changes import policies as policy_changes
    from pulsar_admin.store.changes import schemas as schema_changes
    from pulsar_admin.store.changes import topics as topic_changes
    from pulsar_admin.store.codec import policies as policy_codec
    from pulsar_admin.store.codec import schema as schema_codec
    from pulsar_admin.store.compaction import forms, occurrences, reading
    from pulsar_admin.store.compaction import last_id as last_ids
    from pulsar_admin.store.compaction import status as compaction_status
    from pulsar_admin.store.db.environment import Store as StoreFile
    from pulsar_admin.store.db.environment import Txn
    from pulsar_admin.store.dump import find_by_time as finding
    from pulsar_admin.store.dump import messages as queries
    from pulsar_admin.store.model import compacted_view
    from pulsar_admin.store.model import cursors as cursor_model
    from pulsar_admin.store.model import messages as message_model
    from pulsar_admin.store.model import schemas as schema_model
    from pulsar_admin.store.model.reader import EntryReader
    from pulsar_admin.store.nacks import holes
    from pulsar_admin.store.policies import in_force, table
    from pulsar_admin.store.policies import values as policy_values
    from pulsar_admin.store.reports import describe as describing
    from pulsar_admin.store.reports import internal_stats as internals
    from pulsar_admin.store.reports import stats as stats_reports
    from pulsar_admin.store.reports import subscriptions as subscription_reports
    from pulsar_admin.store.reports import timeline as timelines
    from pulsar_admin.store.search import broker_setup, by_index, by_time
    from pulsar_admin.store.search import skew as skews
else:
    api_cursors, api_messages, api_pending = laters("pulsar_admin.api", "cursors messages pending")
    compaction_changes, deleting, log_writer, store_plans, policy_changes = laters(
        "pulsar_admin.store.changes", "compaction deleting log_writer plan policies"
    )
    resources, schema_changes, topic_policies, topic_changes = laters(
        "pulsar_admin.store.changes", "resources schemas topic_policies topics"
    )
    policy_codec = later("pulsar_admin.store.codec.policies")
    forms, last_ids, occurrences, compaction_status = laters(
        "pulsar_admin.store.compaction", "forms last_id occurrences status"
    )
    finding, queries = laters("pulsar_admin.store.dump", "find_by_time messages")
    compacted_view, cursor_model, message_model, schema_model = laters(
        "pulsar_admin.store.model", "compacted_view cursors messages schemas"
    )
    holes = later("pulsar_admin.store.nacks.holes")
    in_force, table, policy_values = laters("pulsar_admin.store.policies", "in_force table values")
    describing, internals, stats_reports, subscription_reports, timelines = laters(
        "pulsar_admin.store.reports", "describe internal_stats stats subscriptions timeline"
    )
    broker_setup, by_index, by_time = laters("pulsar_admin.store.search", "broker_setup by_index by_time")


QuotaKind = Literal["destination_storage", "message_age"]
QuotaPolicy = Literal["producer_request_hold", "producer_exception", "consumer_backlog_eviction"]


class PolicyPlans(Planner, ABC):
    """A topic or namespace as the owner of policies. If a topic sets none, its namespace's apply, then those of broker.conf."""

    _group: str

    @abstractmethod
    def _plan_policy(self, job: policy_changes.PolicyJob) -> Plan:
        """Return the plan of a policy job."""

    def set_policy(self, name: str, value: Any) -> Plan:  # Any: JSON
        """Plan setting a policy to JSON as upstream stores it, None: removing it; raises InvalidValue for what upstream refuses."""
        return self._plan_policy(policy_changes.PolicyJob(f"{self._group} set-{name}", self._settable(name), value))

    def remove_policy(self, name: str) -> Plan:
        """Plan removing the policy ``name``: the namespace's or the broker's applies again. Raises InvalidValue."""
        return self._plan_policy(policy_changes.PolicyJob(f"{self._group} remove-{name}", self._settable(name)))

    def _settable(self, name: str) -> table.Policy:
        policy = table.policy_named(name, self._group)
        if policy.name == "backlog-quota":  # one of each kind
            raise InvalidValue(f"{name}: which kind?", hint="call set_backlog_quota() or remove_backlog_quota()")
        return policy

    def set_message_ttl(self, ttl: Duration | None) -> Plan:
        """Plan setting how long messages live, in whole seconds, 0: unlimited; or with None removing that. Raises InvalidValue."""
        if ttl is None:
            return self.remove_policy("message-ttl")
        return self._set("message-ttl", {"ttl": arguments.duration_ms(ttl)})

    def set_retention(self, *, time: Duration | None, size: int | str | None) -> Plan:
        """Plan retaining consumed messages for a time and up to a size (bytes, or ``10G``); None: unlimited.

        Stored in whole minutes and MB, rounded down. Raises InvalidValue.
        """
        time_ms = -1 if time is None else arguments.duration_ms(time)
        return self._set("retention", {"time": time_ms, "size": arguments.size_bytes(size)})

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
        limit = None if size is None else arguments.size_bytes(size)
        limit_ms = None if time is None else arguments.duration_ms(time)
        return self._set("backlog-quota", {"limit": limit, "limit_time": limit_ms, "policy": policy, "type_": kind})

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

    def plan_policy(self, command: str, name: str, options: Mapping[str, Any]) -> Plan:  # Any: upstream's values
        """Plan what a command (``topics set-retention``) does to a policy; raises InvalidValue.

        Options are upstream's by their longest names in snake case, times in ms and sizes in bytes.
        """
        from pulsar_admin.upstream_list import check_options

        table.policy_named(name, self._group)
        check_options(command, options)
        try:
            job = policy_changes.policy_job(command, name, options)
        except (AttributeError, LookupError, TypeError, ValueError) as error:  # a required option is missing
            hint = f"see: pulsar-admin {command} --help"
            raise InvalidValue(f"{command} does not take {options!r}", hint=hint) from error
        return self._plan_policy(job)

    def _set(self, name: str, options: Mapping[str, Any]) -> Plan:
        return self._plan_policy(policy_changes.policy_job(f"{self._group} set-{name}", name, options))


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
    ) -> tuple[policy_values.PolicyValue, ...]:
        """Return a policy's values in the topics: their own, or ``applied``: those in force.

        ``subscription`` selects those of one subscription; ``global_`` those shared by all clusters. Raises InvalidValue.
        """
        options = {"applied": applied, "subscription": subscription, "global_": global_}
        policy = table.policy_named(name, self._group)
        return self._session.ask(policy_values.sourced_values, self._selection, policy, options)

    def answers(
        self, name: str, *, applied: bool = False, subscription: str | None = None, global_: bool = False
    ) -> tuple[Any, ...]:  # Any: JSON
        """Return the ``values`` alone; ``applied``: as upstream's brokers answer, which know no policies of all clusters."""
        options = {"applied": applied, "subscription": subscription, "global_": global_}
        policy = table.policy_named(name, self._group)
        return self._session.ask(policy_values.answered_values, self._selection, policy, options)

    def remove_policies(self) -> Plan:
        """Plan removing all policies, global ones included, also of topics that no longer exist."""
        return self._planned_rows(topic_policies.plan_delete, self._selection, self._session.moment.interceptors)

    def _plan_policy(self, job: policy_changes.PolicyJob) -> Plan:
        return self._planned_rows(topic_policies.plan_changes, self._selection, job, self._session.moment.interceptors)


class Topic(PolicyPlans):
    """A topic, one partition, or a partitioned topic as a whole. Nothing is read before a method is called.

    Methods raise TopicNotFound for a topic that was deleted, and for a partitioned one if each partition has an answer of its own;
    MetadataCorrupt where metadata cannot be read. Policies belong to the topic as a whole; plans that change them raise Refused (a
    system topic).
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
        names = self._session.ask(self._expanded) if self._session.ask(topics.partition_count, self._name) else ()
        return tuple(Topic(self._session, name) for name in names)

    def partitioned_metadata(self) -> policy_codec.PartitionedTopic:
        """Return how many partitions it has (0: it is not partitioned), whether it is deleted, its properties."""
        return self._session.ask(topics.read_existing, self._name)

    def shadow_source(self) -> str | None:
        """Return the topic whose entries it shows, None: it is no shadow topic."""
        return self.properties().get(SHADOW_SOURCE)

    # -- reading ------------------------------------------------------------------------------------------------------

    def find(
        self,
        time: Time,
        *,
        clock: Clock = "auto",
        rule: finding.FindRule = "first-at-or-after",
        batch_index: bool = False,
        explain: bool = False,
        broker_version: broker_setup.BrokerVersion | None = None,
    ) -> finding.FoundEntry:
        """Return the first entry at or after ``time`` in topic order, exact even on clocks that run backwards.

        ``rule`` ``all-before`` returns the last entry up to which all are older than the time; ``broker`` the answer of a live broker of
        ``broker_version``. ``batch_index`` names the message in its batch. ``explain`` adds the proof, and the broker's answer. ``exact``
        of the answer is False if a lost entry could be an earlier one, None if that is unknown; for ``broker``, whether a broker is
        certain to answer this. Raises InvalidValue, TopicNotFound (also for a partitioned topic: ask its partitions), and for ``broker``
        LedgerNotFound, EntryNotFound or EntryCorrupt where a broker fails, NotSeen if its answer is unknown.
        """
        wanted_ms = self._session.time_ms(time)
        broker = broker_setup.BrokerSetup(self._session.ask(broker_setup.version_of, broker_version))
        question = finding.TimeQuestion(wanted_ms, clock, rule, broker, batch_index)
        return find_by_time(self._session, self._name, question, explain=explain)

    def find_by_index(self, index: Count) -> by_index.IndexFound:
        """Return the entry that covers a message index, which brokers with AppendIndexMetadataInterceptor count from 0 (PIP-70).

        ``position``, with its index in a batch, is None if no entry covers ``index``; ``next_index`` is the least one
        after it; ``indexed`` says whether any entry has an index. Raises InvalidValue.
        """
        with self._session.scan() as reader:
            entry = by_index.find_by_index(reader, topics.read_topic(reader.txn, self._name), index)
            self._session.warn_of_broken(reader.txn, [self._name])
            return entry

    def nth_position(self, number: int, *, from_end: bool = False) -> Position:
        """Return the position of an entry by its number (from 1), markers included, from the beginning or ``from_end``.

        Raises NothingMatches (too few entries), InvalidValue.
        """
        count = arguments.whole_number("number", number, 1)
        return message_model.nth_position(self._session.ask(topics.read_topic, self._name), count, from_end=from_end)

    def skew(self, *, tolerance: Duration = "1s", clock: Literal["publish", "broker"] = "publish") -> skews.TopicSkew:
        """Return how wrong producers' clocks are: counts of the topic, ``blame``, and each of ``producers``, the worst first.

        Offsets are publish minus broker time in ms, None without broker times; ``future`` and ``late`` count entries
        off by more than ``tolerance``, ``inversions`` entries before the previous one on ``clock``.
        ``pandas.DataFrame(skew.producers)`` has them as columns. Reads the header of every entry. Raises InvalidValue.
        """
        (skew,) = api_messages.skews_of(self._session, [self._name], tolerance, clock)
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
        ``since`` (included) to ``until`` (excluded) on ``clock``. Raises InvalidValue, LimitExceeded (too many buckets).
        """
        times = (None if value is None else self._session.time_ms(value) for value in (since, until))
        if bucket is None:
            width_ms = self._session.ask_entries(timelines.usual_bucket_ms, self._name, check_clock(clock))
        elif (width_ms := arguments.duration_ms(bucket)) <= 0:
            raise InvalidValue(f"bucket {bucket!r} is not above 0")
        options = timelines.TimelineOptions(width_ms, check_clock(clock), *times)
        (timeline,) = api_messages.timelines_of(self._session, [self._name], options)
        if timeline.entries_without_time:
            without = counted(timeline.entries_without_time, "entry is", "entries are")
            self._session.partial([f"{self._name}: {without} without such a time"])
        return timelines.table_of(timeline)

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
        limit: api_messages.Most = None,
        uncommitted: bool = False,
        markers: bool = False,
    ) -> api_messages.Messages:
        """Return messages, read during iteration: batches split, chunks joined, payloads decompressed.

        Times from ``since`` (included) to ``until`` (excluded) on ``clock``, positions from ``start`` to ``end`` (both
        included), one ``key``, at most ``limit``. ``columns`` are described at ``Messages``; other columns are not
        decoded. ``subscription`` selects the entries of its backlog, batches as a whole. ``uncommitted`` includes
        messages of open and aborted transactions; ``markers`` a broker's own entries. Raises InvalidValue, and when read
        SubscriptionNotFound.
        """
        window = self._session.window(since, until, start, end, clock=clock, key=key)
        chosen = api_messages.chosen_columns(columns)
        query = queries.MessageQuery(window, chosen, subscription, limit, uncommitted=uncommitted, markers=markers)
        return api_messages.messages_of(self._session, self._expanded, query, self.name)

    def search(self, **wanted: Unpack[api_messages.WantedMessages]) -> api_messages.Messages:
        """Return the messages that match everything wanted, as ``messages`` does; ``WantedMessages`` lists the criteria.

        Encrypted or undecodable messages that may match are in ``problems``. Raises InvalidValue.
        """
        return api_messages.search_of(self._session, self._expanded, wanted, self.name)

    def _expanded(self, txn: Txn) -> tuple[TopicName, ...]:
        return topics.expand_topic(txn, self._name)

    def _told(
        self,
        read: Callable[[EntryReader, TopicName, *Given, list[StoreError]], Result],
        *given: *Given,
        scans: bool = False,
    ) -> Result:
        """Return the result of ``read`` for the topic, and report its problems and the broken ledgers of topic or partitions."""
        session = self._session
        with session.reporting() as problems, session.scan() if scans else session.reader() as reader:
            answer = read(reader, self._name, *given, problems)
            session.warn_of_broken(reader.txn, topics.expand_existing(reader.txn, self._name))
            return answer

    def stats(
        self, *, earliest_time: bool = False, backlog_size: bool = True, newer_keys: bool = False
    ) -> stats_reports.TopicStats:
        """Return sizes, backlogs and subscriptions with upstream's names (``backlog_size``, ``subscriptions[name].msg_backlog`` …).

        Sizes are bytes. ``earliest_time`` adds the publish time of each backlog's oldest entry; without
        ``backlog_size`` that of each subscription is −1; ``newer_keys`` adds the keys of brokers from 4.1 on.
        """
        options = stats_reports.StatsOptions(backlog_size, earliest_time, newer_keys)
        return self._told(stats_reports.read_topic_stats, options)

    def last_message_id(self) -> Position:
        """Return the position of the last message, even a marker, with its index inside a batch; entry −1 for a topic without one."""
        last = self.last_entry_id()
        return Position(last.ledger_id, last.entry_id, last.batch_index)

    def last_entry_id(self) -> message_model.LastMessageId:
        """Return what ``last_message_id`` does with upstream's names, and those of the batch that it is in."""
        return self._told(message_model.read_last_id)

    def partitioned_stats(
        self, *, per_partition: bool = False, earliest_time: bool = False, backlog_size: bool = True
    ) -> stats_reports.PartitionedTopicStats:
        """Return the ``stats`` of a partitioned topic, summed over its partitions; ``per_partition`` adds those of each.

        Raises TopicNotFound (also for a topic without partitions).
        """
        options = stats_reports.StatsOptions(backlog_size, earliest_time)
        return self._told(stats_reports.read_partitioned_stats, options, per_partition)

    def internal_stats(self, *, metadata: bool = False, publish_times: bool = True) -> internals.InternalStats:
        """Return ledgers, cursors, schema and compacted ledgers with upstream's names, positions as text.

        ``metadata`` adds each ledger's metadata in BookKeeper; ``publish_times`` its first and last publish time.
        """
        return self._told(internals.read_internal_stats, metadata, publish_times)

    def partitioned_internal_stats(
        self, *, metadata: bool = False, publish_times: bool = True
    ) -> internals.PartitionedInternalStats:
        """Return ``internal_stats`` by partition. Raises TopicNotFound, also for a topic without partitions."""
        return self._told(internals.read_partitioned_internals, metadata, publish_times)

    def describe(self, *, quick: bool = False) -> describing.TopicDescription:
        """Return size, times, policies with their origins, schema, compaction, facts of every subscription, and ledgers.

        Subscriptions have backlog, oldest unacknowledged entry, holes, delayed messages and TTL; ``quick`` reads no
        entries. Raises TopicNotFound (also for a partitioned topic: ask its partitions).
        """
        asked = subscription_reports.Asked.of(self._session.now_ms, quick=quick)
        return self._told(describing.describe_topic, asked, scans=True)

    def internal_info(self, *, publish_times: bool = True) -> internals.InternalInfo:
        """Return the stored metadata of the topic and its cursors with upstream's names; a cursor's actual position may differ.

        ``publish_times`` adds the first and last publish time of each ledger.
        """
        with self._session.reporting() as problems:
            return self._session.ask(internals.read_internal_info, self._name, publish_times, problems)

    def backlog_size(self, position: Place = EARLIEST) -> int:
        """Return the bytes after a position, estimated as the broker does: 0 after the end. Raises InvalidValue."""
        place = arguments.position_of(position)
        topic = self._session.ask_entries(lambda reader: topics.read_topic(reader.txn, self._name), of=self._name)
        return cursor_model.backlog_size_bytes(topic, place)

    def schemas(self) -> tuple[schema_model.SchemaVersion, ...]:
        """Return the versions of its schema, oldest first, since the last deletion; raises EntryCorrupt."""
        return self._session.ask_entries(schema_model.read_versions, self._name)

    def schema(self, version: int | None = None) -> schema_model.SchemaVersion:
        """Return a version of the topic's schema, None: the newest; raises NothingMatches if it does not exist, and as ``schemas``."""
        return self._session.ask_entries(schema_model.find_version, self._name, version)

    def schema_locator(self) -> schema_codec.SchemaLocator | None:
        """Return where its schema is stored: the ``newest`` version, and ``index`` for all; None if it never had one."""
        return self._session.ask(schema_model.find_locator, self._name)

    def policies(self) -> policy_codec.Policies:
        """Return the topic's own policies, each None if not set."""
        return self._session.ask(in_force.find_topic_policies, self._name) or policy_codec.Policies()

    def policies_in_force(self) -> in_force.PoliciesInForce:
        """Return the policies in force and where each is set: ``source`` is topic, global-topic or namespace.

        None: nothing in the store sets it, so a broker's configuration applies.
        """
        return self._session.ask(in_force.read_in_force, self._name)

    def delayed(self, subscription: str | None = None) -> api_pending.Delayed:
        """Return the delayed messages of a subscription; None: of one that would be created at the topic's beginning."""
        return api_pending.Delayed(self._session, self._name, subscription)

    def measured_nacks(self, subscription: str | None = None) -> holes.TopicNacks:
        """Return the topic's entries per second, and a subscription's acknowledgement holes, for ``nack_sizes``, from the index.

        Raises TopicNotFound (also for a partitioned topic: ask its partitions), SubscriptionNotFound, InvalidValue (no times).
        """
        return self._session.ask_entries(holes.read_topic_nacks, self._name, subscription)

    def transactions(self) -> api_pending.TopicTransactions:
        """Return the transactions that the topic's entries record."""
        return api_pending.TopicTransactions(self._session, self._name)

    def compaction(self) -> Compaction:
        """Return the compacted view of the topic."""
        return Compaction(self._session, self._name)

    def policy(self, name: str) -> Any:  # Any: JSON
        """Return the topic's own policy (``max-producers``, named as in commands), None: unset. Raises InvalidValue."""
        return self._session.ask(policy_values.own_value, self._name, table.policy_named(name, self._group), {})

    # -- cursors ------------------------------------------------------------------------------------------------------

    def subscriptions(self) -> tuple[str, ...]:
        """Return the names of the subscriptions, sorted; of a partitioned topic those of any partition."""
        return self._session.ask(cursor_model.subscription_names, self._name)

    def subscription_facts(self, *, quick: bool = False) -> tuple[subscription_reports.SubscriptionFacts, ...]:
        """Return the facts in ``describe`` about every subscription; for a partitioned topic, those of each partition.

        Unreadable subscriptions are left out with a PartialData warning.
        """
        asked = subscription_reports.Asked.of(self._session.now_ms, quick=quick)
        return self._told(subscription_reports.read_subscription_facts, asked, scans=True)

    def cursor(self, name: str) -> api_cursors.Cursor:
        """Return the cursor of a subscription; for a partitioned topic, those of all partitions together.

        Raises SubscriptionNotFound if no partition has it; ``Store.cursors(…).histories()`` shows what is left of a deleted one.
        """
        self._session.ask(cursor_model.check_subscription, self._name, name)
        return api_cursors.Cursor(self._session, self._name, name)

    def create_subscription(
        self, name: str, *, start: Place = LATEST, replicated: bool = False, properties: Mapping[str, str] | None = None
    ) -> Plan:
        """Plan creating a subscription that starts at ``start``, on all partitions.

        Raises AlreadyExists, LedgerNotFound, EntryNotFound, InvalidValue, Refused.
        """
        cursor = api_cursors.Cursor(self._session, self._name, name)
        return cursor.create(start=start, replicated=replicated, properties=properties)

    # -- plans; those of a partitioned topic mostly change its partitions ----------------------------------------------

    def terminate(self, *, partitioned: bool = False) -> Plan:
        """Plan terminating the topic, or a ``partitioned`` one with all partitions.

        ``after`` of the plan's parts has the end, ``terminatedPosition``. Raises TopicNotFound (also for a topic without
        partitions if ``partitioned``, and for one with some if not), Refused (a topic without a ledger).
        """
        return self._planned(deleting.plan_terminate, self._name, partitioned)

    def _plan_policy(self, job: policy_changes.PolicyJob) -> Plan:
        return TopicPolicies(self._session, TopicSelection((self._name.base,)))._plan_policy(job)

    def trim(self) -> Plan:
        """Plan deleting the ledgers, but the last, that every subscription has consumed and retention does not keep."""
        return self._planned(deleting.plan_trim, self._name)

    def truncate(self) -> Plan:
        """Plan moving every subscription to the end, and deleting all ledgers but the last, whatever retention keeps."""
        return self._planned(deleting.plan_truncate, self._name)

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
        """Return the stored ManagedLedgerInfo in protobuf's text format."""
        return self._session.ask(internals.stored_topic_text, self._name)

    def forget_ledgers(self, *ledgers: LedgerId) -> Plan:
        """Plan removing ledgers from the topic's list; they stay in BookKeeper. Raises LedgerNotFound.

        Cursors skip them; ``store.delete_ledgers`` deletes ledgers.
        """
        return self._planned_rows(log_writer.plan_forget_ledgers, self._name, ledgers)

    # -- schema --------------------------------------------------------------------------------------------------------

    def check_schema(self, schema: Mapping[str, Any] | Path | str) -> None:  # Any: JSON
        """Raise Refused unless a schema, as of ``upload_schema``, is compatible with the topic's versions."""
        self._session.ask_entries(schema_changes.check_compatible, self._name, _given_schema(schema))

    def upload_schema(self, schema: Mapping[str, Any] | Path | str) -> Plan:  # Any: JSON
        """Plan a new version of its schema: ``{"type": "AVRO", "schema": "{…}", "properties": {}}``, or a file with this JSON.

        A version that exists changes nothing. Raises InvalidValue, NamespaceNotFound, Refused (it is not compatible).
        """
        return self._planned(schema_changes.plan_upload, self._name, _given_schema(schema))

    def delete_schema(self, *, force: bool = False) -> Plan:
        """Plan a version that marks the schema as deleted, or with ``force`` removing all versions.

        Raises Refused if a topic of a newer Pulsar has the same schema.
        """
        return self._planned_rows(schema_changes.plan_delete_schema, self._name, force)

    # -- properties and permissions -----------------------------------------------------------------------------------

    def properties(self) -> Mapping[str, str]:
        """Return its properties in a broker's order."""
        return self._session.ask(topic_changes.read_properties, self._name)

    def set_properties(self, properties: Mapping[str, str]) -> Plan:
        """Plan setting properties and keeping the others."""
        return self._planned_rows(topic_changes.plan_properties, self._name, properties)

    def remove_properties(self, *keys: str) -> Plan:
        """Plan removing properties."""
        return self._planned_rows(topic_changes.plan_properties, self._name, keys)

    def permissions(self) -> Mapping[str, Sequence[str]]:
        """Return role → actions that it may perform, by the topic or its namespace. Raises NamespaceNotFound."""
        return self._session.ask(resources.read_topic_permissions, self._name)

    def grant_permission(self, role: str, actions: Sequence[str]) -> Plan:
        """Plan replacing a role's permissions by ``actions`` (``produce``, ``consume`` …); raises InvalidValue."""
        kind, grant = "topics grant-permission", resources.Grant(role, actions)
        return self._planned_rows(resources.plan_topic_permission, kind, self._name, grant)

    def revoke_permission(self, role: str) -> Plan:
        """Plan revoking a role's permissions on the topic; those on the namespace stay."""
        kind, grant = "topics revoke-permission", resources.Grant(role)
        return self._planned_rows(resources.plan_topic_permission, kind, self._name, grant)


def _given_schema(schema: Mapping[str, Any] | Path | str) -> schema_changes.NewSchema:  # Any: JSON
    """Return a schema from upstream's ``PostSchemaPayload`` or the path of a file with one; raises InvalidValue."""
    if not isinstance(schema, Mapping):
        arguments.given_path("schema", schema)
        return schema_changes.read_schema(schema)
    properties = arguments.given_properties("properties", schema.get("properties") or {})
    return schema_changes.parse_schema({**schema, "properties": properties}, "schema")


Form = Literal["indexed", "legacy", "reduced"]
Rule = Literal["4.2", "4.0"]
Encrypted = Literal["keep", "by-key"]
ViewRule = Literal["first-at-or-after", "broker"]


class Compaction(Planner):
    """A topic's compacted view, as a reader with read-compacted gets it. All methods raise TopicNotFound, MetadataCorrupt."""

    def __init__(self, session: Session, name: TopicName) -> None:
        self._session = session
        self._name = name

    def status(self, *, leaked: bool = True) -> compaction_status.CompactionStatus:
        """Return the horizon, the compacted ledger, the entries, messages and bytes after the horizon, and ``problems`` in words.

        ``leaked`` also searches all ledgers for unreferenced compacted ones.
        """
        with self._session.reader() as reader:
            topic = topics.read_topic(reader.txn, self._name)
            return compaction_status.read_status(reader, topic, None if leaked else ())

    def last_id(self, *, verify: bool = False) -> last_ids.LastId:
        """Return the last message: ``position`` (ids −1 if nothing remains), ``publish_ms``, and the ``rule`` that found it.

        Only the entry's metadata is read if that suffices (PIP-429); ``verify`` reads the whole entry. Raises EntryCorrupt.
        """
        with self._session.reporting() as problems, self._session.reader() as reader:
            topic = topics.read_topic(reader.txn, self._name)
            return last_ids.find_last_id(reader, topic, verify=verify, problems=problems)

    def find(self, time: Time, *, rule: ViewRule = "first-at-or-after") -> reading.FoundInView | None:
        """Return the first entry of the compacted ledger published at or after ``time``; ``position`` None if there are only older ones.

        ``rule`` ``broker`` bisects, assuming clocks that never run backwards. None if the topic was never compacted.
        Raises InvalidValue, EntryCorrupt.
        """
        wanted_ms = self._session.time_ms(time)
        with self._session.reporting() as problems, self._session.scan(problems) as reader:
            return finding.find_in_view(reader, topics.read_topic(reader.txn, self._name), wanted_ms, rule, problems)

    def verify(self) -> forms.Verification | None:
        """Compare the compacted ledger with the entries that it was made from; None if the topic was never compacted.

        ``total`` counts differences, ``findings`` has kind, position and message of the first ones;
        ``status().problems`` has those that metadata shows. Raises EntryCorrupt, NotSeen.
        """
        from pulsar_admin.store.compaction.keys import keys_for
        from pulsar_admin.store.compaction.verify import verify_view

        with self._session.scan() as reader:
            topic = topics.read_topic(reader.txn, self._name)
            view = compacted_view.open_view(reader, topic)
            if view is None:
                return None
            total, limit_keys = 2 * topic.rank(view.horizon), keys_for(self._session.memory_bytes)
            with self._session.progress(total, "entries", f"{self._name}: verify") as advance:
                return verify_view(reader, topic, view, limit_keys=limit_keys, advance=advance)

    def explain(self, key: str, *, rule: Rule = "4.2") -> occurrences.KeyHistory:
        """Return the messages with a key (``occurrences``): positions, whether the compacted ledger holds them, and the reason.

        Raises NothingMatches if there are none and all entries could be read.
        """
        history = explain_key(self._session, self._name, key, rule)
        if not (history.occurrences or history.damaged or history.lost):
            raise NothingMatches(f"no message of {self._name} has the key {key!r}", sealed=history.sealed)
        return history

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
        """Plan keeping the latest message of every key in a new compacted ledger; its preview reads everything and writes nothing.

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
        """Plan attaching a ledger as the compacted view that a truncate took away. Raises LedgerNotFound, EntryCorrupt, Refused."""
        return self._planned(compaction_changes.plan_attach, self._name, ledger_id)

    def messages(
        self,
        *,
        keys: Collection[str] | None = None,
        columns: Sequence[str] | None = None,
        limit: api_messages.Most = None,
    ) -> api_messages.Messages:
        """Return the messages of the view, read during iteration: those that compaction kept, then those after it.

        Only those with ``keys``, at most ``limit``; ``columns`` as ``Topic.messages``. Raises InvalidValue.
        """
        limit = limit if keys is None or keys else 0
        chosen = api_messages.chosen_columns(columns)
        query = queries.MessageQuery(columns=chosen, limit=limit, compacted=True, keys=tuple(keys or ()))
        return api_messages.messages_of(self._session, lambda txn: [self._name], query, str(self._name))


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
        arguments.check_keywords(job, CompactionOptions)
        session, names, asked = self._session, self._names, forms.CompactionJob(command, **job)

        def compact(store: StoreFile, *, previews: bool) -> tuple[store_plans.ChangeReport, ...]:
            with session.engine([], size_bytes) as engine:
                compactor = compaction_changes.Compactor(
                    store,
                    engine,
                    session.clock_ms,
                    session.memory_bytes,
                    lambda text: session.warn([text]),
                    session.progress,
                )
                return tuple(session.each(names, lambda name: compactor.compact(name, asked, previews=previews)))

        def shown() -> tuple[store_plans.ChangeReport, ...]:
            with session.opened() as store:
                return compact(store, previews=True)

        with session.read() as txn:
            size_bytes = 0 if asked.everything else topics.scan_bytes(txn, names)
            kind = compaction_changes.kind_of(asked)
            return plan_of(store_plans.WritingPlan(kind, txn.id, shown, partial(compact, previews=False)), txn)


def explain_key(session: Session, name: TopicName, key: str, rule: Rule) -> occurrences.KeyHistory:
    """Return the messages with a key, possibly none, and report what could not be read; see ``Compaction.explain``."""
    with session.reader() as reader:
        topic = topics.read_topic(reader.txn, name)
        view = compacted_view.open_view(reader, topic)
        with session.progress(topic.number_of_entries, "entries", f"{name}: explain") as advance:
            explanation = occurrences.explain_key(reader, topic, view, key, rule=rule, advance=advance)
    session.partial(explanation.damaged)
    return explanation


def find_by_time(
    session: Session, name: TopicName, question: finding.TimeQuestion, *, explain: bool = False
) -> finding.FoundEntry:
    """Return the result of ``Topic.find`` for the topic ``name``, and report its problems."""
    progress = partial(session.progress, unit="bytes", label="find-by-time")
    with session.scan() as reader:
        topic = topics.read_topic(reader.txn, name)
        if question.rule != finding.BROKER:
            session.warn(by_time.texts_of_clock(reader, topic, question.clock))
        if question.rule == finding.BROKER or explain:
            session.partial(f"{name}: {text}" for text in find_broken_beside(reader.txn, topic))
        entry = finding.find_entry(reader, topic, question, explain=explain, progress=progress)
        session.partial(finding.gaps_before(entry))
        session.warn(finding.texts_of_answer(reader.txn, topic, entry))
    return entry
