"""A cluster that the metadata know: its settings, peers, migration, failure domains and isolation policies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pulsar_admin.api.given import given_flag, given_mapping, given_path, given_properties, given_text, given_texts
from pulsar_admin.api.plan import Plan
from pulsar_admin.api.request import Planner
from pulsar_admin.api.session import Session
from pulsar_admin.store.errors import InvalidValue
from pulsar_admin.store.model.bundles import find_local_policies
from pulsar_admin.store.model.resources import (
    CLUSTER,
    DOMAIN,
    MIGRATION,
    as_set,
    check_cluster,
    read_cluster,
    read_domain,
    read_domains,
    read_migration,
)
from pulsar_admin.store.model.topics import iter_namespaces

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

    def __repr__(self) -> str:
        return f"Cluster({self._name!r})"

    def settings(self) -> Json:
        """Return its URLs and what clients of it need: ``serviceUrl``, ``brokerServiceUrl`` …"""
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
        with self._session.read() as txn:
            found: Sequence[str] | None = as_set(read_cluster(txn, self._name).get("peerClusterNames"))
            return found

    def set_peers(self, peers: Sequence[str]) -> Plan:
        """Plan its PEERS; raises Refused for one that is not there."""
        from pulsar_admin.store.changes.resources import plan_peers

        return self._session.plan_rows(plan_peers, self._name, given_texts("peers", peers))

    def migration(self) -> Json:
        """Return whether it is ``migrated``, and to where (``migratedClusterUrl``); ResourceNotFound: that was never set."""
        return MIGRATION.show(self._session.ask(read_migration, self._name))

    def set_migration(self, *, migrated: bool, urls: Mapping[str, str | None]) -> Plan:
        """Plan whether it is MIGRATED, and to where: URLS by the keys of ``settings``. It need not be there. Raises InvalidValue."""
        from pulsar_admin.store.changes.resources import plan_migration

        given = given_properties({key: url for key, url in given_mapping("urls", urls).items() if url is not None})
        return self._session.plan_rows(plan_migration, self._name, given_flag("migrated", migrated), given)

    # -- failure domains ----------------------------------------------------------------------------------------------

    def failure_domains(self) -> Mapping[str, Json]:
        """Return its failure domains by name, each with its ``brokers``."""
        with self._session.read() as txn:
            return {name: DOMAIN.show(found) for name, found in read_domains(txn, self._name).items()}

    def failure_domain(self, name: str) -> Json:
        """Return one failure domain; raises ResourceNotFound."""
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
        with self._session.read() as txn:
            read_cluster(txn, self._name)
            found = iter_namespaces(txn, given_text("tenant", tenant))
            return tuple(str(name) for name in found if name.cluster == self._name)

    def anti_affinity_namespaces(self, tenant: str, group: str) -> tuple[str, ...]:
        """Return the namespaces of TENANT that are in the anti-affinity GROUP."""
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
        from pulsar_admin.store.model.isolation import POLICY, read_isolation

        with self._session.read() as txn:
            return {name: POLICY.show(policy) for name, policy in read_isolation(txn, self._name).items()}

    def isolation_policy(self, name: str) -> Json:
        """Return one isolation policy; raises ResourceNotFound."""
        from pulsar_admin.store.model.isolation import POLICY, read_isolation_policy

        return POLICY.show(self._session.ask(read_isolation_policy, self._name, given_text("policy", name)))

    def broker_isolation(self, broker: str) -> Json:
        """Return what isolation policies say of BROKER, whether there is such a one or not."""
        from pulsar_admin.store.model.isolation import broker_isolation

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

    found = {} if file is None else read_cluster_file(given_path("file", file))
    for key, value in given_mapping("settings", settings).items():
        if key not in CLUSTER.defaults:
            raise InvalidValue(f"a cluster has no setting {key!r}", hint=f"there are {', '.join(CLUSTER.defaults)}")
        if key == "peerClusterNames":
            found[key] = list(given_texts(key, value))
        else:
            found[key] = (given_flag if CLUSTER.defaults[key] is False else given_text)(key, value)
    return found
