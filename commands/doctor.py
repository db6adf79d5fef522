"""``doctor``: what is wrong, the worst first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from pulsar_admin.columns import Column
from pulsar_admin.context import App
from pulsar_admin.numbers import whole
from pulsar_admin.options import command, pass_app
from store.db.files import catalogued_bytes
from store.errors import InvalidValue, StoreNotFound

_COLUMNS = (
    Column("SEVERITY", "severity"),
    Column("CODE", "code"),
    Column("WHERE", "where"),
    Column("WHAT", "message"),
)
_SEVERITIES = click.Choice(["critical", "warning", "note"])


@command(
    "doctor",
    examples=[
        "pulsar-admin doctor --severity critical --severity note",
        "pulsar-admin doctor --severity note -o json",
        "pulsar-admin doctor --explain ledger-missing",
    ],
    elsewhere=["pulsar-admin doctor", "pulsar-admin doctor --deep --each 100"],
    output="One row per finding: severity, code, where and what; with -o json also the evidence, what is at stake, what a broker "
    "will do and the command that mends. Exit code 1 when any is critical or a warning.",
    errors=[StoreNotFound, InvalidValue],
    uses=["spark"],
)
@click.option("--severity", "severities", type=_SEVERITIES, multiple=True, help="Only of this severity; repeatable.")
@click.option("--code", "codes", metavar="CODE", multiple=True, help="Only of this code; repeatable.")
@click.option(
    "--each",
    type=whole(1),
    default=10,
    show_default=True,
    help="Findings of one code that are shown; the rest is summed up.",
)
@click.option("--deep", is_flag=True, help="Read every byte, too: all checksums, index and metadata against the data.")
@click.option(
    "--explain", metavar="CODE", help="Say what a code means, what a broker does, and how to mend and prevent it."
)
@pass_app
def doctor(
    app: App, severities: tuple[str, ...], codes: tuple[str, ...], each: int, deep: bool, explain: str | None
) -> None:
    """Find what is wrong with a store and with what Pulsar left in it, the worst first.

    It only reads. `critical`: data is lost or cannot be served. `warning`: it will be, or something is wrong that nobody sees yet.
    `note`: worth knowing.
    """
    from store.doctor import DoctorOptions
    from store.doctor.explaining import check_codes, explanation

    if explain is not None:
        app.emit(explanation(explain), plain=_render)
        return
    app.emit_rows(_diagnoses(app, DoctorOptions(deep, each, check_codes(codes), severities)), _COLUMNS)


def _diagnoses(app: App, options: Any) -> Iterator[Any]:  # Any: DoctorOptions, Diagnosis
    from store.db.storeinfo import check_pages
    from store.doctor import Severity, diagnose

    check_pages(app.settings.store)  # before LMDB reads them: it dies of damage
    with app.store.read() as txn:
        total = catalogued_bytes(txn) if options.deep else 0
    with app.bulk(total) as engine, app.progress(total or None, "bytes", "doctor") as progress:
        for found in diagnose(app.store, now_ms=app.now_ms, options=options, advance=progress.advance, engine=engine):
            app.problems(found.severity is not Severity.NOTE)
            yield found


def _render(cause: Any) -> str:  # Any: Cause
    return f"{cause.text()}\n"
