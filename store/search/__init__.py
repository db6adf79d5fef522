"""Where in a topic is what was asked for: by time, by index, and as a broker would find it."""
