"""What is installed: for a person, and for a report of a fault."""

from __future__ import annotations

import platform
import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version

PACKAGES_BY_EXTRA: Mapping[str, tuple[str, ...]] = {
    "cli": ("typer", "rich"),
    "agent": ("pydantic", "PyYAML", "prompt_toolkit"),
    "anthropic": ("anthropic",),
    "openai": ("openai",),
    "bedrock": ("anthropic", "boto3"),
    "vertex": ("anthropic", "google-auth"),
    "mcp": ("mcp",),
    "postgres": ("psycopg", "psycopg-pool"),
    "testing": ("starlette", "uvicorn", "rs-bpe"),
    "report": ("matplotlib",),
}
"""By extra: the packages it brings."""


def describe_installation() -> list[str]:
    """The version, the interpreter, the machine, and a line for each extra."""
    found = version("trimtab")
    lines = [
        f"trimtab {found}",
        f"Python {platform.python_version()} ({platform.python_implementation()})",
        f"{platform.system()} {platform.release()} ({platform.machine()})",
        f"from {sys.prefix}",
        "",
    ]
    wide = max(map(len, PACKAGES_BY_EXTRA))
    for extra in PACKAGES_BY_EXTRA:
        missing = [name for name, has in find_package_versions(extra).items() if has is None]
        has = ", ".join(f"{name} {at}" for name, at in find_package_versions(extra).items() if at)
        told = f"missing: pip install 'trimtab[{extra}]'" if missing else has
        lines.append(f"{'-' if missing else '+'} {extra:<{wide}}  {told}")
    return lines


def find_package_versions(extra: str) -> dict[str, str | None]:
    """The packages of an extra with their versions; None for one that is missing."""
    return {name: _installed_version(name) for name in PACKAGES_BY_EXTRA[extra]}


def _installed_version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
