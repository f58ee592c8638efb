"""Resolve references to the environment in a file: `${NAME}` and `${NAME:-default}`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, cast

from trimtab_serve.agent.config.problems import ConfigProblem
from trimtab_serve.agent.config.yaml_document import (
    ConfigPath,
    YamlDocument,
    format_config_path,
    parse_yaml_scalar,
)

_ENV_REFERENCE = re.compile(r"\$\$|\$\{([A-Za-z_][A-Za-z0-9_]*)(:-([^}]*))?\}|\$\{")


class TextFromEnvironment(str):
    """A text of which at least a part came from the environment. It may be a secret."""

    __slots__ = ()


class _UnresolvedReference(Exception):
    """A reference that cannot be resolved. The text says what to do."""


def has_env_reference(text: str) -> bool:
    """Return whether a text refers to the environment."""
    return any(match.group(1) for match in _ENV_REFERENCE.finditer(text))


def resolve_env_references(document: YamlDocument, environ: Mapping[str, str]) -> Any:
    """Resolve all references in the document's values. Missing variables become problems."""
    return _resolve_value(document.data, (), document, environ)


def parse_env_text_as_scalar(value: Any) -> Any:
    """Convert a text from the environment to the expected number or boolean."""
    return parse_yaml_scalar(str(value)) if isinstance(value, TextFromEnvironment) else value


def parse_nested_env_texts_as_scalars(value: Any) -> Any:
    """Convert all texts from the environment in a value that may hold anything."""
    if isinstance(value, dict):
        return {
            name: parse_nested_env_texts_as_scalars(one)
            for name, one in cast("dict[str, Any]", value).items()
        }
    if isinstance(value, list):
        return [parse_nested_env_texts_as_scalars(one) for one in cast("list[Any]", value)]
    return parse_env_text_as_scalar(value)


def _resolve_value(
    value: Any, path: ConfigPath, document: YamlDocument, environ: Mapping[str, str]
) -> Any:
    if isinstance(value, dict):
        return {
            name: _resolve_value(one, (*path, name), document, environ)
            for name, one in cast("dict[str, Any]", value).items()
        }
    if isinstance(value, list):
        config_list = cast("list[Any]", value)
        return [
            _resolve_value(one, (*path, at), document, environ)
            for at, one in enumerate(config_list)
        ]
    if not isinstance(value, str) or "$" not in value:
        return value
    try:
        text = _ENV_REFERENCE.sub(lambda match: _look_up_reference(match, environ), value)
    except _UnresolvedReference as missing:
        place = document.marks[path].value_position
        text = f"{format_config_path(path)} {missing}"
        document.problems.append(ConfigProblem(text=text, position=place, path=path))
        return None
    if has_env_reference(value):
        # `${NAME:-}` with nothing in it sets nothing.
        return TextFromEnvironment(text) if text else None
    return text


def _look_up_reference(match: re.Match[str], environ: Mapping[str, str]) -> str:
    if match.group() == "$$":
        return "$"
    name, has_default, default = match.groups()
    if name is None:
        raise _UnresolvedReference(
            "has a `${` that does not begin a valid reference; write ${NAME} or "
            "${NAME:-default}, or $${ for a literal ${"
        )
    if value := environ.get(name):
        return value
    if has_default:
        return default
    if name in environ:
        raise _UnresolvedReference(
            f"refers to ${{{name}}}, which is empty; run `export {name}=…` first"
        )
    close = get_close_matches(name, environ, n=1, cutoff=0.85)
    if close:
        raise _UnresolvedReference(
            f"refers to ${{{name}}}, which is not set, but ${{{close[0]}}} is; write that, or run "
            f"`export {name}=…` first"
        )
    raise _UnresolvedReference(
        f"refers to ${{{name}}}, which is not set; run `export {name}=…` first"
    )
