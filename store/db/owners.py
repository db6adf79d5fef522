"""Which ledger belongs to whom: ledger id → references from the metadata (database ``owners``, derived by ``store.model.references``)."""

import json
import re
from collections.abc import Iterable, Iterator
from enum import StrEnum

from pulsar_admin.store.db.blocks import ledger_key, ledger_of_key
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.errors import IndexCorrupt, reason_of
from pulsar_admin.store.names import PERSISTENT
from pulsar_admin.store.wording import Answer


class OwnerKind(StrEnum):
    """What references a ledger. Never in a row of ``owners``: INDEX, our own index of delayed messages; CLAIM, a node
    that the ledger names as its owner, and that may reference it in unknown ways (``store.model.ledger_owners``)."""

    TOPIC = "managed-ledger"
    CURSOR = "cursor"
    COMPACTED = "compacted"
    SCHEMA = "schema"
    BUCKET = "delayed-bucket"
    PACKAGE = "package"
    """A part of a package of functions, sinks or sources, or of its description: ``topic`` is the path of the stream."""
    INDEX = "delayed-index"
    CLAIM = "claim"


TOPICS_ALONE = rb'\[\{"kind": "managed-ledger", "topic": "[^"\\\x00-\x1f\x80-\xff]*", "cursor": ""\}\]'
"""A row of which ``is_topics_alone`` says yes."""


class Owner(Answer, frozen=True):
    """One reference to a ledger."""

    kind: OwnerKind
    topic: str
    cursor: str = ""

    @property
    def is_of_topic(self) -> bool:
        """Whether ``topic`` is a persistent topic; else it is a managed ledger that only a newer Pulsar reads, or its path."""
        return self.topic.startswith(f"{PERSISTENT}://")

    @property
    def is_of_newer(self) -> bool:
        """Whether only a newer Pulsar changes what references the ledger: ``ledgers forget`` refuses it."""
        return self.kind is OwnerKind.CLAIM or not self.is_of_topic

    def __str__(self) -> str:
        return f"{self.kind} {self.topic} {self.cursor}".rstrip()


def find_owners(txn: Txn, ledger_id: int) -> tuple[Owner, ...]:
    """Return the owners of a ledger; empty if nothing references it. Raises IndexCorrupt."""
    row = txn.get("owners", ledger_key(ledger_id))
    return () if row is None else decode_owners(ledger_id, row)


def find_lister(txn: Txn, ledger_id: int) -> str | None:
    """Return the topic whose list has a ledger, of several the first one; raises IndexCorrupt."""
    return next((owner.topic for owner in find_owners(txn, ledger_id) if owner.kind is OwnerKind.TOPIC), None)


def has_owners(txn: Txn, ledger_id: int) -> bool:
    """Whether anything references a ledger."""
    return txn.view("owners", ledger_key(ledger_id)) not in (None, b"[]")


def is_topics_alone(row: bytes | memoryview) -> bool:
    """Whether a row says that exactly one topic's list references the ledger and nothing else does, as for nearly all
    of possibly millions."""
    return re.fullmatch(TOPICS_ALONE, row) is not None


def is_listed(txn: Txn, ledger_id: int) -> bool:
    """Whether exactly one topic's list references a ledger and nothing else does; False also where ``find_owners`` has to decide."""
    row = txn.view("owners", ledger_key(ledger_id))
    return row is not None and is_topics_alone(row)


def iter_owners(txn: Txn) -> Iterator[tuple[int, tuple[Owner, ...]]]:
    """Yield (ledger id, owners) for every referenced ledger, in id order; raises IndexCorrupt."""
    for key, row in txn.items("owners"):
        ledger_id = ledger_of_key(key)
        yield ledger_id, decode_owners(ledger_id, bytes(row))


def decode_owners(ledger_id: int, row: bytes) -> tuple[Owner, ...]:
    """Return the owners in a ledger's row; raises IndexCorrupt."""
    try:
        return tuple(Owner(OwnerKind(one["kind"]), one["topic"], one["cursor"]) for one in json.loads(row))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise IndexCorrupt(
            f"the owners row of ledger {ledger_id} is damaged: {reason_of(error)}",
            hint="pulsar-admin store index --rebuild",
            ledgerId=ledger_id,
        ) from error


def put_owners(txn: Txn, ledger_id: int, owners: tuple[Owner, ...]) -> None:
    """Set the owners of a ledger; without owners the row is removed."""
    txn.put_or_delete("owners", ledger_key(ledger_id), encode_owners(owners) if owners else None)


def encode_owners(owners: Iterable[Owner]) -> bytes:
    """Return the row of a ledger with these owners."""
    return join_owners([owner_part(*map(encode_text, (owner.kind, owner.topic, owner.cursor))) for owner in owners])


def encode_text(text: str) -> bytes:
    """Return a text as a part of a row."""
    return json.dumps(text).encode()


def owner_part(kind: bytes, topic: bytes, cursor: bytes) -> bytes:
    """Return one owner of a row, from its encoded texts."""
    return b'{"kind": %s, "topic": %s, "cursor": %s}' % (kind, topic, cursor)


def join_owners(parts: list[bytes]) -> bytes:
    """Return the row of several parts."""
    return b"[%s]" % b", ".join(parts)
