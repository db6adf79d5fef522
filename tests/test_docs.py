"""Generated pages are fresh, every command explains itself, and the examples in help work on the demo store."""

import importlib.util
import re
import shlex
from functools import reduce
from io import StringIO
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from msgspec.structs import replace
from pygments.lexers.shell import BashSessionLexer
from pygments.token import Generic

from pulsar_admin import command_table, lookup, output
from pulsar_admin.errors import EXIT_CODES
from pulsar_admin.options import Command
from pulsar_admin.upstream_list import upstream_commands
from tests.conftest import Cli, CliResult

DOCS = Path(__file__).resolve().parent.parent / "docs"


def _generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_generate", DOCS / "generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


generate = _generator()
COMMANDS: dict[str, Command] = {
    name: context.command
    for group in [command_table.ROOT, *lookup.subgroups_of(command_table.ROOT)]
    for name, context in generate.commands_of(group)
}
EXAMPLES = [(name, example) for name, command in COMMANDS.items() for example in command.details.examples]
ELSEWHERE = [(name, example) for name, command in COMMANDS.items() for example in command.details.elsewhere]
FORMATS = ("table", "json", "jsonl", "csv", "plain")


def _changes(name: str) -> bool:
    return COMMANDS[name].changes or "dry_run" in COMMANDS[name].uses


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    """Every generated page, made now."""
    made: dict[str, str] = generate.all_pages()
    return made


def test_pages_are_fresh(pages: dict[str, str]) -> None:
    assert [name for name, text in pages.items() if (DOCS / name).read_text() != text] == [], "run make docs"


def test_the_table_lists_what_commands_declare() -> None:
    assert generate.TABLE.read_text() == generate.command_rows(), "run make docs"


def test_type_checkers_know_the_public_names() -> None:
    assert generate.STUB.read_text() == generate.public_names(), "run make docs"


def test_no_page_without_a_group(pages: dict[str, str]) -> None:
    written = {
        path.relative_to(DOCS).as_posix() for folder in ("cli", "doctor") for path in (DOCS / folder).glob("*.md")
    }
    assert written == {name for name in pages if "/" in name}


def test_no_page_has_more_than_a_hundred_commands(pages: dict[str, str]) -> None:
    sections = {
        name: re.findall("^## (.*)$", text, re.MULTILINE) for name, text in pages.items() if name.startswith("cli/")
    }
    assert max(map(len, sections.values())) <= 100
    assert set(COMMANDS) <= {section for found in sections.values() for section in found}


def test_each_option_of_a_page_has_one_anchor(pages: dict[str, str]) -> None:
    for name, text in pages.items():
        anchors = re.findall('<a id="([^"]*)">', text) + [
            line.lower().replace(" ", "-") for line in re.findall("^## (.*)$", text, re.M)
        ]
        assert len(anchors) == len(set(anchors)), name
        assert (
            name in ("doctor.md", "exit-codes.md", "compatibility.md") or name.startswith("doctor/") or len(anchors) > 5
        ), name


def test_every_error_class_is_documented(pages: dict[str, str]) -> None:
    assert all(f"| `{cls.code}` | {number} |" in pages["exit-codes.md"] for cls, number in EXIT_CODES.items())


def test_commands_explain_themselves() -> None:
    for name, command in COMMANDS.items():
        group, _, short = name.rpartition(" ")
        row = lookup.rows_of(group)[short]
        sentence = " ".join((command.help or "").split("\n\n")[0].split())
        assert (command.name, sentence) == (short, row.help), name
        assert sentence.endswith("."), name
        assert command.details.examples or command.details.elsewhere, name
        assert command.details.output, name
        assert command.details.errors, name


def test_examples_call_their_commands() -> None:
    for name, example in EXAMPLES + ELSEWHERE:
        words = shlex.split(example)
        names = {name, *(f"{name.rpartition(' ')[0]} {alias}".strip() for alias in COMMANDS[name].aliases)}
        rest = " ".join(words[1:])
        assert words[0] == "pulsar-admin", example
        assert any(f" {one} " in f" {rest} " for one in names), example


