"""Python: clusters cloned, disks of bookies mended and freed, as the commands do it."""

from __future__ import annotations

from pathlib import Path

import pytest

import pulsar_admin as pa
from tests.conftest import Cli
from tests.stores import NOW_MS, imported

PARTS = "acme/orders/parts"


def test_a_clone_is_that_of_the_command(tmp_path: Path, cli: Cli) -> None:
    path, target, other = imported("small", "clean"), tmp_path / "data", tmp_path / "other"
    words = ("--topic", PARTS, "--cluster", "standalone=lab", "--boot-at", "/lab", "--bookie-id", "lab:3182")
    told = cli("--store", path, "store", "clone", other, *words, "--now", f"@{NOW_MS}", "-o", "json").json
    lab = {"topics": [PARTS], "cluster": "standalone=lab", "boot_at": "/lab", "bookie_id": "lab:3182"}
    with pa.open_store(path, now=NOW_MS) as store:
        shown = store.clone(target, **lab, dry_run=True)  # type: ignore[arg-type]
        assert not target.exists()
        done = store.clone(target, **lab)  # type: ignore[arg-type]
        assert done == {**shown, "dryRun": False} == {**told, "directory": str(target)}
        with pytest.raises(pa.AlreadyExists):
            store.clone(target)
        messages = [*store.topic(f"{PARTS}-partition-0").messages().rows()]
    assert messages
    written = {file.name: file.read_bytes() for file in (other / "bookkeeper" / "current").iterdir() if file.is_file()}
    assert any(name.endswith(".log") for name in written)
    for name, data in written.items():
        assert (target / "bookkeeper" / "current" / name).read_bytes() == data, name
    pa.import_standalone(target, tmp_path / "copy")
    with pa.open_store(tmp_path / "copy") as store:
        assert store.current_cluster() == "lab"
        assert [*store.topic(f"{PARTS}-partition-0").messages().rows()] == messages
