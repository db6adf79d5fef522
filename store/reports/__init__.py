"""Read-only answers of commands."""
