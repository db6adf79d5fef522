"""Pages whose commands run in order on the data that their first line names: ``<!-- data: small crashed -->``;
lines ``<!-- plant: pulsar-admin … -->`` plant the cause that the page is about.

``python -m tests.pages PAGE…`` writes what the
commands print into the pages; read the difference.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
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
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
_STARTED = datetime.now(UTC)
NOW = "2026-11-22T03:00:00.000Z"
"""What the pages take as now, and show for times at which they were made."""

Run = Callable[[list[str]], str]


def data_of(page: str) -> tuple[str, str]:
    """Return world and state that PAGE runs on."""
    found = _DATA.search((DOCS / page).read_text())
    assert found is not None, f"{page} does not name its data"
    return found[1], found[2]


def prepare(page: str, folder: Path) -> None:
    """Lay down what PAGE runs on: ``standalone`` or ``cluster``, and, but for the tutorial, its store."""
    name, state = data_of(page)
    (folder / ("cluster" if name == "cluster" else "standalone")).symlink_to(world(name) / state)
    if page != "tutorial.md":
        copied(name, state, folder)


def told(text: str, source: Path) -> str:
    """Return TEXT without what differs from run to run: seconds, times of this run, where SOURCE lies."""
    text = _SECONDS.sub(r"\g<1>…", text.replace(str(source), f"/copies/{source.name}"))
    return _TIME.sub(lambda found: NOW if _is_of_this_run(found[0]) else found[0], text)


def _is_of_this_run(time: str) -> bool:
    return abs(datetime.fromisoformat(time) - _STARTED) < timedelta(hours=3)


def replayed(page: str, run: Run) -> str:
    """Return the text of PAGE with what RUN says to each of its commands; behind a pipe the page's own stays."""

    name, state = data_of(page)
    source = world(name) / state

    def answer(found: re.Match[str]) -> str:
        line, pipe, _ = found[1].partition(" | ")
        said = run(shlex.split(line, comments=True))
        return f"$ pulsar-admin {found[1]}\n{found[2] if pipe else told(said, source)}"

    def block(found: re.Match[str]) -> str:
        return f"```console\n{_COMMAND.sub(answer, found[1])}```"

    text = (DOCS / page).read_text()
    for line in _PLANT.findall(text):  # the cause that the page is about
        run(shlex.split(line))
    return _BLOCK.sub(block, text)


def _record(pages: list[str]) -> None:
    import os
    import subprocess
    import sys
    import tempfile

    environment = {name: value for name, value in os.environ.items() if not name.startswith("PULSAR_ADMIN_")}
    environment["PULSAR_ADMIN_NOW"] = NOW
    for page in pages or PAGES:
        with tempfile.TemporaryDirectory() as folder:
            prepare(page, Path(folder))

            def run(words: list[str], folder: str = folder) -> str:
                command = [sys.executable, "-m", "pulsar_admin", *words]
                done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
                return done.stdout + done.stderr

            text = replayed(page, run)
        (DOCS / page).write_text(text)


if __name__ == "__main__":
    import sys

    _record(sys.argv[1:])
