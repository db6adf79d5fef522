"""Splits a SQL statement into three: one for the rows of a task, one that merges the results of tasks, one for the
final answer.

Only a SELECT from one table that aggregates, or sorts and limits, is split, by the tree of DuckDB's own parser; with
any construct unknown to this module it is not. If a statement leaves the order of rows open, a split may return another
order than DuckDB.
"""

import atexit
import json
from collections.abc import Iterable, Iterator, Sequence
from copy import deepcopy
from functools import cache, lru_cache
from threading import Lock
from typing import Any, ClassVar

import duckdb
import pyarrow as pa
from msgspec import Struct

from pulsar_admin.store.engine.operation import stream_of
from pulsar_admin.store.errors import StoreError
from pulsar_admin.store.scan.operations import ReadMessages
from pulsar_admin.store.scan.places import EntryBatch
from pulsar_admin.store.scan.reducing import Reduction, Row
from pulsar_admin.store.tables.entries import with_topics

ROWS, PARTS = "_rows", "_parts"
"""What the tables are called that the statements are asked of."""
NOW = {
    **dict.fromkeys(("now", "current_timestamp", "get_current_timestamp", "transaction_timestamp"), ""),
    **dict.fromkeys(("current_date", "today"), "::DATE"),
    "current_localtimestamp": "::TIMESTAMP",
}
"""Functions of the time → the cast of what they return, from a time with a zone."""
Config = dict[str, str | bool | int | float | list[str]]
_CONFIG: Config = {
    "python_enable_replacements": "false",  # of Python's variables as tables
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
}
_KEYS = {
    *("type", "modifiers", "cte_map", "select_list", "from_table", "where_clause", "group_expressions", "group_sets"),
    *("aggregate_handling", "having", "sample", "qualify"),
}
_CLASSES = {
    *("BETWEEN", "CASE", "CAST", "COLUMN_REF", "COMPARISON", "CONJUNCTION", "CONSTANT", "FUNCTION", "OPERATOR", "TYPE"),
}  # no COLLATE: a column of parts has lost it
_FUNCTIONS = "SELECT function_name FROM duckdb_functions() GROUP BY 1 HAVING {}"
_BEYOND_VALUES = {"age", "alias", "can_cast_implicitly", "current_localtime", "typeof"}
_FIRST_MOST = 10_000
_EXACT_AVERAGES = (
    int(duckdb.__version__.split(".")[0]) >= 2
)  # before, it divides in the precision of the machine; as of UBIGINT
Node = dict[str, Any]  # Any: JSON


def connect(now_ms: int, zone: str, config: Config) -> duckdb.DuckDBPyConnection:
    """Return an in-memory DuckDB without access to files, with current time ``now_ms`` and time zone ``zone``."""
    connection = duckdb.connect(":memory:", config={**_CONFIG, **config})
    # Python's module turns it on, and it goes to stdout.
    connection.execute("SET enable_progress_bar = false")
    connection.execute(f"SET TimeZone = '{zone}'")
    for name, kind in NOW.items():
        connection.execute(f"CREATE MACRO {name}() AS epoch_ms({int(now_ms)}::BIGINT)::TIMESTAMPTZ{kind}")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
    return connection


class Split(Struct, frozen=True):
    """A split statement: ``partial`` makes PARTS from ROWS, ``merge`` fewer PARTS, ``finish`` the answer from PARTS."""

    partial: str
    merge: str
    finish: str
    now_ms: int
    zone: str


# -- which statements --------------------------------------------------------------------------------------------------


class _Unknown(Exception):
    """The statement cannot be split."""


def split_statement(
    connection: duckdb.DuckDBPyConnection, tree: Node, described: duckdb.DuckDBPyRelation, now_ms: int, zone: str
) -> Split | None:
    """Return the three statements for one, None if it cannot be split.

    ``tree``: the statement as DuckDB's parser returns it; ``described``: its columns. ``connection`` has the
    statement's table as ROWS, and gets an empty table PARTS. Raises duckdb.Error if DuckDB refuses the statement or one
    of the three.
    """
    try:
        partial, merge, finish = _Splitter(connection, tree, described.columns).statements()
    except _Unknown:
        return None
    parts = connection.sql(partial)
    empty = parts.limit(0).to_arrow_table()
    kinds = [*map(str, parts.types)]
    connection.register(PARTS, empty)
    for name, kind, arrived in zip(parts.columns, kinds, connection.sql(f"FROM {PARTS}").types, strict=True):
        if kind != str(arrived) and (kind, str(arrived), name[:2]) != ("HUGEINT", "DECIMAL(38,0)", "_a"):
            return None
    merged = connection.sql(finish)
    if (merged.columns, [*map(str, merged.types)]) != (described.columns, [*map(str, described.types)]):
        return None
    return Split(partial, merge, finish, now_ms, zone)


