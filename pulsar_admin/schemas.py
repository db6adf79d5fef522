"""``--schema``: what a command writes with ``-o json``, from ``schemas.json``, which ``python -m tests.schemas`` records."""

from __future__ import annotations

from typing import Any

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_CHANGE = "change"


def schema_of(path: str, description: str = "") -> dict[str, Any]:  # Any: JSON values
    """Return the self-contained JSON Schema of a command such as ``topics stats``; raises KeyError for no command.

    For a list it describes the array of ``-o json``; with ``-o jsonl`` each line is one of its items. Later versions
    may add keys; existing keys keep their meaning.
    """
    import json
    from pathlib import Path

    found = json.loads(Path(__file__).with_name("schemas.json").read_text())
    head = {"$schema": DIALECT, "title": f"pulsar-admin {path}", "description": description}
    schema: dict[str, Any] = {key: text for key, text in head.items() if text} | found[path]  # Any: JSON values
    if f"#/$defs/{_CHANGE}" in json.dumps(schema):
        schema["$defs"] = {_CHANGE: found[_CHANGE]}
    return schema
