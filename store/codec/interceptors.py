"""The chain that prepends broker entry metadata to entries (PIP-70), wherever this toolkit writes entries.

Upstream: ``BrokerEntryMetadataInterceptor``, its two implementations ``AppendBrokerTimestampMetadataInterceptor`` and
``AppendIndexMetadataInterceptor``, and the setting ``brokerEntryMetadataInterceptors``. Others are found by entry point:
group ``pulsar_admin.broker_entry_metadata_interceptors``, the object a class (or any callable) that needs no argument and
makes one interceptor.
"""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Protocol, runtime_checkable

from msgspec import Struct
from msgspec.structs import replace

from pulsar_admin.store.codec.brokerentry import BrokerEntry
from pulsar_admin.store.codec.properties import read_properties
from pulsar_admin.store.codec.strict_values import parse_integer
from pulsar_admin.store.errors import InvalidValue, NotFound

ENTRY_POINT_GROUP = "pulsar_admin.broker_entry_metadata_interceptors"
INDEX_PROPERTY = "index"
"""Property of ManagedLedgerInfo that keeps the last index from one ledger to the next."""

_SETTING = "brokerEntryMetadataInterceptors"
_PACKAGE = "org.apache.pulsar.common.intercept."


class Append(Struct, frozen=True):
    """An entry about to be appended: the broker's clock in ms, and the messages the broker was told it holds."""

    now_ms: int
    messages: int


@runtime_checkable
class BrokerEntryMetadataInterceptor(Protocol):
    """Fills in the broker metadata of entries. A chain has one object per topic, which sees the entries in their order."""

    def intercept(self, entry: BrokerEntry, append: Append) -> BrokerEntry:
        """Return the broker entry metadata with this interceptor's fields for an append."""


class AppendBrokerTimestampMetadataInterceptor:
    """Gives every entry the time at which the broker appended it."""

    def intercept(self, entry: BrokerEntry, append: Append) -> BrokerEntry:
        return replace(entry, timestamp_ms=append.now_ms)


class AppendIndexMetadataInterceptor:
    """Numbers the messages of a topic; an entry carries the index of its last message."""

    def __init__(self, index: int = -1) -> None:
        self.index = index  # of the last message so far

    def intercept(self, entry: BrokerEntry, append: Append) -> BrokerEntry:
        self.index += append.messages
        return replace(entry, index=self.index)


Factory = Callable[[], BrokerEntryMetadataInterceptor]
_OWN: Mapping[str, Factory] = {
    "AppendBrokerTimestampMetadataInterceptor": AppendBrokerTimestampMetadataInterceptor,
    "AppendIndexMetadataInterceptor": AppendIndexMetadataInterceptor,
}
_SHORT = {"timestamp": "AppendBrokerTimestampMetadataInterceptor", "index": "AppendIndexMetadataInterceptor"}


class InterceptorChain:
    """The interceptors of one topic, in the order given."""

    def __init__(self, interceptors: Iterable[BrokerEntryMetadataInterceptor]) -> None:
        self.interceptors = tuple(interceptors)

    def __bool__(self) -> bool:
        return bool(self.interceptors)

    def intercept(self, append: Append) -> BrokerEntry | None:
        """Return the broker metadata of an entry; None when the chain is empty: entries get no header then."""
        if not self.interceptors:
            return None
        entry = BrokerEntry(None, None)
        for interceptor in self.interceptors:
            entry = interceptor.intercept(entry, append)
        return entry

    def recover(self, properties: Mapping[str, str], last: BrokerEntry | None) -> None:
        """Continue the index of a topic: from its last entry if that has one, else from its ManagedLedgerInfo's properties.

        Upstream: ``ManagedLedgerInterceptorImpl``. A property that is not a number counts as absent.
        """
        kept = properties.get(INDEX_PROPERTY, "")
        index = parse_integer(kept)
        index = -1 if index is None else index
        if last is not None and last.index is not None:
            index = last.index
        for interceptor in self.interceptors:
            if isinstance(interceptor, AppendIndexMetadataInterceptor):
                interceptor.index = index

    def properties(self) -> dict[str, str]:
        """Return what ManagedLedgerInfo keeps when a ledger is closed: the last index."""
        counters = [one.index for one in self.interceptors if isinstance(one, AppendIndexMetadataInterceptor)]
        return {INDEX_PROPERTY: str(counters[-1])} if counters else {}


def parse_interceptors(text: str) -> tuple[str, ...]:
    """Parse ``a,b``: upstream's class names with or without package, ``timestamp``, ``index``, or names of entry points; ``none``.

    Returns names for ``open_chain`` in the order given, each once; raises InvalidValue for a name nobody provides.
    """
    names: list[str] = []
    if text.strip() == "none":
        return ()
    for word in (part.strip() for part in text.split(",")):
        name = _SHORT.get(word, word.removeprefix(_PACKAGE))
        if not word or name in names:
            continue
        if name not in _OWN and name not in _entry_points():
            known = sorted([*_SHORT, *_OWN, *_entry_points()])
            raise InvalidValue(
                f"no broker entry metadata interceptor {word!r}", hint=f"known are {', '.join(known)}", value=word
            )
        names.append(name)
    return tuple(names)


def read_broker_conf(path: Path) -> tuple[str, ...]:
    """Return the interceptors that a broker.conf (Java properties) configures, none if it names none.

    Raises NotFound, Refused for a file that is not text, InvalidValue for a class that is not supported here.
    """
    properties = read_properties(path, "name the broker's broker.conf", missing=NotFound)
    return parse_interceptors(properties.get(_SETTING, ""))


def open_chain(names: Iterable[str]) -> InterceptorChain:
    """Return a new chain of interceptors (names from ``parse_interceptors``) for one topic; raises InvalidValue."""
    return InterceptorChain(_make(name) for name in names)


def _make(name: str) -> BrokerEntryMetadataInterceptor:
    if name in _OWN:
        return _OWN[name]()
    made = _entry_points()[name]()
    if not isinstance(made, BrokerEntryMetadataInterceptor):
        raise InvalidValue(
            f"{name!r} makes a {type(made).__name__}, which has no method intercept(entry, append)",
            hint=f"correct the package that provides it in the entry point group {ENTRY_POINT_GROUP}",
            value=name,
        )
    return made


def _entry_points() -> dict[str, Factory]:
    # Imported here: importlib.metadata reads the directory of every installed package.
    from importlib.metadata import entry_points

    return {point.name: point.load() for point in entry_points(group=ENTRY_POINT_GROUP)}
