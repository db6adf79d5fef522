"""Asks all screens of every store that tests leave behind: ``python -m pytest -p tests.doctor.agreeing_everywhere TESTS…``.

A test fails whose store has screens that contradict each other.
``AGREED`` names a file that gets the codes on which they agreed, a line each.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import Path

import pytest

from pulsar_admin import open_store
from pulsar_admin.store.db.file import DATA_FILE
from pulsar_admin.store.errors import StoreError
from tests.agreeing import check_agreement

_agreed: set[str] = set()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Function) -> Generator[None, object, object]:
    result = yield
    where = item.funcargs.get("tmp_path")
    for file in sorted(where.rglob(f"meta/{DATA_FILE}")) if isinstance(where, Path) else ():
        path = file.parent.parent
        try:
            with open_store(path) as store:
                codes = {one.code for one in store.doctor(each=1)}
        except StoreError:  # no screen shows anything of it
            continue
        check_agreement(path)
        _agreed.update(codes)
    return result


def pytest_unconfigure(config: pytest.Config) -> None:
    if "AGREED" in os.environ and not hasattr(config, "workerinput"):
        Path(os.environ["AGREED"]).write_text("".join(f"{code}\n" for code in sorted(_agreed)))
