"""Whatever callers give, one clear error: nothing ends deep inside, and nothing is planned of what makes no sense."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy
import pytest

import pulsar_admin as pa
from pulsar_admin.store.policies.table import policies_by_name
from pulsar_admin.upstream_list import name_of, upstream_commands
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


def test_numbers_of_numpy_are_numbers(store: pa.Store) -> None:
    assert store.ledger(numpy.int64(9)).ledger_id == 9
    assert store.ledger(9).read(numpy.uint32(2)) == store.ledger(9).read(2)
    assert store.topic(PLAIN).nth_position(numpy.int32(1)) == store.topic(PLAIN).nth_position(1)


REQUIRED: dict[str, object] = {
    "name": PLAIN,
    "topic": PLAIN,
    "at": "3h",
    "positions": ["9:1"],
    "lines": [LINE],
    "delay": "1m",
    "count": 1,
    "number": 1,
    "time": "3h",
    "coordinator": 0,
    "path": "never",
    "source": "never",
    "directory": "never",
    "dump": "never",
    "place": "never",
    "address": "zk:1",
    "bookie": "b",
    "bookies": ["b"],
    "metadata": "never",
    "urls": {},
    "messages": (1, 2),
    "bandwidth": (1, 2),
    "memory_mb": 1,
    "tick_time": "1s",
    "subscription": "half",
    "granularity": 1000,
    "namespaces": ["acme/iot"],
    "failover": {},
    "most": 0,
    "least": 0,
    "ahead": "1h",
    "since": "3h",
    "active": True,
    "migrated": True,
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
    for name, bound, parameters in _calls(store):
        heard: Heard = {}
        needed = [one.name for one in parameters if one.default is one.empty and one.kind not in VARIADIC]
        required = {one: REQUIRED.get(one, "public/x") for one in needed}
        for one in parameters:
            if one.kind is one.VAR_KEYWORD:
                continue
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
