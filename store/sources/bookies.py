"""The bookie directories of a source: their files in order, and whose disks they are by the cookies that the metadata has.

Upstream ``CookieValidation``: a bookie does not start when the instance id of its cookie is not that of the metadata, or when its cookie
is not the one registered under its id.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile
from operator import eq, itemgetter
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from pulsar_admin.store.codec.bookie import (
    COOKIE_FILE,
    LAST_MARK_FILE,
    Cookie,
    LogMark,
    decode_cookie,
    decode_last_mark,
)
from pulsar_admin.store.codec.entrylog import log_id_of
from pulsar_admin.store.codec.journal import journal_id_of
from pulsar_admin.store.codec.ledgermetadata import COOKIES, INSTANCE_ID, decode_members, ledger_id_of_path
from pulsar_admin.store.db.bookies import Bookie, iter_renamed
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.files import iter_incompleteness
from pulsar_admin.store.db.tree import find_node, iter_nodes
from pulsar_admin.store.errors import MetadataCorrupt, StoreError, Unsupported, unread_text
from pulsar_admin.store.files import read_file, why_no_file
from pulsar_admin.store.names import FileKind


class BookieFile(NamedTuple):
    """An entry log or a journal (``kind``) of a bookie, by the number in its name."""

    kind: FileKind
    number: int
    path: Path
    bookie_id: str


class BookieDirectory(Struct, frozen=True):
    """One ``current`` directory of a bookie: entry logs with their log ids, journals, both in write order.

    ``others``: entries with the name of a log or journal that are not files, such as a FIFO or a dangling link.
    """

    path: Path
    logs: tuple[tuple[int, Path], ...]
    journals: tuple[tuple[int, Path], ...]
    others: tuple[Path, ...] = ()


def read_bookie_directory(current: Path) -> BookieDirectory:
    """List the logs and journals directly in a ``current`` directory; never looks into the RocksDB directories below it.

    A running bookie may delete files listed here.
    """
    logs, journals, others = [], [], []
    for entry in sorted(current.iterdir()):
        log_id, journal_id = log_id_of(entry.name), journal_id_of(entry.name)
        if log_id is journal_id is None:
            continue
        if not entry.is_file():
            others += [entry] if os.path.lexists(entry) else []
        elif journal_id is not None:
            journals.append((journal_id, entry))
        elif log_id is not None and size_of(entry) > 0:
            logs.append((log_id, entry))
    return BookieDirectory(current, tuple(sorted(logs)), tuple(sorted(journals)), tuple(others))


def iter_links(bookies: Iterable[Bookie]) -> Iterator[str]:
    """Yield sentences about entry logs and journals that are links: their targets are read."""
    for path in dict.fromkeys(path for bookie in bookies for path in (*bookie.ledger_dirs, *bookie.journal_dirs)):
        listed = read_bookie_directory(path)
        yield from (
            f"{file} is a link: {file.resolve()} is read"
            for _, file in (*listed.logs, *listed.journals)
            if file.is_symlink()
        )


def iter_no_files(bookies: Iterable[Bookie]) -> Iterator[str]:
    """Yield sentences about objects that have the name of an entry log or a journal but cannot be read as one."""
    for path in dict.fromkeys(path for bookie in bookies for path in (*bookie.ledger_dirs, *bookie.journal_dirs)):
        for other in read_bookie_directory(path).others:
            if reason := why_no_file(other):
                yield f"{other} has the name of {'a journal' if other.suffix == '.txn' else 'an entry log'}, and is not read: {reason}"


def size_of(file: Path) -> int:
    """Return the size of a file, 0 if it is gone: a running bookie deletes journals and entry logs that it no longer needs."""
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return 0


def group_directories(currents: Iterable[Path]) -> tuple[Bookie, ...]:
    """Return the bookies to which these ``current`` directories belong by their cookies, in order.

    A directory without a cookie is a bookie of its own, without an id; so are directories whose cookies have one
    bookie id but differ, or name fewer directories: they cannot all belong to that bookie.
    """
    cookies = {path: read_cookie(path) for path in currents}
    groups: dict[str, list[Path]] = {}
    for path, cookie in cookies.items():
        groups.setdefault("" if cookie is None else cookie.bookie_id, []).append(path)
    bookies: list[Bookie] = []
    for bookie_id, paths in groups.items():
        if bookie_id and _are_one([cookie for path in paths if (cookie := cookies[path]) is not None]):
            bookies.append(Bookie(bookie_id, tuple(paths), tuple(paths)))
        else:
            bookies += [Bookie("", (path,), (path,)) for path in paths]
    order = list(cookies)
    return tuple(sorted(bookies, key=lambda bookie: order.index(bookie.directories[0])))


def _are_one(cookies: Sequence[Cookie]) -> bool:
    """Whether the cookies of several directories can be those of one bookie."""
    places = {*cookies[0].journal_dirs, *cookies[0].ledger_dirs, *(cookies[0].index_dirs or ())}
    return len({identity_of(cookie) for cookie in cookies}) == 1 and len(cookies) <= len(places)


class Stranger(Struct, frozen=True):
    """A bookie that is not proven to belong to the cluster; ``is_foreign``: it is proven to belong to another one."""

    bookie: Bookie
    reason: str
    is_foreign: bool

    @property
    def text(self) -> str:
        """The sentence about this bookie."""
        rest = "it is not read" if self.is_foreign else "none of its entries replaces another bookie's"
        return f"{self.reason}; {rest}"


def find_strangers(txn: Txn, bookies: Sequence[Bookie]) -> list[Stranger]:
    """Return the bookies whose cookie does not match the metadata.

    A bookie without a cookie proves nothing. One with another instance id, or that is neither registered nor in any
    ensemble, is foreign if some other bookie is known; if none is, the metadata itself was created anew. Incomplete
    metadata proves nothing, and a bookie with the metadata's instance id may only be newer than it.
    """
    node = find_node(txn, INSTANCE_ID)
    instance_id = "" if node is None else node.value.decode("utf-8", "replace").strip()
    registered = {
        node.path.removeprefix(f"{COOKIES}/"): identity_of(find_cookie(node.value, node.path))
        for node in iter_nodes(txn, f"{COOKIES}/")
    }
    if not instance_id:  # the node is lost, and the cookies in the metadata have it, too
        instances = {str(identity[-1]) for identity in registered.values() if identity is not None and identity[-1]}
        instance_id = instances.pop() if len(instances) == 1 else ""
    registered |= {first: identity_of(replace(now, bookie_id=first)) for first, now in iter_renamed(txn)}
    cookies = {bookie: read_bookie_cookie(bookie) for bookie in bookies}
    others = {bookie: _other_instance(cookie, instance_id) for bookie, cookie in cookies.items() if cookie is not None}
    reasons = {
        bookie: "" if cookie is None else others[bookie] or _unregistered(cookie, registered)
        for bookie, cookie in cookies.items()
    }
    is_any_known = any(cookie is not None and not reasons[bookie] for bookie, cookie in cookies.items())
    is_incomplete = any(iter_incompleteness(txn))
    strangers = []
    for bookie, cookie in cookies.items():
        if cookie is not None and reasons[bookie]:
            is_known = cookie.bookie_id in registered.keys() | _in_ensembles(txn) or is_incomplete
            is_foreign = bool(others[bookie]) or not (is_known or (instance_id and cookie.instance_id == instance_id))
            reason = f"{bookie.directories[0]}: {reasons[bookie]}"
            strangers.append(Stranger(bookie, reason, is_foreign and is_any_known))
    return strangers


def foreign_ids(txn: Txn, bookies: Iterable[Bookie]) -> frozenset[str]:
    """Return the ids of the bookies that are not read because they belong to another cluster."""
    return frozenset(stranger.bookie.bookie_id for stranger in find_strangers(txn, [*bookies]) if stranger.is_foreign)


def _in_ensembles(txn: Txn) -> set[str]:
    """Return the ids of the bookies that hold ledgers of the metadata."""
    members: set[str] = set()
    for node in iter_nodes(txn, "/ledgers/"):
        if ledger_id_of_path(node.path) is None:
            continue
        try:
            members |= decode_members(node.value, node.path)
        except StoreError:
            continue  # `store check` names it
    return members


def _other_instance(cookie: Cookie, instance_id: str) -> str:
    if not instance_id or cookie.instance_id in (None, instance_id):
        return ""
    return (
        f"its bookie's instance id is {cookie.instance_id}, the metadata's {instance_id}: it belongs to another cluster"
    )


def _unregistered(cookie: Cookie, registered: dict[str, tuple[object, ...] | None]) -> str:
    if not registered:
        return ""
    if cookie.bookie_id not in registered:
        return f"the metadata has no cookie of its bookie {cookie.bookie_id}"
    if registered[cookie.bookie_id] not in (None, identity_of(cookie)):
        return f"its cookie is not the one that the metadata has of bookie {cookie.bookie_id}"
    return ""


def identity_of(cookie: Cookie | None) -> tuple[object, ...] | None:
    """Return the fields that all cookies of one bookie share; its indexes are in the ledger directories if the cookie names no others."""
    if cookie is None:
        return None
    indexes = cookie.index_dirs or cookie.ledger_dirs
    return cookie.bookie_id, cookie.journal_dirs, cookie.ledger_dirs, indexes, cookie.instance_id


def read_cookie(current: Path) -> Cookie | None:
    """Return the cookie in a directory, None if it has no readable one."""
    file = current / COOKIE_FILE
    return find_cookie(file.read_bytes(), str(file)) if file.is_file() else None


def read_bookie_cookie(bookie: Bookie) -> Cookie | None:
    """Return a bookie's cookie, None if no directory has a readable one."""
    cookies = (read_cookie(path) for path in bookie.directories)
    return next((cookie for cookie in cookies if cookie is not None), None)


