"""Who references a ledger, and whom its creator names as owner; and which ledgers are not simply on one topic's list."""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence

from pulsar_admin.store import errors
from pulsar_admin.store.codec.claims import (
    BUCKET_CURSOR,
    BUCKET_TOPIC,
    COMPACTED_TOPIC,
    CURSOR_KEY,
    SCHEMA_KEY,
    TOPIC_KEY,
)
from pulsar_admin.store.codec.ledgermetadata import LedgerMetadata, ledger_path
from pulsar_admin.store.db.blocks import LEDGER_KEY_BYTES, ledger_of_key
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.owners import TOPICS_ALONE, Owner, OwnerKind, find_owners, is_topics_alone
from pulsar_admin.store.db.tree import find_node
from pulsar_admin.store.model.ledgers import find_metadata, find_times, iter_indexed_ids, kept_once
from pulsar_admin.store.names import MANAGED_LEDGERS, PERSISTENT, parse_owner
from pulsar_admin.store.wording import Answer


class LedgerOwners(Answer, frozen=True):
    """Who owns a ledger, and what its creator wrote into its custom metadata (text where it is text, else hex).

    ``state``: see ``store.reports.ledgers.ledger_state``; "" if it was not read.
    """

    ledger_id: int
    owners: tuple[Owner, ...]
    claims: Mapping[str, str]
    has_metadata: bool
    indexed_entries: int
    state: str = ""


def all_owners(txn: Txn, ledger_id: int) -> tuple[Owner, ...]:
    """Return the owners of a ledger: the nodes that reference it, else the node that its custom metadata names, if that may reference it
    in a way that is not seen here.

    A ledger's own custom metadata proves nothing against a node that is known completely: a persistent topic, its cursor or its schema
    that has no unknown fields and does not name the ledger has abandoned it. A node of another domain, or one with fields or a form that
    this version does not know, may name the ledger there, and owns it. The same goes for ledger metadata of an unknown version, which may
    say anything. A node that is gone owns nothing.
    """
    return find_owners(txn, ledger_id) or _claims(txn, ledger_id)


def _claims(txn: Txn, ledger_id: int) -> tuple[Owner, ...]:
    try:
        metadata = find_metadata(txn, ledger_id)
    except errors.Unsupported:
        return (Owner(OwnerKind.CLAIM, ledger_path(ledger_id)),)
    except errors.StoreError:
        return ()
    for path in () if metadata is None else claimed_paths(metadata.custom):
        node = find_node(txn, path)
        if node is not None and not _is_read(path, node.value):
            return (Owner(OwnerKind.CLAIM, _name_of(path, node.value)),)
    return ()


def claimed_paths(custom: Mapping[str, bytes]) -> Iterator[str]:
    """Yield the paths of the nodes that ``custom`` metadata names as a ledger's owner: its topic's, and its cursor's."""
    said = {key: value.decode("utf-8", "replace") for key, value in custom.items()}
    if SCHEMA_KEY in said:
        yield f"/schemas/{said[SCHEMA_KEY]}"
    if TOPIC_KEY in said:
        yield f"{MANAGED_LEDGERS}/{said[TOPIC_KEY]}"
        if CURSOR_KEY in said:
            yield f"{MANAGED_LEDGERS}/{said[TOPIC_KEY]}/{said[CURSOR_KEY]}"
    for key in (COMPACTED_TOPIC, BUCKET_TOPIC):
        if key in said:
            try:
                path = parse_owner(said[key]).path if "://" in said[key] else f"{MANAGED_LEDGERS}/{said[key]}"
            except errors.InvalidValue:
                continue
            yield path
            if key == BUCKET_TOPIC and BUCKET_CURSOR in said:
                yield f"{path}/{said[BUCKET_CURSOR]}"


def _is_read(path: str, value: bytes) -> bool:
    """Whether this version understands the node at ``path`` completely: it is a topic's or a schema's, and no part of it is unknown."""
    from pulsar_admin.store.model.nodes import (
        is_known,
        managed_node,
    )  # few questions meet a ledger that nothing references

    try:
        node = managed_node(path, value)
    except errors.StoreError:
        return False
    is_other = path.startswith(f"{MANAGED_LEDGERS}/") and (node is None or not node.is_topic)
    return not is_other and is_known(path, value)


def _name_of(path: str, value: bytes) -> str:
    from pulsar_admin.store.model.nodes import managed_node

    try:
        node = managed_node(path, value)
    except errors.StoreError:
        return path
    if node is not None:
        return node.text
    return f"{PERSISTENT}://{path.removeprefix('/schemas/')}" if path.startswith("/schemas/") else path


