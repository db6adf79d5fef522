"""Metadata other than topics: tenants, namespaces, clusters, bookies, brokers' settings, resource groups, quotas."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pulsar_admin import arguments
from pulsar_admin.api.plan import Plan, Planner, plan_of
from pulsar_admin.api.session import Session
from pulsar_admin.api.topics import PolicyPlans
from pulsar_admin.later import later, laters
from pulsar_admin.store.codec.java import hash_order
from pulsar_admin.store.errors import InvalidValue
from pulsar_admin.store.model import resources
from pulsar_admin.store.model.topics import check_namespace, iter_partitioned
from pulsar_admin.store.names import LONG_MAX, NamespaceName, parse_namespace, parse_topic

if TYPE_CHECKING:
    from pulsar_admin.store.changes import bookies as bookie_changes
    from pulsar_admin.store.changes import cursors as cursor_changes
    from pulsar_admin.store.changes import deleting
    from pulsar_admin.store.changes import plan as store_plans
    from pulsar_admin.store.changes import policies as policy_changes
    from pulsar_admin.store.changes import resources as changes
    from pulsar_admin.store.changes import subscriptions as subscription_changes
    from pulsar_admin.store.db import delayed_rules
    from pulsar_admin.store.delayed import build
    from pulsar_admin.store.model import cursors
    from pulsar_admin.store.model.reader import EntryReader
    from pulsar_admin.store.model.topics import Topic
    from pulsar_admin.store.policies import values as policy_values
else:
    bookie_changes, cursor_changes, deleting = laters("pulsar_admin.store.changes", "bookies cursors deleting")
    policy_changes, changes = laters("pulsar_admin.store.changes", "policies resources")
    subscription_changes = later("pulsar_admin.store.changes.subscriptions")
    delayed_rules = later("pulsar_admin.store.db.delayed_rules")
    build = later("pulsar_admin.store.delayed.build")
    cursors = later("pulsar_admin.store.model.cursors")
    policy_values = later("pulsar_admin.store.policies.values")


class Resources(Planner):
    """The part of ``Store`` that reads and plans changes of these. Answers have upstream's keys; all raise MetadataCorrupt."""

    def tenants(self) -> tuple[str, ...]:
        """Return the names of the tenants."""
        return tuple(self._session.ask(resources.list_tenants))

    def tenant(self, name: str) -> resources.TenantInfo:
        """Return a tenant's ``admin_roles`` and ``allowed_clusters``; raises TenantNotFound."""
        return resources.TENANT.record(self._session.ask(resources.read_tenant, name), name)

    def create_tenant(
        self, name: str, *, admin_roles: Sequence[str] = (), allowed_clusters: Sequence[str] = ()
    ) -> Plan:
        """Plan creating a tenant with its allowed clusters (default: all); raises AlreadyExists, InvalidValue, Refused."""
        return self._planned_rows(changes.plan_create_tenant, name, admin_roles, allowed_clusters)

    def update_tenant(
        self, name: str, *, admin_roles: Sequence[str] = (), allowed_clusters: Sequence[str] = ()
    ) -> Plan:
        """Plan changing a tenant; an absent or empty argument changes nothing. Raises TenantNotFound, InvalidValue, Refused."""
        return self._planned_rows(changes.plan_update_tenant, name, admin_roles, allowed_clusters)

    def delete_tenant(self, name: str, *, force: bool = False) -> Plan:
        """Plan deleting a tenant, with ``force`` also its namespaces and their topics; raises TenantNotFound, Refused."""
        return self._planned(deleting.plan_delete_tenant, name, force)

    def clusters(self) -> tuple[str, ...]:
        """Return the names of the clusters, including those of which only a migration is stored."""
        return tuple(self._session.ask(resources.list_clusters))

    def current_cluster(self) -> str | None:
        """Return the cluster of the metadata, if ``pulsar/system`` or ``public/default``, which it created, names just one."""
        return self._session.ask(resources.current_cluster)

    def cluster(self, name: str) -> Cluster:
        """Return a cluster; its existence is checked on use (ResourceNotFound)."""
        return Cluster(self._session, name)

    def create_cluster(self, name: str, settings: Json, *, file: Path | str | None = None) -> Plan:
        """Plan creating a cluster from settings by upstream's keys (``serviceUrl`` …; an error lists them), and those in a file. Raises
        InvalidValue, AlreadyExists.
        """
        return self._planned_rows(changes.plan_create_cluster, name, given_settings(settings, file))

    def bookies(self) -> tuple[str, ...]:
        """Return the bookies that have a cookie, whether they run or not."""
        return tuple(self._session.ask(resources.list_bookies))

    def bookie_racks(self) -> Mapping[str, Mapping[str, resources.BookieRack]]:
        """Return group → bookie → its ``rack`` and ``hostname``."""
        groups = self._session.ask(resources.read_racks)
        return {group: resources.BOOKIE_RACK.records(racks) for group, racks in groups.items()}

    def bookie_rack(self, bookie: str) -> resources.BookieRack:
        """Return ``rack`` and ``hostname`` of a bookie; raises ResourceNotFound."""
        return resources.BOOKIE_RACK.record(self._session.ask(resources.read_rack, bookie), bookie)

    def set_bookie_rack(self, bookie: str, rack: str, *, group: str = "default", hostname: str | None = None) -> Plan:
        """Plan setting the rack and group of a bookie, ``host:port``; raises InvalidValue."""
        return self._planned_rows(changes.plan_set_rack, bookie, group, {"rack": rack, "hostname": hostname})

    def delete_bookie_rack(self, bookie: str) -> Plan:
        """Plan removing a bookie from its rack; raises ResourceNotFound."""
        return self._planned_rows(changes.plan_delete_rack, bookie)

    def rename_bookie(self, bookie: str, new: str) -> Plan:
        """Plan giving a bookie another id in its cookie, ensembles, marks and racks; ``export_bookies`` writes it into ``VERSION`` files.
        Raises ResourceNotFound, AlreadyExists, InvalidValue, Refused.
        """
        return self._planned_rows(bookie_changes.plan_rename, bookie, new)

    def dynamic_settings(self) -> Mapping[str, str]:
        """Return the settings of all brokers that were changed while they ran, by name."""
        return self._session.ask(resources.read_configuration)

    def dynamic_setting_names(self) -> tuple[str, ...]:
        """Return the names of the settings of Pulsar 4.0.8 that may change while brokers run."""
        return tuple(resources.DYNAMIC_SETTINGS)

    def set_dynamic_setting(self, name: str, value: str) -> Plan:
        """Plan setting a dynamic setting of all brokers; raises Refused (not a setting of Pulsar 4.0.8), InvalidValue."""
        return self._planned_rows(changes.plan_set_setting, name, value)

    def delete_dynamic_setting(self, name: str) -> Plan:
        """Plan deleting a dynamic setting, so that brokers' configuration files apply again; raises Refused."""
        return self._planned_rows(changes.plan_delete_setting, name)

    def resource_groups(self) -> tuple[str, ...]:
        """Return the names of the resource groups."""
        return tuple(self._session.ask(resources.list_resource_groups))

    def resource_group(self, name: str) -> resources.ResourceGroup:
        """Return the rates of a resource group (−1: unlimited); raises ResourceNotFound."""
        return resources.RESOURCE_GROUP.record(self._session.ask(resources.read_resource_group, name), name)

    def create_resource_group(self, name: str, **rates: int | None) -> Plan:
        """Plan creating or changing a resource group: ``publish_messages``, ``publish_bytes``, ``dispatch_messages``, ``dispatch_bytes``
        per second (−1: unlimited); those that are not given stay. Raises InvalidValue.
        """
        return self._plan_group("resourcegroups create", name, rates)

    def update_resource_group(self, name: str, **rates: int | None) -> Plan:
        """Plan the same, as the other command of the same effect."""
        return self._plan_group("resourcegroups update", name, rates)

    def _plan_group(self, command: str, name: str, rates: Mapping[str, int | None]) -> Plan:
        known = {key: one for key, one in rates.items() if one is not None and key in changes.RATES}
        given = {**rates, **{key: arguments.whole_number(key, one) for key, one in known.items()}}
        return self._planned_rows(changes.plan_group, command, name, given)

    def delete_resource_group(self, name: str) -> Plan:
        """Plan deleting a resource group; raises ResourceNotFound, Refused while namespaces are in it."""
        return self._planned_rows(changes.plan_delete_group, name)

    def bundle_quota(self, namespace: str | None = None, bundle: str | None = None) -> resources.BundleQuota:
        """Return the quota in force for a bundle, ``0xLOW_0xHIGH``, or the default one. Raises InvalidValue, NamespaceNotFound."""
        quota = self._session.ask(resources.read_bundle_quota, _parsed(namespace), bundle)
        return resources.BUNDLE_QUOTA.record(quota, bundle or "bundles")

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
        """Plan the quota of a bundle, or the default one: messages and bytes (``bandwidth``) per second, each (in, out), memory in MB.

        With ``dynamic`` a broker may recalculate it. Raises InvalidValue, NamespaceNotFound.
        """
        rates, bytes_ = _pair("messages", messages), _pair("bandwidth", bandwidth)
        quota = resources.BundleQuota(*rates, *bytes_, memory_mb, dynamic)
        return self._planned_rows(changes.plan_quota, _parsed(namespace), bundle, quota)

    def reset_bundle_quota(self, namespace: str, bundle: str) -> Plan:
        """Plan removing the quota of a bundle, so that the default applies; raises ResourceNotFound (no quota), as ``bundle_quota``."""
        return self._planned_rows(changes.plan_reset_quota, parse_namespace(namespace), bundle)


