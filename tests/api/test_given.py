"""Whatever callers give, one clear error: nothing ends deep inside, and nothing is planned of what makes no sense."""

import inspect
import warnings
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import numpy
import pytest

import pulsar_admin as pa
from pulsar_admin.store.policies.table import POLICIES, policies_by_name
from pulsar_admin.upstream_list import name_of, upstream_commands
from tests.conftest import Cli
from tests.stores import NOW_MS, copied, imported
from tests.worlds import CLUSTER, world

PLAIN = "public/default/plain"
LINE = '{"topic":"public/default/plain","subscription":"half","messageId":"earliest"}'

VARIADIC = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD
TEXT = (None, 5, True, 1.5, b"x", object(), ["x"], ("x",), {"x": "y"}, Path("x"), "half \ud800")
TEXTS = ("text", b"text", 5, object(), {"x": "y"}, [None], [5], [b"x"], [["x"]])
NUMBER = (True, 1.5, float("nan"), "5", b"5", object(), [5], {}, None)
BIG = 2**63, 10**30
ID = (*NUMBER, -1, *BIG)
PROPERTIES = ("a=b", 5, object(), ["a"], [("a", "b")], {"a": None}, {"a": 5}, {5: "a"}, {"a": ["b"]}, {"a": "\ud800"})
REAL = (True, float("nan"), float("inf"), "5", b"5", object(), [5], {}, 1j, 10**400)
WAIT = (True, 1.5, "soon", b"5m", object(), ["5m"], -5, None)
SCHEMAS = (None, 5, True, b"x", ["x"], {}, {"type": 5}, {"type": ["x"]}, {"type": "STRING", "schema": 5}, "absent.json")
SCHEMAS += tuple({"type": "STRING", "properties": properties} for properties in PROPERTIES)
URLS = (None, 5, "text", ["a"], [("a", "b")], {5: "a"}, {"serviceUrl": 5}, {"serviceUrl": "\ud800"})
SETTINGS = (
    *URLS,
    {"none": "a"},
    {"brokerClientTlsEnabled": "true"},
    {"peerClusterNames": "west"},
    {"serviceUrl": None},
)
PATH = (5, True, 1.5, b"x", object(), ["x"], {}, "a\0b", "\ud800")
LENGTH = (None, 5, True, 1.5, b"5m", object(), ["5m"], "soon")
SPARK = (5, "local[2]", True, object(), ["x"])
THING = (None, 5, "text", object(), ["x"])
TIME = ("text", object(), ["x"], 1.5, b"5m")
POLICY = (object(), "1h", [None], {"a": 1}, float("nan"), 10**30)


def set_policy(name: str, store: pa.Store, value: Any) -> pa.Plan:
    return store.topic(PLAIN).set_policy(name, value)


WRONG: dict[str, tuple[object, ...]] = {
    "bool": (None, 0, 1, "no", "", [], object()),
    "bool | None": (0, 1, "no", "", [], object()),
    "str": TEXT,
    "int": NUMBER,
    "int | None": NUMBER[:-1],
    "float": REAL,
    "float | None": REAL,
    **dict.fromkeys(
        ("Clock", "BrokerVersion", "ExpiryRule", "ResetRule", "FindRule", "ViewRule", "Rule", "Form"), TEXT
    ),
    **dict.fromkeys(("Mode", "Format", "Encrypted", "Domain", "QuotaKind", "QuotaPolicy"), TEXT),
    **dict.fromkeys(("str | None", "Place", "Place | None", "Profile | None", "RecoveryLevel | None"), TEXT[1:]),
    **dict.fromkeys(("Sequence[str]", "Sequence[str] | None", "Collection[str] | None", "Sequence[Path | str]"), TEXTS),
    **dict.fromkeys(("Iterable[str]", "Iterable[str | GivenBookie]"), (*TEXTS, None)),
    "Iterable[int]": (*(value for value in TEXTS if value != [5]), None),
    "Iterable[Place | tuple[Place, Delay]]": (*TEXTS, None),
    "Iterable[Path | str]": ("text", 5, None),
    **dict.fromkeys(("Path | str", "Path | str | None", "Store | Path | str"), PATH),
    "str | GivenBookie": TEXT[:9],
    "Mapping[str, Any] | Path | str": SCHEMAS,
    "Duration": LENGTH,
    "Duration | None": LENGTH[1:],
    "Width": (*LENGTH[:1], *LENGTH[2:]),
    "Delay": WAIT,
    "Delay | None": WAIT[:-1],
    "Time": (None, *TIME),
    "Time | None": TIME,
    "Mapping[str, str]": PROPERTIES,
    "Mapping[str, str] | None": PROPERTIES,
    "Mapping[str, str | None]": URLS,
    "Json": SETTINGS,
    "SparkSession": (*SPARK, None),
    "SparkSession | None": SPARK,
    "Plan": THING,
    "Recoveries": THING,
    "Recoveries | None": THING[1:],
    "TopicNacks | None": THING[1:],
    "Most": (*NUMBER[:-1], -1, *BIG),
    "tuple[float, float]": (None, 5, "12", (1,), (1, 2, 3), (1, "2"), {}),
}
"""By what a parameter says that it is: what it is not."""

