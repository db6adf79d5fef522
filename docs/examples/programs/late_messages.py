"""Print the messages that took longest from their producer to the broker: python late_messages.py STORE TOPIC

Needs the extra [pandas].
"""

import sys

import pandas

import pulsar_admin as pa

COLUMNS = ["ledger_id", "entry_id", "producer", "publish_time", "broker_time"]


def latest(frame: pandas.DataFrame, most: int) -> pandas.DataFrame:
    frame["late"] = frame["broker_time"] - frame["publish_time"]
    return frame.nlargest(most, "late").drop(columns=["publish_time", "broker_time"])


def main(path: str, name: str) -> None:
    with pa.open_store(path) as store:
        frame = store.topic(name).messages(columns=COLUMNS).to_pandas()
    print(latest(frame, 10))


if __name__ == "__main__":
    main(*sys.argv[1:])
