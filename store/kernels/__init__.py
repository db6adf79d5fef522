"""Compiled loops over bytes and columns. They import no other package of the store but ``proto``, for field numbers."""
