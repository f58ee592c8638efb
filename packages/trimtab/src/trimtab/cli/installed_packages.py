"""What is installed, for users and for bug reports."""

from __future__ import annotations

import platform
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version

from trimtab.cli.stderr_messages import print_error_for_exit

PACKAGES_BY_EXTRA: Mapping[str, tuple[str, ...]] = {
    "cli": ("typer", "rich"),
    "agent": ("pydantic", "PyYAML", "prompt_toolkit"),
    "anthropic": ("anthropic",),
    "openai": ("openai",),
    "bedrock": ("anthropic", "boto3"),
    "vertex": ("anthropic", "google-auth"),
    "mcp": ("mcp",),
    "postgres": ("psycopg", "psycopg-pool"),
    "testing": ("starlette", "uvicorn"),
}
"""The packages of each extra."""


def describe_installation() -> list[str]:
    """Return the version, the interpreter, the machine, and a line for each extra."""
    own_version = version("trimtab")
    lines = [
        f"trimtab {own_version}",
        f"Python {platform.python_version()} ({platform.python_implementation()})",
        f"{platform.system()} {platform.release()} ({platform.machine()})",
        f"from {sys.prefix}",
        "",
    ]
    wide = max(map(len, PACKAGES_BY_EXTRA))
    for extra in PACKAGES_BY_EXTRA:
        missing = [name for name, has in find_package_versions(extra).items() if has is None]
        has = ", ".join(f"{name} {at}" for name, at in find_package_versions(extra).items() if at)
        note = f"missing: pip install 'trimtab[{extra}]'" if missing else has
        lines.append(f"{'-' if missing else '+'} {extra:<{wide}}  {note}")
    return lines


def find_package_versions(extra: str) -> dict[str, str | None]:
    """Return the packages of an extra with their versions. None for a missing package."""
    return {name: _installed_version(name) for name in PACKAGES_BY_EXTRA[extra]}


def require_packages(user: str, packages: Sequence[str], *, extra: str) -> None:
    """End the command if packages are missing. The error names all of them and the extra.

    `user` is what needs them, as the error says it: `the server`. `packages` are names to import.
    """
    from importlib.util import find_spec

    if missing := [name for name in packages if find_spec(name) is None]:
        raise print_error_for_exit(
            f"{user} needs {', '.join(missing)}; run: pip install 'trimtab[{extra}]'"
        )


def _installed_version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
