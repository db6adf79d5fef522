"""Bundles of a namespace: ranges of the hashes of its topics' names (upstream ``NamespaceBundleFactory``, 4.0.8)."""

from __future__ import annotations

import re
import zlib
from bisect import bisect_left
from collections.abc import Iterator
from itertools import pairwise

from msgspec import Struct

from pulsar_admin.store.codec.javamap import in_hash_map_order
from pulsar_admin.store.codec.policies import JsonObject
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.errors import InvalidValue, NamespaceNotFound
from pulsar_admin.store.model.resources import find_json
from pulsar_admin.store.model.topics import iter_topics
from pulsar_admin.store.names import NamespaceName, TopicName

LAST_HASH = 0xFFFFFFFF
DEFAULT_BUNDLES = 4
"""Of a namespace that is made without a number of them (``defaultNumberOfNamespaceBundles``)."""
_NUMBER = re.compile(r"([+-]?)(0[xX]|#|0(?=.))?(.*)", re.DOTALL)


class Bundle(Struct, frozen=True):
    """A range of hashes, its end left out but for the last hash."""

    namespace: NamespaceName
    lower: int
    upper: int

    @property
    def range(self) -> str:
        return f"{bound(self.lower)}_{bound(self.upper)}"

    def holds(self, value: int) -> bool:
        """Whether the hash VALUE is in it."""
        return self.lower <= value < self.upper or value == self.upper == LAST_HASH

    def __str__(self) -> str:
        return f"{self.namespace}/{self.range}"


def bound(number: int) -> str:
    """Return a bound of bundles as upstream writes it."""
    return f"0x{number:08x}"


def bundles_of(count: int) -> JsonObject:
    """Return COUNT bundles of one size, as they are stored."""
    size = (LAST_HASH + 1) // count
    bounds = [bound(size * number) for number in range(count)]
    return {"boundaries": [*bounds, bound(LAST_HASH)], "numBundles": count}


def topic_hash(topic: object) -> int:
    """Return the hash of a topic's full name, which says what bundle it is in."""
    return zlib.crc32(str(topic).encode())


def bundle_data_path(namespace: NamespaceName) -> str:
    """Return the metadata path below which brokers keep what they measured of a namespace's bundles."""
    return f"/loadbalance/bundle-data/{namespace}"


def local_policies_path(namespace: NamespaceName) -> str:
    """Return the metadata path of what a cluster alone knows of a namespace."""
    return f"/admin/local-policies/{namespace}"


def read_policies(txn: Txn, namespace: NamespaceName, error: str = "Namespace does not exist") -> JsonObject:
    """Return the stored policies of a namespace; raises NamespaceNotFound with upstream's words, MetadataCorrupt."""
    found = find_json(txn, namespace.policies_path)
    if found is None:
        raise NamespaceNotFound(error, namespace=str(namespace))
    return found


def find_local_policies(txn: Txn, namespace: NamespaceName) -> JsonObject:
    """Return what this cluster alone knows of a namespace, nothing where it has no such node; raises MetadataCorrupt."""
    return find_json(txn, local_policies_path(namespace)) or {}


def read_bundles(txn: Txn, namespace: NamespaceName) -> JsonObject:
    """Return the bundles of a namespace, of the cluster where it has some of its own; raises NamespaceNotFound, MetadataCorrupt."""
    policies = read_policies(txn, namespace)
    own = find_local_policies(txn, namespace).get("bundles")
    found = own or policies.get("bundles") or {}
    return {"boundaries": list(found.get("boundaries") or ()), "numBundles": found.get("numBundles", 0)}


def read_bundle(txn: Txn, namespace: NamespaceName, text: str) -> Bundle:
    """Return the bundle that TEXT, LOWER_UPPER, is of a namespace; raises NamespaceNotFound and InvalidValue, as upstream does."""
    bounds = [int(str(one), 16) for one in read_bundles(txn, namespace)["boundaries"]]
    asked = parse_bundle(namespace, text)
    place = bisect_left(bounds, asked.lower)
    if place >= len(bounds) - 1 or bounds[place] != asked.lower:
        raise InvalidValue(f"Cannot find bundle {asked} in the bundles list", bundle=str(asked))
    if bounds[place + 1] != asked.upper:
        expected = Bundle(namespace, asked.lower, bounds[place + 1])
        raise InvalidValue(f"Invalid upper boundary for bundle {asked}. Expected upper boundary of {expected}")
    return asked


def iter_bundles(txn: Txn, namespace: NamespaceName) -> Iterator[Bundle]:
    """Yield the bundles of a namespace in order; raises NamespaceNotFound, MetadataCorrupt."""
    bounds = [int(str(one), 16) for one in read_bundles(txn, namespace)["boundaries"]]
    yield from (Bundle(namespace, lower, upper) for lower, upper in pairwise(bounds))


def bundle_topics(txn: Txn, bundle: Bundle) -> dict[str, int]:
    """Return the hashes of the persistent topics in BUNDLE by their names, in upstream's order."""
    hashes = ((str(topic), topic_hash(topic)) for topic in iter_topics(txn, bundle.namespace))
    found = {name: value for name, value in hashes if bundle.holds(value)}
    return in_hash_map_order(found)


def bundle_range(txn: Txn, name: TopicName) -> str:
    """Return the range of the bundle that NAME is in, ``0xLOW_0xHIGH``; one of all hashes where none are stored. Raises MetadataCorrupt."""
    stored = find_local_policies(txn, name.namespace).get("bundles")
    found = stored or (find_json(txn, name.namespace.policies_path) or {}).get("bundles") or {}
    bounds = found.get("boundaries")
    texts = (
        [str(one) for one in bounds] if isinstance(bounds, list) and len(bounds) > 1 else bundles_of(1)["boundaries"]
    )
    low, high = max(
        (pair for pair in pairwise(texts) if int(pair[0], 16) <= topic_hash(name)), default=(texts[0], texts[1])
    )
    return f"{low}_{high}"


def parse_bundle(namespace: NamespaceName, text: str) -> Bundle:
    """Parse LOWER_UPPER, numbers as Java's Long.decode takes them; raises InvalidValue."""
    parts = text.split("_")
    if len(parts) < 2:
        raise InvalidValue(f"Invalid bundle range: {text}", hint="write LOWER_UPPER, such as 0x00000000_0x40000000")
    lower, upper = (_decode(part) for part in parts[:2])
    if lower > upper:
        raise InvalidValue(f"Invalid range: [{lower}..{upper}{']' if upper == LAST_HASH else ')'}")
    if lower == upper != LAST_HASH:
        raise InvalidValue("Cannot create bundle object for an empty key range")
    return Bundle(namespace, lower, upper)


def _decode(text: str) -> int:
    match = _NUMBER.fullmatch(text)
    assert match is not None
    sign, prefix, digits = match.groups()
    radix = 10 if prefix is None else 8 if prefix == "0" else 16
    try:
        if not digits.isascii() or not digits.isalnum():
            raise ValueError(digits)
        return int(f"{sign}{digits}", radix)
    except ValueError as error:
        under = "" if radix == 10 else f" under radix {radix}"
        raise InvalidValue(f'For input string: "{digits}"{under}', hint="write LOWER_UPPER") from error
