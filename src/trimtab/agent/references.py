"""References to the environment in the texts of a file: `${NAME}` and `${NAME:-default}`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, cast

from trimtab.agent.document import Document, Path, named, scalar
from trimtab.agent.problems import Problem

_REFERENCE = re.compile(r"\$\$|\$\{([A-Za-z_][A-Za-z0-9_]*)(:-([^}]*))?\}|\$\{")


class Resolved(str):
    """A text that came from the environment, at least in part; it may be a secret."""

    __slots__ = ()


class _Missing(Exception):
    """A reference that leads nowhere, with what to do."""


def refers(text: str) -> bool:
    """Whether a text takes something from the environment."""
    return any(found.group(1) for found in _REFERENCE.finditer(text))


def resolved(found: Document, environ: Mapping[str, str]) -> Any:
    """The document's values with what they refer to; what is missing joins its problems."""
    return _value(found.data, (), found, environ)


def typed(value: Any) -> Any:
    """What a text from the environment stands for where a number or a yes or no is wanted."""
    return scalar(str(value)) if isinstance(value, Resolved) else value


def typed_within(value: Any) -> Any:
    """The same for all that a value holds, where anything may stand."""
    if isinstance(value, dict):
        return {name: typed_within(one) for name, one in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [typed_within(one) for one in cast("list[Any]", value)]
    return typed(value)


def _value(value: Any, path: Path, found: Document, environ: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {
            name: _value(one, (*path, name), found, environ)
            for name, one in cast("dict[str, Any]", value).items()
        }
    if isinstance(value, list):
        listed = cast("list[Any]", value)
        return [_value(one, (*path, at), found, environ) for at, one in enumerate(listed)]
    if not isinstance(value, str) or "$" not in value:
        return value
    try:
        text = _REFERENCE.sub(lambda match: _looked_up(match, environ), value)
    except _Missing as missing:
        place = found.marks[path].value
        text = f"{named(path)} {missing}"
        found.problems.append(Problem(text=text, place=place, path=path))
        return None
    if refers(value):
        # `${NAME:-}` with nothing in it sets nothing.
        return Resolved(text) if text else None
    return text


def _looked_up(match: re.Match[str], environ: Mapping[str, str]) -> str:
    if match.group() == "$$":
        return "$"
    name, has_default, default = match.groups()
    if name is None:
        raise _Missing(
            "has a `${` that is no reference; write ${NAME} or ${NAME:-default}, or $${ for the "
            "signs themselves"
        )
    if value := environ.get(name):
        return value
    if has_default:
        return default
    if name in environ:
        raise _Missing(f"refers to ${{{name}}}, which is empty; run `export {name}=…` first")
    close = get_close_matches(name, environ, n=1, cutoff=0.85)
    if close:
        raise _Missing(
            f"refers to ${{{name}}}, which is not set, but ${{{close[0]}}} is; write that, or run "
            f"`export {name}=…` first"
        )
    raise _Missing(f"refers to ${{{name}}}, which is not set; run `export {name}=…` first")
