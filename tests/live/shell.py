"""The commands of ``bookkeeper shell`` and of ``pulsar-managed-ledger-admin`` as ``pulsar_admin/shell.json``.

``python -m tests.live.shell`` writes the file again.
"""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.live.distribution import VERSION, find_distribution
from tests.live.upstream import Json, java_command, render

FILE = Path(__file__).resolve().parents[2] / "pulsar_admin" / "shell.json"
_PROGRAM = Path(__file__).with_name("BookieShellTree.java")
_PARAMETER = re.compile(r"\* <([a-z-_]+)>")
# runCmd reads them, the help leaves them out or gives them two names.
_UNNAMED = {"readjournal": ["journal"], "readlog": ["log"], "readlogmetadata": ["log"], "recover": ["bookies"]}
_NUMBERS = {"entryid", "firstentryid", "lastentryid", "ledgerid", "logId", "startpos", "endpos", "timeout"}
_ARGUMENT = re.compile(r'add_argument\("([^"]+)", "([^"]+)", required=(True|False)')
_COMMAND = re.compile(r'^\w+ = "([a-z-]+)"$', re.MULTILINE)


def commands(version: str = VERSION) -> Json:
    """Return the commands of both programs by path, as the checked-in file has them."""
    return dict(sorted([*_shell(version), *_managed_ledger(version)]))


def _shell(version: str) -> Iterator[tuple[str, Json]]:
    program = java_command(version, _PROGRAM)
    tree: Json = json.loads(subprocess.run(program, capture_output=True, text=True, check=True).stdout)
    for name, found in tree.items():
        if name == "help":
            continue
        for option in found["options"]:
            if option["names"][-1].lstrip("-") in _NUMBERS:
                option["type"] = "Long"
        row = {"options": found["options"]} if found["options"] else {}
        labels = _PARAMETER.findall(found["usage"]) or _UNNAMED.get(name, [])
        if labels:
            row["parameters"] = [{"type": "String", "required": True, "label": f"<{label}>"} for label in labels]
        yield f"bookkeeper {name}", row


def _managed_ledger(version: str) -> Iterator[tuple[str, Json]]:
    script = (find_distribution(version) / "bin" / "pulsar-managed-ledger-admin").read_text()
    options = [
        {"type": "String", "names": [short, long], **({"required": True} if required == "True" else {})}
        for long, short, required in _ARGUMENT.findall(script)
    ]
    for name in _COMMAND.findall(script):
        yield f"managed-ledger {name}", {"options": options}


if __name__ == "__main__":
    FILE.write_text(render(commands()))
