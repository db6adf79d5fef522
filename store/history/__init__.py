"""Earlier states of a cluster's metadata, from ZooKeeper's snapshots and logs: versions of nodes, trees,
differences."""
