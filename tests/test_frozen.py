"""``store.frozen`` makes what the standard decorator makes."""

from __future__ import annotations

import copy
import inspect
import pickle
import sys
from collections.abc import Callable
from dataclasses import FrozenInstanceError, asdict, dataclass, field, fields, replace
from pathlib import Path
from threading import Barrier, Thread
from typing import Any, get_type_hints

import pytest

from store.frozen import frozen


@frozen(order=True)
class Cheap:
    """A class of each kind of field."""

    number: int
    text: str = "a"
    items: list[int] = field(default_factory=list)
    hidden: int = field(default=0, compare=False, repr=False)


@dataclass(frozen=True, slots=True, order=True)
class Standard:
    """The same."""

    number: int
    text: str = "a"
    items: list[int] = field(default_factory=list)
    hidden: int = field(default=0, compare=False, repr=False)


_WRITTEN: dict[str, Any] = {
    "__annotations__": Standard.__annotations__,
    "__module__": __name__,
    "text": "a",
    "items": field(default_factory=list),
    "hidden": field(default=0, compare=False, repr=False),
}
_SAMPLES = [(1,), (1, "b"), (1, "a", [3]), (2, "a", []), (1, "a", [], 7), (1, "a", [3], 8)]


def test_instances_compare_as_the_standard_ones() -> None:
    comparisons: list[Callable[[Any, Any], object]] = [
        lambda a, b: a == b,
        lambda a, b: a != b,
        lambda a, b: a < b,
        lambda a, b: a <= b,
        lambda a, b: a > b,
        lambda a, b: a >= b,
    ]
    for one in _SAMPLES:
        for other in _SAMPLES:
            for compare in comparisons:
                assert compare(Cheap(*one), Cheap(*other)) == compare(Standard(*one), Standard(*other)), (one, other)
    assert Cheap(1) != Standard(1)
    assert Cheap(1) != (1, "a", [])
    with pytest.raises(TypeError):
        assert Cheap(1) < 1


def test_instances_look_as_the_standard_ones() -> None:
    for sample in _SAMPLES:
        cheap, standard = Cheap(*sample), Standard(*sample)
        assert repr(cheap) == repr(standard).replace("Standard", "Cheap")
        assert asdict(cheap) == asdict(standard)
        assert replace(cheap, text="z") == Cheap(cheap.number, "z", cheap.items, cheap.hidden)
    assert [one.name for one in fields(Cheap)] == [one.name for one in fields(Standard)]
    assert Cheap.__match_args__ == Standard.__match_args__
    assert list(inspect.signature(Cheap).parameters) == list(inspect.signature(Standard).parameters)
    assert not hasattr(Cheap(1), "__dict__")


def test_instances_copy_and_pickle() -> None:
    found = Cheap(1, "b", [3], 4)
    for made in (copy.copy(found), copy.deepcopy(found), pickle.loads(pickle.dumps(found))):
        assert (made, made.hidden) == (found, 4)


def test_defaults_are_made_anew() -> None:
    assert Cheap(1).items is not Cheap(1).items


def test_a_field_without_a_default_behind_one_with_it_is_no_class() -> None:
    with pytest.raises(AssertionError, match="without a default"):

        @frozen
        class Wrong:
            first: list[int] = field(default_factory=list)
            second: int


def test_hashes_are_of_the_compared_fields() -> None:
    @frozen
    class Point:
        x: int
        y: int = field(default=0, compare=False)

    assert hash(Point(1, 2)) == hash(Point(1, 3)) != hash(Point(2, 2))
    with pytest.raises(TypeError, match="unhashable"):
        hash(Cheap(1))  # as its list is


def test_nothing_is_set_or_deleted() -> None:
    found = Cheap(1)
    with pytest.raises(FrozenInstanceError, match="'number'"):
        found.number = 2  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError, match="'number'"):
        del found.number
    assert found.number == 1


def test_what_a_class_defines_itself_stays() -> None:
    seen = []

    @frozen
    class Own:
        x: int

        def __post_init__(self) -> None:
            seen.append(self.x)

        def __repr__(self) -> str:
            return "own"

    assert repr(Own(5)) == "own"
    assert seen == [5]


def test_a_missing_argument_is_named() -> None:
    with pytest.raises(TypeError, match=r"Cheap\.__init__\(\) missing 1 required positional argument: 'number'"):
        Cheap()  # type: ignore[call-arg]


def test_the_first_instances_are_made_as_the_later_ones() -> None:
    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = [((), named) for named in ({}, {"number": 1}, {"text": "b"})]
    calls += [(sample, {}) for sample in _SAMPLES]
    calls += [((1,), named) for named in ({"hidden": 3}, {"number": 2}, {"items": [4], "text": "c"}, {"other": 1})]
    calls += [((1, "b", [], 4, 5), {}), ((1, "b", [], 4), {"hidden": 5}), ((), {"number": 1, "other": 2})]

    def outcome(made: Any, values: tuple[Any, ...], named: dict[str, Any]) -> object:
        try:
            found = made(*values, **named)
        except TypeError as error:
            return str(error)
        return found.number, found.text, found.items, found.hidden

    for values, named in calls:
        first = frozen(type("Standard", (), {**_WRITTEN}))
        later = frozen(type("Standard", (), {**_WRITTEN}))
        inspect.signature(later)  # compiles it
        assert outcome(first, values, named) == outcome(later, values, named) == outcome(Standard, values, named)


def test_threads_that_look_at_a_class_at_once_see_all_of_its_fields() -> None:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(200):

            @frozen
            class Fresh:
                items: list[int] = field(default_factory=list)
                hidden: str = field(default="secret", repr=False)

            seen: list[str] = []
            _at_once(6, lambda made=Fresh, seen=seen: seen.append(repr(made([1]))))  # type: ignore[misc]
            assert {one.rpartition(".")[2] for one in seen} == {"Fresh(items=[1])"}
            assert len(seen) == 6
            assert [one.repr for one in fields(Fresh)] == [True, False]
            assert fields(Fresh)[0].default_factory is list
    finally:
        sys.setswitchinterval(interval)


def _at_once(count: int, work: Callable[[], object]) -> None:
    barrier = Barrier(count)

    def run() -> None:
        barrier.wait()
        work()

    threads = [Thread(target=run) for _ in range(count)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()


def test_others_inherit_as_from_the_standard_ones() -> None:
    for base in (Cheap, Standard):

        @dataclass(frozen=True)
        class More(base):  # type: ignore[misc, valid-type]
            more: int = 9

        made = More(1, "b")
        assert (made.number, made.text, made.more, made == More(1, "b")) == (1, "b", 9, True)
        with pytest.raises(FrozenInstanceError, match="'more'"):
            made.more = 1
        with pytest.raises(TypeError, match="cannot inherit non-frozen"):

            @dataclass
            class Loose(base):  # type: ignore[misc, valid-type]
                more: int = 9


@frozen
class Placed:
    """A class whose field is of a type that only its module knows."""

    path: Path
    other: Cheap


def test_types_of_arguments_are_found_where_the_class_is() -> None:
    types = {"path": Path, "other": Cheap}
    assert get_type_hints(Placed) == types
    assert get_type_hints(Placed.__init__) == {**types, "return": type(None)}
    assert inspect.signature(Placed, eval_str=True).parameters["path"].annotation is Path
