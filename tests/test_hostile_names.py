"""Names from data neither drive a terminal nor forge a line, whatever command shows them in whatever format."""

import ast
import io
import json
import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.cells import cell_len

from pulsar_admin.output import Writer
from pulsar_admin.progress import open_progress
from pulsar_admin.store.names import shell_word
from pulsar_admin.store.rules.table import RULES_BY_CODE
from pulsar_admin.visible import clean_lines, clean_text
from tests.conftest import Cli
from tests.deep import deep_but_for
from tests.hostile import CURSOR, DAMAGED, EVIL, EVIL_BYTES, FORGED, RECORDS, TOPIC, make_hostile_store
from tests.stores import imported

OURS = re.compile("\x1b\\[(?:0|1|2|1;31|33|36)m")
COLUMNS = 80
ROOT = Path(__file__).resolve().parent.parent

# What moves a cursor, changes a color, hides or turns text round, and half characters; spelled out by Unicode's tables.
SEEN_BY_NOBODY = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)

READING = (
    ("topics", "list", "public/default"),
    ("topics", "stats", TOPIC),
    ("topics", "stats-internal", TOPIC),
    ("topics", "info-internal", TOPIC),
    ("topics", "subscriptions", TOPIC),
    ("topics", "last-message-id", TOPIC),
    ("topics", "get-message-by-id", TOPIC, "-l", "10", "-e", "1", "--value"),
    ("topics", "get-message-by-id", TOPIC, "-l", "11", "-e", "0"),
    ("topics", "examine-messages", "--all-topics", "-i", "earliest"),
    ("topics", "peek-messages", TOPIC, "-s", CURSOR, "-n", "9", "--value"),
    ("topics", "read", TOPIC, "--payload", "--value"),
    ("topics", "dump", TOPIC, "--payload", "--value"),
    ("topics", "read", RECORDS),
    ("topics", "dump", RECORDS, "--value"),
    ("topics", "search", RECORDS, "--text", "red"),
    ("topics", "examine-messages", RECORDS, "-i", "latest"),
    ("topics", "read", DAMAGED),
    ("schemas", "get", RECORDS),
    ("schemas", "get", DAMAGED),
    ("topics", "get-backlog-size", TOPIC, "-m", "10:0"),
    ("topics", "analyze-backlog", TOPIC, "-s", CURSOR),
    ("topics", "find-by-time", TOPIC, "--time", "@0", "--explain"),
    ("topics", "skew", TOPIC),
    ("topics", "timeline", TOPIC),
    ("topics", "describe", TOPIC),
    ("topics", "subscriptions", TOPIC, "--table"),
    ("topics", "why", TOPIC, "-s", CURSOR),
    ("topics", "get-retention", TOPIC, "-ap"),
    ("topics", "peek-messages", TOPIC, "-s", f"no {EVIL}"),
    ("topics", "stats", f"public/default/no {EVIL}"),
    ("topics", f"no {EVIL}"),
    ("topics", "stats", TOPIC, f"--no-{EVIL}"),
    ("topics", "stats", f"{EVIL}://{EVIL}"),
    ("topics", "skip", TOPIC, "-s", CURSOR, "-n", EVIL),
    ("topics", "reset-cursor", TOPIC, "-s", CURSOR, "-m", "earliest", "--dry-run"),
    ("topics", "skip", TOPIC, "-s", CURSOR, "-n", "2", "--dry-run"),
    ("topics", "clear-backlog", TOPIC, "-s", CURSOR, "--dry-run"),
    ("topics", "unsubscribe", TOPIC, "-s", CURSOR, "--dry-run"),
    ("topics", "expire", TOPIC, "-s", CURSOR, "-t", "1", "--dry-run"),
    ("namespaces", "list", "public"),
    ("namespaces", "topics", "public/default"),
    ("store", "info"),
    ("store", "ls", "/", "-R"),
    ("store", "ls", "/managed-ledgers"),
    ("store", "cat", "/ledgers/00/0000/L0099"),
    ("store", "owner", "10", "11", "12", "99"),
    ("store", "check", "--deep"),
    ("store", "usage"),
    ("store", "log"),
    ("ledgers", "list"),
    ("ledgers", "info", "99"),
    ("ledgers", "info", "10"),
    ("ledgers", "entries", "10"),
    ("ledgers", "orphans"),
    ("ledgers", "missing"),
    ("ledgers", "verify"),
    ("compaction", "status", "--all-topics"),
    ("compaction", "verify", TOPIC),
    ("compaction", "last-id", TOPIC),
    ("delayed", "build", "--all-topics", "--dry-run"),
    ("delayed", "status", "--all-topics"),
    ("nacks", "stats"),
    ("--store", f"/nowhere {EVIL}", "store", "info"),
)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_hostile_store(tmp_path_factory.mktemp("hostile") / "store")


