"""Topics as files for analysis or for another store, and back: Parquet or JSON lines, streamed both ways.

Level ``messages`` is what a consumer sees, one row per message. Level ``entries`` is the exact bytes of every entry: it loads again.
"""
