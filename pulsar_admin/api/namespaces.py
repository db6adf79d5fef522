"""What the metadata know beside topics: tenants, namespaces, clusters, bookies, brokers' settings, resource groups, quotas."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pulsar_admin import arguments
from pulsar_admin.api.plan import Plan, Planner, plan_of
from pulsar_admin.api.session import Session
from pulsar_admin.api.topics import PolicyPlans, policy_named
from pulsar_admin.later import later
from pulsar_admin.store.codec.java import hash_order
from pulsar_admin.store.errors import InvalidValue
from pulsar_admin.store.model import resources
from pulsar_admin.store.model.topics import Topic, check_namespace, expand_topic, iter_partitioned, iter_topic_texts
from pulsar_admin.store.names import LONG_MAX, NamespaceName, parse_namespace, parse_topic
from pulsar_admin.store.timespec import format_duration_ms
from pulsar_admin.store.wording import Answer

if TYPE_CHECKING:
    from pulsar_admin.store.changes import policies as policy_changes
    from pulsar_admin.store.changes import resources as resource_changes
    from pulsar_admin.store.changes.plan import ChangeKind
    from pulsar_admin.store.changes.plan import Plan as StorePlan
    from pulsar_admin.store.changes.policies import PolicyJob
    from pulsar_admin.store.db.environment import Txn
    from pulsar_admin.store.model.cursors import Cursor
    from pulsar_admin.store.model.reader import EntryReader
else:
    policy_changes = later("pulsar_admin.store.changes.policies")
    resource_changes = later("pulsar_admin.store.changes.resources")


_RATES = {
    "publish_messages": "publishRateInMsgs",
    "publish_bytes": "publishRateInBytes",
    "dispatch_messages": "dispatchRateInMsgs",
    "dispatch_bytes": "dispatchRateInBytes",
}


class Resources(Planner):
    """The part of ``Store`` that asks for these and plans their changes. Answers have upstream's keys; all raise MetadataCorrupt."""

    # -- tenants ------------------------------------------------------------------------------------------------------

    def tenants(self) -> tuple[str, ...]:
        """Return the names of the tenants."""
        return tuple(self._session.ask(resources.list_tenants))

    def tenant(self, name: str) -> resources.TenantInfo:
        """Return a tenant's ``admin_roles`` and ``allowed_clusters``; raises TenantNotFound."""
        return resources.TENANT.record(self._session.ask(resources.read_tenant, name), f"tenant {name}")

    def create_tenant(
        self, name: str, *, admin_roles: Sequence[str] = (), allowed_clusters: Sequence[str] = ()
    ) -> Plan:
        """Plan creating a tenant with its allowed clusters (default: all); raises AlreadyExists, InvalidValue, Refused."""
        return self._planned_rows(resource_changes.plan_create_tenant, name, admin_roles, allowed_clusters)

    def update_tenant(
        self, name: str, *, admin_roles: Sequence[str] = (), allowed_clusters: Sequence[str] = ()
    ) -> Plan:
        """Plan changing the admin roles and allowed clusters of a tenant; an absent or empty argument changes nothing.

        Raises TenantNotFound, InvalidValue, Refused.
        """
        return self._planned_rows(resource_changes.plan_update_tenant, name, admin_roles, allowed_clusters)

    def delete_tenant(self, name: str, *, force: bool = False) -> Plan:
        """Plan deleting a tenant, with ``force`` also its namespaces and their topics; raises TenantNotFound, Refused."""
        from pulsar_admin.store.changes.deleting import plan_delete_tenant

        return self._planned(lambda reader, now_ms: plan_delete_tenant(reader, name, now_ms, force=force))

    # -- clusters -----------------------------------------------------------------------------------------------------

    def clusters(self) -> tuple[str, ...]:
        """Return the names of the clusters, also of those that only have a migration."""
        return tuple(self._session.ask(resources.list_clusters))

    def current_cluster(self) -> str | None:
        """Return the cluster that the metadata are of: the only one of ``pulsar/system`` or ``public/default``, which it made."""
        return self._session.ask(resources.current_cluster)

    def cluster(self, name: str) -> Cluster:
        """Return a cluster; its existence is checked on use (ResourceNotFound)."""
        return Cluster(self._session, name)

    def create_cluster(self, name: str, settings: Json, *, file: Path | str | None = None) -> Plan:
        """Plan creating a cluster from settings by upstream's keys (``serviceUrl`` …), and those in a file.

        Raises InvalidValue, which lists the keys, and AlreadyExists.
        """
        return self._planned_rows(resource_changes.plan_create_cluster, name, given_settings(settings, file))

    # -- bookies ------------------------------------------------------------------------------------------------------

    def bookies(self) -> tuple[str, ...]:
        """Return the bookies that have a cookie, whether they run or not."""
        return tuple(self._session.ask(resources.list_bookies))

    def bookie_racks(self) -> Mapping[str, Mapping[str, resources.BookieRack]]:
        """Return by group and bookie its ``rack`` and ``hostname``."""
        groups = self._session.ask(resources.read_racks)
        return {group: resources.BOOKIE_RACK.records(racks, "the rack of") for group, racks in groups.items()}

    def bookie_rack(self, bookie: str) -> resources.BookieRack:
        """Return ``rack`` and ``hostname`` of a bookie; raises ResourceNotFound."""
        return resources.BOOKIE_RACK.record(self._session.ask(resources.read_rack, bookie), f"the rack of {bookie}")

    def set_bookie_rack(self, bookie: str, rack: str, *, group: str = "default", hostname: str | None = None) -> Plan:
        """Plan setting the rack and group of a bookie, ``host:port``; raises InvalidValue."""
        return self._planned_rows(resource_changes.plan_set_rack, bookie, group, {"rack": rack, "hostname": hostname})

    def delete_bookie_rack(self, bookie: str) -> Plan:
        """Plan removing a bookie from its rack; raises ResourceNotFound."""
        return self._planned_rows(resource_changes.plan_delete_rack, bookie)

    def rename_bookie(self, bookie: str, new: str) -> Plan:
        """Plan giving a bookie another id in its cookie, in ensembles, marks and racks; ``export_bookies`` writes it into the ``VERSION``
        of its directories.

        Raises ResourceNotFound, AlreadyExists, InvalidValue, Refused.
        """
        from pulsar_admin.store.changes.bookies import plan_rename

        return self._planned_rows(plan_rename, bookie, new)

    # -- brokers ------------------------------------------------------------------------------------------------------

    def dynamic_settings(self) -> Mapping[str, str]:
        """Return the settings of all brokers that were changed while they ran, by name."""
        return self._session.ask(resources.read_configuration)

    def dynamic_setting_names(self) -> tuple[str, ...]:
        """Return the names of the settings of Pulsar 4.0.8 that may change while brokers run."""
        return tuple(resources.DYNAMIC_SETTINGS)

    def set_dynamic_setting(self, name: str, value: str) -> Plan:
        """Plan setting a dynamic setting of all brokers; raises Refused (not a setting of Pulsar 4.0.8), InvalidValue."""
        return self._planned_rows(resource_changes.plan_set_setting, name, value)

    def delete_dynamic_setting(self, name: str) -> Plan:
        """Plan deleting a dynamic setting, so that brokers' configuration files apply again; raises Refused."""
        return self._planned_rows(resource_changes.plan_delete_setting, name)

    # -- resource groups and quotas -----------------------------------------------------------------------------------

    def resource_groups(self) -> tuple[str, ...]:
        """Return the names of the resource groups."""
        return tuple(self._session.ask(resources.list_resource_groups))

    def resource_group(self, name: str) -> resources.ResourceGroup:
        """Return the rates of a resource group, −1: any; raises ResourceNotFound."""
        found = self._session.ask(resources.read_resource_group, name)
        return resources.RESOURCE_GROUP.record(found, f"resource group {name}")

    def create_resource_group(self, name: str, **rates: int | None) -> Plan:
        """Plan creating or changing a resource group: ``publish_messages``, ``publish_bytes``, ``dispatch_messages``, ``dispatch_bytes``.

        These are rates per second (−1: unlimited); rates that are not given stay. Raises InvalidValue.
        """
        return self._plan_group(resource_changes.CREATE_GROUP, name, rates)

    def update_resource_group(self, name: str, **rates: int | None) -> Plan:
        """Plan the same, as the other command of the same effect."""
        return self._plan_group(resource_changes.UPDATE_GROUP, name, rates)

    def _plan_group(self, kind: ChangeKind, name: str, rates: Mapping[str, int | None]) -> Plan:
        if unknown := rates.keys() - _RATES.keys():
            raise InvalidValue(
                f"a resource group has no {', '.join(sorted(unknown))}", hint=f"rates: {', '.join(_RATES)}"
            )
        given = {
            _RATES[key]: None if rate is None else arguments.whole_number(key, rate) for key, rate in rates.items()
        }
        return self._planned_rows(resource_changes.plan_group, kind, name, given)

    def delete_resource_group(self, name: str) -> Plan:
        """Plan deleting a resource group; raises ResourceNotFound, Refused while namespaces are in it."""
        return self._planned_rows(resource_changes.plan_delete_group, name)

    def bundle_quota(self, namespace: str | None = None, bundle: str | None = None) -> resources.BundleQuota:
        """Return the quota in force for a namespace's bundle, ``0xLOW_0xHIGH``; without them the default quota.

        Raises InvalidValue, NamespaceNotFound.
        """
        with self._session.read() as txn:
            quota = resources.read_bundle_quota(txn, _bundle(txn, namespace, bundle))
        return resources.BUNDLE_QUOTA.record(quota, "the quota")

    def set_bundle_quota(
        self,
        namespace: str | None = None,
        bundle: str | None = None,
        *,
        messages: tuple[float, float],
        bandwidth: tuple[float, float],
        memory_mb: float,
        dynamic: bool = False,
    ) -> Plan:
        """Plan the quota of a bundle, or the default one: messages and bytes (``bandwidth``) per second, each
        (in, out), and ``memory_mb``.

        With ``dynamic`` a broker may recalculate it. Raises InvalidValue, NamespaceNotFound.
        """
        keys = ("msgRateIn", "msgRateOut", "bandwidthIn", "bandwidthOut", "memory")
        amounts = [*_pair("messages", messages), *_pair("bandwidth", bandwidth), memory_mb]
        quota: dict[str, float | bool] = dict(zip(keys, amounts, strict=True))
        quota["dynamic"] = dynamic
        return self._planned_rows(
            lambda txn, now_ms: resource_changes.plan_quota(txn, _bundle(txn, namespace, bundle), quota, now_ms)
        )

    def reset_bundle_quota(self, namespace: str, bundle: str) -> Plan:
        """Plan that the default quota counts for a bundle; raises ResourceNotFound (it has none of its own), and as ``bundle_quota``."""
        name = parse_namespace(namespace)
        return self._planned_rows(
            lambda txn, now_ms: resource_changes.plan_reset_quota(txn, resources.read_bundle(txn, name, bundle), now_ms)
        )