def find_cookie(data: bytes, where: str) -> Cookie | None:
    """Return the cookie in some bytes; None if it cannot be decoded, which proves nothing about the bookie."""
    try:
        return decode_cookie(data, where)
    except (MetadataCorrupt, Unsupported):
        return None


def with_own_journals(bookie: Bookie) -> Bookie:
    """Return a bookie whose cookie names one directory for everything with it as journal directory, also if the journals in it are gone."""
    cookie = None if bookie.journal_dirs else read_bookie_cookie(bookie)
    is_one = cookie is not None and len({*cookie.journal_dirs, *cookie.ledger_dirs}) == 1
    return replace(bookie, journal_dirs=bookie.ledger_dirs) if is_one else bookie


def mark_names(bookie: Bookie) -> dict[Path, str]:
    """Return each journal directory of a bookie, in BookKeeper's order, with the name of its mark in the ledger directories.

    If more directories are given than the cookie names, those without a journal do not count. Which of the named ones a directory is
    follows from its path, or else from the order.
    """
    cookie = read_bookie_cookie(bookie)
    named = [] if cookie is None else list(dict.fromkeys(cookie.journal_dirs))
    directories = list(bookie.journal_dirs)
    if 0 < len(named) < len(directories):
        directories = [path for path in directories if read_bookie_directory(path).journals]
    places = {(Path(name) / "current").resolve(): number for number, name in enumerate(named)}
    is_single = len(named or directories) == 1
    order = [place_in(path, named) for path in directories]
    if len({number for number in order if number < len(named)}) < len(directories):
        order = [*range(len(directories))]
    numbers = {path: places.get(path.resolve(), number) for number, path in zip(order, directories, strict=True)}
    return {path: LAST_MARK_FILE if is_single else f"{LAST_MARK_FILE}.{number}" for path, number in numbers.items()}


