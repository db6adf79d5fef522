"""The commands of tutorial, runbooks and night tasks say what the pages show, on the data that the pages name."""

import re
from pathlib import Path

import pytest

from tests.conftest import Cli
from tests.pages import NOW, PAGES, parts_of, prepare, replayed

PARTS = [(page, number) for page in PAGES for number in range(1, len(parts_of(page)))]


@pytest.mark.parametrize(("page", "number"), PARTS)
def test_page(page: str, number: int, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    part = parts_of(page)[number]
    prepare(part, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PULSAR_ADMIN_NOW", NOW)
    lines = []

    def run(words: list[str]) -> str:
        lines.append(words)
        result = cli(*words)
        assert result.exit_code in (0, 1), (words, result.stderr)
        return result.stdout + result.stderr

    assert replayed(part, run) == part
    assert lines


def test_a_night_task_is_two_commands_at_most_and_its_answer_holds_the_fact() -> None:
    """That the pages show what the commands answer is tested above."""
    tasks = parts_of("night-tasks.md")[1:]
    for task in tasks:
        shown = "".join(re.findall(r"^```console\n(.*?)^```$", task, re.DOTALL | re.MULTILINE))
        typed = [line for line in shown.splitlines() if line.startswith("$ pulsar-admin ")]
        facts = re.findall(r"^<!-- fact: (.*) -->$", task, re.MULTILINE)
        assert facts
        assert 1 <= len(typed) <= 2
        answers = "\n".join(line for line in shown.splitlines() if line not in typed)
        assert not [fact for fact in facts if fact not in answers], facts
    assert len(tasks) == 24


def test_every_page_runs() -> None:
    assert {page for page, _ in PARTS} == set(PAGES)
    assert not [page for page in PAGES if "$ pulsar-admin" in parts_of(page)[0]]
