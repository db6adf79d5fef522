"""One self-contained HTML page of what was found: a renderer of values, which opens nothing and reads no store."""
