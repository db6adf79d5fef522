"""``import pulsar_admin`` costs nothing, its names are those it promises, and nothing behind them is the command line's."""

import ast
import inspect
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import pytest
from msgspec import Struct

import pulsar_admin
from pulsar_admin.store import errors

ROOT = Path(__file__).resolve().parent.parent.parent


def loaded_by(code: str) -> set[str]:
    """The modules that are loaded when a fresh interpreter has run CODE."""
    shown = f"{code}\nimport sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", shown], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_importing_the_package_imports_nothing_else() -> None:
    """Beside what an interpreter that runs the same command has anyway."""
    assert loaded_by("import pulsar_admin") - loaded_by("") == {"pulsar_admin"}


def test_opening_a_store_and_planning_needs_no_command_line(demo_store: Path) -> None:
    code = (
        f"import pulsar_admin as pa\nwith pa.open_store({str(demo_store)!r}) as store:\n"
        " store.topic('plain').cursor('half').reset(to='9:3').preview()\n"
        " store.topic('plain').find('2026-11-20T00:00:00Z')\n"
        " store.topic('plain').stats()"
    )
    assert not loaded_by(code) & {"click", "rich", "commands", "pyspark", "numpy", "pandas", "numba"}


@cache
def names_of(module: ModuleType) -> dict[str, Any]:
    """What the names in the annotations of MODULE are, those that only type checkers import, too."""
    names = dict(vars(module))
    for node in ast.parse(inspect.getsource(module)).body:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            exec(compile(ast.Module(node.body, []), module.__name__, "exec"), names)
    return names


def meant(said: Any, names: dict[str, Any]) -> Any:
    """The annotation SAID, which is a text in modules whose annotations are not evaluated."""
    return eval(said, names) if isinstance(said, str) else said


def classes_in(annotation: Any) -> Iterator[type]:
    """The classes of the product that ANNOTATION names: ``tuple[Finding, ...]`` names Finding."""
    for part in annotation if isinstance(annotation, list) else get_args(annotation):
        yield from classes_in(part)
    if isinstance(annotation, type) and annotation.__module__.startswith("pulsar_admin."):
        yield annotation


def returned_by(public: Any) -> Iterator[tuple[str, type]]:
    """What the function PUBLIC, or each public method and property of the class, returns."""
    if not isinstance(public, type):
        of_modules = [(sys.modules[public.__module__], {public.__name__: public})]
    else:
        ours = [cls for cls in public.__mro__ if cls.__module__.startswith("pulsar_admin.")]
        of_modules = [(sys.modules[cls.__module__], dict(vars(cls))) for cls in ours]
    for module, members in of_modules:
        names = names_of(module)
        for name, member in members.items():
            made = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
            made = getattr(made, "func", made)  # cached properties
            if inspect.isfunction(made) and (not name.startswith("_") or name == "__iter__"):
                yield from ((name, cls) for cls in classes_in(meant(made.__annotations__["return"], names)))


def fields_of(cls: type) -> Iterator[tuple[str, type]]:
    """What the public fields of the record CLS are, those of its bases too."""
    for base in cls.__mro__:
        if base.__module__.startswith("pulsar_admin.") and issubclass(base, (Struct, tuple)):
            names = names_of(sys.modules[base.__module__])
            for name, said in vars(base).get("__annotations__", {}).items():
                said = getattr(said, "__forward_arg__", said)  # of a named tuple
                if name[0] != "_" and "ClassVar" not in str(said):
                    yield from ((f"{cls.__name__}.{name}", one) for one in classes_in(meant(said, names)))


_UNFINISHED = {"ReclaimPlan.bookie", "ReclaimPlan.storages", "ReclaimPlan.known"}
"""Of a work that ``reclaim`` takes up: nothing that callers read."""


def test_what_public_records_hold_is_public() -> None:
    """A caller's function can say what it takes: ``def loss(held: pa.HeldBytes) -> int``. Unions and tuples are looked through."""
    public = {name: getattr(pulsar_admin, name) for name in pulsar_admin.__all__ if name != "__version__"}
    held = {one for cls in public.values() if isinstance(cls, type) for one in fields_of(cls)}
    assert len(held) > 200
    assert {
        (name, cls) for name, cls in held if public.get(cls.__name__) is not cls and name not in _UNFINISHED
    } == set()