@cache
def _functions(condition: str) -> frozenset[str]:
    with duckdb.connect(":memory:") as connection:
        return frozenset(row[0] for row in connection.execute(_FUNCTIONS.format(condition)).fetchall())


def _scalars() -> frozenset[str]:
    """Return the scalar functions whose result depends on the argument values alone, and those for the current time."""
    # DuckDB 2.0.1 says CONSISTENT_WITHIN_QUERY of those that read the time zone: it is the same in all connections.
    constant = "bool_and(function_type = 'scalar' AND stability <> 'VOLATILE') AND bool_or(stability = 'CONSISTENT')"
    return _functions(constant) - _BEYOND_VALUES | {*NOW}


class _Splitter:
    def __init__(self, connection: duckdb.DuckDBPyConnection, tree: Node, names: Sequence[str]) -> None:
        self._connection = connection
        self._tree = tree
        self._names = names
        self._columns = {name.lower() for name in connection.sql(f"FROM {ROWS}").columns}
        self._parsed: dict[str, str] = {}
        self._groups: list[Node] = []
        self._parts: dict[
            str, tuple[str, Node, str]
        ] = {}  # canonical → name, node of the partial statement, how parts are merged

    def statements(self) -> tuple[str, str, str]:
        """Return the statements ``partial``, ``merge`` and ``finish``; raises _Unknown."""
        node = self._tree["statements"][0]["node"]
        if node["type"] != "SELECT_NODE" or node.keys() != _KEYS:
            raise _Unknown
        table = node["from_table"]
        is_plain = table["type"] == "BASE_TABLE" and not (
            table["sample"] or table["column_name_alias"] or table["at_clause"]
        )
        if not is_plain or node["cte_map"]["map"] or node["sample"] or node["qualify"]:
            raise _Unknown
        alias = table["alias"] or table["table_name"]
        quoted = alias.replace('"', '""')
        self._alias = alias.lower()
        if self._alias in self._columns:
            raise _Unknown
        self._columns.add(self._alias)
        items = node["select_list"]
        self._aliases = {item["alias"].lower(): item for item in items if item["alias"]}
        for name, item in self._aliases.items():
            names = [one.lower() for one in item.get("column_names", ())]
            if name[0] == "_" or (name in self._columns and names not in ([name], [self._alias, name])):
                raise _Unknown  # two things have that name, or a column of parts might
        self._check(node["where_clause"])
        rows = {**node, "from_table": self._parse(f'SELECT 1 FROM {ROWS} AS "{quoted}"')["from_table"]}
        plain = {"aggregate_handling": "STANDARD_HANDLING"}
        self._rows = {**rows, **plain, "having": None, "modifiers": []}
        parts = self._parse(f"SELECT 1 FROM {PARTS}")["from_table"]
        from_parts = {**node, **plain, "from_table": parts, "where_clause": None}
        kinds = [modifier["type"] for modifier in node["modifiers"]]
        groups, sets = node["group_expressions"], node["group_sets"]
        if node["aggregate_handling"] == "FORCE_AGGREGATES" and not groups:  # GROUP BY ALL
            groups, sets = [item for item in items if not _has_aggregate(item)], []
        is_added = bool(groups) or _has_aggregate(items)
        if not is_added and kinds == ["ORDER_MODIFIER", "LIMIT_MODIFIER"]:
            return self._first(items, from_parts)
        if not is_added and kinds[:1] == ["DISTINCT_MODIFIER"] and not node["modifiers"][0]["distinct_on_targets"]:
            groups = items
        elif not is_added or sets not in ([], [[*range(len(groups))]]):
            raise _Unknown
        return self._added(groups, from_parts, is_added=is_added)

    def _added(self, groups: Sequence[Node], node: Node, *, is_added: bool) -> tuple[str, str, str]:
        """Split a statement that aggregates, with or without groups."""
        for group in map(self._resolved, groups):
            self._check(group)
            names = [node["column_names"][0].lower() for node in nodes_of(group) if node.get("class") == "COLUMN_REF"]
            if self._columns.isdisjoint(names):
                raise _Unknown  # a number would be a place, and GROUP BY ALL is by no constant
            self._groups.append({**group, "alias": ""})
        keys = [f"_g{index}" for index in range(len(groups))]
        sets = [[*range(len(keys))]] if keys else []
        finish = {name: self._finished(node[name]) for name in ("select_list", "having", "modifiers")}
        if len(finish["select_list"]) != len(self._names):
            raise _Unknown
        for item, name in zip(finish["select_list"], self._names, strict=True):
            item["alias"] = name
        if is_added:
            finish |= {"group_expressions": [*map(self._expression, keys)], "group_sets": sets}
        wanted = [{**group, "alias": key} for group, key in zip(self._groups, keys, strict=True)]
        wanted += [{**part, "alias": name} for name, part, _ in self._parts.values()]
        partial = {**self._rows, "select_list": wanted, "group_expressions": self._groups, "group_sets": sets}
        merged = ", ".join([*keys, *(f"{how} AS {name}" for name, _, how in self._parts.values())])
        merge = f"SELECT {merged} FROM {PARTS}" + (f" GROUP BY {', '.join(keys)}" if keys else "")
        return self._text(partial), merge, self._text({**node, **finish})

    def _first(self, items: Sequence[Node], node: Node) -> tuple[str, str, str]:
        """Split a statement with ORDER BY and LIMIT."""
        order, limit = deepcopy(node["modifiers"])
        most = _number(limit["limit"])
        skipped = 0 if limit["offset"] is None else _number(limit["offset"])
        if limit["limit_type"] != "ROW_COUNT" or most + skipped > _FIRST_MOST:
            raise _Unknown
        wanted = [{**item, "alias": f"_c{index}"} for index, item in enumerate(items)]
        for index, key in enumerate(order["orders"]):
            wanted.append({**self._resolved(key["expression"]), "alias": f"_k{index}"})
            key["expression"] = self._expression(f"_k{index}")
        self._check(wanted)
        bounded = {**limit, "limit": self._expression(str(most + skipped)), "offset": None}
        finish = [{**self._expression(f"_c{index}"), "alias": name} for index, name in enumerate(self._names)]
        everything = {**node, "select_list": self._parse(f"SELECT * FROM {PARTS}")["select_list"]}
        return (
            self._text({**self._rows, "select_list": wanted, "modifiers": [order, bounded]}),
            self._text({**everything, "modifiers": [order, bounded]}),
            self._text({**node, "select_list": finish, "modifiers": [order, limit]}),
        )

    def _resolved(self, node: Node) -> Node:
        """Return the expression that GROUP BY or ORDER BY refers to by position or alias, else the given one."""
        items = self._tree["statements"][0]["node"]["select_list"]
        if node["class"] == "CONSTANT":
            place = _number(node)
            if not 1 <= place <= len(items):
                raise _Unknown
            return dict(items[place - 1])
        names = node.get("column_names", ())
        if len(names) == 1 and names[0].lower() not in self._columns:
            return dict(self._aliases.get(names[0].lower(), node))
        return node

    def _check(self, value: Any) -> None:  # Any: JSON
        """Raise _Unknown unless the expression depends on the values of a single row only."""
        for node in nodes_of(value):
            if node.get("class", "TYPE") not in _CLASSES:
                raise _Unknown
            name = _name_of(node)
            if name and name not in _scalars():
                raise _Unknown
            if node.get("class") == "COLUMN_REF" and node["column_names"][0].lower() not in self._columns | {*NOW}:
                raise _Unknown

    def _finished(self, value: Any) -> Any:  # Any: JSON
        """Return an expression over ROWS, with its groups and aggregates replaced by columns of PARTS."""
        if isinstance(value, list):
            return [self._finished(one) for one in value]
        if not isinstance(value, dict):
            return value
        if "orders" in value and "class" not in value:
            orders = [one if _is_all(one["expression"]) else self._finished(one) for one in value["orders"]]
            return {**value, "orders": orders}
        if "class" in value:
            for index, group in enumerate(self._groups):
                if self._canonical(value) == self._canonical(group):
                    return {**self._expression(f"_g{index}"), "alias": value["alias"]}
            name = _name_of(value)
            if name in _AGGREGATES:
                return {**self._expression(self._merged(name, value)), "alias": value["alias"]}
            is_alias = value["class"] == "COLUMN_REF" and _lower_last(value) in self._aliases
            if value["class"] not in _CLASSES or (name and name not in _scalars()):
                raise _Unknown
            if value["class"] == "COLUMN_REF" and not (is_alias and len(value["column_names"]) == 1):
                raise _Unknown
        return {name: self._finished(one) for name, one in value.items()}

    def _merged(self, name: str, node: Node) -> str:
        """Return an expression over PARTS for an aggregate over ROWS."""
        node = {**node, "alias": ""}
        if node["distinct"] or node["order_bys"]["orders"] or node["export_state"] or node["schema"]:
            raise _Unknown
        self._check([_arguments(node), node["filter"]])
        if name in ("min", "max") and len(_arguments(node)) == 1:
            return self._part(node, name + "({})", "_m")
        if name in ("count", "count_star"):
            return self._part(node, "CAST(sum({}) AS BIGINT)")
        total = _called(node, "sum")
        asked = {**self._rows, "select_list": [total, _called(node, "min")], **_UNGROUPED}
        kind, of = map(str, self._connection.sql(self._text(asked)).types)
        if name == "sum" and (kind == "HUGEINT" or kind.startswith("DECIMAL")):
            return self._part(node, f"CAST(sum({{}}) AS {kind})")
        if name in ("avg", "mean") and kind == "HUGEINT" and of != "UBIGINT" and _EXACT_AVERAGES:
            count = self._part(_called(node, "count"), "CAST(sum({}) AS BIGINT)")
            return f"CAST({self._part(total, 'CAST(sum({}) AS HUGEINT)')} AS DOUBLE) / {count}"
        raise _Unknown

    def _part(self, node: Node, how: str, prefix: str = "_a") -> str:
        """Add an aggregate to the columns of the partial statement, and return the expression that merges this column.

        The expression of a column named "_a…" also casts to the aggregate's type.
        """
        name = f"{prefix}{len(self._parts)}"
        return self._parts.setdefault(self._canonical(node), (name, node, how.format(name)))[2]

    def _canonical(self, node: Node) -> str:
        """Return a text that is equal for expressions that differ only in aliases, case and qualifiers."""
        bare = deepcopy(node)
        for found in nodes_of(bare):
            for name in ("alias", "query_location", "query_location_length"):
                found.pop(name, None)
            if found.get("class") == "COLUMN_REF":
                names = [name.lower() for name in found["column_names"]]
                found["column_names"] = names[1:] if len(names) > 1 and names[0] == self._alias else names
        return json.dumps(bare, sort_keys=True)

    # -- by DuckDB's parser

    def _parse(self, text: str) -> Node:
        if text not in self._parsed:
            self._parsed[text] = self._connection.execute("SELECT json_serialize_sql(?)", [text]).fetchall()[0][0]
        node: Node = json.loads(self._parsed[text])["statements"][0]["node"]
        return node

    def _expression(self, text: str) -> Node:
        return dict(self._parse(f"SELECT {text}")["select_list"][0])

    def _text(self, node: Node) -> str:
        statement = {**self._tree["statements"][0], "node": node}
        tree = json.dumps({**self._tree, "statements": [statement]})
        return str(self._connection.execute("SELECT json_deserialize_sql(?)", [tree]).fetchall()[0][0])


