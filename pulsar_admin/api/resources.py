"""What the metadata know beside topics: tenants, clusters, bookies, brokers' dynamic settings, resource groups and quotas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pulsar_admin.api.given import given_flag, given_number, given_text, given_texts, whole_number
from pulsar_admin.api.plan import Plan
from pulsar_admin.api.request import Planner
from pulsar_admin.api.session import Session
from pulsar_admin.store.errors import InvalidValue
from pulsar_admin.store.names import parse_namespace

if TYPE_CHECKING:
    from pulsar_admin.api.clusters import Cluster, Json
    from pulsar_admin.store.db.environment import Txn
    from pulsar_admin.store.model.bundles import Bundle

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
        """Return the ``adminRoles`` and ``allowedClusters`` of a tenant; raises NamespaceNotFound."""
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

        Raises NamespaceNotFound, InvalidValue, Refused.
        """
        from pulsar_admin.store.changes.resources import plan_update_tenant

        roles, clusters = given_texts("admin_roles", admin_roles), given_texts("allowed_clusters", allowed_clusters)
        return self._session.plan_rows(plan_update_tenant, given_text("tenant", name), roles, clusters)

    def delete_tenant(self, name: str, *, force: bool = False) -> Plan:
        """Plan deleting a tenant, with FORCE also its namespaces and their topics; raises NamespaceNotFound, Refused."""
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
        from pulsar_admin.api.clusters import Cluster

        return Cluster(self._session, name)

    def create_cluster(self, name: str, settings: Json, *, file: Path | str | None = None) -> Plan:
        """Plan a cluster of SETTINGS, see ``Cluster.settings``, and what FILE says beside; raises InvalidValue, AlreadyExists."""
        from pulsar_admin.api.clusters import given_settings
        from pulsar_admin.store.changes.resources import plan_create_cluster

        return self._session.plan_rows(plan_create_cluster, given_text("cluster", name), given_settings(settings, file))

    # -- bookies ------------------------------------------------------------------------------------------------------

    def bookies(self) -> tuple[str, ...]:
        """Return the bookies that have a cookie, whether they run or not."""
        from pulsar_admin.store.model.racks import list_bookies

        return tuple(self._session.ask(list_bookies))

    def bookie_racks(self) -> Mapping[str, Mapping[str, Json]]:
        """Return by group and bookie its ``rack`` and ``hostname``."""
        from pulsar_admin.store.model.racks import BOOKIE, read_racks

        with self._session.read() as txn:
            return {
                group: {name: BOOKIE.show(one) for name, one in found.items()}
                for group, found in read_racks(txn).items()
            }

    def bookie_rack(self, bookie: str) -> Json:
        """Return ``rack`` and ``hostname`` of a bookie; raises ResourceNotFound."""
        from pulsar_admin.store.model.racks import BOOKIE, read_rack

        return BOOKIE.show(self._session.ask(read_rack, given_text("bookie", bookie)))

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
        from pulsar_admin.store.model.dynamic_config import read_configuration

        return self._session.ask(read_configuration)

    def dynamic_setting_names(self) -> tuple[str, ...]:
        """Return the names of the settings of Pulsar 4.0.8 that may change while brokers run."""
        from pulsar_admin.store.model.dynamic_config import DYNAMIC_SETTINGS

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
        from pulsar_admin.store.model.limits import list_groups

        return tuple(self._session.ask(list_groups))

    def resource_group(self, name: str) -> Json:
        """Return the rates of a resource group, −1: any; raises ResourceNotFound."""
        from pulsar_admin.store.model.limits import GROUP, read_group

        return GROUP.show(self._session.ask(read_group, given_text("resource group", name)))

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
        from pulsar_admin.store.model.limits import QUOTA, read_quota

        with self._session.read() as txn:
            return QUOTA.show(read_quota(txn, _bundle(txn, namespace, bundle)))

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
        from pulsar_admin.store.model.bundles import read_bundle

        name = parse_namespace(namespace)
        return self._session.plan_rows(
            lambda txn, now_ms: plan_reset_quota(txn, read_bundle(txn, name, given_text("bundle", bundle)), now_ms)
        )


def _bundle(txn: Txn, namespace: str | None, bundle: str | None) -> Bundle | None:
    from pulsar_admin.store.model.bundles import read_bundle

    if namespace is None and bundle is None:
        return None
    if namespace is None or bundle is None:
        raise InvalidValue("namespace and bundle must be provided together.")
    return read_bundle(txn, parse_namespace(namespace), given_text("bundle", bundle))


def _pair(what: str, values: Any) -> list[float]:  # Any: what callers give
    if not isinstance(values, Sequence) or len(values) != 2:
        raise InvalidValue(f"{what} {values!r} are not two numbers: in and out", value=values)
    return [given_number(what, one) for one in values]
