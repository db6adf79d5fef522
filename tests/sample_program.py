"""The program with the sample commands in its table, to be run as a process of its own."""

from __future__ import annotations

from pulsar_admin import table
from pulsar_admin.cli import main
from tests.sample_commands import SAMPLE_TABLE

table.GROUPS["sample"] = "Samples."
table.COMMANDS["sample"] = SAMPLE_TABLE

if __name__ == "__main__":
    main()
