"""``--schema``: what a command writes with ``-o json``, from ``schemas.json``, which ``python -m tests.schemas`` records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import click

if TYPE_CHECKING:
    from pulsar_admin.global_options import Declared
    from pulsar_admin.options import Command

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_CHANGE = "change"


def schema_of(path: str, description: str = "") -> dict[str, Any]:  # Any: JSON values
    """Return the schema of command PATH, such as ``topics stats``, whole in itself; raises KeyError where there is no command.

    Of a list it describes the array of ``-o json``; with ``-o jsonl`` each line is one of its items. Keys may be added in later
    versions; those there are keep their meaning.
    """
    import json
    from pathlib import Path

    found = json.loads(Path(__file__).with_name("schemas.json").read_text())
    head = {"$schema": DIALECT, "title": f"pulsar-admin {path}", "description": description}
    schema: dict[str, Any] = {key: text for key, text in head.items() if text} | found[path]  # Any: JSON values
    if f"#/$defs/{_CHANGE}" in json.dumps(schema):
        schema["$defs"] = {_CHANGE: found[_CHANGE]}
    return schema


def _show(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if not value or ctx.resilient_parsing:
        return
    from pulsar_admin.jsonify import dump_json

    command = cast("Command", ctx.command)
    group = "" if ctx.parent is None else ctx.parent.command_path.partition(" ")[2]
    schema = schema_of(f"{group} {command.name}".strip(), command.details.output)
    click.echo(dump_json(schema, pretty=True))
    ctx.exit()


SCHEMA: Declared = {
    "schema": (
        ("--schema",),
        {"is_flag": True, "callback": _show, "hidden": True, "help": "Show the JSON Schema of -o json and exit."},
    )
}
"""The option of every command that shows its schema; the command need not be whole for that."""
