"""Upstream's own command tree, ``upstream.json``.

``python -m tests.live.upstream`` writes the file from picocli's model of
``org.apache.pulsar.admin.cli.PulsarAdminTool`` (4.0.8, the newest on Maven Central): command path → aliases, options
and parameters; the path ``""`` has the options of the program. Types are Java's; an arity of 1 is left out.
``shell.json`` has ``bookkeeper shell`` and ``pulsar-managed-ledger-admin`` in the same form, as the groups
``bookkeeper`` and ``managed-ledger`` (``python -m tests.live.shell``). ``upstream-5.0.json`` has the commands and
options that 5.0.1 added to 4.0.8, with "since".
"""

import functools
import json
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from pulsar_admin.store.errors import InvalidValue

Json = dict[str, Any]  # Any: JSON
_FILES = ("upstream.json", "upstream-5.0.json", "shell.json")
CAPITAL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
"""Before a capital letter within a word."""
_KINDS: Mapping[str, tuple[type, ...]] = {
    "boolean": (bool,),
    "double": (int, float),
    "List": (list, tuple),
    **dict.fromkeys(("int", "Integer", "long", "Long"), (int,)),
}
"""What values of upstream's options are, by their types in Java; of all others: texts, and what the command line makes of them."""


@functools.cache
def upstream_commands() -> Mapping[str, Json]:
    """Return upstream's commands by path (``topics create``)."""
    loader: Any = __spec__.loader  # from a folder or from the archive that Spark's executors have
    folder = os.path.dirname(__file__)
    files = (loader.get_data(os.path.join(folder, name)) for name in _FILES)
    return {path: row for file in files for path, row in json.loads(file).items()}


def check_options(command: str, options: Mapping[str, Any]) -> None:  # Any: what callers give
    """Raise InvalidValue for options that upstream's ``command`` does not have, or of another type; keys are those of ``name_of``."""
    row = upstream_commands().get(command)
    if row is None:
        raise InvalidValue(f"{command} is no command of pulsar-admin", value=command)
    kinds = {name_of(option["names"]): _KINDS.get(option["type"], (str, int)) for option in row.get("options", ())}
    for name, value in options.items():
        if name not in kinds:
            raise InvalidValue(f"{command} has no option {name!r}", hint=f"it has: {', '.join(kinds)}", value=name)
        is_flag = isinstance(value, bool)
        if value is not None and (not isinstance(value, kinds[name]) or is_flag != (kinds[name] == (bool,))):
            raise InvalidValue(
                f"{command} does not take {value!r} as {name}", hint=f"see: pulsar-admin {command} --help"
            )


def name_of(names: Sequence[str]) -> str:
    """Return the keyword of an option: its longest name in snake case, with ``_`` added to a Python keyword (``global_``)."""
    longest = max((name for name in names if name.startswith("-")), key=len).lstrip("-")
    name = CAPITAL.sub("_", longest.replace("-", "_")).lower()
    return f"{name}_" if name in ("global", "from", "class", "type", "lambda") else name
