"""Synthetic Pulsar data directories; no store is needed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from pulsar_admin.api.given import given_keywords, given_path, given_text, given_texts, whole_number
from pulsar_admin.api.session import Caller
from store.codec.interceptors import parse_interceptors
from store.generate.request import parse_option, plan_cluster, split_options
from store.names import LONG_MAX, parse_topic
from store.timespec import parse_size_bytes

if TYPE_CHECKING:
    from store.generate.cluster import GenerateResult


class GenerateOptions(TypedDict, total=False):
    """Keywords of ``generate``: the options of ``store generate``, numbers or texts as there (``entries="10M"``, ``batch="1..20"``).

    FROM_FILE: more topics as JSON objects, one a line. DATA_PATH: where a broker will find the directory, default: where it is.
    """

    from_file: Path | str
    seed: int
    interceptors: str
    entries_per_ledger: int
    log_size_limit: int | str
    bookie_id: str
    data_path: Path | str
    partitions: int | str
    entries: int | str
    rate: float | str
    start: int | str
    message_size: int | str
    batch: int | str
    codecs: str
    producers: int | str
    clocks: str
    keys: int | str
    tombstones: float | str
    delayed: float | str
    delay: int | str
    event_time: bool
    subscriptions: int | str
    acked: float | str
    holes: int | str


_OF_THE_CLUSTER: Mapping[str, Callable[[str, Any], object]] = {  # Any: what callers give
    "from_file": given_path,
    "seed": lambda name, value: whole_number(name, value, 0, LONG_MAX),
    "interceptors": lambda name, value: parse_interceptors(given_text(name, value)),
    "entries_per_ledger": whole_number,
    "log_size_limit": lambda name, value: (
        parse_size_bytes(value) if isinstance(value, str) else whole_number(name, value)
    ),
    "bookie_id": given_text,
    "data_path": lambda name, value: str(given_path(name, value)),
}


def generate(directory: Path | str, topics: Iterable[str] = (), **options: Unpack[GenerateOptions]) -> GenerateResult:
    """Write a synthetic data directory, the new DIRECTORY, as a standalone Pulsar leaves it after a clean stop.

    TOPICS, default: public/default/generated, all of the kind that OPTIONS say, see ``GenerateOptions``; the same ones give the same
    entry logs. Raises AlreadyExists, InvalidValue, NotFound, DiskFull, NotWritable; after an error nothing is left.
    """
    given_keywords(options, GenerateOptions)
    asked = {name: _OF_THE_CLUSTER.get(name, _of_topics)(name, value) for name, value in options.items()}
    asked["topic"] = tuple(map(parse_topic, given_texts("topics", topics)))
    return generated(Caller(), given_path("directory", directory), asked)


def _of_topics(name: str, value: Any) -> object:  # Any: what callers give
    return parse_option(name, value if isinstance(value, (str, bool, float)) else whole_number(name, value))


def generated(caller: Caller, directory: Path, options: Mapping[str, Any]) -> GenerateResult:  # Any: parsed options
    """Write what OPTIONS say into DIRECTORY for CALLER."""
    from store.generate.cluster import apply_generate, plan_generate

    plan = plan_generate(directory, plan_cluster(directory, *split_options(options)))
    caller.confirm(plan)
    with caller.progress(plan.entries, "entries", "generate") as advance:
        return apply_generate(plan, advance)
