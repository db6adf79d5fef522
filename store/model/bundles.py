"""Which bundle of its namespace a topic falls into (upstream ``NamespaceBundleFactory``, ``NamespaceBundles``, 4.0.8)."""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise
from zlib import crc32

from store.codec.policies import decode_json_object
from store.db.environment import Txn
from store.db.tree import find_node
from store.names import NamespaceName, TopicName

_FULL = ("0x00000000", "0xffffffff")


def bundle_boundaries(txn: Txn, namespace: NamespaceName) -> tuple[str, ...]:
    """Return the boundaries of the bundles: of the local policies, else of the policies, else one bundle; raises MetadataCorrupt."""
    for path in (f"/admin/local-policies/{namespace}", namespace.policies_path):
        node = find_node(txn, path)
        found = ((decode_json_object(node.value, path) if node and node.value else {}).get("bundles") or {}).get(
            "boundaries"
        )
        if isinstance(found, list) and len(found) > 1:
            return tuple(map(str, found))
    return _FULL


def bundle_range(txn: Txn, name: TopicName) -> str:
    """Return the range of NAME's bundle, ``0xLOW_0xHIGH``; raises MetadataCorrupt."""
    ranges = list(pairwise(bundle_boundaries(txn, name.namespace)))
    lows = [int(low, 16) for low, _ in ranges]
    low, high = ranges[max(bisect_right(lows, crc32(str(name).encode())) - 1, 0)]
    return f"{low}_{high}"
