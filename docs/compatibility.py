"""The page ``docs/compatibility.md``: every command of upstream's ``pulsar-admin``, and whether this toolkit has it."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import click

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from pulsar_admin.cli import TableGroup, root
from pulsar_admin.needs_broker import need_of
from pulsar_admin.upstream_list import upstream_commands


class Status(StrEnum):
    """Whether and how this toolkit has a command of upstream's."""

    SAME = "same"
    """Same name, same options, same values and defaults."""

    ELSEWHERE = "elsewhere"
    """Another group has the command; upstream's spelling runs it."""

    BROKER = "broker"
    """Needs a running broker, worker or proxy: exit code 7."""

    OPEN = "open"
    """Not implemented."""


class Line(NamedTuple):
    """One command of upstream's: its path, its status, and a note."""

    path: str
    status: Status
    note: str = ""


_SAME_DEFAULT = "Same; help shows the default that upstream's command or broker uses when the option is left out."
DIFFERENCES: Mapping[str, str] = {
    "bookkeeper clusterinfo": "Same, without an auditor.",
    "bookkeeper ledgermetadata": "Same; `-restorefromfile` and `-update` end with exit code 7.",
    "bookkeeper listfilesondisc": "Sorted by path; upstream sorts by creation time.",
    "bookkeeper readjournal": "Same; `-m` shows control characters as escapes.",
    "bookkeeper readledger": "Same, without a bookie; `-m` shows control characters as escapes.",
    "bookkeeper readlog": "Same; `-m` shows control characters as escapes.",
    "bookkeeper readlogmetadata": "Sorted by ledger; upstream prints them in the order of a hash map.",
    "bookkeeper whatisinstanceid": "Same, with the store's source in place of the metadata service.",
    "managed-ledger delete-managed-ledger-ids": "Same, also for compressed values; `-zk` is optional; unknown ids are refused.",
    "managed-ledger print-cursor": "Same, also for compressed values; `-zk` is optional.",
    "managed-ledger print-managed-ledger": "Same, also for compressed values; `-zk` is optional.",
    "managed-ledger update-mark-delete-cursor": "Also works when the position is in a cursor ledger; `-zk` is optional; a broker's own "
    "cursors need `--force`.",
    "documents generate": "Prints upstream's own documentation; ours is `--help` and [docs/cli](cli/pulsar-admin.md).",
    "namespaces topics": _SAME_DEFAULT,
    "topics clear-backlog": "Same; the flag of a replicated subscription stays, which a broker drops and writes again with the next "
    "acknowledgement.",
    "topics create-partitioned-topic": "Same, even if some partitions exist already, as in 4.2.4; 4.0.8 answers 409.",
    "topics examine-messages": "After the last entry, upstream's `-i earliest` shows the last one; here nothing, with exit code 5.",
    "topics expire-messages": "`-t` has no default; upstream's default of -1 means that it was left out.",
    "topics expire-messages-all-subscriptions": "`-t` is optional: without it, the TTL of the topic applies.",
    "topics peek-messages": "A chunked message is shown whole, at its last chunk; upstream shows each chunk, and fails at compressed ones.",
    "topics reset-cursor": "`-s` is optional when other options select subscriptions; a broker's own cursors need `--force`.",
    "topics skip": "Same; the flag of a replicated subscription stays, as with `clear-backlog`.",
    "topics truncate": "Same: the compacted view is dropped, and its ledger left without an owner; the preview names the keys that are "
    "lost. Only the properties of other cursors stay, which a broker drops and writes again.",
}
"""How options or output differ from upstream's, by command."""

PROGRAMS = {"bookkeeper": "bookkeeper shell (BookKeeper 4.17.2)", "managed-ledger": "pulsar-managed-ledger-admin"}
"""Upstream's other programs, by the group that has their commands."""


def lines() -> Iterator[Line]:
    """Yield every command of upstream in the order of its file."""
    for path in filter(None, upstream_commands()):
        command, group = _find(path)
        need = need_of(path)
        if need is not None:
            yield Line(path, Status.BROKER, f"{need.reason[0].upper()}{need.reason[1:]}.")
        elif path == "documents generate":
            yield Line(path, Status.ELSEWHERE, DIFFERENCES[path])
        elif command is None:
            yield Line(path, Status.OPEN)
        elif group != path.rpartition(" ")[0]:
            yield Line(path, Status.ELSEWHERE, f"the same of `{group}`")
        else:
            yield Line(path, Status.SAME, DIFFERENCES.get(path, ""))


def differences(path: str) -> list[str]:
    """Return what the options and parameters of upstream's ``path`` have here that upstream has not."""
    command, _ = _find(path)
    assert command is not None
    row = upstream_commands()[path]
    found = [said for option in row.get("options", ()) if (said := _difference(command, option))]
    if len(row.get("parameters", ())) > sum(isinstance(param, click.Argument) for param in command.params):
        found.append("parameters")
    return found


@cache
def _find(path: str) -> tuple[click.Command | None, str]:
    """Return our command that ``path`` calls, and its group."""
    context = click.Context(root(), info_name="pulsar-admin")
    *groups, name = path.split()
    for group in groups:
        command = context.command.get_command(context, group) if isinstance(context.command, TableGroup) else None
        if command is None:
            return None, ""
        context = click.Context(command, info_name=group, parent=context)
    assert isinstance(context.command, TableGroup)
    command = context.command.get_command(context, name)
    if command is None:
        return None, ""
    return command, context.command.path


