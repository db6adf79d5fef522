"""What is wrong with a store, as it is found. What only these functions need is imported in them: a command that shows help asks, too."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from msgspec.structs import replace

from pulsar_admin.api.given import given_path, given_texts, whole_number
from pulsar_admin.api.session import Session, check_choice
from pulsar_admin.store.errors import InvalidValue

if TYPE_CHECKING:
    from pulsar_admin.store.doctor import DoctorOptions
    from pulsar_admin.store.doctor.since import FindingComparison
    from pulsar_admin.store.engine.operation import Engine
    from pulsar_admin.store.rules.finding import Finding


def iter_check(session: Session, *, deep: bool) -> Iterator[Finding]:
    """Yield what ``Store.check`` returns."""
    from pulsar_admin.store.check import check_store

    with session.opened() as store, _looking(session, "check", deep=deep) as (engine, advance):
        yield from check_store(store, deep=deep, advance=advance, engine=engine)


def iter_doctor(
    session: Session, *, deep: bool, each: int, codes: Sequence[str], severities: Sequence[str]
) -> Iterator[Finding]:
    """Yield what ``Store.doctor`` returns."""
    from pulsar_admin.store.doctor import diagnose

    options = _options(deep, each, codes, severities)
    with session.opened() as store, _looking(session, "doctor", deep=deep) as (engine, advance):
        yield from diagnose(
            store, now_ms=session.now_ms, options=options, advance=advance, engine=engine, processes=session.processes
        )


def compare_findings(
    session: Session, since: Path | str, *, deep: bool, each: int, codes: Sequence[str], severities: Sequence[str]
) -> FindingComparison:
    """Return what ``Store.compare_findings`` returns."""
    from pulsar_admin.store.doctor import diagnose
    from pulsar_admin.store.doctor.since import LISTED, compare, read_saved

    asked, path = _options(deep, each, codes, severities), given_path("since", since)
    listed = replace(asked, each=max(asked.each, LISTED), severities=())
    if path.resolve() == session.path.resolve():
        raise InvalidValue(
            f"{path} is this store itself", hint="name an earlier copy, or a file that doctor -o json wrote"
        )
    with session.opened() as store, _looking(session, "doctor", deep=deep) as (engine, advance):
        if path.is_dir():
            before = _findings_of(path, session, listed, engine)
        else:
            before = [one for one in read_saved(path) if not asked.codes or one.code in asked.codes]
        found = diagnose(
            store, now_ms=session.now_ms, options=listed, advance=advance, engine=engine, processes=session.processes
        )
        return compare(before, found, each=asked.each, deep=deep, severities=asked.severities)


def _findings_of(path: Path, session: Session, options: DoctorOptions, engine: Engine | None) -> list[Finding]:
    """Return what is wrong with the store at PATH, as of its own time, or where nothing tells that, as of that of SESSION."""
    from pulsar_admin.store.db.environment import open_store
    from pulsar_admin.store.db.storeinfo import check_pages
    from pulsar_admin.store.doctor import diagnose
    from pulsar_admin.store.model.copy_age import find_as_of

    walked = check_pages(path)  # before LMDB reads them: it dies of damage
    with open_store(path) as store:
        store.walked = walked
        with store.read() as txn:
            as_of = find_as_of(txn)
        now_ms = session.now_ms if as_of is None else as_of.time_ms
        return list(diagnose(store, now_ms=now_ms, options=options, engine=engine))


def _options(deep: bool, each: int, codes: Sequence[str], severities: Sequence[str]) -> DoctorOptions:
    from pulsar_admin.store.doctor import DoctorOptions
    from pulsar_admin.store.rules.table import check_codes

    wanted, chosen = check_codes(given_texts("codes", codes)), given_texts("severities", severities)
    for severity in chosen:
        check_choice("severity", severity, Literal["critical", "warning", "note"])
    return DoctorOptions(deep, max(whole_number("each", each), 1), wanted, chosen)


@contextmanager
def _looking(session: Session, label: str, *, deep: bool) -> Iterator[tuple[Engine | None, Callable[[int], None]]]:
    from pulsar_admin.store.db.files import catalogued_bytes
    from pulsar_admin.store.model.topics import count_topics

    with session.read() as txn, txn.passing_altered():  # what looks tells of them
        size_bytes = catalogued_bytes(txn) if deep else 0
        what = (size_bytes, "bytes") if deep else (count_topics(txn), "topics")
    with session.engine([], size_bytes) as engine, session.progress(*what, label) as advance:
        yield engine, advance