@pytest.mark.parametrize(
    ("name", "example"), [one for one in EXAMPLES if _changes(one[0])], ids=lambda value: str(value)
)
def test_example_of_a_change_works(name: str, example: str, cli: Cli, demo_copy: Path, monkeypatch: Any) -> None:
    """Those of questions run below."""
    monkeypatch.chdir(demo_copy)
    result = cli.done(*_arguments(example))
    assert not result.stderr or (name in upstream_commands() and COMMANDS[name].changes)  # whose report is on stderr


class Emitted:
    """What a command emits, written in every format by what writes it in the one that was asked for."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.texts: dict[str, StringIO] = {}
        self._is_writing = False
        for name in ("emit_document", "emit_lines", "emit_records"):
            patch.setattr(output, name, self._in_each(getattr(output, name), several=name != "emit_document"))

    def _in_each(self, emit: Any, *, several: bool) -> Any:  # Any: functions of output
        def emits(writer: output.Writer, value: Any, style: output.Style) -> None:  # Any: what a command emits
            if not self._is_writing:
                value, self._is_writing = [*value] if several else value, True
                for form in FORMATS:
                    text = self.texts.setdefault(form, StringIO())
                    emit(output.Writer(text), value, replace(style, format=form))
                self._is_writing = False
            emit(writer, value, style)

        return emits


@pytest.mark.parametrize("each", [False, pytest.param(True, marks=pytest.mark.deep)])
def test_examples_in_every_format(each: bool, cli: Cli, demo_copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first of each command, or EACH, runs once, as JSON, what changes a store dry, and leaves no other rows behind; the first
    example of what emits nothing, but writes, once a format."""
    offences, shown = [], set[str]()
    monkeypatch.chdir(demo_copy)
    data = demo_copy / "pulsar-store" / "meta" / "data.mdb"
    for name, example in EXAMPLES if each else {name: (name, example) for name, example in EXAMPLES[::-1]}.values():
        dry = ["--dry-run"] if _changes(name) else []
        rows = data.read_bytes()
        with pytest.MonkeyPatch.context() as patch:
            emitted = Emitted(patch)
            results = {"json": cli(*_arguments(example), "-o", "json", *dry, bug=True)}
        for form in FORMATS:
            if form in emitted.texts:
                results.setdefault(form, CliResult(0, emitted.texts[form].getvalue(), ""))
            elif form not in results and name not in shown:
                results[form] = cli(*_arguments(example), "-o", form, *dry, bug=True)
        shown.add(name)
        for form, result in results.items():
            if result.exit_code != 0 or (result.stderr and not dry):
                offences.append(f"{example}: {result.exit_code}: {result.stderr}")
            elif not _is_output(result, form) and not (name in upstream_commands() and not result.stdout.strip()):
                # upstream prints nothing there, too
                offences.append(f"{example}: not {form}: {result.stdout!r}")
        if data.read_bytes() != rows:
            offences.append(f"{example}: changed the store")
    assert not offences, "\n".join(offences)


def _is_output(result: CliResult, form: str) -> bool:
    """Whether there is output, and JSON where that was asked for."""
    try:
        if form == "json":
            return result.json is not None
        if form == "jsonl":
            return bool(result.json_lines)
    except ValueError:
        return False
    return bool(result.stdout.strip())


def _arguments(example: str) -> list[str]:
    """Return the arguments of an example; what stands behind a pipe is the shell's."""
    return shlex.split(example.partition(" | ")[0])[1:]


FOUNDING = (DOCS / "founding-documents.md").read_text()
SPANS = sorted(set(re.findall(r"`([^`\n]+)`", FOUNDING)))
TESTS = DOCS.parent / "tests"


