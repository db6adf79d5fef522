"""Changes to the store: planned as values, applied in one transaction with their undo record, one module per kind of change."""
