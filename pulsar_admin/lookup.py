"""The members of a group: rows of the command table, and those generated from policies. Imports no command."""

from __future__ import annotations

from pulsar_admin.command_table import COMMANDS, GROUPS, ROOT, Row

OF_POLICIES = ("namespaces", "topics", "topicPolicies")
"""Groups that policies make commands of; ``pulsar_admin.policy_rows`` has them."""


def rows_of(path: str) -> dict[str, Row]:
    """Return the commands directly in a group."""
    rows = COMMANDS.get(path, {})
    if path not in OF_POLICIES:
        return rows
    from pulsar_admin.policy_rows import policy_rows

    return {**rows, **policy_rows(path)}


def subgroups_of(path: str) -> dict[str, str]:
    """Return the groups directly in a group that hold a command, name → help."""
    prefix = f"{path} " if path else ""
    names = (key for key in GROUPS if key != ROOT and key.startswith(prefix))
    return {key[len(prefix) :]: GROUPS[key] for key in names if " " not in key[len(prefix) :] and is_used(key)}


def is_subgroup(path: str, name: str) -> bool:
    """Return whether ``name`` is one of the group's ``subgroups_of``."""
    key = f"{path} {name}" if path else name
    return " " not in name and key != ROOT and key in GROUPS and is_used(key)


def is_used(path: str) -> bool:
    """Return whether the group, or a group in it, holds a command."""
    return path in OF_POLICIES or any(
        rows and (key == path or key.startswith(f"{path} ")) for key, rows in COMMANDS.items()
    )


def find_row(path: str, name: str) -> Row | None:
    """Return the command with this name or alias in a group."""
    rows = COMMANDS.get(path, {})
    found = rows.get(name) or next((row for row in rows.values() if name in row.aliases), None)
    if found is not None or path not in OF_POLICIES:
        return found
    from pulsar_admin.policy_rows import find_policy_row

    return find_policy_row(path, name)
