"""The work of one warm `add` and one warm `request`, and the size of what does it.

    python -m benchmarks.heart                  # this checkout
    python -m benchmarks.heart ../other --json  # another checkout, counted by this program

Counted are functions of the library, the files they are in, how often they are called, and the
plans that a policy drafts; of `Context` and `Session` the methods, and of their files the modules
that they import and the lines. Nothing depends on the speed of the machine, so `--quick` changes
nothing.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import json
import sys
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).parents[1]
LIBRARY = Path("packages/trimtab/src/trimtab")
CLASSES = {"Context": "context.py", "Session": "session/session.py"}
WARM_TURNS = 20


class CallCounter:
    """Counts what is called while it is active."""

    def __init__(self, library: Path) -> None:
        self._prefix = f"{library}/"
        self.calls = 0
        self.plans = 0
        self.functions: set[Any] = set()

    def __enter__(self) -> CallCounter:
        sys.setprofile(self._count)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _count(self, frame: FrameType, event: str, _argument: object) -> None:
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(self._prefix):
            return
        self.calls += 1
        self.functions.add(code)
        self.plans += code.co_qualname == "Plan.__init__"

    def list_counts(self) -> dict[str, int]:
        files = {code.co_filename for code in self.functions}
        return {
            "functions": len(self.functions),
            "files": len(files),
            "calls": self.calls,
            "plans": self.plans,
        }


def count_context_work(library: Path) -> dict[str, dict[str, int]]:
    from trimtab import Context

    context = Context("gpt-4o", clock=lambda: 1.0)
    for number in range(WARM_TURNS):
        context.add({"role": "user", "content": f"Question {number}?"})
        context.request()
        context.add({"role": "assistant", "content": f"Answer {number}."})
    with CallCounter(library) as add:
        context.add({"role": "user", "content": "One more question?"})
    with CallCounter(library) as request:
        context.request()
    return {"Context.add": add.list_counts(), "Context.request": request.list_counts()}


async def count_session_work(library: Path) -> dict[str, dict[str, int]]:
    from trimtab import Session
    from trimtab.testing import MemoryStore

    session = await Session.create(MemoryStore(), "s", model="gpt-4o", clock=lambda: 1.0)
    for number in range(WARM_TURNS):
        await session.add({"role": "user", "content": f"Question {number}?"})
        await session.request()
        await session.add({"role": "assistant", "content": f"Answer {number}."})
    with CallCounter(library) as add:
        await session.add({"role": "user", "content": "One more question?"})
    with CallCounter(library) as request:
        await session.request()
    return {"Session.add": add.list_counts(), "Session.request": request.list_counts()}


def measure_class(library: Path, name: str) -> dict[str, int]:
    """Count the methods of a class, and the imports and lines of its file."""
    text = (library / CLASSES[name]).read_text(encoding="utf-8")
    module = ast.parse(text)
    classes = [node for node in module.body if isinstance(node, ast.ClassDef)]
    owner = next(node for node in classes if node.name == name)
    methods = {
        node.name for node in owner.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    private = {method for method in methods if _is_private(method)}
    imports: set[str] = set()
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            imports |= {alias.name for alias in node.names}
        if isinstance(node, ast.ImportFrom) and node.module:
            imports |= set(_list_modules(library, node.module, [a.name for a in node.names]))
    return {
        "public methods": sum(not method.startswith("_") for method in methods),
        "private methods": len(private),
        "imports": len(imports),
        "lines": len(text.splitlines()),
    }


def _list_modules(library: Path, module: str, names: list[str]) -> list[str]:
    """Return the module, or those of its modules that are imported from it by name."""
    folder = library.parent / module.replace(".", "/")
    modules = [f"{module}.{name}" for name in names if (folder / f"{name}.py").exists()]
    return modules or [module]


def _is_private(method: str) -> bool:
    return method.startswith("_") and not method.endswith("__")


def count_heart(tree: Path) -> dict[str, dict[str, int]]:
    """Count in a checkout. Its library must not be imported yet."""
    library = tree / LIBRARY
    sys.path.insert(0, str(library.parent))
    import trimtab

    loaded = Path(trimtab.__file__).parent
    if loaded != library:
        raise SystemExit(f"the library was loaded from {loaded} instead of {library}")
    return {
        **count_context_work(library),
        **asyncio.run(count_session_work(library)),
        **{name: measure_class(library, name) for name in CLASSES},
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tree", nargs="?", default=str(ROOT), help="the checkout to count in")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--quick", action="store_true", help="as for other benchmarks; no effect")
    arguments = parser.parse_args()
    counts = count_heart(Path(arguments.tree).resolve())
    if arguments.json:
        print(json.dumps(counts, indent=1))
        return
    for name, row in counts.items():
        print(f"{name:16}", ", ".join(f"{value:,} {what}" for what, value in row.items()))


if __name__ == "__main__":
    main()
