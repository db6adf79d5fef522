"""Bulk work: a pure function over slices, run here, in processes or on Spark. Knows no Pulsar."""
