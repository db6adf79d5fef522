"""The bookie directories of a source: their files in order, and whose disks they are by the cookies that the metadata has.

Upstream ``CookieValidation``: a bookie does not start when the instance id of its cookie is not that of the metadata, or when its cookie
is not the one registered under its id.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from store.codec.bookie import COOKIE_FILE, Cookie, decode_cookie
from store.codec.ledgermetadata import decode_ledger_metadata, ledger_id_of_path
from store.db.environment import Txn
from store.db.tree import find_node, iter_nodes
from store.errors import MetadataCorrupt, StoreError, Unsupported
from store.sources.layout import StandaloneLayout

_COOKIES, _INSTANCE_ID = "/ledgers/cookies/", "/ledgers/INSTANCEID"


class BookieFile(NamedTuple):
    """An entry log or a journal (``kind``) of a bookie, by the number in its name."""

    kind: str
    number: int
    path: Path


@dataclass(frozen=True, slots=True)
class Stranger:
    """A bookie directory that is not proven to be of the cluster, why, and whether it is proven not to be."""

    directory: Path
    reason: str
    is_foreign: bool

    @property
    def text(self) -> str:
        """What is said of it."""
        rest = "it is left out" if self.is_foreign else "of its entries none takes the place of another bookie's"
        return f"{self.reason}; {rest}"


def find_strangers(txn: Txn, layout: StandaloneLayout) -> list[Stranger]:
    """Return the bookie directories of LAYOUT whose cookie is not one of the metadata in TXN.

    A directory without a cookie says nothing. One of another instance id, or of a bookie that is neither registered nor in any ensemble,
    is foreign where another directory is known: where none is, it is the metadata that was made anew.
    """
    node = find_node(txn, _INSTANCE_ID)
    instance_id = "" if node is None else node.value.decode("utf-8", "replace").strip()
    registered = {
        node.path.removeprefix(_COOKIES): _identity(_decode(node.value, node.path))
        for node in iter_nodes(txn, _COOKIES)
    }
    cookies = {bookie.path: _read_cookie(bookie.path / COOKIE_FILE) for bookie in layout.bookies}
    others = {path: _other_instance(cookie, instance_id) for path, cookie in cookies.items() if cookie is not None}
    reasons = {
        path: "" if cookie is None else others[path] or _unregistered(cookie, registered)
        for path, cookie in cookies.items()
    }
    is_any_known = any(cookie is not None and not reasons[path] for path, cookie in cookies.items())
    found = []
    for path, cookie in cookies.items():
        if cookie is not None and reasons[path]:
            is_foreign = bool(others[path]) or cookie.bookie_id not in registered.keys() | _in_ensembles(txn)
            found.append(Stranger(path, f"{path}: {reasons[path]}", is_foreign and is_any_known))
    return found


def _in_ensembles(txn: Txn) -> set[str]:
    """Return the ids of the bookies that hold ledgers of the metadata."""
    found: set[str] = set()
    for node in iter_nodes(txn, "/ledgers/"):
        if ledger_id_of_path(node.path) is None:
            continue
        try:
            segments = decode_ledger_metadata(node.value, node.path).segments
        except StoreError:
            continue  # `store check` names it
        found.update(bookie for segment in segments for bookie in segment.members)
    return found


def _other_instance(cookie: Cookie, instance_id: str) -> str:
    if not instance_id or cookie.instance_id in (None, instance_id):
        return ""
    return f"its bookie's instance id is {cookie.instance_id}, the metadata's {instance_id}: it is of another cluster"


def _unregistered(cookie: Cookie, registered: dict[str, tuple[object, ...] | None]) -> str:
    if not registered:
        return ""
    if cookie.bookie_id not in registered:
        return f"the metadata has no cookie of its bookie {cookie.bookie_id}"
    if registered[cookie.bookie_id] not in (None, _identity(cookie)):
        return f"its cookie is not the one that the metadata has of bookie {cookie.bookie_id}"
    return ""


def _identity(cookie: Cookie | None) -> tuple[object, ...] | None:
    return None if cookie is None else (cookie.bookie_id, cookie.journal_dirs, cookie.ledger_dirs, cookie.instance_id)


def _read_cookie(file: Path) -> Cookie | None:
    return _decode(file.read_bytes(), str(file)) if file.is_file() else None


def _decode(data: bytes, where: str) -> Cookie | None:
    try:
        return decode_cookie(data, where)
    except (MetadataCorrupt, Unsupported):
        return None  # what cannot be read proves nothing


def files_of(layout: StandaloneLayout, strangers: Sequence[Stranger] = ()) -> Iterator[BookieFile]:
    """Yield the entry logs in write order, then the journals. STRANGERS come last, foreign ones not at all."""
    foreign = {stranger.directory for stranger in strangers if stranger.is_foreign}
    doubtful = {stranger.directory for stranger in strangers}
    bookies = [bookie for bookie in layout.bookies if bookie.path not in foreign]
    bookies.sort(key=lambda bookie: bookie.path in doubtful)
    for bookie in bookies:
        for number, file in bookie.logs:
            yield BookieFile("entry-log", number, file)
    for bookie in bookies:
        for number, file in bookie.journals:
            yield BookieFile("journal", number, file)