Call = Callable[[pa.Store, Any], object]
BEYOND: list[tuple[tuple[object, ...], Call]] = [
    (BIG, lambda store, value: store.create_topic("made", partitions=value)),
    (BIG, lambda store, value: store.create_namespace("public/made", bundles=value)),
    (BIG, lambda store, value: store.topic("acme/orders/parts").set_partitions(value)),
    (BIG, lambda store, value: store.transactions().scale(value)),
    ((-1, *BIG), lambda store, value: store.ledger(value)),
    ((-1, *BIG), lambda store, value: store.ledger(9).read(value)),
    ((-1, *BIG), lambda store, value: next(store.ledger(9).entries(value))),
    ((-1, *BIG), lambda store, value: store.forget_ledgers(value, force=True)),
    ((-1, *BIG), lambda store, value: store.restore_ledgers(value)),
    ((-1, *BIG), lambda store, value: store.extend_ledgers(value)),
    ((-1, *BIG), lambda store, value: store.undelete_ledgers(value)),
    ((-1, *BIG), lambda store, value: store.delete_ledgers(value, force=True)),
    ((-1, *BIG), lambda store, value: store.missing(value)),
    ((*BIG, -1), lambda store, value: pa.nack_sizes(5, batch_size=value)),
    ((*BIG, -1), lambda store, value: pa.nack_sizes(5, entries_per_ledger=value)),
    ((-1,), lambda store, value: pa.nack_sizes(5, acknowledged_every=value)),
    ((-5,), lambda store, value: pa.nack_sizes(value)),
    ((-1,), lambda store, value: store.overview(top=value)),
    ((-1,), lambda store, value: store.metrics(top=value)),
    ((-1,), lambda store, value: pa.log_records("absent", jobs=value)),
    ((-1,), lambda store, value: store.export_zookeeper("zk:1", jute_maxbuffer=value)),
    ((-2, *BIG, 10**400), lambda store, value: store.topic(PLAIN).set_retention(time="1h", size=value)),
    ((*REAL, None, -1, 101), lambda store, value: pa.reclaim("b", metadata=store, below_percent=value)),
    (ID[:-3], lambda store, value: store.topic(PLAIN).backlog_size(pa.Position(value, 0))),
    (ID[:-3], lambda store, value: next(iter(store.search(start=pa.Position(9, value))))),
    (BIG, lambda store, value: store.topic(PLAIN).cursor("half").reset(to=pa.Position(9, value))),
    (NUMBER, lambda store, value: store.topic(PLAIN).backlog_size(pa.Position(9, 0, value))),
    (TEXT, lambda store, value: pa.Position.parse(value)),
    (TEXT, lambda store, value: store.reset_cursors([LINE, value])),
    (TEXT, lambda store, value: store.topic(PLAIN).plan_policy("topics set", value, {})),
    (("none",), lambda store, value: store.topic(PLAIN).plan_policy("topics set", value, {})),
    (("acme/orders/x",), lambda store, value: store.namespace("public/default").bundle_range(value)),
    (NUMBER[:-1], lambda store, value: store.topic(PLAIN).set_policy("max-producers", value)),
    *((POLICY, partial(set_policy, policy.name)) for policy in POLICIES if policy.topic is not None),
    (("auto-topic-creation", "backlog-quota"), lambda store, value: store.topic(PLAIN).remove_policy(value)),
    (("max-message-size",), lambda store, value: store.namespace("acme/iot").policy(value)),
    (NUMBER[:-1], lambda store, value: store.create_resource_group("g", publish_bytes=value)),
    ((5,), lambda store, value: store.update_resource_group("g", publish=value)),
    ((5,), lambda store, value: pa.reclaim("b", metadata=store, belo=value)),  # type: ignore[call-overload]
    (("3h",), lambda store, value: store.dump("never", sinse=value)),  # type: ignore[call-arg]
    (PATH, lambda store, value: pa.reclaim("b", metadata="zk:2181", client=value)),
    (PATH, lambda store, value: pa.reclaim("b", metadata=store, scratch=value)),
    (PATH, lambda store, value: store.topic(PLAIN).terminate().save(value)),
    ((None,), lambda store, value: pa.preflight(metadata=value, bookies=[])),
    ((None,), lambda store, value: pa.reclaim("b", metadata=value)),
    ((Path(), "/"), lambda store, value: store.write_bundle(value)),
    (("absent", "."), lambda store, value: store.create_cluster("made", {}, file=value)),
    (WAIT[:-1], lambda store, value: pa.nack_sizes(5).recommended_bits(value)),
    (NUMBER, lambda store, value: pa.nack_sizes(5).recommended_bits(memory_bytes=value)),
    (TEXTS, lambda store, value: store.search(keys=value)),
    (TEXTS, lambda store, value: store.search(texts=value)),
    (TEXTS, lambda store, value: store.search(json_paths=value)),
    (PROPERTIES[:5] + PROPERTIES[6:], lambda store, value: store.search(properties=value)),
    (TEXT[1:], lambda store, value: store.search(producer=value)),
    (TEXT[1:], lambda store, value: store.search(key_prefix=value)),
    (NUMBER[:-1], lambda store, value: store.search(sequence_id=value)),
]
"""Values at and behind the bounds of what is counted, and what no parameter of its own says the kind of."""


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[pa.Store]:
    monkeypatch.chdir(tmp_path)
    with pa.open_store(copied("small", "clean", tmp_path), writable=True, now=NOW_MS) as opened:
        yield opened


