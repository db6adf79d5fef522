"""The command line itself: groups, global options, settings, consent, exit codes. Commands are samples."""

import json
import os
import re
import subprocess
import sys
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest
from click.shell_completion import ShellComplete

from pulsar_admin import command_table
from pulsar_admin.cli import TableGroup, root
from pulsar_admin.confirm import confirm_loss
from pulsar_admin.global_options import UPSTREAMS
from pulsar_admin.suggest import READS, suggestions, verbs_of
from pulsar_admin.upstream_list import upstream_commands
from tests.conftest import Cli
from tests.deep import deep_but_for
from tests.sample_commands import SAMPLE_TABLE

REPOSITORY = Path(__file__).resolve().parent.parent


@pytest.fixture(autouse=True)
def _samples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(command_table.GROUPS, "sample", "Samples.")
    monkeypatch.setitem(command_table.COMMANDS, "sample", SAMPLE_TABLE)


# -- help -------------------------------------------------------------------------------------------------------------


def test_help_imports_no_command_module() -> None:
    for arguments in (["--help"], ["sample", "--help"]):
        code = (
            "import sys\nfrom pulsar_admin import command_table\nfrom pulsar_admin.command_table import Row\n"
            "command_table.GROUPS['sample'] = 'Samples.'\ncommand_table.COMMANDS['sample'] = {'x': Row('no.such:module', 'Text of x.')}\n"
            f"from pulsar_admin.cli import run\nsys.exit(run({arguments!r}))"
        )
        done = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=True)
        assert "sample" in done.stdout


@pytest.mark.parametrize(
    ("command", "code"), [("apply x", 3), ("delayed build x", 2), ("store export standalone x", 3), ("store index", 2)]
)
def test_a_plan_that_is_refused_is_not_offered(cli: Cli, command: str, code: int, tmp_path: Path) -> None:
    file = tmp_path / "plan"
    result = cli(*command.split(), "--plan", file)
    assert (result.exit_code, file.exists()) == (code, False)
    assert "--dry-run" in result.stderr
    assert "changes nothing" not in result.stderr
    assert "  --plan FILE  " not in cli(*command.split(), "--help").stdout


def test_a_group_or_the_program_alone_shows_help_and_is_a_usage_error(cli: Cli) -> None:
    for words, shown in ((("sample",), "Commands:"), ((), "All commands:")):
        assert cli(*words).ends(2, shown).stdout == ""


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("documents generate", "Here it is: pulsar-admin --help\n"),
        ("topics move a/b/c d/e/f", "pulsar-admin topics copy a/b/c --from STORE --to d/e/f\n"),
        ("topics move --since 1d", "pulsar-admin topics copy TOPIC --from STORE --to NEW\n"),
        ("topics producers", "pulsar-admin topics skew TOPIC\n"),
        ("topics --color never history a/b/c", "Did you mean: pulsar-admin store history a/b/c\n"),
    ],
)
def test_a_command_that_is_not_here_is_answered_with_the_line_to_type(cli: Cli, line: str, text: str) -> None:
    assert cli(*line.split()).ends(2, text).stdout == ""


@deep_but_for(range(0, len(command_table.MEANT), 9), ("plain", "meant"), command_table.MEANT.items())
def test_a_plain_word_goes_to_the_command_that_is_meant(cli: Cli, plain: str, meant: str) -> None:
    *words, last = plain.split()
    words = [*words, "-s", "x"] if last == "-s" else [*words, last]
    _, is_sentence, line = meant.rpartition(": pulsar-admin ")
    command = re.split(r"(?<=\w) (?:--|\{)", line)[0].split()
    usage = f"Usage: pulsar-admin {' '.join(command)} " if not command[0].startswith("--") else cli(*command).stdout
    assert cli(*command, "--help").stdout.startswith(usage.split("--help")[0])
    assert is_sentence or cli(*words, "--help").stdout.startswith(usage)


@pytest.mark.parametrize(("plain", "offered"), command_table.OFFERED.items())
def test_a_word_that_may_mean_a_change_is_answered_with_the_line_and_runs_nothing(
    cli: Cli, plain: str, offered: str
) -> None:
    words = [*plain.removesuffix(" -s").split(), "a/b/c", *(["-s", "it is"] if plain.endswith(" -s") else [])]
    typed = " ".join(["a/b/c", *(["-s", "'it is'"] if plain.endswith(" -s") else [])])
    assert cli(*words).ends(2, f"Did you mean: pulsar-admin {offered} {typed}\n").stdout == ""
    assert cli(*offered.split(), "--help").stdout.startswith(f"Usage: pulsar-admin {offered} ")