def _parsed(namespace: str | None) -> NamespaceName | None:
    return None if namespace is None else parse_namespace(namespace)


def _pair(what: str, values: Any) -> tuple[float, float]:  # Any: what callers give
    if not isinstance(values, Sequence) or len(values) != 2:
        raise InvalidValue(f"{what} {values!r} are not two numbers: in and out", value=values)
    return arguments.given_number(what, values[0]), arguments.given_number(what, values[1])


Json = Mapping[str, Any]  # Any: JSON values, by upstream's keys


class Cluster(Planner):
    """A cluster, from ``Store.cluster``. Answers have upstream's fields and defaults; changes are plans.

    Every method that reads raises MetadataCorrupt, and ResourceNotFound if the cluster does not exist.
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
        return resources.CLUSTER.record(self._session.ask(resources.read_cluster, self._name), self._name)

    def update(self, settings: Json, *, file: Path | str | None = None) -> Plan:
        """Plan replacing all settings of the cluster, its peers too; parameters and errors as of ``Store.create_cluster``."""
        return self._planned_rows(changes.plan_update_cluster, self._name, given_settings(settings, file))

    def delete(self, *, everything: bool = False) -> Plan:
        """Plan deleting the cluster, with ``everything`` also every tenant, namespace and topic; raises Refused."""
        if everything:
            return self._planned(deleting.plan_delete_all, self._name)
        return self._planned_rows(changes.plan_delete_cluster, self._name)

    def peers(self) -> Sequence[str] | None:
        """Return the cluster's peers, None if it has none."""
        return self._session.ask(resources.read_peers, self._name)

    def set_peers(self, peers: Sequence[str]) -> Plan:
        """Plan setting the cluster's peers; raises Refused for an unknown cluster."""
        return self._planned_rows(changes.plan_peers, self._name, peers)

    def migration(self) -> resources.Migration:
        """Return whether it is ``migrated``, and the ``migrated_cluster_url``; raises ResourceNotFound if never set."""
        return resources.MIGRATION.record(self._session.ask(resources.read_migration, self._name), self._name)

    def set_migration(self, *, migrated: bool, urls: Mapping[str, str | None]) -> Plan:
        """Plan setting whether the cluster, which need not exist, is migrated, and its new ``serviceUrl``, ``brokerServiceUrl``, and
        both with ``Tls``. Raises InvalidValue.
        """
        return self._planned_rows(changes.plan_migration, self._name, migrated, urls)

    def failure_domains(self) -> Mapping[str, resources.FailureDomain]:
        """Return name → failure domain with its ``brokers``; as upstream, empty for a cluster that does not exist."""
        return resources.DOMAIN.records(self._session.ask(resources.read_domains, self._name))

    def failure_domain(self, name: str) -> resources.FailureDomain:
        """Return one failure domain; raises ResourceNotFound."""
        return resources.DOMAIN.record(self._session.ask(resources.read_domain, self._name, name), name)

    def create_failure_domain(self, name: str, brokers: Sequence[str]) -> Plan:
        """Plan setting the brokers of a failure domain; raises Refused for a broker of another domain."""
        return self._planned_rows(changes.plan_domain, "clusters create-failure-domain", self._name, name, brokers)

    def update_failure_domain(self, name: str, brokers: Sequence[str]) -> Plan:
        """Plan the same, as the other command of the same effect."""
        return self._planned_rows(changes.plan_domain, "clusters update-failure-domain", self._name, name, brokers)

    def delete_failure_domain(self, name: str) -> Plan:
        """Plan deleting a failure domain; raises ResourceNotFound."""
        return self._planned_rows(changes.plan_delete_domain, self._name, name)

    def namespaces(self, tenant: str) -> tuple[str, ...]:
        """Return a tenant's namespaces with the cluster in their names, as before Pulsar 2.0; raises ResourceNotFound, TenantNotFound."""
        return tuple(map(str, self._session.ask(resources.legacy_namespaces, self._name, tenant)))

    def anti_affinity_namespaces(self, tenant: str, group: str) -> tuple[str, ...]:
        """Return a tenant's namespaces in an anti-affinity group; raises ResourceNotFound, TenantNotFound."""
        return tuple(map(str, self._session.ask(resources.anti_affinity_namespaces, self._name, tenant, group)))

    def isolation_policies(self) -> Mapping[str, resources.IsolationPolicy]:
        """Return name → isolation policy: ``namespaces``, ``primary`` and ``secondary``; raises ResourceNotFound if never set."""
        return resources.ISOLATION_POLICY.records(self._session.ask(resources.read_isolation, self._name))

    def isolation_policy(self, name: str) -> resources.IsolationPolicy:
        """Return one isolation policy; raises ResourceNotFound."""
        policy = self._session.ask(resources.read_isolation_policy, self._name, name)
        return resources.ISOLATION_POLICY.record(policy, name)

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
        """Plan that ``primary`` brokers serve the namespaces, and ``secondary`` ones if few primary run: regular expressions.

        ``failover`` has ``min_limit`` and ``usage_threshold`` as texts; ``unload_scope`` is what brokers unload for
        the change. Raises InvalidValue.
        """
        lists = {"namespaces": namespaces, "primary": primary, "secondary": secondary}
        policy = changes.isolation_of(lists, failover_type, failover, unload_scope)
        return self._planned_rows(changes.plan_set_isolation, self._name, name, policy)

    def delete_isolation_policy(self, name: str) -> Plan:
        """Plan deleting an isolation policy, which need not exist."""
        return self._planned_rows(changes.plan_delete_isolation, self._name, name)


