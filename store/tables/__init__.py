"""What a store knows as tables: Arrow batches, Parquet, Iceberg, SQL; and answers from these alone."""
