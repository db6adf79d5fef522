"""``--schema`` says what ``-o json`` writes: on worlds from which no schema was recorded nothing is there that it does not have."""

import json

import jsonschema  # type: ignore[import-untyped,unused-ignore]

from pulsar_admin.schemas import schema_of, unit_of
from tests.conftest import Cli
from tests.schemas.recording import LEARNED
from tests.test_docs import COMMANDS

WORLDS = (("nometa", "mutated"), ("cluster", "mutated"))
assert not {*WORLDS} & {*LEARNED}


def test_every_command_has_a_schema() -> None:
    """Those that the comparison below asks are looked at by the library, too."""
    for name in COMMANDS:
        assert schema_of(name).keys() & {"type", "anyOf"}, name
    for name in ("topics stats", "store check", "ledgers list"):
        jsonschema.Draft202012Validator.check_schema(schema_of(name))


def test_a_unit_is_that_of_the_command() -> None:
    found = schema_of("topics subscriptions")["items"]["properties"]
    assert (found["backlog"]["description"], found["backlogEntries"]["description"]) == ("bytes", "entries")
    assert unit_of("dead", "store usage") == "bytes"
    assert unit_of("bucket", "topics timeline") == "milliseconds"
    assert not unit_of("bucket")


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