@pytest.mark.parametrize("line", ["help", "help topics", "help topics why", "topics help", "topics help why"])
def test_help_is_a_word_like_others(cli: Cli, line: str) -> None:
    assert cli("help", "describe").stdout.startswith("Usage: pulsar-admin topics describe ")
    words = [word for word in line.split() if word != "help"]
    assert cli(*line.split()).stdout == cli(*words, "--help").stdout


_LEFT_SAMPLES = ("gone", "sample gone", "sample rows --gone", "--everywhere")


@pytest.mark.parametrize("name", [*_LEFT_SAMPLES, *command_table.LEFT])
def test_what_left_answers_with_the_page_that_says_what_to_use(
    cli: Cli, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for sample in _LEFT_SAMPLES:
        monkeypatch.setitem(command_table.LEFT, sample, "README.md")
    assert (REPOSITORY / command_table.LEFT[name]).is_file()
    *path, word = name.split()
    places = [path] if path or not word.startswith("-") else [[], ["sample"], ["sample", "rows"]]
    for words in ([*place, *end] for place in places for end in ([word], [word, "x"], [word, "--help"], [f"{word}=x"])):
        if word.startswith("-") or not words[-1].endswith("=x"):
            result = cli(*words)
            assert (result.exit_code, result.stdout) == (2, "")
            assert result.stderr == f"error: `{name}` left in 0.2: see {command_table.LEFT[name]}\n"
    assert f"\n  {word} " not in cli(*path, "--help").stdout
    completed = ShellComplete(root(), {}, "pulsar-admin", "").get_completions(path, word)
    assert word not in [item.value for item in completed]


def test_options_that_name_a_broker_are_ignored_with_one_note(cli: Cli) -> None:
    words = ["--admin-url", "http://localhost:8080", "--tls-allow-insecure", "--request-timeout", "9"]
    result = cli(*words, "sample", "names", "a/b")
    note = "note: --admin-url, --tls-allow-insecure, --request-timeout: ignored, no broker is asked; --store names the data"
    assert (result.exit_code, result.stderr) == (0, f"{note}\n")
    assert cli(*words, "sample", "names", "a/b", "-q").stderr == ""


def test_the_options_that_are_ignored_are_upstreams() -> None:
    upstreams = [name for option in upstream_commands()[""]["options"] for name in option["names"]]
    assert sorted(upstreams) == sorted(UPSTREAMS)


@pytest.mark.parametrize(
    "words",
    [
        *("topics unload x", "persistent lookup x", "non-persistent stats x"),
        *("functions create --tenant a", "source getstatus", "broker-stats destinations -i"),
    ],
)
def test_what_needs_a_broker_takes_upstreams_options_and_says_why(cli: Cli, words: str) -> None:
    assert cli(*words.split()).ends(7, "needs a running broker: ").stdout == ""
    assert "Needs a running broker: " in cli(*words.split()[:2], "--help").stdout
    assert cli(*words.split()[:2], "--schema").ends(7, "needs a running broker: ").stdout == ""


@pytest.mark.parametrize("option", ["--admin-url", "--tls-allow-insecure", "--tls-trust-cert-path"])
def test_options_of_a_broker_behind_a_command_are_better_left_out(cli: Cli, option: str) -> None:
    """As with upstream, whose program has them: behind a command they are unknown."""
    cli("tenants", "list", option).ends(2, "hint: leave it out: no broker is asked")


def test_unknown_command_suggests(cli: Cli) -> None:
    assert cli("persistent", "skip-all", "--help").stdout.startswith("Usage: pulsar-admin persistent skip-all ")
    cli("sample", "row").ends(2, "Did you mean: pulsar-admin sample rows\n")


@pytest.mark.parametrize(
    ("name", "known", "meant"),
    [
        ("unload", ["load", "dump"], []),
        ("get-subscribe-rate", ["unsubscribe", "get-dispatch-rate", "subscriptions"], []),
        ("get-ttl", ["set-message-ttl", "get-message-ttl"], ["get-message-ttl"]),
        ("delete-message-ttl", ["get-message-ttl", "remove-message-ttl"], ["remove-message-ttl"]),
        ("remove-messages", ["remove-message-ttl", "read"], []),
        ("set-mesage-ttl", ["get-message-ttl", "set-message-ttl"], ["set-message-ttl"]),
        ("messages", ["peek-messages", "expire-messages"], ["peek-messages"]),
        ("update-partitioned-topic", ["create-partitioned-topic"], []),
        ("lst", ["list", "last-message-id"], ["list"]),
        ("rest-cursor", ["reset-cursor"], []),
        ("topicpolicies", ["topics", "topicPolicies"], ["topicPolicies"]),
        ("resource-groups", ["resource-quotas", "resourcegroups"], ["resourcegroups"]),
        ("list-ledgers", ["ledger", "listledgers"], ["listledgers"]),
    ],
)
def test_suggestions_go_by_words_and_never_from_a_question_to_a_change(
    name: str, known: list[str], meant: list[str]
) -> None:
    assert suggestions(name, known) == meant


def test_every_change_is_known_by_its_verb() -> None:
    context = click.Context(root())
    for path, rows in command_table.COMMANDS.items():
        for name, row in rows.items() if path != "sample" else ():
            command = TableGroup(path).get_command(context, name)
            is_due = (path, name) == ("nacks", "due")  # which changes with --pop alone
            if getattr(command, "changes", False) and not is_due:
                assert not [each for each in (name, *row.aliases) if verbs_of(each) is READS], f"{path} {name}"


# -- global options ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        "--store /a -o json --now @1000 sample parse --time -1s",
        "sample --store /a -o json --now @1000 parse --time -1s",
        "sample parse --time -1s --store /a -o json --now @1000",
        "--store /other sample --store /third parse --time now-1s --store=/a --now @1000",
    ],
    ids=["before", "between", "after", "nearest-wins"],
)
def test_global_options_at_every_level(cli: Cli, words: str) -> None:
    document = cli(*words.split()).json
    assert (document["store"], document["options"]["time"]) == ("/a", 999_000)