def test_a_store_is_not_made_of_a_path() -> None:
    with pytest.raises(TypeError, match=r"open_store\(path\)"):
        pa.Store("pulsar-store")  # type: ignore[arg-type]


def test_a_generator_that_fails_keeps_its_error_and_the_store(store: pa.Store) -> None:
    def lines() -> Iterator[str]:
        yield LINE
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        store.reset_cursors(lines())
    assert store.changes() == ()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert store.apply(store.reset_cursors([LINE])).number == 1


def test_commands_in_hints_name_the_store(store: pa.Store) -> None:
    calls = (lambda: store.undo(99), lambda: store.search("acme/orders/none").to_arrow(), lambda: store.nodes("/none"))
    for call in calls:
        with pytest.raises(pa.NotFound) as raised:
            call()
        assert f"pulsar-admin --store {store.path.resolve()} " in raised.value.hint


def test_numbers_of_numpy_are_numbers(store: pa.Store) -> None:
    assert store.ledger(numpy.int64(9)).ledger_id == 9
    assert store.ledger(9).read(numpy.uint32(2)) == store.ledger(9).read(2)
    assert store.topic(PLAIN).nth_position(numpy.int32(1)) == store.topic(PLAIN).nth_position(1)


REQUIRED: dict[str, object] = {
    **dict.fromkeys(("name", "topic"), PLAIN),
    **dict.fromkeys(("at", "time", "since"), "3h"),
    **dict.fromkeys(("count", "number", "memory_mb"), 1),
    **dict.fromkeys(("most", "least", "coordinator"), 0),
    **dict.fromkeys(("active", "migrated"), True),
    **dict.fromkeys(("messages", "bandwidth"), (1, 2)),
    "urls": {},
    "failover": {},
    **dict.fromkeys(("path", "source", "directory", "dump", "place", "metadata"), "never"),
    "positions": ["9:1"],
    "lines": [LINE],
    "delay": "1m",
    "ahead": "1h",
    "tick_time": "1s",
    "granularity": 1000,
    "address": "zk:1",
    "bookie": "b",
    "bookies": ["b"],
    "subscription": "half",
    "namespaces": ["acme/iot"],
    "zookeeper": [world(CLUSTER) / "clean/zookeeper"],
}
"""What a call needs beside what is wrong, by name; it is never used."""
ONE_OF: dict[str, dict[str, object]] = {
    "open_store": {"path": imported("nometa", "clean")},
    "import_standalone": {"source": world("small") / "clean"},
    "reset": {"time": "3h"},
    "expire": {"before": "3h"},
    "set_isolation_policy": {"primary": ["broker-1"]},
    "set_backlog_quota": {"policy": "producer_exception"},
    "nack_sizes": {"rate": 5},
    "split_bundle": {"bundle": "0x00000000_0xffffffff"},
    "add_lines": {"lines": ["9:1"]},
    "import_cluster": {"metadata": world(CLUSTER) / "clean/zookeeper"},
}
IN_PLACE = {
    "reset": ("to", "shift_by", "like", "as_of"),
    "expire": ("to",),
    "nack_sizes": ("measured",),
    "split_bundle": ("bundle_type",),
}
"""What is given in place of those."""
SET = {
    "True": "import_cluster.verify import_cluster.index import_standalone.verify import_standalone.index log_records.verify "
    "add_parts.verify compare_index.verify rebuild_index.verify refresh.verify internal_info.publish_times stats.backlog_size "
    "internal_stats.publish_times partitioned_internal_stats.publish_times partitioned_stats.backlog_size status.leaked",
    "1": "import_cluster.jobs import_standalone.jobs log_records.jobs open_store.jobs verify_logs.jobs create_scalable_topic.segments",
    "0": "nack_sizes.acknowledged_every create_namespace.bundles entries.first",
    "10": "compare_findings.each doctor.each",
    "5": "overview.top",
    "1000": "metrics.top",
    "1048575": "export_zookeeper.jute_maxbuffer",
}
"""Every default that is a number or a set flag: what else is not given is None or False."""


