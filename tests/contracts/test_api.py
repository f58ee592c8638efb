"""What is public: which packages, which names, and what documents and examples may import."""

import ast
import importlib
import inspect
import pydoc
import re
from collections import defaultdict
from pathlib import Path

import pytest

import trimtab
from tests.contracts import public_names
from tests.contracts.definitions import Definition, find_definition, find_hidden_types
from tests.contracts.test_docs import FENCE, blocks
from trimtab.errors import TrimtabError

ROOT = Path(__file__).parents[2]
SOURCES = {
    "trimtab": ROOT / "packages/trimtab/src/trimtab",
    "trimtab_serve": ROOT / "packages/trimtab-serve/src/trimtab_serve",
}
READ = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "examples").glob("*")),
]
"""What users read; ARCHITECTURE.md is for those who change the library."""
ACCEPT = (
    "if that is meant, run `python -m tests.contracts.public_names` and say it in the changelog"
)
DESCRIBED_BY_A_PAGE = ("trimtab_serve.AgentSpec", "trimtab_serve.ModelSpec")
"""Classes whose fields are the keys of `agent.yaml`. `docs/agent.md` describes them, and nobody
builds the classes of their blocks."""
MAX_TOP_NAMES = 50
"""Names in `trimtab` itself; a name for fewer users has a package of its subject."""
DIALECT = "one function of the Dialect protocol, in each dialect"
WIRE_FORMAT = "one function of a simulated wire format, in each format"
HTTP_OPERATION = "an operation of the HTTP API, whose function is named as its id"
SAME_NAMES = {
    "build_request_kwargs": DIALECT,
    "create_reply_accumulator": DIALECT,
    "find_message_starts": DIALECT,
    "find_request_errors": DIALECT,
    "is_reply_body": DIALECT,
    "join_blocks": DIALECT,
    "must_join": DIALECT,
    "parse_history": DIALECT,
    "parse_message": DIALECT,
    "parse_reply": DIALECT,
    "parse_system_messages": DIALECT,
    "render_round_blocks": DIALECT,
    "render_sent_blocks": DIALECT,
    "render_tools": DIALECT,
    "serialize_history": DIALECT,
    "build_reply_body": WIRE_FORMAT,
    "stream_reply_events": WIRE_FORMAT,
    "compact": HTTP_OPERATION,
    "delete_session": HTTP_OPERATION,
    "erase_tenant": HTTP_OPERATION,
    "erase_user": HTTP_OPERATION,
    "explain_visibility": HTTP_OPERATION,
    "export_tenant": HTTP_OPERATION,
    "export_user": HTTP_OPERATION,
    "read_history": HTTP_OPERATION,
    "resume": HTTP_OPERATION,
    "undo": HTTP_OPERATION,
    "check_api_key": "one rule of a simulated API, in the modules of both makers",
    "main": "the entry point of a program",
}
"""Functions that stand in several modules, and why that is no second meaning."""


DEFINED = re.compile(r"^(?:class|def|async def) (\w+)", re.MULTILINE)


def is_public(module: str) -> bool:
    """Whether users may import from it."""
    return module in (*public_names.PACKAGES, *public_names.FRAMEWORK_MODULES)


def find_deep_imports(code: str) -> list[str]:
    """Modules of Trimtab that a program imports from and that are not public, and unknown names."""
    found: list[str] = []
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
            found += [name for name in names if name.split(".")[0] in SOURCES]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in SOURCES:
            module = node.module or ""
            if not is_public(module):
                found.append(module)
                continue
            known = public_names.list_names(module)
            found += [f"{module}.{each.name}" for each in node.names if each.name not in known]
    return [name for name in found if not is_public(name)]


def read_code(path: Path) -> list[str]:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        return [text]
    return [block.code for block in blocks(text)] if FENCE.search(text) else []


def test_the_search_for_deep_imports_finds_them():
    code = (
        "import trimtab, trimtab.session.turn\n"
        "from trimtab import Context, repairs\n"
        "from trimtab.stores.files.store import FileStore\n"
        "from trimtab.stores import FileStore\n"
    )
    assert find_deep_imports(code) == [
        "trimtab.session.turn",
        "trimtab.repairs",
        "trimtab.stores.files.store",
    ]


@pytest.mark.parametrize(
    "path",
    [path for path in READ if path.suffix in (".md", ".py")],
    ids=lambda path: path.relative_to(ROOT).as_posix(),
)
def test_what_users_read_imports_from_public_packages_alone(path):
    assert [name for code in read_code(path) for name in find_deep_imports(code)] == []


