"""The store's own bytes: one LMDB environment, with a module per table, and the entry files beside it."""
