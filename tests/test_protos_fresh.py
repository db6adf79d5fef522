"""The checked-in protobuf code is what its sources generate."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pulsar_admin.store.proto.generate import FOLDER, ROOT, generate, proto_files


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("generated")
    generate(folder)
    return folder


@pytest.mark.parametrize("source", proto_files(), ids=lambda path: path.name)
def test_checked_in_code_is_fresh(source: Path, generated: Path) -> None:
    for suffix in ("_pb2.py", "_pb2.pyi"):
        name = source.stem + suffix
        fresh = generated / FOLDER.relative_to(ROOT) / name
        assert (FOLDER / name).read_text() == fresh.read_text(), f"{name}: run python -m store.proto.generate"


@pytest.mark.parametrize("source", proto_files(), ids=lambda path: path.name)
def test_package_names_are_ours(source: Path) -> None:
    assert "\npackage pulsar_admin_toolkit." in source.read_text()


@pytest.mark.parametrize("source", proto_files(), ids=lambda path: path.name)
def test_no_map_fields(source: Path) -> None:
    """Protobuf 7.36 dies on ``FindInitializationErrors`` of a message with a map; a repeated pair has the same bytes."""
    assert not re.search(r"^\s*map\s*<", source.read_text(), re.MULTILINE)


def test_no_generated_file_is_left_behind() -> None:
    stems = {path.stem for path in proto_files()}
    for path in [*FOLDER.glob("*_pb2.py"), *FOLDER.glob("*_pb2.pyi")]:
        assert path.stem.removesuffix("_pb2") in stems


_PARSE = """
import sys
from pulsar_admin.store.proto.bookkeeper_pb2 import LedgerMetadataFormat
from pulsar_admin.store.proto.pulsar_api_pb2 import LZ4, CompressionType, MarkerType
raw = bytes.fromhex("0802100118002801320a0a06612e623a383010003802")
found = LedgerMetadataFormat.FromString(raw)
assert (found.quorumSize, found.state, found.segment[0].ensembleMember[0]) == (2, LedgerMetadataFormat.OPEN, "a.b:80")
assert LedgerMetadataFormat.Segment.__qualname__ == "LedgerMetadataFormat.Segment" and found.SerializeToString() == raw
assert (CompressionType.Name(LZ4), MarkerType.Value("TXN_ABORT")) == ("LZ4", 22)
print(*sys.modules)
"""


@pytest.mark.parametrize("runtime", ["upb", "python"])
def test_messages_are_the_same_in_either_runtime(runtime: str) -> None:
    environment = os.environ | {"PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": runtime}
    done = subprocess.run(
        [sys.executable, "-c", _PARSE], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    layers = {"google.protobuf.internal.python_message", "google.protobuf.text_format"} & set(done.stdout.split())
    assert bool(layers) == (runtime == "python"), (
        "the C runtime makes the classes alone: the other costs cold commands 7 ms"
    )
