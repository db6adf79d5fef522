"""What every command emits on recorded data, as JSON Schemas: ``pulsar_admin/schemas.json``."""

import json
import re
import shlex
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import pytest

from pulsar_admin import lookup, output
from pulsar_admin.context import App, Printed
from tests.schemas.inferring import Json, Shape

FILE = Path(output.__file__).with_name("schemas.json")
ASKED = Path(__file__).with_name("lines.txt")
POLICIES = Path(__file__).parent.parent / "golden" / "policies.txt"
PLAIN = "public/default/plain"
BY_NAME = (
    "bookies racks-placement",
    "brokers get-all-dynamic-config",
    "clusters list-failure-domains",
    "namespaces get-backlog-quotas",
    "namespaces get-properties",
    "namespaces permissions",
    "namespaces subscription-permission",
    "ns-isolation-policy list",
    "scalable-topics permissions",
    "topics get-properties",
    "topics get-subscription-properties",
    "topics permissions",
    "transactions coordinators-list",
)
"""Commands whose whole answer is a map by names that users gave."""
_NAMES = {"type": "array", "items": {"type": "string"}}
_TEXT, _NUMBER = {"type": ["string", "null"]}, {"type": ["integer", "null"]}
DECLARED: dict[str, Json] = {
    "bookkeeper listfilesondisc": _NAMES,
    "namespaces get-allowed-topic-property-keys-for-metrics": _NAMES,
    "namespaces get-clusters": _NAMES,
    "namespaces get-offload-deletion-lag": _TEXT,
    "namespaces get-offload-threshold": _TEXT,
    "namespaces get-resource-group": _TEXT,
    "namespaces get-schema-autoupdate-strategy": _TEXT,
    "namespaces get-schema-compatibility-strategy": _TEXT,
    "packages download": {"type": "string"},
    "packages get-metadata": {"type": "object"},
    "packages list": _NAMES,
    "packages list-versions": _NAMES,
    "scalable-topics get-metadata": {"type": "object"},
    "scalable-topics segment-stats": {"type": "object"},
    "scalable-topics stats": {"type": "object"},
    "scalable-topics list": _NAMES,
    "schemas compatibility": {"type": "object"},
    "sql": {"type": "array", "items": {"type": "object"}},  # a statement decides its columns
    "topicPolicies get-backlog-quota": {"type": ["object", "null"]},
    "topicPolicies get-dispatcher-pause-on-ack-state-persistent": {"type": ["boolean", "null"]},
    "topicPolicies get-subscription-expiration-time": _NUMBER,
    "topics get-shadow-topics": _NAMES,
    "transactions transaction-metadata": {"type": ["object", "null"]},
}
"""What recorded data has no answer to, as upstream's client types declare it."""
LINES = (
    "store info",
    "store check",
    "store usage",
    "store usage --by log",
    "store usage --by disk",
    "store ls /",
    "store log",
    "ledgers list",
    "ledgers orphans",
    "ledgers missing",
    "ledgers underreplicated",
    "namespaces list public",
    "namespaces policies public/default",
    "namespaces permissions public/default",
    "namespaces get-retention public/default",
    "namespaces get-message-ttl public/default",
    "tenants list",
    "tenants get public",
    "clusters list",
    "topics list public/default",
    "topics subscriptions --all-topics",
    f"topics stats {PLAIN}",
    "topics stats --all-topics",
    f"topics stats-internal {PLAIN}",
    "topics stats-internal --all-topics",
    f"topics info-internal {PLAIN}",
    "topics last-message-id --all-topics",
    f"topics find-by-time {PLAIN} --time 2020-01-01T00:00:00Z",
    f"topics read {PLAIN} --limit 5",
    f"topics examine-messages {PLAIN} -i earliest -m 1",
    "topics skew --all-topics",
    f"topics timeline {PLAIN}",
    "topics get-partitioned-topic-metadata --all-topics",
    "topics get-retention public/default/plain",
    "compaction status --all-topics",
    "compaction last-id --all-topics",
    "delayed status --all-topics",
    "transactions coordinators-list",
    "transactions coordinator-stats",
    "schemas get public/default/json",
)
"""Questions for whole worlds; some to learn from, others for the test."""
LEARNED = (("small", "mutated"), ("small", "crashed"), ("nometa", "crashed"), ("cluster", "clean"))
CHANGE = "change"
"""The definition that all changing commands share."""


