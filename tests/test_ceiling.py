"""docs/ceiling.md multiplies rates: the products are computed here again, from the page's own numbers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parent.parent / "docs" / "ceiling.md").read_text()


def rows_below(heading: str) -> list[list[str]]:
    text = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in text.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def number(text: str) -> float:
    return float(text.replace(",", ""))


GIVEN = {row[0]: number(row[1]) for row in rows_below("The cluster")}


def test_records_and_entries_follow_from_the_bytes() -> None:
    size, records, entries, *_ = (value for name, value in GIVEN.items() if not name.startswith("bookies"))
    assert records == size // 1115
    assert entries == records // 2


@pytest.mark.parametrize("row", rows_below("Time"), ids=lambda row: str(row[0]))
def test_hours_are_counts_by_rates(row: list[str]) -> None:
    _, _, unit, count, rate, hours = row
    assert number(count) in {*GIVEN.values(), GIVEN["bytes in entry logs"] / 100}, unit
    assert number(hours) == pytest.approx(number(count) / number(rate) / 3600, abs=0.05)


def test_the_head_has_the_sums_of_the_tables() -> None:
    driver = sum(number(row[5]) for row in rows_below("Time") if row[1] == "driver")
    (said,) = re.findall(r"works some (\d+) hours on one core", PAGE)
    assert number(said) == pytest.approx(driver, abs=1)


def test_bytes_of_all_are_those_of_a_ledger() -> None:
    compared = 0
    for _, each, text in rows_below("Memory and disk of the driver"):
        found = re.match(r"([\d,]+) GB", text)
        if each and found:
            assert number(found[1]) * 1e9 == number(each.removesuffix(" B")) * GIVEN["ledgers, all in the metadata"]
            compared += 1
    assert compared >= 5
