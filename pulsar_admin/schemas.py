"""``--schema``: what a command writes with ``-o json``, from ``schemas.json``, which ``python -m tests.schemas`` records."""

import re
from collections.abc import Iterator
from typing import Any

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_CHANGE = "change"
_TIMES = "milliseconds since 1970-01-01 UTC"
_MANY = 16
"""A command with more numbers than this names their units in its schema alone."""
_UNITS = (
    ("bytes per ratePeriodInSecond", "ThrottlingRateInByte$"),
    ("messages per ratePeriodInSecond", "ThrottlingRateInMsg$"),
    ("bytes per second", "^bandwidth(In|Out)$|^msgThroughput|RateInBytes$"),
    ("messages per second", "^msgRate|RateInMsgs$|^(messageAck|chunkedMessage)Rate$|^messagesPerSecond$"),
    ("entries per second", "^entriesPerSecond$"),
    ("bytes per entry", "^bytesPerEntry$"),
    ("bytes per message", "^bytesPerMessage$"),
    ("seconds", "Seconds?$|^seconds$|^ttl$|^limitTime$|LimitTime$|_in_seconds$"),
    ("minutes", "Minutes$"),
    ("MiB", "M[Bb]$"),
    (
        "milliseconds",
        "(Millis?|Mills|Ms|Early)$|^(oldestAge|tickTime|width|delay|tolerance|maxBackwards|offset(Min|Max|Median))$",
    ),
    ("entries", "^messagesConsumedCounter$|^entries(?!PerLedger)|Entries$|^numberOfEntries|^msgBacklog"),
    ("messages", r"^messages|Messages$|^totalMsgExpired$|^msgInReplay$|^msg\w*(Counter|Delayed)$|MsgCount$"),
    ("bytes", "^(?!dispatchThrottled).*Bytes|^bytes|^(?!batch|originalBatch|ongoingTxn).*[sS]ize$|^length$"),
    (
        _TIMES,
        "(Time|Time[sS]tamps?|Publish|Due|Deadline|At|Backlogs?)$|^(asOf|time|timestamp|closed|modified|recreated|built|created|imported)$",
    ),
    ("percent", "^percent$"),
)
"""Units and the JSON keys of numbers that have them; the first that fits counts."""
_UNITS_OF_COMMANDS = (
    ("delayed build", "messages", "added|removed"),
    ("delayed build", "entries", "read|missing|unreadable"),
    ("delayed histogram", _TIMES, "start"),
    ("delayed status", "bytes", "memory"),
    ("delayed verify", "messages", "waiting|stale|indexed|inBuckets|outside"),
    (
        "ledgers (info|underreplicated)",
        "entries",
        "damaged|differing|expected|held|lost|missing|outside|short|underReplicated|unknown",
    ),
    ("namespaces get-backlog-quotas", "bytes", "limit"),
    ("namespaces policies", "bytes", "offload_threshold"),
    ("nacks plan|topics timeline", "milliseconds", "bucket"),
    ("overview", "bytes", "cursor|open-ledger|retention|trim"),
    ("overview|store info", "bytes", "entryLogs|journals|leftovers|meta|payload"),
    ("resource-quotas get", "MB", "memory"),
    ("store usage", "bytes", "dead|live|other"),
    (".* get-persistence", "per second", "managedLedgerMaxMarkDeleteRate"),
    (".* get-subscribe-rate", "per ratePeriodInSecond", "subscribeThrottlingRatePerConsumer"),
    ("topics (describe|subscriptions)", "bytes", "backlog"),
    ("topics (describe|subscriptions)", "messages", "unread"),
    ("topics skew", "entries", "futureDated|inversions|late"),
    ("topics subscription-history", "entries", "acknowledged|reopened"),
)
"""(pattern of commands, unit, pattern of keys), for keys that have another unit, or none, in other commands."""


def unit_of(key: str, path: str = "") -> str:
    """Return the unit of the numbers under a JSON key of the command at ``path``; "" for plain counts and ids.

    Without ``path`` also "" for keys whose unit differs between commands.
    """
    own = (unit for of, unit, keys in _UNITS_OF_COMMANDS if re.fullmatch(of, path) and re.fullmatch(keys, key))
    return next(own, "") or next((unit for unit, pattern in _UNITS if re.search(pattern, key)), "")


def schema_of(path: str, description: str = "") -> dict[str, Any]:  # Any: JSON values
    """Return the self-contained JSON Schema of a command such as ``topics stats``; raises KeyError for no command.

    For a list it describes the array of ``-o json``; with ``-o jsonl`` each line is one of its items. Later versions
    may add keys; existing keys keep their meaning.
    """
    import json
    from pathlib import Path

    schemas = json.loads(Path(__file__).with_name("schemas.json").read_text())
    head = {"$schema": DIALECT, "title": f"pulsar-admin {path}", "description": description}
    schema: dict[str, Any] = {key: text for key, text in head.items() if text} | schemas[path]  # Any: JSON values
    if f"#/$defs/{_CHANGE}" in json.dumps(schema):
        schema["$defs"] = {_CHANGE: schemas[_CHANGE]}
    for key, number in _numbers_in(schema):
        if unit := unit_of(key, path):
            number["description"] = unit
    return schema


def units_in(path: str) -> str:
    """Return the units of a command's numbers as a sentence for its help; empty if none has a unit or there is no schema."""
    try:
        schema = schema_of(path)
    except KeyError:  # a command that a broker alone answers writes nothing here
        return ""
    schema.pop("$defs", None)
    keys_by_unit: dict[str, list[str]] = {}
    for key in dict.fromkeys(key for key, _ in _numbers_in(schema)):
        if unit := unit_of(key, path):
            keys_by_unit.setdefault(unit, []).append(f"`{key}`")
    if sum(map(len, keys_by_unit.values())) > _MANY:
        return "`--schema` names the unit of each number"
    if _TIMES in keys_by_unit:
        keys_by_unit[f"{_TIMES} (CSV: ISO 8601)"] = keys_by_unit.pop(_TIMES)
    return "; ".join(f"{unit}: {', '.join(keys)}" for unit, keys in keys_by_unit.items())


def _numbers_in(schema: Any) -> Iterator[tuple[str, dict[str, Any]]]:  # Any: JSON values
    """Yield (key, schema) of the numbers that a schema has under named keys."""
    if isinstance(schema, list):
        for one in schema:
            yield from _numbers_in(one)
    elif isinstance(schema, dict):
        for key, one in schema.items():
            if key == "properties" and isinstance(one, dict):
                for name, value in one.items():
                    kinds = value.get("type", ())
                    if not {"integer", "number"}.isdisjoint([kinds] if isinstance(kinds, str) else kinds):
                        yield name, value
                    yield from _numbers_in(value)
            else:
                yield from _numbers_in(one)
