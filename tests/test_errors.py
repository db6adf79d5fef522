"""Every error has a stable code of its own and an exit code, equal to the product's table."""

import importlib
import json
import pkgutil
import re
import struct
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

from pulsar_admin import store
from pulsar_admin.errors import EXIT_CODES, failure_of
from pulsar_admin.store.codec.avro import avro_decoder
from pulsar_admin.store.codec.strict_values import json_value
from pulsar_admin.store.errors import InvalidValue, StoreError, reason_of
from pulsar_admin.store.names import parse_topic
from tests.conftest import Cli
from tests.test_docs import generate
from tests.worlds import world

# The product's numbers, by what the word in a code says.
EXPECTED = {
    "slice-failed": 1,
    "not-seen": 6,
    "invalid-value": 2,
    "bad-sql": 2,
    "refused": 3,
    "cancelled": 3,
    "not-writable": 3,
    "already-exists": 3,
    "store-busy": 4,
    "source-busy": 4,
    "stale-plan": 4,
    "undo-conflict": 4,
    "nothing-matches": 5,
    "source-changed": 6,
    "unsupported": 7,
    "needs-broker": 7,
    "missing-component": 7,
    "not-on-workers": 7,
    "encrypted-payload": 7,
    "disk-failed": 6,
    "disk-full": 8,
    "limit-exceeded": 8,
}


def _expected(code: str) -> int:
    if code.endswith("not-found"):
        return 5
    if code.endswith("corrupt"):
        return 6
    return EXPECTED[code]


def all_classes(cls: type[StoreError] = StoreError) -> list[type[StoreError]]:
    """Every class of the tree, also those declared outside ``store/errors.py``."""
    below = [found for child in cls.__subclasses__() for found in all_classes(child)]
    return [*cls.__subclasses__(), *below]


for module in pkgutil.walk_packages(store.__path__, "pulsar_admin.store."):
    if "_pb2" not in module.name:
        importlib.import_module(module.name)
CLASSES = sorted(set(all_classes()), key=lambda cls: cls.__name__)


def test_classes_have_a_code_and_its_number() -> None:
    for cls in CLASSES:
        assert "code" in vars(cls), cls
        assert re.fullmatch(r"[a-z]+(-[a-z]+)*", cls.code), cls
        assert EXIT_CODES[cls] == _expected(cls.code), cls
        assert cls.__doc__, cls


def test_codes_are_unique() -> None:
    codes = [cls.code for cls in CLASSES] + list(generate.OTHER_CODES)
    assert len(codes) == len(set(codes))


def test_every_number_has_a_meaning() -> None:
    assert set(generate.MEANINGS) == {0, 1, 2, 3, 4, 5, 6, 7, 8, 70, 130}
    assert set(EXIT_CODES.values()) | {number for number, _ in generate.OTHER_CODES.values()} <= set(generate.MEANINGS)


@pytest.mark.parametrize(
    ("decode", "words"),
    [
        (lambda: b"a\xf5".decode(), "byte 1 is not UTF-8: 0xf5"),
        (lambda: json.loads('{\n"a": "b'), "it is not JSON at line 2, column 6"),
        (lambda: json_value(b'{\n"a": "b'), "it is not JSON at line 2, column 6"),
        (lambda: json_value(b'"\xf5"'), "byte 1 is not UTF-8: 0xf5"),
        (lambda: {}["steps"], "steps is missing"),
        (lambda: int("x" * 2, 16), "invalid literal for int() with base 16: 'xx'"),
        (lambda: struct.unpack_from(">q", b"1234", 3), "it ends too early: 11 bytes are needed"),
        (lambda: struct.unpack(">q", b"1234"), "it is not 8 bytes long"),
        (lambda: struct.pack(">qq", 1), "pack expected 2 items for packing (got 1)"),
        (lambda: avro_decoder(b'"string"')(b"\x64a"), "it ends too early (Expected 50 bytes, read 1)"),
        (lambda: avro_decoder(b'"string"')(b"\x02ab"), "1 byte after the value"),
    ],
)
def test_reasons_are_about_the_data(decode: Callable[[], object], words: str) -> None:
    with pytest.raises(Exception) as caught:  # noqa: PT011
        decode()
    assert reason_of(caught.value) == words


def test_a_current_directory_that_was_deleted_is_no_bug(
    whole_cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    answer = whole_cli("--store", "s", "-o", "json", "store", "import", "standalone", world("small") / "clean")
    assert (answer.exit_code, answer.error["message"]) == (5, "the current directory no longer exists")


def test_a_traceback_ends_with_the_hint() -> None:
    error = InvalidValue("there is no table 'topic'", hint="tables: topics, ledgers")
    assert traceback.format_exception(error)[-1] == "tables: topics, ledgers\n"
    assert len(traceback.format_exception(InvalidValue("no hint"))) == 1


def test_what_a_disk_does_is_said() -> None:
    for error, said in (
        (OSError(5, "Input/output error", "f"), "the disk failed at f: Input/output error"),
        (OSError(5, "Input/output error"), "the disk failed at a file: Input/output error"),
        (OSError(28, "No space left on device"), "no space left writing the output"),
        (MemoryError(), "out of memory"),
    ):
        assert failure_of(error).message == said
    assert failure_of(PermissionError(13, "Permission denied", "f")).hint == "check permissions"


def test_a_path_of_a_file_is_not_advised_as_a_topic() -> None:
    with pytest.raises(InvalidValue) as refused:
        parse_topic("/tmp/it's here/a.jsonl/b")
    assert refused.value.hint == "write persistent://tenant/namespace/topic or its short form"
