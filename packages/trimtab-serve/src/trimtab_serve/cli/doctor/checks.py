"""Check Python and the packages that an agent needs.

Check that sessions can be stored in the place that the file names.

Run all checks of an agent, one after the other, each with a time limit.
"""

from __future__ import annotations

import asyncio
import os
import platform
import shutil
import tempfile
from collections.abc import AsyncIterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from trimtab.cli.installed_packages import find_package_versions
from trimtab.context import Context
from trimtab.errors import (
    CostCeilingUncheckable,
    DatabaseNotMigrated,
    DatabaseSchemaTooNew,
    MissingApiKeyError,
    StoreError,
)
from trimtab.integrations.claude_code.settings import (
    SettingsFault,
    check_hook,
    locate_settings,
    read_settings,
)
from trimtab.models.catalog import resolve_model_info
from trimtab.providers.base import Provider
from trimtab.providers.factory import CLOUD_NAMES, create_provider, find_provider_endpoint
from trimtab.stores.factory import is_database_address, open_store
from trimtab_serve.agent.agent import (
    build_context_options,
    check_cost_ceilings,
    name_missing_settings_of_file,
)
from trimtab_serve.agent.config.loader import (
    describe_keep_results_without_policy,
    list_config_warnings,
    load_agent_spec,
    load_system_prompt,
    locate_agent_store,
)
from trimtab_serve.agent.config.problems import AgentFileError
from trimtab_serve.agent.config.spec import AgentSpec, McpToolSpec, ModelSpec
from trimtab_serve.cli.doctor.findings import (
    Finding,
    make_failure_finding,
    make_ok_finding,
    make_skipped_finding,
    make_warning_finding,
)
from trimtab_serve.cli.doctor.model_checks import (
    PROVIDER_TIMEOUT_S,
    check_model_in_catalog,
    check_provider,
    check_window,
)
from trimtab_serve.cli.doctor.tool_checks import check_sandboxes, check_secret_exposure, check_tools
from trimtab_serve.cli.init.model_choice import guess_provider


def report_python_version() -> Finding:
    """Report the interpreter. Trimtab does not start on older ones."""
    implementation = platform.python_implementation()
    versions = f"{platform.python_version()} ({implementation}), trimtab {version('trimtab')}"
    return make_ok_finding("Python", versions)


def check_packages(spec: AgentSpec, dialect: str | None, store: str) -> Finding:
    """Check the packages that this agent's provider, tools and store need."""
    extras = ["agent"]
    if spec.model.provider is not None:
        extras.append(find_provider_endpoint(spec.model.provider).extra)
    elif dialect is not None:
        extras.append("anthropic" if dialect == "anthropic" else "openai")
    if any(isinstance(tool, McpToolSpec) for tool in spec.tools.values()):
        extras.append("mcp")
    if is_database_address(store):
        extras.append("postgres")
    versions = {name: at for extra in extras for name, at in find_package_versions(extra).items()}
    lacking = [extra for extra in extras if None in find_package_versions(extra).values()]
    if lacking:
        missing = ", ".join(name for name, at in versions.items() if at is None)
        return make_failure_finding(
            "packages", f"missing: {missing}", f"pip install 'trimtab[{','.join(lacking)}]'"
        )
    return make_ok_finding("packages", ", ".join(f"{name} {at}" for name, at in versions.items()))


DATABASE_TIMEOUT_S = 15.0
"""Seconds that a database may take to answer."""
LOW_DISK_SPACE_BYTES = 500_000_000
"""The check warns if less space than this is free."""


async def check_store(store_location: str) -> Finding:
    """Check that the store can be read and written."""
    return (
        await _check_database(store_location)
        if is_database_address(store_location)
        else _check_folder(Path(store_location))
    )


