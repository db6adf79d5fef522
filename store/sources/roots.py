"""Where in a ZooKeeper's tree a cluster is: below a path (chroot), and BookKeeper's root perhaps elsewhere.

Pulsar's Helm chart has ``metadataPrefix``, brokers ``metadataStoreUrl=zk:HOST:PORT/PATH``, bookies ``metadataServiceUri`` or
``zkLedgersRootPath``. Clients see paths without the chroot; ZooKeeper's own files, and its tree, have them whole. Everything here that
reads ZooKeeper takes paths as a broker of the cluster sees them (``Roots.inner``), and writes them back where they were (``Roots.outer``).
"""

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from pulsar_admin.store.codec.ledgermetadata import LEDGERS_ROOT
from pulsar_admin.store.db.storeinfo import StoreInfo
from pulsar_admin.store.errors import InvalidValue, Refused, SourceNotFound
from pulsar_admin.store.names import shell_word

PULSAR_MARKS = ("/admin/clusters", "/managed-ledgers")
"""Nodes that only brokers make, below their chroot."""
LAYOUT_MARK = "/LAYOUT"
"""The node that every BookKeeper makes directly below its root (``LedgerLayout``: its version, then class and version of the factory)."""
_LAYOUT_VALUE = re.compile(rb"[0-9]+\n[\w.]+:[0-9]+\s*")
_NAMED = ("/admin/", "/ledgers/", "/loadbalance/", "/managed-ledgers/", "/namespace/", "/schemas/")
"""Below these paths users choose the names: a tenant may be called ``admin``, a namespace ``clusters``."""


class Roots(Struct, frozen=True):
    """``chroot``: the path that brokers take for the root, "" for the root itself; ``ledgers``: BookKeeper's root, the whole path.

    ``shared``: the chroots of other Pulsars in the same ZooKeeper that have no BookKeeper of their own, and may use this one.
    """

    chroot: str = ""
    ledgers: str = LEDGERS_ROOT
    shared: tuple[str, ...] = ()

    def __str__(self) -> str:
        apart = f", BookKeeper's root {self.ledgers}" if self.is_apart else ""
        return (self.chroot or "/") + apart

    @property
    def is_whole(self) -> bool:
        """Whether paths are the same in the cluster and in ZooKeeper."""
        return not self.chroot and self.ledgers == LEDGERS_ROOT

    @property
    def is_apart(self) -> bool:
        """Whether BookKeeper's root is not the one that brokers take by default, ``/ledgers`` below the chroot."""
        return self.ledgers != self.chroot + LEDGERS_ROOT

    def inner(self, path: str) -> str | None:
        """Return the path in the cluster of a path in ZooKeeper; None if it does not belong to the cluster."""
        if self.is_apart:
            if is_at_or_below(path, self.ledgers):
                return LEDGERS_ROOT + path[len(self.ledgers) :]
            if is_at_or_below(path, self.chroot + LEDGERS_ROOT) or is_at_or_below(self.ledgers, path):
                return None
        return path[len(self.chroot) :] if path.startswith(f"{self.chroot}/") else None

    def outer(self, path: str) -> str:
        """Return the path in ZooKeeper of a node of the cluster."""
        if self.is_apart and is_at_or_below(path, LEDGERS_ROOT):
            return self.ledgers + path[len(LEDGERS_ROOT) :]
        return self.chroot + path

    def row(self) -> dict[str, Any]:  # Any: JSON
        """Return its part of the row in ``store.json``: empty if the cluster has the whole tree."""
        return (
            ({"chroot": self.chroot} if self.chroot else {})
            | ({"ledgersRoot": self.ledgers} if self.is_apart else {})
            | ({"sharedWith": [chroot or "/" for chroot in self.shared]} if self.shared else {})
        )


WHOLE = Roots()
"""The whole tree is the cluster's."""


def is_at_or_below(path: str, root: str) -> bool:
    """Whether a path is the node ``root`` or below it."""
    return path == root or path.startswith(f"{root}/")


def roots_of_row(row: Mapping[str, Any]) -> Roots:  # Any: JSON
    """Return the roots in a row of ``store.json``."""
    chroot = str(row.get("chroot", ""))
    shared = tuple(str(path).rstrip("/") for path in row.get("sharedWith", ()))
    return Roots(chroot, str(row.get("ledgersRoot", chroot + LEDGERS_ROOT)), shared)


def stored_roots(info: StoreInfo) -> Roots:
    """Return where in ZooKeeper's tree the cluster of a store is."""
    return next((roots_of_row(source) for source in info.sources if source["kind"] != "bookie"), WHOLE)


def below_text(row: Mapping[str, Any]) -> str:  # Any: JSON
    """Return the path in ZooKeeper's tree of the source in a row of ``store.json``, "" for the whole tree."""
    roots = roots_of_row(row)
    return "" if roots.is_whole else f" at {roots}"


def roots_text(roots: Roots) -> str:
    """Return a sentence about a cluster that does not have the whole tree."""
    below = f"below {roots.chroot}" if roots.chroot else "at the root"
    apart = f", BookKeeper's part at {roots.ledgers}" if roots.is_apart else ""
    return (
        f"the cluster is {below} of ZooKeeper's tree{apart}: paths are shown without that prefix, and nothing else "
        "there is imported"
    )


class Wanted(Struct, frozen=True):
    """Which cluster of a ZooKeeper to read. ``chroot``, ``ledgers``: as the user named them, None: not named.

    ``hints``: BookKeeper's roots in the configurations of bookies.
    """

    chroot: str | None = None
    ledgers: str | None = None
    hints: tuple[str, ...] = ()


