"""The real pulsar-admin: its command tree as ``pulsar_admin/upstream.json``, and its answers to command lines.

``python -m tests.live.upstream`` writes the file again. Maven Central has ``pulsar-client-tools`` up to 4.0.8 only: 4.2.4 and
5.0.1 are there without their command line.
"""

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from tests.live.distribution import VERSION, find_distribution

Json: TypeAlias = dict[str, Any]  # Any: JSON
FILE = Path(__file__).resolve().parents[2] / "pulsar_admin" / "upstream.json"
_PROGRAM = Path(__file__).with_name("UpstreamAdmin.java")
_EVERYWHERE = {"--help", "--version"}


class Said(NamedTuple):
    """What one command line of the real pulsar-admin printed, and its exit code."""

    exit: int
    stdout: str
    stderr: str


class UpstreamAdmin:
    """The real pulsar-admin in one process, asked line by line: ``UpstreamAdmin(web_url).ask("topics", "list", "a/b")``."""

    def __init__(self, web_url: str, version: str = VERSION) -> None:
        self._process = subprocess.Popen(
            java_command(version, _PROGRAM, "run", web_url), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, *words: str) -> Said:
        self._process.stdin.write(json.dumps(words) + "\n")
        self._process.stdin.flush()
        return Said(**json.loads(self._process.stdout.readline()))

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()


def commands(version: str = VERSION) -> Json:
    """Return upstream's commands by path, as the checked-in file has them; the options of all are those of ``""``."""
    finished = subprocess.run(java_command(version, _PROGRAM, "tree"), capture_output=True, text=True, check=True)
    tree: Json = json.loads(finished.stdout)
    everywhere = {"": {"options": list(_arguments(tree["options"]))}}
    return everywhere | dict(sorted(_leaves(tree, ())))


def render(rows: Mapping[str, Json]) -> str:
    """Return ROWS as the file's text, a command a line."""
    lines = (f"{json.dumps(path)}: {json.dumps(row, separators=(',', ':'))}" for path, row in rows.items())
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _leaves(node: Json, path: tuple[str, ...]) -> Iterator[tuple[str, Json]]:
    for name, child in node.get("commands", {}).items():
        yield from _leaves(child, (*path, name))
    if not node.get("commands"):
        row = {key: node[key] for key in ("aliases", "hidden", "deprecated") if key in node}
        for kind in ("options", "parameters"):
            if found := list(_arguments(node.get(kind, ()))):
                row[kind] = found
        yield " ".join(path), row


def _arguments(arguments: Sequence[Json]) -> Iterator[Json]:
    """Yield options or parameters without what says nothing: one value, and a default of false or null."""
    for argument in arguments:
        if argument.get("arity") != "0" or not _EVERYWHERE.intersection(argument.get("names", ())):
            silent = {"arity": ("1",), "default": ("false", "null")}
            yield {key: value for key, value in argument.items() if value not in silent.get(key, ())}


def java_command(version: str, program: Path, *words: str) -> list[str]:
    """Return the command that runs a program's source with the jars of a distribution."""
    jars = find_distribution(version) / "lib" / "*"
    return [
        "java",
        "-Xmx512m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-Dlog4j2.level=off",
        "-cp",
        str(jars),
        str(program),
        *words,
    ]


if __name__ == "__main__":
    FILE.write_text(render(commands()))
