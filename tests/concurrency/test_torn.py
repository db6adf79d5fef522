"""Readers, writers, and readers that are killed, all at once on one store: no answer is of a state that there never was.

Every change moves the same subscription of three topics in one transaction, to an entry that all three have: an answer in which
they stand at different entries, or at one that no writer chose, is torn. Rebuilds and refreshes run beside them.
"""

import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import TextIO

import pytest

from pulsar_admin.cli import run
from tests.conftest import Cli
from tests.stores import copied
from tests.worlds import oracle

TOPICS = ("public/default/plain", "public/default/steady", "acme/iot/skewed")
SUBSCRIPTION = "expire-me"
ENTRIES = 150  # each of the topics has more


def positions(topic: str) -> list[tuple[int, int]]:
    rows = oracle("small")["topics"][topic]["messages"]
    return list(dict.fromkeys((row[0], row[1]) for row in rows))


def move(index: int, file: Path) -> None:
    """Write what moves all of TOPICS to their entry INDEX, for ``--from-file``."""
    rows = []
    for topic in TOPICS:
        ledger, entry = positions(topic)[index]
        rows.append({"topic": topic, "subscription": SUBSCRIPTION, "messageId": f"{ledger}:{entry}"})
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))


def code_of(out: TextIO, path: Path, *words: object) -> int:
    out.seek(0)
    out.truncate()
    with redirect_stdout(out), redirect_stderr(out):
        return run(["--store", str(path), *map(str, words), "-q", "-o", "json"])


def read(path: Path, folder: Path, until: float) -> None:
    """Ask once, then until UNTIL; each answer is a line of a file of the reader's own."""
    with (folder / f"read-{os.getpid()}").open("w") as file, (folder / f"out-{os.getpid()}").open("w+") as out:
        is_first = True
        while is_first or time.monotonic() < until:
            is_first = False
            code = code_of(out, path, "topics", "stats", *TOPICS)
            out.seek(0)
            text = out.read()
            if code == 0:
                found = [row["subscriptions"][SUBSCRIPTION]["msgBacklog"] for row in json.loads(text)]
                file.write(f"{found}\n")
            else:
                file.write(f"exit {code}: {text[-600:]!r}\n")
            file.flush()


def write(path: Path, folder: Path, seed: int, until: float) -> None:
    """Move, undo, rebuild and refresh until UNTIL; each command's exit code is a line."""
    chosen = random.Random(seed)
    with (folder / f"write-{seed}").open("w") as file, (folder / f"out-{os.getpid()}").open("w+") as out:
        while time.monotonic() < until:
            kind = chosen.choices(("move", "undo", "index", "refresh"), (6, 2, 1, 1))[0]
            wait = ("--wait", "60s") if chosen.random() < 0.7 else ()
            if kind == "move":
                index = chosen.randrange(ENTRIES)
                move(index, folder / f"rows-{seed}")
                code = code_of(out, path, "topics", "reset-cursor", "--from-file", folder / f"rows-{seed}", *wait)
            elif kind == "undo":
                code_of(out, path, "store", "log")
                out.seek(0)
                changes = json.loads(out.read())
                if not changes:
                    continue
                code = code_of(out, path, "store", "undo", changes[-1]["change"], *wait)
            else:
                code = code_of(out, path, "store", kind, *(("--rebuild",) if kind == "index" else ()), *wait)
            out.seek(0)
            waited = "waited" if wait else "at-once"
            file.write(f"{kind} {waited} {code} {out.read()[-600:]!r}\n")
            file.flush()


def fork(work: Callable[..., None], *arguments: object) -> int:
    process = os.fork()
    if process:
        return process
    code = 1
    try:
        work(*arguments)
        code = 0
    finally:
        os._exit(code)


def whole_lines(file: Path) -> list[str]:
    """The lines of FILE but one that a killed process did not end."""
    return file.read_text().split("\n")[:-1]


@pytest.mark.usefixtures(
    "damages_stores"
)  # other processes write what this one reads; it ends with the tool's own deep check
@pytest.mark.parametrize(
    ("readers", "writers", "seconds"), [(3, 2, 3), pytest.param(8, 2, 300, marks=pytest.mark.deep)]
)
def test_no_answer_is_torn(
    readers: int, writers: int, seconds: int, tmp_path: Path, cli: Cli, capsys: pytest.CaptureFixture[str]
) -> None:
    path, folder = copied("small", "clean", tmp_path), tmp_path / "said"
    folder.mkdir()
    move(0, folder / "rows")
    assert cli("--store", path, "topics", "reset-cursor", "--from-file", folder / "rows").exit_code == 0
    known = cli("--store", path, "store", "check", "--deep").exit_code
    until = time.monotonic() + seconds
    writing = [fork(write, path, folder, seed, until) for seed in range(writers)]
    reading = [fork(read, path, folder, until) for _ in range(readers)]
    chosen, killed = random.Random(1), 0
    while time.monotonic() < until:
        time.sleep(chosen.uniform(0.2, 0.6))
        victim = chosen.randrange(readers)
        os.kill(reading[victim], signal.SIGKILL)
        status = os.waitpid(reading[victim], 0)[1]
        assert status in (0, signal.SIGKILL)  # 0: its time was up just before
        killed += status == signal.SIGKILL
        reading[victim] = fork(read, path, folder, until)
    for process in (*writing, *reading):
        assert os.waitpid(process, 0)[1] == 0
    answers = Counter(line for file in folder.glob("read-*") for line in whole_lines(file))
    sizes = [len(positions(topic)) for topic in TOPICS]
    # A state: the three stand at one entry.
    states = {str([size - index for size in sizes]) for index in range(ENTRIES)}
    assert not {line: count for line, count in answers.items() if line not in states}
    said = [line.split(" ", 3) for file in folder.glob("write-*") for line in whole_lines(file)]
    codes = Counter((kind, waited, int(code)) for kind, waited, code, _ in said)
    with capsys.disabled():
        print(f"\n{answers.total()} answers, {killed} readers killed, {dict(codes)}")
    assert {code for _, _, code in codes} <= {0, 4}, [row for row in said if row[2] not in ("0", "4")]
    assert {code for kind, waited, code in codes if waited == "waited" and kind != "undo"} == {0}
    assert answers.total() >= readers
    assert cli("--store", path, "store", "check", "--deep").exit_code == known
