"""The layers, the writing rule and the size budgets, read from the source with ``ast``."""

from __future__ import annotations

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

MODULE_LINES = 500  # a file is an idea, not a size: above this it usually is two
FUNCTION_LINES = 40
COMMAND_LINES = 15
NESTING = 3
PARAMETERS = 7

_KERNEL = "compiled by numba: takes arrays, not objects, and calls cost what blocks do not"
_FILTERS = "of the public interface: one keyword for each thing that callers choose by"
LARGER: dict[str, str] = {
    "pulsar_admin/api/changing.py:reset_cursors": _FILTERS,
    "pulsar_admin/api/cursors.py:expire": _FILTERS,
    "pulsar_admin/api/cursors.py:reset": _FILTERS,
    "pulsar_admin/api/imports.py:import_cluster": _FILTERS,
    "pulsar_admin/api/imports.py:import_standalone": _FILTERS,
    "pulsar_admin/api/recovering.py:undelete": _FILTERS,
    "pulsar_admin/api/topic.py:messages": _FILTERS,
    "pulsar_admin/api/transfers.py:export_tables": _FILTERS,
    "store/generate/kernel.py:_put_metadata": _KERNEL,
    "store/generate/kernel.py:_put_body": _KERNEL,
    "store/generate/kernel.py:_put_entry": _KERNEL,
    "store/generate/kernel.py:write_entries": _KERNEL,
    "store/kernels/messages.py:explode": _KERNEL,
    "store/kernels/write_records.py:write_records": _KERNEL,
    "pulsar_admin/table.py": "a row a command",
}
"""What may exceed a budget: ``path`` or ``path:function`` → why."""

MAY_IMPORT = {
    "lmdb": {"store/db/environment.py"},
    "pyspark": {
        "store/scan/datasource.py",
        "store/scan/streaming.py",
        "store/engine/spark.py",
        "store/engine/spark_session.py",
        "store/engine/spark_workers.py",
    },
    "rich": {"pulsar_admin/output.py", "pulsar_admin/plot.py", "pulsar_admin/progress.py"},
}
# rocksdb.py makes a scratch directory of links, so that the source stays as it is.
MAY_WRITE = {"store/files.py", "store/proto/generate.py", "store/sources/rocksdb.py"}
# spark_session.py sets what py4j reads when it starts the JVM.
MAY_READ_ENVIRONMENT = {"pulsar_admin/config.py", "store/engine/spark_session.py"}
MAY_PRINT = {"store/proto/generate.py"}
MAY_CATCH_EVERYTHING = {"pulsar_admin/cli.py:run"}

FLOOR = {"aliases", "errors", "extras", "names", "timespec", "files", "frozen", "wording"}
"""Modules of ``store`` that every package may import; they import no package."""

ARROWS = {
    "proto": set(),
    "codec": {"proto"},
    "engine": set(),
    "kernels": {"proto"},
    "db": {"codec"},
    "sources": {"codec", "db"},
    "model": {"codec", "db", "proto"},
    "history": {"codec", "sources", "model", "db"},
    "scan": {"kernels", "engine", "codec", "db", "model"},
    "nacks": {"db", "model", "codec"},
    "generate": {"codec", "kernels", "proto", "sources"},
    "index": {"scan", "kernels", "engine", "codec", "db"},
    "compaction": {"scan", "kernels", "engine", "codec", "db", "model", "proto"},
    "policies": {"codec", "db", "model", "compaction"},
    "search": {"scan", "kernels", "engine", "compaction", "codec", "db", "model"},
    "reports": {"search", "policies", "compaction", "index", "scan", "kernels", "sources", "codec", "db", "model"},
    "changes": {
        "search",
        "policies",
        "nacks",
        "compaction",
        "scan",
        "index",
        "kernels",
        "sources",
        "codec",
        "db",
        "model",
    },
    "recovery": {
        "changes",
        "history",
        "reports",
        "policies",
        "search",
        "scan",
        "index",
        "kernels",
        "codec",
        "sources",
        "db",
        "model",
        "proto",
    },
    "disks": {"recovery", "reports", "scan", "kernels", "sources", "codec", "db", "model"},
    "delayed": {"changes", "search", "policies", "scan", "codec", "db", "model"},
    "why": {"compaction", "delayed", "reports", "policies", "search", "codec", "db", "model"},
    "dump": {"changes", "policies", "search", "compaction", "scan", "kernels", "engine", "codec", "db", "model"},
    "tables": {"policies", "index", "scan", "kernels", "engine", "codec", "db", "model"},
    "transfer": {"sources", "reports", "scan", "index", "changes", "codec", "db", "model"},
    "check": {"index", "nacks", "changes", "codec", "db", "model"},
    "doctor": {"changes", "check", "compaction", "delayed", "policies", "reports", "search", "codec", "db", "model"},
}
"""What a package of ``store`` imports of the others. One more arrow is a decision: look for the lower place first."""

