"""Declaring commands from upstream's own command tree (``pulsar_admin.upstream_list``), which has their options as data."""

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import click

from pulsar_admin import options
from pulsar_admin.needs_broker import Need, need_of
from pulsar_admin.numbers import Number, whole
from pulsar_admin.store.codec.java import java_split
from pulsar_admin.store.errors import InvalidValue, NeedsBroker
from pulsar_admin.store.names import INT_MAX, LONG_MIN
from pulsar_admin.upstream_list import CAPITAL, Json, name_of, upstream_commands

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]  # Any: click calls commands with whatever was declared

_TYPES: Mapping[str, click.ParamType[Any]] = {
    "Integer": whole(-INT_MAX - 1, INT_MAX),
    "Long": whole(LONG_MIN),
    "Double": Number(),
    "Boolean": click.BOOL,
}
_CONVERTED: Mapping[str, click.ParamType[Any]] = {
    "TimeUnitToSecondsConverter": options.DURATION_OR_MINUS,
    "TimeUnitToMillisConverter": options.DURATION_OR_MINUS,
    "ByteUnitToLongConverter": options.SIZE_OR_MINUS,
    "ByteUnitToIntegerConverter": options.SIZE_OR_MINUS,
}
_BOXED = {"int": "Integer", "long": "Long", "double": "Double", "boolean": "Boolean"}
_LABELS: Mapping[str, tuple[str, click.ParamType[Any] | None]] = {
    "<topicName>": ("topic", options.TOPIC),
    "<topic>": ("topic", options.TOPIC),
    "<segment>": ("segment", options.TOPIC),
    "<namespaceName>": ("namespace", options.NAMESPACE),
    "<namespace>": ("namespace", options.NAMESPACE),
    "<clusterName>": ("cluster", None),
    "<resourceGroupName>": ("name", None),
    "<policyName>": ("name", None),
}
_CHANGES_OUTPUT = (
    "Nothing, as upstream's command; stderr says what was done, and how to undo it. -o json: the same as JSON."
)
_HELPS = {
    "applied": "The policy in force: the topic's, else the namespace's, else a broker's default.",
    "global_": "The policy that all clusters share, instead of this cluster's.",
}


def mirrored(
    path: str,
    *examples: str,
    elsewhere: Sequence[str] = (),
    helps: Mapping[str, str] | None = None,
    texts: Sequence[str] = (),
    several: bool = False,
    **more: Any,  # Any: as ``command`` takes them
) -> Callable[[Callable[..., Any]], options.Command]:
    """Declare upstream's command ``path`` (``topics create``) with upstream's options and parameters.

    ``examples`` and ``elsewhere`` (see ``command``) are the words that follow the command.
    The function gets the App, then by keyword each parameter (``topic: TopicName``, ``namespace: NamespaceName``,
    ``cluster``, ``tenant`` …) and each option under its ``name_of``: flags as bool, times in milliseconds and sizes in
    bytes (a default of -1 is -1), lists as tuples of text, maps as dicts, missing options without a default as None or
    empty. ``helps`` are help texts by the same names; parameters in ``texts`` are passed as typed. With ``several``,
    ``selection: TopicSelection`` replaces the one topic.
    """
    row = upstream_commands()[path]
    said = {**_HELPS, **(helps or {})}
    more.setdefault("output", _CHANGES_OUTPUT if more.get("changes") else "The output of upstream's command.")

    def decorate(function: Callable[..., Any]) -> options.Command:
        declared = function
        for option in reversed(row.get("options", ())):
            declared = _option(option, said)(declared)
        for parameter in reversed(row.get("parameters", ())):
            declared = options.topics_argument(declared) if several else _parameter(parameter, texts)(declared)
        return options.command(path, examples=examples, elsewhere=elsewhere, **more)(declared)

    return decorate


