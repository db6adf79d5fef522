"""The location and time index: building, writing, checking and rebuilding it from the files."""
