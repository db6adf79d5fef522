"""Rewriting the disks of bookies that are stopped."""

OWNER = "pulsar-admin"
