"""Compiled loops over bytes and columns. They import no other room of the store but ``proto``, for the numbers of fields."""
