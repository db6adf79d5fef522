"""Make the Python code of every ``.proto`` in this folder again: ``python -m store.proto.generate``.

Of protoc's modules only the serialized descriptor is kept: ``store.proto.runtime`` makes the classes of it, at less cost.

Needs the ``dev`` extra (grpcio-tools and mypy-protobuf). The generated files are checked in, so nobody else needs it.
"""

import re
import shutil
import sys
from importlib import import_module, resources
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parents[1]

_SERIALIZED = re.compile(r"AddSerializedFile\((b'.*')\)$", re.MULTILINE)
_MODULE = """\
# Generated from {source} by store/proto/generate.py: do not edit.
from pulsar_admin.store.proto.runtime import define

DESCRIPTOR = define(__name__, globals(), {serialized})
"""


def proto_files() -> list[Path]:
    """The protobuf sources, in name order."""
    return sorted(FOLDER.glob("*.proto"))


def generate(root: Path) -> list[Path]:
    """Write ``store/proto/*_pb2.py`` and ``*_pb2.pyi`` below ``root`` and return their paths.

    Paths are given to the compiler relative to the repository, so that generated modules import each other as
    ``store.proto.x_pb2`` and register under those names in the descriptor pool. Raises RuntimeError when the compiler
    or the type-stub plugin is missing or fails.
    """
    plugin = Path(sys.executable).with_name("protoc-gen-mypy")
    stub_plugin = str(plugin) if plugin.exists() else shutil.which("protoc-gen-mypy")
    if stub_plugin is None:
        raise RuntimeError("protoc-gen-mypy is not installed; install the dev extra")
    protoc = import_module("grpc_tools.protoc")
    sources = [str(path.relative_to(ROOT)) for path in proto_files()]
    status = protoc.main(
        [
            "protoc",
            f"--proto_path={ROOT}",
            f"--proto_path={resources.files('grpc_tools') / '_proto'}",
            f"--plugin=protoc-gen-mypy={stub_plugin}",
            f"--python_out={root}",
            f"--mypy_out=quiet:{root}",
            *sources,
        ]
    )
    if status != 0:
        raise RuntimeError(f"protoc failed with status {status}")
    stems = [path.with_suffix("") for path in map(Path, sources)]
    for source, stem in zip(sources, stems, strict=True):
        module = root / f"{stem}_pb2.py"
        match = _SERIALIZED.search(module.read_text())
        if match is None:
            raise RuntimeError(f"{module}: protoc wrote no serialized descriptor")
        module.write_text(_MODULE.format(source=source, serialized=match[1]))
    return [root / f"{stem}_pb2{suffix}" for stem in stems for suffix in (".py", ".pyi")]


if __name__ == "__main__":
    generate(ROOT)
