"""The table of rules about facts. ``store check``, ``doctor`` and every screen show its findings; none has rules of its own."""
