"""Python, and the packages that an agent needs."""

from __future__ import annotations

import platform
from importlib.metadata import version

from trimtab.agent.spec import McpTool, Spec
from trimtab.cli.doctor.finding import Finding, bad, ok
from trimtab.cli.version import packages
from trimtab.stores.choose import is_database


def python() -> Finding:
    """What runs; older interpreters do not come this far."""
    implementation = platform.python_implementation()
    told = f"{platform.python_version()} ({implementation}), trimtab {version('trimtab')}"
    return ok("Python", told)


def extras(spec: Spec, dialect: str | None, store: str) -> Finding:
    """The packages that this agent's provider, tools and store are made with."""
    wanted = ["agent"]
    if dialect is not None:
        wanted.append("anthropic" if dialect == "anthropic" else "openai")
    if any(isinstance(tool, McpTool) for tool in spec.tools.values()):
        wanted.append("mcp")
    if is_database(store):
        wanted.append("postgres")
    found = {name: at for extra in wanted for name, at in packages(extra).items()}
    lacking = [extra for extra in wanted if None in packages(extra).values()]
    if lacking:
        missing = ", ".join(name for name, at in found.items() if at is None)
        return bad("packages", f"missing: {missing}", f"pip install 'trimtab[{','.join(lacking)}]'")
    return ok("packages", ", ".join(f"{name} {at}" for name, at in found.items()))
