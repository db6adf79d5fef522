"""Commands on delayed messages: the index, what is due when, replay, and what a real broker kept."""
