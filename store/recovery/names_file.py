"""``names.csv``: the groups of ledgers and the subscriptions that were found, with names for the operator to correct.

One row a topic, and one a subscription below it. ``ledger`` says which is meant: any ledger of a topic's group, or a cursor ledger.
Rows of one name are one topic: who names groups joins them.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct

from pulsar_admin.store.errors import InvalidValue, StoreError
from pulsar_admin.store.files import create_file, read_file
from pulsar_admin.store.names import TopicName, parse_topic

TOPIC, SUBSCRIPTION = "topic", "subscription"
COLUMNS = ("kind", "ledger", "name", "of", "ledgers", "entries", "messages", "first", "last", "producers", "evidence")


class Row(Struct, frozen=True):
    """A row: what it is, the ledger that says which one, its name, and what helps to find that."""

    kind: str
    ledger: int
    name: str
    of: int | None = None
    ledgers: str = ""
    entries: int | None = None
    messages: int | None = None
    first: str = ""
    last: str = ""
    producers: str = ""
    evidence: str = ""


class GivenNames(Struct, frozen=True):
    """What the operator called them: ledger → topic, cursor ledger → subscription."""

    topics: dict[int, TopicName]
    subscriptions: dict[int, str]


def write_names(path: Path, rows: Iterable[Row]) -> None:
    """Write ROWS into the new file at PATH."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in rows:
        values = (getattr(row, name) for name in COLUMNS)
        writer.writerow(["" if value is None else value for value in values])
    with create_file(path) as file:
        file.write(text.getvalue().encode())


def read_names(path: Path) -> GivenNames:
    """Return the names in the file at PATH; raises InvalidValue with file, line and what was expected."""
    topics: dict[int, TopicName] = {}
    subscriptions: dict[int, str] = {}
    for number, row in _rows(path):
        where = f"{path}, line {number}"
        ledger, name = _ledger(row.get("ledger"), where), (row.get("name") or "").strip()
        if row.get("kind") == TOPIC and name:
            try:
                topics[ledger] = parse_topic(name)
            except StoreError as error:
                raise InvalidValue(f"{where}: {error.message}", hint=error.hint) from error
        elif row.get("kind") == SUBSCRIPTION and name:
            subscriptions[ledger] = name
        elif row.get("kind") not in (TOPIC, SUBSCRIPTION):
            raise InvalidValue(
                f"{where}: kind: expected {TOPIC} or {SUBSCRIPTION}, found {row.get('kind')!r}",
                hint="change the column name only",
            )
    return GivenNames(topics, subscriptions)


def _rows(path: Path) -> Iterable[tuple[int, dict[str, str | None]]]:
    try:
        text = read_file(path).decode("utf-8-sig")
        reader = csv.DictReader(io.StringIO(text), strict=True)
        missing = {"kind", "ledger", "name"} - {*(reader.fieldnames or ())}
        if missing:
            raise InvalidValue(
                f"{path}: expected the columns kind, ledger and name, found {', '.join(reader.fieldnames or ()) or 'none'}",
                hint="write a new one: pulsar-admin store recover --level C --dry-run --names FILE, where FILE does not exist",
            )
        return [(reader.line_num, row) for row in reader]
    except (UnicodeDecodeError, csv.Error) as error:
        raise InvalidValue(f"{path} is not CSV in UTF-8: {error}", hint="save it as CSV, in UTF-8") from error


def _ledger(text: str | None, where: str) -> int:
    if text is None or not text.strip().isascii() or not text.strip().isdigit():
        raise InvalidValue(f"{where}: ledger: expected a number, found {text!r}", hint="change the column name only")
    return int(text)
