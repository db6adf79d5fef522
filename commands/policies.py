"""The policy commands of ``namespaces``, ``topics`` and ``topicPolicies``, which are made from the table of policies.

The attribute ``topics set-message-ttl`` of this module, for example, is that command with upstream's options.
"""

from collections.abc import Callable
from typing import Any

from pulsar_admin.api.topics import TopicPolicies
from pulsar_admin.columns import Column
from pulsar_admin.context import App, Printed, Result, Shown
from pulsar_admin.lookup import find_policy_row, policy_of
from pulsar_admin.options import Command, TopicSelection, flag
from pulsar_admin.store import errors
from pulsar_admin.store.names import NamespaceName
from pulsar_admin.store.policies.rules import NAMESPACES
from pulsar_admin.store.policies.table import Policy
from pulsar_admin.upstream import mirrored
from pulsar_admin.upstream_list import name_of, upstream_commands

_HELPS = {
    "enable": "Switch on.",
    "disable": "Switch off.",
    "subscription": "Only for this subscription.",
    "type_": "Type of the backlog quota: destination_storage or message_age.",
}
_SAMPLES = {
    "clusters": "standalone",
    "driver": "filesystem",
    "policy": "producer_exception",
    "types": "Shared,Failover",
    "strategy": "FULL",
    "delete_mode": "delete_when_no_subscriptions",
    "subscription_auth_mode": "Prefix",
    "resource_group_name": "example",
    "entry_filters_name": "example",
    "topics": "acme/orders/shadow",
}
"""What examples give to options that take a text."""
_EXPLAINED = (
    Column("TOPIC", "topic"),
    Column("POLICY", "policy"),
    Column("VALUE", "value"),
    Column("SOURCE", "source"),
)


def __getattr__(path: str) -> Command:
    if find_policy_row(*path.partition(" ")[::2]) is None:
        raise AttributeError(path)
    verb, policy = policy_of(path)
    make = _getting if verb == "get" else _changing
    return make(path, policy)


# -- reading ----------------------------------------------------------------------------------------------------------


def _getting(path: str, policy: Policy) -> Command:
    def get_of_namespace(app: App, namespace: NamespaceName, explain: bool, **options: Any) -> Shown:
        value = app.namespace(namespace).policy(policy.name)
        if explain:
            source = value and "namespace"
            return Result({"namespace": str(namespace), "policy": policy.name, "value": value, "source": source})
        return _answer(path, policy, policy.unset if value is None else value)

    def get_of_topics(app: App, selection: TopicSelection, explain: bool, **options: Any) -> Shown:
        policies = TopicPolicies(app.session, selection)
        if explain or selection.single is None:
            rows = policies.values(policy.name, **options)
            return Result(rows=rows, columns=_EXPLAINED) if selection.single is None else Result(rows[0])
        value = policies.answers(policy.name, **options)[0]
        return _answer(path, policy, policy.own_unset if value is None else value)

    explained = flag("--explain", help="The value set or in force and where it is set, as an object.")
    return _mirrored(path, explained(get_of_namespace if path.startswith(NAMESPACES) else get_of_topics))


def _answer(path: str, policy: Policy, value: Any) -> Printed:  # Any: the policy's own
    shown = policy.shown(value)
    return Printed(
        shown,
        is_set=isinstance(shown, list) and path.partition(" ")[0] != policy.lists,
        as_map=str if policy.name == "backlog-quota" else None,
        document=value if isinstance(value, dict) else None,
    )


# -- changing ---------------------------------------------------------------------------------------------------------


def _changing(path: str, policy: Policy) -> Command:
    def change_namespace(app: App, namespace: NamespaceName, **options: Any) -> None:
        app.change(app.namespace(namespace).plan_policy(path, policy.name, options))

    def change_topics(app: App, selection: TopicSelection, **options: Any) -> None:
        app.change(TopicPolicies(app.session, selection).plan_policy(path, policy.name, options))

    return _mirrored(path, change_namespace if path.startswith(NAMESPACES) else change_topics)


@mirrored(
    "topicPolicies delete",
    "public/default/plain --dry-run",
    several=True,
    changes=True,
    uses=["interceptors", "broker_conf"],
    output="Nothing; on stderr the policies before and after, and the undo command.",
    errors=[errors.InvalidValue, errors.MetadataCorrupt, errors.Refused, errors.StalePlan],
)
def delete(app: App, selection: TopicSelection) -> None:
    """Delete all policies of topics, including global ones."""
    app.change(TopicPolicies(app.session, selection).remove_policies())


# -- declaring --------------------------------------------------------------------------------------------------------


def _mirrored(path: str, function: Callable[..., Shown | None]) -> Command:
    group, _, name = path.partition(" ")
    row = find_policy_row(group, name)
    assert row is not None
    reads, of_topics = name.startswith("get-"), group != NAMESPACES
    function.__doc__ = row.help
    more: dict[str, Any] = {
        "output": "As upstream prints it; null if it is not set.",
        "errors": [
            errors.TopicNotFound if of_topics else errors.NamespaceNotFound,
            errors.InvalidValue,
            errors.MetadataCorrupt,
        ],
    }
    if not reads:
        more |= {"changes": True, "output": "Nothing; on stderr the policy before and after, and the undo command."}
        more["errors"] = [*more["errors"], errors.StalePlan]
    if not reads and of_topics:
        more |= {"uses": ["interceptors", "broker_conf"], "errors": [*more["errors"], errors.Refused]}
    return mirrored(path, elsewhere=[_example(path)], helps=_HELPS, several=of_topics, **more)(function)


def _example(path: str) -> str:
    group, _, name = path.partition(" ")
    options = upstream_commands()[path].get("options", ())
    words = ["acme/orders" if group == NAMESPACES else "public/default/plain"]
    for option in options:
        key = name_of(option["names"])
        if option.get("required"):
            plain = "10M" if "Byte" in option.get("converter", "") else "3h" if "converter" in option else "5"
            words += [option["names"][0], _SAMPLES.get(key, plain)]
        elif key == "enable" or key == "enable_delete_while_inactive":
            words.append("--" + key.replace("_", "-"))
    if name == "set-backlog-quota":
        words += ["-l", "10G"]
    return " ".join([*words, *([] if name.startswith("get-") else ["--dry-run"])])