def _calls(store: pa.Store) -> Iterator[tuple[str, Callable[..., Any], list[inspect.Parameter]]]:
    """Yield every public function and method, by its name, and its parameters."""
    topic = store.topic(PLAIN)
    cursor, namespace = topic.cursor("half"), store.namespace("acme/iot")
    objects = [pa, store, topic, cursor, store.cursors("half", PLAIN), namespace, store.cluster("standalone")]
    objects += [store.transactions(), topic.transactions(), cursor.transactions(), cursor.nacks(), store.nacks("half")]
    objects += [store.ledger(9), topic.compaction(), topic.delayed()]
    for one in objects:
        for name in one.__all__ if one is pa else dir(type(one)):
            call = getattr(one if one is pa else type(one), name)
            if not name.startswith("_") and inspect.isfunction(call):
                bound = getattr(one, name)
                yield name, bound, [*inspect.signature(bound).parameters.values()]


Heard = dict[str, tuple[str, object]]


def _problem(call: Callable[[], Any], said: str | None = None, heard: Heard | None = None, what: Any = None) -> str:
    """Return what is wrong with how CALL refuses what it is given, empty if nothing is; SAID: its whole message.

    HEARD: of which parameter and value each message was first. Said of another value of another parameter, too, it is of neither.
    """
    try:
        found = call()
        found = next(found) if inspect.isgenerator(found) else found
    except pa.InvalidValue as error:
        first = what if heard is None else heard.setdefault(error.message, what)
        is_own = first == what or first[0] == what[0] or first[1] is what[1]
        return "" if error.message and said in (None, error.message) and is_own else f"says {error.message!r}"
    except (pa.StoreError, TypeError, ValueError, AttributeError, AssertionError, OverflowError) as error:
        return repr(error)
    return f"taken, {found}"


def test_every_parameter_of_every_call_is_of_the_kind_that_it_says(store: pa.Store) -> None:
    asked, wrong = 0, []
    defaults: dict[str, set[str]] = {value: set() for value in SET}
    for name, bound, parameters in _calls(store):
        heard: Heard = {}
        needed = [one.name for one in parameters if one.default is one.empty and one.kind not in VARIADIC]
        required = {one: REQUIRED.get(one, "public/x") for one in needed}
        for one in parameters:
            if one.kind is one.VAR_KEYWORD:
                continue
            if isinstance(one.default, int) and one.default is not False:
                defaults.setdefault(repr(one.default), set()).add(f"{name}.{one.name}")
            given = required | ({} if one.name in IN_PLACE.get(name, ()) else ONE_OF.get(name, {}))
            for value in WRONG.get(str(one.annotation), ()):
                if one.kind is one.VAR_POSITIONAL:
                    by_place = [one.name for one in parameters if one.kind is one.POSITIONAL_OR_KEYWORD]
                    by_name = {name: given[name] for name in given if name not in by_place}
                    call = partial(bound, *(given[name] for name in by_place), value, **by_name)
                else:
                    call = partial(bound, **(given | {one.name: value}))
                asked += 1
                said = f"{one.name} {value!r} is not True or False" if one.annotation == "bool" else None
                if problem := _problem(call, said, heard, (one.name, value)):
                    wrong.append(f"{name}({one.name}={value!r}): {problem}")
    assert not wrong, "\n".join(wrong)
    assert asked > 4000
    assert defaults == {value: set(names.split()) for value, names in SET.items()}
    assert store.changes() == ()
    assert [*Path().iterdir()] == [Path("pulsar-store")]


