"""The rows of ``ledgers`` made again: which ledgers, with which master key, fenced or not, each by a witness.

A ledger is fenced where a fence record in a journal, a row of an index or a recovery that the metadata tells of says so, and nowhere else.
An OPEN ledger is none: the metadata is IN_RECOVERY before the first bookie is asked to fence (``LedgerHandle.recover``, 4.17). A master
key is the one of the old row, of the journal, of the password in the metadata, of another bookie's row, or that which all others have.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from msgspec import Struct, field

from pulsar_admin.store.codec.dbledger import LedgerData
from pulsar_admin.store.codec.digest import DIGEST_SIZE, DigestType, master_key
from pulsar_admin.store.codec.ledgermetadata import LedgerState
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.disks.journals import JournalSurvey
from pulsar_admin.store.disks.logs import LogSurvey
from pulsar_admin.store.disks.old_index import OldLedgers
from pulsar_admin.store.errors import StoreError
from pulsar_admin.store.model.ledgers import find_metadata, sorted_ledger_ids

_UNPROVEN = (DIGEST_SIZE[DigestType.DUMMY], DIGEST_SIZE[DigestType.HMAC])


class BookieLedgers(Struct):
    """Ledgers of the metadata. ``mine``: those with the bookie in an ensemble; ``newest``: those with it in the last ensemble."""

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


def read_listed(txn: Txn, bookie_id: str) -> BookieLedgers:
    """Return the listed ledgers with the bookie's part in each; damaged metadata lists its ledger and tells nothing else."""
    listed = BookieLedgers()
    keys: dict[bytes, bytes] = {}
    for ledger_id in sorted_ledger_ids(txn):
        listed.ledgers.add(ledger_id)
        try:
            metadata = find_metadata(txn, ledger_id)
        except StoreError:
            continue
        if metadata is None:
            continue
        # Brokers mostly use one password for all ledgers, and its key is a digest: each is computed once.
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


# -- rows -------------------------------------------------------------------------------------------------------------


OLD, JOURNAL, METADATA, OTHERS, COMMON, NOBODY = (
    "old index",
    "journal",
    "metadata",
    "other bookies",
    "all other ledgers",
    "nobody",
)


class Witnesses(Struct, frozen=True):
    """Facts about the ledgers of a bookie. ``others``: rows of other bookies' indexes."""

    journals: JournalSurvey
    listed: BookieLedgers
    others: Mapping[int, LedgerData]


class LedgerRows(Struct):
    """Rows of ``ledgers`` to be, and how many keys and fences each witness gave."""

    rows: dict[int, LedgerData] = field(default_factory=dict)
    keys: Counter[str] = field(default_factory=Counter)
    fences: Counter[str] = field(default_factory=Counter)


def make_rows(ledgers: set[int], old: OldLedgers, known: Witnesses) -> LedgerRows:
    """Return the rows of these ledgers for the new ``ledgers`` database."""
    rows = LedgerRows()
    # Pulsar's password is one setting of the broker: the key of all ledgers whose key is known is everybody's.
    row_keys = (_key_of(ledger_id, old, known) for ledger_id in ledgers)
    keys = {one[0] for one in row_keys if one is not None}
    common = keys.pop() if len(keys) == 1 else b""
    for ledger_id in sorted(ledgers):
        before = old.rows.get(ledger_id)
        key, by = _key_of(ledger_id, old, known) or (common, COMMON if common else NOBODY)
        fence = _fence_of(ledger_id, old.proven(ledger_id), known)
        limbo = before.limbo if before else None
        # The explicit LAC of a journal is taken over at the bookie's start where the ledger has a row. The present row's own holds, also
        # none, unless upstream's rebuild wrote that row, which knows no LAC.
        earlier = old.earlier.get(ledger_id)
        lac = known.journals.lacs.get(ledger_id) or (earlier.explicit_lac if earlier else None)
        if before is not None and (before.explicit_lac or ledger_id not in old.unproven):
            lac = before.explicit_lac
        rows.rows[ledger_id] = LedgerData(True, bool(fence), key, lac, limbo)
        rows.keys[by] += 1
        if fence:
            rows.fences[fence] += 1
    return rows


def ledgers_with_rows(survey: LogSurvey, mine: set[int], old: OldLedgers, known: Witnesses) -> set[int]:
    """Return the ledgers that get a row. ``mine``: those of this directory that a journal or a copy elsewhere has.

    A ledger that neither an undamaged index nor the metadata names was deleted on this bookie. Without such an index
    every ledger is kept: the bookie itself deletes those that the metadata does not list.
    """
    in_logs = set(survey.held.by_ledger) | (set(survey.damaged.by_ledger) & (known.listed.ledgers | set(old.rows)))
    if old.problem or not old.rows:  # a bookie that starts without an index makes an empty one
        return set(old.rows) | in_logs | mine
    return set(old.rows) | ((in_logs | mine) & known.listed.ledgers)


def _key_of(ledger_id: int, old: OldLedgers, known: Witnesses) -> tuple[bytes, str] | None:
    before, earlier, other = old.rows.get(ledger_id), old.earlier.get(ledger_id), known.others.get(ledger_id)
    for key, by in (
        (before.master_key if before else b"", OLD),
        (earlier.master_key if earlier else b"", OLD),
        (known.journals.keys.get(ledger_id, b""), JOURNAL),
        (known.listed.keys.get(ledger_id, b""), METADATA),
        (other.master_key if other else b"", OTHERS),
    ):
        if key.strip(b"\0"):
            return key, by
    return None


def _fence_of(ledger_id: int, before: LedgerData | None, known: Witnesses) -> str:
    """Return who says that the ledger is fenced, "" when nobody does."""
    journals = known.journals
    if ledger_id in journals.fences or (before is None and ledger_id in journals.replayed_fences):
        return JOURNAL
    if before is not None and any(before.master_key):
        return OLD if before.fenced else ""  # the start sets it where a journal says so
    if ledger_id not in known.listed.newest:
        return ""
    if ledger_id in known.listed.in_recovery:
        return METADATA
    other = known.others.get(ledger_id)
    return OTHERS if other is not None and other.fenced and any(other.master_key) else ""