def test_version(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.metadata

    monkeypatch.setattr(importlib.metadata, "version", lambda name: {"pulsar-admin-toolkit": "1.2.3"}[name])
    assert cli("--version").stdout == "pulsar-admin-toolkit 1.2.3\n"
    assert cli("sample", "names", "--version").stdout == "pulsar-admin-toolkit 1.2.3\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["sample", "parse", "--plan", "x"], "changes nothing"),
        (["--plan", "x", "sample", "parse"], "changes nothing"),
        (["sample", "parse", "--spark"], "no bulk work"),
        (["sample", "parse", "--spark-master", "local[2]"], "no bulk work"),
        (["-o", "yaml", "sample", "parse"], "yaml"),
        (["--tz", "Mars/Base", "sample", "parse"], "Mars/Base"),
        (["--now", "yesterdayish", "sample", "parse"], "yesterdayish"),
        (["--memory", "lots", "sample", "parse"], "lots"),
        (["--jobs", "0", "sample", "parse"], "0"),
        (["--store", "S3://key:secret@b/x", "sample", "parse"], "S3://b/x is a URL, and a path of this machine"),
        (["sample", "each", "a", "--spark", "--spark-conf", "novalue"], "key=value"),
        (["sample", "parse", "--nonsense"], "--nonsense"),
        (["sample", "parse", "-m"], "hint: see: pulsar-admin sample parse --help"),
        (["sample", "names"], "NAMESPACE"),
        (["sample", "rows"], "--all-topics"),
        (["sample", "rows", "a", "--pattern", "*"], "--pattern"),
        (["sample", "parse", "-m", "10"], "'-m' / '--messageId': invalid position '10'"),
    ],
    ids=str,
)
def test_usage_errors(cli: Cli, arguments: list[str], words: str) -> None:
    assert cli(*arguments).ends(2, words, "hint: ").stdout == ""


# -- environment and file ---------------------------------------------------------------------------------------------


