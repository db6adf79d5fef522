"""Plans that change a topic as a whole, and its properties and permissions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pulsar_admin.api.given import given_flag, given_flags, given_properties, given_text, given_texts, whole_number
from pulsar_admin.api.plan import Plan, plan_of
from pulsar_admin.api.policies import PolicyPlans
from pulsar_admin.api.session import Session
from pulsar_admin.store.db.tree import read_node
from pulsar_admin.store.model.topics import expand_topic, read_topic
from pulsar_admin.store.names import INT_MAX, INT_MIN, TopicName, TopicSelection

if TYPE_CHECKING:
    from pulsar_admin.store.changes.namespace_json import Grant
    from pulsar_admin.store.changes.policies import PolicyJob


class TopicPlans(PolicyPlans):
    """The part of ``Topic`` that changes it; of a partitioned topic most change the partitions, too. All raise TopicNotFound."""

    _group = "topics"
    _session: Session
    _name: TopicName

    def terminate(self, *, partitioned: bool = False) -> Plan:
        """Plan that no message can be added any more, to a PARTITIONED topic to any of its partitions; Refused: it has no ledger yet.

        ``after`` of the plan's parts has where they end, ``terminatedPosition``.
        """
        from pulsar_admin.store.changes.ending import plan_terminate
        from pulsar_admin.store.model.partitions import check_partitioned, existing_partitions

        given_flags(partitioned=partitioned)
        with self._session.reader() as reader:
            if not partitioned:
                return plan_of(
                    plan_terminate(reader, "topics terminate", [self._name], self._session.clock_ms), reader.txn
                )
            names = existing_partitions(reader.txn, check_partitioned(reader.txn, self._name))
            return plan_of(
                plan_terminate(reader, "topics partitioned-terminate", names, self._session.clock_ms), reader.txn
            )

    def _plan_policy(self, job: PolicyJob) -> Plan:
        from pulsar_admin.api.topic_policies import TopicPolicies

        return TopicPolicies(self._session, TopicSelection((self._name.base,)))._plan_policy(job)

    def trim(self) -> Plan:
        """Plan deleting the ledgers, but the last, that every subscription has consumed and retention does not keep."""
        from pulsar_admin.store.changes.ending import plan_trim

        return self._session.plan(
            lambda reader, now_ms: plan_trim(reader, expand_topic(reader.txn, self._name), now_ms)
        )

    def truncate(self) -> Plan:
        """Plan moving every subscription to the end, and deleting all ledgers but the last, whatever retention keeps."""
        from pulsar_admin.store.changes.ending import plan_truncate

        return self._session.plan(
            lambda reader, now_ms: plan_truncate(reader, expand_topic(reader.txn, self._name), now_ms)
        )

    def set_partitions(self, partitions: int) -> Plan:
        """Plan giving a partitioned topic more PARTITIONS, with the subscriptions of the first one at their end.

        Keys map to other partitions from then on. Raises InvalidValue, Refused (fewer, or not partitioned).
        """
        from pulsar_admin.store.changes.topics import plan_partitions

        return self._session.plan(plan_partitions, self._name, whole_number("partitions", partitions, INT_MIN, INT_MAX))

    def create_missed_partitions(self) -> Plan:
        """Plan making the partitions of a partitioned topic that are not there."""
        from pulsar_admin.store.changes.topics import plan_missing_partitions

        return self._session.plan_rows(plan_missing_partitions, self._name)

    # -- the managed ledger -------------------------------------------------------------------------------------------

    def managed_ledger_text(self) -> str:
        """Return the stored ManagedLedgerInfo in protobuf's text format; raises TopicNotFound, MetadataCorrupt."""
        from pulsar_admin.store.codec.managedledger import managed_ledger_text

        with self._session.read() as txn:
            read_topic(txn, self._name)
            return managed_ledger_text(read_node(txn, self._name.path).value, self._name.path)

    def forget_ledgers(self, *ledgers: int) -> Plan:
        """Plan the list of its ledgers without LEDGERS, which stay with BookKeeper; raises LedgerNotFound.

        Cursors hop over them; ``store.delete_ledgers`` deletes ledgers.
        """
        from pulsar_admin.store.changes.log_writer import plan_forget_ledgers

        ids = [whole_number("ledger", one) for one in ledgers]
        return self._session.plan_rows(plan_forget_ledgers, self._name, ids)

    # -- schema --------------------------------------------------------------------------------------------------------

    def check_schema(self, schema: Mapping[str, Any] | Path | str) -> None:  # Any: JSON
        """Raise Refused unless SCHEMA, as of ``upload_schema``, may follow the versions that it has."""
        from pulsar_admin.api.schemas import given_schema
        from pulsar_admin.store.changes.schemas import check_compatible

        with self._session.reader() as reader:
            check_compatible(reader, self._name, given_schema(schema))

    def upload_schema(self, schema: Mapping[str, Any] | Path | str) -> Plan:  # Any: JSON
        """Plan a new version of its schema: ``{"type": "AVRO", "schema": "{…}", "properties": {}}``, or a file with that.

        One that it has already changes nothing. Raises InvalidValue, NamespaceNotFound, Refused (it is not compatible).
        """
        from pulsar_admin.api.schemas import given_schema
        from pulsar_admin.store.changes.schemas import plan_upload

        return self._session.plan(plan_upload, self._name, given_schema(schema))

    def delete_schema(self, *, force: bool = False) -> Plan:
        """Plan a version that says that the schema is deleted, with FORCE the removal of all of them.

        Raises MetadataCorrupt, and Refused where a topic of a newer Pulsar has the same schema.
        """
        from pulsar_admin.store.changes.schemas import plan_delete_schema

        everything = given_flag("force", force)
        return self._session.plan_rows(
            lambda txn, now_ms: plan_delete_schema(txn, self._name, force=everything, now_ms=now_ms)
        )

    # -- properties and permissions -----------------------------------------------------------------------------------

    def properties(self) -> Mapping[str, str]:
        """Return its properties in a broker's order; raises TopicNotFound."""
        from pulsar_admin.store.changes.topics import read_properties

        return self._session.ask(read_properties, self._name)

    def set_properties(self, properties: Mapping[str, str]) -> Plan:
        """Plan setting PROPERTIES and keeping the others; raises MetadataCorrupt."""
        return self._plan_properties("topics update-properties", given_properties(properties), ())

    def remove_properties(self, *keys: str) -> Plan:
        """Plan removing the properties KEYS; raises MetadataCorrupt."""
        return self._plan_properties("topics remove-properties", {}, given_texts("keys", keys))

    def _plan_properties(self, command: str, given: Mapping[str, str], removed: Sequence[str]) -> Plan:
        from pulsar_admin.store.changes.topics import plan_properties

        def change(found: dict[str, str]) -> dict[str, str]:
            return {key: value for key, value in {**found, **given}.items() if key not in removed}

        return self._session.plan_rows(plan_properties, command, self._name, change)

    def permissions(self) -> Mapping[str, Sequence[str]]:
        """Return what each role may do: its own permissions and those of its namespace. Raises NamespaceNotFound, MetadataCorrupt."""
        from pulsar_admin.store.changes.namespace_json import read_topic_permissions

        return self._session.ask(read_topic_permissions, self._name)

    def grant_permission(self, role: str, actions: Sequence[str]) -> Plan:
        """Plan that ROLE may do ACTIONS (``produce``, ``consume`` …) in place of what it might; raises InvalidValue."""
        from pulsar_admin.store.changes.namespace_json import Grant, check_actions

        return self._plan_grant(
            "topics grant-permission", Grant(given_text("role", role), check_actions(given_texts("actions", actions)))
        )

    def revoke_permission(self, role: str) -> Plan:
        """Plan revoking the permissions of ROLE on the topic; those on the namespace stay."""
        from pulsar_admin.store.changes.namespace_json import Grant

        return self._plan_grant("topics revoke-permission", Grant(given_text("role", role)))

    def _plan_grant(self, command: str, grant: Grant) -> Plan:
        from pulsar_admin.store.changes.namespace_json import plan_topic_permission

        return self._session.plan_rows(plan_topic_permission, command, self._name, grant)
