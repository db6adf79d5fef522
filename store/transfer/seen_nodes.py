"""What an import notes of metadata nodes while it writes them: there may be millions, and to read them again is a fifth of an import."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pulsar_admin.store.codec.ledgermetadata import LEDGERS_ROOT, ledger_id_of_path
from pulsar_admin.store.db.tree import Row, path_and_value
from pulsar_admin.store.index.build import SeenDigests
from pulsar_admin.store.model.coverage import members_of
from pulsar_admin.store.model.references import NAMING_PREFIXES, References
from pulsar_admin.store.transfer.copy_time import NewestNode

_LEDGERS = f"{LEDGERS_ROOT}/".encode()
_NAMING = tuple(prefix.encode() for prefix in NAMING_PREFIXES)


class SeenNodes:
    """Of the nodes that were watched: the newest; digest types of ledgers; bookies in their ensembles; who names ledgers."""

    def __init__(self, read_ms: int) -> None:
        self.newest = NewestNode(read_ms)
        self.digests = SeenDigests()
        self.members: set[str] = set()
        self.references = References()

    def watch(self, rows: Iterable[Row]) -> Iterator[Row]:
        """Yield the rows, of nodes, and look at each."""
        see_newest, see_reference = self.newest.see, self.references.see
        for row in rows:
            key, value = row
            see_newest(value)
            if key.startswith(_LEDGERS):
                self._see_ledger(*path_and_value(key, value))
            elif key.startswith(_NAMING):
                see_reference(*path_and_value(key, value))
            yield row

    def _see_ledger(self, path: str, value: bytes) -> None:
        ledger_id = ledger_id_of_path(path)
        if ledger_id is not None:
            self.digests.see(ledger_id, path, value)
            self.members |= members_of(path, value)
