"""``--schema`` says what ``-o json`` writes: on worlds from which no schema was recorded nothing is there that it does not have."""

import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import jsonschema  # type: ignore[import-untyped,unused-ignore]

from pulsar_admin.schemas import schema_of, unit_of
from tests.conftest import Cli
from tests.deep import deep_but_for
from tests.schemas.recording import LEARNED, LINES
from tests.stores import imported
from tests.test_docs import COMMANDS

Json = Any
WORLDS = (("nometa", "mutated"), ("cluster", "mutated"))
assert not {*WORLDS} & {*LEARNED}


def strict(schema: Json) -> Json:
    """Return SCHEMA without leave for keys that it does not name."""
    if isinstance(schema, list):
        return [strict(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: strict(one) for key, one in schema.items()}
    is_record = isinstance(schema.get("properties"), dict) and ("type" in schema or "required" in schema)
    return {"additionalProperties": False, **found} if is_record else found


@cache
def validator(path: str) -> Any:  # Any: jsonschema's validators
    return jsonschema.Draft202012Validator(strict(schema_of(path)))


def faults(path: str, value: Json) -> list[str]:
    """Return where VALUE is not what the schema of command PATH says."""
    found = {re.sub(r"\d+", "N", error.json_path): error for error in validator(path).iter_errors(value)}
    return [f"{path}: {where}: {error.message[-300:]}" for where, error in found.items()]


def test_every_command_has_a_schema() -> None:
    """Those that the comparison below asks are looked at by the library, too."""
    for name in COMMANDS:
        assert schema_of(name).keys() & {"type", "anyOf"}, name
    for name in ("topics stats", "store check", "ledgers list"):
        jsonschema.Draft202012Validator.check_schema(schema_of(name))


def mistimed(value: Json, path: str) -> Iterator[str]:
    """Yield the keys of numbers that contradict their unit: the times are of 2020 and 2026, 1.6e12 and 1.8e12 ms after 1970."""
    if isinstance(value, list):
        for one in value:
            yield from mistimed(one, path)
    elif isinstance(value, dict):
        for key, one in value.items():
            yield from mistimed(one, path)
            if type(one) is int and one > 0 and (1.5e12 < one < 2e12) != ("since 1970" in unit_of(key, path)):
                yield f"{key} {one}: {unit_of(key, path) or 'no unit'}"


def test_a_unit_is_that_of_the_command() -> None:
    found = schema_of("topics subscriptions")["items"]["properties"]
    assert (found["backlog"]["description"], found["backlogEntries"]["description"]) == ("bytes", "entries")
    assert unit_of("dead", "store usage") == "bytes"
    assert unit_of("bucket", "topics timeline") == "milliseconds"
    assert not unit_of("bucket")


@deep_but_for((0,), "step", [7, 1])
@deep_but_for((1,), ("name", "state"), WORLDS)
def test_other_worlds_are_as_it_says(name: str, state: str, step: int, cli: Cli) -> None:
    found = []
    for line in LINES[::step]:
        path = next(path for path in sorted(COMMANDS, key=len, reverse=True) if f"{line} ".startswith(f"{path} "))
        result = cli("--store", imported(name, state), *line.split(), "-o", "json")
        if result.exit_code not in (0, 1):  # 1: something is wrong there, which the rows say
            found.append(f"{line}: exit code {result.exit_code}: {result.stderr}")
        elif result.stdout.strip():
            value = json.loads(result.stdout)
            found += faults(path, value)
            found += [f"{path}: {fault}" for fault in sorted(set(mistimed(value, path)))]
    assert not found, "\n".join(found)


def test_it_is_shown_without_a_store_and_without_arguments(cli: Cli) -> None:
    result = cli.done("--store", "/nonexistent", "topics", "find-by-time", "--schema")
    assert json.loads(result.stdout) == schema_of("topics find-by-time", COMMANDS["topics find-by-time"].details.output)
    assert result.stderr == ""
    assert '"description" : "milliseconds since 1970-01-01 UTC"' in result.stdout.partition('"entryTime"')[2]
    told = cli("ledgers", "entries", "--help").stdout
    assert "bytes: `length`, `size`" in " ".join(told.partition("Units (-o json, CSV):")[2].split())


def test_an_alias_has_the_schema_of_its_command(cli: Cli) -> None:
    path, alias = next((path, command.aliases[0]) for path, command in COMMANDS.items() if command.aliases)
    shown = cli(*path.split()[:-1], alias, "--schema").stdout
    assert json.loads(shown) == schema_of(path, COMMANDS[path].details.output)
