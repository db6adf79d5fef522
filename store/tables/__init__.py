"""A store's content as tables: Arrow batches, Parquet, Iceberg, SQL; and stores made from exported tables."""