@pytest.mark.parametrize("package", public_names.PACKAGES)
def test_no_help_shows_what_is_in_the_environment(package, monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", "sk-canary-7d1f")
    module = importlib.import_module(package)
    public = {name: getattr(module, name) for name in module.__all__}
    documented = {
        name: pydoc.render_doc(value)
        for name, value in public.items()
        if callable(value) or inspect.isclass(value)
    }
    assert [name for name, text in documented.items() if "sk-canary-7d1f" in text] == []


@pytest.mark.parametrize("package", public_names.PACKAGES)
def test_every_name_of_a_public_package_can_be_imported(package):
    module = importlib.import_module(package)
    assert len(module.__all__) == len(set(module.__all__))
    assert [name for name in module.__all__ if getattr(module, name, None) is None] == []
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = module.no_such_name


def test_what_a_library_user_types_is_short_enough_to_read():
    assert len(trimtab.__all__) <= MAX_TOP_NAMES


def test_each_public_name_has_one_package():
    homes: dict[Definition | None, list[str]] = defaultdict(list)
    for full_name in public_names.exported():
        package, _, name = full_name.rpartition(".")
        homes[find_definition(package, name)].append(full_name)
    assert [names for names in homes.values() if len(names) > 1] == []


def list_public_definitions() -> dict[Definition, str]:
    """By definition: the public name."""
    by_definition: dict[Definition, str] = {}
    for full_name in public_names.exported():
        package, _, name = full_name.rpartition(".")
        definition = find_definition(package, name)
        assert definition, full_name
        by_definition[definition] = full_name
    return by_definition


def test_every_type_in_a_public_signature_can_be_imported():
    public = list_public_definitions()
    read = {each: name for each, name in public.items() if name not in DESCRIBED_BY_A_PAGE}
    hidden = find_hidden_types(read, public)
    assert {each.name: sorted(names) for each, names in hidden.items()} == {}


def test_the_search_for_hidden_types_finds_them():
    store = Definition("trimtab.stores.base", "Store")
    shown = {each.name for each in find_hidden_types({store: "trimtab.stores.Store"}, {})}
    assert {"Event", "Snapshot", "PositionSpan", "SessionListEntry"} <= shown


def test_a_lazy_name_has_a_home_and_a_type():
    """Both lists of a package agree: where a name is, and what type checkers read."""
    for package in public_names.PACKAGES:
        module = importlib.import_module(package)
        if not (homes := getattr(module, "_HOMES", None)):
            continue
        top, *rooms = package.split(".")
        path = SOURCES[top].joinpath(*rooms, "__init__.py")
        typed = {
            alias.asname: (node.module or "").removeprefix(f"{top}.")
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
            if alias.asname
        }
        assert typed == homes
        assert set(homes) == set(module.__all__)


def test_no_public_name_vanishes_or_appears_unnoticed():
    stored = public_names.FILE.read_text(encoding="utf-8").split()
    now = public_names.exported()
    gone, new = sorted(set(stored) - set(now)), sorted(set(now) - set(stored))
    assert not gone, f"no longer exported: {', '.join(gone)}; {ACCEPT}"
    assert not new, f"exported for the first time: {', '.join(new)}; {ACCEPT}"
    assert stored == now, f"not in order; {ACCEPT}"


def test_every_public_name_has_a_sentence():
    assert [name for name in public_names.exported() if not public_names.describe(name)] == []


def test_one_name_has_one_meaning():
    homes: dict[str, set[str]] = defaultdict(set)
    for path in (path for folder in SOURCES.values() for path in folder.rglob("*.py")):
        for name in DEFINED.findall(path.read_text(encoding="utf-8")):
            homes[name].add(path.relative_to(ROOT / "packages").as_posix())
    twice = {
        name: sorted(paths)
        for name, paths in homes.items()
        if len(paths) > 1 and not name.startswith("_")
    }
    unexplained = {name: paths for name, paths in twice.items() if name not in SAME_NAMES}
    assert unexplained == {}, "two things of one name: rename one, or give a reason in SAME_NAMES"
    assert sorted(SAME_NAMES.keys() - twice.keys()) == [], "no longer there twice"


def test_every_public_exception_has_the_one_base():
    values = {
        f"{package}.{name}": getattr(importlib.import_module(package), name)
        for package in public_names.PACKAGES
        for name in importlib.import_module(package).__all__
    }
    raised = {
        name: value
        for name, value in values.items()
        if isinstance(value, type) and issubclass(value, BaseException)
    }
    assert raised
    assert [name for name, value in raised.items() if not issubclass(value, TrimtabError)] == []
