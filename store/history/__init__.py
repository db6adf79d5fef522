"""What a cluster's metadata was: versions of nodes, the tree as of a moment, differences; from ZooKeeper's snapshots and logs."""