def _bundle(txn: Txn, namespace: str | None, bundle: str | None) -> resources.Bundle | None:
    if namespace is None and bundle is None:
        return None
    if namespace is None or bundle is None:
        raise InvalidValue("namespace and bundle must be provided together.")
    return resources.read_bundle(txn, parse_namespace(namespace), bundle)


def _pair(what: str, values: Any) -> list[float]:  # Any: what callers give
    if not isinstance(values, Sequence) or len(values) != 2:
        raise InvalidValue(f"{what} {values!r} are not two numbers: in and out", value=values)
    return [arguments.given_number(what, one) for one in values]


Json = Mapping[str, Any]  # Any: JSON values, by upstream's keys


class Cluster(Planner):
    """A cluster, from ``Store.cluster``.

    Answers have upstream's fields and defaults; every question raises MetadataCorrupt, and ResourceNotFound if the
    cluster does not exist. Changes are plans.
    """

    def __init__(self, session: Session, name: str) -> None:
        self._session = session
        self._name = arguments.given_text("cluster", name)

    @property
    def name(self) -> str:
        """The name of the cluster."""
        return self._name

    def settings(self) -> resources.ClusterSettings:
        """Return its URLs and client settings: ``service_url``, ``broker_service_url`` …"""
        return resources.CLUSTER.record(self._session.ask(resources.read_cluster, self._name), f"cluster {self._name}")

    def update(self, settings: Json, *, file: Path | str | None = None) -> Plan:
        """Plan replacing all settings of the cluster, its peers too; parameters and errors as of ``Store.create_cluster``."""
        return self._planned_rows(resource_changes.plan_update_cluster, self._name, given_settings(settings, file))

    def delete(self, *, everything: bool = False) -> Plan:
        """Plan deleting the cluster, with ``everything`` also every tenant, namespace and topic; raises Refused."""
        from pulsar_admin.store.changes.deleting import plan_delete_all

        if everything:
            return self._planned(plan_delete_all, self._name)
        return self._planned_rows(resource_changes.plan_delete_cluster, self._name)

    # -- peers and migration ------------------------------------------------------------------------------------------

    def peers(self) -> Sequence[str] | None:
        """Return its peers; None: it has none."""
        with self._session.read() as txn:
            peers: Sequence[str] | None = resources.as_set(
                resources.read_cluster(txn, self._name).get("peerClusterNames")
            )
            return peers

    def set_peers(self, peers: Sequence[str]) -> Plan:
        """Plan setting the cluster's peers; raises Refused for an unknown cluster."""
        return self._planned_rows(resource_changes.plan_peers, self._name, peers)

    def migration(self) -> resources.Migration:
        """Return whether it is ``migrated``, and to where (``migrated_cluster_url``); ResourceNotFound: that was never set."""
        found = self._session.ask(resources.read_migration, self._name)
        return resources.MIGRATION.record(found, f"the migration of {self._name}")

    def set_migration(self, *, migrated: bool, urls: Mapping[str, str | None]) -> Plan:
        """Plan setting whether the cluster is migrated, and its new ``serviceUrl``, ``brokerServiceUrl``, and both with ``Tls``.

        The cluster need not exist. Raises InvalidValue.
        """
        given = {key: url for key, url in urls.items() if url is not None}
        known = [key for key in resources.CLUSTER_URL.defaults if key != "empty"]
        if unknown := [key for key in given if key not in known]:
            raise InvalidValue(f"a migration has no {', '.join(unknown)}", hint=f"there are {', '.join(known)}")
        return self._planned_rows(resource_changes.plan_migration, self._name, migrated, given)

    # -- failure domains ----------------------------------------------------------------------------------------------

    def failure_domains(self) -> Mapping[str, resources.FailureDomain]:
        """Return its failure domains by name, each with its ``brokers``; as upstream none for a cluster that does not exist."""
        return resources.DOMAIN.records(self._session.ask(resources.read_domains, self._name), "failure domain")

    def failure_domain(self, name: str) -> resources.FailureDomain:
        """Return one failure domain; raises ResourceNotFound."""
        return resources.DOMAIN.record(
            self._session.ask(resources.read_domain, self._name, name), f"failure domain {name}"
        )

    def create_failure_domain(self, name: str, brokers: Sequence[str]) -> Plan:
        """Plan setting the brokers of a failure domain; raises Refused for a broker of another domain."""
        return self._plan_domain(resource_changes.CREATE_DOMAIN, name, brokers)

    def update_failure_domain(self, name: str, brokers: Sequence[str]) -> Plan:
        """Plan the same, as the other command of the same effect."""
        return self._plan_domain(resource_changes.UPDATE_DOMAIN, name, brokers)

    def _plan_domain(self, kind: ChangeKind, name: str, brokers: Sequence[str]) -> Plan:
        return self._planned_rows(resource_changes.plan_domain, kind, self._name, name, brokers)

    def delete_failure_domain(self, name: str) -> Plan:
        """Plan deleting a failure domain; raises ResourceNotFound."""
        return self._planned_rows(resource_changes.plan_delete_domain, self._name, name)

    # -- namespaces ---------------------------------------------------------------------------------------------------

    def namespaces(self, tenant: str) -> tuple[str, ...]:
        """Return a tenant's namespaces with the cluster in their names, as before Pulsar 2.0.

        Raises ResourceNotFound, TenantNotFound.
        """
        with self._session.read() as txn:
            resources.read_cluster(txn, self._name)
            return tuple(str(name) for name in resources.list_namespaces(txn, tenant) if name.cluster == self._name)

    def anti_affinity_namespaces(self, tenant: str, group: str) -> tuple[str, ...]:
        """Return a tenant's namespaces in an anti-affinity group; raises ResourceNotFound, TenantNotFound."""
        with self._session.read() as txn:
            resources.check_cluster(txn, self._name)
            return tuple(
                str(name)
                for name in resources.list_namespaces(txn, tenant)
                if resources.find_local_policies(txn, name).get("namespaceAntiAffinityGroup") == group
            )

    # -- isolation policies -------------------------------------------------------------------------------------------

    def isolation_policies(self) -> Mapping[str, resources.IsolationPolicy]:
        """Return by name which ``namespaces`` only its ``primary`` and ``secondary`` brokers serve; ResourceNotFound: never set."""
        found = self._session.ask(resources.read_isolation, self._name)
        return resources.ISOLATION_POLICY.records(found, "isolation policy")

    def isolation_policy(self, name: str) -> resources.IsolationPolicy:
        """Return one isolation policy; raises ResourceNotFound."""
        found = self._session.ask(resources.read_isolation_policy, self._name, name)
        return resources.ISOLATION_POLICY.record(found, f"isolation policy {name}")

    def broker_isolation(self, broker: str) -> resources.BrokerIsolation:
        """Return the isolation policies that concern a broker, which need not exist."""
        isolation = self._session.ask(resources.broker_isolation, self._name, broker)
        return resources.record_of(resources.BrokerIsolation, isolation, f"an isolation policy of {self._name}")

    def set_isolation_policy(
        self,
        name: str,
        *,
        namespaces: Sequence[str],
        primary: Sequence[str],
        secondary: Sequence[str] = (),
        failover: Mapping[str, str],
        failover_type: str = "min_available",
        unload_scope: str | None = None,
    ) -> Plan:
        """Plan that ``primary`` brokers serve the namespaces, and ``secondary`` ones if few primary run; all are
        regular expressions.

        ``failover`` has ``min_limit`` and ``usage_threshold`` as texts; ``unload_scope`` is what brokers unload for
        the change. Raises InvalidValue.
        """
        lists = {"namespaces": namespaces, "primary": primary, "secondary": secondary}
        policy = resource_changes.isolation_of(lists, failover_type, failover, unload_scope)
        return self._planned_rows(resource_changes.plan_set_isolation, self._name, name, policy)

    def delete_isolation_policy(self, name: str) -> Plan:
        """Plan deleting an isolation policy, of a name that there need not be."""
        return self._planned_rows(resource_changes.plan_delete_isolation, self._name, name)


