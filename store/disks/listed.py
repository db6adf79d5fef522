"""What metadata says of the ledgers of one bookie."""

from __future__ import annotations

from msgspec import Struct, field

from pulsar_admin.store.codec.digest import DIGEST_SIZE, DigestType, master_key
from pulsar_admin.store.codec.ledgermetadata import LedgerState
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.errors import StoreError
from pulsar_admin.store.model.ledgers import find_metadata, sorted_ledger_ids

_UNPROVEN = (DIGEST_SIZE[DigestType.DUMMY], DIGEST_SIZE[DigestType.HMAC])


class Listed(Struct):
    """Ledgers of the metadata; ``mine``: those that BOOKIE is in an ensemble of, ``newest``: in the last one."""

    ledgers: set[int] = field(default_factory=set)
    mine: list[int] = field(default_factory=list)
    newest: set[int] = field(default_factory=set)
    in_recovery: set[int] = field(default_factory=set)
    keys: dict[int, bytes] = field(default_factory=dict)
    digests: dict[int, int] = field(default_factory=dict)

    @property
    def unproven(self) -> set[int]:
        """Ledgers whose digests cannot be verified."""
        return {ledger_id for ledger_id, size in self.digests.items() if size in _UNPROVEN}


def read_listed(txn: Txn, bookie_id: str) -> Listed:
    """Read the metadata of every ledger, for the bookie BOOKIE_ID; what is damaged lists its ledger and says no more."""
    listed = Listed()
    keys: dict[bytes, bytes] = {}
    for ledger_id in sorted_ledger_ids(txn):
        listed.ledgers.add(ledger_id)
        try:
            metadata = find_metadata(txn, ledger_id)
        except StoreError:
            continue
        if metadata is None:
            continue
        if metadata.password is not None:
            listed.keys[ledger_id] = keys.setdefault(metadata.password, master_key(metadata.password))
        if metadata.digest_type is not None:
            listed.digests[ledger_id] = DIGEST_SIZE[metadata.digest_type]
        if metadata.state is LedgerState.IN_RECOVERY:
            listed.in_recovery.add(ledger_id)
        if any(bookie_id in segment.members for segment in metadata.segments):
            listed.mine.append(ledger_id)
        if bookie_id in metadata.segments[-1].members:
            listed.newest.add(ledger_id)
    return listed
