"""Where metadata and entries come from: readers of Pulsar's directories. They never write there."""