def test_what_is_out_of_bounds_is_one_clear_error(store: pa.Store) -> None:
    for number, (values, call) in enumerate(BEYOND):
        found = [(value, said) for value in values if (said := _problem(partial(call, store, value)))]
        assert found == [], number
    assert store.changes() == ()
    assert [*Path().iterdir()] == [Path("pulsar-store")]


def test_options_of_policies_that_are_none_are_refused(store: pa.Store) -> None:
    """Whatever the policy: a name that its command has not, a value of another kind, and an option that is missing."""
    refused = 0
    for topic_or_namespace, group in (
        (store.topic(PLAIN), "topics"),
        (store.namespace("public/default"), "namespaces"),
    ):
        for name in policies_by_name():
            row = upstream_commands().get(command := f"{group} set-{name}", {})
            options = [name_of(one["names"]) for one in row.get("options", ())]
            for given in (
                {"nonsense": 1},
                *({option: value} for option in options for value in (b"x", {}, "\0", -(10**30))),
            ):
                try:
                    topic_or_namespace.plan_policy(command, name, given)
                except pa.InvalidValue:
                    refused += 1
                except pa.StoreError:
                    assert "nonsense" not in given
                else:
                    assert given.keys() <= {*options}
                    assert not isinstance(next(iter(given.values())), (bytes, dict))
    assert refused > 400


# -- nothing is silently empty: a name that is not there, and a number of another unit, raise --------------------------

