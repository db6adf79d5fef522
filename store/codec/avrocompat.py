"""Whether data written by one AVRO definition can be read by another (AVRO 1.11 "Schema Resolution"; Java's ``SchemaCompatibility``)."""

from typing import Any

Schema = Any  # Any: a definition as fastavro parses it

_NAMED = ("record", "error", "enum", "fixed")
_PROMOTED = {
    "long": ("int",),
    "float": ("int", "long"),
    "double": ("int", "long", "float"),
    "bytes": ("string",),
    "string": ("bytes",),
}
"""Reader's type → other types of writers that it can read."""


def can_read(reader: Schema, writer: Schema) -> bool:
    """Whether values written with one definition can be read with another; both as ``json.loads`` of a valid definition returns them."""
    return _Resolution(_names_in(reader), _names_in(writer)).reads(reader, writer)


class _Resolution:
    """One comparison; ``seen``: pair of records → whether one can read the other, assumed true while they are compared, because
    recursive definitions reach the pair again."""

    def __init__(self, reader_names: dict[str, Schema], writer_names: dict[str, Schema]) -> None:
        self._reader_names = reader_names
        self._writer_names = writer_names
        self._seen: dict[tuple[str, str], bool] = {}

    def reads(self, reader: Schema, writer: Schema) -> bool:
        if isinstance(reader, str):
            reader = self._reader_names.get(_simple(reader), reader)
        if isinstance(writer, str):
            writer = self._writer_names.get(_simple(writer), writer)
        if isinstance(writer, list):
            return all(self.reads(reader, branch) for branch in writer)
        if isinstance(reader, list):
            return any(self.reads(branch, writer) for branch in reader)
        wanted, given = _type_of(reader), _type_of(writer)
        if wanted != given:
            return given in _PROMOTED.get(wanted, ())
        if wanted in _NAMED:
            names = {_simple(name) for name in (reader["name"], *reader.get("aliases", ()))}
            if _simple(writer["name"]) not in names:
                return False
        match wanted:
            case "array":
                return self.reads(reader["items"], writer["items"])
            case "map":
                return self.reads(reader["values"], writer["values"])
            case "fixed":
                return bool(reader["size"] == writer["size"])
            case "enum":
                return "default" in reader or set(writer["symbols"]) <= set(reader["symbols"])
            case "record" | "error":
                return self._reads_record(reader, writer)
        return True

    def _reads_record(self, reader: Schema, writer: Schema) -> bool:
        pair = (reader["name"], writer["name"])
        if pair not in self._seen:
            self._seen[pair] = True
            self._seen[pair] = self._reads_fields(reader, writer)
        return self._seen[pair]

    def _reads_fields(self, reader: Schema, writer: Schema) -> bool:
        there = {field["name"]: field for field in writer["fields"]}
        for field in reader["fields"]:
            names = (field["name"], *field.get("aliases", ()))
            written = next((there[name] for name in names if name in there), None)
            if "default" not in field if written is None else not self.reads(field["type"], written["type"]):
                return False
        return True


def _type_of(schema: Schema) -> str:
    if isinstance(schema, dict):
        inner = schema["type"]
        return inner if isinstance(inner, str) else _type_of(inner)
    return str(schema)


def _simple(name: str) -> str:
    return name.rpartition(".")[2]


def _names_in(schema: Schema) -> dict[str, Schema]:
    if isinstance(schema, list):
        return {name: found for branch in schema for name, found in _names_in(branch).items()}
    if not isinstance(schema, dict):
        return {}
    inner = [schema.get(key) for key in ("items", "values", "type")] + [one["type"] for one in schema.get("fields", ())]
    names = {name: found for one in inner if isinstance(one, (dict, list)) for name, found in _names_in(one).items()}
    return {**names, **({_simple(schema["name"]): schema} if "name" in schema else {})}
