"""The data source ``pulsar_entries``, which Spark finds without registration.

A wheel has this module beside ``pulsar_admin``: Spark looks for modules that are called ``pyspark_…`` and asks each for its
``DefaultSource`` (``pyspark.sql.worker.lookup_data_sources`` of Spark 4), in every session, so little is imported before a read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pulsar_admin.store.scan.datasource import PulsarEntries


class DefaultSource(DataSource):
    """Makes ``pulsar_entries``, without filters pushed down, which only ``pulsar_admin.register`` can ask for."""

    def __new__(cls, options: dict[str, str]) -> PulsarEntries:  # type: ignore[misc]
        from pulsar_admin.store.scan.datasource import PulsarEntries

        return PulsarEntries(options)

    @classmethod
    def name(cls) -> str:
        return "pulsar_entries"