ALL = "0x00000000_0xffffffff"
REFUSED = """
NothingMatches | [*store.ledger_rows("nope/ns")]
EntryNotFound | [*store.ledger(9).entries(first=25)]
SubscriptionNotFound | store.nacks("nope").due()
SubscriptionNotFound | store.nacks("nope", "plain").stats()
SubscriptionNotFound | store.nacks("nope").pop()
PathNotFound | store.nodes("/nope")
TopicNotFound | store.metrics(pattern="nope*")
TenantNotFound | store.namespaces("")
TenantNotFound | store.namespaces("publik")
TenantNotFound | store.cluster("standalone").namespaces("nope")
TenantNotFound | store.cluster("standalone").anti_affinity_namespaces("nope", "group")
ResourceNotFound | store.cluster("none").namespaces("acme")
ResourceNotFound | store.cluster("none").anti_affinity_namespaces("acme", "heavy")
ResourceNotFound | store.cluster("none").settings()
ResourceNotFound | store.cluster("none").delete()
ResourceNotFound | store.cluster("standalone").failure_domain("none")
ResourceNotFound | store.cluster("standalone").isolation_policy("none")
ResourceNotFound | store.bookie_rack("none")
ResourceNotFound | store.resource_group("none")
NamespaceNotFound | store.bundle_quota("none/none", ALL)
TenantNotFound | store.tenant("none")
NamespaceNotFound | store.namespace("acme/none")
TenantNotFound | store.create_namespace("shop/orders")
NamespaceNotFound | store.topics("nope/ns")
TopicNotFound | store.topics(pattern="acme/nothing/*")
TopicNotFound | store.topic("public/default/none")
SubscriptionNotFound | store.topic("plain").cursor("none")
SubscriptionNotFound | store.topic("acme/orders/parts").cursor("none")
TopicNotFound | store.topic("acme/orders/parts").terminate()
LedgerNotFound | store.ledger(10**6).info()
LedgerNotFound | store.ledger(10**6).owners()
EntryNotFound | store.ledger(9).read(10**6)
LedgerNotFound | [*store.verify_ledgers(9, 99_999)]
PathNotFound | store.decoded("/nothing")
TopicNotFound | store.namespace("acme/iot").topic_hashes(ALL, ["acme/iot/nope"])
ResourceNotFound | store.namespace("acme/iot").revoke_subscription_permission("none", "app")
Refused | store.namespace("acme/iot").set_allowed_clusters(["none"])
NeedsBroker | running brokers measure | store.namespace("acme/iot").split_bundle(bundle_type="HOT")
SubscriptionNotFound | store.namespace("public/default").clear_backlog("none")
Refused | store.namespace("public/default").clear_backlog("__compaction")
Refused | store.delete_namespace("acme/iot")
Refused | store.set_dynamic_setting("none", "5")
NothingMatches | store.topic("plain").nth_position(301)
NothingMatches | half.forecast("1h")
InvalidValue | store.namespace("acme/iot").topic_hashes(ALL, ["plain"])
InvalidValue | bundle and bundle_type are mutually exclusive | store.namespace("acme/iot").split_bundle(ALL, bundle_type="LARGEST")
InvalidValue | params: bundle / bundle_type | store.namespace("acme/iot").split_bundle()
InvalidValue | store.namespace("public/default").topics(bundle="half")
InvalidValue | store.namespace("public/default").topics(bundle="0x80000000_0x00000000")
InvalidValue | together | store.bundle_quota("acme/iot")
InvalidValue | 'serviceURL' | store.create_cluster("east", {"serviceURL": "http://east"})
InvalidValue | store.topic("plain").grant_permission("app", ["dance"])
InvalidValue | an earlier state has positions of its own | store.topic("plain").cursor("half").reset(as_of="1h", exclude=True)
InvalidValue | an earlier state has positions of its own | store.topic("plain").cursor("half").reset(as_of="1h", until="1h")
InvalidValue | only an earlier state may be unsure | store.topic("plain").cursor("half").reset(to="earliest", if_unsure="skip")
InvalidValue | only an earlier state may be unsure | store.topic("plain").cursor("half").reset(to="earliest", zookeeper=["zk"])
InvalidValue | alone | store.topics("acme/iot", pattern="acme/*")
InvalidValue | store.topics("acme")
InvalidValue | store.topics("acme/iot/*")
InvalidValue | store.topics("")
InvalidValue | subscription | store.topic("plain").delayed().build()
InvalidValue | granularity 9223372036854775808: | store.namespace("acme/delayed").enable_delayed(2**63)
InvalidValue | tick 0: | store.namespace("acme/delayed").enable_delayed("5m", 0)
InvalidValue | store.namespace("acme/delayed").set_message_ttl(timedelta(days=-1))
InvalidValue | store.namespace("acme/delayed").set_message_ttl(timedelta(days=30_000))
InvalidValue | 2,147,483,647 partitions of .*: expected at most 1,000,000 | store.create_topic("acme/orders/many", partitions=2**31 - 1)
InvalidValue | 2,147,483,647 partitions of .*: expected at most 1,000,000 | store.topic("acme/orders/parts").set_partitions(2**31 - 1)
InvalidValue | store.topic("plain").timeline(clock="event")
InvalidValue | store.topic("plain").timeline("0s")
InvalidValue | store.topic("plain").skew(tolerance="soon")
InvalidValue | ^bookie: it is empty | store.set_bookie_rack("", "/rack-1")
InvalidValue | as the name of a resource group | store.create_resource_group("")
InvalidValue | as the name of a failure domain | store.cluster("standalone").create_failure_domain("", ["broker"])
InvalidValue | top -1: expected a whole number of 0 or more | store.why_bytes(top=-1)
InvalidValue | each 0 | store.doctor(each=0)
InvalidValue | index -1 | store.topic("plain").find_by_index(-1)
InvalidValue | number 0 | store.topic("plain").nth_position(0)
InvalidValue | sequence_id -5 | store.topic("plain").search(sequence_id=-5)
InvalidValue | first=5 is after last=2 | [*store.ledger(9).entries(first=5, last=2)]
InvalidValue | first=0 is after last=-1 | [*store.ledger(9).entries(last=-1)]
InvalidValue | negative | store.topic("plain").find(timedelta(hours=-3))
InvalidValue | negative | store.namespace("acme/delayed").set_retention(time=timedelta(minutes=-1), size="1G")
InvalidValue | negative | store.namespace("acme/delayed").set_delayed_delivery(active=True, tick=timedelta(seconds=-1))
InvalidValue | negative | half.expire(before=timedelta(seconds=-5))
InvalidValue | half.forecast("1h", ttl="0s")
InvalidValue | is not an answer | pa.to_json(store)
InvalidValue | is not an answer | pa.to_json(half)
InvalidValue | is not an answer | pa.to_json([half.skip(1)])
InvalidValue | is not an answer | pa.to_json(store.topic("plain").messages())
NamespaceNotFound | store.scalable_topics("acme/nowhere")
TenantNotFound | store.namespaces("acme/orders")
TenantNotFound | store.namespaces("acme/")
TenantNotFound | store.tenant("acme/orders")
InvalidValue | no policy of topics is called max-topics | store.topic_policies("plain").answers("max-topics-per-namespace")
InvalidValue | no policy of namespaces is called nope | store.namespace("acme/delayed").plan_policy("namespaces set-nope", "nope", {})
InvalidValue | store.namespace("acme/delayed").set_policy("offload-deletion-lag", 2**70)
InvalidValue | at most | store.topic("plain").set_policy("retention", {"retentionTimeInMinutes": 2**31, "retentionSizeInMB": 1})
InvalidValue | means seconds | store.topic("plain").find("1795252993")
InvalidValue | no change in lines | store.reset_cursors([])
InvalidValue | lines line 1 | store.reset_cursors(["[]"])
InvalidValue | unknown key 'to' | store.reset_cursors(['{"topic": "plain", "subscription": "half", "to": "9:3"}'])
InvalidValue | unknown key '1' | store.reset_cursors([{1: 2, "x": 3}])
InvalidValue | a resource group has no publish | store.create_resource_group("g", publish="x")
SubscriptionNotFound | store.cursors("half", "plain", "acme/iot/skewed").skip(1)
InvalidValue | store.cursors("half", "plain", pattern="acme/*")
InvalidValue | half.reset()
InvalidValue | half.reset(to="9:3", shift_by=1)
InvalidValue | half.reset(time="1h", clock="event")
InvalidValue | half.reset(shift_by=1, exclude=True)
InvalidValue | half.reset(as_of="metadata", exclude=True)
InvalidValue | half.reset(as_of="metadata", to="9:3")
InvalidValue | half.reset(as_of="3h", if_unsure="guess")
InvalidValue | half.reset(to="29:20", if_unsure="redeliver")
InvalidValue | half.reset(to="29:20", zookeeper=["zk"])
InvalidValue | half.reset(time="1h", rule="all")
InvalidValue | half.expire()
InvalidValue | half.expire(before="1h", by_ttl=True)
InvalidValue | give exactly one | half.expire(before="1h", to="9:3")
InvalidValue | give exactly one | half.expire(to="9:3", by_ttl=True)
InvalidValue | only a position can be excluded | half.expire(by_ttl=True, exclude=True)
InvalidValue | half.expire(before="2026-11-21T09:23:30Z", exclude=True, force=True)
InvalidValue | half.expire(before="1h", rule="broker", clock="publish")
InvalidValue | half.expire(before="1h", rule="exact")
InvalidValue | a number of entries is 0 or more | half.skip(-1)
InvalidValue | has positions of its own | half.reset(as_of="metadata", exclude=True)
InvalidValue | only a position can be excluded | half.expire(before="1h", exclude=True)
InvalidValue | first=3 is after last=2 | [*store.ledger(9).entries(first=3, last=2)]
InvalidValue | is not in the namespace acme/iot | store.namespace("acme/iot").topic_hashes(ALL, ["public/default/plain"])
InvalidValue | name a subscription | store.topic("plain").delayed().build()
InvalidValue | is not above 0 | store.topic("plain").timeline(bucket="0s")
InvalidValue | is not one of | store.topic("plain").find("3h", rule="first")
InvalidValue | is not one of | store.topic("plain").find("3h", clock="wall")
InvalidValue | is not one of | store.topic("plain").find("3h", broker_version="3.0")
InvalidValue | is not one of | store.namespace("acme/delayed").set_backlog_quota("drop", size=5)
Refused | store.topic("acme/orders/compacted").cursor("__compaction").clear()
Refused | store.topic("acme/orders/compacted").cursor("__compaction").skip(1)
Refused | store.topic("acme/orders/compacted").cursor("__compaction").delete()
Refused | store.delete_namespace("acme/iot")
Refused | store.ledger(9).forget()
InvalidValue | keys is empty | store.topic("plain").search(keys=[])
InvalidValue | texts is empty | store.search(texts=())
TopicNotFound | store.topic("plain").partitioned_stats()
TopicNotFound | store.topic("plain").partitioned_internal_stats()
InvalidValue | a migration has no serviceurl | store.cluster("standalone").set_migration(migrated=True, urls={"serviceurl": "http://a"})
InvalidValue | payload is of the table messages | store.export_tables("/dev/null/tables", payload=True)
InvalidValue | only Iceberg tables have a catalogue | store.export_tables("/dev/null/tables", catalog="sqlite:///c")
InvalidValue | for a single restored topic | store.undelete("acme/secure/trimmed", "plain", to="x", by_evidence=True)
InvalidValue | for a single restored topic | store.undelete("acme/secure/trimmed", to="x", in_place=True)
InvalidValue | exact bytes, which nothing hides | store.dump("/dev/null/dump", "plain", level="entries", redact=True)
InvalidValue | is in one of 2 topics | store.cursors("new", "plain", "json").create(start="9:3")
InvalidValue | topics of an earlier recovery | store.recover(rename="x", level="C")
InvalidValue | is a state of one subscription | store.cursors("reset-me").reset(as_of="metadata")
InvalidValue | no bookie is named | store.export_bookies([])
InvalidValue | neither a path nor an open file | store.load(5)
InvalidValue | is not between 1970 | store.topic("plain").find(-5)
InvalidValue | Schema file absent.json is not found | store.topic("plain").upload_schema("absent.json")
InvalidValue | to names the restored | store.restore("plain", at=NOW_MS, to="x", in_place=True)
"""  # the error, a part of its message where more than one is meant, and the call


