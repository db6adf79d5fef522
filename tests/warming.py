"""Import what commands need, in a process that runs each in a fork of its own."""

from importlib import import_module

from pulsar_admin import command_table
from pulsar_admin.store.kernels.compiled import METER
from pulsar_admin.store.names import FileKind
from pulsar_admin.store.scan.files import FileScan, LedgerDigests, Slice
from pulsar_admin.store.scan.runs import pack_runs
from tests.worlds import world

_OF_MANY = (
    "rocksdict",
    "pulsar_admin.store.doctor.diagnosing",
    "pulsar_admin.store.transfer.imports",
    "pulsar_admin.store.transfer.refresh",
    "pulsar_admin.store.index.rebuild",
    "pulsar_admin.store.changes.topic_policies",
    "pulsar_admin.store.disks.salvage",
    "pulsar_admin.store.dump.load",
)


def import_commands() -> None:
    """Import the modules of all commands, and what many of them import when they run."""
    for rows in command_table.COMMANDS.values():
        for row in rows.values():
            import_module(row.target.partition(":")[0])
    for name in _OF_MANY:
        import_module(name)


def load_kernels() -> None:
    """Load what scans run compiled: each fork would import numba, half a second, for more rows than Python takes."""
    METER.left = 0
    files = world("small") / "clean" / "bookkeeper" / "current"
    for kind in FileKind:
        file = min(files.glob("*.txn" if kind is FileKind.JOURNAL else "*.log"))
        scan = FileScan(Slice(str(file), kind, 0, file.stat().st_size), LedgerDigests.of({}))
        for batch in scan.batches():
            pack_runs(batch, keep_first=True)