def _offences(text: str) -> Iterator[str]:
    found = SEEN_BY_NOBODY.search(text)
    if found:
        yield f"{found[0]!r} in {text[max(0, found.start() - 60) : found.end() + 20]!r}"
    yield from (f"a forged line: {line!r}" for line in text.split("\n") if line.lstrip(" \t|\"'").startswith(FORGED))


@deep_but_for((0, 1, 3, 4, 5), "form", ["default", "terminal", "table", "json", "csv", "plain"])
def test_no_name_leaves_its_line(form: str, hostile: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    offences = []
    shown = 0
    if form == "terminal":
        monkeypatch.setattr("_pytest.capture.CaptureIO.isatty", lambda stream: True, raising=False)
        monkeypatch.setenv("COLUMNS", str(COLUMNS))
    for command in READING:
        wanted = () if form in ("default", "terminal") else ("-o", form)
        done = cli("--store", hostile, *command, "--verbose", "--no-progress", *wanted)
        shown += FORGED in done.stdout + done.stderr
        for place, text in (("stdout", done.stdout), ("stderr", done.stderr)):
            if form == "terminal":
                text = OURS.sub("", text)
                offences += [f"{command[:3]!r} {place}: {found[0]!r}" for found in SEEN_BY_NOBODY.finditer(text)]
                wide = [line for line in text.splitlines() if cell_len(line) > COLUMNS and command[1] == "read"]
                offences += [f"{command[:3]!r}: {line!r}" for line in wide if place == "stdout"]
                continue  # cells go on in the next line
            offences += [f"{command[:3]!r} {place}: {offence}" for offence in _offences(text)]
        if form == "json" and done.stdout.strip() and command[:2] != ("topics", "dump"):
            json.loads(done.stdout)
    assert not offences, "\n".join(offences)
    assert shown > 30


def test_a_stored_schema_that_is_none_is_compatible_with_nothing(hostile: Path, cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "f").write_text(
        '{"type": "JSON", "schema": "{\\"type\\": \\"record\\", \\"name\\": \\"a\\", \\"fields\\": []}"}'
    )
    answer = cli("--store", hostile, "schemas", "upload", DAMAGED, "-f", tmp_path / "f", "--dry-run")
    answer.ends(3, "cannot be read, so that nothing is known to be compatible with it")


def test_json_keeps_every_character(hostile: Path, cli: Cli) -> None:
    rows = cli("--store", hostile, "topics", "read", TOPIC, "-o", "jsonl").json_lines
    assert {row["key"] for row in rows} == {f"key {EVIL_BYTES}"}
    assert {row["producer"] for row in rows} == {f"producer {EVIL_BYTES}"}
    assert {row["topic"] for row in rows} == {f"persistent://{TOPIC}"}


def test_colors_stay_and_names_do_not_color(hostile: Path, cli: Cli) -> None:
    """Bold headers and the colors of what is lost, late or worth knowing are ours; everything else with an escape sequence is not."""
    text = cli("--store", hostile, "ledgers", "list", "--color", "always").stdout
    ours = OURS.sub("", text)
    assert "\x1b[1m" in text
    assert not list(_offences(ours))


def test_progress_shows_no_name_raw(capsys: pytest.CaptureFixture[str]) -> None:
    with open_progress("json", 1, "bytes", f"scan {EVIL}", int):
        pass
    assert not list(_offences(capsys.readouterr().err))


def test_question_shows_no_name_raw(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from pulsar_admin import confirm

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr("sys.stdin", Terminal("y\n"))
    shown = Terminal()
    monkeypatch.setattr("sys.stderr", shown)
    confirm.confirm_loss(f"everything of {EVIL}", yes=False)
    assert not list(_offences(shown.getvalue()))
    assert "cannot be undone: everything of x\\x1b[2J" in shown.getvalue()


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("plain äöü 日本 🎈", "plain äöü 日本 🎈"),
        ("a\nb\tc", "a\\nb\\tc"),
        ("\x1b[31m", "\\x1b[31m"),
        ("\u202eabc", "\\u202eabc"),
        ("\U000e0041", "\\U000e0041"),
        ("\ud800", "\\ud800"),
    ],
)
def test_one_name(text: str, seen: str) -> None:
    assert clean_text(text) == seen
    assert clean_text(seen) == seen


