"""The short form of ``make fuzz``: every input that was ever a finding, the corpus, and mutations of fixed seeds."""

import random
from itertools import islice

import pytest

from tests.fuzz.running import CORPUS, REGRESSIONS, Runner, inputs_of, mutated
from tests.fuzz.targets import TARGETS

FEW = {"entry-log-scan": 4, "journal-scan": 4, "message-columns": 10, "zookeeper-directory": 20, "dump-directory": 20}
"""Inputs for targets that take long for each."""
USUAL, DEEP_TIMES = 100, 50


def check(name: str, inputs: list[bytes]) -> None:
    runner = Runner(name, is_measured=False)
    for data in inputs:
        runner.run(data)
    assert not runner.found, [(key, found.what, found.data[:200]) for key, found in runner.found.items()]


@pytest.mark.parametrize("name", TARGETS)
def test_what_was_found_once(name: str) -> None:
    check(name, [b"", *inputs_of(name, REGRESSIONS), *inputs_of(name)])


@pytest.mark.parametrize("name", TARGETS)
def test_mutations(name: str) -> None:
    check(name, list(islice(mutated(name, random.Random(7), inputs_of(name)), FEW.get(name, USUAL))))


@pytest.mark.deep
@pytest.mark.parametrize("name", TARGETS)
def test_many_mutations(name: str) -> None:
    check(name, list(islice(mutated(name, random.Random(8), inputs_of(name)), DEEP_TIMES * FEW.get(name, USUAL))))


def test_every_target_has_inputs_and_every_input_a_target() -> None:
    assert {folder.name for folder in CORPUS.iterdir()} == set(TARGETS)
    assert {folder.name for folder in REGRESSIONS.iterdir()} <= set(TARGETS)
    files = [file for folder in (CORPUS, REGRESSIONS) for file in folder.rglob("*") if file.is_file()]
    assert sum(file.stat().st_size for file in files) < 2 << 20
