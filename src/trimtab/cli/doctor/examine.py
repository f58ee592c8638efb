"""An agent looked at from all sides, one finding after the other, each within its time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

from trimtab.agent.agent import options_of
from trimtab.agent.problems import AgentFileError
from trimtab.agent.reading import hints, note_on_masks, place_of_store, read_agent, system_of
from trimtab.agent.spec import Model, Spec
from trimtab.catalog import resolve
from trimtab.cli.doctor import machine
from trimtab.cli.doctor.finding import Finding, bad, ok, skip, warn
from trimtab.cli.doctor.place import place
from trimtab.cli.doctor.provider import PATIENCE, asked, catalog
from trimtab.cli.doctor.reach import reach
from trimtab.cli.doctor.tools import ready
from trimtab.cli.doctor.window import window
from trimtab.cli.init.choice import maker
from trimtab.context import Context
from trimtab.providers.choose import MissingKey, provider_for, server_of
from trimtab.providers.provider import Provider

FIX = "correct the file; `trimtab init` shows one that works"


async def examine(
    file: Path, folder: Path, environ: Mapping[str, str], *, offline: bool
) -> AsyncIterator[Finding]:
    """All that there is to say; what comes later may rest on what comes first."""
    yield machine.python()
    try:
        spec = read_agent(file, environ)
    except AgentFileError as error:
        for problem in error.problems:
            yield bad(file.name, str(problem))
        return
    yield ok(file.name, f"{spec.name}: {spec.model.name}, {len(spec.tools)} tools")
    for hint in hints(file):
        yield warn(file.name, hint, "")
    if note := note_on_masks(spec):
        yield warn(file.name, note, "")
    store = place_of_store(spec, folder)
    dialect = dialect_of(spec.model)
    yield machine.extras(spec, dialect, store)
    system = system_of(spec, folder)
    options = options_of(spec, system, dialect)
    yield _system(spec, options)
    async for finding in _provider(spec.model, environ, offline=offline):
        yield finding
    elsewhere = bool(spec.model.provider or spec.model.base_url)
    yield catalog(spec.model.name, spec.model.context_window, elsewhere=elsewhere)
    yield await place(store)
    tools = await ready(spec, folder, environ, dialect)
    for finding in tools.findings:
        yield finding
    if spec.tools:
        yield await reach(environ)
    yield window(options, tools.made)


def dialect_of(model: Model) -> str:
    """What the model's provider speaks."""
    if model.provider is not None:
        return server_of(model.provider).dialect
    return resolve(model.name).dialect or "openai_chat"


def _system(spec: Spec, options: dict[str, Any]) -> Finding:
    if spec.system is None:
        return warn(
            "system", "there is no system prompt", "name a Markdown file: system: system.md"
        )
    report = Context(**options).report()
    tokens = next(one.tokens for one in report.sections if one.name == "system prompt")
    where = spec.system if len(spec.system.split()) == 1 else "in the file"
    return ok("system", f"{where}: {tokens:,} tokens, {tokens / report.limit:.1%} of the window")


async def _provider(
    model: Model, environ: Mapping[str, str], *, offline: bool
) -> AsyncIterator[Finding]:
    variable = _variable(model)
    try:
        provider = provider_for(
            model.name,
            provider=model.provider,
            api_key=model.api_key,
            base_url=model.base_url,
            timeout=PATIENCE,
            environ=environ,
        )
    except MissingKey as error:
        yield bad("key", str(error), f"export {variable}=…" if variable else "see model.provider")
        return
    except (ImportError, ValueError) as error:
        yield bad("provider", str(error))
        return
    try:
        yield _key(model, variable, environ)
        if offline:
            yield skip("provider", "not asked: --offline")
            return
        async for finding in _answers(provider, model, variable):
            yield finding
    finally:
        await provider.close()


async def _answers(
    provider: Provider, model: Model, variable: str | None
) -> AsyncIterator[Finding]:
    named = model.provider or maker(model.name)
    async for finding in asked(provider, model.name, named=named, variable=variable):
        yield finding


def _variable(model: Model) -> str | None:
    """The environment variable that the key is looked for in; None where none is asked for."""
    named = model.provider or maker(model.name)
    if model.api_key is not None:
        return "model.api_key"
    return server_of(named).key if named else None


def _key(model: Model, variable: str | None, environ: Mapping[str, str]) -> Finding:
    if model.api_key is not None:
        return ok("key", "model.api_key is set")
    if variable is not None and environ.get(variable):
        return ok("key", f"{variable} is set")
    return ok("key", "none is set, and none is asked for here")
