"""The interceptor chain: upstream's names, upstream's index rule, and interceptors of others by entry point."""

from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest
from msgspec.structs import replace

from pulsar_admin.store.codec.brokerentry import BrokerEntry, encode_broker_entry
from pulsar_admin.store.codec.interceptors import (
    ENTRY_POINT_GROUP,
    Append,
    open_chain,
    parse_interceptors,
    read_broker_conf,
)
from pulsar_admin.store.errors import InvalidValue

TIMESTAMP, INDEX = "AppendBrokerTimestampMetadataInterceptor", "AppendIndexMetadataInterceptor"
PACKAGE = "org.apache.pulsar.common.intercept."


class Midnight:
    """Rounds the broker's clock down to the day, as an interceptor of others."""

    def intercept(self, entry: BrokerEntry, append: Append) -> BrokerEntry:
        return replace(entry, timestamp_ms=append.now_ms - append.now_ms % 86_400_000)


class Nothing:
    """No interceptor at all."""


@pytest.fixture
def _others(monkeypatch: pytest.MonkeyPatch) -> None:
    points = EntryPoints(
        EntryPoint(name, f"tests.test_interceptors:{name}", ENTRY_POINT_GROUP) for name in ("Midnight", "Nothing")
    )
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **params: points.select(**params))


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", ()),
        (" , ", ()),
        ("timestamp,index", (TIMESTAMP, INDEX)),
        (f"{PACKAGE}{INDEX}, {TIMESTAMP}", (INDEX, TIMESTAMP)),
        (f"index,{INDEX},{PACKAGE}{INDEX}", (INDEX,)),
    ],
)
def test_names(text: str, names: tuple[str, ...]) -> None:
    assert parse_interceptors(text) == names


@pytest.mark.usefixtures("_others")
def test_an_unknown_name_lists_the_known() -> None:
    with pytest.raises(InvalidValue, match="Append") as caught:
        parse_interceptors("index,AppendNothing")
    assert all(name in caught.value.hint for name in ("timestamp", "index", TIMESTAMP, INDEX, "Midnight"))


def test_an_empty_chain_puts_no_header() -> None:
    chain = open_chain(())
    assert not chain
    assert chain.intercept(Append(1, 1)) is None


def test_the_bytes_are_those_of_the_vector() -> None:
    """Broker time 1700000000005 and index 0 in front of an entry; computed apart from this code."""
    entry = open_chain((INDEX, TIMESTAMP)).intercept(Append(1_700_000_000_005, 1))
    assert entry is not None
    assert encode_broker_entry(entry).hex() == "0e0200000009" + "0885d095ffbc31" + "1000"


@pytest.mark.parametrize(
    ("properties", "last", "index"),
    [
        ({}, None, 0),
        ({"index": "41"}, None, 42),
        ({"index": "-1"}, None, 0),
        ({"index": "none"}, None, 0),
        ({"index": "41"}, BrokerEntry(None, 99), 100),
        ({"index": "41"}, BrokerEntry(5, None), 42),
    ],
)
def test_a_chain_goes_on_where_the_topic_is(properties: dict[str, str], last: BrokerEntry | None, index: int) -> None:
    chain = open_chain((INDEX,))
    chain.recover(properties, last)
    assert chain.intercept(Append(0, 1)) == BrokerEntry(None, index)


@pytest.mark.usefixtures("_others")
def test_an_interceptor_of_others() -> None:
    chain = open_chain(parse_interceptors("timestamp,Midnight,index"))
    assert chain.intercept(Append(1_700_000_000_000, 2)) == BrokerEntry(1_699_920_000_000, 1)


@pytest.mark.usefixtures("_others")
def test_an_entry_point_that_makes_something_else() -> None:
    with pytest.raises(InvalidValue, match="Nothing"):
        open_chain(parse_interceptors("Nothing"))


def test_a_broker_conf_is_java_properties(tmp_path: Path) -> None:
    """As ``Properties.load`` has it: a colon parts as well as an equals sign, and no comment goes on in the next line."""
    conf = tmp_path / "broker.conf"
    conf.write_text("# one \\\nbrokerEntryMetadataInterceptors : timestamp,\\\n  index\n")
    assert read_broker_conf(conf) == parse_interceptors("timestamp,index")