ASKS_THE_API: dict[str, set[str]] = {
    "commands/apply.py": {"store.changes.intent"},
    "commands/bookies.py": set(),
    "commands/brokers.py": set(),
    "commands/clusters.py": {"store.codec.java"},
    "commands/compaction/changing.py": {"store.compaction.forms"},
    "commands/compaction/checking.py": {"store.model.topics"},
    "commands/compaction/explaining.py": {"store.compaction.forms"},
    "commands/compaction/last_id.py": set(),
    "commands/compaction/reading.py": {"store.compaction.reading"},
    "commands/delayed/building.py": set(),
    "commands/delayed/choosing.py": set(),
    "commands/delayed/inspecting.py": {"store.delayed.verify"},
    "commands/delayed/listing.py": {"store.delayed.backlog", "store.delayed.status"},
    "commands/delayed/replaying.py": {"store.delayed.replay"},
    "commands/doctor.py": {
        "store.db.storeinfo",
        "store.doctor.causes",
        "store.doctor.diagnosis",
        "store.doctor.explaining",
    },
    "commands/isolation.py": {"store.model.isolation"},
    "commands/ledgers.py": {"store.model.ledger_owners"},
    "commands/limits.py": set(),
    "commands/logs.py": {"store.reports.log_files"},
    "commands/managed_ledger.py": set(),
    "commands/mending.py": {"store.changes.orphans"},
    "commands/metrics.py": {"store.reports.metrics"},
    "commands/nacks/delays.py": {"store.nacks.buckets"},
    "commands/nacks/drawing.py": set(),
    "commands/nacks/due.py": set(),
    "commands/nacks/keeping.py": set(),
    "commands/nacks/planning.py": {"store.nacks.sizes"},
    "commands/nacks/simulating.py": {"store.nacks.buckets"},
    "commands/namespaces.py": {"store.changes.policies"},
    "commands/namespaces_cursors.py": set(),
    "commands/namespaces_delayed.py": {"store.db.delayed_rules"},
    "commands/namespaces_resources.py": {"store.changes.namespace_json", "store.codec.java"},
    "commands/overview.py": {"store.reports.overview"},
    "commands/policies.py": {"store.policies.rules", "store.policies.table"},
    "commands/schemas.py": {"store.codec.javamap"},
    "commands/store/annotate.py": {"store.model.publish_times"},
    "commands/store/bundle.py": set(),
    "commands/store/clone.py": set(),
    "commands/store/clusters.py": set(),
    "commands/store/export.py": {"store.model.publish_times"},
    "commands/store/generate.py": set(),
    "commands/store/history.py": {"store.model.redaction"},
    "commands/store/importing.py": {
        "store.db.environment",
        "store.db.storeinfo",
        "store.sources.layout",
        "store.transfer.imports",
    },
    "commands/store/inspect.py": {
        "store.db.bookies",
        "store.db.tree",
        "store.model.redaction",
        "store.model.structures",
    },
    "commands/store/offloads.py": set(),
    "commands/store/past.py": {
        "store.history.events",
        "store.history.servers",
        "store.history.words",
        "store.sources.zookeeper",
    },
    "commands/store/preflight.py": {"store.recovery.preflight"},
    "commands/store/reclaim.py": set(),
    "commands/store/recover.py": set(),
    "commands/store/refreshing.py": set(),
    "commands/store/salvage.py": set(),
    "commands/store/check.py": {"store.check.finding", "store.db.storeinfo"},
    "commands/store/tables.py": {"store.scan.profiles"},
    "commands/store/usage.py": set(),
    "commands/tenants.py": set(),
    "commands/topics/ack_history.py": {"store.model.cursors", "store.recovery.acks"},
    "commands/topics/answers.py": {"store.model.partitions", "store.model.redaction", "store.model.topics"},
    "commands/topics/backlog.py": set(),
    "commands/topics/broker.py": {"store.search.broker_setup"},
    "commands/topics/clocks.py": {"store.db.clocks", "store.reports.timeline"},
    "commands/topics/cursors.py": set(),
    "commands/topics/ending.py": set(),
    "commands/topics/expire.py": {"store.search.expiry"},
    "commands/topics/describing.py": set(),
    "commands/topics/dumping.py": {"store.db.clocks", "store.dump.tables", "store.scan.profiles"},
    "commands/topics/find.py": {"store.dump.finding"},
    "commands/topics/index.py": set(),
    "commands/topics/info.py": set(),
    "commands/topics/internals.py": set(),
    "commands/topics/listing.py": {"store.model.partitions", "store.model.topics"},
    "commands/topics/message_id.py": set(),
    "commands/topics/messages.py": {"store.model.entries", "store.model.message_row"},
    "commands/topics/printout.py": {"store.model.message_row", "store.model.messages", "store.model.redaction"},
    "commands/topics/read.py": set(),
    "commands/topics/search.py": {
        "store.model.jsonpath",
        "store.model.message_row",
        "store.scan.matching",
    },
    "commands/topics/making.py": set(),
    "commands/topics/moving.py": set(),
    "commands/topics/permissions.py": {"store.codec.java"},
    "commands/topics/properties.py": set(),
    "commands/topics/reset.py": {"store.changes.resetting"},
    "commands/topics/stats.py": set(),
    "commands/topics/status.py": {"store.compaction.forms", "store.model.topics"},
    "commands/topics/undelete.py": set(),
    "commands/topics/values.py": {"store.model.private_keys", "store.model.redaction"},
    "commands/topics/why.py": {"store.why.reason"},
    "commands/transactions.py": {"store.codec.javamap"},
}
"""Commands that call ``pulsar_admin.api`` alone → modules of ``store``, beside the floor, whose words, values and names they use."""

