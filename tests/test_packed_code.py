"""What is sent to executors: an archive that our packages are imported from, with the data that they read."""

import json
import py_compile
import subprocess
import sys
from pathlib import Path

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
    done = subprocess.run(
        [sys.executable, "-P", "-c", _PROGRAM, str(archive)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    where, count, schema = json.loads(done.stdout.splitlines()[-1])
    assert Path(where).parent == archive / "pulsar_admin" / "store"
    assert count == sum(len(list((ROOT / name).rglob("*.py"))) for name in ("store", "pulsar_admin", "commands"))
    assert schema == (ROOT / "store/proto/pulsar_event.avsc").read_text()


def test_what_is_compiled_goes_along_and_is_loaded_wherever_it_comes(tmp_path: Path) -> None:
    """Python compares the time of a source, which an archive has in the local time of who packed it; and each process would compile."""
    py_compile.compile(str(ROOT / "store/errors.py"))
    archive = pack_code(tmp_path)
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); from pulsar_admin.store import errors; print(errors.__file__)"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", program, str(archive)],
        env={"TZ": "Asia/Tokyo"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(archive / "pulsar_admin/store/errors.pyc")
