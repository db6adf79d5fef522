"""The layers, and the writing rule, read from the source with ``ast``."""

import ast
import importlib
import pkgutil
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("pulsar_admin", "store", "commands")
MODULES = sorted(
    str(path.relative_to(ROOT))
    for package in PACKAGES
    for path in (ROOT / package).rglob("*.py")
    if not path.name.endswith("_pb2.py")
)

MAY_IMPORT = {
    "lmdb": {"store/db/environment.py"},
    "pyspark": {
        "pulsar_admin/pyspark_pulsar.py",
        "store/scan/datasource.py",
        "store/engine/spark.py",
        "store/engine/spark_session.py",
        "store/engine/workers.py",
    },
    "jinja2": {"pulsar_admin/page/rendering.py"},
    "rich": {"pulsar_admin/output.py", "pulsar_admin/plot.py", "pulsar_admin/progress.py"},
}
# rocksdb.py makes a scratch directory of links, so that the source stays as it is.
MAY_WRITE = {"store/files.py", "store/proto/generate.py", "store/sources/rocksdb.py"}
# spark_session.py sets what py4j reads when it starts the JVM; workers.py asks an executor where it spills.
MAY_READ_ENVIRONMENT = {"pulsar_admin/config.py", "store/engine/spark_session.py", "store/engine/workers.py"}
MAY_PRINT = {"store/proto/generate.py"}
MAY_CATCH_EVERYTHING = {"pulsar_admin/cli.py:run"}

FLOOR = {"aliases", "errors", "extras", "names", "pace", "timespec", "files", "secrets", "urls", "wording"}
"""Modules of ``store`` that every package may import; they import no package."""

ARROWS = {
    "proto": set(),
    "codec": {"proto"},
    "engine": set(),
    "kernels": {"proto"},
    "db": {"codec"},
    "sources": {"codec", "db"},
    "model": {"codec", "db"},
    "history": {"codec", "sources", "model", "db"},
    "scan": {"kernels", "engine", "codec", "db", "model"},
    "nacks": {"db", "model", "codec"},
    "index": {"scan", "kernels", "engine", "sources", "codec", "db"},
    "compaction": {"scan", "kernels", "engine", "codec", "db", "model"},
    "policies": {"codec", "db", "model", "compaction"},
    "search": {"scan", "kernels", "codec", "db", "model"},
    "reports": {
        "facts",
        "policies",
        "compaction",
        "index",
        "scan",
        "sources",
        "codec",
        "db",
        "model",
    },
    "changes": {
        "facts",
        "search",
        "policies",
        "compaction",
        "index",
        "codec",
        "db",
        "model",
    },
    "recovery": {
        "rules",  # preflight forecasts on metadata of no store: it tells the rules' sentences about what a start meets
        "facts",
        "changes",
        "history",
        "policies",
        "search",
        "scan",
        "kernels",
        "codec",
        "sources",
        "db",
        "model",
    },
    "disks": {"recovery", "scan", "sources", "codec", "db", "model"},
    "delayed": {"changes", "search", "policies", "scan", "codec", "db", "model"},
    "dump": {"changes", "policies", "search", "compaction", "scan", "kernels", "engine", "codec", "db", "model"},
    "tables": {"policies", "index", "scan", "kernels", "engine", "codec", "db", "model"},
    "transfer": {"rules", "facts", "sources", "scan", "index", "changes", "codec", "db", "model"},
    "facts": {
        "engine",
        "compaction",
        "history",
        "index",
        "policies",
        "scan",
        "search",
        "sources",
        "codec",
        "db",
        "model",
    },
    "rules": {"facts", "index", "codec", "db", "model"},
    "doctor": {"facts", "rules", "reports", "db", "model"},
}
"""What a package of ``store`` imports of the others. One more arrow is a decision: look for the lower place first."""

OPENS_STORES = {
    "commands/store/past.py": "two stores are compared",
    "commands/store/recover.py": "two stores are compared",
}
"""Commands that read another snapshot than that of their session → why."""

HEAVY = ("numpy", "numba", "pyarrow", "pandas", "pyspark", "rocksdict", "rich", "cramjam", "jinja2")


@cache
def tree_of(module: str) -> ast.Module:
    return ast.parse((ROOT / module).read_text(), module)


@cache
def nodes_of(module: str) -> list[ast.AST]:
    return _nodes_below(tree_of(module))


