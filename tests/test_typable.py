"""Commands that the program prints: every literal one can be typed, each carries what this run was given, and data is left as it is."""

import ast
import base64
import json
import os
import re
import shutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest

from pulsar_admin.cli import run
from pulsar_admin.commands.store.export import _exported_copy
from pulsar_admin.store.db.backups import keep_hint
from pulsar_admin.store.names import shell_word
from pulsar_admin.store.rules.table import RULES_BY_CODE
from pulsar_admin.store.sources.ensemble import Client
from pulsar_admin.typable import PROGRAM, begin, carry, typable
from tests.conftest import Cli
from tests.printed import commands_in, is_placeholder, printed_commands, words_of
from tests.stores import copied, narrow
from tests.synthetic import CREATED_MS, Made, MadeTopic, make_store
from tests.transcript.test_printed_commands import previewing

ROOT = Path(__file__).resolve().parent.parent
PLAIN = "public/default/plain"
_GENERIC = ("examples", "elsewhere", "output", "help")
"""Keywords whose texts are examples for everybody."""
_VALUES = {
    **dict.fromkeys(("--code", "--explain"), "ledger-missing"),
    "-s": "half",
    "-p": "3",
    "-mlp": "public/default/persistent/plain",
    "-cm": "9:3",
    "-l": "9",
    "-e": "0",
    "-m": "9:3",
    "-c": "maxTenants",
    "-t": "1h",
    "-n": "1",
    "-f": "schema.json",
    "--max-topics-per-namespace": "3",
    "--at": "-1m",
    "--now": "2026-11-21T10:00:00Z",
    "--time": "1795252992639",
    "--code": "ledgers-gone",
    "--only": "topics",
    "--names": "names.csv",
    "--directory": "out",
    "--forecast": "1h",
    "--clusters": "standalone",
    "--cluster": "standalone",
    "--pattern": "public/*",
    "--key-prefix": "a",
    "transactions -m": "0",
    "transactions -r": "16",
}
_BY_GROUP = {
    "ledgers": "9",
    "tenants": "acme",
    "namespaces": "public/default",
    "clusters": "standalone",
    "transactions": "0",
    "store undo": "1",
    "apply": "plan.json",
    "logs": "standalone/bookkeeper/current/0.log",
}
_BY_PLACEHOLDER = {
    "ID=DIR": "standalone/bookkeeper/current",
    "ID=DIR,DIR": "standalone/bookkeeper/current",
    "TENANT/NAMESPACE": "public/default",
    "PATH": "/admin",
    "HOST:PORT": "localhost:1",
    "NAMESPACE": "public/default",
}
_NO_COMMANDS = {
    "pulsar-admin incident bundle": "the name of a format",
    "pulsar-admin --store NEW store import cluster": "the words that the parts of a cluster follow",
}
_WHOLE = {"_words(facts)": f"{PLAIN} -s half"}
"""What stands for several words."""


# -- all that are in the sources --------------------------------------------------------------------------------------


def text_of(node: ast.AST) -> str | None:
    """The text of a literal, with ``{}`` for what is filled in; None for anything else."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        return "".join(
            str(part.value) if isinstance(part, ast.Constant) else _WHOLE.get(ast.unparse(part.value), "{}")  # type: ignore[attr-defined]
            for part in node.values
        )
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        sides = [text_of(node.left), text_of(node.right)]
        return None if sides == [None, None] else "".join("{}" if side is None else side for side in sides)
    return None


def literals(file: Path) -> Iterator[tuple[int, str]]:
    """Yield (line, text) of the literals of a module that may name a command, docstrings and examples left out."""
    source = file.read_text()
    if PROGRAM not in source:
        return
    tree = ast.parse(source)
    done = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    generic = [node.value for node in ast.walk(tree) if isinstance(node, ast.keyword) and node.arg in _GENERIC]
    for node in ast.walk(tree):
        if isinstance(node, ast.Dict):
            generic += [
                value
                for key, value in zip(node.keys, node.values, strict=True)
                if isinstance(key, ast.Constant) and key.value in _GENERIC
            ]
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_EXAMPLE":
            generic.append(node.value)
    done |= {id(inner) for node in generic for inner in ast.walk(node)}
    for node in ast.walk(tree):
        if id(node) not in done and (text := text_of(node)) is not None:
            done |= {id(inner) for inner in ast.walk(node)}
            yield getattr(node, "lineno", 0), text


def filled(command: str) -> list[str]:
    """The words of a command with a value for each that is to be filled in."""
    words = words_of(re.sub(r"\{\w*\}", "{}", command.replace("{ledgerId}", _BY_GROUP["ledgers"])))
    group = next((key for key in (" ".join(words[:2]), words[0]) if key in _BY_GROUP), "")
    usual = _BY_GROUP.get(group, PLAIN)
    found = []
    for before, word in zip(["", *words], words, strict=False):
        if "{}" in word:
            word = word.replace("{}", _VALUES.get(f"{words[0]} {before}") or _VALUES.get(before, usual))
        elif is_placeholder(word):
            word = _VALUES.get(before) or _BY_PLACEHOLDER.get(word, PLAIN if word == "TOPIC" else "DIR")
        found.append(word)
    return found


@cache
def commands_of_the_sources() -> dict[str, str]:
    """Every command of a literal, and where it stands."""
    return {
        command: f"{file.relative_to(ROOT)}:{line}"
        for package in ("store", "pulsar_admin", "commands")
        for file in sorted((ROOT / package).rglob("*.py"))
        for line, text in literals(file)
        for command in commands_in(text)
        if command not in _NO_COMMANDS
    }


def test_what_the_sources_print_can_be_typed(
    demo_copy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    commands = commands_of_the_sources()
    assert len(commands) > 150
    monkeypatch.chdir(demo_copy)
    monkeypatch.setattr("pulsar_admin.store.sources.ensemble.read_client", lambda file: Client(timeout_seconds=1))
    Path("schema.json").write_text(json.dumps({"type": "STRING", "schema": "", "properties": {}}))
    for command, place in commands.items():
        shutil.rmtree("DIR", ignore_errors=True)  # that another command made
        words = previewing(filled(command))
        assert run(words) not in (2, 70), f"{place}: {words}: {capsys.readouterr().err}"


@pytest.fixture
def cli(whole_cli: Cli) -> Cli:
    return whole_cli


# -- what they carry --------------------------------------------------------------------------------------------------


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store whose path a shell would take apart."""
    path = tmp_path / "a store; of two"
    shutil.copytree(copied("small", "clean", tmp_path), path)
    return path


