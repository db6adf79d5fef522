"""Phase one under a limit of memory that all its keys do not fit into."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from bench.generate import generate
from tests.conftest import Cli

ROOT = Path(__file__).resolve().parent.parent.parent
_PROGRAM = """
import hashlib, json, resource, sys
from pathlib import Path
from pulsar_admin.store.compaction.compactor import Compaction, CompactionRules
from pulsar_admin.store.compaction.compactor import SourceOptions, prepare
from pulsar_admin.store.model.reader import open_reader
from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.names import parse_topic
from pulsar_admin.store.model.topics import read_topic

def run(limit_keys):
    with open_store(Path(sys.argv[1])) as store, open_reader(store) as reader:
        prepared = prepare(reader, read_topic(reader.txn, parse_topic("public/default/generated")), SourceOptions())
        latest = Compaction(prepared.source, CompactionRules(limit_keys=limit_keys), -1).find_latest()
    return {"keys": latest.keys, "runs": latest.spilled_runs, "bits": hashlib.sha256(latest.bits).hexdigest()}

free = [run(1 << 24), run(1 << 15)]
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
limit = (int(status["VmData"].split()[0]) << 10) + (80 << 20)
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
bounded = run(1 << 15)
try:
    run(1 << 24)
except MemoryError:
    print(json.dumps([*free, bounded]))
"""


def test_keys_beyond_the_limit_go_through_a_file(cli: Cli, tmp_path: Path) -> None:
    """80 MiB beside what two runs left behind: a run takes some 40 of them, the table of all keys 72 more."""
    options = ("--entries", "8000", "--batch", "100", "--message-size", "16", "--keys", "10000000")
    generate(tmp_path / "data", *options)
    store = tmp_path / "store"
    assert cli("--store", store, "store", "import", "standalone", tmp_path / "data").exit_code == 0
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, store], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.stdout, done.stderr
    whole, spilled, bounded = json.loads(done.stdout)
    assert whole["keys"] > 1 << 19
    assert (whole["runs"], spilled["runs"] > 20) == (0, True)
    assert bounded == spilled
    assert (spilled["keys"], spilled["bits"]) == (whole["keys"], whole["bits"])