def _nodes_below(tree: ast.AST) -> list[ast.AST]:
    """Return what ``ast.walk`` yields, but for the marks of whether a name is read or written, in half the time."""
    found = [tree]
    for node in found:
        for value in vars(node).values():
            if isinstance(value, list):
                found += [one for one in value if isinstance(one, ast.AST)]
            elif isinstance(value, ast.AST) and not isinstance(value, ast.expr_context):
                found.append(value)
    return found


@cache
def imports_of(module: str, *, for_types: bool = False) -> list[tuple[str, int]]:
    """Return (dotted name, line) of every import, also those inside functions; those for type checkers only if FOR_TYPES."""
    nodes = nodes_of(module)
    checked = [] if for_types else [n for n in nodes if isinstance(n, ast.If) and _is_for_type_checkers(n)]
    left_out = {inner for node in checked for inner in _nodes_below(node)}
    found = []
    for node in nodes:
        if isinstance(node, ast.Import) and node not in left_out:
            found += [(_place(alias.name), node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node not in left_out:
            assert node.level == 0, f"{module}:{node.lineno}: relative import"
            found += [(f"{_place(node.module or '')}.{alias.name}", node.lineno) for alias in node.names]
    return found


def _place(name: str) -> str:
    """Return NAME of an import as where it lies in a checkout; a folder that is imported by its place is no package of ours."""
    package, _, inside = name.partition(".")
    if package == "pulsar_admin" and inside.split(".")[0] in PACKAGES:
        return inside
    return f"not ours: {name}" if package in {"store", "commands"} else name


def _is_for_type_checkers(node: ast.If) -> bool:
    return isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def functions_of(module: str) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (n for n in nodes_of(module) if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef)))


@cache
def calls_of(module: str) -> list[tuple[str, ast.Call]]:
    """Return (text of what is called, call)."""
    return [(ast.unparse(n.func), n) for n in nodes_of(module) if isinstance(n, ast.Call)]


def no_offence_in(modules: Sequence[str]) -> Callable[[Callable[[str], Iterator[str]]], Callable[[], None]]:
    """Make a test of a function that yields what offends in a module: it fails with every offence in MODULES."""

    def as_test(offences_in: Callable[[str], Iterator[str]]) -> Callable[[], None]:
        def test() -> None:
            assert modules
            offences = [offence for module in modules for offence in offences_in(module)]
            assert not offences, "\n".join(offences)

        return test

    return as_test


# -- layers -----------------------------------------------------------------------------------------------------------


@no_offence_in(MODULES)
def test_layers(module: str) -> Iterator[str]:
    allowed = {"store": {"store"}, "pulsar_admin": {"store", "pulsar_admin"}, "commands": set(PACKAGES)}
    package = module.split("/")[0]
    for name, line in imports_of(module):
        top = name.split(".")[0]
        if top in PACKAGES and top not in allowed[package]:
            yield f"{module}:{line}: {package} imports {name}"
        if package == "store" and top in {"click", "rich"}:
            yield f"{module}:{line}: store imports {name}"
        if top.startswith("not ours"):
            yield f"{module}:{line}: {name}"
        owners = MAY_IMPORT.get(top)
        if owners is not None and module not in owners:
            yield f"{module}:{line}: only {owners} import {top}"


def test_every_import_of_store_is_an_arrow() -> None:
    forbidden = [f"{where}: {own} imports {other}" for own, other, where in _imports_between_packages()]
    allowed = {f"{own} imports {other}" for own, others in ARROWS.items() for other in others}
    assert not [line for line in forbidden if line.partition(": ")[2] not in allowed]


def test_every_arrow_is_used() -> None:
    used = {(own, other) for own, other, _ in _imports_between_packages()}
    assert not [(own, other) for own, others in ARROWS.items() for other in others if (own, other) not in used]


def test_arrows_are_acyclic() -> None:
    left = {own: set(others) for own, others in ARROWS.items()}
    while ready := {own for own, others in left.items() if not others}:
        left = {own: others - ready for own, others in left.items() if own not in ready}
    assert not left, "a circle is among these"


def test_the_page_tells_the_floors_of_the_arrows() -> None:
    rows = re.findall(r"^\| (\d+) \| ((?:`\w+` ?)+) \|", (ROOT / "ARCHITECTURE.md").read_text(), re.MULTILINE)
    told = {name: int(floor) for floor, names in rows for name in re.findall(r"\w+", names)}
    floors = dict.fromkeys(FLOOR, 1)
    while left := ARROWS.keys() - floors.keys():
        floors |= {
            name: 1 + max((floors[other] for other in ARROWS[name]), default=1)
            for name in left
            if ARROWS[name] <= floors.keys()
        }
    assert told == floors