@pytest.mark.parametrize("row", REFUSED.strip().splitlines())
def test_what_is_not_there_or_means_nothing_raises(demo_store: Path, row: str) -> None:
    error, *said, call = row.split(" | ")
    with pa.open_store(demo_store, now=NOW_MS) as store:
        names = {
            "ALL": ALL,
            "pa": pa,
            "NOW_MS": NOW_MS,
            "store": store,
            "half": store.topic("plain").cursor("half"),
            "timedelta": timedelta,
        }
        with pytest.raises(getattr(pa, error), match=said[0] if said else None) as raised:
            eval(call, names)
    assert type(raised.value) is getattr(pa, error)


def test_a_position_of_one_topic_is_one_of_all_of_its_subscriptions(store: pa.Store) -> None:
    """Positions are of a topic: however many of its cursors move there, none of them is in another one."""
    plain, names = store.cursors(None, "plain"), store.topic("plain").subscriptions()
    for plan in (plain.reset(to="9:3"), plain.expire(to="9:3")):
        assert sorted(part.subscription for part in plan.preview().parts) == sorted(names)
    for ask in (store.cursors("reset-me").reset, store.cursors("reset-me").expire):
        with pytest.raises(pa.InvalidValue, match="for 6 topics"):
            ask(to="9:3")


