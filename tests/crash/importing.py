"""Kill an import at a step: for children of ``tests.crash.forking``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pulsar_admin.store.db import environment
from pulsar_admin.store.scan.files import FileScan
from pulsar_admin.store.transfer import cataloguing, imports
from tests.crash.killing import killing


def prepare(setting: Sequence[Any]) -> None:  # Any: as it came through JSON
    """Have this process die at the step ``where``, when it was passed ``count`` times: SETTING is (where, count)."""
    where, count = setting
    if where == "batch":
        FileScan.batches = _dying(FileScan.batches, count)  # type: ignore[method-assign]
    elif where == "file":
        cataloguing.place = killing(cataloguing.place, count + 1, before=True)
    elif where == "half made":
        environment.write_store_info = killing(environment.write_store_info, before=True)
    else:
        name = {"create": "create_store", "tree": "import_tree", "owners": "make_owners"}[where]
        setattr(imports, name, killing(getattr(imports, name), before=False))


def _dying(batches: Any, count: int) -> Any:  # Any: FileScan.batches
    passed = killing(lambda: None, count + 1, before=True)

    def counted(self: FileScan) -> Iterator[Any]:
        for batch in batches(self):
            passed()
            yield batch

    return counted