def test_the_net_keeps_layout_and_json() -> None:
    assert clean_lines("a\n\tb é\r\x1b") == "a\n\tb é\\u000d\\u001b"
    hidden = "\x7f\x9b\u202e\ufeff\U000e0041"
    assert json.loads(clean_lines(json.dumps(hidden, ensure_ascii=False))) == hidden
    stream = io.StringIO()
    Writer(stream).write("\x1b[2J")
    assert stream.getvalue() == "\\u001b[2J"


def test_nothing_writes_to_the_terminal_beside_it() -> None:
    """Only ``pulsar_admin.visible`` prints, and only ``Writer`` has stdout."""
    allowed = {"pulsar_admin/visible.py", "store/proto/generate.py"}
    for package in ("pulsar_admin", "commands", "store"):
        for path in (ROOT / package).rglob("*.py"):
            name, source = str(path.relative_to(ROOT)), path.read_text()
            if name in allowed or not re.search(r"\bprint\(|std(err|out)\.write", source):
                continue
            for node in ast.walk(ast.parse(source)):
                if isinstance(node, ast.Call):
                    called = ast.unparse(node.func)
                    assert called != "print", f"{name}:{node.lineno}"
                    assert called not in {"sys.stderr.write", "sys.stdout.write"}, f"{name}:{node.lineno}"


@pytest.mark.parametrize(
    "name",
    [
        "x;touch forged $(id) 'y'",
        "a\nb\t\\'c",
        "x'\n;exit 7;#",
        "caf\u00e9",
        "b\udcff",
        "\udc80",
        "",
        "\u202ex",
        "$'x'",
    ],
)
def test_a_shell_reads_the_name_again(name: str) -> None:
    """Whatever a shell would make of it, and though the letters that nobody sees are shown as what stands for them."""
    word = shell_word(name)
    assert word.isprintable()
    read = subprocess.run(
        ["bash", "-c", f"printf %s {word}"], env={"LC_ALL": "C.UTF-8"}, capture_output=True, check=True
    )
    assert read.stdout == os.fsencode(name)
    counted = subprocess.run(["sh", "-c", f"set -- {word}; printf %s $#"], capture_output=True, check=True)
    assert counted.stdout == b"1"  # dash reads other letters, but no second command


