"""``doctor``: findings, the worst first."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click
from msgspec.structs import replace

from pulsar_admin.columns import Column, size_text
from pulsar_admin.context import App, Result
from pulsar_admin.numbers import whole
from pulsar_admin.options import choice_option, command, flag
from pulsar_admin.store.errors import AlreadyExists, InvalidValue, StoreNotFound
from pulsar_admin.store.wording import counted
from pulsar_admin.typable import typable
from pulsar_admin.visible import clean_text, folded_text

_COLUMNS = (
    Column("SEVERITY", "severity"),
    Column("CODE", "code"),
    Column("WHERE", "where"),
    Column("WHAT", "message", "prose"),
    Column("NEXT", "mend", "prose", drop=1),
)
_CHANGE_COLUMNS = (Column("CHANGE", "change"), *_COLUMNS)
_OF_CODE = 3
"""Findings of a code that a terminal shows."""
_SEVERITIES = click.Choice(["critical", "warning", "note"])


@command(
    "doctor",
    examples=["--severity critical --severity note", "--severity note -o json", "--explain ledger-missing"],
    elsewhere=[
        "",
        "--deep --each 100",
        "--html doctor.html",
        "--since yesterday.json --fail-on new",
        "--since /copies/last-week",
    ],
    output="One paragraph per finding: severity, code, place, sentence and next command; with -o table a row; with -o "
    "json also the evidence, the possible loss, and what a broker will do. With --since each names its change: new, "
    "worse, not-seen (its files cannot be read now) or gone; with -o json also its earlier state. Exit code 1 when "
    "any is critical or a warning; --fail-on sets another limit.",
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
@flag("--deep", help="Also read every byte: all checksums, and index and metadata against the data.")
@click.option(
    "--explain", metavar="CODE", help="Explain a code: its meaning, what a broker does, how to fix and prevent it."
)
@click.option(
    "--since",
    type=click.Path(path_type=Path),
    metavar="STORE|FILE",
    help="Only what changed since STORE, an earlier copy, or FILE, which doctor -o json wrote.",
)
@choice_option(
    "--fail-on",
    words=["critical", "warning", "new"],
    default="warning",
    help="What exits with 1: a critical, also a warning, or only one of these that is new or worse (needs --since).",
)
@click.option(
    "--html", type=click.Path(path_type=Path), metavar="FILE", help="Also write an HTML report to the new FILE."
)
def doctor(
    app: App,
    explain: str | None,
    html: Path | None,
    since: Path | None,
    fail_on: str,
    **asked: Any,  # Any: of Store.doctor
) -> Result:
    """Find problems in a store and in the data that Pulsar left, the worst first.

    Read-only. `critical`: data is lost or cannot be served. `warning`: data will be lost, or there is a problem that
    nobody has noticed yet. `note`: worth knowing.
    """
    from pulsar_admin.store.rules.table import check_codes, explanation

    if explain is not None:
        rule = explanation(explain)
        return Result(lambda: rule, screen=lambda _: [f"{rule.text()}\n"])
    if since is None and fail_on == "new":
        raise click.UsageError("--fail-on new needs --since STORE|FILE: new since when?")
    if since is not None and html is not None:
        raise click.UsageError("--html shows all findings, and --since only changes: give one of them")
    check_codes(asked["codes"])  # a typo needs no store
    if since is not None:
        return _changes(app, since, fail_on, asked)
    if html is not None:
        from pulsar_admin.page.rendering import check_new

        check_new(html)
    findings = _diagnoses(app, fail_on, asked)
    nothing = f"Nothing{' of this kind' * bool(asked['codes'] or asked['severities'])} was found.\n"
    if html is None:
        return _result(app, findings, nothing=nothing, pages=app.in_terminal)
    listed = list(findings)
    note = _put_on_page(app, listed, html)
    return replace(_result(app, listed, nothing=nothing), notes=[note])


def _changes(app: App, since: Path, fail_on: str, asked: dict[str, Any]) -> Result:  # Any: of Store.doctor
    """Return the findings that are new, gone or different since the earlier answer in the file ``since``."""
    from pulsar_admin.store.doctor.since import ChangeSince

    _check_pages(app)
    compared = app.api.compare_findings(since, **asked)
    failing = compared.found
    if fail_on == "new":
        failing = tuple(one for one in compared.changes if one.change in (ChangeSince.NEW, ChangeSince.WORSE))
    app.problems(sum(_fails(one, fail_on) for one in failing))
    return _result(app, compared.changes, f"compared with {since}: {compared.counts()}", pages=app.in_terminal)


def _result(
    app: App,
    found: Iterable[Any],  # Any: Finding
    compared: str = "",
    nothing: str = "",
    *,
    pages: bool = False,
) -> Result:
    columns = _CHANGE_COLUMNS if compared else _COLUMNS
    if pages:
        app.page()
    return Result(
        rows=found,
        columns=columns,
        screen=lambda _: _screen(app, found, compared, nothing),
        texts=(None,),
        terminal=None if compared else lambda width: _by_code(app, found, nothing, width),
    )


def _by_code(app: App, found: Iterable[Any], nothing: str, width: int) -> Iterator[str]:  # Any: Finding
    """Yield a paragraph per code, the worst first, and at the end the number of findings of each severity."""
    from pulsar_admin.cures import cure_lines

    shown: dict[tuple[str, str], list[Any]] = {}  # Any: Finding
    counts: Counter[tuple[str, str]] = Counter()
    for one in found:
        key = str(one.severity), one.code
        counts[key] += 1
        if counts[key] <= _OF_CODE:
            shown.setdefault(key, []).append(one)
    for (severity, code), several in shown.items():
        yield f"{severity} {code}\n"
        for one in several:
            text = f"{one.where.removeprefix('persistent://')}: {typable(one.message)}"
            yield f"{folded_text(text, width, '  ')}\n"
        if more := counts[severity, code] - len(several):
            yield typable(f"  and {more:,} more: pulsar-admin doctor --code {code}\n")
        if several[0].mend:
            yield "".join(f"  {clean_text(line)}\n" for line in cure_lines(several[0].mend))
        yield "\n"
    severities = {severity: 0 for severity, _ in shown}
    for (severity, _), count in counts.items():
        severities[severity] += count
    told = ", ".join(counted(count, severity) for severity, count in severities.items())
    yield f"{app.now.text()}\n"
    yield f"{told}; what a code means: pulsar-admin doctor --explain CODE\n" if told else nothing


def _screen(app: App, found: Iterable[Any], compared: str, nothing: str) -> Iterator[str]:  # Any: Finding
    from pulsar_admin.cures import cure_lines

    yield f"{app.now.text()}\n{clean_text(compared)}\n" if compared else f"{app.now.text()}\n"
    is_empty = True
    for one in found:
        is_empty = False
        place, *lines = one.paragraph()
        yield "\n".join([place, *map(typable, lines)]) + "\n"
        if compared and one.change == "worse":
            yield f"  before: {_stake(one.before)}; now: {_stake(one)}\n"
        if one.mend:
            yield "".join(f"  {clean_text(line)}\n" for line in cure_lines(one.mend))
    if is_empty:
        yield nothing


def _stake(one: Any) -> str:  # Any: Finding, Before
    """Return the severity of a finding, and the messages and bytes at stake, as text."""
    stakes = ((one.at_stake_messages, "message"), (one.at_stake_bytes, "byte"))
    return ", ".join([f"{one.severity}", *(counted(count, what) for count, what in stakes if count)])


def _put_on_page(app: App, found: Sequence[Any], file: Path) -> str:  # Any: Finding
    """Write the HTML page with the findings into ``file``, and return a note that names the file."""
    from pulsar_admin import __version__
    from pulsar_admin.page.collecting import collect_page
    from pulsar_admin.page.rendering import write_page
    from pulsar_admin.store.rules.table import RULES_BY_CODE

    with app.session.reader() as reader, app.progress(None, "topics", "page") as progress:
        page = collect_page(reader, found, app.now_ms, advance=progress.advance)
    now = app.now
    known = {"rules": RULES_BY_CODE, "as_of": now.text(), "made_ms": now.clock_ms, "version": __version__}
    size_bytes = write_page(file, replace(page, **known))
    return f"{file}: {size_text(size_bytes)}; open it in a browser"


def _diagnoses(app: App, fail_on: str, asked: dict[str, Any]) -> Iterator[Any]:  # Any: of Store.doctor, Finding
    _check_pages(app)
    yield from app.counting(app.api.doctor(**asked), lambda found: _fails(found, fail_on))


def _check_pages(app: App) -> None:
    from pulsar_admin.store.db.storeinfo import check_pages

    walked = check_pages(app.settings.store)  # before LMDB reads them: it dies of damage
    app.store.walked = walked


def _fails(found: Any, fail_on: str) -> bool:  # Any: Finding
    from pulsar_admin.store.rules.finding import Severity

    return found.severity is Severity.CRITICAL or (fail_on != "critical" and found.severity is Severity.WARNING)
