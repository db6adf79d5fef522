"""``doctor``: what is wrong, the worst first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from pulsar_admin.columns import Column, size_text
from pulsar_admin.context import App
from pulsar_admin.numbers import whole
from pulsar_admin.options import command, pass_app
from pulsar_admin.visible import clean_text
from store.errors import AlreadyExists, InvalidValue, StoreNotFound

_COLUMNS = (
    Column("SEVERITY", "severity"),
    Column("CODE", "code"),
    Column("WHERE", "where"),
    Column("WHAT", "message", "prose"),
    Column("NEXT", "mend", "prose", drop=1),
)
_SEVERITIES = click.Choice(["critical", "warning", "note"])


@command(
    "doctor",
    examples=[
        "pulsar-admin doctor --severity critical --severity note",
        "pulsar-admin doctor --severity note -o json",
        "pulsar-admin doctor --explain ledger-missing",
    ],
    elsewhere=[
        "pulsar-admin doctor",
        "pulsar-admin doctor --deep --each 100",
        "pulsar-admin doctor --html doctor.html",
    ],
    output="A paragraph per finding: severity, code, where, what, and the command that goes on from there; with -o table a row; with "
    "-o json also the evidence, what is at stake, and what a broker will do. Exit code 1 when any is critical or a warning.",
    errors=[StoreNotFound, InvalidValue, AlreadyExists],
    uses=["spark"],
)
@click.option(
    "--severity", "severities", type=_SEVERITIES, multiple=True, help="Only findings of this severity; repeatable."
)
@click.option("--code", "codes", metavar="CODE", multiple=True, help="Only findings with this code; repeatable.")
@click.option(
    "--each",
    type=whole(1),
    default=10,
    show_default=True,
    help="Findings shown per code; the rest are summed up, and so are more than these of one topic's ledgers.",
)
@click.option(
    "--deep", is_flag=True, help="Also read every byte: all checksums, and index and metadata against the data."
)
@click.option(
    "--explain", metavar="CODE", help="Explain a code: its meaning, what a broker does, how to fix and prevent it."
)
@click.option(
    "--html", type=click.Path(path_type=Path), metavar="FILE", help="Also write an HTML report to the new FILE."
)
@pass_app
def doctor(app: App, explain: str | None, html: Path | None, **asked: Any) -> None:  # Any: of Store.doctor
    """Find problems in a store and in the data that Pulsar left, the worst first.

    Read-only. `critical`: data is lost or cannot be served. `warning`: data will be lost, or there is a problem that
    nobody has noticed yet. `note`: worth knowing.
    """
    from store.doctor.explaining import check_codes, explanation

    if explain is not None:
        app.emit(explanation(explain), plain=_render)
        return
    check_codes(asked["codes"])  # a typo needs no store
    if html is not None:
        from pulsar_admin.page.writing import check_new

        check_new(html)
    found = _diagnoses(app, asked)
    _show(app, found if html is None else _put_on_page(app, list(found), html))


def _show(app: App, found: Iterable[Any]) -> None:  # Any: Diagnosis
    """Write what was FOUND as text, or, where a format or something of rows is asked for, as rows."""
    if app.settings.output is not None or app.settings.query is not None or app.settings.total:
        app.emit_rows(found, _COLUMNS)
        return
    from textwrap import wrap

    from pulsar_admin.cures import cure_lines

    head = ""
    app.writer.write(f"{app.now.text()}\n")
    for one in found:
        head = f"{one.severity} {one.code}: {one.where.removeprefix('persistent://')}"
        lines = wrap(clean_text(one.message), 76, break_long_words=False, break_on_hyphens=False)
        app.writer.write("\n".join([clean_text(head), *(f"  {line}" for line in lines)]) + "\n")
        if one.mend:
            app.writer.write("".join(f"  {clean_text(line)}\n" for line in cure_lines(one.mend)))
    if not head:
        app.writer.write("Nothing was found.\n")


def _put_on_page(app: App, found: Sequence[Any], file: Path) -> Sequence[Any]:  # Any: Diagnosis
    """Write the page with what was FOUND into FILE, and return it."""
    from pulsar_admin.page.collecting import collect_page
    from pulsar_admin.page.writing import write_page
    from store.doctor.causes import CAUSES

    titles = {code: cause.title for code, cause in CAUSES.items()}
    with app.session.reader() as reader, app.progress(None, "topics", "page") as progress:
        page = collect_page(app.store, reader, found, app.now_ms, advance=progress.advance)
    now = app.now
    size_bytes = write_page(file, replace(page, titles=titles, as_of=now.text(), made_ms=now.clock_ms))
    app.tell(f"{file}: {size_text(size_bytes)}; open it in a browser")
    return found


def _diagnoses(app: App, asked: dict[str, Any]) -> Iterator[Any]:  # Any: of Store.doctor, Diagnosis
    from pulsar_admin.api.checking import iter_doctor
    from store.db.storeinfo import check_pages
    from store.rules.cause import Severity

    if app.settings.tables is None:
        check_pages(app.settings.store)  # before LMDB reads them: it dies of damage
    for found in iter_doctor(app.session, **asked):
        app.problems(found.severity is not Severity.NOTE)
        yield found


def _render(cause: Any) -> str:  # Any: Cause
    return f"{cause.text()}\n"
