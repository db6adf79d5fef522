"""What the house weighs: ``python -m bench.house`` counts lines, modules, imports, helpers that are used once, circles, and tests."""

from __future__ import annotations

import ast
import statistics
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("pulsar_admin", "store", "commands")
ROOMS = ("recovery", "tables", "changes", "scan", "model")


def main() -> None:
    """Print the figures."""
    listed = subprocess.run(["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True)
    paths = listed.stdout.split()
    product = [path for path in paths if path.split("/")[0] in PACKAGES and not path.endswith("_pb2.py")]
    texts = {path: (ROOT / path).read_text() for path in product}
    lines = {path: text.count("\n") for path, text in texts.items()}
    trees = {path: ast.parse(text) for path, text in texts.items()}
    total = sum(lines.values())
    filled = [count for count in lines.values() if count]
    print(f"product: {total:,} lines, {len(filled)} modules, median {statistics.median(filled):.0f} lines")

    functions = single = 0
    for tree in trees.values():
        named = Counter(node.id for node in ast.walk(tree) if isinstance(node, ast.Name))
        named += Counter(node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute))
        for node in ast.walk(tree):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                functions += 1
                single += node.name.startswith("_") and not node.name.endswith("__") and named[node.name] == 1
    print(f"private functions that are used once: {single:,} of {functions:,}, {single / functions:.1%}")

    imports = sum(
        (node.end_lineno or node.lineno) - node.lineno + 1
        for tree in trees.values()
        for node in ast.walk(tree)
        if isinstance(node, (ast.Import, ast.ImportFrom))
    )
    print(f"import lines: {imports:,}, {imports / total:.1%}")

    names = {name_of(path): path for path in product}
    arrows = {name: sorted(set(imported(name, trees[path], names)) - {name}) for name, path in names.items()}
    inside = Counter(
        room
        for name, others in arrows.items()
        for other in others
        for room in ROOMS
        if name.startswith(inner := f"pulsar_admin.store.{room}.") and other.startswith(inner)
    )
    print(f"imports from module to module: {inside.total()} ({', '.join(f'{room} {inside[room]}' for room in ROOMS)})")
    found = circles(arrows)
    print(
        f"circles, with those of type checking: {len(found)}, of {', '.join(str(len(one)) for one in found) or 'none'}"
    )
    for one in found:
        print("  " + " ".join(one))

    tests = {path: (ROOT / path).read_text().count("\n") for path in paths if path.startswith("tests/")}
    shown = subprocess.run(
        ["git", "ls-files", "tests/transcript"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    transcripts = [path for path in shown.stdout.split() if not path.endswith(".py")]
    recorded = sum((ROOT / path).read_text().count("\n") for path in transcripts)
    print(f"tests: {sum(tests.values()):,} lines; transcripts {recorded:,}")


def name_of(path: str) -> str:
    """Return the name by which the module at ``path`` of a checkout is imported."""
    name = path.removesuffix(".py").replace("/", ".").removesuffix(".__init__")
    return name if name.split(".")[0] == "pulsar_admin" else f"pulsar_admin.{name}"


def imported(name: str, tree: ast.Module, names: dict[str, str]) -> Iterator[str]:
    """Yield the modules of the product among ``names`` that the module ``name`` imports anywhere, also for types alone."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                if whole in names or node.module in names:
                    yield whole if whole in names else node.module


def circles(arrows: dict[str, list[str]]) -> list[list[str]]:
    """Return the sets of modules that import each other in a circle (Tarjan's strongly connected components)."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        order[name] = low[name] = len(order)
        stack.append(name)
        for other in arrows[name]:
            if other not in order:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], order[other])
        if low[name] == order[name]:
            at = stack.index(name)
            if len(stack) - at > 1:
                found.append(sorted(stack[at:]))
            del stack[at:]

    for name in arrows:
        if name not in order:
            visit(name)
    return found


if __name__ == "__main__":
    main()