def place_in(path: Path, named: Sequence[str]) -> int:
    """Return the number of the directory that shares the most last components with ``path``, the number of all if none shares any."""
    common = [shared_end(path, Path(name)) for name in named]
    return common.index(max(common)) if any(common) else len(named)


def shared_end(path: Path, named: Path) -> int:
    """Return how many last components two directories share; ``current`` at the end of ``path`` does not count."""
    ours = path.parent if path.name == "current" else path
    return sum(takewhile(bool, map(eq, ours.parts[::-1], named.parts[::-1])))


def read_marks(bookie: Bookie, problems: list[str]) -> dict[Path, LogMark]:
    """Return each journal directory of ``mark_names`` with the position at which a start begins to read it.

    Upstream ``Journal.readLog`` (4.17): the greatest of the marks in the ledger directories; an unreadable mark is
    skipped and added to ``problems``.
    """
    marks = {}
    for path, name in mark_names(bookie).items():
        positions = [LogMark(0, 0)]
        for file in (current / name for current in bookie.ledger_dirs):
            try:
                positions += [decode_last_mark(read_file(file), str(file))] if file.is_file() else []
            except (OSError, MetadataCorrupt) as error:
                problems.append(unread_text(file, error))
        marks[path] = max(positions)
    return marks


def journal_marks(bookies: Iterable[Bookie]) -> dict[str, tuple[int, int]]:
    """Return the marks of all bookies in the form of ``store.db.unserved``, by the directories' resolved paths."""
    pairs = (pair for bookie in bookies for pair in read_marks(bookie, []).items())
    return {str(path.resolve()): (mark.journal_id, mark.offset) for path, mark in pairs}


def files_of(bookies: Iterable[Bookie], strangers: Sequence[Stranger] = ()) -> Iterator[BookieFile]:
    """Yield the entry logs bookie by bookie in write order, then the journals. Strangers come last, foreign bookies not at all.

    DbLedgerStorage numbers logs in each ledger directory, and a ledger is in one of them; InterleavedLedgerStorage
    numbers all of a bookie's logs: in either the numbers follow the order of writing.

    For a running bookie, every entry acknowledged so far is in one of the files: journals are listed first, and one
    that is deleted by then has its entries in entry logs; logs are listed twice, as compaction may write one where a
    listing has passed and delete another that the listing has yet to reach.
    """
    foreign = {stranger.bookie for stranger in strangers if stranger.is_foreign}
    doubtful = {stranger.bookie for stranger in strangers}
    known = sorted((bookie for bookie in bookies if bookie not in foreign), key=lambda bookie: bookie in doubtful)
    journals = [
        BookieFile(FileKind.JOURNAL, number, file, bookie.bookie_id)
        for bookie in known
        for number, file in sorted(
            (file for path in bookie.journal_dirs for file in read_bookie_directory(path).journals), key=itemgetter(0)
        )
    ]
    for bookie in known:
        logs = dict.fromkeys(file for path in bookie.ledger_dirs * 2 for file in read_bookie_directory(path).logs)
        for number, file in sorted(logs, key=itemgetter(0)):
            yield BookieFile(FileKind.ENTRY_LOG, number, file, bookie.bookie_id)
    yield from journals
