"""The program with the sample commands in its table, to be run as a process of its own."""

from pulsar_admin import command_table
from pulsar_admin.cli import main
from tests.sample_commands import SAMPLE_TABLE

command_table.GROUPS["sample"] = "Samples."
command_table.COMMANDS["sample"] = SAMPLE_TABLE

if __name__ == "__main__":
    main()
