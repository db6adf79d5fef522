"""Asks all screens of every store that tests leave behind: ``python -m pytest -p tests.doctor.agreeing_everywhere TESTS…``.

A test fails whose store has screens that contradict each other.
``AGREED`` names a file that gets the codes on which they agreed, a line each.
"""

import os
import warnings
from collections.abc import Generator
from pathlib import Path

import pytest

from pulsar_admin import open_store
from pulsar_admin.store.db.file import DATA_FILE
from pulsar_admin.store.errors import StoreError
from tests.agreeing import check_agreement
from tests.stores import NOW_MS

_agreed: set[str] = set()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Function) -> Generator[None, object, object]:
    result = yield
    if isinstance(patches := item.funcargs.get("monkeypatch"), pytest.MonkeyPatch):
        patches.undo()
    places = {place for place in item.funcargs.values() if isinstance(place, Path) and place.is_dir()}
    for file in sorted({file for place in places for file in place.rglob(f"meta/{DATA_FILE}")}):
        path = file.parent.parent
        with warnings.catch_warnings(action="ignore"):
            try:
                store = open_store(path, now=NOW_MS)
            except StoreError:  # no screen shows anything of it
                continue
            with store:
                codes = {one.code for one in store.doctor(each=1)}
        check_agreement(path)
        _agreed.update(codes)
    return result


def pytest_unconfigure(config: pytest.Config) -> None:
    if "AGREED" in os.environ and not hasattr(config, "workerinput"):
        Path(os.environ["AGREED"]).write_text("".join(f"{code}\n" for code in sorted(_agreed)))