def read_owners(txn: Txn, ledger_id: int) -> LedgerOwners:
    """Return a ledger's owners and claims; raises LedgerNotFound for a ledger that neither metadata nor entries know.

    A few LMDB look-ups, whatever the store's size.
    """
    owners = all_owners(txn, ledger_id)
    try:
        metadata = find_metadata(txn, ledger_id)
    except errors.Unsupported:
        metadata = None
    except errors.MetadataCorrupt:
        if not owners:
            raise
        metadata = None
    times = find_times(txn, ledger_id)
    if not owners and metadata is None and times is None:
        raise errors.LedgerNotFound(
            f"ledger {ledger_id} is neither referenced, nor in the metadata, nor in any entry log",
            hint="list ledgers with: pulsar-admin ledgers list",
            ledgerId=ledger_id,
        )
    claims = {} if metadata is None else custom_text(metadata)
    has_metadata = find_node(txn, ledger_path(ledger_id)) is not None
    return LedgerOwners(ledger_id, owners, claims, has_metadata, times.sums.entries if times else 0)


def custom_text(metadata: LedgerMetadata) -> dict[str, str]:
    """Return a ledger's custom metadata with its values as text, those that are not text in hexadecimal."""
    return {key: _text(metadata.custom[key]) for key in sorted(metadata.custom)}


def _text(value: bytes) -> str:
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return value.hex()
    return text if text.isprintable() else value.hex()


# -- ledgers that are not just on one topic's list: few of what may be millions ---------------------------------------


_CHUNK_LEDGERS = 1 << 16
_OwnedLedgers = tuple["array[int]", "array[int] | None"]


def loose_of(txn: Txn, ledger_ids: array[int]) -> Sequence[int]:
    """Return those of ``ledger_ids`` (ascending) for which ``store.db.owners.is_listed`` may be false; it is true for all others."""
    listed = _owned(txn)[0]
    loose: list[int] = []
    for start in range(0, len(ledger_ids), _CHUNK_LEDGERS):
        some = ledger_ids[start : start + _CHUNK_LEDGERS]
        low, high = bisect_left(listed, some[0]), bisect_right(listed, some[-1])
        loose += sorted(set(some).difference(listed[low:high]))
    return loose


def iter_loose_owners(txn: Txn) -> Iterator[tuple[bytes, bytes]]:
    """Yield (key, row) of ``owners`` in order, without the rows for which ``store.db.owners.is_topics_alone`` is true."""
    others = _owned(txn)[1]
    if others is None:
        yield from ((key, row) for key, row in txn.items("owners") if not is_topics_alone(row))
        return
    for ledger_id in others:
        key = ledger_id.to_bytes(LEDGER_KEY_BYTES, "big")
        row = txn.get("owners", key)
        if row is not None:
            yield key, row


def _owned(txn: Txn) -> _OwnedLedgers:
    """Return the ledgers that are simply on one topic's list, and all others with owners; None instead of these if a row is damaged."""
    kept: _OwnedLedgers | None = txn.memo.get(_owned)
    if kept is not None:
        return kept
    listed, others, altered = array("q"), array("q"), list[bytes]()
    is_usual = re.compile(TOPICS_ALONE).fullmatch
    is_plain = True
    with txn.noting_altered(altered):
        for key, row in txn.items("owners"):
            if len(key) != LEDGER_KEY_BYTES or key >= b"\x80":
                is_plain = False  # no ledger has such an id
            elif is_usual(row):
                listed.append(int.from_bytes(key))
            else:
                others.append(int.from_bytes(key))
    owned = kept_once(txn, listed), (others if is_plain and not altered else None)
    if txn.is_snapshot and not altered:
        txn.memo[_owned] = owned
    return owned


def indexed_ids(txn: Txn) -> array[int]:
    """Return the ids of ``iter_indexed_ids``; not to be changed, as a snapshot keeps them. Raises IndexCorrupt."""
    kept: array[int] | None = txn.memo.get(indexed_ids)
    if kept is not None:
        return kept
    altered: list[bytes] = []
    with txn.noting_altered(altered):
        ids = array("q", iter_indexed_ids(txn))
    ids = kept_once(txn, ids)
    if txn.is_snapshot and not altered:
        txn.memo[indexed_ids] = ids
    return ids


def find_loose_indexed(txn: Txn) -> Iterator[int]:
    """Yield ``loose_of`` the ledgers with entries in some file; all ledgers of the index if it has an invalid key."""
    try:
        yield from loose_of(txn, indexed_ids(txn))
    except errors.IndexCorrupt:
        for key in txn.keys("times", b""):
            try:
                yield ledger_of_key(key)
            except errors.IndexCorrupt:
                continue
