"""The command line: root group, settings, output, confirmation and the exit-code table."""

OWNER = "pulsar-admin"
