"""The location and time index: building it, writing it, and making it again from the files."""
