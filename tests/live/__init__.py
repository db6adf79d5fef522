"""Tests against a real Apache Pulsar: they make a world, change it offline and start the broker on it again."""
