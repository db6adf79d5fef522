"""Checks of our own rows: catalogue and files, location and time index, owners, audit log. Each against the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from operator import add

from store.changes.chain import iter_breaks
from store.changes.plan import iter_changes
from store.check.finding import Finding, Severity, data_problem, note, problem_of, store_problem, to_the_end
from store.db.blocks import (
    BLOCK_BITS,
    NO_MAX,
    NO_MIN,
    Block,
    BlockHeader,
    LedgerSums,
    LedgerTimes,
    block_of_key,
    decode_times,
    ledger_of_key,
)
from store.db.entry_files import FileState, file_state
from store.db.environment import Store, Txn
from store.db.file import check_file
from store.db.files import DIFFERS, LogFile, iter_damage, iter_logs
from store.db.storeinfo import damaged_pages
from store.db.tree import decode_node
from store.errors import IndexCorrupt, StoreError
from store.model.references import find_references, iter_wrong_owners
from store.names import shell_word
from store.wording import counted, listed, plural

_LOST = {
    FileState.MISSING: "is gone",
    FileState.CHANGED: "is another file than the one imported, or shorter",
    FileState.UNREADABLE: "cannot be read",
}


def check_rows(store: Store, txn: Txn) -> Iterator[Finding]:
    """Yield what the checks of this module find."""
    yield from check_pages(store, txn)
    yield from to_the_end(check_catalogue(store, txn), "the catalogue of files")
    yield from to_the_end(check_index(txn), "the index")
    yield from to_the_end(check_owners(store, txn), "the owners of ledgers")
    yield from to_the_end(check_changes(txn), "the audit log")


def check_pages(store: Store, txn: Txn) -> Iterator[Finding]:
    """Check the pages of the database that hold the state of TXN; tables have none."""
    if txn.columns is not None:
        return
    try:
        check_file(store.path / "meta", txn.id)
    except IndexCorrupt as error:
        hint = damaged_pages(store.path, error).hint
        yield Finding(Severity.PROBLEM, "pages-damaged", "store", str(store.path / "meta"), error.message, hint)


# -- catalogue --------------------------------------------------------------------------------------------------------


def check_catalogue(store: Store, txn: Txn) -> Iterator[Finding]:
    """Check the catalogued files, the damage known of them, and files that nobody names."""
    names = set()
    try:
        for log in iter_logs(txn):
            names.add(log.path)
            yield from _check_file(store, log)
        known = {log.file_id: log for log in iter_logs(txn)}
        differing: Counter[tuple[int, str, int]] = Counter()
        for damage in iter_damage(txn):
            if damage.file_id in known and damage.reason.startswith(DIFFERS):
                differing[damage.file_id, damage.reason, damage.ledger_id] += 1
            if damage.file_id and damage.file_id not in known:
                yield store_problem(
                    "damage-without-file", f"damage of file {damage.file_id}", "no such file is catalogued"
                )
        for (file_id, reason, ledger_id), count in differing.items():
            yield _copies_differ(known[file_id], reason, ledger_id, count)
    except IndexCorrupt as error:
        yield problem_of(error, "catalogue-damaged", "store", "logs")
    for text in (text for source in store.info.sources for text in source.get("strangers", ())):
        yield data_problem(
            "bookie-not-known",
            "bookies",
            text,
            "its disks may be of another cluster: take them out of the source directory and import into a new store, or keep them",
        )
    if len(names) < txn.count("logs"):
        return  # a row that cannot be read may name the file
    for path in sorted((store.path / "entries").iterdir()):
        if str(path.relative_to(store.path)) not in names:
            yield note(
                "stray-file",
                str(path),
                "no catalogue row names it: left by a process that was killed",
                "it may be deleted",
            )


def _copies_differ(log: LogFile, reason: str, ledger_id: int, count: int) -> Finding:
    hint = (
        "the copy that is shown is of a bookie that the metadata knows"
        if log.stranger
        else "neither cookies nor metadata prove which is right: read both with: pulsar-admin logs dump FILE"
    )
    return data_problem(
        "copies-differ",
        log.path,
        f"{counted(count, 'entry', 'entries')} of ledger {ledger_id} in it{f', of bookie {log.bookie},' if log.bookie else ''}"
        f" {plural(count, 'is', 'are')} passed over: each {reason}",
        hint,
        fileId=log.file_id,
        bookie=log.bookie,
        ledgerId=ledger_id,
        entries=count,
    )


def _check_file(store: Store, log: LogFile) -> Iterator[Finding]:
    where = str(log.locate(store.path))
    state = file_state(log, store.path)
    if state in _LOST:
        yield data_problem(
            f"file-{state}",
            where,
            f"{where} {_LOST[state]}; it held {counted(log.records, 'record')}",
            "bring it back, or do without it: pulsar-admin store refresh --forget",
            fileId=log.file_id,
        )
    if state is FileState.GROWN and log.locate(store.path).stat().st_size == log.size_bytes:
        yield note(
            "file-touched",
            where,
            "its time of change is another than at import, its size is not",
            "read it with: pulsar-admin store check --deep",
        )
    elif state is FileState.GROWN:
        yield note(
            "file-grown", where, "more was written to it since import", "read it with: pulsar-admin store refresh"
        )
    if log.problems:
        torn = ", torn tail" if log.torn else ""
        yield data_problem(
            "file-damaged",
            where,
            f"{counted(log.problems, 'damaged place')}{torn}",
            f"see them with: pulsar-admin logs verify {shell_word(where)}",
            fileId=log.file_id,
            problems=log.problems,
        )


# -- index ------------------------------------------------------------------------------------------------------------


def check_index(txn: Txn) -> Iterator[Finding]:
    """Check every location block in itself, and every time row against its ledger's blocks."""
    files = {log.file_id: log for log in _logs(txn)}
    ledger: _LedgerCheck | None = None
    for key, value in txn.items("entries"):
        try:
            block = Block(key, value)
            number = block_of_key(key)[1]
        except IndexCorrupt as error:
            yield store_problem("block-damaged", f"entries {key.hex()}", error.message)
            continue
        if ledger is None or ledger.ledger_id != block.ledger_id:
            if ledger is not None:
                yield from ledger.finish(txn)
            ledger = _LedgerCheck(block.ledger_id)
        ledger.add(number, block)
        yield from _check_block(number, block, files)
    if ledger is not None:
        yield from ledger.finish(txn)
    yield from _check_times_without_blocks(txn)