def test_store_has_no_module_outside_its_packages_but_the_floor() -> None:
    names = {module.split("/")[1] for module in MODULES if module.startswith("store/")}
    assert names == {"__init__.py", *(f"{name}.py" for name in FLOOR), *ARROWS}


def _imports_between_packages() -> Iterator[tuple[str, str, str]]:
    """Yield (package or module of the floor, package it imports, where)."""
    for module in MODULES:
        own = module.removeprefix("store/").split("/")[0].removesuffix(".py")
        for name, line in imports_of(module) if module.startswith("store/") else ():
            parts = name.split(".")
            inside = parts[0] == "store" and len(parts) > 1 and parts[1] != own
            if inside and parts[1] not in FLOOR:
                yield own, parts[1], f"{module}:{line}"


def test_modules_are_acyclic() -> None:
    """No module imports one that needs it, neither inside functions nor for its types alone."""
    names = {module.removesuffix(".py").removesuffix("/__init__").replace("/", "."): module for module in MODULES}
    needs = {
        own: {
            found
            for name, _ in imports_of(module, for_types=True)
            for found in (name, name.rpartition(".")[0])
            if found in names
        }
        for own, module in names.items()
    }
    for own, others in needs.items():  # a package's mark is no import of what is in it
        others.difference_update(
            {own, *(other for other in others if any(name.startswith(f"{other}.") for name in others))}
        )
    TopologicalSorter(needs).prepare()


@no_offence_in([f"{package}/__init__.py" for package in PACKAGES])
def test_package_marker(module: str) -> Iterator[str]:
    body = tree_of(module).body
    statements = [ast.unparse(node) for node in body[1:]]
    if not isinstance(body[0], ast.Expr):
        yield f"{module} has no docstring"
    if module == "pulsar_admin/__init__.py":  # the public interface, see tests/api/test_public_names.py
        return
    if statements:
        yield f"{module} has {statements}"


JUDGES = {"Evidence", "Rule", "StartFault", "Sweep"}
PROJECTS = {"Finding": {"store/doctor/diagnosing.py", "store/doctor/since.py"}}
"""What rules make → who else makes it: one that sums up many, one that was saved."""
NO_RULES = {("store/errors.py", "disk-full"), ("store/facts/orphans.py", "leaked-index")}
"""Codes that are those of rules, too: of the error when nothing more can be written, of a kind of orphan."""


@no_offence_in([module for module in MODULES if not module.startswith("store/rules/")])
def test_rules_alone_judge(module: str) -> Iterator[str]:
    """Codes, severities and sentences of findings are of rows in ``store/rules``; screens project them."""
    from pulsar_admin.store.rules.table import RULES_BY_CODE

    for called, call in calls_of(module):
        if called in JUDGES or module not in PROJECTS.get(called, {module}):
            yield f"{module}:{call.lineno}: {called}"
    for node in nodes_of(module):
        if isinstance(node, ast.Constant) and node.value in RULES_BY_CODE and (module, node.value) not in NO_RULES:
            yield f"{module}:{node.lineno}: {node.value}"


_SERVERS = re.compile(r"\b(a|the) (bookie|broker|client|consumer|reader|recovery|server|start)s?\b")


@no_offence_in([module for module in MODULES if module.startswith("store/facts/")])
def test_facts_say_what_is_so_and_rules_what_comes_of_it(module: str) -> Iterator[str]:
    """What a server or client does is a rule's sentence; docstrings and errors may speak of it."""
    left_out: set[ast.AST] = {node.value for node in nodes_of(module) if isinstance(node, ast.Expr)}
    left_out |= {inner for node in nodes_of(module) if isinstance(node, ast.Raise) for inner in _nodes_below(node)}
    for node in nodes_of(module):
        if isinstance(node, ast.Constant) and node not in left_out and _SERVERS.search(str(node.value)):
            yield f"{module}:{node.lineno}: {node.value}"


@no_offence_in([module for module in MODULES if module.startswith("pulsar_admin/api/")])
def test_the_api_never_prints_asks_or_exits(module: str) -> Iterator[str]:
    for name, line in imports_of(module):
        if name.split(".")[0] == "click":
            yield f"{module}:{line}: imports {name}"
    for name, call in calls_of(module):
        if name in {"print", "input", "exit", "quit", "sys.exit", "os._exit"}:
            yield f"{module}:{call.lineno}: {name}"


def test_commands_read_the_snapshot_of_their_session() -> None:
    opening = {
        module
        for module in MODULES
        for name, _ in imports_of(module)
        if module.startswith("commands/") and name.rpartition(".")[2] in {"open_reader", "open_store"}
    }
    assert opening == set(OPENS_STORES)


