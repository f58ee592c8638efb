"""Read and check `agent.yaml`: return its settings, or report everything that is wrong."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from pydantic import ValidationError

from trimtab.engine.log.redaction import REDACTION_PATTERNS
from trimtab.stores.factory import contains_database_password
from trimtab_serve.agent.config.env_refs import has_env_reference, resolve_env_references
from trimtab_serve.agent.config.problems import (
    MAX_AGENT_FILE_BYTES,
    AgentFileError,
    ConfigProblem,
    read_agent_file_text,
    refuse_pipe,
)
from trimtab_serve.agent.config.schema import (
    SchemaNode,
    build_spec_schema,
    find_child_schema,
    is_settings_block,
    resolve_schema,
)
from trimtab_serve.agent.config.spec import AgentSpec, ContextLimitsSpec
from trimtab_serve.agent.config.store_location import resolve_store_location
from trimtab_serve.agent.config.validation_errors import explain_validation_errors
from trimtab_serve.agent.config.yaml_document import ConfigPath as At
from trimtab_serve.agent.config.yaml_document import (
    YamlDocument,
    format_config_path,
    parse_yaml_collecting_problems,
)
from trimtab_serve.agent.environment import ENVIRON

_SECRET_PATHS = (
    ("model", "api_key"),
    ("telegram", "token"),
    ("telegram", "secret"),
    ("discord", "token"),
)
_PROMPT_FILE_SUFFIXES = (".md", ".txt")


def load_agent_spec(agent_file: Path, environ: Mapping[str, str] = ENVIRON) -> AgentSpec:
    """Read an agent's file and check it.

    Args:
        agent_file: The path of the file, usually `agent.yaml`.
        environ: The environment that `${NAME}` in the file refers to.

    Returns:
        The settings of the agent, for `open_agent`.

    Raises:
        AgentFileError: The file cannot be read or is invalid. The error lists every problem.
    """
    document = parse_yaml_collecting_problems(read_agent_file_text(agent_file))
    if document.problems or not isinstance(document.data, dict):
        raise AgentFileError(agent_file, document.problems or [_explain_not_a_block(document.data)])
    if envelope_problem := _explain_envelope(document):
        raise AgentFileError(agent_file, [envelope_problem])
    data = resolve_env_references(document, environ)
    if _has_empty_setting(data):
        data = _without_empty_settings(data, build_spec_schema())
    spec, wrong = _validate_spec(data, document)
    problems = [*document.problems, *wrong]
    if spec is not None:
        problems += _check_system_prompt(spec, agent_file.parent, document)
    if spec is None or problems:
        raise AgentFileError(agent_file, problems)
    return spec


def load_system_prompt(spec: AgentSpec, folder: Path) -> str:
    """Return the system prompt: the text of the file that `system` names, or `system` itself."""
    if spec.system is None or not names_prompt_file(spec.system):
        return spec.system or ""
    place = folder / Path(spec.system).expanduser()
    try:
        refuse_pipe(place)
        with place.open("rb") as file:
            raw = file.read(MAX_AGENT_FILE_BYTES + 1)
        prompt = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        why = f"the system prompt {spec.system} is not UTF-8, at byte {error.start + 1}"
        raise ValueError(f"{why}; save it as UTF-8") from None
    except (OSError, ValueError) as error:
        why = (
            "does not exist next to the agent's file"
            if isinstance(error, FileNotFoundError)
            else f"cannot be read ({getattr(error, 'strerror', error)})"
        )
        raise ValueError(
            f"the system prompt {spec.system} {why}; create the file, or write the prompt itself: "
            "a line of several words, or text after `system: |`"
        ) from None

    if len(raw) > MAX_AGENT_FILE_BYTES:
        raise ValueError(
            f"the system prompt {spec.system} is larger than {MAX_AGENT_FILE_BYTES:,} bytes, and "
            "no model accepts that; name another file"
        )
    return prompt


def locate_agent_store(spec: AgentSpec, folder: Path) -> str:
    """Return the location of the sessions: a database address, or a folder next to the file."""
    return resolve_store_location(spec.session.store, folder)


def list_config_warnings(agent_file: Path) -> list[str]:
    """Return warnings about settings that work but are probably not intended: a key in the file
    itself, settings without an effect."""
    document = parse_yaml_collecting_problems(read_agent_file_text(agent_file))
    if document.problems or not isinstance(document.data, dict):
        return []
    return [*_warn_about_secrets(document), *_warn_about_unused_settings(document)]


def describe_keep_results_without_policy(spec: AgentSpec) -> str:
    """Warn about a file that was written for masking at every call but runs under `auto`. Return
    None if there is nothing to warn about."""
    context = spec.session.context
    settings = ("tool_result_keep_first", "tool_result_keep_last")
    names = [name for name in settings if name in context.model_fields_set]
    has_policy = "policy" in spec.session.model_fields_set
    if has_policy or not any(getattr(context, name) for name in names):
        return ""
    verb = "are" if len(names) > 1 else "is"
    return (
        f"{' and '.join(names)} {verb} set without a policy, so `auto` decides when results are "
        "masked. If this is intended, set `policy: auto` in `session`. To mask all results except "
        "the first and last ones before every call, set `policy: layered`"
    )


def _explain_not_a_block(data: Any) -> ConfigProblem:
    if data is None:
        return ConfigProblem(text="is empty; `trimtab init` writes one that works")
    what = "a list" if isinstance(data, list) else "one text"
    return ConfigProblem(
        text=f"is {what}; it must consist of names with values, such as `model:` with `name: …` "
        "indented below it, and a space after each `:`"
    )


_ENVELOPE_KEYS = ("apiVersion", "kind", "metadata")
"""Settings around `spec` in files that follow Kubernetes."""


def _explain_envelope(document: YamlDocument) -> ConfigProblem | None:
    """Return what to change in a file whose settings are below `spec`; None for other files."""
    data = cast("dict[str, Any]", document.data)
    around = [name for name in _ENVELOPE_KEYS if name in data]
    if not around or not isinstance(data.get("spec"), dict):
        return None
    metadata = data.get("metadata")
    name = cast("dict[str, Any]", metadata).get("name") if isinstance(metadata, dict) else None
    return _problem_at(
        "spec is not needed here: move everything below it to the top of the file, and replace "
        f"{', '.join(around)} by `name: {name if isinstance(name, str) else 'NAME'}`",
        ("spec",),
        document,
    )


def _has_empty_setting(data: Any) -> bool:
    """Return whether any name has no value. Most files then need no walk through their schema."""
    if not isinstance(data, dict):
        return data is None
    return any(_has_empty_setting(value) for value in cast("dict[str, Any]", data).values())


def _without_empty_settings(data: Any, shape: SchemaNode) -> Any:
    """Return the values without settings that have none: `session:` alone sets nothing.

    An unknown name is kept, so that it is reported. So is a tool with nothing but its name.
    """
    shape = resolve_schema(shape, data)
    if not isinstance(data, dict):
        return data
    filled_settings: dict[str, Any] = {}
    for name, value in cast("dict[str, Any]", data).items():
        properties = shape.get("properties", {})
        inner = find_child_schema(shape, name) or {}
        if value is None and is_settings_block(inner) and name not in properties:
            filled_settings[name] = {}
        elif value is not None or name not in properties:
            filled_settings[name] = _without_empty_settings(value, inner)
    return filled_settings


def _validate_spec(
    data: Any, document: YamlDocument
) -> tuple[AgentSpec | None, list[ConfigProblem]]:
    try:
        return AgentSpec.model_validate(data), []
    except ValidationError as error:
        # Not raised from here: the error holds the values, and some may be secrets.
        errors = error.errors(include_url=False)
    return None, explain_validation_errors(errors, data, document)


def _check_system_prompt(
    spec: AgentSpec, folder: Path, document: YamlDocument
) -> Iterator[ConfigProblem]:
    try:
        load_system_prompt(spec, folder)
    except ValueError as error:
        mark = document.marks[("system",)]
        text = str(error)
        if mark.written and has_env_reference(mark.written) and spec.system:
            text = text.replace(spec.system, mark.written)
        yield ConfigProblem(text=text, position=mark.value_position, path=("system",))


def names_prompt_file(system: str) -> bool:
    """Return whether `system` names a file and is not the prompt itself."""
    return system.endswith(_PROMPT_FILE_SUFFIXES) if len(system.split()) != 1 else True


def _problem_at(text: str, path: At, document: YamlDocument) -> ConfigProblem:
    mark = document.marks.get(path)
    return ConfigProblem(text=text, position=mark.key_position if mark else None, path=path)


def _warn_about_secrets(document: YamlDocument) -> Iterator[str]:
    secret = re.compile(REDACTION_PATTERNS["secret"])
    for path, mark in document.marks.items():
        if (
            not mark.written
            or has_env_reference(mark.written)
            or path[:1] in (("system",), ("name",))
        ):
            continue
        where = f"line {mark.value_position.line}: {format_config_path(path)}"
        if path in _SECRET_PATHS or secret.search(mark.written):
            yield (
                f"{where} contains a key that everybody who sees the file can use; put it into the "
                "environment and write ${NAME} here"
            )
        elif path == ("session", "store") and contains_database_password(mark.written):
            yield f"{where} contains a password; put the address into the environment: ${{NAME}}"


def _warn_about_unused_settings(document: YamlDocument) -> Iterator[str]:
    data = cast("dict[str, Any]", document.data)
    session = data.get("session")
    if not isinstance(session, dict):
        return
    session = cast("dict[str, Any]", session)
    policy = session.get("policy") or "auto"
    context = {*ContextLimitsSpec.model_fields} - {"max_context_bytes"}
    for block, owner, everywhere in (
        ("context", "compact", context),
        (
            "summary",
            "rolling",
            ("by", "model", "prompt", "max_tokens", "list_tokens", "max_message_chars"),
        ),
        ("thresholds", "thresholds", ("display",)),
    ):
        preset_block = session.get(block)
        if policy == owner or not isinstance(preset_block, dict):
            continue
        for name in cast("dict[str, Any]", preset_block):
            if name not in everywhere:
                line = document.marks["session", block, name].key_position.line
                yield (
                    f"line {line}: session.{block}.{name} has no effect under the policy {policy}; "
                    f"only `policy: {owner}` uses it"
                )
