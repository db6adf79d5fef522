"""The ledgers of a metadata store, with their owners, and the next ledger id.

Upstream: a ledger exists if its node does, whatever the node contains (``HierarchicalLedgerManager``, BookKeeper 4.17).
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec import Struct

from pulsar_admin.store.codec import ledgermetadata
from pulsar_admin.store.codec.bookie import Cookie
from pulsar_admin.store.codec.managedledger import decode_ledger_ids
from pulsar_admin.store.codec.wrapper import MAGIC
from pulsar_admin.store.db.owners import OwnerKind
from pulsar_admin.store.errors import StoreError
from pulsar_admin.store.facts.trees import UnknownTree, add_path, check_accepted, trees_of
from pulsar_admin.store.model.references import NAMING_PREFIXES, read_namings
from pulsar_admin.store.sources.bookies import find_cookie

if TYPE_CHECKING:
    from pulsar_admin.store.aliases import Array

_BITS = 64  # in a ledger's mask of bookies; any further bookie counts as having every ledger
_OFFLOAD = b"\x2a"
"""The tag of a ledger's offload context in a topic's list: without it, no ledger of the list is in tiered storage."""


def is_among(ids: Array, wanted: Array) -> Array:
    """Return a mask of the wanted ids that are in the ascending ``ids``."""
    import numpy as np

    if not len(ids):
        return np.zeros(len(wanted), np.bool_)
    is_present: Array = ids[np.minimum(np.searchsorted(ids, wanted), len(ids) - 1)] == wanted
    return is_present


class LedgerNames:
    """The topics and cursors that name each ledger, packed, as there may be millions."""

    def __init__(self) -> None:
        self._ledgers, self._owners = array("q"), array("I")
        self._texts = bytearray()
        self._ends = array("Q", [0])

    def add(self, ledger_ids: Iterable[int], text: str) -> None:
        """Record that a topic or cursor, by its text, names these ledgers."""
        before = len(self._ledgers)
        self._ledgers.extend(ledger_ids)
        count = len(self._ledgers) - before
        if count:
            self._owners.extend((len(self._ends) - 1,) * count)
            self._texts += text.encode("utf-8", "surrogateescape")
            self._ends.append(len(self._texts))

    @property
    def ledgers(self) -> Array:
        """The ledgers that anything names, in no order."""
        import numpy as np

        return np.frombuffer(self._ledgers, np.int64)

    def of(self, ledgers: Array) -> Iterator[tuple[str, Array]]:
        """Yield (text, indexes of the ledgers that it names); a ledger with several names counts for the first."""
        import numpy as np

        named = self.ledgers
        if not len(named) or not len(ledgers):
            return
        at = np.searchsorted(ledgers, named)
        indexes = np.flatnonzero(ledgers[np.minimum(at, len(ledgers) - 1)] == named)
        owners = np.frombuffer(self._owners, np.uint32)[indexes]
        places, first = np.unique(at[indexes], return_index=True)
        owners = owners[first]
        order = np.argsort(owners, kind="stable")
        starts = np.flatnonzero(np.diff(owners[order], prepend=-1))
        for part in np.split(order, starts[1:]):
            if len(part):
                owner = int(owners[part[0]])
                text = bytes(self._texts[self._ends[owner] : self._ends[owner + 1]])
                yield text.decode("utf-8", "replace"), places[part]


class Known(Struct, frozen=True):
    """A metadata store's facts about ledgers. ``next_id``: the next ledger id that it assigns, None if unknown.

    ``problems``: why these facts are incomplete.
    """

    name: str
    ledgers: Array
    names: LedgerNames
    next_id: int | None
    instance_id: str
    cookies: Mapping[str, Cookie | None]
    problems: tuple[str, ...] = ()
    bookies: tuple[str, ...] = ()
    """The bookies of the masks in ``holders``: bit i is set when bookie i is in an ensemble of the ledger."""
    holders: Array | None = None  # uint64, one of each of ``ledgers``
    unknown_trees: tuple[UnknownTree, ...] = ()
    layout: bytes | None = None
    """The value of the LAYOUT node, which says how bookies list ledgers; ``ledgers`` has only those that they list."""
    rocksdb: tuple[str, ...] = ()
    """The damage of the RocksDB, from which all nodes were read nevertheless."""

    @property
    def largest(self) -> int:
        """The largest ledger id that has a node or is named by one; −1 if there is none."""
        named = self.names.ledgers
        return max((int(ids.max()) for ids in (self.ledgers, named) if len(ids)), default=-1)

    def check_trees(self, accepted: Collection[str]) -> None:
        """Raise Refused unless ``accepted`` has the path of each unknown tree: it may reference ledgers."""
        check_accepted(self.unknown_trees, accepted)

    def check_layout(self) -> None:
        """Raise Unsupported if the ledgers' paths have another layout than the one Pulsar's brokers write."""
        if self.layout is not None:
            ledgermetadata.check_layout(self.layout, self.name)

    def has(self, ledgers: Array) -> Array:
        """Return a mask of the ledgers that have a node."""
        return is_among(self.ledgers, ledgers)

    def may_be_on(self, bookie_id: str, ledgers: Array) -> Array:
        """Return a mask of the ledgers whose ensembles include the bookie, or whose ensembles are unknown."""
        import numpy as np

        mask = self.has(ledgers)
        if self.holders is None or bookie_id not in self.bookies[:_BITS] or not mask.any():
            return mask
        masks = self.holders[np.minimum(np.searchsorted(self.ledgers, ledgers), len(self.ledgers) - 1)]
        on_it: Array = mask & ((masks >> np.uint64(self.bookies.index(bookie_id))) & np.uint64(1)).astype(np.bool_)
        return on_it


def no_metadata() -> Known:
    """Return the facts of an empty metadata store."""
    import numpy as np

    return Known("an empty metadata store", np.zeros(0, np.int64), LedgerNames(), 0, "", {})


def read_known(
    name: str,
    nodes: Iterable[tuple[str, bytes]],
    next_id: int | None = None,
    problems: Iterable[str] = (),
    bookies: Sequence[str] = (),
) -> Known:
    """Return the facts that a metadata store's nodes (path, value) give about ledgers, and the ledgers on each bookie."""
    import numpy as np

    ledgers, depths, names, cookies = array("q"), array("B"), LedgerNames(), dict[str, Cookie | None]()
    unknown = Counter[str]()
    masks, bits = array("Q"), {bookie_id: 1 << number for number, bookie_id in enumerate(bookies[:_BITS])}
    instance_id, layout = "", None
    for path, value in nodes:
        if path.startswith(ledgermetadata.LEDGERS_ROOT + "/"):
            ledger_id = ledgermetadata.ledger_id_of_path(path)
            if ledger_id is not None:
                ledgers.append(ledger_id)
                depths.append(path.count("/") - 1)
                masks.extend((_mask(value, bits),) if bits else ())
            elif path.startswith(f"{ledgermetadata.COOKIES}/"):
                cookies[path.removeprefix(f"{ledgermetadata.COOKIES}/")] = find_cookie(value, path)
            elif path == ledgermetadata.INSTANCE_ID:
                instance_id = value.decode("utf-8", "replace").strip()
            elif path == ledgermetadata.LAYOUT:
                layout = value
        elif path.startswith(NAMING_PREFIXES):
            with suppress(StoreError):  # what cannot be read names nothing
                for kind, topic, cursor, ledger_ids in read_namings(path, value):
                    if kind is OwnerKind.TOPIC and (_OFFLOAD in value or value.startswith(MAGIC)):
                        ledger_ids = decode_ledger_ids(value, path, on_bookies=True)
                    names.add(ledger_ids, f"{topic} -s {cursor}" if cursor else topic)
        else:
            add_path(unknown, path)
    listed = None if layout is None else ledgermetadata.find_listed_depths(layout)
    are_listed = np.isin(np.array(depths), range(8) if listed is None else listed)
    ids, places = np.unique(np.array(ledgers, np.int64)[are_listed], return_index=True)
    holders = np.array(masks, np.uint64)[are_listed][places] if bits else None
    trees = trees_of(unknown)
    return Known(
        name, ids, names, next_id, instance_id, cookies, tuple(problems), tuple(bookies), holders, trees, layout
    )


def _mask(value: bytes, bits: Mapping[str, int]) -> int:
    """Return one bit for each bookie in an ensemble of a ledger's metadata; all bits if the metadata cannot be decoded."""
    try:
        return sum(bits.get(member, 0) for member in ledgermetadata.decode_members(value, "a ledger"))
    except StoreError:
        return (1 << _BITS) - 1
