"""Into the store and out of it: import, refresh, export."""
