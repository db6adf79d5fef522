"""JSON Schemas of what commands emit: their declared classes where they have some, else what real data showed."""

import re
import types
import typing
from collections.abc import Mapping, Set
from enum import Enum
from typing import Any

from msgspec import Struct

from pulsar_admin.jsonify import _fields, to_json
from pulsar_admin.store.names import NamespaceName, Position, TopicName

Json = Any
_WORD = re.compile(r"[A-Za-z_$][A-Za-z0-9_$-]*")
_NAMED_BY_USERS = """
subscriptions cursors properties subscriptionProperties metadata configOverrides publishers due formats reasons claims parameters
namespace_auth destination_auth subscription_auth_roles backlog_quota_map topicDispatchRate
"""
_BY_NAME = frozenset(_NAMED_BY_USERS.split())
"""Keys of objects whose own keys are names, ids or amounts that users gave."""
_OPEN = frozenset(["before", "after", "evidence", "context", "policies", "value"])
"""Keys of values that may be anything."""
_KINDS = {bool: "boolean", int: "integer", float: "number", str: "string", type(None): "null"}


class Shape:
    """What was seen at one place of a command's JSON."""

    def __init__(self, key: str = "", *, is_by_name: bool = False) -> None:
        self.key = key
        self.is_by_name = is_by_name or key in _BY_NAME
        """Whether the keys of objects here are names that users gave."""
        self.named: Shape | None = None
        """The values of objects whose keys are names or ids."""
        self.kinds: set[str] = set()
        self.objects = 0
        self.keys: dict[str, Shape] = {}
        self.seen: dict[str, int] = {}
        self.item: Shape | None = None
        self.classes: dict[str, type] = {}

    def add(self, value: object) -> None:
        """Add one value that was seen here, as ``to_json`` takes it."""
        if self.key in _OPEN:
            self.kinds.add("any")
        elif isinstance(value, Struct) and not isinstance(value, (Position, TopicName, NamespaceName)):
            self.classes[f"{type(value).__module__}:{type(value).__qualname__}"] = type(value)
            found = {key: getattr(value, name) for name, key, _ in _fields(type(value))}
            optional = {key for _, key, optional in _fields(type(value)) if optional}
            self._add_object({key: one for key, one in found.items() if one is not None or key not in optional})
        elif isinstance(value, Enum):
            self.classes[f"{type(value).__module__}:{type(value).__qualname__}"] = type(value)
            self.add(value.value)
        elif isinstance(value, Mapping):
            self._add_object(value)
        elif type(value) in _KINDS:
            self.kinds.add(_KINDS[type(value)])
        elif isinstance(value, (Set, list, tuple)) and not hasattr(value, "_fields"):
            self.add_items(value)
        else:
            plain = to_json(value)
            self.add(str(plain) if isinstance(plain, str) else plain)

    def add_items(self, values: Any) -> None:  # Any: an iterable
        """Add a list that was seen here."""
        self.kinds.add("array")
        self.item = self.item or Shape()
        for value in values:
            self.item.add(value)

    def _add_object(self, found: Mapping[Any, object]) -> None:
        self.kinds.add("object")
        if self.is_by_name or any(not _WORD.fullmatch(str(key)) for key in found):
            self.named = self.named or Shape()
            for one in found.values():
                self.named.add(one)
            return
        self.objects += 1
        for key, one in found.items():
            self.keys.setdefault(str(key), Shape(str(key))).add(one)
            self.seen[str(key)] = self.seen.get(str(key), 0) + 1

    # -- as a schema ----------------------------------------------------------------------------------------------

    def schema(self) -> Json:
        """Return the JSON Schema of what was seen."""
        if "any" in self.kinds or not self.kinds:
            return {}
        enums = [cls for cls in self.classes.values() if issubclass(cls, Enum)]
        kinds = sorted(self.kinds - ({"integer"} if "number" in self.kinds else set()))
        found: dict[str, Json] = {"type": kinds[0] if len(kinds) == 1 else kinds}
        if enums and set(kinds) == {"string"}:
            found["enum"] = sorted({str(one.value) for cls in enums for one in cls})
        if "array" in kinds:
            found["items"] = self.item.schema() if self.item is not None else {}
        if self.named is not None:
            by_name = {"additionalProperties": self.named.schema()}
            return {**found, "anyOf": [self._record(), by_name]} if self.objects else found | by_name
        return found | self._record() if "object" in kinds else found

    def _record(self) -> Json:
        found = {key: shape.schema() for key, shape in self.keys.items()}
        for cls in self.classes.values():
            if issubclass(cls, Struct):
                hints = hints_of(cls)
                for name, key, _ in _fields(cls):
                    found.setdefault(key, declared(hints.get(name, Any)))
        if not found:
            return {}
        required = sorted(key for key, count in self.seen.items() if count == self.objects)
        return {"properties": found, **({"required": required} if required else {})}


def hints_of(cls: type) -> dict[str, Any]:  # Any: types
    """Return the types of a record's fields; those imported for checking alone are left out."""
    try:
        return typing.get_type_hints(cls)
    except NameError:
        return {}


def declared(hint: Any) -> Json:  # Any: a type
    """Return the schema of a field of type HINT that was never seen."""
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        found = [declared(part) for part in parts]
        kinds = [one["type"] for one in found if isinstance(one.get("type"), str)]
        return {"type": sorted(set(kinds))} if len(kinds) == len(parts) and "object" not in kinds else {}
    if hint in _KINDS:
        return {"type": _KINDS[hint]}
    if hint in (TopicName, NamespaceName):
        return {"type": "string"}
    if isinstance(hint, type) and issubclass(hint, Enum):
        return {"type": "string", "enum": sorted(str(one.value) for one in hint)}
    if origin in (tuple, list, frozenset) or (isinstance(origin, type) and issubclass(origin, (list, tuple, Set))):
        return {"type": "array", "items": declared(parts[0]) if parts else {}}
    if origin is not None and isinstance(origin, type) and issubclass(origin, Mapping):
        return {"type": "object"}
    if isinstance(hint, type) and issubclass(hint, Struct):
        return {"type": "object"}
    return {}
