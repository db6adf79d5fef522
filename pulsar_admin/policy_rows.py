"""The rows of the command table that policies make: read where a group is listed, or a name is in no other row."""

from __future__ import annotations

from pulsar_admin.command_table import Row
from pulsar_admin.store.policies.table import Policy, policies_by_name
from pulsar_admin.upstream_list import upstream_commands

_VERBS = {"set": "Set", "get": "Show", "remove": "Remove", "enable": "Enable", "disable": "Disable", "clear": "Remove"}
_GROUPS = ("topics", "topicPolicies", "namespaces")
_SET_NOWHERE_ELSE = ("resource-group", "shadow-topics")
"""Policies without a default that applies once they are removed."""


def policy_of(path: str) -> tuple[str, Policy]:
    """Return the verb and the policy of a command; raises KeyError for one that is no policy's."""
    verb, _, name = path.partition(" ")[2].partition("-")
    if verb not in _VERBS:
        raise KeyError(path)
    return verb, policies_by_name()[name]


def find_policy_row(group: str, name: str) -> Row | None:
    """Return the row of a policy command of a group, or None."""
    path = f"{group} {name}"
    if group not in _GROUPS or path not in upstream_commands():
        return None
    try:
        verb, policy = policy_of(path)
    except KeyError:
        return None
    hidden = bool(upstream_commands()[path].get("hidden"))
    return Row(f"pulsar_admin.commands.policies:{path}", _summary(group, name, verb, policy), hidden=hidden)


def _summary(group: str, name: str, verb: str, policy: Policy) -> str:
    of_namespace = group == "namespaces"
    above = "broker" if of_namespace or policy.namespace is None else "namespace"
    noun, _, unit = policy.what.partition(",")
    if verb in ("enable", "disable"):
        noun = policy.name
    if noun.startswith("whether "):
        return f"Let the {above} decide {noun}." if verb == "remove" else f"{_VERBS[verb]} {noun}."
    if of_namespace and name.endswith("-per-topic"):
        noun += " per topic"
    what = f"{_VERBS[verb]} a {'namespace' if of_namespace else 'topic'}'s {noun}"
    if verb not in ("remove", "clear"):
        return f"{what}{unit if verb == 'get' else ''}."  # set takes any unit
    if policy.name in _SET_NOWHERE_ELSE:
        return f"{what}."
    return f"{what}; the {above}'s {'apply' if noun.endswith('s') else 'applies'} again."


def policy_rows(group: str) -> dict[str, Row]:
    """Return the rows of a group's policies by name, in upstream's order."""
    names = [path.partition(" ")[2] for path in upstream_commands() if path.startswith(f"{group} ")]
    found = ((name, find_policy_row(group, name)) for name in names)
    return {name: row for name, row in found if row is not None}
