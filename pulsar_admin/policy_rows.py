"""The rows of the command table that policies make: read where a group is listed, or a name is in no other row."""

from __future__ import annotations

from pulsar_admin.store.policies.table import Policy, policies_by_name
from pulsar_admin.table import Row
from pulsar_admin.upstream_list import upstream_commands

_VERBS = {
    "set": "Set the {}.",
    "get": "Show the {}.",
    "remove": "Remove the {}: what is set above counts again.",
    "enable": "Switch {} on.",
    "disable": "Switch {} off.",
    "clear": "Remove the {}: what is set above counts again.",
}
_TOPICS = {"topics": "of topics", "topicPolicies": "of topics", "namespaces": "of a namespace"}


def policy_of(path: str) -> tuple[str, Policy]:
    """Return the verb and the policy of a command; raises KeyError for one that is no policy's."""
    verb, _, name = path.partition(" ")[2].partition("-")
    if verb not in _VERBS:
        raise KeyError(path)
    return verb, policies_by_name()[name]


def find_policy_row(group: str, name: str) -> Row | None:
    """Return the row of the policy command NAME of GROUP, None where there is none."""
    path = f"{group} {name}"
    if group not in _TOPICS or path not in upstream_commands():
        return None
    try:
        verb, policy = policy_of(path)
    except KeyError:
        return None
    what = f"{policy.what.partition(',')[0]} {_TOPICS[group]}{policy.what[policy.what.find(',') :] if ',' in policy.what else ''}"
    hidden = bool(upstream_commands()[path].get("hidden"))
    return Row(f"pulsar_admin.commands.policies:{path}", _VERBS[verb].format(what), hidden=hidden)


def policy_rows(group: str) -> dict[str, Row]:
    """Return the rows of GROUP's policies by name, in upstream's order."""
    names = [path.partition(" ")[2] for path in upstream_commands() if path.startswith(f"{group} ")]
    found = ((name, find_policy_row(group, name)) for name in names)
    return {name: row for name, row in found if row is not None}