def given_settings(settings: Json, file: Path | str | None) -> dict[str, Any]:  # Any: JSON values
    """Return a cluster's settings merged over those in a file (JSON or lines of ``key: value``); raises InvalidValue."""
    given = {} if file is None else changes.read_cluster_file(Path(file))
    for key, value in arguments.given_mapping("settings", settings).items():
        if key not in resources.CLUSTER.defaults:
            raise InvalidValue(
                f"a cluster has no setting {key!r}", hint=f"there are {', '.join(resources.CLUSTER.defaults)}"
            )
        if key == "peerClusterNames":
            given[key] = list(arguments.given_texts(key, value))
        else:
            check = arguments.given_flag if resources.CLUSTER.defaults[key] is False else arguments.given_text
            given[key] = check(key, value)
    return given


Domain = Literal["persistent", "non-persistent"]
Width = str | int
"""A width of time of the index of delayed messages: ``30s``, ``5m``, ``2w``, or milliseconds as an int."""


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

        ``system`` adds system topics; ``bundle``, ``0xLOW_0xHIGH``, selects the topics in it, none if there is no such bundle. Those of the
        ``domain`` ``non-persistent`` are not on disk. Raises InvalidValue.
        """
        names = self._session.ask(resources.list_topic_names, self._name, bundle, system)
        return names if domain == "persistent" else ()

    def partitioned_topics(self, *, system: bool = False) -> tuple[str, ...]:
        """Return the names of its partitioned topics, without partition numbers; ``system`` adds system topics."""
        with self._session.read() as txn:
            check_namespace(txn, self._name)
            return tuple(str(name) for name in iter_partitioned(txn, self._name) if system or not name.is_system)

    def bundle_range(self, topic: str) -> str:
        """Return the bundle of a topic, which need not exist: ``0xLOW_0xHIGH``. Raises InvalidValue (topic of another namespace)."""
        name = parse_topic(topic)
        resources.check_inside(self._name, name)
        return self._session.ask(resources.bundle_range, name)

    def policies(self) -> Json:
        """Return the stored policies under upstream's keys; broker.conf applies for all others."""
        return self._session.ask(policy_changes.read_policies_json, self._name)

    def delayed_policy(self) -> policy_changes.DelayedPolicy:
        """Return the policies for delayed messages: ``delivery`` (Pulsar's), ``rules`` (widths of the index); None: unset."""
        return self._session.ask(policy_changes.read_delayed_policy, self._name)

    def policy(self, name: str) -> Any:  # Any: JSON
        """Return a policy (``max-producers``, named as in commands) as stored, None: unset. Raises InvalidValue."""
        from pulsar_admin.store.policies.table import policy_named

        with self._session.read() as txn:
            check_namespace(txn, self._name)
            return policy_values.namespace_value(txn, self._name, policy_named(name, self._group))

    def clear_backlog(self, subscription: str | None = None, *, bundle: str | None = None) -> Plan:
        """Plan skipping the backlog of a subscription, or of all, in the namespace's topics or those in a bundle.

        System topics and a broker's own cursors stay; unreadable topics give a PartialData warning. Raises SubscriptionNotFound (no topic
        has one), Refused (``subscription`` is the broker's own), InvalidValue.
        """
        return self._plan_cursors(cursor_changes.plan_clear, cursor_changes.CLEAR_NAMESPACE, subscription, bundle)

    def unsubscribe(self, subscription: str, *, bundle: str | None = None) -> Plan:
        """Plan removing a subscription from every topic that has it, or from those in a bundle; raises as ``clear_backlog``."""
        kind = subscription_changes.UNSUBSCRIBE_NAMESPACE
        return self._plan_cursors(subscription_changes.plan_unsubscribe, kind, subscription, bundle)

    def _plan_cursors(
        self,
        make: Callable[
            [EntryReader, store_plans.ChangeKind, list[tuple[Topic, cursors.Cursor]], int], store_plans.Plan
        ],
        kind: store_plans.ChangeKind,
        subscription: str | None,
        bundle: str | None,
    ) -> Plan:
        is_meant, fail = resources.within(self._name, bundle), self._session.fail
        of_topics = kind.command.replace("namespaces", "topics")
        with self._session.reader() as reader:
            candidates = cursors.iter_namespace_cursors(reader, self._name, subscription, fail, is_meant, of_topics)
            chosen = list(self._session.each(candidates, lambda one: one))
            return plan_of(make(reader, kind, chosen, self._session.clock_ms), reader.txn)

    def enable_delayed(self, granularity: Width = "5m", tick: Width | None = None, *, split: bool = False) -> Plan:
        """Plan enabling delayed delivery, with an index partitioned by ``granularity`` of due time.

        ``tick`` is by default 1s, or the shortest that fits; a PartialData warning names one longer than 1s. ``split`` re-partitions
        existing indexes for a smaller granularity. Raises InvalidValue, and without ``split`` Refused for a smaller granularity.
        """
        tick_ms = None if tick is None else _width_ms("tick", tick)
        rules, warnings = delayed_rules.make_rules(_width_ms("granularity", granularity), tick_ms)
        self._session.warn(warnings)
        if not split:
            return self._planned_rows(policy_changes.plan_enable, self._name, rules)
        with self._session.opened() as store, self._session.read() as txn:
            return plan_of(build.plan_split(store, txn, self._name, rules, self._session.clock_ms), txn)

    def disable_delayed(self) -> Plan:
        """Plan disabling delayed delivery, so that messages are delivered at once; the widths of the index stay."""
        return self._planned_rows(policy_changes.plan_disable, self._name)

    def _plan_policy(self, job: policy_changes.PolicyJob) -> Plan:
        return self._planned_rows(changes.plan_job, self._name, job)

    def bundles(self) -> resources.Bundles:
        """Return the ``boundaries`` of its bundles, and ``num_bundles``."""
        bundles = self._session.ask(resources.read_bundles, self._name)
        return resources.record_of(resources.Bundles, bundles, f"the bundles of {self._name}")

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
        given = [arguments.whole_number("boundary", one) for one in arguments.given_items("boundaries", boundaries)]
        return self._planned_rows(changes.plan_split, self._name, bundle, bundle_type, algorithm, given)

    def topic_hashes(self, bundle: str, topics: Sequence[str] = ()) -> resources.BundleTopics:
        """Return the hashes of topics (default: all) in a bundle, partitions one by one; raises TopicNotFound, InvalidValue."""
        return self._session.ask(resources.read_bundle_topics, self._name, bundle, [*map(parse_topic, topics)])

    def properties(self) -> Mapping[str, str]:
        """Return its properties."""
        return self._session.ask(resources.read_policies, self._name).get("properties") or {}

    def set_property(self, key: str, value: str) -> Plan:
        """Plan setting a property."""
        return self._planned_rows(changes.plan_properties, "namespaces set-property", self._name, {key: value})

    def set_properties(self, properties: Mapping[str, str]) -> Plan:
        """Plan setting properties and keeping the others."""
        return self._planned_rows(changes.plan_properties, "namespaces set-properties", self._name, properties)

    def remove_property(self, key: str) -> Plan:
        """Plan removing a property."""
        return self._planned_rows(changes.plan_properties, "namespaces remove-property", self._name, {key: None})

    def clear_properties(self) -> Plan:
        """Plan removing all properties."""
        return self._planned_rows(changes.plan_properties, changes.CLEAR_PROPERTIES, self._name, {})

    def permissions(self) -> Mapping[str, Sequence[str]]:
        """Return role → actions that it may perform on the namespace."""
        return self._session.ask(changes.read_permissions, self._name, None)

    def grant_permission(self, role: str, actions: Sequence[str]) -> Plan:
        """Plan replacing a role's permissions by ``actions`` (``produce``, ``consume`` …); raises InvalidValue."""
        grant = changes.Grant(role, actions)
        return self._planned_rows(changes.plan_permission, "namespaces grant-permission", self._name, grant)

    def revoke_permission(self, role: str) -> Plan:
        """Plan revoking a role's permissions on the namespace."""
        grant = changes.Grant(role)
        return self._planned_rows(changes.plan_permission, "namespaces revoke-permission", self._name, grant)

    def subscription_permissions(self) -> Mapping[str, Sequence[str]]:
        """Return restricted subscription → roles that may use it."""
        return self._session.ask(changes.read_subscription_permissions, self._name)

    def grant_subscription_permission(self, subscription: str, roles: Sequence[str]) -> Plan:
        """Plan restricting subscriptions with this name to ``roles``."""
        return self._planned_rows(changes.plan_grant_subscription, self._name, subscription, roles)

    def revoke_subscription_permission(self, subscription: str, role: str) -> Plan:
        """Plan revoking a role's access to a subscription; raises ResourceNotFound if it is not restricted."""
        return self._planned_rows(changes.plan_revoke_subscription, self._name, subscription, role)

    def allowed_clusters(self) -> Sequence[str]:
        """Return the clusters that the namespace may replicate to; empty: those of its tenant."""
        return hash_order(self._session.ask(resources.read_policies, self._name).get("allowed_clusters") or ())

    def set_allowed_clusters(self, clusters: Sequence[str]) -> Plan:
        """Plan setting the clusters that the namespace may replicate to; raises Refused."""
        return self._planned_rows(changes.plan_allowed_clusters, self._name, clusters)

    def anti_affinity_group(self) -> str | None:
        """Return the namespace's anti-affinity group, whose members brokers keep apart; None if it has none."""
        return self._session.ask(resources.find_anti_affinity, self._name)

    def set_anti_affinity_group(self, group: str) -> Plan:
        """Plan setting the namespace's anti-affinity group."""
        return self._planned_rows(changes.plan_anti_affinity, self._name, group)

    def delete_anti_affinity_group(self) -> Plan:
        """Plan removing the namespace from its anti-affinity group."""
        return self._planned_rows(changes.plan_anti_affinity, self._name, None)

    def bookie_affinity_group(self) -> Mapping[str, str] | None:
        """Return the groups of bookies that store the namespace's data; None: all bookies may."""
        return self._session.ask(resources.find_bookie_affinity, self._name)

    def set_bookie_affinity_group(self, primary: str, secondary: str | None = None) -> Plan:
        """Plan storing the namespace's data on bookies of the ``primary`` groups (comma-separated), or ``secondary`` if too few."""
        return self._planned_rows(changes.plan_bookie_affinity, self._name, primary, secondary)

    def delete_bookie_affinity_group(self) -> Plan:
        """Plan allowing all bookies to store the namespace's data."""
        return self._planned_rows(changes.plan_bookie_affinity, self._name, None, None)

    def set_migrated(self, migrated: bool) -> Plan:
        """Plan setting whether the namespace is migrated to the target of its cluster."""
        return self._planned_rows(changes.plan_migrated, self._name, migrated)


def _width_ms(what: str, value: Width) -> int:
    if isinstance(value, str):
        return delayed_rules.parse_width_ms(value)
    return arguments.whole_number(what, value, 1, LONG_MAX)
