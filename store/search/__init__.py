"""Finds entries of a topic by time or by index, exactly or as a broker would."""
