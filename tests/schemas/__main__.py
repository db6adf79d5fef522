"""``python -m tests.schemas``: write ``pulsar_admin/schemas.json`` again, from transcripts, examples and the real program's answers."""

import json
import os
import shlex
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import chdir, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

from pulsar_admin import command_table, lookup
from pulsar_admin.cli import run
from pulsar_admin.options import Command
from tests.schemas.inferring import Json
from tests.schemas.recording import ASKED, FILE, LEARNED, LINES, Seen, golden_policies, schemas_of
from tests.stores import imported
from tests.test_docs import generate
from tests.transcript.recording import record, transcripts
from tests.worlds import world


def commands() -> dict[str, Command]:
    """Return every command by its path."""
    groups = [command_table.ROOT, *lookup.subgroups_of(command_table.ROOT)]
    return {name: context.command for group in groups for name, context in generate.commands_of(group)}


def run_examples(found: dict[str, Command], seen: Seen) -> Iterator[str]:
    """Run the examples of every command on the demo store, what changes it dry; yield those that failed."""
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        Path("standalone").symlink_to(world("small") / "clean")
        assert run(["--quiet", "store", "import", "standalone", "standalone"]) == 0
        for path, command in found.items():
            dry = ["--dry-run"] if command.changes or "dry_run" in command.uses else []
            for example in command.details.examples:
                words = shlex.split(example.partition(" | ")[0])[1:]
                with redirect_stdout(StringIO()) as said:
                    code = run([*words, "-o", "json", *dry])
                if code != 0:
                    yield example
                elif said.getvalue().strip():
                    seen.printed(path, said.getvalue())


def main() -> None:
    seen, found = Seen(), commands()
    for path, said in golden_policies():
        seen.document(path, said)
    said, told = StringIO(), StringIO()
    with seen.watching(), redirect_stdout(said), redirect_stderr(told):
        failed = list(run_examples(found, seen))
        for name, state in LEARNED:
            for line in LINES:
                run(["--store", str(imported(name, state)), *line.split(), "-o", "json"])
        for text in (*(path.read_text() for path in transcripts().values()), *ASKED.read_text().split("\n# ")[1:]):
            record(text)
    changing = [path for path, command in found.items() if command.changes]
    FILE.write_text(text_of(schemas_of(seen, found, changing)))
    print(f"{FILE.name}: {FILE.stat().st_size:,} bytes, {len(found)} commands", *failed, sep="\n", file=sys.stderr)


def text_of(schemas: Mapping[str, Json]) -> str:
    """Return the schemas as JSON, one per line."""
    lines = (f"{json.dumps(name)}: {json.dumps(one, sort_keys=True)}" for name, one in sorted(schemas.items()))
    return "{\n" + ",\n".join(lines) + "\n}\n"


if __name__ == "__main__":
    os.environ["TERM"] = "xterm-256color"
    main()
