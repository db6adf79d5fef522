"""Making namespaces, and splitting their bundles (upstream ``NamespacesBase`` and ``NamespaceBundleSplitAlgorithm``, 4.0.8)."""

from __future__ import annotations

from collections.abc import Sequence

from store.changes.namespace_json import check_tenant_clusters, with_deleter
from store.changes.plan import ChangePart, Plan, Step, put_value_step
from store.codec.java import hash_order
from store.codec.policies import NEW_POLICIES, JsonObject, encode_json_object
from store.db.environment import Txn
from store.errors import AlreadyExists, InvalidValue, NeedsBroker
from store.model.bundles import (
    DEFAULT_BUNDLES,
    Bundle,
    bound,
    bundle_topics,
    bundles_of,
    iter_bundles,
    local_policies_path,
    read_bundle,
    read_bundles,
    read_policies,
)
from store.model.resources import current_cluster, find_json, read_tenant
from store.names import NamespaceName, is_allowed_name

ALGORITHMS = (
    "range_equally_divide",
    "topic_count_equally_divide",
    "specified_positions_divide",
    "flow_or_qps_equally_divide",
)


def plan_create(txn: Txn, namespace: NamespaceName, clusters: Sequence[str], bundles: int, now_ms: int) -> Plan:
    """Plan making NAMESPACE, without CLUSTERS in this one, with BUNDLES, 0: four; raises NamespaceNotFound, AlreadyExists, Refused."""
    if bundles < 0:
        raise InvalidValue("Invalid number of bundles. Number of bundles has to be in the range of (0, 2^32].")
    if not is_allowed_name(namespace.namespace):
        raise InvalidValue(f"Invalid named entity: {namespace.namespace}", value=namespace.namespace)
    read_tenant(txn, namespace.tenant)
    own = current_cluster(txn)
    replicated = hash_order(clusters or ([] if namespace.cluster or own is None else [own]))
    check_tenant_clusters(txn, namespace, replicated)
    if find_json(txn, namespace.policies_path) is not None:
        raise AlreadyExists("Namespace already exists", namespace=str(namespace))
    even = bundles_of(bundles or DEFAULT_BUNDLES)
    allowed = [own] if replicated and own is not None and own not in replicated else []
    new = {"replication_clusters": replicated, "allowed_clusters": allowed, "bundles": even}
    policies = new_policies(new)
    shown = {"replication_clusters": replicated, "numBundles": even["numBundles"]}
    step = put_value_step(txn, namespace.policies_path, encode_json_object(policies), now_ms)
    return Plan("namespaces create", txn.id, (step,), (ChangePart(namespace=str(namespace), after=shown),))


def new_policies(given: JsonObject) -> JsonObject:
    """Return the policies of a namespace of which only GIVEN is known, as a broker makes them."""
    return with_deleter({**NEW_POLICIES, **given})


# -- splitting --------------------------------------------------------------------------------------------------------


def plan_split(
    txn: Txn, namespace: NamespaceName, bundle: Bundle, algorithm: str, positions: Sequence[int], now_ms: int
) -> Plan:
    """Plan splitting BUNDLE of NAMESPACE by ALGORITHM; raises InvalidValue, NeedsBroker."""
    if algorithm not in ALGORITHMS:
        raise InvalidValue(
            f"Unsupported namespace bundle split algorithm, supported algorithms are [{', '.join(ALGORITHMS)}]"
        )
    within = [
        at for at in sorted(set(_positions(txn, bundle, algorithm, positions))) if bundle.lower < at < bundle.upper
    ]
    before = read_bundles(txn, namespace)
    bounds = sorted({*before["boundaries"], *map(bound, within)})
    after = {"boundaries": bounds, "numBundles": len(bounds) - 1}
    part = ChangePart(namespace=str(namespace), before=before, after=after)
    steps = () if after == before else _split_steps(txn, namespace, after, now_ms)
    return Plan("namespaces split-bundle", txn.id, steps, (part,))


def _split_steps(txn: Txn, namespace: NamespaceName, bundles: JsonObject, now_ms: int) -> tuple[Step, ...]:
    policies = {**read_policies(txn, namespace), "bundles": bundles}
    path = local_policies_path(namespace)
    local = {"migrated": False, **(find_json(txn, path) or {}), "bundles": bundles}
    values = ((namespace.policies_path, policies), (path, local))
    return tuple(put_value_step(txn, at, encode_json_object(value), now_ms) for at, value in values)


def _positions(txn: Txn, bundle: Bundle, algorithm: str, positions: Sequence[int]) -> Sequence[int]:
    if algorithm == "range_equally_divide":
        return [(bundle.lower + bundle.upper) // 2]
    hashes = sorted(bundle_topics(txn, bundle).values())
    if algorithm == "specified_positions_divide":
        if not positions:
            raise InvalidValue("With specified_positions_divide split algorithm, splitBoundaries must not be empty")
        return positions if len(hashes) > 1 else ()
    if algorithm == "topic_count_equally_divide":
        if len(hashes) < 2:
            return ()
        first, second = hashes[len(hashes) // 2 - 1], hashes[len(hashes) // 2]
        return [first + (second - first) // 2]
    raise NeedsBroker(
        f"{algorithm}: running brokers measure the flow of topics", hint=f"one of {', '.join(ALGORITHMS[:3])}"
    )


def choose_bundle(txn: Txn, namespace: NamespaceName, text: str | None, kind: str | None) -> Bundle:
    """Return the bundle named by TEXT, or the LARGEST by topics; raises InvalidValue, NeedsBroker for a HOT one."""
    if text is not None and kind is not None:
        raise InvalidValue("--bundle and --bundle-type are mutually exclusive")
    read_policies(txn, namespace, "Namespace not found")
    if text is not None:
        return read_bundle(txn, namespace, text)
    if kind is None:
        raise InvalidValue("Must pass one of the params: --bundle / --bundle-type")
    if kind.upper() != "LARGEST":
        raise NeedsBroker(f"--bundle-type {kind}: running brokers measure the load of bundles", hint="name a --bundle")
    return max(iter_bundles(txn, namespace), key=lambda bundle: len(bundle_topics(txn, bundle)))
