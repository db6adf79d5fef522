"""What is sent to executors: an archive that our packages are imported from, with the data that they read."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import cache_from_source
from pathlib import Path
from zipfile import ZipFile

from pulsar_admin.store.engine.spark_session import pack_code

ROOT = Path(__file__).resolve().parent.parent
_PROGRAM = """
import importlib, json, sys
from zipfile import ZipFile
archive = sys.argv[1]
sys.path.insert(0, archive)
names = [name for name in ZipFile(archive).namelist() if name.endswith(".py")]
skipped = ("pulsar_admin/store/proto/generate.py", "pulsar_admin/__main__.py")
for name in names:
    if name not in skipped:
        importlib.import_module(name.removesuffix(".py").removesuffix("/__init__").replace("/", "."))
from pulsar_admin import store
from pulsar_admin.store.codec.policyevent import builtin_schema
print(json.dumps([store.__file__, len(names), builtin_schema().decode()]))
"""


def test_everything_is_imported_from_the_archive(tmp_path: Path) -> None:
    archive = pack_code(tmp_path)
    with ZipFile(archive, "a") as zipped:  # the same code, compiled, which takes half the time to import from there
        for name in (name for name in zipped.namelist() if name.endswith(".py")):
            compiled = Path(cache_from_source(str(ROOT / name)))
            if compiled.exists():
                zipped.write(compiled, f"{name}c")
    done = subprocess.run(
        [sys.executable, "-P", "-c", _PROGRAM, str(archive)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    where, count, schema = json.loads(done.stdout.splitlines()[-1])
    assert Path(where).parent == archive / "pulsar_admin" / "store"
    assert count == sum(len(list((ROOT / name).rglob("*.py"))) for name in ("store", "pulsar_admin", "commands"))
    assert schema == (ROOT / "store/proto/pulsar_event.avsc").read_text()
