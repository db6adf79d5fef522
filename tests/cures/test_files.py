"""Files that are not as they were at the import, and a list that is too large: what is printed is run as it stands."""

from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import Struct
from msgspec.structs import replace

from pulsar_admin.store.codec.cursor import CursorInfo
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.files import iter_logs, put_log
from pulsar_admin.store.names import Position, parse_topic
from pulsar_admin.store.rules import topics
from tests.conftest import Cli
from tests.cures.curing import check_told, diagnoses, run_printed, told
from tests.stores import write_rows
from tests.synthetic import CREATED_MS, Made, MadeTopic, make_store
from tests.worlds import scratch_copy


def keep(log: Path) -> None:
    """Do nothing."""


def cut(log: Path) -> None:
    log.write_bytes(log.read_bytes()[: log.stat().st_size // 2])


def zero(log: Path) -> None:
    """Make another file of it: its header is the same, its first records are not."""
    data = log.read_bytes()
    log.write_bytes(data[:1024] + bytes(5000) + data[6024:])


def hide(log: Path) -> None:
    log.rename(log.with_suffix(".away"))


def show(log: Path) -> None:
    log.with_suffix(".away").rename(log)


def block(log: Path) -> None:
    """A directory of its name is no file that anybody could read."""
    hide(log)
    log.mkdir()


def unblock(log: Path) -> None:
    log.rmdir()
    show(log)


class Fault(Struct, frozen=True):
    """What is done to a file BEFORE the import and AFTER it, and by hand before the printed command; a DEEP look finds it."""

    before: Callable[[Path], None] = keep
    after: Callable[[Path], None] = keep
    by_hand: Callable[[Path], None] = keep
    deep: bool = False


FAULTS = {
    "file-missing": Fault(after=hide, by_hand=show),
    "file-unreadable": Fault(after=block, by_hand=unblock),
    "file-changed": Fault(before=zero),
    "file-grown": Fault(before=cut),
    "not-checked": Fault(before=cut, deep=True),
}


@pytest.mark.parametrize("code", FAULTS)
def test_a_file_that_is_not_as_it_was(code: str, tmp_path: Path, whole_cli: Cli) -> None:
    """The file that is whole comes, or comes back; the printed command leaves a store that an import of it would have made."""
    fault, source = FAULTS[code], scratch_copy("small", "clean", tmp_path)
    options = ("--deep",) if fault.deep else ()
    log, store = source / "bookkeeper" / "current" / "0.log", tmp_path / "s"
    data = log.read_bytes()
    whole_cli("--store", tmp_path / "whole", "store", "import", "standalone", source)
    sound = told(diagnoses(whole_cli, tmp_path / "whole", *options))
    fault.before(log)
    whole_cli("--store", store, "store", "import", "standalone", source)
    if fault.before is not keep:
        log.write_bytes(data)
    fault.after(log)
    row = next(row for row in diagnoses(whole_cli, store, *options) if row["code"] == code)
    fault.by_hand(log)
    run_printed(whole_cli, row["mend"])
    assert told(diagnoses(whole_cli, store, *options)) == sound


def test_a_file_that_nobody_has_is_forgotten_until_it_is_back(tmp_path: Path, whole_cli: Cli) -> None:
    source, store = scratch_copy("small", "clean", tmp_path), tmp_path / "s"
    whole_cli("--store", store, "store", "import", "standalone", source)
    sound, log = told(diagnoses(whole_cli, store)), source / "bookkeeper" / "current" / "0.log"
    hide(log)
    row = next(row for row in diagnoses(whole_cli, store) if row["code"] == "file-missing")
    assert whole_cli(*row["mend"].split()[1:]).exit_code == 1, "what lacks a copy now is told"
    assert "file-missing" not in {row["code"] for row in diagnoses(whole_cli, store)}
    show(log)
    whole_cli("--store", store, "store", "refresh")
    assert told(diagnoses(whole_cli, store)) == sound


@pytest.mark.usefixtures("damages_stores")
def test_a_scan_that_was_stopped(store: Path, whole_cli: Cli) -> None:

    def stop(txn: Txn) -> None:
        log = next(iter_logs(txn))
        put_log(txn, replace(log, unfinished=True))

    sound = told(diagnoses(whole_cli, store, "--deep"))
    write_rows(store, stop)
    row = next(row for row in diagnoses(whole_cli, store, "--deep") if row["code"] == "scan-unfinished")
    run_printed(whole_cli, row["mend"])
    assert told(diagnoses(whole_cli, store, "--deep")) == sound


def test_a_list_that_is_too_large_is_trimmed(tmp_path: Path, whole_cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """What every subscription has left goes from the list."""
    name, ledgers = parse_topic("a/b/t"), 1_001
    marks = {"s": CursorInfo(-1, Position(9 + ledgers, 0))}
    made = MadeTopic([[Made(CREATED_MS)]] * ledgers, cursors=marks)
    store = make_store(tmp_path / "s", {str(name): made})
    before = diagnoses(whole_cli, store)
    monkeypatch.setattr(topics, "NODE_BYTES", 20_000)
    (row,) = check_told(whole_cli, store, before, [("ledger-list-large", str(name))])
    run_printed(whole_cli, row["mend"])
    assert "ledger-list-large" not in {row["code"] for row in diagnoses(whole_cli, store)}
