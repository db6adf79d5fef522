"""Bytes to frozen values and back, one module per structure; no files, no paths."""