def given_settings(settings: Json, file: Path | str | None) -> dict[str, Any]:  # Any: JSON values
    """Return a cluster's settings merged over those in a file (JSON or lines of ``key: value``); raises InvalidValue."""
    given = {} if file is None else resource_changes.read_cluster_file(Path(file))
    for key, value in arguments.given_mapping("settings", settings).items():
        if key not in resources.CLUSTER.defaults:
            raise InvalidValue(
                f"a cluster has no setting {key!r}", hint=f"there are {', '.join(resources.CLUSTER.defaults)}"
            )
        if key == "peerClusterNames":
            given[key] = list(arguments.given_texts(key, value))
        else:
            given[key] = (arguments.given_flag if resources.CLUSTER.defaults[key] is False else arguments.given_text)(
                key, value
            )
    return given


Domain = Literal["persistent", "non-persistent"]
Width = str | int
"""A width of time of the index of delayed messages: ``30s``, ``5m``, ``2w``, or milliseconds as an int."""
_NOT_FOUND = "Namespace not found"


class BundleTopics(Answer, frozen=True):
    """The hashes of topics' names in a bundle, ``0xLOW_0xHIGH``."""

    namespace: str
    bundle: str
    topic_hash_positions: Mapping[str, int]


class Namespace(PolicyPlans):
    """A namespace, with policies or topics. Methods that change it return a plan for ``Store.apply``.

    Methods raise MetadataCorrupt and NamespaceNotFound; those that need policies raise it also for a namespace that has only topics.
    """

    _group = "namespaces"

    def __init__(self, session: Session, name: NamespaceName) -> None:
        self._session = session
        self._name = name

    @property
    def name(self) -> str:
        """The name, ``tenant/namespace``."""
        return str(self._name)

    def topics(
        self, *, system: bool = False, bundle: str | None = None, domain: Domain = "persistent"
    ) -> tuple[str, ...]:
        """Return the names of the namespace's topics, partitions one by one.

        ``system`` adds system topics; ``bundle``, ``0xLOW_0xHIGH``, selects the topics in it; the result is
        empty if the namespace has no such bundle. The ``domain`` ``non-persistent`` has no topics, because they are not on
        disk. Raises InvalidValue.
        """
        with self._session.read() as txn:
            check_namespace(txn, self._name)
            within = self._within(bundle)
            if domain != "persistent" or (
                bundle is not None
                and resources.parse_bundle(self._name, bundle) not in resources.iter_bundles(txn, self._name)
            ):
                return ()
            return tuple(filter(within, iter_topic_texts(txn, self._name, system=system)))

    def partitioned_topics(self, *, system: bool = False) -> tuple[str, ...]:
        """Return the names of its partitioned topics, without partition numbers; ``system`` adds system topics."""
        with self._session.read() as txn:
            check_namespace(txn, self._name)
            return tuple(str(name) for name in iter_partitioned(txn, self._name) if system or not name.is_system)

    def bundle_range(self, topic: str) -> str:
        """Return the bundle, ``0xLOW_0xHIGH``, into which a topic's name hashes; the topic need not exist.

        Raises InvalidValue (topic of another namespace).
        """
        name = parse_topic(topic)
        if name.namespace != self._name:
            raise InvalidValue(f"{name} is not in the namespace {self._name}", value=topic)
        return self._session.ask(resources.bundle_range, name)

    def policies(self) -> Mapping[str, Any]:  # Any: JSON values
        """Return the stored policies with every key that they have, as upstream spells them.

        A broker's configuration decides everything else.
        """
        return self._session.ask(policy_changes.read_policies_json, self._name)

    def delayed_policy(self) -> policy_changes.DelayedPolicy:
        """Return what it says about delayed messages: ``delivery`` (Pulsar's policy), ``rules`` (widths of the index); None: unset."""
        with self._session.read() as txn:
            policies = policy_changes.find_policies(txn, self._name)
            delivery = None if policies is None else policies.delayed_delivery
            return policy_changes.DelayedPolicy(delivery, policy_changes.find_rules(txn, self._name))

    def policy(self, name: str) -> Any:  # Any: JSON
        """Return a policy (``max-producers``, named as in commands) as stored, None: unset. Raises InvalidValue."""
        from pulsar_admin.store.policies.values import namespace_value

        with self._session.read() as txn:
            check_namespace(txn, self._name)
            return namespace_value(txn, self._name, policy_named(name, self._group))

    # -- plans of cursors ---------------------------------------------------------------------------------------------

    def clear_backlog(self, subscription: str | None = None, *, bundle: str | None = None) -> Plan:
        """Plan skipping the backlog of a subscription, or of all, in the namespace's topics or those in a bundle.

        System topics and a broker's own cursors stay. Unreadable topics are left out with a PartialData warning.
        Raises SubscriptionNotFound (no topic has one), Refused (``subscription`` is the broker's own), InvalidValue.
        """
        from pulsar_admin.store.changes.cursors import CLEAR_NAMESPACE, CursorMove, cleared, plan_moves

        def make(reader: EntryReader, now_ms: int) -> StorePlan:
            cursors = self._cursors(reader, subscription, bundle, "topics clear-backlog")
            moves = [CursorMove(topic, cursor, cleared(topic, cursor.state)) for topic, cursor in cursors]
            return plan_moves(reader, CLEAR_NAMESPACE, moves, now_ms)

        return self._planned(make)

    def unsubscribe(self, subscription: str, *, bundle: str | None = None) -> Plan:
        """Plan removing a subscription from every topic that has it, or from those in a bundle; raises as ``clear_backlog``."""
        from pulsar_admin.store.changes.subscriptions import UNSUBSCRIBE_NAMESPACE, plan_unsubscribe

        return self._planned(
            lambda reader, now_ms: plan_unsubscribe(
                reader, UNSUBSCRIBE_NAMESPACE, self._cursors(reader, subscription, bundle, "topics unsubscribe"), now_ms
            )
        )

    def _cursors(
        self, reader: EntryReader, subscription: str | None, bundle: str | None, of_topics: str
    ) -> list[tuple[Topic, Cursor]]:
        from pulsar_admin.store.model.cursors import iter_namespace_cursors

        within, fail = self._within(bundle), self._session.fail
        cursors = iter_namespace_cursors(reader, self._name, subscription, fail, within, of_topics)
        return list(self._session.each(cursors, lambda one: one))

    def _within(self, bundle: str | None) -> Callable[[object], bool]:
        """Return a function that tells whether a topic is in the bundle (None: every topic is); raises InvalidValue."""
        if bundle is None:
            return lambda name: True
        hashes = resources.parse_bundle(self._name, bundle)
        return lambda name: hashes.holds(resources.topic_hash(name))

    # -- plans of policies --------------------------------------------------------------------------------------------

    def enable_delayed(self, granularity: Width = "5m", tick: Width | None = None, *, split: bool = False) -> Plan:
        """Plan enabling delayed delivery, with an index partitioned by ``granularity`` of due time.

        ``tick`` is by default 1s, or the shortest that fits; a PartialData warning names one longer than 1s. ``split``
        re-partitions existing indexes for a smaller granularity. Raises InvalidValue, and without ``split`` Refused
        for a smaller granularity.
        """
        from pulsar_admin.store.db.delayed import iter_wide
        from pulsar_admin.store.db.delayed_rules import DEFAULT_RULES, SLOTS_MAX, IndexRules, default_tick_ms

        width_ms, now_ms = _width_ms("granularity", granularity), self._session.clock_ms
        rules = IndexRules(width_ms, default_tick_ms(width_ms) if tick is None else _width_ms("tick", tick))
        if tick is None and rules.tick_ms > DEFAULT_RULES.tick_ms:
            text = f"the tick is {format_duration_ms(rules.tick_ms)}: a partition has at most {SLOTS_MAX:,} of them"
            self._session.warn([text])
        with self._session.opened() as store, self._session.read() as txn:
            plan = policy_changes.plan_enable(txn, self._name, rules, now_ms, split=split)
            if not split or not any(True for _ in iter_wide(txn, self._name, rules)):
                return plan_of(plan, txn)
            from pulsar_admin.store.delayed.build import plan_split

            return plan_of(plan_split(store, self._name, rules, plan.txn_id, now_ms), txn)

    def disable_delayed(self) -> Plan:
        """Plan delivering everything at once; the widths of the index stay."""
        return self._planned_rows(policy_changes.plan_disable, self._name)

    def _plan_policy(self, job: PolicyJob) -> Plan:
        return self._planned_rows(resource_changes.plan_job, self._name, job)

    # -- bundles ------------------------------------------------------------------------------------------------------

    def bundles(self) -> resources.Bundles:
        """Return the ``boundaries`` of its bundles, and ``num_bundles``."""
        return resources.record_of(
            resources.Bundles, self._session.ask(resources.read_bundles, self._name), f"the bundles of {self._name}"
        )

    def split_bundle(
        self,
        bundle: str | None = None,
        *,
        bundle_type: str | None = None,
        algorithm: str = "range_equally_divide",
        boundaries: Iterable[int] = (),
    ) -> Plan:
        """Plan splitting a bundle, or with ``bundle_type`` ``LARGEST`` the one with the most topics.

        ``algorithm`` may also be ``topic_count_equally_divide``, or ``specified_positions_divide`` at the hashes
        ``boundaries``. Raises InvalidValue, NeedsBroker (for choices that depend on load).
        """

        def make(txn: Txn, now_ms: int) -> StorePlan:
            chosen = resource_changes.choose_bundle(txn, self._name, bundle, bundle_type)
            places = [
                arguments.whole_number("boundary", one) for one in arguments.given_items("boundaries", boundaries)
            ]
            return resource_changes.plan_split(txn, self._name, chosen, algorithm, places, now_ms)

        return self._planned_rows(make)

    def topic_hashes(self, bundle: str, topics: Sequence[str] = ()) -> BundleTopics:
        """Return the hashes of topics (default: all) in a bundle, partitions one by one; raises TopicNotFound, InvalidValue."""
        with self._session.read() as txn:
            for topic in map(parse_topic, topics):
                if topic.namespace != self._name:
                    raise InvalidValue(f"{topic} is not in the namespace {self._name}", value=str(topic))
                expand_topic(txn, topic)
            chosen = resources.read_bundle(txn, self._name, bundle)
            hashes = resources.bundle_topics(txn, chosen)
        bases = {name if "://" in name else f"persistent://{name}" for name in topics}
        positions = {
            name: value
            for name, value in hashes.items()
            if not bases or name.rpartition("-partition-")[0] in bases or name in bases
        }
        return BundleTopics(str(self._name), chosen.range, positions)

    # -- properties ---------------------------------------------------------------------------------------------------

    def properties(self) -> Mapping[str, str]:
        """Return its properties."""
        return self._session.ask(resources.read_policies, self._name).get("properties") or {}

    def set_property(self, key: str, value: str) -> Plan:
        """Plan setting a property."""
        return self._plan_properties(resource_changes.SET_PROPERTY, lambda found: {**found, key: value})

    def set_properties(self, properties: Mapping[str, str]) -> Plan:
        """Plan setting properties and keeping the others."""
        return self._plan_properties(resource_changes.SET_PROPERTIES, lambda found: {**found, **properties})

    def remove_property(self, key: str) -> Plan:
        """Plan removing a property."""
        return self._plan_properties(
            resource_changes.REMOVE_PROPERTY, lambda found: {name: one for name, one in found.items() if name != key}
        )

    def clear_properties(self) -> Plan:
        """Plan removing all of its properties."""
        return self._plan_properties(resource_changes.CLEAR_PROPERTIES, lambda found: {})

    def _plan_properties(self, kind: ChangeKind, change: Callable[[dict[str, str]], dict[str, str]]) -> Plan:
        return self._planned_rows(resource_changes.plan_properties, kind, self._name, change)

    # -- permissions --------------------------------------------------------------------------------------------------

    def permissions(self) -> Mapping[str, Sequence[str]]:
        """Return what each role may do on it."""
        return resource_changes.read_permissions(self._session.ask(resources.read_policies, self._name))

    def grant_permission(self, role: str, actions: Sequence[str]) -> Plan:
        """Plan replacing a role's permissions by ``actions`` (``produce``, ``consume`` …); raises InvalidValue."""
        grant = resource_changes.Grant(role, resource_changes.check_actions(actions))
        return self._planned_rows(resource_changes.plan_permission, resource_changes.GRANT, self._name, grant)

    def revoke_permission(self, role: str) -> Plan:
        """Plan revoking a role's permissions on the namespace."""
        grant = resource_changes.Grant(role)
        return self._planned_rows(resource_changes.plan_permission, resource_changes.REVOKE, self._name, grant)

    def subscription_permissions(self) -> Mapping[str, Sequence[str]]:
        """Return the roles of each subscription that only some may use."""
        return resource_changes.read_subscription_permissions(self._session.ask(resources.read_policies, self._name))

    def grant_subscription_permission(self, subscription: str, roles: Sequence[str]) -> Plan:
        """Plan that only ``roles`` may use subscriptions with this name."""
        return self._planned_rows(resource_changes.plan_grant_subscription, self._name, subscription, roles)

    def revoke_subscription_permission(self, subscription: str, role: str) -> Plan:
        """Plan revoking a role's right to a subscription; raises ResourceNotFound if no role has it."""
        return self._planned_rows(resource_changes.plan_revoke_subscription, self._name, subscription, role)

    # -- clusters and affinity ----------------------------------------------------------------------------------------

    def allowed_clusters(self) -> Sequence[str]:
        """Return the clusters that it may replicate to; none: those of its tenant."""
        return hash_order(self._session.ask(resources.read_policies, self._name).get("allowed_clusters") or ())

    def set_allowed_clusters(self, clusters: Sequence[str]) -> Plan:
        """Plan setting the clusters that the namespace may replicate to; raises Refused."""
        return self._planned_rows(resource_changes.plan_allowed_clusters, self._name, clusters)

    def anti_affinity_group(self) -> str | None:
        """Return the group whose members brokers keep apart, None: it is in none."""
        with self._session.read() as txn:
            group: str | None = resources.find_local_policies(txn, self._name).get("namespaceAntiAffinityGroup")
        return group

    def set_anti_affinity_group(self, group: str) -> Plan:
        """Plan setting the namespace's anti-affinity group."""
        return self._plan_local(resource_changes.SET_ANTI_AFFINITY, "namespaceAntiAffinityGroup", group)

    def delete_anti_affinity_group(self) -> Plan:
        """Plan that it is in no anti-affinity group."""
        return self._plan_local(resource_changes.DELETE_ANTI_AFFINITY, "namespaceAntiAffinityGroup", None)

    def bookie_affinity_group(self) -> Mapping[str, str] | None:
        """Return the groups of bookies that keep its data, None: all do."""
        with self._session.read() as txn:
            resources.read_policies(txn, self._name, _NOT_FOUND)
            group: Mapping[str, str] | None = resources.find_local_policies(txn, self._name).get("bookieAffinityGroup")
            return group

    def set_bookie_affinity_group(self, primary: str, secondary: str | None = None) -> Plan:
        """Plan storing the namespace's data on bookies of the ``primary`` groups (comma-separated), or ``secondary`` if too few."""
        groups = {"bookkeeperAffinityGroupPrimary": primary, "bookkeeperAffinityGroupSecondary": secondary}
        given = {
            key: arguments.given_text("group", one)
            for key, one in groups.items()
            if one is not None or key.endswith("Primary")
        }
        return self._plan_local(resource_changes.SET_BOOKIE_AFFINITY, "bookieAffinityGroup", given, error=_NOT_FOUND)

    def delete_bookie_affinity_group(self) -> Plan:
        """Plan that all bookies may keep its data."""
        return self._plan_local(resource_changes.DELETE_BOOKIE_AFFINITY, "bookieAffinityGroup", None, error=_NOT_FOUND)

    def set_migrated(self, migrated: bool) -> Plan:
        """Plan setting whether the namespace is migrated to the target of its cluster."""
        return self._plan_local(resource_changes.UPDATE_MIGRATION, "migrated", migrated)

    def _plan_local(self, kind: ChangeKind, key: str, value: object, *, error: str | None = None) -> Plan:
        """Plan setting a key of the local policies; without policies the namespace raises with the text ``error``."""
        return self._planned_rows(resource_changes.plan_local, kind, self._name, key, value, error)


def _width_ms(what: str, value: Width) -> int:
    from pulsar_admin.store.db.delayed_rules import parse_width_ms

    return parse_width_ms(value) if isinstance(value, str) else arguments.whole_number(what, value, 1, LONG_MAX)