def test_consent_does_not_come_from_the_environment(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PULSAR_ADMIN_YES", "1")
    assert cli("sample", "change", "-s", "w", "--lossy").exit_code == 3


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("PULSAR_ADMIN_OUTPUT", "yaml", "one of table, json"),
        ("PULSAR_ADMIN_CLOCK", "wall", "one of auto, publish"),
        ("PULSAR_ADMIN_QUIET", "maybe", "true or false"),
        ("PULSAR_ADMIN_JOBS", "many", "1 to 1024"),
    ],
)
def test_bad_environment(cli: Cli, monkeypatch: pytest.MonkeyPatch, name: str, value: str, words: str) -> None:
    monkeypatch.setenv(name, value)
    cli("sample", "parse").ends(2, words)


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [("store = [", 2, "not TOML"), ("stroe = 1", 2, "unknown stroe"), (None, 5, "cannot read")],
    ids=["broken", "unknown", "missing"],
)
def test_bad_file(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str | None, code: int, words: str
) -> None:
    if text is not None:
        (tmp_path / "c.toml").write_text(text)
    monkeypatch.setenv("PULSAR_ADMIN_CONFIG", str(tmp_path / "c.toml"))
    result = cli("sample", "parse")
    assert result.exit_code == code
    assert words in result.stderr


# -- changes ----------------------------------------------------------------------------------------------------------


def test_loss_needs_yes_without_a_terminal(cli: Cli) -> None:
    assert cli("sample", "change", "-s", "w", "--lossy").ends(3, "3 ledgers", "--yes").stdout == ""
    assert cli("sample", "change", "-s", "w", "--lossy", "-y").exit_code == 0


# -- several items, one exit code -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "code", "rows"),
    [
        (["a"], 0, 1),
        (["a", "--problems", "2"], 1, 1),
        (["missing"], 5, 0),
        (["a", "missing"], 1, 1),
        (["missing1", "missing2"], 5, 0),
        (["empty"], 5, 1),
        (["empty", "empty2"], 5, 2),
        (["a", "empty"], 1, 2),
    ],
    ids=str,
)
def test_exit_code_of_several(cli: Cli, arguments: list[str], code: int, rows: int) -> None:
    result = cli("sample", "each", *arguments, "-o", "jsonl")
    assert (result.exit_code, len(result.json_lines)) == (code, rows)


# -- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "code", "name"),
    [("interrupt", 130, "interrupted"), ("memory", 8, "out-of-memory"), ("full", 8, "disk-full"), ("bug", 70, "bug")],
)
def test_other_errors(cli: Cli, kind: str, code: int, name: str) -> None:
    result = cli("sample", "fail", kind, bug=True)
    assert result.exit_code == code
    assert ("Traceback (most recent call last)" in result.stderr) == (name == "bug")
    assert ("this is a bug in pulsar-admin-toolkit" in result.stderr) == (name == "bug")
    assert cli("sample", "fail", kind, "-o", "json", bug=True).error["code"] == name


# -- as a process -----------------------------------------------------------------------------------------------------


def _process(*arguments: str, **more: Any) -> subprocess.CompletedProcess[str]:  # Any: subprocess.run's keywords
    command = [sys.executable, "-m", "tests.sample_program", *arguments]
    return subprocess.run(command, cwd=REPOSITORY, text=True, stderr=subprocess.PIPE, check=False, **more)


def test_closed_pipe_is_quiet() -> None:
    for words in ("sample rows a -o jsonl --count 20000", "sample names a/b", "--help"):
        read, write = os.pipe()
        os.close(read)
        done = _process(*words.split(), stdout=write)
        os.close(write)
        assert (done.returncode, done.stderr) == (0, "")


def test_full_disk_under_stdout() -> None:
    with open("/dev/full", "w") as full:
        done = _process("sample", "rows", "a", "-o", "jsonl", stdout=full)
    assert done.returncode == 8
    assert json.loads(done.stderr)["error"]["code"] == "disk-full"


def test_ascii_terminal_gets_escapes() -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "LC_ALL": "C"}
    done = _process("sample", "names", "a/\u00e9", stdout=subprocess.PIPE, env=environment)
    assert done.stdout.splitlines()[0] == "persistent://a/\\xe9/a"


