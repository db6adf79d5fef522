"""Import, refresh, export."""
