"""Each finding has an example in ``docs/doctor/``, in words that the sources still have; ``recording.py`` records them."""

import json
from functools import cache
from importlib.machinery import SourceFileLoader
from types import CodeType
from typing import Any

import pytest

from pulsar_admin.store.rules.finding import Severity
from pulsar_admin.store.rules.table import RULES_BY_CODE
from tests.doctor.recording import EXAMPLES
from tests.test_architecture import MODULES, ROOT

LEAST = 7
"""Letters of a text that is taken for a part of a sentence."""


@cache
def examples() -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = json.loads(EXAMPLES.read_text())
    return found


@cache
def said() -> tuple[str, ...]:
    """The texts in the sources of ``store``, the longest first; compiled, as Python keeps them, they need not be parsed."""
    found = set[str]()
    left: list[Any] = [
        SourceFileLoader(module, str(ROOT / module)).get_code(module)
        for module in MODULES
        if module.startswith("store/")
    ]
    for constant in left:
        if isinstance(constant, CodeType):
            left.extend(constant.co_consts)
        elif isinstance(constant, tuple | frozenset):
            left.extend(constant)
        elif isinstance(constant, str):
            found.add(constant.strip())
    return tuple(sorted((text for text in found if len(text) >= LEAST), key=lambda text: (-len(text), text)))


def test_every_finding_has_an_example() -> None:
    assert examples().keys() == RULES_BY_CODE.keys()


@pytest.mark.parametrize("code", RULES_BY_CODE)
def test_it_is_in_words_that_rules_say(code: str) -> None:
    one = examples()[code]
    assert one["severity"] in [*Severity]
    left = one["message"]
    for text in said():
        left = left.replace(text, "")
    assert len(left) < 0.9 * len(one["message"]), left
