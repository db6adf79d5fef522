"""Print one field of the decoded messages of a topic: python decoded_messages.py STORE TOPIC FIELD"""

import sys
from collections.abc import Iterable

import pulsar_admin as pa


def values(messages: Iterable[pa.MessageRecord], field: str) -> Iterable[object]:
    for message in messages:
        value: dict[str, object] | None = message.value  # None: sent without one
        if value is not None:
            yield value.get(field)


def main(path: str, name: str, field: str) -> None:
    with pa.open_store(path) as store:
        for value in values(store.topic(name).messages(columns=["value"]).records(), field):
            print(value)


if __name__ == "__main__":
    main(*sys.argv[1:])
