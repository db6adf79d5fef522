"""Giving a bookie another id in the metadata (upstream ``BookieId``, ``Cookie``, ``EnsembleChangeCursor``; BookKeeper 4.17).

A bookie's id is its address unless ``bookieId`` is set, so a bookie that gets a new address no longer owns its disks.
The id is in the cookie, in ensembles, in under-replication marks and in racks; also in the ``VERSION`` files of the
bookie's directories, which ``store.transfer.bookie_export`` writes. The change also updates the store's rows that
record which bookie a file belongs to.
"""

import json
import re

from msgspec.structs import replace

from pulsar_admin.store.changes.plan import ChangeKind, ChangePart, Plan, delete_step, put_value_step
from pulsar_admin.store.codec import ledgermetadata
from pulsar_admin.store.codec.bookie import decode_cookie, encode_cookie
from pulsar_admin.store.db.audit_log import Step
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.files import iter_logs, log_step
from pulsar_admin.store.db.tree import find_node, iter_nodes
from pulsar_admin.store.errors import AlreadyExists, InvalidValue, Refused, ResourceNotFound, StoreError
from pulsar_admin.store.facts.under_replication import MARKS
from pulsar_admin.store.model.coverage import members_of, renamed_row
from pulsar_admin.store.model.resources import RACKS_PATH, read_racks
from pulsar_admin.store.wording import counted, listed

RENAME = ChangeKind("bookies rename", "rename {place}")
_ID = re.compile(r"[a-zA-Z0-9:\-_.]+")


def plan_rename(txn: Txn, old: str, new: str, now_ms: int) -> Plan:
    """Plan giving the bookie ``old`` the id ``new`` everywhere in the metadata.

    Raises ResourceNotFound, AlreadyExists, InvalidValue, and Refused if the metadata of a ledger, which may name
    ``old``, is damaged.
    """
    if not _ID.fullmatch(new):
        raise InvalidValue(
            f"{new!r} is not the id of a bookie: letters, digits and :-_. are allowed",
            hint="write HOST:PORT, or its bookieId",
            value=new,
        )
    named, unreadable = dict[int, int](), list[int]()
    steps: list[Step] = []
    marks = 0
    for node in iter_nodes(txn, f"{ledgermetadata.LEDGERS_ROOT}/"):
        ledger_id = ledgermetadata.ledger_id_of_path(node.path)
        if ledger_id is None:
            if node.path.startswith(MARKS) and f'"{old}"'.encode() in node.value:
                steps.append(
                    put_value_step(txn, node.path, node.value.replace(f'"{old}"'.encode(), f'"{new}"'.encode()), now_ms)
                )
                marks += 1
            continue
        members = members_of(node.path, node.value)
        if new in members:
            raise AlreadyExists(
                (f"ledger {ledger_id} names bookie {new} already: two bookies would become one"), bookie=new
            )
        try:
            metadata = ledgermetadata.decode_ledger_metadata(node.value, node.path)
        except StoreError:
            unreadable.append(ledger_id)
            continue
        if old in members:
            segments = tuple(
                ledgermetadata.Segment(
                    one.first_entry_id, tuple(new if member == old else member for member in one.members)
                )
                for one in metadata.segments
            )
            value = ledgermetadata.encode_ledger_metadata(replace(metadata, segments=segments), node.value)
            steps.append(put_value_step(txn, node.path, value, now_ms))
            named[ledger_id] = len(segments)
    cookie = find_node(txn, f"{ledgermetadata.COOKIES}/{old}")
    if cookie is None and not named:
        raise ResourceNotFound(
            f"the metadata knows no bookie {old}", hint="list them with: pulsar-admin bookies list-bookies", bookie=old
        )
    if find_node(txn, f"{ledgermetadata.COOKIES}/{new}") is not None:
        raise AlreadyExists(
            f"bookie {new} has a cookie already", hint="list them with: pulsar-admin bookies list-bookies", bookie=new
        )
    if unreadable:
        raise Refused(
            f"the metadata of {counted(len(unreadable), 'ledger')} ({listed(unreadable)}) cannot be read, and may name the bookie",
            hint="find out what is wrong with it: pulsar-admin store check",
        )
    if cookie is not None:
        value = encode_cookie(replace(decode_cookie(cookie.value, cookie.path), bookie_id=new))
        steps += [delete_step(txn, cookie.path), put_value_step(txn, f"{ledgermetadata.COOKIES}/{new}", value, now_ms)]
    racks = read_racks(txn)
    if any(old in bookies for bookies in racks.values()):
        moved = {
            group: {new if name == old else name: rack for name, rack in bookies.items()}
            for group, bookies in racks.items()
        }
        steps.append(put_value_step(txn, RACKS_PATH, json.dumps(moved, separators=(",", ":")).encode(), now_ms))
    steps += [log_step(txn, replace(log, bookie=new)) for log in iter_logs(txn) if log.bookie == old]
    state = renamed_row(txn, old, new)
    steps += [] if state is None else [state]
    after = {
        "was": old,
        "bookieId": new,
        "cookie": cookie is not None,
        "ledgers": len(named),
        "ensembles": sum(named.values()),
        "marks": marks,
    }
    part = ChangePart(resource=f"bookie {old}", after=after)
    warnings = (
        f"its directories still say {old}; to write their VERSION while it is stopped: pulsar-admin store export bookie DIR,DIR",
        f"a bookie that runs as {old} keeps that name: stop it before you export the metadata",
    )
    return Plan(RENAME, txn.id, tuple(steps), (part,), warnings=warnings)
