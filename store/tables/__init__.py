"""What a store knows as tables: Arrow batches, Parquet, Iceberg, SQL; and a store made of these."""
