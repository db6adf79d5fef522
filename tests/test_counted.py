"""Counts in sentences."""

import pytest

from pulsar_admin.store.wording import counted, listed, plural
from tests.conftest import Cli
from tests.stores import imported


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((0, "problem"), "0 problems"),
        ((1, "problem"), "1 problem"),
        ((1203, "message"), "1,203 messages"),
        ((1, "entry"), "1 entry"),
        ((2, "entry"), "2 entries"),
        ((2, "batch"), "2 batches"),
        ((2, "copy"), "2 copies"),
        ((1, "entry is", "entries are"), "1 entry is"),
        ((3, "entry is", "entries are"), "3 entries are"),
    ],
)
def test_counted(arguments: tuple[int, str] | tuple[int, str, str], text: str) -> None:
    assert counted(*arguments) == text


def test_plural_is_the_word_alone() -> None:
    assert [plural(count, "is", "are") for count in (0, 1, 2)] == ["are", "is", "are"]


@pytest.mark.parametrize(
    ("items", "text"),
    [([], ""), ([7], "7"), ([7, 8], "7 and 8"), ([7, 8, 9], "7, 8 and 9"), (range(7, 15), "7, 8, 9 and 5 more")],
)
def test_listed(items: list[int], text: str) -> None:
    assert listed(items, 3) == text


def test_a_change_to_one_byte(cli: Cli) -> None:
    words = ("set-backlog-quota", "public/default", "-l", "1", "-p", "producer_exception", "--dry-run")
    shown = cli("--store", imported("small", "clean"), "namespaces", *words)
    assert "limitSize: none -> 1 byte\n" in shown.stdout + shown.stderr
