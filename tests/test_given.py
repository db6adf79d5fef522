"""Files and text that others give: whatever is in them, one clear error and no traceback."""

import pytest

from pulsar_admin.store.codec.strict_values import DEPTH_MAX, integer, json_value, parse_integer
from pulsar_admin.store.names import parse_topic


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff",
        b"\xff\xfe{\x00}\x00",  # UTF-16, which Python would read
        b"NaN",
        b"[Infinity]",
        b"[-Infinity]",
        b"[1e999]",
        b"[-1e999]",
        b'["\\ud800"]',
        b'{"\\uDfff": 1}',
        b"[" * 100_000,
        b"[" * (DEPTH_MAX + 1) + b"]" * (DEPTH_MAX + 1),
        b'{"a":' * (DEPTH_MAX + 1) + b"1" + b"}" * (DEPTH_MAX + 1),
        b"9" * 5000,
        b"[1] x",
    ],
)
def test_what_is_no_json_of_ours(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        json_value(data)


@pytest.mark.parametrize("value", [True, 1.0, "1", None, [], -1, 2**63, 10**4000])
def test_what_is_no_number(value: object) -> None:
    with pytest.raises(ValueError, match=r"^rows: expected") as caught:
        integer(value, "rows")
    assert len(str(caught.value)) < 100


def test_numbers_of_ascii_digits_only() -> None:
    assert [parse_integer(word) for word in ("0", "007", "9223372036854775807")] == [0, 7, 2**63 - 1]
    for word in ("", "-1", "+1", "²", "٣", "1_0", " 1", "9223372036854775808", "1" * 4300):
        assert parse_integer(word) is None, word


@pytest.mark.parametrize(
    ("number", "index"),
    [
        ("0", 0),
        ("7", 7),
        ("007", -1),
        ("00", -1),
        ("2147483647", 2**31 - 1),
        ("2147483648", -1),
        ("1" * 4300, -1),
        ("0" * 5000, -1),
        ("²", -1),
    ],
)
def test_partition_numbers_are_java_ints(number: str, index: int) -> None:
    """As ``TopicName.getPartitionIndex`` of 4.0.8 answers: a number with zeros before it is of no partition."""
    topic = parse_topic(f"public/default/t-partition-{number}")
    assert topic.partition_index == index
    assert topic.base.local_name == ("t" if index >= 0 else topic.local_name)
