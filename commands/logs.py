"""``logs list``, ``dump`` and ``verify``: one entry log, journal or bookie directory, without a store."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import click

from pulsar_admin.api.files import log_files, records_of, verdicts_of
from pulsar_admin.columns import Column
from pulsar_admin.context import App, Result
from pulsar_admin.numbers import whole
from pulsar_admin.options import command, flag
from pulsar_admin.store.errors import EntryLogCorrupt, InvalidValue, SourceChanged, SourceNotFound
from pulsar_admin.store.names import shell_word
from pulsar_admin.store.reports.log_files import OK, UNVERIFIED, LogRecord


class _PathOrUrl(click.Path):
    """The type of a path, or of a URL that pyarrow's file systems read, which stays text."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # Any: click's
        return value if isinstance(value, str) and "://" in value else super().convert(value, param, ctx)


_LIST_COLUMNS = (
    Column("FILE", lambda row: Path(row.path.partition("?")[0] if "://" in row.path else row.path).name),
    Column("KIND", "kind"),
    Column("BYTES", "size_bytes", "bytes", sums=True),
    Column("HEADER", "header"),
    Column("VERSION", "version", "id"),
    Column("SEALED", "sealed"),
    Column("LEDGERS", "ledgers", "number"),
)


@command(
    "logs list",
    examples=["standalone/bookkeeper/current"],
    output="One row per file, from its name and header. A sealed log has a ledgers map at its end.",
    errors=[SourceNotFound],
)
@click.argument("path", metavar="PATH|URL", type=_PathOrUrl())
def list_logs(app: App, path: Path | str) -> Result:
    """List the entry logs and journals of a bookie directory."""
    return Result(rows=log_files(path), columns=_LIST_COLUMNS)


_DUMP_COLUMNS = (
    Column("LEDGER", "ledger_id", "id"),
    Column("ENTRY", "entry_id", "id"),
    Column("OFFSET", "offset", "id"),
    Column("SIZE", "size_bytes", "number"),
    Column("LAC", "last_add_confirmed", "id", drop=1),
    Column("LENGTH", "length", "number", drop=2),
    Column("DIGEST", "digest_type", drop=3),
    Column("STATE", "state"),
    Column("PUBLISHED", "publish_time_ms", "time"),
)


@command(
    "logs dump",
    examples=["standalone/bookkeeper/current/0.log --ledger 9", "standalone/bookkeeper/current/1.log -o csv"],
    output="One row per record in file order, damaged bytes included. Exit code 1 when there are any.",
    errors=[SourceNotFound, SourceChanged, EntryLogCorrupt],
    uses=["spark"],
)
@click.argument("path", metavar="FILE|URL", type=_PathOrUrl())
@click.option("--ledger", type=whole(), help="Only records of this ledger (and damaged bytes).")
@flag("--no-checksums", help="Do not verify digests.")
def dump(app: App, path: Path | str, ledger: int | None, no_checksums: bool) -> Result:
    """List the records of one entry log or journal.

    STATE is `ok`, `bad` (wrong digest), `unverified`, or a description of bytes that are not a record. OFFSET is that
    of the record's size field.
    """
    if isinstance(path, Path) and path.is_dir():
        raise InvalidValue(
            f"{path} is a directory", hint=f"name one of its files: pulsar-admin logs list {shell_word(path)}"
        )
    records = records_of(app.session, path, verify=not no_checksums)
    return Result(rows=_records(app, records, ledger), columns=_DUMP_COLUMNS)


def _records(app: App, records: Iterable[LogRecord], ledger: int | None) -> Iterator[LogRecord]:
    for record in records:
        is_good = record.state in (OK, UNVERIFIED)
        app.problems(not is_good)
        if ledger is None or record.ledger_id == ledger or not is_good:
            yield record


_VERIFY_COLUMNS = (
    Column("FILE", "path"),
    Column("KIND", "kind"),
    Column("RECORDS", "records", "number"),
    Column("LEDGERS", "ledgers", "number"),
    Column("PROBLEMS", "problems", "number"),
    Column("TORN", "torn"),
    Column("MAP", "map"),
    Column("FIRST PROBLEM", lambda row: row.details[0] if row.details else ""),
)


@command(
    "logs verify",
    examples=["standalone/bookkeeper/current"],
    output="One row per file: records, ledgers, problems, and whether its ledgers map is right. Exit code 1 if "
    "there are problems.",
    errors=[SourceNotFound, SourceChanged, EntryLogCorrupt],
    uses=["spark"],
)
@click.argument("path", metavar="FILE|DIRECTORY|URL", type=_PathOrUrl())
def verify(app: App, path: Path | str) -> Result:
    """Verify whole entry logs and journals: framing, every digest, the ledgers map.

    In a directory, `.idx` files are verified too: every position in them must hold the record of that entry. A URL
    (s3://…, gs://…, hdfs://…) is an object, a prefix with logs, or a glob.
    """
    found = app.counting(verdicts_of(app.session, path), lambda verdict: verdict.problems)
    return Result(rows=found, columns=_VERIFY_COLUMNS)
