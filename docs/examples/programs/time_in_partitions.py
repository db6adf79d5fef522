"""Find a time in all partitions of a topic at once: python time_in_partitions.py STORE TOPIC TIME"""

import sys
from concurrent.futures import ThreadPoolExecutor

import pulsar_admin as pa


def main(path: str, name: str, time: str) -> None:
    with pa.open_store(path) as store, ThreadPoolExecutor() as pool:
        topic = store.topic(name)
        partitions = topic.partitions() or (topic,)

        def find(partition: pa.Topic) -> pa.FoundEntry:
            return partition.find(time, clock="publish")

        for found in pool.map(find, partitions):
            print(found.topic, found.position or "-")


if __name__ == "__main__":
    main(*sys.argv[1:])
