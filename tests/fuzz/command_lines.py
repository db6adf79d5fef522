"""Whole command lines from the tree of commands, with every option and hostile values, run on a store: ``make fuzz-lines LINES=20000``.

A line must end with a documented exit code, and not as a bug; an error is one message without control characters; what was asked for
as JSON is JSON; and what does not change a store leaves its bytes alone. Lines run in forked children, so that one that dies or hangs
ends no others; the folder they run in is made anew where one changed it.
"""

import argparse
import io
import json
import os
import random
import re
import select
import shlex
import shutil
import signal
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import click

from pulsar_admin import command_table, lookup
from pulsar_admin.cli import CONTEXT, TableGroup, root, run
from pulsar_admin.errors import EXIT_CODES
from pulsar_admin.options import Command
from pulsar_admin.store.files import write_new_file
from tests.soundness import bytes_of_store
from tests.worlds import copy_tree, world

LINE_SECONDS = 20  # of the processor
_HANGS_AFTER_SECONDS = 120
_ENDLESS_SECONDS = 2
_STOPPED = -1
_A_CHILD = 100  # lines
_ENDLESS = {"delayed replay", "nacks plan"}
"""Commands that take as long as they are told to: these may be stopped."""
_NOT_HERE = re.compile(r"--?(spark|jobs|memory|wait)")
"""Options that start processes: a line gets them only with values that are refused."""
_SELECTING = {"all_topics", "pattern"}
"""Options that stand in place of topics: with topics a line is refused at once."""
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_NOTHING_MATCHES = 5  # is an answer, too, which stands on stdout
_CODES = {0, 1, 2, *EXIT_CODES.values()} - {70}


def _words(text: str, *more: str) -> list[str]:
    """Return the words of TEXT, and MORE that have blanks inside."""
    return [*text.split(), *more]


_NUMBERS = _words(
    "9 1 2 0 7 -1 2147483648 9223372036854775807 9223372036854775808 -9223372036854775809 1e9 1e999 nan -inf "
    "0x10 1_000 1.5 ² ٣ "
)
_TOPICS = _words(
    "public/default/plain acme/orders/parts acme/orders/parts-partition-1 acme/orders/compacted "
    "acme/delayed/reminders public/default/json persistent://public/default/steady public/default/half "
    "public/default/plain-partition-0 non-persistent://a/b/c public/default plain a/b/c/d acme/iot/skewed "
    "public/default/__change_events persistent://a//b "
)
_TIMES = _words(
    "@0 @1700000000 1s 2h 3d today now -2h @1700000000000 @-1 @99999999999999999999 +5m latest earliest "
    "9999-12-31T23:59:59Z 0001-01-01T00:00:00Z 2026-02-30T00:00:00Z 2026-03-29T02:30:00 99999999999999w -1s 0 "
    "1.5h ",
    "2h ago",
    "yesterday 09:00",
    "today 25:61",
)
_POSITIONS = _words(
    "9:1 9:-1 -1:-1 9:1:0 9:99999 earliest latest 9223372036854775807:9223372036854775807 "
    "9223372036854775808:0 9: :1 : 9:1:0:0 "
)
_SIZES = _words("1K 512M 1 0 10..20 1~5 -1 1e30G 99999999999999999999 1.5X 2..1 ")
_PATHS = _words(
    "standalone new a.plan dump file.txt standalone/bookkeeper/current pulsar-store /ledgers . .. nowhere "
    "no/such/folder empty fifo folder data.bin - standalone/metadata pulsar-store/meta/data.mdb "
    "pulsar-store/store.json /admin/policies/public/default /managed-ledgers/public/default/persistent/plain "
)
_TEXTS = [
    "half",
    "never",
    "holes",
    "reset-me",
    "public/*",
    "a=b",
    "",
    " ",
    "-",
    "--",
    "*",
    "[",
    "=",
    "a=",
    "\x1b[31mred",
    "a\nb",
    "\t",
    "\u202egnp",
    "\u200b",
    "\udcff",
    "𝕏" * 300,
    "x" * 5000,
    "%s{0}%n",
    "'\"`$(x);",
    "a-partition-" + "9" * 4300,
    "ß/İ/ſ",
    "9" * 4301,
    "null",
    "[]",
    "\ufeff",
]
_USUAL = 6
"""So many of each kind stand first and are what a user would give."""
HOSTILE = [*_NUMBERS, *_TOPICS, *_TIMES, *_POSITIONS, *_SIZES, *_PATHS, *_TEXTS]
_BY_TYPE = {
    "topic": _TOPICS,
    "namespace": ["public/default", "acme/orders", "acme/delayed", "acme", "no/where", "a/b/c"],
    "position": _POSITIONS,
    "time": _TIMES,
    "duration": _TIMES,
    "width": _TIMES,
    "start": _TIMES,
    "size": _SIZES,
    "sizes": _SIZES,
    "integer": _NUMBERS,
    "count": _NUMBERS,
    "float": _NUMBERS,
    "rate": _NUMBERS,
    "batch": _SIZES,
    "path": _PATHS,
    "file": _PATHS,
}


