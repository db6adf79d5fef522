"""Write the backlog of every subscription of a tenant as CSV: python backlog_csv.py STORE TENANT > backlog.csv"""

import csv
import sys

import pulsar_admin as pa


def main(path: str, tenant: str) -> None:
    rows = csv.writer(sys.stdout)
    rows.writerow(["topic", "subscription", "entries", "messages", "bytes"])
    with pa.open_store(path) as store:
        for name in store.topics(pattern=f"{tenant}/*"):
            topic = store.topic(name)
            for subscription in topic.subscriptions():
                left: pa.Extent = topic.cursor(subscription).backlog()
                rows.writerow([name, subscription, left.entries, left.messages, left.bytes])


if __name__ == "__main__":
    main(*sys.argv[1:])
