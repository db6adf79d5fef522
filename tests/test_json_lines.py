"""Lines of JSON made from columns equal what ``json`` writes of each row."""

import json
from base64 import b64encode

import pyarrow as pa
import pytest

from pulsar_admin.store.dump.tables import json_lines

NASTY = ["", 'say "hi"', "back\\slash", "line\nfeed\ttab", "\x00\x1f\x7f", "é世\u2028😀", "}\n{", "null", None]
PLAIN = ["", "a", "é世\u2028\x7f", "true", None, "x" * 300, "0", " ", "{}"]


@pytest.mark.parametrize("texts", [NASTY, PLAIN])
@pytest.mark.parametrize("start", [0, 4])
def test_lines_are_those_of_json(texts: list[str | None], start: int) -> None:
    count = len(texts)
    digests = [bytes([index, 255 - index]) * 10 for index in range(count)]
    columns = {
        "number": pa.array([0, -1, None, 2**63 - 1, -(2**63), 5, 6, 7, 8], pa.int64()),
        "quiet": pa.array([None, 1, None, 2, None, 3, None, None, 4], pa.int32()),
        "flag": pa.array([True, None, False, None, True, None, None, None, False]),
        "text": pa.array(texts),
        "producer": pa.array(texts).dictionary_encode(),
        "properties": pa.array(
            [[(text or "none", text or "")] * (index % 2) for index, text in enumerate(texts)],
            pa.map_(pa.string(), pa.string()),
        ),
        "first": pa.array(
            [[("k", "v")] * (index == start) for index in range(count)], pa.map_(pa.string(), pa.string())
        ),
        "nothing": pa.array([[]] * count, pa.map_(pa.string(), pa.string())),
        "sha1": pa.array(digests, pa.binary(20)),
        "payload": pa.array([None if text is None else text.encode() for text in texts], pa.binary()),
        "value": pa.array([None, *('{"a" : [1, "\\u00e9"]}' for _ in texts[1:])]),
    }
    expected = ""
    for index in range(start, count):
        text, value = texts[index], columns["value"][index].as_py()
        row = {
            "topic": 'p://a/b/"c"',
            "number": columns["number"][index].as_py(),
            "quiet": columns["quiet"][index].as_py(),
            "flag": columns["flag"][index].as_py(),
            "text": text,
            "producer": text,
            "properties": {text or "none": text or ""} if index % 2 else {},
            "first": {"k": "v"} if index == start else {},
            "nothing": {},
            "sha1": digests[index].hex(),
            "payload": None if text is None else b64encode(text.encode()).decode(),
            "value": None if value is None else {"a": [1, "é"]},
        }
        row = {name: item for name, item in row.items() if item is not None or name not in ("quiet", "flag", "value")}
        expected += json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n"
    batch = pa.RecordBatch.from_pydict(columns).slice(start)
    assert json_lines('p://a/b/"c"', batch, ("quiet", "flag", "value")) == expected