class Seen:
    """The documents and the rows of every command."""

    def __init__(self) -> None:
        self.documents: dict[str, Shape] = {}
        self.rows: dict[str, Shape] = {}
        self.change = Shape()

    def document(self, path: str, value: object) -> None:
        if isinstance(value, dict) and {"change", "dryRun"} <= value.keys():
            self.change.add(value)
        else:
            self.documents.setdefault(path, Shape(is_by_name=path in BY_NAME)).add(value)

    def printed(self, path: str, text: str) -> None:
        """Take what a command printed, where it emits in a way of its own."""
        if path not in self.documents and path not in self.rows:
            self.document(path, json.loads(text))

    def row(self, path: str, value: object) -> None:
        if isinstance(value, dict) and {"change", "dryRun"} <= value.keys():
            self.change.add(value)
        else:
            self.rows.setdefault(path, Shape()).add(value)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """See what is emitted while the block runs."""
        with pytest.MonkeyPatch.context() as patch:
            for name in ("emit_document", "emit_lines", "emit_records"):
                patch.setattr(output, name, self._watched(getattr(output, name), several=name != "emit_document"))
            patch.setattr(App, "_print", self._printing(App._print))
            yield

    def _printing(self, write: Any) -> Any:  # Any: a method of App
        def prints(app: App, printed: Printed) -> None:
            if app.settings.output is None or not (printed.of_change or printed.document is not None):
                self.document(_path(), printed.value)
            write(app, printed)

        return prints

    def _watched(self, emit: Any, *, several: bool) -> Any:  # Any: functions of output
        def emits(writer: object, value: Any, style: object) -> None:  # Any: what a command emits
            path = _path()
            if not several:
                self.document(path, value)
            emit(writer, self._rows(path, value) if several else value, style)

        return emits

    def _rows(self, path: str, rows: Iterable[object]) -> Iterator[object]:
        if path == "sql":
            yield from rows
            return
        self.rows.setdefault(path, Shape())
        for row in rows:
            self.row(path, row)
            yield row


def _path() -> str:
    context = click.get_current_context()
    return canonical(context.command_path.partition(" ")[2])


def canonical(path: str) -> str:
    """Return the path of a command by its name in the table, when PATH may name an alias."""
    group, _, name = path.rpartition(" ")
    rows = lookup.rows_of(group)
    return next((f"{group} {one}".strip() for one, row in rows.items() if name == one or name in row.aliases), path)


def golden_policies() -> Iterator[tuple[str, Json]]:
    """Yield (path of a command, what the real pulsar-admin printed) of every policy command that printed JSON."""
    for block in re.split(r"^\$ ", POLICIES.read_text(), flags=re.M)[1:]:
        line, _, said = block.partition("\n")
        words = [word for word in shlex.split(line) if not word.startswith("-")][:2]
        path = canonical(" ".join(words))
        if words[1].startswith("get-") and not said.startswith("!"):
            try:
                yield path, json.loads(said)
            except ValueError:
                continue


def schemas_of(seen: Seen, commands: Iterable[str], changing: Iterable[str]) -> dict[str, Json]:
    """Return the schema of every one of COMMANDS, and as ``change`` that of a change's report, which those CHANGING refer to."""
    changing = frozenset(changing)
    found: dict[str, Json] = {}
    for path in commands:
        forms = [seen.documents[path].schema()] if path in seen.documents else []
        if path in seen.rows:
            row = seen.rows[path].schema()
            forms.append({"type": "array", "items": row} if row else {"type": "array"})
        if path in changing:
            change = {"$ref": f"#/$defs/{CHANGE}"}
            forms = [change, {"type": "array", "items": change}, *forms]
        forms += [DECLARED[path]] if path in DECLARED else []
        found[path] = forms[0] if len(forms) == 1 else {"anyOf": forms} if forms else {}
    return {CHANGE: seen.change.schema(), **found}