def test_what_annotations_name_is_found() -> None:
    """The tests of this file derive all they know from it: a union, a list in an iterator, a tuple of tuples."""
    said = "Iterator[tuple[Finding, ...] | dict[str, Why | None]] | Callable[[Plan], Usage]"
    names = {**vars(pulsar_admin), **{one: getattr(pulsar_admin, one) for one in ("Finding", "Why", "Plan", "Usage")}}
    found = {cls.__name__ for cls in classes_in(eval(said, names | {"Iterator": Iterator, "Callable": Callable}))}
    assert found == {"Finding", "Why", "Plan", "Usage"}


_OF_ANY = {
    "answers",
    "as_json",
    "decoded",
    "documents",
    "iter_documents",
    "policies",
    "policy",
    "report",
    "reports",
    "rows",
    "to_json",
}
"""Rows of columns that callers name, JSON, and what has any key that a broker or an older version stored."""


def test_answers_are_records_and_no_dictionaries() -> None:
    public = [getattr(pulsar_admin, name) for name in pulsar_admin.__all__ if name != "__version__"]
    classes = [cls for one in public if isinstance(one, type) for cls in one.__mro__]
    members = [pair for cls in classes if cls.__module__.startswith("pulsar_admin.") for pair in vars(cls).items()]
    members += [(one.__name__, one) for one in public if inspect.isfunction(one)]
    returned = {
        (name, str(made.__annotations__.get("return")))
        for name, member in members
        if inspect.isfunction(made := member.fget if isinstance(member, property) else member) and name[0] != "_"
    }
    assert {name for name, kind in returned if re.search(r"\b(Any|Json)\b", kind)} == _OF_ANY


def test_flags_are_off_unless_given() -> None:
    """Nothing is forced, deleted with its partitions or shown as encoded by default; checksums are verified."""
    public = [getattr(pulsar_admin, name) for name in pulsar_admin.__all__]
    members = [one for made in public for one in (vars(made).values() if isinstance(made, type) else [made])]
    assert {
        f"{member.__qualname__} {parameter.name}"
        for member in members
        if inspect.isfunction(member) and member.__name__[0] != "_"
        for parameter in inspect.signature(member).parameters.values()
        if parameter.default is True
    } == {
        "Compaction.status leaked",
        "Store.compare_index verify",
        "Store.rebuild_index verify",
        "Topic.internal_info publish_times",
        "Topic.internal_stats publish_times",
        "Topic.partitioned_internal_stats publish_times",
        "Topic.partitioned_stats backlog_size",
        "Topic.stats backlog_size",
        "import_cluster index",
        "import_cluster verify",
        "import_standalone index",
        "import_standalone verify",
        "log_records verify",
    }


def raised_by(public: Any) -> Iterator[str]:
    """The errors that the docstrings of PUBLIC and its public methods name."""
    members = [member for cls in public.__mro__ for member in vars(cls).items()] if isinstance(public, type) else []
    for text in (public.__doc__, *(value.__doc__ for name, value in members if not name.startswith("_"))):
        yield from (word for word in re.findall(r"\w+", text or "") if inspect.isclass(getattr(errors, word, None)))


def test_what_public_methods_return_and_raise_is_public() -> None:
    """A caller's function can say what it takes and what it catches."""
    public = {name: getattr(pulsar_admin, name) for name in pulsar_admin.__all__ if name != "__version__"}
    of_answers = {(name, cls) for one in public.values() for name, cls in returned_by(one)}
    assert len(of_answers) > 200
    assert {(name, cls) for name, cls in of_answers if public.get(cls.__name__) is not cls} == set()
    assert {word for one in public.values() for word in raised_by(one)} - set(public) == set()


def test_the_version_is_that_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert pulsar_admin.__version__ == project["version"]


def test_every_promised_name_is_there_and_says_what_it_is() -> None:
    assert {*pulsar_admin._HOMES, "__version__"} == set(pulsar_admin.__all__)
    assert [*pulsar_admin.__all__] == sorted(pulsar_admin.__all__)
    for name in pulsar_admin._HOMES:
        found = getattr(pulsar_admin, name)
        assert inspect.getdoc(found), name
        if inspect.isclass(found) and found.__module__.startswith("pulsar_admin."):
            for member, value in vars(found).items():
                if not member.startswith("_") and (inspect.isfunction(value) or isinstance(value, property)):
                    assert inspect.getdoc(value), f"{name}.{member}"


def test_no_other_name_is_there() -> None:
    with pytest.raises(AttributeError, match="no attribute 'stores'"):
        pulsar_admin.stores  # noqa: B018
