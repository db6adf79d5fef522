"""What is wrong with a store, as it is found. What only these functions need is imported in them: a command that shows help asks, too."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

from pulsar_admin.api.given import given_texts, whole_number
from pulsar_admin.api.session import Session, check_choice

if TYPE_CHECKING:
    from store.check import Finding
    from store.doctor import Diagnosis
    from store.engine.operation import Engine


def iter_check(session: Session, *, deep: bool) -> Iterator[Finding]:
    """Yield what ``Store.check`` returns."""
    from store.check import check_store

    with session.opened() as store, _looking(session, "check", deep=deep) as (engine, advance):
        yield from check_store(store, deep=deep, advance=advance, engine=engine)


def iter_doctor(
    session: Session, *, deep: bool, each: int, codes: Sequence[str], severities: Sequence[str]
) -> Iterator[Diagnosis]:
    """Yield what ``Store.doctor`` returns."""
    from store.doctor import DoctorOptions, diagnose
    from store.doctor.explaining import check_codes

    wanted, chosen = check_codes(given_texts("codes", codes)), given_texts("severities", severities)
    for severity in chosen:
        check_choice("severity", severity, Literal["critical", "warning", "note"])
    options = DoctorOptions(deep, max(whole_number("each", each), 1), wanted, chosen)
    with session.opened() as store, _looking(session, "doctor", deep=deep) as (engine, advance):
        yield from diagnose(store, now_ms=session.now_ms, options=options, advance=advance, engine=engine)


@contextmanager
def _looking(session: Session, label: str, *, deep: bool) -> Iterator[tuple[Engine | None, Callable[[int], None]]]:
    from store.db.files import catalogued_bytes
    from store.model.topics import count_topics

    with session.read() as txn, txn.passing_altered():  # what looks tells of them
        size_bytes = catalogued_bytes(txn) if deep else 0
        what = (size_bytes, "bytes") if deep else (count_topics(txn), "topics")
    with session.engine([], size_bytes) as engine, session.progress(*what, label) as advance:
        yield engine, advance
