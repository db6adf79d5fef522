"""Our own bytes: one LMDB environment, one module a table, and the entry files beside it."""
