"""Print what is wrong since the last run, for cron, which mails it: python new_findings.py STORE FINDINGS.json

Run it after `pulsar-admin store refresh`. It prints nothing where nothing is new or worse.
"""

import json
import sys
from pathlib import Path

import pulsar_admin as pa


def main(path: str, saved: Path) -> None:
    with pa.open_store(path) as store:
        if saved.exists():
            compared = store.compare_findings(saved)
            found, told = compared.found, [str(one) for one in compared.changes if one.change in ("new", "worse")]
        else:
            found = store.doctor()
            told = [str(one) for one in found]
    print(*told, sep="\n", end="")
    saved.write_text(json.dumps(pa.to_json(found)))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
