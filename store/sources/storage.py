"""The stores of a bookie with DbLedgerStorage: each of its N ledger directories is one by itself, with its own log ids and index.

Upstream ``DbLedgerStorage.getLedgerStorage`` (BookKeeper 4.17): ledger L is in the directory ``L mod N``, in the order of the cookie.
"""

from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from pulsar_admin.store.codec.bookie import Cookie
from pulsar_admin.store.db.bookies import Bookie
from pulsar_admin.store.errors import InvalidValue, SourceNotFound
from pulsar_admin.store.sources.bookies import read_bookie_cookie
from pulsar_admin.store.sources.rocksdb import is_rocksdb
from pulsar_admin.store.wording import counted

LEDGERS, LOCATIONS = DATABASES = ("ledgers", "locations")


class Storage(Struct, frozen=True):
    """A ledger directory of DbLedgerStorage, ``logs``, and that of its two databases: a store by itself, with its own log ids."""

    logs: Path
    index: Path

    @property
    def databases(self) -> tuple[Path, ...]:
        """The two databases."""
        return tuple(self.index / name for name in DATABASES)


def has_database(index: Path) -> bool:
    """Whether an index directory is, or was, that of DbLedgerStorage's databases."""
    return is_rocksdb(index / LOCATIONS) or lost_locations(index)


def lost_locations(index: Path) -> bool:
    """Whether the database of locations is lost: its directory exists but is no database, or only the other database exists.

    If neither exists, the directory may have been copied without its databases: unknown.
    """
    places = index / LOCATIONS
    return not is_rocksdb(places) and (places.is_dir() or is_rocksdb(index / LEDGERS))


def cookie_of(bookie: Bookie) -> Cookie:
    """Return a bookie's cookie; raises SourceNotFound if no directory has one."""
    cookie = read_bookie_cookie(bookie)
    if cookie is None:
        raise SourceNotFound(
            f"{bookie.directories[0]} has no cookie (VERSION), which lists the bookie's directories",
            hint="name the directories that ledgerDirectories of its bookkeeper.conf names",
        )
    return cookie


def storages_of(bookie: Bookie) -> list[Storage]:
    """Return a bookie's storages in the order that assigns ledgers to them, that of its cookie; raises InvalidValue."""
    cookie = cookie_of(bookie)
    logs = _ordered(bookie, "ledger", bookie.ledger_dirs, cookie.ledger_dirs)
    # The cookie has them only if indexDirectories is set, which may name the ledger directories.
    is_apart = bool(bookie.index_dirs or {*(cookie.index_dirs or ())} - {*cookie.ledger_dirs})
    indexes = _ordered(bookie, "index", bookie.index_dirs, cookie.index_dirs or ()) if is_apart else logs
    if len(indexes) != len(logs):
        raise InvalidValue(
            f"bookie {bookie.name}: {counted(len(logs), 'ledger directory', 'ledger directories')} and"
            f" {counted(len(indexes), 'index directory', 'index directories')} given",
            hint="name all of both: an index directory belongs to each ledger directory",
        )
    return [Storage(log, index) for log, index in zip(logs, indexes, strict=True)]


def _ordered(bookie: Bookie, what: str, given: Sequence[Path], named: Sequence[str]) -> list[Path]:
    """Return the given directories in the order of the cookie; if they are at other paths, in the given order."""
    if len(given) != len(named) and (named or what == "ledger"):
        raise InvalidValue(
            f"bookie {bookie.name}: {counted(len(given), f'{what} directory', f'{what} directories')} given, its cookie names"
            f" {len(named)}: {', '.join(named)}",
            hint="name them all, in that order: a ledger's id says in which one it is kept",
        )
    places = {Path(name).resolve() / "current": order for order, name in enumerate(named)}
    if {path.resolve() for path in given} == places.keys():
        return sorted(given, key=lambda path: places[path.resolve()])
    return list(given)
