"""A bookie's small files and file names."""

import pytest

from pulsar_admin.store.codec import bookie as codec
from pulsar_admin.store.codec.properties import parse_properties
from pulsar_admin.store.errors import MetadataCorrupt, Unsupported

COOKIE_V5 = rb"""5
bookieHost: "10.0.0.1:3181"
journalDir: "/j0,/j1"
ledgerDirs: "2\t/l0\t/l1"
instanceId: "df0d0a12-4906-401f-a364-f0dec27a8e10"
indexDirs: "1\t/i0"
"""


def test_cookie_versions() -> None:
    dirs = (("/j0", "/j1"), ("/l0", "/l1"))
    instance = "df0d0a12-4906-401f-a364-f0dec27a8e10"
    assert codec.decode_cookie(COOKIE_V5, "VERSION") == codec.Cookie(5, "10.0.0.1:3181", *dirs, instance, ("/i0",))
    version_4 = b"4" + COOKIE_V5[1 : COOKIE_V5.index(b"indexDirs")]
    assert codec.decode_cookie(version_4, "VERSION") == codec.Cookie(4, "10.0.0.1:3181", *dirs, instance)
    assert codec.decode_cookie(version_4 + b'indexDirs: ""\n', "VERSION") == codec.decode_cookie(version_4, "VERSION")
    no_instance = version_4.replace(instance.encode(), b"")
    assert codec.decode_cookie(no_instance, "VERSION") == codec.Cookie(4, "10.0.0.1:3181", *dirs)
    version_3 = b"3\n10.0.0.1:3181\n/j0,/j1\n2\t/l0\t/l1\n"
    assert codec.decode_cookie(version_3, "VERSION") == codec.Cookie(3, "10.0.0.1:3181", *dirs)
    for data in (COOKIE_V5, version_4, version_3):
        assert codec.encode_cookie(codec.decode_cookie(data, "VERSION")) == data


def test_an_empty_cookie_is_called_empty() -> None:
    with pytest.raises(
        MetadataCorrupt, match="VERSION: first line of a cookie: expected a layout version, found an empty file"
    ):
        codec.decode_cookie(b"", "VERSION")


@pytest.mark.parametrize("version", [b"0", b"2", b"6"])
def test_unknown_cookies_are_unsupported(version: bytes) -> None:
    with pytest.raises(Unsupported):
        codec.decode_cookie(version + COOKIE_V5[1:], "VERSION")


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"x\n", b"5\n", b"5", b"3\na\nb", b"3\na\nb\n2\t/l0\n", b"3\na\nb\n\n"),
        *(COOKIE_V5.replace(b"2\\t", b"3\\t"), COOKIE_V5.replace(b"bookieHost", b"bookieHos")),
        *(COOKIE_V5 + b"\xff", COOKIE_V5.replace(b"10.0.0.1", b"\\377")),
    ],
)
def test_damaged_cookies_are_refused(data: bytes) -> None:
    with pytest.raises(MetadataCorrupt):
        codec.decode_cookie(data, "VERSION")


def test_last_mark_vector() -> None:
    data = bytes.fromhex("0000018795c6b58c 0000000000000400")
    assert codec.encode_last_mark(codec.LogMark(0x18795C6B58C, 1024)) == data
    assert codec.LogMark(2, 0) > codec.LogMark(1, 99)


def test_last_id() -> None:
    assert codec.decode_last_id(b"1f4\n", "lastId") == 500
    assert codec.decode_last_id(b"0", "lastId") == 0
    assert codec.encode_last_id(500) == b"1f4\n"
    for data in (b"", b"\n", b"x\n", b"-1\n", b"1_0\n"):
        with pytest.raises(MetadataCorrupt):
            codec.decode_last_id(data, "lastId")


# -- Java properties ------------------------------------------------------------------------------------------------


def test_lines_of_the_documentation() -> None:
    """Of the class's page in Java 17: separators, continued lines, comments, escapes, a key alone."""
    text = (
        "Truth = Beauty\n Truth2:Beauty\nTruth3   :Beauty\n"
        "fruits                           apple, banana, pear, \\\n                                 cantaloupe, watermelon, \\\n"
        "                                 kiwi, mango\ncheeses\n"
        "# comment = x\n   ! another\n\nk\\:e\\=y = a\\tb\\u0041\\\\\nlast=1\nlast=2\n"
    )
    assert parse_properties(text) == {
        "Truth": "Beauty",
        "Truth2": "Beauty",
        "Truth3": "Beauty",
        "fruits": "apple, banana, pear, cantaloupe, watermelon, kiwi, mango",
        "cheeses": "",
        "k:e=y": "a\tbA\\",
        "last": "2",
    }