def _difference(command: click.Command, row: Mapping[str, Any]) -> str | None:  # Any: JSON
    names = [name for name in row["names"] if name.startswith("-")]  # "regex" of topics delete has no dashes
    ours = [param for param in command.params if isinstance(param, click.Option) and set(names) & _names(param)]
    if len(ours) != 1 or not set(names) <= _names(ours[0]):
        return f"{names[0]}: names"
    (option,) = ours
    if (row.get("arity") == "0") is not option.is_flag:
        return f"{names[0]}: arity"
    if row.get("required", False) is not option.required:
        return f"{names[0]}: required"
    if not option.required and _upstreams_default(row) not in (_default(command, option), option.default):
        return f"{names[0]}: default {_default(command, option)}, upstream's {_upstreams_default(row)}"
    return None


def _upstreams_default(row: Mapping[str, Any]) -> str | None:  # Any: JSON
    default: str | None = row.get("default")
    return None if default == "0" else default and default.lower()


def _names(option: click.Option) -> set[str]:
    return {*option.opts, *getattr(option, "_aliases", ())}


def _default(command: click.Command, option: click.Option) -> str | None:
    """Return what stands where ``option`` is not given as upstream's file writes it; 0, no flag and no value are None."""
    if option.multiple or option.default in (None, False) or not isinstance(option.default, (str, int, float)):
        return None
    with click.Context(command) as context:
        value = option.type_cast_value(context, option.default)
    text = str(getattr(value, "value", value)).lower()
    return None if text == "0" else text


STATUSES = tuple(Status)


def page() -> str:
    """Return the page."""
    found = list(lines())
    groups: dict[str, list[Line]] = {}
    for line in found:
        groups.setdefault(line.path.split()[0], []).append(line)
    text = f"""# Commands of upstream's tools

Every command of `pulsar-admin` in Pulsar 4.0.8 and 5.0.1, and its status here; "(5.0)" marks those that 4.0.8 does not have. `same`: the
command exists, with every option. `elsewhere`: another group has the command, and upstream's spelling runs it. `broker`: the command needs
a running broker, worker or proxy and ends with exit code 7. `open`: not implemented. For values that differ, see
[what-a-store-knows.md](what-a-store-knows.md).

`--admin-url`, `--auth-plugin`, `--auth-params`, `--tls-…` and `--request-timeout` before a group are ignored, with a note.

## pulsar-admin

| group | {" | ".join(STATUSES)} | all |
|---|{"---|" * len(STATUSES)}---|
"""
    admin = {name: rows for name, rows in groups.items() if name not in PROGRAMS}
    text += "".join(_count_row(f"[`{name}`](#{name.lower()})", rows) for name, rows in admin.items())
    text += _count_row("all", [line for rows in admin.values() for line in rows])
    text += "".join(_group(name, rows) for name, rows in admin.items())
    text += _ONLY_5 + "".join(
        f"- `{path}`: {', '.join(f'`{one}`' for one in options.split())}\n" for path, options in OPTIONS_OF_5.items()
    )
    return text + "".join(_program(name, groups[name]) for name in PROGRAMS)


_ONLY_5 = """
### Options of one version

These options of 5.0.1 are not here; commands that need a broker, and options that upstream only spells differently, are left out:

"""
OPTIONS_OF_5: Mapping[str, str] = {
    "clusters create": "--tls-factory-class-name --tls-factory-config",
    "clusters update": "--tls-factory-class-name --tls-factory-config",
    "namespaces set-clusters": "--skipCompareTopicPartitions",
    "namespaces set-is-allow-auto-update-schema": "--enable-for-replicator",
    "topics analyze-backlog": "--backlog-scan-max-entries --plain --quiet",
    "topics list": "--property",
}
"""What pulsar-admin 5.0.1 takes and no command here does, by command."""


def _program(name: str, rows: Sequence[Line]) -> str:
    """Return the table of a program that is a group here."""
    counts = ", ".join(f"{sum(line.status is status for line in rows)} {status}" for status in STATUSES)
    here = [line for line in rows if line.status is Status.SAME]
    text = f"\n## {PROGRAMS[name]}\n\nAs `pulsar-admin {name} …`. Of {len(rows)} commands: {counts}.\n"
    text += "\n| command | here |\n|---|---|\n"
    text += "".join(f"| {_short(line)} | {line.note or 'same'} |\n" for line in here)
    return text + _group(f"Not in {name}", [line for line in rows if line.status is not Status.SAME])


def _count_row(name: str, rows: Sequence[Line]) -> str:
    counts = (str(sum(line.status is status for line in rows) or "") for status in STATUSES)
    return f"| {name} | {' | '.join(counts)} | {len(rows)} |\n"


def _group(name: str, rows: Sequence[Line]) -> str:
    """Return the lists of a group: names of what is the same or open, a line for each that has a note."""
    text = f"\n### {name}\n"
    for status in STATUSES:
        plain = [_short(line) for line in rows if line.status is status and not line.note]
        notes: dict[str, list[str]] = {}
        for line in rows:
            if line.status is status and line.note:
                notes.setdefault(line.note, []).append(_short(line))
        if plain:
            text += f"\n{status}: {', '.join(plain)}\n"
        if notes:
            text += "\n" + "".join(f"- {status}: {', '.join(paths)} → {note}\n" for note, paths in notes.items())
    return text


def _short(line: Line) -> str:
    since = upstream_commands()[line.path].get("since")
    return f"`{line.path.partition(' ')[2]}`" + (f" ({since})" if since else "")
