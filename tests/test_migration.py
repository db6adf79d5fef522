"""Every command and option of ours that the pages for newcomers name is there."""

import re
import shlex

import pytest

from pulsar_admin.command_table import MEANT
from tests.test_docs import COMMANDS, DOCS, _aliases

LINES = sorted(
    {
        line
        for page in ("migration.md", "night-tasks.md", "install.md")
        for line in re.findall(r"`pulsar-admin ([^`\n]+)`", (DOCS / page).read_text())
    }
)
NAMES = {alias: name for name in COMMANDS for alias in (name, *_aliases(name))}
NAMES |= {plain: meant for plain, meant in MEANT.items() if meant in NAMES}
GROUPS = {name.rpartition(" ")[0] for name in COMMANDS}


def unknown_in(line: str) -> set[str]:
    """Return what of LINE is no command, and no option of it."""
    words = shlex.split(line)
    name = next((" ".join(words[:end]) for end in range(len(words), 0, -1) if " ".join(words[:end]) in NAMES), None)
    if name is None:
        return set() if line in GROUPS else {line}
    options = {text for option in COMMANDS[NAMES[name]].params for text in option.opts}
    return {word for word in words if re.match(r"--?[a-zA-Z]", word)} - options - {"--store", "--now", "--dry-run"}


@pytest.mark.parametrize("line", LINES)
def test_named_commands_exist(line: str) -> None:
    assert not unknown_in(line)
