"""A request for a cluster as typed: options of ``python -m bench.generate`` and lines of its file, to a ``ClusterSpec``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from bench.generate.spec import (
    ClusterSpec,
    TopicSpec,
    check_cluster,
    parse_batch,
    parse_clocks,
    parse_codecs,
    parse_count,
    parse_delays,
    parse_flag,
    parse_rate,
    parse_share,
    parse_sizes,
    parse_start,
)
from pulsar_admin.store.codec.entrylog import LOG_LIMIT_BYTES
from pulsar_admin.store.codec.strict_values import json_value
from pulsar_admin.store.errors import InvalidValue, NotFound, reason_of
from pulsar_admin.store.names import TopicName, parse_topic

DEFAULT_TOPIC = "public/default/generated"


class ClusterRequest(Struct, frozen=True):
    """The options of the whole cluster. ``topics`` 0 and no ``topic``: one topic of the default name."""

    topic: tuple[TopicName, ...] = ()
    topics: int = 0
    from_file: Path | None = None
    seed: int = 1
    interceptors: tuple[str, ...] = ()
    entries_per_ledger: int = 50_000
    log_size_limit: int = LOG_LIMIT_BYTES
    bookie_id: str = "127.0.0.1:3181"
    data_path: str = ""


_PARSERS: Mapping[str, Callable[[str], Any]] = {  # Any: the type of the field
    "partitions": parse_count,
    "entries": parse_count,
    "rate": parse_rate,
    "start": parse_start,
    "message_size": parse_sizes,
    "batch": parse_batch,
    "codecs": parse_codecs,
    "producers": parse_count,
    "clocks": parse_clocks,
    "keys": parse_count,
    "delayed": parse_share,
    "delay": parse_delays,
    "tombstones": parse_share,
    "event_time": parse_flag,
    "subscriptions": parse_count,
    "acked": parse_share,
    "holes": parse_count,
}


_FIELDS = {"start": "start_ms", "message_size": "size", "delay": "delay_ms", "tombstones": "nulls"}
"""Of ``TopicSpec``, where it calls an option otherwise."""

TopicOptions = Mapping[str, Any]  # Any: as above
"""What every topic is like unless a line of the file says otherwise: options that were given, by name."""


def split_options(options: Mapping[str, Any]) -> tuple[ClusterRequest, TopicOptions]:  # Any: parsed options by name
    """Return the options of the cluster and those of its topics."""
    cluster = ClusterRequest(**{name: value for name, value in options.items() if name not in _PARSERS})
    return cluster, {name: value for name, value in options.items() if name in _PARSERS}


def parse_option(name: str, value: object) -> Any:  # Any: as above
    """Return what the topic's option ``name`` is when it is given as a text or number; raises InvalidValue."""
    return _PARSERS[name](str(value))


def plan_cluster(path: Path, cluster: ClusterRequest, topic: TopicOptions) -> ClusterSpec:
    """Return the cluster to write at ``path``, its topics like ``topic``; raises InvalidValue, NotFound."""
    if not re.fullmatch(r"[^\s/]+:\d{1,5}", cluster.bookie_id):
        raise InvalidValue(f"invalid bookie id {cluster.bookie_id!r}", hint="write HOST:PORT", value=cluster.bookie_id)
    rows = [(name, topic) for name in _names(cluster)]
    if cluster.from_file is not None:
        rows += list(_lines(cluster.from_file, topic))
    spec = ClusterSpec(
        seed=cluster.seed,
        topics=tuple(part for name, request in rows for part in _topics(name, **request)),
        data_path=cluster.data_path or str(path.absolute()),
        interceptors=cluster.interceptors,
        entries_per_ledger=cluster.entries_per_ledger,
        log_size_limit_bytes=cluster.log_size_limit,
        bookie_id=cluster.bookie_id,
    )
    check_cluster(spec)
    return spec


def _names(cluster: ClusterRequest) -> Iterator[TopicName]:
    yield from cluster.topic
    default = parse_topic(DEFAULT_TOPIC)
    for number in range(cluster.topics):
        yield replace(default, local_name=f"{default.local_name}-{number}")
    if not cluster.topic and not cluster.topics and cluster.from_file is None:
        yield default


def _topics(name: TopicName, partitions: int = 0, **options: Any) -> Iterator[TopicSpec]:  # Any: as above
    """Yield the topic, or its partitions, each with the entries asked for."""
    shape = {_FIELDS.get(option, option): value for option, value in options.items()}
    for part in [name.partition(index) for index in range(partitions)] or [name]:
        yield TopicSpec(part, **shape)


def _lines(path: Path, topic: TopicOptions) -> Iterator[tuple[TopicName, TopicOptions]]:
    """Yield the topics of a file of JSON objects, one a line: ``topic`` and any options of a topic, as typed there."""
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise NotFound(
            f"cannot read {path}: {reason_of(error)}", hint="name a file of JSON objects, one a line"
        ) from error
    for number, line in enumerate(lines, 1):
        if line.strip():
            yield _line(line, f"{path}:{number}", topic)


def _line(line: str, where: str, topic: TopicOptions) -> tuple[TopicName, TopicOptions]:
    try:
        found = json_value(line)
    except ValueError as error:
        raise InvalidValue(f"{where}: {reason_of(error)}", hint='write {"topic":"t/ns/name","entries":1000}') from error
    if not isinstance(found, dict) or not isinstance(found.get("topic"), str):
        raise InvalidValue(f"{where}: no topic", hint='write {"topic":"t/ns/name","entries":1000}')
    name = parse_topic(found.pop("topic"))
    values = {}
    for key, value in found.items():
        option = key.replace("-", "_")
        if option not in _PARSERS or not isinstance(value, (str, int, float)):
            known = ", ".join(one.replace("_", "-") for one in _PARSERS)
            raise InvalidValue(f"{where}: unknown {key!r}", hint=f"known are topic, {known}", value=key)
        values[option] = parse_option(option, value)
    return name, {**topic, **values}
