"""Find local variables that say what was done to a thing, and not what the thing is.

`found` may be a file, a number or nothing; `path`, `count` and `match` say it. `make lint` runs
this on the packages: at most one local in a hundred may be a bare participle. `--list` prints them.
"""

import argparse
import ast
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

PACKAGES = Path(__file__).parents[2] / "packages"
MAX_SHARE = 0.01
"""Share of the local variables that may be bare participles."""

_IRREGULAR = """
begun bound built chosen come cut done drawn fallen forgotten found given gone got grown heard held
hidden kept known laid led left lost made meant met own paid put run said seen sent set shown sold
spent stood taken thought told understood won worn written
"""
IRREGULAR = frozenset(_IRREGULAR.split())
"""Participles that do not end in -ed, and `own`, which stands for a noun as well."""
_NOUNS = """
bed bread breed cut embed exceed feed head id need put read red run seed set shed speed spread
thread
"""
NOUNS = frozenset(_NOUNS.split())
"""Words that look like participles and are nouns, or verbs of the domain, of their own."""


def is_bare_participle(name: str) -> bool:
    """Whether a name is one participle and nothing else: `told`, but not `told_once`."""
    word = name.strip("_")
    if "_" in word or word in NOUNS:
        return False
    return word in IRREGULAR or (word.endswith("ed") and len(word) > 3)


def iterate_locals(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield each local variable of each function once, with the line of its first assignment."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            stores = (node for node in ast.walk(function) if isinstance(node, ast.Name))
            lines = {n.id: n.lineno for n in stores if isinstance(n.ctx, ast.Store)}
            yield from lines.items()


def main() -> int:
    """Print the share, and what is above it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("places", nargs="*", type=Path, default=[PACKAGES])
    parser.add_argument("--list", action="store_true", help="print every one with its place")
    options = parser.parse_args()
    total = 0
    names = Counter[str]()
    places: list[str] = []
    for path in sorted(file for place in options.places for file in place.rglob("*.py")):
        for name, line in iterate_locals(ast.parse(path.read_text("utf-8"))):
            total += 1
            if is_bare_participle(name):
                names[name] += 1
                places.append(f"{path}:{line}: {name}")
    too_many = names.total() > MAX_SHARE * total
    if options.list or too_many:
        print("\n".join(places))
    print(
        f"{names.total()} of {total} local variables are bare participles: name what each holds, "
        f"as {', '.join(name for name, _ in names.most_common(3)) or 'none'} do not"
    )
    return 1 if too_many else 0


if __name__ == "__main__":
    sys.exit(main())
