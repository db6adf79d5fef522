"""Command lines that the real pulsar-admin was asked in order, what it said, and the metadata it left: files of ``tests/golden/answers``.

::

    $ tenants create own        a line; a "#" begins a comment
    text                           its stdout
    ! Tenant already exist         the first line of its stderr, where it failed

``< PATH = VALUE`` above the lines is a node as it was before them, ``= PATH = VALUE`` below them one that they left. Only its own
names are in it: tenants and clusters that begin with ``own``.
"""

import json
import re
import shlex
from pathlib import Path
from typing import Any, TypeAlias

from msgspec import Struct, field

FOLDER = Path(__file__).resolve().parent / "golden" / "answers"
Nodes: TypeAlias = dict[str, Any]  # Any: JSON, or the text of what is none
_OWN = re.compile(r"/(admin|loadbalance)/.*/own")
_SHARED = re.compile(r"/(bookies|admin/configuration|loadbalance/resource-quota/default)$")
_GIVEN = re.compile(
    r"/(bookies|admin/(configuration|clusters/standalone|policies/(public|pulsar)|policies/public/default))$"
)


class Answer(Struct):
    """One command line, and what was said to it. ``error`` None: it worked."""

    line: str
    stdout: str = ""
    error: str | None = None

    @property
    def words(self) -> list[str]:
        return shlex.split(self.line)


class Answers(Struct):
    """One file."""

    head: str = ""
    before: Nodes = field(default_factory=dict)
    answers: list[Answer] = field(default_factory=list)
    after: Nodes = field(default_factory=dict)


def read_answers(name: str) -> Answers:
    """Return the file NAME."""
    found = Answers()
    for line in (FOLDER / f"{name}.txt").read_text().splitlines(keepends=True):
        mark, text = line[:2], line[2:].rstrip("\n")
        if mark in ("< ", "= "):
            path, _, value = text.partition(" = ")
            (found.before if mark == "< " else found.after)[path] = json.loads(value)
        elif mark == "$ ":
            found.answers.append(Answer(text))
        elif mark == "! ":
            found.answers[-1].error = text
        elif not found.answers:
            found.head += line if mark == "# " else ""
        else:
            found.answers[-1].stdout += line
    return found


def write_answers(name: str, found: Answers) -> None:
    """Write the file NAME."""
    lines = [found.head]
    lines += [f"< {path} = {json.dumps(value)}\n" for path, value in found.before.items()]
    for one in found.answers:
        lines += [f"$ {one.line}\n", one.stdout, *([f"! {one.error}\n"] if one.error is not None else [])]
    lines += [f"= {path} = {json.dumps(value)}\n" for path, value in found.after.items()]
    (FOLDER / f"{name}.txt").write_text("".join(lines))


def own_nodes(nodes: dict[str, bytes]) -> Nodes:
    """Return those of NODES that lines of such a file make, by path, as JSON."""
    found = {path: _value(value) for path, value in sorted(nodes.items()) if _OWN.search(path) or _SHARED.search(path)}
    return {path: value for path, value in found.items() if not _is_copy(path, value, found)}


def _is_copy(path: str, value: Any, nodes: Nodes) -> bool:  # Any: JSON
    """Whether a broker makes this node on its own, of a namespace's bundles, as soon as it loads one of them."""
    policies = nodes.get(path.replace("/local-policies/", "/policies/"), {})
    return "/local-policies/" in path and value == {"bundles": policies.get("bundles"), "migrated": False}


def given_nodes(nodes: dict[str, bytes]) -> Nodes:
    """Return those of NODES that every Pulsar has and that lines of such a file may need."""
    return {path: _value(value) for path, value in sorted(nodes.items()) if _GIVEN.search(path)}


def _value(value: bytes) -> Any:  # Any: JSON
    """Return VALUE as JSON; without what a broker writes of a namespace once it has read its policies, and not before."""
    try:
        found = json.loads(value)
    except ValueError:
        return value.hex()
    if isinstance(found, dict) and found.get("is_allow_auto_update_schema") is True:
        del found["is_allow_auto_update_schema"]
    return found