def test_founding_documents_name_tests_and_files_that_exist() -> None:
    for span in SPANS:
        path, _, name = span.partition("::")
        if path.endswith(".py"):
            (file, *_) = (folder / path for folder in (TESTS, DOCS.parent) if (folder / path).is_file())
            assert not name or f"def {name}(" in file.read_text(), span


def test_founding_documents_name_commands_and_options_that_exist() -> None:
    names = {alias: name for name in COMMANDS for alias in (name, *_aliases(name))}
    groups = {name.split()[0] for name in COMMANDS}
    for words in (span.split() for span in SPANS if span.split()[0] in groups):
        name = next(" ".join(words[:end]) for end in range(len(words), 0, -1) if " ".join(words[:end]) in names)
        options = {word for option in COMMANDS[names[name]].params for word in option.opts}
        assert len(name.split()) > 1, words
        assert {word for word in words if word.startswith("-") and not word[1:2].isdigit()} <= options, words


def _aliases(name: str) -> list[str]:
    return [f"{name.rpartition(' ')[0]} {alias}".strip() for alias in COMMANDS[name].aliases]


# -- ARCHITECTURE.md and CONTRIBUTING.md ------------------------------------------------------------------------------

ROOT = DOCS.parent
FOR_DEVELOPERS = ("ARCHITECTURE.md", "CONTRIBUTING.md")
_OURS = r"(?:store|pulsar_admin|commands|tests|docs|bench)"


def _spans(page: str) -> list[str]:
    """Return what stands between backticks in PAGE, line ends as blanks; its blocks of code are passed over."""
    text = (ROOT / page).read_text()
    return [" ".join(span.split()) for span in re.findall(r"```.*?```|`([^`]+)`", text, re.DOTALL) if span]


def _is_there(name: str) -> bool:
    """Whether NAME is a module, or what a module holds: ``store.changes.plan.Plan.preview``."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        try:
            module = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError as error:
            if error.name is None or not name.startswith(error.name):
                raise
            continue
        try:
            reduce(getattr, parts[end:], module)
        except AttributeError:
            return False
        return True
    return False


@pytest.mark.parametrize("page", FOR_DEVELOPERS)
def test_pages_for_developers_name_modules_functions_and_files_that_exist(page: str) -> None:
    spans = _spans(page)
    names = {span for span in spans if re.fullmatch(rf"{_OURS}(?:\.\w+)+", span) and span != "store.json"}
    paths = {span for span in spans if re.fullmatch(rf"{_OURS}(?:/[\w.-]+)*/?", span) and "/" in span}
    links = set(re.findall(r"\]\(([^)#:]+)\)", (ROOT / page).read_text()))
    assert len(names) > 20
    assert len(paths) > 5
    assert links
    assert not {name for name in names if not _is_there(name)}
    assert not {path for path in paths | links if not (ROOT / path).exists()}


def test_contributing_names_make_targets_that_exist() -> None:
    targets = {span.split()[1] for span in _spans("CONTRIBUTING.md") if span.startswith("make ")}
    makefile = (ROOT / "Makefile").read_text()
    assert len(targets) > 5
    assert not {target for target in targets if f"\n{target}:" not in makefile}


def test_a_name_that_is_gone_is_told() -> None:
    assert _is_there("pulsar_admin.store.changes.plan.Plan.preview")
    assert not _is_there("pulsar_admin.store.changes.plan.Plan.previews")
    assert not _is_there("pulsar_admin.store.changes.no_such_module.plan")


def test_what_the_copy_button_takes_for_a_prompt_is_one() -> None:
    """Pygments also takes text such as ``host:port%20`` for a prompt: what comes after it would be copied with the commands."""
    blocks = [
        block for path in DOCS.rglob("*.md") for block in re.findall(r"```console\n(.*?)```", path.read_text(), re.S)
    ]
    lexer = BashSessionLexer()
    assert len(blocks) > 100
    for block in blocks:
        prompts = [text for kind, text in lexer.get_tokens(block) if kind is Generic.Prompt]
        assert {text.strip() for text in prompts} <= {"$"}, block
