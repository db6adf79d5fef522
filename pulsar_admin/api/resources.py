"""What the metadata know beside topics: tenants, clusters, bookies, brokers' dynamic settings, resource groups and quotas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pulsar_admin.api.given import (
    given_flag,
    given_mapping,
    given_number,
    given_path,
    given_properties,
    given_text,
    given_texts,
    whole_number,
)
from pulsar_admin.api.plan import Plan
from pulsar_admin.api.planner import Planner
from pulsar_admin.api.session import Session
from pulsar_admin.store.errors import InvalidValue
from pulsar_admin.store.names import parse_namespace

if TYPE_CHECKING:
    from pulsar_admin.store.db.environment import Txn
    from pulsar_admin.store.model.resources import Bundle


_RATES = {
    "publish_messages": "publishRateInMsgs",
    "publish_bytes": "publishRateInBytes",
    "dispatch_messages": "dispatchRateInMsgs",
    "dispatch_bytes": "dispatchRateInBytes",
}


class Resources(Planner):
    """The part of ``Store`` that asks for these and plans their changes. Answers have upstream's keys; all raise MetadataCorrupt."""

    def __init__(self, session: Session) -> None:
        self._session = session

    # -- tenants ------------------------------------------------------------------------------------------------------

    def tenants(self) -> tuple[str, ...]:
        """Return the names of the tenants."""
        from pulsar_admin.store.model.resources import list_tenants

        return tuple(self._session.ask(list_tenants))

    def tenant(self, name: str) -> Json:
        """Return the ``adminRoles`` and ``allowedClusters`` of a tenant; raises TenantNotFound."""
        from pulsar_admin.store.model.resources import TENANT, read_tenant

        return TENANT.show(self._session.ask(read_tenant, given_text("tenant", name)))

    def create_tenant(
        self, name: str, *, admin_roles: Sequence[str] = (), allowed_clusters: Sequence[str] = ()
    ) -> Plan:
        """Plan making a tenant that may use ALLOWED_CLUSTERS, default: all; raises AlreadyExists, InvalidValue, Refused."""
        from pulsar_admin.store.changes.resources import plan_create_tenant

        roles, clusters = given_texts("admin_roles", admin_roles), given_texts("allowed_clusters", allowed_clusters)
        return self._session.plan_rows(plan_create_tenant, given_text("tenant", name), roles, clusters)

    def update_tenant(
        self, name: str, *, admin_roles: Sequence[str] = (), allowed_clusters: Sequence[str] = ()
    ) -> Plan:
        """Plan other ADMIN_ROLES and ALLOWED_CLUSTERS of a tenant, without them those that it has.

        Raises TenantNotFound, InvalidValue, Refused.
        """
        from pulsar_admin.store.changes.resources import plan_update_tenant

        roles, clusters = given_texts("admin_roles", admin_roles), given_texts("allowed_clusters", allowed_clusters)
        return self._session.plan_rows(plan_update_tenant, given_text("tenant", name), roles, clusters)

    def delete_tenant(self, name: str, *, force: bool = False) -> Plan:
        """Plan deleting a tenant, with FORCE also its namespaces and their topics; raises TenantNotFound, Refused."""
        from pulsar_admin.store.changes.ending import plan_delete_tenant

        given_text("tenant", name)
        given_flag("force", force)
        return self._session.plan(lambda reader, now_ms: plan_delete_tenant(reader, name, now_ms, force=force))

    # -- clusters -----------------------------------------------------------------------------------------------------

    def clusters(self) -> tuple[str, ...]:
        """Return the names of the clusters, also of those that only have a migration."""
        from pulsar_admin.store.model.resources import list_clusters

        return tuple(self._session.ask(list_clusters))

    def current_cluster(self) -> str | None:
        """Return the cluster that the metadata are of: the only one of ``pulsar/system`` or ``public/default``, which it made."""
        from pulsar_admin.store.model.resources import current_cluster

        return self._session.ask(current_cluster)

    def cluster(self, name: str) -> Cluster:
        """Return the cluster NAME; whether it is there is seen when it is used: ResourceNotFound."""

        return Cluster(self._session, name)

    def create_cluster(self, name: str, settings: Json, *, file: Path | str | None = None) -> Plan:
        """Plan a cluster of SETTINGS, see ``Cluster.settings``, and what FILE says beside; raises InvalidValue, AlreadyExists."""
        from pulsar_admin.store.changes.resources import plan_create_cluster

        return self._session.plan_rows(plan_create_cluster, given_text("cluster", name), given_settings(settings, file))

    # -- bookies ------------------------------------------------------------------------------------------------------

    def bookies(self) -> tuple[str, ...]:
        """Return the bookies that have a cookie, whether they run or not."""
        from pulsar_admin.store.model.resources import list_bookies

        return tuple(self._session.ask(list_bookies))

    def bookie_racks(self) -> Mapping[str, Mapping[str, Json]]:
        """Return by group and bookie its ``rack`` and ``hostname``."""
        from pulsar_admin.store.model.resources import BOOKIE_RACK, read_racks

        with self._session.read() as txn:
            return {
                group: {name: BOOKIE_RACK.show(one) for name, one in found.items()}
                for group, found in read_racks(txn).items()
            }

    def bookie_rack(self, bookie: str) -> Json:
        """Return ``rack`` and ``hostname`` of a bookie; raises ResourceNotFound."""
        from pulsar_admin.store.model.resources import BOOKIE_RACK, read_rack

        return BOOKIE_RACK.show(self._session.ask(read_rack, given_text("bookie", bookie)))

    def set_bookie_rack(self, bookie: str, rack: str, *, group: str = "default", hostname: str | None = None) -> Plan:
        """Plan that BOOKIE, ``host:port``, is in RACK, and of a GROUP; raises InvalidValue."""
        from pulsar_admin.store.changes.resources import plan_set_rack

        host = None if hostname is None else given_text("hostname", hostname)
        place = {"rack": given_text("rack", rack), "hostname": host}
        return self._session.plan_rows(plan_set_rack, given_text("bookie", bookie), given_text("group", group), place)

    def delete_bookie_rack(self, bookie: str) -> Plan:
        """Plan that BOOKIE is in no rack; raises ResourceNotFound."""
        from pulsar_admin.store.changes.resources import plan_delete_rack

        return self._session.plan_rows(plan_delete_rack, given_text("bookie", bookie))

    # -- brokers ------------------------------------------------------------------------------------------------------

    def dynamic_settings(self) -> Mapping[str, str]:
        """Return the settings of all brokers that were changed while they ran, by name."""
        from pulsar_admin.store.model.resources import read_configuration

        return self._session.ask(read_configuration)

    def dynamic_setting_names(self) -> tuple[str, ...]:
        """Return the names of the settings of Pulsar 4.0.8 that may change while brokers run."""
        from pulsar_admin.store.model.resources import DYNAMIC_SETTINGS

        return tuple(DYNAMIC_SETTINGS)

    def set_dynamic_setting(self, name: str, value: str) -> Plan:
        """Plan setting NAME to VALUE for all brokers; raises Refused (it is none of Pulsar 4.0.8), InvalidValue."""
        from pulsar_admin.store.changes.resources import plan_set_setting

        return self._session.plan_rows(
            plan_set_setting, given_text("setting", name), given_text(f"setting {name}", value)
        )

    def delete_dynamic_setting(self, name: str) -> Plan:
        """Plan that brokers' configuration files say NAME again; raises Refused."""
        from pulsar_admin.store.changes.resources import plan_delete_setting

        return self._session.plan_rows(plan_delete_setting, given_text("setting", name))

    # -- resource groups and quotas -----------------------------------------------------------------------------------

    def resource_groups(self) -> tuple[str, ...]:
        """Return the names of the resource groups."""

        from pulsar_admin.store.model.resources import list_resource_groups

        return tuple(self._session.ask(list_resource_groups))

    def resource_group(self, name: str) -> Json:
        """Return the rates of a resource group, −1: any; raises ResourceNotFound."""
        from pulsar_admin.store.model.resources import RESOURCE_GROUP, read_resource_group

        return RESOURCE_GROUP.show(self._session.ask(read_resource_group, given_text("resource group", name)))

    def create_resource_group(self, name: str, **rates: int | None) -> Plan:
        """Plan a resource group, or changes of one: ``publish_messages``, ``publish_bytes``, ``dispatch_messages``, ``dispatch_bytes``.

        These are rates a second, −1: any; those not given stay. Raises InvalidValue.
        """
        return self._plan_group("resourcegroups create", name, rates)

    def update_resource_group(self, name: str, **rates: int | None) -> Plan:
        """Plan the same, as the other command of the same effect."""
        return self._plan_group("resourcegroups update", name, rates)

    def _plan_group(self, command: str, name: str, rates: Mapping[str, int | None]) -> Plan:
        from pulsar_admin.store.changes.resources import plan_group

        if unknown := rates.keys() - _RATES.keys():
            raise InvalidValue(
                f"a resource group has no {', '.join(sorted(unknown))}", hint=f"rates: {', '.join(_RATES)}"
            )
        given = {_RATES[key]: None if rate is None else whole_number(key, rate) for key, rate in rates.items()}
        return self._session.plan_rows(plan_group, command, given_text("resource group", name), given)

    def delete_resource_group(self, name: str) -> Plan:
        """Plan deleting a resource group; raises ResourceNotFound, Refused while namespaces are in it."""
        from pulsar_admin.store.changes.resources import plan_delete_group

        return self._session.plan_rows(plan_delete_group, given_text("resource group", name))

    def bundle_quota(self, namespace: str | None = None, bundle: str | None = None) -> Json:
        """Return the quota in force for a BUNDLE, ``0xLOW_0xHIGH``, of a NAMESPACE, without them the default one.

        Raises InvalidValue, NamespaceNotFound.
        """
        from pulsar_admin.store.model.resources import BUNDLE_QUOTA, read_bundle_quota

        with self._session.read() as txn:
            return BUNDLE_QUOTA.show(read_bundle_quota(txn, _bundle(txn, namespace, bundle)))

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
        """Plan the quota of a bundle, or the default one: MESSAGES and bytes (BANDWIDTH) a second, each (in, out), and MEMORY_MB.

        DYNAMIC: a broker may calculate it anew. Raises InvalidValue, NamespaceNotFound.
        """
        from pulsar_admin.store.changes.resources import plan_quota

        keys = ("msgRateIn", "msgRateOut", "bandwidthIn", "bandwidthOut", "memory")
        amounts = [*_pair("messages", messages), *_pair("bandwidth", bandwidth), given_number("memory_mb", memory_mb)]
        quota: dict[str, float | bool] = dict(zip(keys, amounts, strict=True))
        quota["dynamic"] = given_flag("dynamic", dynamic)
        return self._session.plan_rows(
            lambda txn, now_ms: plan_quota(txn, _bundle(txn, namespace, bundle), quota, now_ms)
        )

    def reset_bundle_quota(self, namespace: str, bundle: str) -> Plan:
        """Plan that the default quota counts for a bundle; raises ResourceNotFound (it has none of its own), and as ``bundle_quota``."""
        from pulsar_admin.store.changes.resources import plan_reset_quota
        from pulsar_admin.store.model.resources import read_bundle

        name = parse_namespace(namespace)
        return self._session.plan_rows(
            lambda txn, now_ms: plan_reset_quota(txn, read_bundle(txn, name, given_text("bundle", bundle)), now_ms)
        )


