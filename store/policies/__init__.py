"""The policies in force for a topic or namespace, and where each comes from."""
