"""Commands of the group ``topics``, split by noun."""