def _bundle(txn: Txn, namespace: str | None, bundle: str | None) -> Bundle | None:
    from pulsar_admin.store.model.resources import read_bundle

    if namespace is None and bundle is None:
        return None
    if namespace is None or bundle is None:
        raise InvalidValue("namespace and bundle must be provided together.")
    return read_bundle(txn, parse_namespace(namespace), given_text("bundle", bundle))


def _pair(what: str, values: Any) -> list[float]:  # Any: what callers give
    if not isinstance(values, Sequence) or len(values) != 2:
        raise InvalidValue(f"{what} {values!r} are not two numbers: in and out", value=values)
    return [given_number(what, one) for one in values]


Json = Mapping[str, Any]  # Any: JSON values, by upstream's keys


class Cluster(Planner):
    """A cluster, from ``Store.cluster``. What is read has upstream's keys and defaults; every question raises MetadataCorrupt,
    and ResourceNotFound where there is no such cluster. Changes are plans."""

    def __init__(self, session: Session, name: str) -> None:
        self._session = session
        self._name = given_text("cluster", name)

    @property
    def name(self) -> str:
        """The name of the cluster."""
        return self._name

    def settings(self) -> Json:
        """Return its URLs and what clients of it need: ``serviceUrl``, ``brokerServiceUrl`` …"""
        from pulsar_admin.store.model.resources import CLUSTER, read_cluster

        return CLUSTER.show(self._session.ask(read_cluster, self._name))

    def update(self, settings: Json, *, file: Path | str | None = None) -> Plan:
        """Plan SETTINGS, and what FILE says beside, in place of all that it has, its peers too; raises InvalidValue."""
        from pulsar_admin.store.changes.resources import plan_update_cluster

        return self._session.plan_rows(plan_update_cluster, self._name, given_settings(settings, file))

    def delete(self, *, everything: bool = False) -> Plan:
        """Plan deleting it, with EVERYTHING also every tenant, namespace and topic; raises Refused."""
        from pulsar_admin.store.changes.ending import plan_delete_all
        from pulsar_admin.store.changes.resources import plan_delete_cluster

        if given_flag("everything", everything):
            return self._session.plan(plan_delete_all, self._name)
        return self._session.plan_rows(plan_delete_cluster, self._name)

    # -- peers and migration ------------------------------------------------------------------------------------------

    def peers(self) -> Sequence[str] | None:
        """Return its peers; None: it has none."""
        from pulsar_admin.store.model.resources import as_set, read_cluster

        with self._session.read() as txn:
            found: Sequence[str] | None = as_set(read_cluster(txn, self._name).get("peerClusterNames"))
            return found

    def set_peers(self, peers: Sequence[str]) -> Plan:
        """Plan its PEERS; raises Refused for one that is not there."""
        from pulsar_admin.store.changes.resources import plan_peers

        return self._session.plan_rows(plan_peers, self._name, given_texts("peers", peers))

    def migration(self) -> Json:
        """Return whether it is ``migrated``, and to where (``migratedClusterUrl``); ResourceNotFound: that was never set."""
        from pulsar_admin.store.model.resources import MIGRATION, read_migration

        return MIGRATION.show(self._session.ask(read_migration, self._name))

    def set_migration(self, *, migrated: bool, urls: Mapping[str, str | None]) -> Plan:
        """Plan whether it is MIGRATED, and to where: URLS by the keys of ``settings``. It need not be there. Raises InvalidValue."""
        from pulsar_admin.store.changes.resources import plan_migration

        given = given_properties({key: url for key, url in given_mapping("urls", urls).items() if url is not None})
        return self._session.plan_rows(plan_migration, self._name, given_flag("migrated", migrated), given)

    # -- failure domains ----------------------------------------------------------------------------------------------

    def failure_domains(self) -> Mapping[str, Json]:
        """Return its failure domains by name, each with its ``brokers``."""
        from pulsar_admin.store.model.resources import DOMAIN, read_domains

        with self._session.read() as txn:
            return {name: DOMAIN.show(found) for name, found in read_domains(txn, self._name).items()}

    def failure_domain(self, name: str) -> Json:
        """Return one failure domain; raises ResourceNotFound."""
        from pulsar_admin.store.model.resources import DOMAIN, read_domain

        return DOMAIN.show(self._session.ask(read_domain, self._name, given_text("domain", name)))

    def create_failure_domain(self, name: str, brokers: Sequence[str]) -> Plan:
        """Plan a failure domain of BROKERS, in place of one with its name; raises Refused for a broker of another."""
        return self._plan_domain("clusters create-failure-domain", name, brokers)

    def update_failure_domain(self, name: str, brokers: Sequence[str]) -> Plan:
        """Plan the same, as the other command of the same effect."""
        return self._plan_domain("clusters update-failure-domain", name, brokers)

    def _plan_domain(self, command: str, name: str, brokers: Sequence[str]) -> Plan:
        from pulsar_admin.store.changes.resources import plan_domain

        given = given_text("domain", name), given_texts("brokers", brokers)
        return self._session.plan_rows(plan_domain, command, self._name, *given)

    def delete_failure_domain(self, name: str) -> Plan:
        """Plan deleting a failure domain; raises ResourceNotFound."""
        from pulsar_admin.store.changes.resources import plan_delete_domain

        return self._session.plan_rows(plan_delete_domain, self._name, given_text("domain", name))

    # -- namespaces ---------------------------------------------------------------------------------------------------

    def namespaces(self, tenant: str) -> tuple[str, ...]:
        """Return the namespaces of TENANT with the cluster in their names, as before Pulsar 2.0."""
        from pulsar_admin.store.model.resources import read_cluster
        from pulsar_admin.store.model.topics import iter_namespaces

        with self._session.read() as txn:
            read_cluster(txn, self._name)
            found = iter_namespaces(txn, given_text("tenant", tenant))
            return tuple(str(name) for name in found if name.cluster == self._name)

    def anti_affinity_namespaces(self, tenant: str, group: str) -> tuple[str, ...]:
        """Return the namespaces of TENANT that are in the anti-affinity GROUP."""
        from pulsar_admin.store.model.resources import check_cluster, find_local_policies
        from pulsar_admin.store.model.topics import iter_namespaces

        wanted = given_text("group", group)
        with self._session.read() as txn:
            check_cluster(txn, self._name)
            return tuple(
                str(name)
                for name in iter_namespaces(txn, given_text("tenant", tenant))
                if find_local_policies(txn, name).get("namespaceAntiAffinityGroup") == wanted
            )

    # -- isolation policies -------------------------------------------------------------------------------------------

    def isolation_policies(self) -> Mapping[str, Json]:
        """Return by name which ``namespaces`` only its ``primary`` and ``secondary`` brokers serve; ResourceNotFound: never set."""
        from pulsar_admin.store.model.resources import ISOLATION_POLICY, read_isolation

        with self._session.read() as txn:
            return {name: ISOLATION_POLICY.show(policy) for name, policy in read_isolation(txn, self._name).items()}

    def isolation_policy(self, name: str) -> Json:
        """Return one isolation policy; raises ResourceNotFound."""
        from pulsar_admin.store.model.resources import ISOLATION_POLICY, read_isolation_policy

        return ISOLATION_POLICY.show(self._session.ask(read_isolation_policy, self._name, given_text("policy", name)))

    def broker_isolation(self, broker: str) -> Json:
        """Return what isolation policies say of BROKER, whether there is such a one or not."""
        from pulsar_admin.store.model.resources import broker_isolation

        return self._session.ask(broker_isolation, self._name, given_text("broker", broker))

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
        """Plan that NAMESPACES are served by PRIMARY brokers, and by SECONDARY where few of these run; all are regular expressions.

        FAILOVER: ``min_limit`` and ``usage_threshold``, as texts; UNLOAD_SCOPE: what brokers unload for it. Raises InvalidValue.
        """
        from pulsar_admin.store.changes.resources import isolation_of, plan_set_isolation

        lists = {"namespaces": namespaces, "primary": primary, "secondary": secondary}
        policy = isolation_of(
            {key: given_texts(key, one) for key, one in lists.items()},
            given_text("failover_type", failover_type),
            given_properties(given_mapping("failover", failover)),
            None if unload_scope is None else given_text("unload_scope", unload_scope),
        )
        return self._session.plan_rows(plan_set_isolation, self._name, given_text("policy", name), policy)

    def delete_isolation_policy(self, name: str) -> Plan:
        """Plan deleting an isolation policy, of a name that there need not be."""
        from pulsar_admin.store.changes.resources import plan_delete_isolation

        return self._session.plan_rows(plan_delete_isolation, self._name, given_text("policy", name))


def given_settings(settings: Json, file: Path | str | None) -> dict[str, Any]:  # Any: JSON values
    """Return SETTINGS of a cluster over what FILE, JSON or lines of ``key: value``, says; raises InvalidValue."""
    from pulsar_admin.store.changes.resources import read_cluster_file
    from pulsar_admin.store.model.resources import CLUSTER

    found = {} if file is None else read_cluster_file(given_path("file", file))
    for key, value in given_mapping("settings", settings).items():
        if key not in CLUSTER.defaults:
            raise InvalidValue(f"a cluster has no setting {key!r}", hint=f"there are {', '.join(CLUSTER.defaults)}")
        if key == "peerClusterNames":
            found[key] = list(given_texts(key, value))
        else:
            found[key] = (given_flag if CLUSTER.defaults[key] is False else given_text)(key, value)
    return found