OPENS_STORES = {
    "commands/store/past.py": "two stores are compared",
    "commands/store/recover.py": "two stores are compared",
}
"""Commands that read another snapshot than that of their session → why."""

HEAVY = ("numpy", "numba", "pyarrow", "pandas", "pyspark", "rocksdict", "rich", "cramjam")


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
def imports_of(module: str) -> list[tuple[str, int]]:
    """Return (dotted name, line) of every import, also those inside functions; those for type checkers left out."""
    nodes = nodes_of(module)
    checked = [node for node in nodes if isinstance(node, ast.If) and _is_for_type_checkers(node)]
    left_out = {inner for node in checked for inner in _nodes_below(node)}
    found = []
    for node in nodes:
        if isinstance(node, ast.Import) and node not in left_out:
            found += [(alias.name, node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node not in left_out:
            assert node.level == 0, f"{module}:{node.lineno}: relative import"
            found += [(f"{node.module}.{alias.name}", node.lineno) for alias in node.names]
    return found


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
    """No module imports one that needs it, inside functions neither."""
    names = {module.removesuffix(".py").removesuffix("/__init__").replace("/", "."): module for module in MODULES}
    needs = {
        own: {found for name, _ in imports_of(module) for found in (name, name.rpartition(".")[0]) if found in names}
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
    marker = "OWNER = 'pulsar-admin'"
    if not isinstance(body[0], ast.Expr):
        yield f"{module} has no docstring"
    if module == "pulsar_admin/__init__.py":  # the public interface, see tests/api/test_public_names.py
        statements = [statement for statement in statements if statement == marker]
    if statements != [marker]:
        yield f"{module} has {statements}, not {marker}"


@no_offence_in([module for module in MODULES if module.startswith("pulsar_admin/api/")])
def test_the_api_never_prints_asks_or_exits(module: str) -> Iterator[str]:
    for name, line in imports_of(module):
        if name.split(".")[0] == "click":
            yield f"{module}:{line}: imports {name}"
    for name, call in calls_of(module):
        if name in {"print", "input", "exit", "quit", "sys.exit", "os._exit"}:
            yield f"{module}:{call.lineno}: {name}"


def test_commands_ask_the_api() -> None:
    """What was moved to the Python interface stays there; ``pulsar_admin.command_session`` is how a command reaches it."""
    assert ASKS_THE_API.keys() <= set(MODULES)
    for module, named in ASKS_THE_API.items():
        modules = {".".join(name.split(".")[:3]) for name, _ in imports_of(module) if name.startswith("store.")}
        beside = {name for name in modules if name.split(".")[1] not in FLOOR}
        assert beside == named, module


def test_commands_read_the_snapshot_of_their_session() -> None:
    opening = {
        module
        for module in MODULES
        for name, _ in imports_of(module)
        if module.startswith("commands/") and name.rpartition(".")[2] in {"open_reader", "open_store"}
    }
    assert opening == set(OPENS_STORES)


def test_commands_import_nothing_heavy() -> None:
    commands = importlib.import_module("commands")
    names = [info.name for info in pkgutil.walk_packages(commands.__path__, "commands.")]
    code = f"import sys, importlib\nfor n in {names!r}: importlib.import_module(n)\n"
    code += f"print(sorted(set({HEAVY!r}) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# -- what code may do -------------------------------------------------------------------------------------------------

_NOT_FROZEN = {"Tracker"}
"""Records with a field that is no parameter, which ``store.frozen`` does not make."""


@no_offence_in(MODULES)
def test_records_are_cheap_to_import(module: str) -> Iterator[str]:
    """``store.frozen`` makes them: a standard one compiles seven functions, a standard named tuple each annotation."""
    if module != "store/frozen.py":
        yield from (f"{module}:{line}: {name}" for name, line in imports_of(module) if name == "typing.NamedTuple")
    for node in nodes_of(module):
        decorators = map(ast.unparse, node.decorator_list) if isinstance(node, ast.ClassDef) else ()
        if "dataclass(frozen=True, slots=True)" in decorators and node.name not in _NOT_FROZEN:
            yield f"{module}:{node.lineno}: {node.name}"


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


# -- documentation and size -------------------------------------------------------------------------------------------


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


@no_offence_in(MODULES)
def test_budgets(module: str) -> Iterator[str]:
    yield from _over_budget(module)


def test_allow_list_is_needed() -> None:
    """A name leaves the list when its code has become small enough."""
    exceeding = {line.split(" ")[0] for module in MODULES for line in _over_budget(module, {})}
    assert set(LARGER) <= exceeding


def _over_budget(module: str, larger: dict[str, str] | None = None) -> Iterator[str]:
    larger = LARGER if larger is None else larger
    lines = len((ROOT / module).read_text().splitlines())
    if lines > MODULE_LINES and module not in larger:
        yield f"{module} has {lines} lines"
    yield from (f"{name} {excess}" for name, excess in _excesses_in(module) if name not in larger)


@cache
def _excesses_in(module: str) -> list[tuple[str, str]]:
    return [(f"{module}:{one.name}", excess) for one in functions_of(module) for excess in _excesses(one)]


def _excesses(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    lines = (function.end_lineno or 0) - body[0].lineno + 1 if body else 0
    limit = COMMAND_LINES if _is_command(function) else FUNCTION_LINES
    if lines > limit:
        yield f"has a body of {lines} lines, {limit} allowed"
    arguments = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    count = len([argument for argument in arguments if argument.arg not in {"self", "cls"}])
    if count > PARAMETERS:
        yield f"has {count} parameters"
    depth = max((_depth(node) for node in body), default=0)
    if depth > NESTING:
        yield f"nests {depth} deep"


def _is_command(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(ast.unparse(decorator).startswith("command(") for decorator in function.decorator_list)


_BLOCKS = ("body", "handlers", "orelse", "finalbody", "cases")
"""Where a statement holds others: no expression does."""


def _depth(node: ast.AST) -> int:
    """Return how deep blocks nest in NODE; ``elif`` is as deep as its ``if``, a function inside starts again."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return 0
    children = [child for name in _BLOCKS for child in getattr(node, name, ())]
    inner = max((_depth(child) for child in children if not _is_elif(node, child)), default=0)
    elif_depth = max((_depth(child) for child in children if _is_elif(node, child)), default=0)
    block = isinstance(node, (ast.If, ast.For, ast.While, ast.With, ast.Try, ast.Match))
    return max(inner + block, elif_depth)


def _is_elif(node: ast.AST, child: ast.AST) -> bool:
    return isinstance(node, ast.If) and node.orelse == [child] and isinstance(child, ast.If)
