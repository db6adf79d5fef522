"""Setting and forgetting dynamic settings of brokers (upstream ``BrokersBase`` and ``BrokerService``, 4.0.8)."""

from __future__ import annotations

from store.changes.plan import Plan
from store.changes.resources import NodeChange, plan_node
from store.codec.policies import JsonObject
from store.db.environment import Txn
from store.errors import InvalidValue, Refused
from store.model.dynamic_config import CONFIGURATION_PATH, DYNAMIC_SETTINGS, read_configuration
from store.names import shell_word

_PACKAGE = "org.apache.pulsar.broker.loadbalance."
_LOAD_MANAGERS = (
    f"{_PACKAGE}NoopLoadManager",
    f"{_PACKAGE}impl.SimpleLoadManagerImpl",
    f"{_PACKAGE}impl.ModularLoadManagerImpl",
    f"{_PACKAGE}extensions.ExtensibleLoadManagerImpl",
)


def plan_set(txn: Txn, name: str, value: str, now_ms: int) -> Plan:
    """Plan setting NAME to VALUE, which a broker does not look at until it reads it; raises Refused, InvalidValue."""
    _check(name, "update")
    if not value:
        raise InvalidValue(
            f"{name}: the value is empty",
            hint=f"to forget it: pulsar-admin brokers delete-dynamic-config -c {shell_word(name)}",
        )
    if name == "loadManagerClassName" and value not in _LOAD_MANAGERS:
        raise Refused(" Invalid dynamic-config value", hint=f"one of {', '.join(_LOAD_MANAGERS)}")
    return _plan(txn, "brokers update-dynamic-config", {**read_configuration(txn), name: value}, now_ms)


def plan_delete(txn: Txn, name: str, now_ms: int) -> Plan:
    """Plan forgetting what NAME was set to: the brokers' files count again; raises Refused."""
    _check(name, "delete")
    left = {key: value for key, value in read_configuration(txn).items() if key != name}
    return _plan(txn, "brokers delete-dynamic-config", left, now_ms)


def _check(name: str, verb: str) -> None:
    if name not in DYNAMIC_SETTINGS:
        raise Refused(f"Can't {verb} non-dynamic configuration", hint="see: pulsar-admin brokers list-dynamic-config")


def _plan(txn: Txn, command: str, after: JsonObject, now_ms: int) -> Plan:
    return plan_node(txn, command, NodeChange("dynamic settings of brokers", CONFIGURATION_PATH, after), now_ms)
