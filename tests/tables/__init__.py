"""Tables: what they hold, and answers from these alone."""
