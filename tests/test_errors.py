"""Every error has a stable code of its own and an exit code, equal to the product's table."""

from __future__ import annotations

import importlib
import pkgutil
import re

import pytest

import store
from pulsar_admin.errors import EXIT_CODES, MEANINGS, OTHER_CODES, failure_of
from store.errors import InvalidValue, StoreError

# The product's numbers, by what the word in a code says.
EXPECTED = {
    "slice-failed": 1,
    "invalid-value": 2,
    "refused": 3,
    "cancelled": 3,
    "not-writable": 3,
    "already-exists": 3,
    "store-busy": 4,
    "source-busy": 4,
    "stale-plan": 4,
    "undo-conflict": 4,
    "nothing-matches": 5,
    "source-changed": 6,
    "unsupported": 7,
    "missing-component": 7,
    "encrypted-payload": 7,
    "disk-failed": 6,
    "disk-full": 8,
    "limit-exceeded": 8,
}


def _expected(code: str) -> int:
    if code.endswith("not-found"):
        return 5
    if code.endswith("corrupt"):
        return 6
    return EXPECTED[code]


def all_classes(cls: type[StoreError] = StoreError) -> list[type[StoreError]]:
    """Every class of the tree, also those declared outside ``store/errors.py``."""
    for info in pkgutil.walk_packages(store.__path__, "store."):
        if "_pb2" not in info.name:
            importlib.import_module(info.name)
    below = [found for child in cls.__subclasses__() for found in all_classes(child)]
    return [*cls.__subclasses__(), *below]


CLASSES = sorted(set(all_classes()), key=lambda cls: cls.__name__)


@pytest.mark.parametrize("cls", CLASSES)
def test_class_has_a_code_and_its_number(cls: type[StoreError]) -> None:
    assert "code" in vars(cls)
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", cls.code)
    assert EXIT_CODES[cls] == _expected(cls.code)
    assert cls.__doc__


def test_codes_are_unique() -> None:
    codes = [cls.code for cls in CLASSES] + list(OTHER_CODES)
    assert len(codes) == len(set(codes))


def test_every_number_has_a_meaning() -> None:
    assert set(MEANINGS) == {0, 1, 2, 3, 4, 5, 6, 7, 8, 70, 130}
    assert set(EXIT_CODES.values()) | {number for number, _ in OTHER_CODES.values()} <= set(MEANINGS)


def test_context_becomes_json_values() -> None:
    text = failure_of(InvalidValue("bad \u00e9", hint="h", value=b"\x00", path=None)).render_json()
    assert (
        text
        == '{"error":{"code":"invalid-value","message":"bad \u00e9","hint":"h","context":{"value":"00","path":null}}}'
    )