_AGGREGATES = ("count", "count_star", "sum", "min", "max", "avg", "mean")
_UNGROUPED: Node = {"group_expressions": [], "group_sets": []}


def adds_up(tree: Any) -> bool:  # Any: JSON
    """Whether a statement aggregates or limits rows, so that a user would expect it to be split."""
    kinds = {node.get("type") for node in nodes_of(tree)}
    grouped = any(node.get("group_expressions") for node in nodes_of(tree))
    names = {_name_of(node) for node in nodes_of(tree)} & _functions("bool_and(function_type = 'aggregate')")
    return grouped or bool(names) or "DISTINCT_MODIFIER" in kinds or kinds >= {"ORDER_MODIFIER", "LIMIT_MODIFIER"}


def nodes_of(value: Any) -> Iterator[Node]:  # Any: JSON
    """Yield all JSON objects in a JSON value, nested ones included."""
    waiting = [value]
    while waiting:
        found = waiting.pop()
        if isinstance(found, dict):
            yield found
            waiting += found.values()
        elif isinstance(found, list):
            waiting += found


def _has_aggregate(value: Any) -> bool:  # Any: JSON
    return any(_name_of(node) in _AGGREGATES for node in nodes_of(value))


def _is_all(node: Node) -> bool:
    """Whether an expression of ORDER BY is ALL."""
    beside = ("class", "type", "columns", "query_location", "query_location_length")
    return bool(node["class"] == "STAR") and not any(one for name, one in node.items() if name not in beside)