async def _check_database(store: str) -> Finding:
    try:
        async with asyncio.timeout(DATABASE_TIMEOUT_S):
            open_database = await open_store(store)
            try:
                await open_database.sessions(limit=1)
            finally:
                await open_database.close()
    except TimeoutError:
        reason = f"the database did not answer within {DATABASE_TIMEOUT_S:g} seconds"
        return make_failure_finding(
            "store", reason, "check its address in session.store, and that it is running"
        )
    except DatabaseNotMigrated as error:
        return make_failure_finding("store", str(error), "trimtab migrate --database …")
    except DatabaseSchemaTooNew as error:
        return make_failure_finding(
            "store", str(error), "install the release of trimtab that migrated it"
        )
    except (StoreError, ValueError) as error:
        return make_failure_finding(
            "store", str(error), "check its address in session.store, and that it is running"
        )
    return make_ok_finding("store", "the database answers, and this release can use its tables")


def _check_folder(path: Path) -> Finding:
    there = path
    while not there.exists():
        there = there.parent
    if not there.is_dir():
        return make_failure_finding(
            "store", f"{there} is not a folder", "set session.store to another place"
        )
    try:
        # Permissions say less than an attempt: a disk may be read-only, or full.
        with tempfile.TemporaryFile(dir=there) as file:
            file.write(b"trimtab")
            file.flush()
            os.fsync(file.fileno())
        free = shutil.disk_usage(there).free
    except OSError as error:
        return make_failure_finding(
            "store",
            f"{there} cannot be written to: {error.strerror or error}",
            "give yourself write access, or set session.store to another place",
        )
    state = f"{path} {'is' if path.exists() else 'will be'} writable, {free / 1e9:,.1f} GB free"
    if free < LOW_DISK_SPACE_BYTES:
        return make_warning_finding(
            "store", state, "free some space: a session stops if it cannot be stored"
        )
    return make_ok_finding(
        "store",
        state if path.exists() else f"{path} will be created, {free / 1e9:,.1f} GB free",
    )


FIX = "correct the file; `trimtab init` writes one that works"


async def run_agent_checks(
    file: Path, folder: Path, environ: Mapping[str, str], *, offline: bool
) -> AsyncIterator[Finding]:
    """Run all checks in order. Later checks may depend on earlier ones."""
    yield report_python_version()
    for finding in await asyncio.to_thread(check_claude_hook, environ):
        yield finding
    try:
        spec = load_agent_spec(file, environ)
    except AgentFileError as error:
        for problem in error.problems:
            yield make_failure_finding(file.name, str(problem))
        return
    yield make_ok_finding(file.name, f"{spec.name}: {spec.model.name}, {len(spec.tools)} tools")
    for hint in list_config_warnings(file):
        yield make_warning_finding(file.name, hint, "")
    if note := describe_keep_results_without_policy(spec):
        yield make_warning_finding(file.name, note, "")
    store = locate_agent_store(spec, folder)
    dialect = find_model_dialect(spec.model)
    yield check_packages(spec, dialect, store)
    system = load_system_prompt(spec, folder)
    options = build_context_options(spec, system, dialect)
    yield _check_system_prompt(spec, options)
    async for finding in _check_provider_and_key(spec.model, environ, offline=offline):
        yield finding
    for finding in check_model_in_catalog(spec.model):
        yield finding
    if spec.cost_ceilings:
        yield _check_cost_ceilings(spec, options)
    yield await check_store(store)
    tools = await check_tools(spec, folder, environ, dialect)
    for finding in tools.findings:
        yield finding
    for finding in check_sandboxes(spec, environ):
        yield finding
    if spec.tools:
        yield await check_secret_exposure(environ)
    yield check_window(options, tools.ready_tools)


def check_claude_hook(environ: Mapping[str, str]) -> list[Finding]:
    """Check the hook in the user's settings of Claude Code. Without a hook there is no finding."""
    path = locate_settings(environ)
    try:
        state = check_hook(read_settings(path)[0], environ)
    except SettingsFault:
        return []  # the hook cannot be in it, and the file is another program's
    if state.is_installed and not state.faults:
        return [make_ok_finding("Claude Code", f"the hook in {path} works")]
    return [make_warning_finding("Claude Code", fault, "") for fault in state.faults]


