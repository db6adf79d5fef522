"""Commands of the group ``store``, split by noun."""