def _logs(txn: Txn) -> list[LogFile]:
    try:
        return list(iter_logs(txn))
    except IndexCorrupt:
        return []  # check_catalogue tells


def _check_block(number: int, block: Block, files: dict[int, LogFile]) -> Iterator[Finding]:
    where = f"location block {number} of ledger {block.ledger_id}"
    header, slots, counts = block.header, block.slots(), block.message_counts()
    is_ascending = isinstance(slots, range) or all(before < after for before, after in pairwise(slots))
    if not is_ascending or slots[0] != header.first_slot:
        yield store_problem("block-inconsistent", where, "its entries are not in ascending order")
    messages = len(block) if isinstance(counts, int) else sum(counts)
    head_bytes = 32 + header.digest_bytes
    payload_bytes = sum(size - head_bytes for size in block.sizes() if size > head_bytes)
    if (messages, payload_bytes) != (header.messages, header.payload_bytes):
        yield store_problem(
            "block-inconsistent",
            where,
            f"expected {messages} messages of {payload_bytes} bytes, found {header.messages} of {header.payload_bytes}",
        )
    column = block.files()
    for file_id in {column} if isinstance(column, int) else sorted(set(column)):
        log = files.get(file_id)
        ends = map(add, block.offsets(), block.sizes())
        end = max(
            ends if isinstance(column, int) else (at for at, own in zip(ends, column, strict=True) if own == file_id)
        )
        if log is None:
            yield store_problem("block-inconsistent", where, f"it points to file {file_id}, which is not catalogued")
        elif end + 4 > log.size_bytes:
            yield store_problem(
                "block-inconsistent",
                where,
                f"it points to {end + 4:#x} in file {file_id}, which has {log.size_bytes} bytes",
            )


