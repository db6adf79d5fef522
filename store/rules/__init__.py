"""What is judged: a table of rules over facts. ``store check``, ``doctor`` and every screen project it; none judges itself."""
