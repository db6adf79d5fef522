"""Compiled loops over bytes and columns. They import no other room of the store."""
