"""The options of ``pulsar_entries``: what texts mean, and what is refused."""

from typing import Any

import pytest

from pulsar_admin.store.errors import InvalidValue
from pulsar_admin.store.scan.datasource import read_stream_options, stream_reader
from pulsar_admin.store.scan.operations import ReadEntries
from pulsar_admin.store.scan.source_options import OPTIONS, is_catalogue, paths_of, read_options, table_options

MIB = 1 << 20


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("sliceBytes", "64m", 64 * MIB),
        ("SLICEBYTES", "2000000", 2_000_000),
        ("path", "/a, /b/*.log", ("/a", "/b/*.log")),
        ("path", "/a/{0,1}.log,/b/{c,{d,e}}/*.log,", ("/a/{0,1}.log", "/b/{c,{d,e}}/*.log")),
        ("paths", '["/a", "/b,c"]', ("/a", "/b,c")),
        ("recursivefilelookup", "True", True),
        ("checksums", "no", False),
        ("ledgers", "3, 17", (3, 17)),
        ("startTime", "1795253000000", 1_795_253_000_000),
        ("endTime", "-1", -1),
        ("startTime", "1970-01-02", 86_400_000),
        ("startTime", "@86400", 86_400_000),
        ("level", " Messages", "messages"),
        ("topics", "", ""),
    ],
)
def test_a_text_becomes_a_value(name: str, text: str, value: Any) -> None:
    found = {key.lower(): held for key, held in read_options({name: text}).items()}
    assert found[name.lower()] == value


@pytest.mark.parametrize(
    ("name", "text", "said", "hint"),
    [
        ("topik", "a", "there is no option topik", "did you mean topics?"),
        ("slice_bytes", "1", "there is no option slice_bytes", "did you mean sliceBytes?"),
        ("zzz", "a", "there is no option zzz", "there are path, "),
        ("sliceBytes", "64mb", "option sliceBytes: Invalid size '64mb'", "no B"),
        ("sliceBytes", "0", "option sliceBytes: '0' is less than 4096 bytes", "64m"),
        ("checksums", "of", "option checksums: 'of' is neither true nor false", "write true or false"),
        ("level", "message", "option level: 'message' is none of entries, messages", ""),
        ("ledgers", "3;4", "option ledgers: '3;4' is no list of ledger ids", "3,17"),
        ("paths", "/a", "option paths: '/a' is no JSON list of texts", '["/a/current"'),
        ("paths", '["/a", 1]', "option paths: '[\"/a\", 1]' is no JSON list of texts", '["/a/current"'),
        ("startTime", "yesterday-ish", "option startTime: ", ""),
    ],
)
def test_what_is_wrong_is_named(name: str, text: str, said: str, hint: str) -> None:
    with pytest.raises(InvalidValue) as raised:
        read_options({name: text})
    assert raised.value.message.startswith(said)
    assert hint in raised.value.hint


def test_a_table_of_a_catalogue_keeps_the_options_that_it_was_made_with() -> None:
    """What Spark 4.3 hands over for CREATE TABLE … USING … OPTIONS (…) LOCATION …, with properties of the user's own."""
    given = {
        "provider": "pulsar_entries",
        "owner": "me",
        "comment": "topics",
        "location": "file:/a%20b/current",
        "path": "file:/a%20b/current",
        "level": "messages",
        "option.level": "messages",
    }
    assert is_catalogue(given)
    assert not is_catalogue({"path": "/a"})
    values = read_options(given)
    assert (values["path"], values["level"]) == (("/a b/current",), "messages")
    assert table_options(given) == '{"level": "messages", "path": "/a b/current"}'
    with pytest.raises(InvalidValue, match="there is no option lvl"):
        read_options({**given, "option.lvl": "x"})


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("file:/a b/c%20d", "/a b/c%20d"),
        ("file:///a b/c%20d", "/a b/c%20d"),
        ("/a/file:/b", "/a/file:/b"),
        ("file://host/a", "file://host/a"),
        ("s3://a/b%20c", "s3://a/b%20c"),
    ],
)
def test_a_url_of_a_local_file_is_its_path_as_for_sparks_own_sources(path: str, meant: str) -> None:
    assert paths_of(read_options({"path": path})) == (meant,)


def test_a_batch_of_a_stream_has_one_limit() -> None:
    values = read_stream_options({"path": "/x", "maxFilesPerTrigger": "2", "maxBytesPerTrigger": "1m"})
    with pytest.raises(InvalidValue, match="exclude each other"):
        stream_reader(ReadEntries(), values)


def test_every_option_has_a_meaning_and_a_name_of_its_own() -> None:
    assert len({option.name.lower() for option in OPTIONS}) == len(OPTIONS)
    assert all(option.meaning for option in OPTIONS)