_NUMBERS = ("ledger_id", "ledger_path(ledger_id)", "entry_id", "number", "change", "time_ms", "txn.most", "txn.least")
_OUR_WORDS = {  # ours, or a number: none is a name from data
    ("store/doctor/diagnosing.py", "code"),
    ("store/facts/trees.py", "code"),
    ("store/tables/importing.py", "','.join(NEEDED)"),
    ("store/doctor/why.py", "min(found.ledgers)"),
    ("store/model/cursors.py", "of_topics"),
    ("store/changes/compaction.py", "named"),
    ("store/changes/topics.py", "there + added"),
    ("store/model/topics.py", "most + 1"),
    ("store/model/topics.py", "len(numbers)"),
    ("store/rules/subscriptions.py", "_words(facts)"),
    ("store/rules/subscriptions.py", "' '.join(map(str, back))"),
    ("store/rules/subscriptions.py", "format_age_ms(2 * ttl.seconds * 1000)"),
    ("store/rules/subscriptions.py", "topic.at_rank(end)"),
    ("pulsar_admin/api/topics.py", "command"),
    ("pulsar_admin/upstream_list.py", "command"),
    ("pulsar_admin/cli.py", "meant"),
    ("pulsar_admin/cli.py", "command"),
    ("store/rules/finding.py", "words"),
    ("store/rules/words.py", "place"),
    ("commands/doctor.py", "code"),
    ("pulsar_admin/options.py", "path"),
    ("pulsar_admin/options.py", "words"),
    ("pulsar_admin/schemas.py", "path"),
    ("commands/packages.py", "words"),
    ("commands/managed_ledger.py", "name"),
    ("commands/managed_ledger.py", "example"),
}


def _filled_in(node: ast.JoinedStr) -> Iterator[str]:
    """Yield what is filled into the commands of an f-string."""
    within = False
    for part in node.values:
        if isinstance(part, ast.Constant):
            text = str(part.value)
            within = (within or "pulsar-admin " in text) and not re.search(
                r"[;,):`](\s|$)| \(|\n", text.rpartition("pulsar-admin ")[2]
            )
        elif within and isinstance(part, ast.FormattedValue):
            yield ast.unparse(part.value)


def test_a_suggested_command_can_be_pasted() -> None:
    """A name from data is one word of it: topics, bookies, paths of metadata, tenants, clusters, files."""
    assert shlex.split(RULES_BY_CODE["topic-unreadable"].command({"path": "x;touch 'y'"}))[3] == "x;touch 'y'"
    for path in (path for package in ("store", "commands", "pulsar_admin") for path in (ROOT / package).rglob("*.py")):
        name, source = str(path.relative_to(ROOT)), path.read_text()
        for node in ast.walk(ast.parse(source)) if "pulsar-admin " in source else ():
            for filled in _filled_in(node) if isinstance(node, ast.JoinedStr) else ():
                assert "shell_word(" in filled or filled.endswith(_NUMBERS) or (name, filled) in _OUR_WORDS, (
                    f"{name}:{node.lineno}: {filled}"
                )


@pytest.mark.parametrize("name", ["x" * 300, "loop"])
@pytest.mark.parametrize(
    "words", ["logs verify", "logs dump", "logs list", "store import standalone", "apply", "topics load"]
)
def test_a_name_that_no_file_can_have(
    words: str, name: str, tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by hostile command lines: an error of the system about a name is the user's, no bug."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loop").symlink_to("loop")
    answer = cli("--store", imported("small", "clean"), *words.split(), name)
    assert answer.exit_code in (2, 3, 5, 6)
    assert "Traceback" not in answer.stderr


@pytest.mark.parametrize("plan", [".", "/", ".."])
def test_a_plan_needs_a_name(plan: str, store: Path, cli: Cli) -> None:
    skip = ("topics", "skip", "public/default/plain", "-s", "half", "-n", "1")
    cli("--store", store, *skip, "--plan", plan, "-o", "json").fails(3, "already-exists")


def test_an_empty_plan_option_changes_nothing(store: Path, cli: Cli) -> None:
    """``--plan "$UNSET"`` is not an order to make the change at once."""
    skip = ("topics", "skip", "public/default/plain", "-s", "half", "-n", "1")
    assert cli("--store", store, *skip, "--plan", "").exit_code == 2
    assert cli("--store", "", "store", "log").exit_code == 2
    assert cli("--store", store, "store", "log", "-o", "json").json == []