def test_commands_import_nothing_heavy() -> None:
    commands = importlib.import_module("pulsar_admin.commands")
    names = [info.name for info in pkgutil.walk_packages(commands.__path__, "pulsar_admin.commands.")]
    code = f"import sys, importlib\nfor n in {names!r}: importlib.import_module(n)\n"
    code += f"print(sorted(set({HEAVY!r}) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# -- what code may do -------------------------------------------------------------------------------------------------


@no_offence_in(MODULES)
def test_records_are_cheap_to_import(module: str) -> Iterator[str]:
    """They are ``msgspec.Struct``: a dataclass compiles seven functions."""
    yield from (f"{module}:{line}: {name}" for name, line in imports_of(module) if name.startswith("dataclasses"))


_WRITERS = ("write_text", "write_bytes", "touch", "symlink_to", "hardlink_to")


@no_offence_in([module for module in MODULES if module not in MAY_WRITE])
def test_only_atomic_opens_for_writing(module: str) -> Iterator[str]:
    for name, call in calls_of(module):
        if name == "open" or name.endswith((".open", "fdopen")):
            modes = [a.value for a in [*call.args, *(k.value for k in call.keywords)] if isinstance(a, ast.Constant)]
            texts = [mode for mode in modes if isinstance(mode, str) and len(mode) <= 3]
            if any(set(mode) & set("wax+") for mode in texts if set(mode) <= set("rwaxbt+U")):
                yield f"{module}:{call.lineno}: {ast.unparse(call)[:80]}"
        if name.rpartition(".")[2] in _WRITERS and name != "formatter.write_text":
            yield f"{module}:{call.lineno}: {ast.unparse(call)[:80]}"
    names = {node.attr for node in nodes_of(module) if isinstance(node, ast.Attribute)}
    if module != "pulsar_admin/cli.py":  # it points stdout at the null device
        yield from (f"{module}: {name}" for name in names & {"O_WRONLY", "O_RDWR", "O_CREAT"})


@no_offence_in([module for module in MODULES if module not in MAY_READ_ENVIRONMENT])
def test_only_config_reads_the_environment(module: str) -> Iterator[str]:
    for node in nodes_of(module):
        if isinstance(node, ast.Attribute) and node.attr in {"environ", "getenv", "environb"}:
            yield f"{module}:{node.lineno}: {node.attr}"


@no_offence_in([module for module in MODULES if module.startswith("store/") and module not in MAY_PRINT])
def test_store_never_prints_prompts_or_exits(module: str) -> Iterator[str]:
    for name, call in calls_of(module):
        if name in {"print", "input", "exit", "quit", "breakpoint", "sys.exit", "os._exit"}:
            yield f"{module}:{call.lineno}: {name}"
    for node in nodes_of(module):
        if isinstance(node, ast.Attribute) and ast.unparse(node) in {"sys.stdout", "sys.stderr", "sys.stdin"}:
            yield f"{module}:{node.lineno}: {ast.unparse(node)}"


@no_offence_in(MODULES)
def test_no_broad_except(module: str) -> Iterator[str]:
    for node in nodes_of(module):
        if isinstance(node, ast.ExceptHandler):
            caught = "everything" if node.type is None else ast.unparse(node.type)
            words = {"everything", "Exception", "BaseException"}.intersection(caught.strip("()").split(", "))
            if words and not _raises_again(node) and node not in _allowed_handlers(module):
                yield f"{module}:{node.lineno}: except {caught}"


def _allowed_handlers(module: str) -> set[ast.AST]:
    allowed = [one for one in functions_of(module) if f"{module}:{one.name}" in MAY_CATCH_EVERYTHING]
    return {node for function in allowed for node in _nodes_below(function)}


def _raises_again(handler: ast.ExceptHandler) -> bool:
    return isinstance(handler.body[-1], ast.Raise)


@no_offence_in(MODULES)
def test_nothing_is_left_to_do(module: str) -> Iterator[str]:
    text = (ROOT / module).read_text()
    yield from (f"{module}: {word}" for word in ("TODO", "FIXME", "XXX", "NotImplementedError") if word in text)


_NAMED_MODULE = re.compile(r"``store\.([a-z0-9_]+)\.([a-z0-9_]+)")


@no_offence_in([module for module in MODULES if module not in MAY_PRINT])
def test_modules_that_texts_name_exist(module: str) -> Iterator[str]:
    for package, name in _NAMED_MODULE.findall((ROOT / module).read_text()):
        there = ROOT / "store" / package
        if there.is_dir() and not (there / f"{name}.py").exists() and not (there / name).is_dir():
            yield f"{module}: store.{package}.{name}"