def find_model_dialect(model: ModelSpec) -> str:
    """Return the dialect that the model's provider uses."""
    if model.provider is not None:
        return find_provider_endpoint(model.provider).dialect
    return resolve_model_info(model.name, model.model_info).dialect or "openai_chat"


def _check_system_prompt(spec: AgentSpec, options: dict[str, Any]) -> Finding:
    if spec.system is None:
        return make_warning_finding(
            "system", "there is no system prompt", "name a Markdown file: system: system.md"
        )
    report = Context(**options).report()
    tokens = next(one.tokens for one in report.sections if one.name == "system prompt")
    where = spec.system if len(spec.system.split()) == 1 else "in the file"
    return make_ok_finding(
        "system", f"{where}: {tokens:,} tokens, {tokens / report.limit:.1%} of the window"
    )


def _check_cost_ceilings(spec: AgentSpec, options: dict[str, Any]) -> Finding:
    try:
        check_cost_ceilings(spec, options)
    except CostCeilingUncheckable as error:
        return make_failure_finding("cost", str(error).removeprefix("cost: "))
    ceilings = [f"{name} ${dollars:,.2f}" for name, dollars in spec.cost_ceilings.items()]
    return make_ok_finding("cost", f"{', '.join(ceilings)}, checked before each call")


async def _check_provider_and_key(
    model: ModelSpec, environ: Mapping[str, str], *, offline: bool
) -> AsyncIterator[Finding]:
    variable = _key_variable(model)
    try:
        with name_missing_settings_of_file():
            provider = create_provider(
                model.name,
                provider=model.provider,
                model_info=model.model_info,
                api_key=model.api_key,
                base_url=model.base_url,
                timeout=PROVIDER_TIMEOUT_S,
                region=model.region,
                project=model.project,
                api_version=model.api_version,
                environ=environ,
            )
    except MissingApiKeyError as error:
        is_variable = variable is not None and " " not in variable
        yield make_failure_finding(
            "key", str(error), f"export {variable}=…" if is_variable else "see model.provider"
        )
        return
    except (ImportError, ValueError) as error:
        yield make_failure_finding("provider", str(error))
        return
    try:
        yield _check_key(model, variable, environ, getattr(provider, "credential_source", None))
        if offline:
            yield make_skipped_finding("provider", "not checked: --offline")
            return
        async for finding in _check_provider_answers(provider, model, variable, environ):
            yield finding
    finally:
        await provider.close()


async def _check_provider_answers(
    provider: Provider, model: ModelSpec, variable: str | None, environ: Mapping[str, str]
) -> AsyncIterator[Finding]:
    provider_name = model.provider or guess_provider(model.name)
    # Without its credentials, the provider of a cloud could not have been created.
    has_key = variable is not None and bool(
        provider_name in CLOUD_NAMES or model.api_key is not None or environ.get(variable)
    )
    async for finding in check_provider(
        provider, model.name, provider_name=provider_name, key_variable=variable, has_key=has_key
    ):
        yield finding


def _key_variable(model: ModelSpec) -> str | None:
    """Return the variable that holds the key. None if no key is needed."""
    provider_name = model.provider or guess_provider(model.name)
    if model.api_key is not None:
        return "model.api_key"
    return find_provider_endpoint(provider_name).key_source if provider_name else None


def _check_key(
    model: ModelSpec, variable: str | None, environ: Mapping[str, str], source: str | None
) -> Finding:
    if model.api_key is not None:
        return make_ok_finding("key", "model.api_key is set")
    if source is not None:
        return make_ok_finding("key", f"found credentials: {source}")
    if variable is not None and environ.get(variable):
        return make_ok_finding("key", f"{variable} is set")
    return make_ok_finding("key", "not set, and not needed here")
