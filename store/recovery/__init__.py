"""Recovery of lost metadata, from ZooKeeper's history and from the data that bookies still hold."""

OWNER = "pulsar-admin"
