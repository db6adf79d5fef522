"""The bookies of a store's sources: their ids and their directories.

Shape in ``store.json``: ``bookies`` of a source, a list of {"id", "ledgers", "journals", "indexes"} with paths. In stores of older
versions an item is the path of one directory, its bookie's id is in no row.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from pulsar_admin.store.codec.bookie import Cookie, decode_cookie
from pulsar_admin.store.codec.ledgermetadata import COOKIES
from pulsar_admin.store.db.audit_log import iter_changes_at
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.storeinfo import StoreInfo
from pulsar_admin.store.db.tree import decode_node, find_node, tree_key


class Bookie(Struct, frozen=True):
    """The directories of one bookie, each with its ``current``. ``bookie_id``: its name in ensembles, "" if unknown."""

    bookie_id: str
    ledger_dirs: tuple[Path, ...]
    journal_dirs: tuple[Path, ...]
    index_dirs: tuple[Path, ...] = ()  # empty: indexes are in the ledger directories

    @property
    def directories(self) -> tuple[Path, ...]:
        """All directories of the bookie, each once."""
        return tuple(dict.fromkeys((*self.ledger_dirs, *self.journal_dirs, *self.index_dirs)))

    @property
    def indexes(self) -> tuple[Path, ...]:
        """The directories of its index: the ledger directories, unless separate ones are configured."""
        return self.index_dirs or self.ledger_dirs

    @property
    def name(self) -> str:
        """The bookie's name in messages: its id, or its directory if the id is unknown."""
        return self.bookie_id or str(self.directories[0])


def encode_bookie(bookie: Bookie) -> dict[str, Any]:  # Any: JSON
    """Return a bookie in the form of ``store.json``."""
    return {
        "id": bookie.bookie_id,
        "ledgers": [str(path.resolve()) for path in bookie.ledger_dirs],
        "journals": [str(path.resolve()) for path in bookie.journal_dirs],
        "indexes": [str(path.resolve()) for path in bookie.index_dirs],
    }


def decode_bookie(row: Any) -> Bookie:  # Any: JSON
    """Return the bookie of a row in ``store.json``."""
    if isinstance(row, str):
        return Bookie("", (Path(row),), (Path(row),))
    ledgers, journals, indexes = (tuple(map(Path, row.get(key, ()))) for key in ("ledgers", "journals", "indexes"))
    return Bookie(str(row.get("id", "")), ledgers, journals, indexes)


def merge_bookies(bookies: Iterable[Bookie]) -> tuple[Bookie, ...]:
    """Return the bookies, with those of the same id merged into one that has all their directories."""
    merged: dict[str, Bookie] = {}
    for bookie in bookies:
        one = merged.get(bookie.name)
        if one is not None:
            bookie = Bookie(
                one.bookie_id,
                tuple(dict.fromkeys((*one.ledger_dirs, *bookie.ledger_dirs))),
                tuple(dict.fromkeys((*one.journal_dirs, *bookie.journal_dirs))),
                tuple(dict.fromkeys((*one.index_dirs, *bookie.index_dirs))),
            )
        merged[bookie.name] = bookie
    return tuple(merged.values())


def disks_of(info: StoreInfo, bookie_id: str) -> str:
    """Return an imported bookie's disks for a command line, ID=DIR,DIR, with JOURNAL-DIR where no journal directory was given; only the
    id if the disks are unknown."""
    return next((disks_text(one) for one in iter_imported_bookies(info) if one.bookie_id == bookie_id), bookie_id)


def disks_text(bookie: Bookie) -> str:
    """Return a bookie's disks for a command line, as ``disks_of``."""
    roots = [str(path.parent if path.name == "current" else path) for path in bookie.directories]
    if not bookie.journal_dirs:
        roots.append("JOURNAL-DIR")
    disks = ",".join(roots)
    return f"{bookie.bookie_id}={disks}" if bookie.bookie_id else disks


UNFINISHED = "unfinished"
"""In a source of ``store.json``: true while not all of what was added is there."""


def iter_imported_bookies(info: StoreInfo, *, whole: bool = False) -> Iterator[Bookie]:
    """Yield the imported bookies in the order of the sources, each with its directories of all sources; with ``whole`` only what was
    imported completely."""
    sources = (source for source in info.sources if not (whole and UNFINISHED in source))
    return iter(merge_bookies(decode_bookie(row) for source in sources for row in source.get("bookies", ())))


# -- what a change renamed ----------------------------------------------------------------------------------------------


def iter_renamed(txn: Txn) -> Iterator[tuple[str, Cookie]]:
    """Yield (id at import, present cookie) of each bookie that was renamed in this store and not renamed back.

    Read from the audit log, which also has undos. Cookies cannot identify a bookie: directories have the same names on
    every host.
    """
    ids: dict[str, str] = {}
    prefix = tree_key(f"{COOKIES}/")
    for change in iter_changes_at(txn, prefix):
        steps = [step for step in change.steps if step.database == "tree" and step.key.startswith(prefix)]
        gone = [decode_node(step.key, step.before)[0] for step in steps if step.before and step.after is None]
        made = [decode_node(step.key, step.after)[0] for step in steps if step.before is None and step.after]
        # A rename, or its undo: no other change deletes one cookie and creates another.
        if len(gone) == len(made) == 1:
            old, new = (path.removeprefix(f"{COOKIES}/") for path in (*gone, *made))
            ids[next((first for first, now in ids.items() if now == old), old)] = new
    for first, now in ids.items():
        node = find_node(txn, f"{COOKIES}/{now}")
        # After an undo the bookie has its first id again.
        if node is not None and find_node(txn, f"{COOKIES}/{first}") is None:
            yield first, decode_cookie(node.value, node.path)


def read_renamed(txn: Txn) -> dict[str, str]:
    """Return id at import → present id of each bookie that was renamed in this store."""
    return {old: cookie.bookie_id for old, cookie in iter_renamed(txn)}


def iter_present_bookies(txn: Txn, *, whole: bool = False) -> Iterator[Bookie]:
    """Yield the imported bookies as ``iter_imported_bookies``, those that were renamed in this store under their new ids."""
    renamed = read_renamed(txn)
    for bookie in iter_imported_bookies(txn.store.info, whole=whole):
        yield replace(bookie, bookie_id=renamed.get(bookie.bookie_id, bookie.bookie_id))