def _name_of(node: Node) -> str:
    return str(node["function_name"]).lower() if node.get("class") == "FUNCTION" else ""


def _lower_last(node: Node) -> str:
    return str((node.get("column_names") or [""])[-1]).lower()


def _arguments(node: Node) -> list[Any]:  # Any: JSON
    """Return the arguments of a function; DuckDB 1 and 2 serialize them differently."""
    found: list[Any] = node["arguments"] if "arguments" in node else node["children"]
    return found


def _called(node: Node, name: str) -> Node:
    """Return a function call with the function replaced by the one named ``name``."""
    path = {"qualified_name": {"path": [name]}} if "qualified_name" in node else {}
    return {**node, "function_name": name, **path}


def _number(node: Node | None) -> int:
    """Return the value of an integer literal; raises _Unknown for other nodes."""
    if node is None:
        raise _Unknown
    literal, value = node.get("literal") or {}, node.get("value") or {}
    text = str(literal.get("text") if literal else value.get("value"))
    if node["class"] != "CONSTANT" or not text.isdecimal():
        raise _Unknown
    return int(text)


# -- on engines --------------------------------------------------------------------------------------------------------


_ONE_AT_A_TIME = Lock()  # a table is registered for the whole connection


@lru_cache(1)  # to open one takes longer than most statements
def _connected(now_ms: int, zone: str) -> duckdb.DuckDBPyConnection:
    atexit.register(_connected.cache_clear)  # DuckDB complains of connections that are open at exit
    return connect(now_ms, zone, {"threads": "1", "temp_directory": ""})