def test_undo_undoes_in_the_store_that_was_changed(
    store: Path, tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen: ``undo: pulsar-admin store undo 1`` undid a change of the store that lay in the working directory."""
    here = copied("small", "clean", tmp_path / "here")
    assert here.name == "pulsar-store"
    monkeypatch.chdir(here.parent)
    assert cli("topics", "skip", PLAIN, "-s", "holes", "-n", "2").exit_code == 0
    done = cli("--store", os.path.relpath(store), "topics", "skip", PLAIN, "-s", "half", "-n", "3", "-o", "json")
    assert done.json["undo"] == f"pulsar-admin --store {shell_word(store)} store undo 1"
    undone = cli(*words_of(done.json["undo"]), "-o", "json")
    assert undone.json["subscription"] == "half"
    assert cli("store", "log", "-o", "json").json[0]["undoneBy"] is None


def test_everywhere_it_is_said(store: Path, cli: Cli, tmp_path: Path) -> None:
    """In hints, warnings, notes, JSON, tables, CSV, the text of doctor, why and overview, and behind a copy button."""
    given = ["--tz", "Europe/Berlin", "--now", "2026-11-21T12:00:00Z", "--store", str(store)]
    options = f"--store {shell_word(store)} --now 2026-11-21T12:00:00Z --tz Europe/Berlin"
    page = tmp_path / "page.html"
    texts = [
        cli(*given, "topics", "stats", "a/b/c").stderr,
        cli(*given, "topics", "stats", "a/b/c", "-o", "json").error["hint"],
        cli("topics", "stats", "a/b/c", *given).stderr,
        cli(*given, "doctor", "--html", page).stdout,
        cli(*given, "doctor", "-o", "csv").stdout,
        cli(*given, "doctor", "-o", "table").stdout,
        cli(*given, "doctor", "-o", "json").stdout,
        cli(*given, "overview").stdout,
        cli(*given, "topics", "why", PLAIN, "-s", "half").stdout,
        cli(*given, "topics", "why", PLAIN, "-s", "half", "-o", "json").stdout,
        cli(*given, "topics", "skip", PLAIN, "-s", "half", "-n", "1").stderr,
        cli(*given, "store", "log", "-o", "json").stdout,
        page.read_text().replace("&#39;", "'").replace("&#x27;", "'"),
    ]
    for text in texts:
        found = re.findall(r"pulsar-admin (?=--|topics|store|ledgers|doctor)[^\n\"<]*", text.replace('\\"', '"'))
        assert found, text
        assert [one for one in found if not one.startswith(f"pulsar-admin {options} ")] == []


def test_a_store_behind_a_link(store: Path, tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """``link/..`` is where the link leads, not where it lies; a link that is named stays one."""
    (tmp_path / "far" / "below").mkdir(parents=True)
    (tmp_path / "far" / "s").symlink_to(store)
    (tmp_path / "link").symlink_to("far/below")
    (tmp_path / "newest").symlink_to(store)
    monkeypatch.chdir(tmp_path)
    for given, shown in (("link/../s", store), ("newest", tmp_path / "newest"), ("far/../newest", tmp_path / "newest")):
        hint = cli("--store", given, "topics", "stats", "a/b/c", "-o", "json").error["hint"]
        assert hint == f"list the existing tenants with: pulsar-admin --store {shell_word(shown)} tenants list"


def test_a_working_directory_that_is_gone(
    store: Path, tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert cli("--store", "../s", "topics", "list", "a/b").exit_code == 5
    assert cli("--store", store, "topics", "stats", PLAIN).exit_code == 0


@pytest.fixture
def carried() -> Iterator[None]:
    begin("pulsar-admin")
    carry({"store": "/a b", "now": "now"})
    yield
    begin("pulsar-admin")


@pytest.mark.usefixtures("carried")
def test_what_stands_already_and_what_is_no_command_stays() -> None:
    for text in (
        "make one: pulsar-admin --store NEW store import cluster --bookie DIR",
        "pulsar-admin store import standalone DIR --store NEW-STORE",
    ):
        assert typable(text).count("--store") == 1
        assert "pulsar-admin --now now " in typable(text)
    for text in (
        "pulsar-admin logs list /x; pulsar-admin completion bash",
        "see: pulsar-admin topics list --help",
        "as pulsar-admin prints it, pulsar-admin 4.0.8 does",
    ):
        assert typable(text) == text
    name, place = shell_word("a/b/it's; x --store y"), shell_word("/it's a store")
    for text, expected in (
        ("store undo 1, or a new one with --store", "--store '/a b' --now now store undo 1, or a new one with --store"),
        (f"topics stats {name}; or not", f"--store '/a b' --now now topics stats {name}; or not"),
        (f"--store {place} store undo 1", f"--now now --store {place} store undo 1"),
    ):
        assert typable(f"see: pulsar-admin {text}") == f"see: pulsar-admin {expected}"


def test_data_is_left_as_it_is(tmp_path: Path, cli: Cli) -> None:
    """The same words in a message, in a property or in a policy are none of ours."""
    text = "pulsar-admin store undo 1"
    path = make_store(tmp_path / "s", {"a/b/t": MadeTopic([[Made(CREATED_MS, payload=text.encode())]])})
    read = cli("--store", path, "topics", "read", "a/b/t", "--payload", "-o", "jsonl").json_lines
    assert base64.b64decode(read[0]["payload"]) == text.encode()
    store = copied("small", "clean", tmp_path)
    for name in ("hint", "undo"):
        cli.done("--store", store, "namespaces", "set-property", "public/default", "-k", name, "-v", text)
        assert cli("--store", store, "namespaces", "get-property", "public/default", "-k", name).stdout.strip() == text
    shown = cli("--store", store, "namespaces", "get-properties", "public/default", "-o", "json").json
    assert (shown["hint"], shown["undo"]) == (text, text)


# -- cures ------------------------------------------------------------------------------------------------------------


def test_no_cure_in_the_sources_is_a_dry_run_alone() -> None:
    """But for what is only a look: what a deleted ledger would bring back, and a file of names."""
    looks = {
        "ledgers restore --deleted {} --dry-run",
        "store recover --dry-run",
        "store recover --level C --dry-run --names FILE",
    }
    found = {command.removeprefix("pulsar-admin ") for command in commands_of_the_sources() if "--dry-run" in command}
    assert found <= looks | {"topics undelete TOPIC --dry-run", "topics undelete {} --dry-run"}

    assert [code for code, cause in RULES_BY_CODE.items() if cause.mend.endswith("--dry-run")] == []


@pytest.mark.parametrize("world", ["nometa-clean", "cluster-crashed"])
def test_what_doctor_overview_and_why_print_runs_anywhere(
    world: str, tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = copied(*world.split("-"), tmp_path)
    texts = [cli("--store", store, *words) for words in (("doctor",), ("overview",), ("store", "check"))]
    for row in cli("--store", store, "overview", "--top", "12", "-o", "json").json["backlogs"]:
        texts.append(cli("--store", store, "topics", "why", row["topic"], "-s", row["subscription"]))
    monkeypatch.chdir(tmp_path)
    found = {command for text in texts for command in printed_commands(text.stdout + "\n" + text.stderr)}
    assert len(found) > 5
    for command in found:
        words = words_of(command)
        assert words[:2] == ["--store", str(store)] or words[0] == "logs"
        if not any(map(is_placeholder, words)):
            done = cli(*previewing(words))
            assert done.exit_code != 2, (command, done.stderr)


def test_commands_with_a_blank_in_a_path_can_be_typed(cli: Cli, tmp_path: Path) -> None:
    done = SimpleNamespace(in_place=False, dry_run=False, source="/a b", target="/c d", ledgers=(), nodes=())
    (text,) = _exported_copy(done).terminal(None)  # type: ignore[arg-type, misc]
    for said in ("wrote to /c d: a plain copy\n", "mv '/a b' '/a b.before'\n", "mv '/c d' '/a b'\n"):
        assert said in text
    shutil.copytree(narrow() / "meta", tmp_path / "a b" / "backups" / "7")
    path = tmp_path / "a b"
    assert keep_hint(path).endswith(f"mv '{path}/meta' '{path}/meta.damaged' && cp -a '{path}/backups/7' '{path}/meta'")
    start = cli("--store", narrow(), "store", "clone", "x", "-o", "json", "--dry-run", "--boot-at", "/x y").json[
        "start"
    ]
    assert start == "bin/pulsar standalone --metadata-dir '/x y/metadata' --bookkeeper-dir '/x y/bookkeeper'"
