"""``store check``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct

from pulsar_admin.columns import Column, severity_tone
from pulsar_admin.context import App, Result
from pulsar_admin.options import command, flag, max_rate
from pulsar_admin.store.errors import StoreError, StoreNotFound
from pulsar_admin.store.wording import counted
from pulsar_admin.typable import typable
from pulsar_admin.visible import clean_text, folded_text

_COLUMNS = (
    Column("SEVERITY", "severity", tone=severity_tone),
    Column("CODE", "code"),
    Column("WHERE", "where"),
    Column("WHAT", "message", "prose"),
    Column("NEXT", "hint", "prose"),
)


@command(
    "store check",
    examples=["", "--deep -o json"],
    output="One row per finding, then one with the counts of things checked. Exit code 1 if any is a problem.",
    errors=[StoreNotFound],
    uses=["spark", "tables"],
)
@flag("--deep", help="Read every byte: all checksums, index and metadata against the data.")
@max_rate
def check(app: App, deep: bool) -> Result:
    """Check the store: files, index, owners, audit log, and whether metadata, ledgers and cursors agree.

    With --tables DIR: the files of exported tables, each against its SHA-256 in tables.json.

    Read-only. Findings of severity `note` are not problems. `store index --rebuild` repairs problems in derived rows.
    """
    found = _findings(app, deep) if app.settings.tables is None else _of_tables(app)
    return Result(rows=found, columns=_COLUMNS, terminal=lambda width: _screen(found, width))


def _screen(found: Iterator[CheckRow], width: int) -> Iterator[str]:
    """Yield a paragraph per finding, and a summary of what was checked."""
    for row in found:
        if row.severity == "summary":
            yield f"{folded_text(f'{row.where}: {row.message}', width)}\n"
            continue
        yield f"{row.severity} {clean_text(row.code)}\n{folded_text(f'{row.where}: {row.message}', width, '  ')}\n"
        yield f"  {clean_text(typable(row.hint))}\n\n" if row.hint else "\n"


def _of_tables(app: App) -> Iterator[CheckRow]:
    """Check the files of exported tables against the SHA-256 and number of rows in tables.json."""
    from pulsar_admin.store.tables.catalog import ExportedTables
    from pulsar_admin.store.tables.folder import Folder
    from pulsar_admin.store.tables.parquet import check_file, check_rows

    folder = Folder.of(app.settings.tables or "")
    tables = ExportedTables(folder, app.settings.cluster)
    app.tell_incomplete_tables(tables.incomplete)
    files = bad = 0
    for part in tables.parts:
        files += 1
        try:
            check_file(folder, part)
            check_rows(folder, part)
        except StoreError as error:
            bad += 1
            yield CheckRow(
                severity="problem", code=error.code, where=part.path, message=error.message, hint=error.hint or ""
            )
    app.problems(bad)
    message = f"{counted(bad, 'problem')} in {counted(files, 'file')} of tables, every byte read"
    yield CheckRow(severity="summary", code="checked", where=folder.place, message=message)


class CheckRow(Struct, frozen=True, kw_only=True):
    """A finding, or the summary of what was checked."""

    severity: str
    code: str
    scope: str = "store"
    where: str
    message: str
    hint: str = ""
    repair: str = ""
    context: Mapping[str, object] = {}


def _findings(app: App, deep: bool) -> Iterator[CheckRow]:
    from pulsar_admin.api.store import iter_check
    from pulsar_admin.store.db.storeinfo import check_pages

    walked = check_pages(app.store_path)  # before LMDB reads them: it dies of damage
    app.store.walked = walked
    counts = {"problem": 0, "note": 0}
    with app.session.read() as txn:
        rows = {name: txn.count(name) for name in ("tree", "logs", "entries", "times", "changes")}
    for finding in iter_check(app.session, deep=deep):
        severity = "problem" if finding.is_problem else "note"
        counts[severity] += 1
        app.problems(finding.is_problem)
        yield CheckRow(
            severity=severity,
            code=finding.code,
            scope=finding.scope,
            where=finding.where,
            message=finding.message,
            hint=finding.hint,
            repair=finding.repair,
            context={**finding.evidence, "severity": finding.severity},
        )
    kinds = (("tree", "metadata node"), ("logs", "file"), ("times", "ledger"), ("changes", "change"))
    looked = ", ".join(counted(rows[name], noun) for name, noun in kinds)
    counts_text = " and ".join(counted(counts[severity], severity) for severity in counts)
    message = f"{counts_text} in {looked}" + (", every byte read" if deep else "")
    yield CheckRow(severity="summary", code="checked", where=str(app.store.path), message=message)