def refusing(path: str, need: Need) -> options.Command:
    """Return a command with upstream's options that only raises NeedsBroker, with the reason in ``need``.

    All options are optional texts, so that a missing one does not hide the reason.
    """
    row = upstream_commands()[path]

    def refuse(app: Any, **_: object) -> None:  # Any: the App, imported for types alone
        raise NeedsBroker(f"{path} needs {need.needed}: {need.reason}", hint=need.instead)

    declared: Callable[..., Any] = refuse
    for option in reversed(row.get("options", ())):
        kept = {key: value for key, value in option.items() if key in ("names", "hidden", "arity")}
        declared = _option({**kept, "type": "List"}, {})(declared)
    declared = click.argument("parameters", nargs=-1)(declared)
    text = f"Needs {need.needed}: {need.reason}."
    return options.command(path, help=text, errors=[NeedsBroker])(declared)


def refusing_command(path: str, name: str) -> options.Command | None:
    """Return the ``refusing`` command for upstream's command ``name``; None if it does not need a broker."""
    names = (key for key, row in upstream_commands().items() if key.rpartition(" ")[0] == path)
    found = next(
        (key for key in names if name in (key[len(path) + 1 :], *upstream_commands()[key].get("aliases", ()))), ""
    )
    need = need_of(found)
    return None if need is None else refusing(found, need)


def _option(row: Json, helps: Mapping[str, str]) -> Decorator:
    name = name_of(row["names"])
    flags = [flag for flag in row["names"] if flag.startswith("-")]
    more: Json = {"help": helps.get(name), "required": row.get("required", False), "hidden": row.get("hidden", False)}
    java: str = row["type"]
    kind = _BOXED.get(java, java)
    if row.get("arity") == "0":
        preset = row.get("default") == "true"  # picocli: the flag is the opposite of its default
        more |= {"is_flag": True, "default": preset, "flag_value": not preset}
    elif kind in ("List", "Map"):
        parse = _parse_list if kind == "List" else _parse_map
        more |= {"multiple": True, "callback": functools.partial(parse, row.get("split"))}
    else:
        values: Sequence[str] | None = row.get("values")
        choice = click.Choice(values) if values else None
        more["type"] = choice or _CONVERTED.get(row.get("converter", "")) or _TYPES.get(kind)
        if "default" in row and not row.get("required"):
            more["default"] = _default(row)  # for click even None would be one
    return click.option(*flags, name, **more)


def _default(row: Json) -> Any:
    """Return an option's default, converted from upstream's unit to milliseconds or bytes."""
    default, converter = row["default"], row.get("converter")
    if default is None or converter is None:
        return default
    return int(default) * 1000 if "Seconds" in converter and int(default) > 0 else int(default)


def _parse_list(
    split: str | None, ctx: click.Context, param: click.Parameter, values: Sequence[str]
) -> tuple[str, ...]:
    return tuple(part for value in values for part in (java_split(value, split) if split else (value,)))


def _parse_map(split: str | None, ctx: click.Context, param: click.Parameter, values: Sequence[str]) -> dict[str, str]:
    found = {}
    for part in _parse_list(split, ctx, param, values):
        key, equals, value = part.partition("=")
        if not equals:
            raise click.BadParameter(f"{part!r} is not key=value", ctx, param)
        found[key] = value
    return found


def parse_pairs(pairs: Iterable[str]) -> dict[str, str]:
    """Return KEY=VALUE texts as a map (upstream ``CmdBase.parseListKeyValueMap``); raises InvalidValue."""
    found = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise InvalidValue(f"Invalid key value pair '{pair}', valid format like 'a=b'.", value=pair)
        found[key] = value
    return found


def _parameter(row: Json, texts: Sequence[str]) -> Decorator:
    label = row["label"]
    name, kind = _LABELS.get(label, (CAPITAL.sub("_", label.strip("<>")).lower(), None))
    return click.argument(name, type=None if name in texts else kind, required=row.get("required", False))
