"""Suggests names close to one that does not exist, by a bounded search of the metadata, whose cost does not grow with the store."""

from collections.abc import Iterable, Iterator
from itertools import islice

from pulsar_admin.store import errors
from pulsar_admin.store.codec.ledgermetadata import ledger_path
from pulsar_admin.store.db.blocks import ledger_key
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.tree import find_node, iter_children
from pulsar_admin.store.model.topics import iter_topics
from pulsar_admin.store.names import (
    LONG_MAX,
    MANAGED_LEDGERS,
    NamespaceName,
    TopicName,
    decode_name,
    encode_name,
    parse_namespace,
    parse_topic,
)

_NAMES_MAX = 3
_FEW = 500  # names that are all looked at; of more, those that share a beginning with the wanted one
_NEIGHBOURS = 25  # for each beginning
_BEGINNINGS = 40


def near_names(txn: Txn, error: errors.NotFound) -> tuple[str, ...]:
    """Return up to three existing names close to the one that ``error`` says does not exist, the closest first."""
    context = error.context
    try:
        if isinstance(error, errors.LedgerNotFound):
            ledger_id = None if "topic" in context else context.get("ledgerId")  # of a topic's own, the message tells
            return _near_ledgers(txn, ledger_id) if isinstance(ledger_id, int) else ()
        if isinstance(error, errors.SubscriptionNotFound):
            return _closest(str(context.get("subscription") or ""), _cursors(txn, context))
        if isinstance(error, errors.TopicNotFound) and "topic" in context:
            return _near_topics(txn, parse_topic(str(context["topic"])))
        if isinstance(error, errors.NamespaceNotFound) and "namespace" in context:
            return tuple(map(str, _near_namespaces(txn, parse_namespace(str(context["namespace"])))))
        if isinstance(error, errors.NamespaceNotFound) and "tenant" in context:
            return _closest(str(context["tenant"]), _tenants(txn))
    except errors.InvalidValue:  # of a legacy name, whose cluster is a part of it
        pass
    return ()


def _near_topics(txn: Txn, wanted: TopicName) -> tuple[str, ...]:
    if any(find_node(txn, path) is not None for path in (wanted.path, wanted.partitioned_path)):
        return ()  # it is there, and not what the command works on
    if next(iter_children(txn, wanted.path), None) is not None:
        return ()  # subscriptions of it are
    local = wanted.local_name
    names = set(_around(txn, wanted.namespace.managed_ledgers_path, local))
    if names:
        names |= {TopicName(wanted.namespace, name).base.local_name for name in names}
        return tuple(f"{wanted.namespace}/{name}" for name in _closest(local, names))
    namespaces = _near_namespaces(txn, wanted.namespace)
    topics = [TopicName(namespace, local) for namespace in namespaces]
    there = [topic for topic in topics if find_node(txn, topic.path) or find_node(txn, topic.partitioned_path)]
    return tuple(f"{topic.namespace}/{local}" for topic in there) or tuple(map(str, namespaces))


def _near_namespaces(txn: Txn, wanted: NamespaceName) -> tuple[NamespaceName, ...]:
    """Return namespaces with names near ``wanted``: of its tenant, or of similar tenants if that does not exist."""
    near = []
    for tenant in [wanted.tenant] if wanted.tenant in _tenants(txn) else _closest(wanted.tenant, _tenants(txn)):
        names = set(_around(txn, f"/admin/policies/{tenant}", wanted.namespace))
        names.update(_around(txn, f"{MANAGED_LEDGERS}/{tenant}", wanted.namespace))
        same = [wanted.namespace] if wanted.namespace in names and tenant != wanted.tenant else []
        near += [NamespaceName(tenant, name) for name in same or _closest(wanted.namespace, names)]
    return tuple(near[:_NAMES_MAX])


def _tenants(txn: Txn) -> set[str]:
    return {name for path in ("/admin/policies", MANAGED_LEDGERS) for name in islice(iter_children(txn, path), _FEW)}


def _cursors(txn: Txn, asked: dict[str, object]) -> Iterator[str]:
    topics: Iterable[TopicName] = ()
    if "topic" in asked:
        topics = [parse_topic(str(asked["topic"]))]
    elif "namespace" in asked:
        topics = islice(iter_topics(txn, parse_namespace(str(asked["namespace"]))), _FEW)
    for topic in topics:
        yield from _around(txn, topic.path, str(asked.get("subscription") or ""))


def _around(txn: Txn, path: str, wanted: str) -> Iterator[str]:
    """Yield names below ``path`` in clear: all if they are few, else also some that begin like ``wanted``."""
    names = list(islice(iter_children(txn, path), _FEW))
    if len(names) == _FEW:
        stored = encode_name(wanted)
        step = len(stored) // _BEGINNINGS + 1
        for end in range(1, len(stored) + 1, step):
            names += islice(iter_children(txn, path, stored[:end]), _NEIGHBOURS)
    yield from map(decode_name, dict.fromkeys(names))


def _closest(wanted: str, names: Iterable[str]) -> tuple[str, ...]:
    from difflib import get_close_matches  # 3 ms, and few commands miss

    by_lower = {name.lower(): name for name in sorted(names) if name != wanted}
    return tuple(by_lower[name] for name in get_close_matches(wanted.lower(), by_lower, n=_NAMES_MAX))


def _near_ledgers(txn: Txn, wanted: int) -> tuple[str, ...]:
    """Return ledgers whose numbers are one slip of the fingers away: a digit more, fewer, another, or two exchanged."""
    if _has_ledger(txn, wanted):
        return ()  # it is there, and not what the command works on
    text = str(wanted)
    slips = {text[:i] + text[i + 1 :] for i in range(len(text))}
    slips |= {text[:i] + digit + text[i + 1 :] for i in range(len(text)) for digit in "0123456789"}
    slips |= {text[:i] + digit + text[i:] for i in range(len(text) + 1) for digit in "0123456789"}
    slips |= {text[:i] + text[i + 1] + text[i] + text[i + 2 :] for i in range(len(text) - 1)}
    ids = {int(slip) for slip in slips if slip.isdigit()} - {wanted}
    near = sorted(
        (ledger_id for ledger_id in ids if ledger_id <= LONG_MAX), key=lambda found: (abs(found - wanted), found)
    )
    return tuple(map(str, islice((found for found in near if _has_ledger(txn, found)), _NAMES_MAX)))


def _has_ledger(txn: Txn, ledger_id: int) -> bool:
    return txn.view("times", ledger_key(ledger_id)) is not None or find_node(txn, ledger_path(ledger_id)) is not None
