"""The commands of a group: rows of the command table, and rows made from the table of policies. Imports no command.

The table of policies and upstream's command tree are only imported for a list of policy commands or an unknown name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pulsar_admin.command_table import COMMANDS, GROUPS, ROOT, Row

if TYPE_CHECKING:
    from pulsar_admin.store.policies.table import Policy

OF_POLICIES = ("namespaces", "topics", "topicPolicies")
"""Groups that policies make commands of."""
_VERBS = {"set": "Set", "get": "Show", "remove": "Remove", "enable": "Enable", "disable": "Disable", "clear": "Remove"}
_SET_NOWHERE_ELSE = ("resource-group", "shadow-topics")
"""Policies that name other things, which stay; without a default that applies once they are removed."""


def rows_of(path: str) -> dict[str, Row]:
    """Return the commands directly in a group."""
    rows = COMMANDS.get(path, {})
    if path not in OF_POLICIES:
        return rows
    return {**rows, **policy_rows(path)}


def subgroups_of(path: str) -> dict[str, str]:
    """Return name → help of the groups directly in a group that have a command."""
    prefix = f"{path} " if path else ""
    names = (key for key in GROUPS if key != ROOT and key.startswith(prefix))
    return {key[len(prefix) :]: GROUPS[key] for key in names if " " not in key[len(prefix) :] and is_used(key)}


def is_subgroup(path: str, name: str) -> bool:
    """Return whether ``subgroups_of`` the group has ``name``."""
    key = f"{path} {name}" if path else name
    return " " not in name and key != ROOT and key in GROUPS and is_used(key)


def is_used(path: str) -> bool:
    """Return whether the group, or a group in it, has a command."""
    return path in OF_POLICIES or any(
        rows and (key == path or key.startswith(f"{path} ")) for key, rows in COMMANDS.items()
    )


def find_row(path: str, name: str) -> Row | None:
    """Return the command with this name or alias in a group."""
    rows = COMMANDS.get(path, {})
    found = rows.get(name) or next((row for row in rows.values() if name in row.aliases), None)
    if found is not None or path not in OF_POLICIES:
        return found
    return find_policy_row(path, name)


# -- policies ---------------------------------------------------------------------------------------------------------


def policy_of(path: str) -> tuple[str, Policy]:
    """Return the verb and the policy of a policy command; raises KeyError for other commands."""
    from pulsar_admin.store.policies.table import policies_by_name

    verb, _, name = path.partition(" ")[2].partition("-")
    if verb not in _VERBS:
        raise KeyError(path)
    return verb, policies_by_name()[name]


def find_policy_row(group: str, name: str) -> Row | None:
    """Return the row of the policy command ``name`` in a group, None without one."""
    from pulsar_admin.upstream_list import upstream_commands

    path = f"{group} {name}"
    if group not in OF_POLICIES or path not in upstream_commands():
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
    owner = "namespace" if of_namespace else "topic"
    if verb == "remove" and policy.name in _SET_NOWHERE_ELSE:
        return f"Detach a {owner} from its {noun}."
    what = f"{_VERBS[verb]} a {owner}'s {noun}"
    if verb not in ("remove", "clear"):
        return f"{what}{unit if verb == 'get' else ''}."  # set takes any unit
    return f"{what}; the {above}'s {'apply' if noun.endswith('s') else 'applies'} again."


def policy_rows(group: str) -> dict[str, Row]:
    """Return the rows of a group's policies by name, in upstream's order."""
    from pulsar_admin.upstream_list import upstream_commands

    names = [path.partition(" ")[2] for path in upstream_commands() if path.startswith(f"{group} ")]
    found = ((name, find_policy_row(group, name)) for name in names)
    return {name: row for name, row in found if row is not None}