class AddUp(Struct, Reduction, frozen=True):
    """Reduction by the partial and merge statements of a split statement over messages; rows of PARTS are Arrow
    streams.

    ``schema``: the columns that the statement reads.
    """

    split: Split
    messages: ReadMessages
    schema: pa.Schema
    cluster: str | None

    COLUMNS = ("parts",)
    NEEDS: ClassVar[tuple[str, ...]] = ("duckdb",)

    def partial(self, batch: EntryBatch) -> Row | None:
        problems: list[StoreError] = []
        rows = [*self.messages.rows([batch], "", problems)]
        try:
            return None if problems else self.of(rows)
        except duckdb.OutOfMemoryException as error:
            raise MemoryError(str(error)) from None
        except duckdb.Error:  # told where it is asked again
            return None

    def of(self, batches: Iterable[pa.RecordBatch]) -> Row:
        """Return the result of the partial statement over messages; raises duckdb.Error."""
        made = [with_topics(batch, self.schema, self.cluster) for batch in batches]
        return self._run(self.split.partial, ROWS, pa.Table.from_batches(made, self.schema))

    def merge(self, rows: Sequence[Row]) -> Row:
        return self._run(self.split.merge, PARTS, self.table(rows)) if rows else self.of(())

    @staticmethod
    def table(rows: Sequence[Row]) -> pa.Table:
        """Return the rows of PARTS in ``rows`` as one table."""
        return pa.concat_tables(pa.ipc.open_stream(row["parts"]).read_all() for row in rows)

    def _run(self, statement: str, name: str, table: pa.Table) -> Row:
        with _ONE_AT_A_TIME:
            connection = _connected(self.split.now_ms, self.split.zone)
            connection.register(name, table)
            found = connection.sql(statement).to_arrow_table()
            connection.unregister(name)
        return {"parts": stream_of(found.schema, found.to_batches()).to_pybytes()}
