"""Every module can be imported first, in a process that has imported nothing of the package."""

import ast
from collections.abc import Container, Iterator
from pathlib import Path

import pytest

PACKAGES = Path(__file__).parents[2] / "packages"


class ImportSimulation:
    """Runs the module-level imports of a package in Python's order, without executing anything.

    Importing all modules in a process each would find the same and takes minutes.
    """

    def __init__(self, imports: dict[str, list[tuple[set[str], ast.Import | ast.ImportFrom]]]):
        self._imports = imports
        """By module: its imports of the package, each with the names bound before it."""
        self._loaded: set[str] = set()
        self._loading: dict[str, set[str]] = {}
        self.failures: set[str] = set()

    def load(self, name: str) -> None:
        """Import a module after its parent packages."""
        parts = name.split(".")
        for end in range(1, len(parts) + 1):
            module = ".".join(parts[:end])
            if module not in self._loaded and module not in self._loading:
                self._execute(module)

    def _execute(self, module: str) -> None:
        bound = self._loading[module] = set[str]()
        for names, statement in self._imports.get(module, []):
            bound |= names
            if isinstance(statement, ast.ImportFrom):
                self._import_names(module, statement)
                continue
            for alias in statement.names:
                if alias.name in self._imports:
                    self.load(alias.name)
        self._loaded.add(module)
        del self._loading[module]

    def _import_names(self, importer: str, statement: ast.ImportFrom) -> None:
        source = str(statement.module)
        self.load(source)
        for alias in statement.names:
            if f"{source}.{alias.name}" in self._imports:
                self.load(f"{source}.{alias.name}")
            elif alias.name not in self._loading.get(source, {alias.name}):
                self.failures.add(f"{importer} needs {source}.{alias.name} before it exists")


def names_bound_by(statement: ast.stmt) -> set[str]:
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return {(alias.asname or alias.name).partition(".")[0] for alias in statement.names}
    if isinstance(statement, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return {statement.name}
    return {
        node.id
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }


def imports_of(
    source: str, modules: Container[str | None]
) -> Iterator[tuple[set[str], ast.Import | ast.ImportFrom]]:
    """The imports of these modules, each with the names bound since the one before."""
    names = set[str]()
    for statement in ast.parse(source).body:
        if isinstance(statement, ast.Import) or (
            isinstance(statement, ast.ImportFrom) and statement.module in modules
        ):
            yield names, statement
            names = set[str]()
        names |= names_bound_by(statement)


def failures_by_first_import(sources: dict[str, str]) -> dict[str, set[str]]:
    imports = {name: [*imports_of(source, sources)] for name, source in sources.items()}
    found: dict[str, set[str]] = {}
    for name in imports:
        simulation = ImportSimulation(imports)
        simulation.load(name)
        if simulation.failures:
            found[name] = simulation.failures
    return found


@pytest.mark.slow
def test_every_module_can_be_imported_first():
    sources: dict[str, str] = {}
    for path in PACKAGES.glob("*/src/**/*.py"):
        parts = path.relative_to(PACKAGES).with_suffix("").parts[2:]
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        sources[name] = path.read_text("utf-8")
    assert len(sources) > 100
    assert failures_by_first_import(sources) == {}


def test_a_module_whose_imports_need_it_is_found():
    sources = {
        "p": "",
        "p.ledger": "from p.files.disk import write\nclass Ledger: pass",
        "p.files": "from p.files.store import Store",
        "p.files.disk": "def write(): pass",
        "p.files.store": "from p.ledger import Ledger\nclass Store: pass",
    }
    assert failures_by_first_import(sources) == {
        "p.ledger": {"p.files.store needs p.ledger.Ledger before it exists"}
    }
