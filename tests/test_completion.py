"""Completion: what it answers, and what bash, zsh and fish make of it where they are installed (bash always is)."""

import os
import pty
import select
import shutil
import sys
import time
from pathlib import Path

import pytest

from pulsar_admin.store.codec.rocksvalue import NodeStat
from pulsar_admin.store.db.tree import Node, put_nodes
from pulsar_admin.store.names import parse_topic
from tests.conftest import Cli
from tests.stores import copied, write_rows

PROGRAM = Path(sys.executable).parent
BREAKS = " \t\n\"'><=;|&(:"
SECONDS = 60


def _asked(cli: Cli, monkeypatch: pytest.MonkeyPatch, line: str, shell: str = "fish") -> list[str]:
    monkeypatch.setenv("_PULSAR_ADMIN_COMPLETE", f"{shell}_complete")
    monkeypatch.setenv("COMP_LINE", line)
    monkeypatch.setenv("COMP_WORDBREAKS", BREAKS)
    result = cli()
    assert (result.exit_code, result.stderr) == (0, "")
    return [row.split("\t")[1] for row in result.stdout.splitlines()]


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store with names that shells split, and that alone would be too many."""
    path = copied("small", "clean", tmp_path)
    names = ["public/default/a b,c", "public/default/d:e", *(f"public/many/t{number:05}" for number in range(6_000))]
    nodes = [Node(parse_topic(name).path, NodeStat(0, 0, 0, 0, False), b"") for name in names]
    write_rows(path, lambda txn: put_nodes(txn, nodes))
    monkeypatch.setenv("PULSAR_ADMIN_STORE", str(path))
    return path


def test_many_names_are_cut_off(cli: Cli, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(_asked(cli, monkeypatch, "pulsar-admin topics stats-internal public/many/")) == 1_000
    assert len(_asked(cli, monkeypatch, "pulsar-admin topics stats-internal public/many/t0599")) == 10


def test_bash_gets_what_comes_behind_its_own_breaks(cli: Cli, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = "pulsar-admin topics stats-internal persistent://public/default/pl"
    assert _asked(cli, monkeypatch, line, "bash") == ["//public/default/plain"]
    assert _asked(cli, monkeypatch, line, "zsh") == ["persistent://public/default/plain"]
    spaced = "pulsar-admin topics stats-internal public/default/a"
    assert "public/default/a\\ b,c" in _asked(cli, monkeypatch, spaced, "bash")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_is_the_one_that_the_command_prints(cli: Cli, monkeypatch: pytest.MonkeyPatch, shell: str) -> None:
    printed = cli("completion", shell).stdout
    monkeypatch.setenv("_PULSAR_ADMIN_COMPLETE", f"{shell}_source")
    assert cli().stdout == printed
    assert f"_PULSAR_ADMIN_COMPLETE={shell}_complete" in printed


# -- in the shells ----------------------------------------------------------------------------------------------------

SHELLS = {
    "bash": (["bash", "--norc", "--noprofile", "-i"], 'eval "$(pulsar-admin completion bash)"'),
    "zsh": (["zsh", "-f", "-i"], 'autoload -U compinit; compinit -u -D; eval "$(pulsar-admin completion zsh)"'),
    "fish": (["fish", "--no-config", "-i"], "pulsar-admin completion fish | source"),
}
INSTALLED = [shell for shell in SHELLS if shutil.which(shell)]
TYPED = (
    ("topics stats-int\tX", "topics stats-internal X"),
    ("topics stats-internal acme/ord\tpar\tX", "topics stats-internal acme/orders/parts X"),
    ("topics stats-internal public/default/pla\tX", "topics stats-internal public/default/plain X"),
    (
        "topics stats-internal persistent://public/default/pla\tX",
        "topics stats-internal persistent://public/default/plain X",
    ),
    ("topics stats-internal public/default/d\tX", "topics stats-internal public/default/d:e X"),
    ("topics peek-messages public/default/plain -s ha\tX", "topics peek-messages public/default/plain -s half X"),
    ("ledgers info 17\x7f\x7f174\tX", "ledgers info 174 X"),
    ("completion zs\tX", "completion zsh X"),
)
"""What is typed, and the words of the line then: X stands apart behind a word that is complete."""


class _Terminal:
    """A shell on a terminal of its own."""

    def __init__(self, shell: str, home: Path) -> None:
        words, setup = SHELLS[shell]
        path = f"{PROGRAM}{os.pathsep}{os.environ['PATH']}"
        kept = {"PULSAR_ADMIN_STORE": os.environ["PULSAR_ADMIN_STORE"], "PATH": path, "HOME": str(home), "TERM": "dumb"}
        self._child, self._terminal = pty.fork()
        if self._child == 0:
            os.execvpe(words[0], words, {**kept, "LC_ALL": "C.UTF-8", "PS1": "> "})
        self._said = b""
        self.type(f"{setup}\n")
        self.type("echo re''ady\n")
        self.wait_for("\nready")

    def type(self, keys: str) -> None:
        os.write(self._terminal, keys.encode())

    def wait_for(self, text: str) -> str:
        """Return what the shell wrote up to now, once TEXT is in it."""
        end = time.monotonic() + SECONDS
        while text.encode() not in self._said.replace(b"\r", b""):
            left = end - time.monotonic()
            assert left > 0, self._said.decode(errors="replace")
            if select.select([self._terminal], [], [], left)[0]:
                self._said += os.read(self._terminal, 65536)
        said, self._said = self._said.decode(errors="replace"), b""
        return said

    def close(self) -> None:
        os.close(self._terminal)
        os.kill(self._child, 9)
        os.waitpid(self._child, 0)


@pytest.mark.parametrize("shell", INSTALLED)
def test_a_tab_completes_in_the_real_shell(shell: str, store: Path, tmp_path: Path) -> None:
    terminal = _Terminal(shell, tmp_path)
    try:
        for number, (typed, words) in enumerate(TYPED):
            # Ctrl-A, and a command in front that prints the words of the line as the shell reads them.
            terminal.type(f"pulsar-admin {typed}\x01printf '<%s>' {number} \n")
            terminal.wait_for("".join(f"<{word}>" for word in (str(number), "pulsar-admin", *words.split())))
        terminal.type("pulsar-admin topics stats-internal public/default/a\\ \tX\x01printf '<%s>' \n")
        terminal.wait_for("<public/default/a b,c><X>")
    finally:
        terminal.close()