# -- what parameters are ----------------------------------------------------------------------------------------------


@no_offence_in(MODULES)
def test_parameters_have_names(module: str) -> Iterator[str]:
    """No parameter is a tuple of unlike things: each of them gets a name, as a parameter or a field of a class."""
    aliases = _aliases_in(module)
    for function in functions_of(module):
        arguments = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
        for argument in arguments:
            if argument.annotation is not None and any(map(_is_of_unlike_things, _kinds(argument.annotation, aliases))):
                where = f"{module}:{function.lineno}: {function.name}"
                yield f"{where}: {argument.arg}: {ast.unparse(argument.annotation)}"


def _aliases_in(module: str) -> dict[str, ast.expr]:
    """Return what names at the level of MODULE stand for, those that it imports among them."""
    found = {}
    for node in nodes_of(module):  # imports inside functions, too
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in PACKAGES:
            path = f"{(node.module or '').replace('.', '/')}.py"
            theirs = _own_aliases(path) if path in MODULES else {}
            found |= {alias.asname or alias.name: theirs[alias.name] for alias in node.names if alias.name in theirs}
    return found | _own_aliases(module)


@cache
def _own_aliases(module: str) -> dict[str, ast.expr]:
    found = {}
    for node in tree_of(module).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            found[node.targets[0].id] = node.value
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            found[node.target.id] = node.value
    return found


def _kinds(annotation: ast.expr, aliases: dict[str, ast.expr]) -> Iterator[ast.expr]:
    """Yield the members of the union that ANNOTATION is, itself where it is none; names of unions and tuples as what they name."""
    if isinstance(annotation, ast.BinOp):
        yield from _kinds(annotation.left, aliases)
        yield from _kinds(annotation.right, aliases)
    elif isinstance(annotation, ast.Name) and isinstance(aliases.get(annotation.id), (ast.BinOp, ast.Subscript)):
        others = {name: kind for name, kind in aliases.items() if name != annotation.id}
        yield from _kinds(aliases[annotation.id], others)
    else:
        yield annotation


def _is_of_unlike_things(kind: ast.expr) -> bool:
    if not isinstance(kind, ast.Subscript) or ast.unparse(kind.value) not in {"tuple", "Tuple", "typing.Tuple"}:
        return False
    members = kind.slice.elts if isinstance(kind.slice, ast.Tuple) else [kind.slice]
    texts = {ast.unparse(member) for member in members}
    return len(texts) > 1 and "..." not in texts


def test_unlike_things_are_told_from_like_ones() -> None:
    unlike = "tuple[int, str]", "None | tuple[int, str]", "Named", "int | Named", "tuple[int, int, tuple[int, int]]"
    like = "tuple[int, ...]", "tuple[int, int]", "Iterable[tuple[int, str]]", "dict[str, tuple[int, str]]", "Other"
    aliases = {"Named": _expression("tuple[int, str] | None"), "Other": _expression("Mapping[str, tuple[int, str]]")}
    for text in (*unlike, *like):
        found = any(map(_is_of_unlike_things, _kinds(_expression(text), aliases)))
        assert found == (text in unlike), text


def _expression(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


# -- answers ----------------------------------------------------------------------------------------------------------

ANSWERS = {"Shown", "Printed", "Result", "Lines", "Bytes"}
"""What commands return to be written."""


@no_offence_in([module for module in MODULES if module.startswith("commands/")])
def test_commands_drop_no_answer(module: str) -> Iterator[str]:
    """An answer that a command makes and does not return is never written."""
    functions = [node for node in ast.walk(tree_of(module)) if isinstance(node, ast.FunctionDef) and node.returns]
    making = {one.name for one in functions if ast.unparse(one.returns or ast.Constant(0)) in ANSWERS} | ANSWERS
    for node in ast.walk(tree_of(module)):
        called = node.value.func if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) else None
        if isinstance(called, ast.Name) and called.id in making:
            yield f"{module}:{called.lineno}: {ast.unparse(node)}"


# -- documentation --------- -------------------------------------------------------------------------------------------


@no_offence_in(MODULES)
def test_public_things_have_docstrings(module: str) -> Iterator[str]:
    tree = tree_of(module)
    if not ast.get_docstring(tree):
        yield module
    for node in tree.body:
        is_public = isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_")
        is_overload = is_public and [*map(ast.unparse, node.decorator_list)] == ["overload"]  # the body says it for all
        if is_public and not is_overload and not ast.get_docstring(node):
            yield f"{module}:{node.lineno}: {node.name}"
