"""Print who fills the disks and what is wrong: python storage_report.py STORE. Exits with 1 where something is critical."""

import sys
from collections.abc import Sequence

import pulsar_admin as pa


def largest(usage: pa.Usage, top: int) -> list[tuple[str, int]]:
    owners = sorted(usage.owners, key=lambda owner: owner.disk_bytes, reverse=True)
    return [(owner.owner, owner.disk_bytes) for owner in owners[:top]]


def critical(findings: Sequence[pa.Finding]) -> list[str]:
    return [f"{finding.code}: {finding.message}" for finding in findings if finding.severity is pa.Severity.CRITICAL]


def main(path: str) -> int:
    with pa.open_store(path) as store:
        for owner, size_bytes in largest(store.usage(), 5):
            print(f"{size_bytes:>12,} {owner}")
        wrong = critical(store.doctor())
    print(*wrong, sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
