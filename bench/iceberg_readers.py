"""Iceberg tables of ``store export tables DIR --iceberg``, read by every engine there is: the same counts and sums?

``python -m bench.iceberg_readers DIR [--spark PYTHON --jar JAR] [--duckdb PYTHON]``

pyiceberg and DuckDB on pyiceberg's scan read here. ``--spark``: the Python of an environment with the pyspark that JAR
(``iceberg-spark-runtime-…``) is for: 4.1 with 4.1, which 4.3 does not load. ``--duckdb``: one with ``duckdb``,
``duckdb-extension-iceberg`` and ``duckdb-extension-avro`` of one version, whose ``iceberg_scan`` reads the metadata itself.
Exit code 1 when one of them differs.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from pulsar_admin.store.tables.iceberg import NAMESPACE, open_warehouse

Answer = list[list[Any]]  # Any: a cluster's name, then counts and sums

_SPARK = """
import sys, json
from pyspark.sql import SparkSession
jar, asked = sys.argv[1], json.load(sys.stdin)
spark = SparkSession.builder.master("local[2]").config("spark.jars", jar).config("spark.ui.enabled", "false")
spark = spark.config("spark.sql.ansi.enabled", "false").getOrCreate()
spark.sparkContext.setLogLevel("ERROR")
found = {}
for name, (metadata, query) in asked.items():
    spark.read.format("iceberg").load(metadata).createOrReplaceTempView("rows_of")
    found[name] = [list(row) for row in spark.sql(query).collect()]
print(json.dumps(found, default=int))
"""
_DUCKDB = """
import sys, json, glob, os
import duckdb, duckdb_extension_avro, duckdb_extension_iceberg
asked = json.load(sys.stdin)
connection = duckdb.connect()
for module in (duckdb_extension_avro, duckdb_extension_iceberg):
    for file in glob.glob(os.path.dirname(module.__file__) + "/extensions/*/*.duckdb_extension"):
        connection.execute(f"LOAD '{file}'")
found = {}
for name, (metadata, query) in asked.items():
    connection.execute(f"create or replace view rows_of as select * from iceberg_scan('{metadata}')")
    found[name] = [list(row) for row in connection.execute(query).fetchall()]
print(json.dumps(found, default=int))
"""


def main() -> None:
    """Ask every engine, and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory")
    parser.add_argument("--catalog")
    parser.add_argument("--spark")
    parser.add_argument("--jar")
    parser.add_argument("--duckdb")
    given = parser.parse_args()
    warehouse = open_warehouse(given.directory, given.catalog)
    tables = {names[-1]: warehouse.catalog.load_table(names) for names in warehouse.catalog.list_tables(NAMESPACE)}
    asked = {name: (table.metadata_location, query_of(table.schema().as_arrow())) for name, table in tables.items()}
    answers = dict(answers_of(given, tables, asked))
    expected = answers["pyiceberg"]
    for name, rows in expected.items():
        differing = [engine for engine, found in answers.items() if found[name] != rows]
        counts = ", ".join(f"{row[0]} {row[1]:,}" for row in rows)
        agree = f"{len(answers)} engines agree" if not differing else f"DIFFER: {', '.join(differing)}"
        print(f"{name:<10} {counts or 'no rows'}: {agree}")
    sys.exit(any(found != expected for found in answers.values()))


def numbers_of(schema: pa.Schema) -> list[str]:
    """Return the columns that can be added up."""
    return [field.name for field in schema if pa.types.is_integer(field.type)]


def query_of(schema: pa.Schema) -> str:
    """Return the question: rows, values of every column, sums of every number, by cluster."""
    values = [f"count(rows_of.{field.name})" for field in schema if not pa.types.is_nested(field.type)]
    sums = [f"sum(cast(rows_of.{name} as decimal(38, 0)))" for name in numbers_of(schema)]
    return f"select cluster, count(*), {', '.join(values + sums)} from rows_of group by cluster order by cluster"


def answers_of(
    given: argparse.Namespace, tables: dict[str, Any], asked: dict[str, tuple[str, str]]
) -> Iterator[tuple[str, dict[str, Answer]]]:
    """Yield (engine, its answers), and print how long it took, its start included."""

    def timed(engine: str, answer: dict[str, Answer]) -> tuple[str, dict[str, Answer]]:
        nonlocal begin
        print(f"{engine}: {time.perf_counter() - begin:.1f} s", flush=True)
        begin = time.perf_counter()
        return engine, answer

    begin = time.perf_counter()
    yield timed("pyiceberg", {name: counted(table.scan().to_arrow_batch_reader()) for name, table in tables.items()})
    yield timed("DuckDB on pyiceberg's scan", {name: by_duckdb(tables[name], asked[name][1]) for name in tables})
    if given.duckdb:
        yield timed("DuckDB iceberg_scan", elsewhere([given.duckdb, "-c", _DUCKDB], asked))
    if given.spark:
        yield timed("Spark", elsewhere([given.spark, "-c", _SPARK, given.jar], asked))


def elsewhere(command: list[str], asked: dict[str, tuple[str, str]]) -> dict[str, Answer]:
    """Return what a program of another environment answers."""
    done = subprocess.run(command, input=json.dumps(asked), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, Answer] = json.loads(done.stdout)
    return found


def by_duckdb(table: Any, query: str) -> Answer:  # Any: pyiceberg's Table
    """Return what DuckDB makes of the batches of pyiceberg's scan."""
    import duckdb

    rows_of = table.scan().to_arrow_batch_reader()
    found = duckdb.sql(query).fetchall() if rows_of is not None else []
    return [[_plain(value) for value in row] for row in found]


def counted(batches: pa.RecordBatchReader) -> Answer:
    """Return the same, added up here batch by batch."""
    import pyarrow.compute as pc

    plain = [field.name for field in batches.schema if not pa.types.is_nested(field.type)]
    sums = numbers_of(batches.schema)
    total: dict[str, list[Any]] = {}
    for batch in batches:
        for cluster in pc.unique(batch["cluster"]).to_pylist():
            rows = batch.filter(pc.equal(batch["cluster"], cluster))
            values = [len(rows) - rows[name].null_count for name in plain]
            added = [pc.sum(rows[name]).as_py() for name in sums]
            before = total.get(cluster, [0, *([0] * len(plain)), *([None] * len(sums))])
            total[cluster] = [_add(one, other) for one, other in zip(before, [len(rows), *values, *added], strict=True)]
    return [[cluster, *values] for cluster, values in sorted(total.items())]


def _add(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else one + other


def _plain(value: Any) -> Any:  # Any: a decimal becomes an integer
    return value if value is None or isinstance(value, str) else int(value)


if __name__ == "__main__":
    main()