def commands() -> dict[str, Command]:
    """Return every command by its full name."""
    found = {}
    for group in command_table.GROUPS:
        context = click.Context(root(), info_name="pulsar-admin", **CONTEXT)
        owner = TableGroup(group)
        for name in lookup.rows_of(group):
            command = owner.get_command(context, name)
            assert isinstance(command, Command)
            found[f"{group} {name}".strip()] = command
    return found


class Line(NamedTuple):
    """A command line, and the command that it is of."""

    name: str
    words: tuple[str, ...]

    @property
    def shown(self) -> str:
        return ascii(shlex.join(self.words))


class Lines:
    """Makes lines: examples of the help with some words replaced, and options with values of the right or of any kind."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._commands = commands()
        self._examples = {
            name: [
                tuple(shlex.split(example.partition(" | ")[0].partition(" > ")[0])[1:])
                for example in (*command.details.examples, *command.details.elsewhere)
                if not _NOT_HERE.search(example)
            ]
            for name, command in self._commands.items()
        }

    def __iter__(self) -> Iterator[Line]:
        while True:
            # Each command in turn: all are met equally often.
            for name in self._commands:
                yield Line(name, tuple(self._words(name)))

    def _words(self, name: str) -> list[str]:
        source, command = self._random, self._commands[name]
        words = list(source.choice(self._examples[name])) if self._examples[name] and source.random() < 0.7 else []
        if not words:
            words = name.split()
            for param in command.params:
                if isinstance(param, click.Argument) or param.required:
                    words += self._given(param)
        start = len(name.split())
        options = [param for param in command.params if isinstance(param, click.Option)]
        own = [
            param for param in options if not param.hidden and (param.name not in _SELECTING or source.random() < 0.1)
        ]
        for _ in range(source.choice([0, 1, 1, 2, 3])):
            words[start:start] = self._given(source.choice(own if own and source.random() < 0.85 else options))
        for _ in range(source.choice([0, 0, 0, 1, 1, 2])):
            at = source.randrange(start, len(words)) if len(words) > start else None
            if at is not None and not _NOT_HERE.match(words[at - 1]):
                words[at : at + source.choice([0, 1, 1, 1])] = [source.choice(HOSTILE)]
        if name in _ENDLESS and source.random() < 0.9:
            words.append("--help")
        if source.random() < 0.3:
            words += ["-o", source.choice(["json", "jsonl", "csv", "table", "plain"])]
        if command.changes and source.random() < 0.5:
            words.append(source.choice(["--dry-run", "--yes"]))
        return words

    def _given(self, param: click.Parameter) -> list[str]:
        source = self._random
        flag = [] if isinstance(param, click.Argument) else [source.choice(param.opts)]
        if isinstance(param, click.Option) and param.is_flag:
            return [] if _NOT_HERE.match(flag[0]) else flag
        if flag and _NOT_HERE.match(flag[0]):
            return [*flag, source.choice(_TEXTS)]
        kind: Any = param.type  # Any: click's types share little
        if isinstance(kind, click.Choice) and source.random() < 0.8:
            return [*flag, str(source.choice(kind.choices))]
        pool = _BY_TYPE.get(kind.name, _TEXTS)
        pool = source.choice([pool[:_USUAL], pool[:_USUAL], pool, HOSTILE])
        count = source.choice([1, 1, 2]) if param.nargs == -1 else max(param.nargs, 1)
        return [*flag, *(source.choice(pool) for _ in range(count))]


class Ended(NamedTuple):
    """How a line ended."""

    code: int
    wrong: str


class Hang(BaseException):
    """A line that takes longer than any may; no ``except Exception`` stops it."""


class Fuzz:
    """Runs lines in a folder that has a store of the small world, and things that paths may name."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.codes: Counter[int] = Counter()
        self.stopped = 0
        self.findings: list[str] = []
        self.pristine = self.folder / "pristine"
        self.place = self.folder / "a" / "b" / "place"
        copy_tree(world("small") / "clean", self.place / "standalone")
        child = os.fork()
        if child == 0:
            self._set_up()
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        copy_tree(self.place, self.pristine)
        self._renew()

    def _set_up(self) -> NoReturn:
        """Make the store and files, in a child: threads of RocksDB, once they run, are missing in all children behind it."""
        codes = [70]
        try:
            os.chdir(self.place)
            Path("folder").mkdir()
            write_new_file(Path("empty"), b"")
            write_new_file(Path("file.txt"), b"public/default/plain half 9:1\n\xff\n")
            write_new_file(Path("data.bin"), bytes(range(256)) * 9)
            skip = "topics skip public/default/plain -s half -n 2 -q"
            dump = "topics dump public/default/json --level entries --directory dump -q"
            lines = ("store import standalone standalone -q", skip, f"{skip} --plan a.plan", dump)
            with redirect_stdout(io.StringIO()):
                codes = [run(line.split()) for line in lines]
        finally:
            os._exit(max(codes))

    def _renew(self) -> None:
        shutil.rmtree(self.folder / "a", ignore_errors=True)
        copy_tree(self.pristine, self.place)
        os.mkfifo(self.place / "fifo")
        self._as_made = self._state()

    def _state(self) -> list[tuple[str, int, int]]:
        """Names, sizes and times of all that a line may change; of the store all bytes."""
        found = [(bytes_of_store(self.place / "pulsar-store"), 0, 0)]
        for folder, names, files in os.walk(self.folder / "a"):
            names.sort()
            for name in (*names, *sorted(files)):
                if name not in ("lock.mdb", "commit.json", "lock"):
                    status = os.lstat(os.path.join(folder, name))
                    is_file = name not in names
                    found.append((os.path.join(folder, name), status.st_size * is_file, status.st_mtime_ns * is_file))
        return found

    def run(self, lines: Sequence[Line]) -> None:
        """Run LINES, some in one child, the others behind the one that it ended at in the next."""
        todo = list(lines)
        while todo:
            done = self._in_child(todo[:_A_CHILD])
            del todo[:done]

    def _in_child(self, lines: Sequence[Line]) -> int:
        """Run LINES until one kills the child or leaves something wrong; return how many were run."""
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(read)
            self._serve(lines, write)
        os.close(write)
        done = 0
        with open(read, "rb", buffering=0) as stream:
            for line in lines:
                if not select.select([stream], [], [], _HANGS_AFTER_SECONDS)[0]:
                    os.kill(child, signal.SIGKILL)
                answer = stream.readline()
                if not answer:
                    break
                done += 1
                self._count(line, Ended(*json.loads(answer)))
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if done < len(lines) and status != 0:
            self._count(lines[done], Ended(status, f"its process ended with {status}"))
            done += 1
            self._renew()
        return done

    def _count(self, line: Line, ended: Ended) -> None:
        self.codes[ended.code] += 1
        if ended.wrong == "stopped":
            self.stopped += 1
            if line.name in _ENDLESS:
                return
        if ended.wrong:
            self.findings.append(f"{ended.wrong}: {line.shown}")
            print(self.findings[-1], flush=True)

    def _serve(self, lines: Sequence[Line], write: int) -> NoReturn:
        signal.signal(signal.SIGPROF, _hang)
        signal.signal(signal.SIGALRM, _hang)
        null = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(null, number)
        try:
            for line in lines:
                os.chdir(self.place)
                ended = self._run(line)
                os.write(write, json.dumps(ended).encode() + b"\n")
                if ended.code == _STOPPED:
                    break  # modules of which half is imported would meet the next line
        except BaseException:  # noqa: BLE001 - of the harness: the parent tells
            os.write(write, json.dumps([70, traceback.format_exc()]).encode() + b"\n")
        finally:
            os._exit(0)

    def _run(self, line: Line) -> Ended:
        out, err = io.BytesIO(), io.BytesIO()
        # As the interpreter opens them: what cannot be encoded is an error on stdout alone.
        stdout = io.TextIOWrapper(out, encoding="utf-8", errors="strict", write_through=True)
        stderr = io.TextIOWrapper(err, encoding="utf-8", errors="backslashreplace", write_through=True)
        signal.setitimer(signal.ITIMER_PROF, LINE_SECONDS)
        if line.name in _ENDLESS:
            signal.setitimer(signal.ITIMER_REAL, _ENDLESS_SECONDS)
        try:
            with redirect_stdout(stdout), redirect_stderr(stderr):
                code = run(line.words)
        except Hang:
            return Ended(_STOPPED, "stopped")
        except BaseException as error:  # noqa: BLE001 - nothing may leave run()
            return Ended(70, f"{error!r} {traceback.format_exc()[-600:]}")
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.setitimer(signal.ITIMER_REAL, 0)
        state = self._state()
        wrong = self._wrong(line, code, out.getvalue(), err.getvalue().decode())
        if state != self._as_made:
            changed = sorted({name for name, _, _ in set(state) ^ set(self._as_made)})
            wrong = wrong or self._wrong_change(line, code, changed)
            self._renew()
        return Ended(code, wrong)

    def _wrong(self, line: Line, code: int, out: bytes, err: str) -> str:
        if code not in _CODES:
            return f"exit code {code}: {err[-1500:]}"
        if "Traceback" in err:
            return f"a traceback with exit code {code}: {err[-1500:]}"
        if code > 1 and code != _NOTHING_MATCHES and not re.search(r'^(error: |\{"error":|Usage: )', err, re.MULTILINE):
            return f"exit code {code} without an error: {err[-300:]!r}"
        if _CONTROL.search(err.replace("\r", "")):
            return f"control characters on stderr: {err[-600:]!r}"
        if code == 0 and line.words[-2:-1] == ("-o",) and line.words[-1] == "json" and out and not _is_help(out):
            try:
                json.loads(out)
            except ValueError:
                return f"no JSON: {out[:300]!r}"
        return ""

    def _wrong_change(self, line: Line, code: int, changed: Sequence[str]) -> str:
        command = commands()[line.name]
        is_writer = command.changes or "dry_run" in command.uses
        store = str(self.place / "pulsar-store")
        changed = [name for name in changed if "rebuild.unfinished" not in name]  # what the next rebuild goes on with
        if not is_writer or (code in (2, 3, 5) and any(name.startswith(store) for name in changed)):
            named = [name for name in changed if name.startswith(store) or not name.startswith("/")]
            if named or any(name.startswith(str(self.place / "standalone")) for name in changed):
                return f"exit code {code} and changed {changed[:6]}"
        return ""


def _is_help(out: bytes) -> bool:
    return out.startswith((b"Usage: ", b"pulsar-admin-toolkit"))


def _hang(number: int, frame: object) -> None:
    raise Hang


def fuzz(count: int, seed: int, folder: Path) -> Fuzz:
    """Run COUNT lines made of SEED in FOLDER."""
    before = Path.cwd()
    try:
        done = Fuzz(folder)
        lines = iter(Lines(seed))
        for start in range(0, count, 500):
            done.run([next(lines) for _ in range(min(500, count - start))])
            print(f"{done.codes.total():,} lines, {len(done.findings)} findings", file=sys.stderr, flush=True)
    finally:
        os.chdir(before)
    return done


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.command_lines", description=__doc__)
    parser.add_argument("--lines", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fuzz-lines-") as folder:
        done = fuzz(options.lines, options.seed, Path(folder))
    codes = ", ".join(f"{code}: {count:,}" for code, count in sorted(done.codes.items()))
    print(f"{done.codes.total():,} lines, exit codes {codes}; {done.stopped} stopped; {len(done.findings)} findings")
    return int(bool(done.findings))


if __name__ == "__main__":
    sys.exit(main())
