"""Reset every subscription of a CSV file as one change, look at it, and undo it: python many_resets.py STORE FILE

The file has the columns topic, subscription and to, a position.
"""

import csv
import sys
from pathlib import Path

import pulsar_admin as pa


def places(store: pa.Store, rows: list[dict[str, str]]) -> list[pa.Position]:
    return [store.topic(row["topic"]).cursor(row["subscription"]).state().mark_delete for row in rows]


def main(path: str, file: str) -> None:
    rows = list(csv.DictReader(Path(file).read_text().splitlines()))
    with pa.open_store(path, writable=True) as store:
        before = places(store, rows)
        plan = store.reset_cursors(rows)
        preview: pa.ChangeReport = plan.preview()
        print(len(preview.parts), "cursors would move")
        change = store.apply(plan)
        print("change", change.number, "moved", sum(a != b for a, b in zip(before, places(store, rows), strict=True)))
        store.undo(change)
        print("undone:", places(store, rows) == before)


if __name__ == "__main__":
    main(*sys.argv[1:])
