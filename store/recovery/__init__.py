"""Making again what a cluster lost: from ZooKeeper's history and from what the bookies still hold."""

OWNER = "pulsar-admin"
