"""What is seen in the files of a metadata store and leaves nothing out, as far as they tell."""

from __future__ import annotations


class Notes:
    """Sentences. ``not_needed``: damage that cost nothing, for other files have what stood there. ``log_ends``: how ZooKeeper's newest log
    may have had more."""

    def __init__(self) -> None:
        self.not_needed: list[str] = []
        self.log_ends: list[str] = []
