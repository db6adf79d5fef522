"""Records kept as bytes behave as a list of the records does."""

import random

import pytest
from msgspec import Struct

from pulsar_admin.store.changes.packed import Packed


class _Record(Struct, frozen=True):
    number: int


@pytest.mark.parametrize("seed", range(5))
def test_packed_records_are_those_of_a_list(seed: int) -> None:
    """Whatever is added, put first and cut: all, each by its place, and slices are what a list has."""
    draw = random.Random(seed)
    packed, expected = Packed(_Record), list[_Record]()
    for number in range(40):
        some = [_Record(draw.randrange(1 << 40)) for _ in range(draw.choice([0, 1, 700, 1024, 3000]))]
        step = draw.choice(["extend", "packed", "first", "cut"])
        if step == "extend":
            packed.extend(some)
            expected.extend(some)
        elif step == "packed":
            packed.extend(Packed(_Record, some))
            expected.extend(some)
        elif step == "first":
            packed.put_first(_Record(number))
            expected.insert(0, _Record(number))
        else:
            length = len(expected) - draw.randrange(min(len(expected), 2500) + 1)
            packed.cut(length)
            del expected[length:]
        assert [*packed] == expected
        assert len(packed) == len(expected)
        places = [0, 1, 1023, 1024, 1025, -1, *(draw.randrange(len(expected)) for _ in range(20) if expected)]
        for at in places:
            if -len(expected) <= at < len(expected):
                assert packed[at] == expected[at]
        assert packed[1000:1050] == expected[1000:1050]
        assert packed[::-701] == expected[::-701]
    with pytest.raises(IndexError):
        packed[len(expected)]
