"""After every test: the stores it opened pass the full check, and those it only read have the bytes they had.

``tests/conftest.py`` takes ``stores_stay_sound`` and ``damages_stores`` from here. A test that damages a store on purpose asks for
the fixture ``damages_stores``.
"""

import hashlib
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pulsar_admin.store.db.environment import Store, open_store
from pulsar_admin.store.db.storeinfo import read_store_info
from pulsar_admin.store.doctor.diagnosing import check_store
from tests.worlds import digest_of_file

_sound: set[str] = set()
_opened: list[tuple[Path, str, bool]] = []  # path, digest before, writable
_open: weakref.WeakSet[Store] = weakref.WeakSet()
_original, _original_close = Store.__init__, Store.close


def _watched(self: Store, path: Path, *, writable: bool, lock: int | None = None) -> None:
    before = bytes_of_store(path)
    _original(self, path, writable=writable, lock=lock)
    _opened.append((path.resolve(), before, writable))
    _open.add(self)


def _watched_close(self: Store) -> None:
    _open.discard(self)
    _original_close(self)


Store.__init__ = _watched  # type: ignore[method-assign]
Store.close = _watched_close  # type: ignore[method-assign]


def bytes_of_store(path: Path) -> str:
    """A digest of what a store holds: its database, ``store.json``, and the names and sizes of its own entry logs."""
    digest = hashlib.blake2b(digest_size=16)
    for file in (path / "store.json", path / "meta" / "data.mdb"):
        digest.update(digest_of_file(file) if file.is_file() else b"absent")
    for file in sorted(path.glob("entries/*")):
        digest.update(f"{file.name} {file.stat().st_size}\0".encode())
    return digest.hexdigest()


def assert_sound(path: Path, store: Store | None = None) -> None:
    """Fail when the full check finds that the store's own rows contradict each other, or the files."""
    digest = bytes_of_store(path)
    if digest in _sound:
        return
    if store is None:
        with open_store(path) as opened:
            wrong = [finding for finding in check_store(opened) if finding.scope == "store" and finding.is_problem]
    else:
        wrong = [finding for finding in check_store(store) if finding.scope == "store" and finding.is_problem]
    assert not wrong, f"{path} is not sound: {wrong}"
    _sound.add(digest)


@pytest.fixture
def damages_stores() -> None:
    """For a test that damages a store on purpose: it is not checked afterwards."""


@pytest.fixture(autouse=True)
def stores_stay_sound(request: Any) -> Iterator[None]:  # Any: pytest's SubRequest
    """Check every store that the test opened."""
    _opened.clear()
    yield
    opened = list(_opened)
    if "damages_stores" in request.fixturenames:
        return
    written = {path for path, _, writable in opened if writable}
    first = {path: before for path, before, _ in reversed(opened)}
    for path, before in first.items():
        if not (path / "store.json").exists() or read_store_info(path).state != "ready":
            continue
        if path not in written:
            assert bytes_of_store(path) == before, f"{path} was only read, and changed"
        assert_sound(path, next((store for store in _open if store.path.resolve() == path), None))
