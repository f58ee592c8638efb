"""The house style, as far as it can be counted."""

import ast
import inspect
from pathlib import Path

import trimtab
import trimtab_serve

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "packages").rglob("*.py"))
DOCUMENTS = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *sorted((ROOT / "docs").rglob("*.md"))]


CORE = ("engine/", "models/", "context.py", "options.py")
"""Whose values say what they hold."""


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def is_dataclass(node: ast.ClassDef) -> bool:
    return any("dataclass" in ast.unparse(decorator) for decorator in node.decorator_list)


def undocumented(node: ast.ClassDef) -> list[str]:
    """Names of fields that no string follows."""
    names: list[str] = []
    for field, after in zip(node.body, [*node.body[1:], None], strict=True):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            documented = (
                isinstance(after, ast.Expr)
                and isinstance(after.value, ast.Constant)
                and isinstance(after.value.value, str)
            )
            if not documented:
                names.append(f"{node.name}.{field.target.id}")
    return names


def test_the_search_for_undocumented_fields_finds_them():
    tree = ast.parse(
        'class A:\n    a: int\n    """said"""\n    b: int\n    c: int = 1\n    """said"""'
    )
    assert undocumented(tree.body[0]) == ["A.b"]  # pyright: ignore[reportArgumentType]


def test_a_module_has_one_noun():
    assert [relative(path) for path in SOURCES if "_and_" in path.stem] == []


def test_every_field_of_a_core_value_says_what_it_holds():
    inside = tuple(f"packages/trimtab/src/trimtab/{name}" for name in CORE)
    missing = [
        f"{relative(path)}: {name}"
        for path in SOURCES
        if relative(path).startswith(inside)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef) and is_dataclass(node)
        for name in undocumented(node)
    ]
    assert missing == []


def test_every_public_class_and_function_has_a_docstring():
    """Aliases (`Policy`) and constants (`ENVIRON`) cannot carry one; the reference has it."""
    named = {
        name: getattr(package, name)
        for package in (trimtab, trimtab_serve)
        for name in package.__all__
    }
    spoken = {
        name: value
        for name, value in named.items()
        if inspect.isclass(value) or inspect.isroutine(value)
    }
    assert spoken
    bare = [
        name
        for name, value in spoken.items()
        if not (doc := (value.__doc__ or "").strip()) or doc.startswith(f"{name}(")
    ]
    assert bare == []


def test_every_public_name_stands_in_the_documents():
    text = "\n".join(path.read_text(encoding="utf-8") for path in DOCUMENTS if path.exists())
    names = [*trimtab.__all__, *trimtab_serve.__all__]
    missing = [name for name in names if name not in text and not name.startswith("__")]
    assert missing == []