def test_what_is_there_and_empty_is_empty(store: pa.Store) -> None:
    """Names that are there: a subscription that keeps no negative acks, a node with none below it, a tenant without such namespaces."""
    assert store.nacks("half").due() == ()
    assert store.nacks("half", "plain").stats() == ()
    assert store.nodes("/ledgers/INSTANCEID") == ()
    assert store.cluster("standalone").namespaces("acme") == ()
    iot = store.namespace("acme/iot")
    assert (iot.anti_affinity_group(), iot.bookie_affinity_group(), iot.properties()) == (None, None, {})
    assert store.ledger(9).info().entries == len([*store.ledger(9).entries()]) == 25
    hashes = store.namespace("acme/iot").topic_hashes(ALL, ["acme/iot/skewed"])
    assert [*hashes.topic_hash_positions] == ["persistent://acme/iot/skewed"]


@pytest.mark.parametrize(
    "words",
    [
        ("ledgers", "list", "--topic", "nope/ns"),
        ("ledgers", "entries", "9", "--from", "25"),
        ("nacks", "due", "-s", "nope"),
        ("metrics", "--pattern", "nope*"),
    ],
)
def test_so_it_is_on_the_command_line(cli: Cli, words: tuple[str, ...]) -> None:
    assert cli("--store", imported("small", "clean"), *words).ends(5).stdout == ""