def test_modules_of_a_user_shadow_none_of_ours(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "__init__.py").write_text("")
    (tmp_path / "commands.py").write_text("")
    code = f"import sys; sys.path[:0] = [{str(tmp_path)!r}, {str(REPOSITORY)!r}]; from pulsar_admin.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "topics", "--help"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_numpy_starts_no_threads_for_linear_algebra() -> None:
    code = (
        "import os\nfrom pulsar_admin.config import limit_library_threads\nlimit_library_threads()\n"
        "import numpy\nprint(len(os.listdir('/proc/self/task')))"
    )
    environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, check=True, env=environment
    )
    assert done.stdout.split() == [b"1"]


_LOST = """
import ctypes, signal, sys, time
from pulsar_admin import cli

def lose(argv, program):
    def callback():
        raise KeyboardInterrupt
    ctypes.CFUNCTYPE(None)(callback)()
    try:
        time.sleep(60)
    except KeyboardInterrupt:
        return 130
    return 0

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts what runs in the background without it
cli.run = lose
cli.main([])
"""


def test_ctrl_c_where_no_exception_can_be_raised_comes_again() -> None:
    done = subprocess.run([sys.executable, "-c", _LOST], cwd=REPOSITORY, capture_output=True, text=True, timeout=50)
    assert (done.returncode, done.stderr) == (130, "")


# -- one option, one zone, one interrupt ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "alternatives", "said"),
    [
        ("bookkeeper listbookies", "-readwrite|-readonly|-a", "One and only one of -readwrite"),
        (
            "topics reset-cursor -s half",
            "public/default/plain|--all-topics|--pattern *|--from-file rows",
            "name topics, or",
        ),
        (
            "topics reset-cursor public/default/plain -s half",
            "-t 3h|--shift-by 1|--to-subscription never|--as-of 1:1",
            "only one of --time",
        ),
        ("topics stats", "public/default/plain|--all-topics|--pattern *", "name topics, or"),
        ("ledgers restore", "--deleted|--extend|--to-bookies", "or one of --deleted"),
        ("nacks add public/default/plain -s half --delay 60s", "8:1|--from-file rows|--holes", "name positions, or"),
        ("store preflight", "--zookeeper zk|--metadata metadata|--no-metadata", "name one of --zookeeper"),
    ],
)
def test_of_several_alternatives_no_two_are_taken(
    cli: Cli, demo_store: Path, command: str, alternatives: str, said: str
) -> None:
    given = alternatives.split("|")
    for count in range(2, len(given) + 1):
        for chosen in combinations(given, count):
            result = cli("--store", demo_store, *command.split(), *(word for one in chosen for word in one.split()))
            assert (result.exit_code, said in result.stderr) == (2, True), (chosen, result.stderr)


def test_two_names_of_one_option_are_not_both_taken(cli: Cli, demo_store: Path) -> None:
    words = ("delayed", "due", "acme/delayed/reminders", "--until", "2026-11-22T00:00:00Z")
    result = cli("--store", demo_store, *words, "--end-time", "2026-11-23T00:00:00Z")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "--end-time and --until are one option" in result.stderr
    assert cli("--store", demo_store, *words, "-s", "workers").exit_code == 0


@pytest.mark.parametrize(("zone", "meant"), [("UTC+2", "+02:00"), ("GMT-5:30", "-05:30"), ("utc+0530", "+05:30")])
def test_a_zone_with_an_offset_is_suggested_as_the_offset(cli: Cli, demo_store: Path, zone: str, meant: str) -> None:
    cli("--store", demo_store, "topics", "list", "public/default", "--tz", zone).ends(2, f"hint: did you mean {meant}?")


def test_an_interrupt_while_modules_are_imported_leaves_no_traceback() -> None:
    code = (
        "import sys\n"
        "class Stop:\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name == 'pulsar_admin.cli': raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Stop())\n"
        "from pulsar_admin.__main__ import main\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "error: interrupted\n")


def test_the_installed_program_is_the_one_that_may_be_interrupted_early() -> None:
    import tomllib

    scripts = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["scripts"]
    assert set(scripts.values()) == {"pulsar_admin.__main__:main"}


def test_the_end_of_the_input_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True, readline=str))
    monkeypatch.setattr(sys, "stderr", SimpleNamespace(isatty=lambda: True, write=len, flush=int))
    with pytest.raises(KeyboardInterrupt):
        confirm_loss("a ledger", yes=False)
