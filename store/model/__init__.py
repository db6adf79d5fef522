"""Topics, ledgers, cursors and messages as objects, read from the store."""