ANY = Wanted()
"""Nothing is named: there must be only one cluster."""


def parse_root(text: str, option: str) -> str:
    """Return the path in an option's value, "" for the root; raises InvalidValue."""
    if not text.startswith("/") or "//" in text or "\0" in text:
        raise InvalidValue(
            f"{option} {text!r} is no path of a node", hint="write it as ZooKeeper has it: /pulsar, or / for the root"
        )
    return text.rstrip("/")


class Marks:
    """The paths in a tree that look like the root of a Pulsar or of a BookKeeper."""

    def __init__(self) -> None:
        self._pulsars: set[str] = set()
        self._ledgers: set[str] = set()

    def see(self, path: str, value: bytes) -> None:
        """Take a node into account; in damaged files its parents may be missing."""
        for mark in PULSAR_MARKS:
            chroot, is_marked, below = path.partition(mark)
            if is_marked and below[:1] in ("", "/"):
                self._pulsars.add(chroot)
        if path.endswith(LAYOUT_MARK) and _LAYOUT_VALUE.fullmatch(value):
            self._ledgers.add(path.removesuffix(LAYOUT_MARK))

    def chroots(self) -> list[str]:
        """Return the roots of Pulsars, without paths inside another Pulsar that look like one."""
        chroots: list[str] = []
        for chroot in sorted(self._pulsars, key=lambda path: (path.count("/"), path)):
            if not any(_is_within(chroot, other) for other in chroots):
                chroots.append(chroot)
        return chroots

    def ledgers(self) -> list[str]:
        """Return the roots of BookKeepers; inside a Pulsar only its ``/ledgers`` counts."""
        chroots = self.chroots()
        usual = {chroot + LEDGERS_ROOT for chroot in chroots}
        return sorted(
            root for root in self._ledgers if root in usual or not any(_is_within(root, chroot) for chroot in chroots)
        )


def _is_within(path: str, chroot: str) -> bool:
    return f"{path}/".startswith(tuple(chroot + below for below in _NAMED))


def choose_roots(marks: Marks, where: str, wanted: Wanted) -> Roots:
    """Return the wanted cluster among the marks, or the only one; ``where`` names the tree in messages.

    Raises SourceNotFound without one, Refused if there are several: ``again`` in its context has options that
    name each.
    """
    pairs = [*dict.fromkeys(_pairs(marks, wanted))]
    if wanted.chroot is not None:
        meant = [roots for roots in pairs if roots.chroot == wanted.chroot]
    else:
        meant = [roots for roots in pairs if roots.ledgers in wanted.hints] or pairs
    if wanted.ledgers is not None:
        meant = [roots for roots in meant if roots.ledgers == wanted.ledgers]
    if len(meant) == 1:
        # Other Pulsars without ledgers at their own path may use the same BookKeeper.
        ledgers, others = marks.ledgers(), [chroot for chroot in marks.chroots() if chroot != meant[0].chroot]
        shared = tuple(chroot for chroot in others if chroot + LEDGERS_ROOT not in ledgers)
        return replace(meant[0], shared=shared)
    if not pairs:
        raise SourceNotFound(
            f"{where} has no metadata of Pulsar or BookKeeper: expected admin/clusters, managed-ledgers or ledgers/LAYOUT at"
            " its root or below a path",
            hint="name the ZooKeeper of the cluster; without its metadata the bookies alone can be imported, and metadata be"
            " rebuilt from them: pulsar-admin store recover",
            path=where,
        )
    if not meant:
        asked = wanted.chroot if wanted.ledgers is None else wanted.ledgers
        raise SourceNotFound(
            f"{where} has no cluster at {asked or '/'}: it has {', '.join(str(roots) for roots in pairs)}",
            hint="name an existing one",
            path=where,
            again=[*dict.fromkeys(_option(roots, pairs) for roots in pairs)],
        )
    again = [*dict.fromkeys(_option(roots, meant) for roots in meant)]
    raise Refused(
        f"{where} has {len(meant)} clusters: {', '.join(str(roots) for roots in meant)}",
        hint="name one of them",
        again=again,
    )


def _option(roots: Roots, others: Collection[Roots]) -> str:
    """Return the options that select one cluster rather than the others."""
    words = f"--chroot {shell_word(roots.chroot or '/')}"
    is_alone = sum(other.chroot == roots.chroot for other in others) == 1
    return words if is_alone else f"{words} --ledgers-root {shell_word(roots.ledgers)}"


def _pairs(marks: Marks, wanted: Wanted) -> Iterator[Roots]:
    """Yield the possible clusters: a Pulsar with its BookKeeper, and without any Pulsar each BookKeeper.

    A BookKeeper outside of every chroot may belong to anyone: to each Pulsar that lacks one, or to the wanted one.
    """
    chroots, ledgers = marks.chroots(), marks.ledgers()
    if not chroots:
        yield from (Roots(root.rpartition("/")[0], root) for root in ledgers)
        return
    free = [root for root in ledgers if root.removesuffix(LEDGERS_ROOT) not in chroots]
    for chroot in chroots:
        usual = chroot + LEDGERS_ROOT
        if usual in ledgers:
            yield Roots(chroot, usual)
        said = [root for root in ledgers if root == wanted.ledgers or (root in free and root in wanted.hints)]
        if usual in ledgers or said:
            yield from (Roots(chroot, root) for root in said if root != usual)
        elif free:
            yield from (Roots(chroot, root) for root in free)
        else:
            yield Roots(chroot, usual)