class _LedgerCheck:
    """The sums of one ledger, computed from its blocks to compare with its time row."""

    def __init__(self, ledger_id: int) -> None:
        self.ledger_id = ledger_id
        self._headers: dict[int, BlockHeader] = {}
        self._first = -1
        self._last = -1

    def add(self, number: int, block: Block) -> None:
        if not self._headers:
            self._first = block.entry_id(0)
        self._last = block.entry_id(len(block) - 1)
        self._headers[number] = block.header

    def finish(self, txn: Txn) -> Iterator[Finding]:
        """Yield what is wrong with the ledger's time row."""
        where = f"time row of ledger {self.ledger_id}"
        row = txn.view("times", self.ledger_id.to_bytes(8, "big", signed=True))
        if row is None:
            yield store_problem("times-missing", where, "the ledger has entries and no time row")
            return
        try:
            times = decode_times(self.ledger_id, row)
        except IndexCorrupt as error:
            yield store_problem("times-damaged", where, error.message)
            return
        expected = self._sums(times.sums.max_lac)
        wrong = [name for name in LedgerSums._fields if getattr(expected, name) != getattr(times.sums, name)]
        if wrong:
            found = ", ".join(f"{name} {getattr(times.sums, name)}" for name in wrong)
            wanted = ", ".join(f"{name} {getattr(expected, name)}" for name in wrong)
            yield store_problem("times-differ", where, f"expected {wanted}, found {found}")
        elif not self._columns_match(times):
            yield store_problem("times-differ", where, "its running minima and maxima are not those of the blocks")

    def _sums(self, max_lac: int) -> LedgerSums:
        """Return the sums of the blocks, not by the indexer's own code: what that wrote is what is checked."""
        headers = list(self._headers.values())
        return LedgerSums(
            first_block=min(self._headers),
            entries=sum(h.entries for h in headers),
            first_entry=self._first,
            last_entry=self._last,
            messages=sum(h.messages for h in headers),
            payload_bytes=sum(h.payload_bytes for h in headers),
            publish_min_ms=min(h.publish_min_ms for h in headers),
            publish_max_ms=max(h.publish_max_ms for h in headers),
            broker_min_ms=min(h.broker_min_ms for h in headers),
            broker_max_ms=max(h.broker_max_ms for h in headers),
            broker_count=sum(h.broker_count for h in headers),
            unframed=sum(h.unframed for h in headers),
            max_lac=max_lac,
        )

    def _columns_match(self, times: LedgerTimes) -> bool:
        first, last = min(self._headers), self._last >> BLOCK_BITS
        publish = {n: (h.publish_min_ms, h.publish_max_ms) for n, h in self._headers.items()}
        auto = (
            {n: (h.auto_min_ms, h.auto_max_ms) for n, h in self._headers.items()}
            if times.sums.broker_count
            else publish
        )
        return times.blocks == last - first + 1 and all(
            list(maxima) == _running_max(bounds, first, last) and list(minima) == _running_min(bounds, first, last)
            for bounds, maxima, minima in (
                (publish, times.publish_max, times.publish_min),
                (auto, times.auto_max, times.auto_min),
            )
        )


_Bounds = dict[int, tuple[int, int]]


def _running_max(bounds: _Bounds, first: int, last: int) -> list[int]:
    found, largest = [], NO_MAX
    for number in range(first, last + 1):
        largest = max(largest, bounds.get(number, (NO_MIN, NO_MAX))[1])
        found.append(largest)
    return found


def _running_min(bounds: _Bounds, first: int, last: int) -> list[int]:
    found, smallest = [], NO_MIN
    for number in range(last, first - 1, -1):
        smallest = min(smallest, bounds.get(number, (NO_MIN, NO_MAX))[0])
        found.append(smallest)
    return found[::-1]


def _check_times_without_blocks(txn: Txn) -> Iterator[Finding]:
    for key, _ in txn.items("times"):
        try:
            ledger_id = ledger_of_key(key)
        except IndexCorrupt as error:
            yield store_problem("times-damaged", f"times {key.hex()}", error.message)
            continue
        if next(txn.items("entries", key), None) is None:
            yield store_problem("times-surplus", f"time row of ledger {ledger_id}", "the ledger has no entries")


# -- owners, audit log ------------------------------------------------------------------------------------------------


def check_owners(store: Store, txn: Txn) -> Iterator[Finding]:
    """Check the owners against the references in the tree."""
    try:
        for ledger_id, wanted, found in list(iter_wrong_owners(txn, find_references(store, txn))):
            yield store_problem(
                "owners-differ",
                f"ledger {ledger_id}",
                f"expected owners: {listed(sorted(map(str, wanted)), 5) or 'none'}; found: {listed(sorted(map(str, found)), 5) or 'none'}",
                ledgerId=ledger_id,
            )
    except StoreError as error:
        yield problem_of(error, "owners-damaged", "store", "owners")


def check_changes(txn: Txn) -> Iterator[Finding]:
    """Check that the audit log is the one chain that was written, and that every imported node kept for export can be read."""
    try:
        for change in iter_changes(txn):
            if change.undoes is not None and change.undoes >= change.change:
                yield _changes_problem("changes-damaged", change.change, f"it undoes change {change.undoes}")
        for number, what in iter_breaks(txn):
            yield _changes_problem("changes-altered", number, what)
    except StoreError as error:
        yield problem_of(error, "changes-damaged", "store", "changes")
    for key, row in txn.items("base"):
        try:
            if len(row):
                decode_node(key, row)
        except IndexCorrupt as error:
            yield problem_of(error, "base-damaged", "store", "base")


def _changes_problem(code: str, number: int, message: str) -> Finding:
    return Finding(Severity.PROBLEM, code, "store", f"change {number}", message)
