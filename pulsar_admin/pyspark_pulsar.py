"""The data source ``pulsar_entries``, which Spark finds without registration.

A wheel has this module beside ``pulsar_admin``: in every session, Spark imports all modules named ``pyspark_…`` and
registers their ``DefaultSource`` (``pyspark.sql.worker.lookup_data_sources`` of Spark 4), so little is imported before
a read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pulsar_admin.store.scan.datasource import PulsarEntries


class DefaultSource(DataSource):
    """Creates ``pulsar_entries`` without filter pushdown, which only ``pulsar_admin.register`` can enable."""

    def __new__(cls, options: dict[str, str]) -> PulsarEntries:  # type: ignore[misc]
        from pulsar_admin.store.scan.datasource import PulsarEntries

        return PulsarEntries(options)

    @classmethod
    def name(cls) -> str:
        return "pulsar_entries"
