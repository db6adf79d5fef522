"""Pages whose commands run in order on the data that their first line names: ``<!-- data: small crashed -->``;
lines ``<!-- plant: pulsar-admin … -->`` plant the cause that the page is about.

``python -m tests.pages PAGE…`` writes what the
commands print into the pages; read the difference.
"""

import re
import shlex
from collections.abc import Callable
from pathlib import Path

from tests.stores import copied
from tests.worlds import world

DOCS = Path(__file__).resolve().parent.parent / "docs"
PAGES = (
    "tutorial.md",
    "night-tasks.md",
    *(f"runbooks/{path.name}" for path in sorted((DOCS / "runbooks").glob("*.md"))),
)
_DATA = re.compile(r"^<!-- data: (\w+) (\w+) -->$", re.MULTILINE)
_PLANT = re.compile(r"^<!-- plant: pulsar-admin (.*) -->$", re.MULTILINE)
_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_COMMAND = re.compile(r"^\$ pulsar-admin (.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)
_SECONDS = re.compile(r"^(seconds\s+).*$", re.MULTILINE)
NOW = "2026-11-22T03:00:00.000Z"
"""What the pages take as now."""

Run = Callable[[list[str]], str]


def parts_of(page: str) -> list[str]:
    """Return the text of PAGE, cut in front of each line that names data; what is in front of the first has no commands."""
    return re.split(r"(?=^<!-- data:)", (DOCS / page).read_text(), flags=re.MULTILINE)


def data_of(part: str) -> tuple[str, str]:
    """Return world and state that PART of a page runs on."""
    found = _DATA.match(part)
    assert found is not None, "commands before the line that names the data"
    return found[1], found[2]


def prepare(part: str, folder: Path) -> None:
    """Lay down what PART runs on: ``standalone`` or ``cluster``, and its store, unless the part imports one."""
    name, state = data_of(part)
    (folder / ("cluster" if name == "cluster" else "standalone")).symlink_to(world(name) / state)
    if "$ pulsar-admin store import" not in part:
        copied(name, state, folder)


def told(text: str, source: Path) -> str:
    """Return TEXT without what differs from run to run: seconds, where SOURCE lies."""
    return _SECONDS.sub(r"\g<1>…", text.replace(str(source), f"/copies/{source.name}"))


def replayed(part: str, run: Run) -> str:
    """Return the text of PART with what RUN says to each of its commands; behind a pipe the page's own stays."""

    name, state = data_of(part)
    source = world(name) / state

    def answer(found: re.Match[str]) -> str:
        line, pipe, _ = found[1].partition(" | ")
        said = run(shlex.split(line, comments=True))
        return f"$ pulsar-admin {found[1]}\n{found[2] if pipe else told(said, source)}"

    def block(found: re.Match[str]) -> str:
        return f"```console\n{_COMMAND.sub(answer, found[1])}```"

    for line in _PLANT.findall(part):  # the cause that the page is about
        run(shlex.split(line))
    return _BLOCK.sub(block, part)


def _record(pages: list[str]) -> None:
    import os
    import subprocess
    import sys
    import tempfile

    environment = {name: value for name, value in os.environ.items() if not name.startswith("PULSAR_ADMIN_")}
    environment["PULSAR_ADMIN_NOW"] = NOW
    for page in pages or PAGES:
        first, *parts = parts_of(page)
        for part in parts:
            with tempfile.TemporaryDirectory() as folder:
                prepare(part, Path(folder))

                def run(words: list[str], folder: str = folder) -> str:
                    command = [sys.executable, "-m", "pulsar_admin", *words]
                    done = subprocess.run(
                        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
                    )
                    return done.stdout + done.stderr

                first += replayed(part, run)
        (DOCS / page).write_text(first)


if __name__ == "__main__":
    import sys

    _record(sys.argv[1:])
