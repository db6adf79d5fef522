"""What a store knows as columns: tables, SQL over them, data frames of Spark. Imports neither pyarrow nor pyspark before they are asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pulsar_admin.api.given import given_text
from pulsar_admin.api.session import Session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pulsar_admin.api.batches import Batches
    from pulsar_admin.api.spark import SparkTables


class Columns:
    """The part of ``Store`` that gives rows as columns."""

    _session: Session

    def spark(self, session: SparkSession) -> SparkTables:
        """Return the store's messages and entries as data frames of a Spark SESSION, which reads the entry logs themselves."""
        from pulsar_admin.api.spark import SparkTables

        return SparkTables(self._session, session)

    def table(self, name: str) -> Batches:
        """Return a table of what the store knows as Arrow batches: topics, ledgers, cursors, policies, schemas or nodes.

        Columns and names are those of the files that ``store export tables`` writes. Raises InvalidValue for another name.
        """
        from pulsar_admin.api.tables import table_of

        return table_of(self._session, name)

    def sql(self, statement: str) -> Batches:
        """Return the rows of one SELECT as Arrow batches, by DuckDB; ``docs/howto/sql.md`` has its tables. Each iteration runs it anew.

        Raises BadSql, Refused for a statement that does more than read, MissingComponent.
        """
        from pulsar_admin.api.tables import rows_of

        return rows_of(self._session, given_text("statement", statement))
