"""`agent.yaml` read and checked: an agent's description, or all that is wrong with the file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from pydantic import ValidationError

from trimtab.agent.complaints import complaints
from trimtab.agent.document import Document, document, named
from trimtab.agent.document import Path as At
from trimtab.agent.place import placed
from trimtab.agent.problems import AgentFileError, Problem
from trimtab.agent.reaching import wrong_doors
from trimtab.agent.references import refers, resolved
from trimtab.agent.secrets import ENVIRON
from trimtab.agent.shape import Shape, is_block, plain, step, whole
from trimtab.agent.spec import Context, McpTool, Spec
from trimtab.agent.text import LARGEST, text_of
from trimtab.core.policies.knobs import SummaryKnobs, ThresholdKnobs
from trimtab.given import WRITTEN
from trimtab.redaction import PATTERNS
from trimtab.stores.choose import holds_password

_SECRET = (
    ("model", "api_key"),
    ("telegram", "token"),
    ("telegram", "secret"),
    ("discord", "token"),
)
_PROMPT_FILES = (".md", ".txt")


_INSTEAD = {
    "model=": "set model.name",
    "add(message)": "leave it out: it is what was said",
    "system=": "set system, beside model",
    "tools=": "set tools, beside model",
    "max_output_tokens=": "set model.max_output_tokens",
    "request(stream=True)": "leave it out: replies are streamed",
}
"""By what sets a parameter in Python: how the file does."""


def read_agent(path: Path, environ: Mapping[str, str] = ENVIRON) -> Spec:
    """The agent that the file describes; raises `AgentFileError` with every problem of it."""
    found = document(text_of(path))
    if found.problems or not isinstance(found.data, dict):
        raise AgentFileError(path, found.problems or [_no_block(found.data)])
    data = resolved(found, environ)
    if _has_empty(data):
        data = _without_empty(data, whole())
    spec, wrong = _checked(data, found)
    problems = [*found.problems, *wrong]
    if spec is not None:
        problems += _related(spec, found)
        problems += _prompt_missing(spec, path.parent, found)
    if spec is None or problems:
        raise AgentFileError(path, problems)
    return spec


def system_of(spec: Spec, folder: Path) -> str:
    """The system prompt: the text of the file that `system` names, or `system` itself."""
    if spec.system is None or not _is_file(spec.system):
        return spec.system or ""
    place = folder / Path(spec.system).expanduser()
    try:
        with place.open("rb") as opened:
            raw = opened.read(LARGEST + 1)
        prompt = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        why = f"the system prompt {spec.system} is not in UTF-8, at byte {error.start + 1}"
        raise ValueError(f"{why}; save it as UTF-8") from None
    except (OSError, ValueError) as error:
        why = (
            "does not exist beside the agent's file"
            if isinstance(error, FileNotFoundError)
            else f"cannot be read ({getattr(error, 'strerror', error)})"
        )
        raise ValueError(
            f"the system prompt {spec.system} {why}; create it, or write the prompt itself, in a "
            "line of several words or after `system: |`"
        ) from None

    if len(raw) > LARGEST:
        raise ValueError(
            f"the system prompt {spec.system} has more than {LARGEST:,} bytes; no model takes "
            "that, so name another file"
        )
    return prompt


def place_of_store(spec: Spec, folder: Path) -> str:
    """Where the sessions are: a database as it is named, or a folder beside the file."""
    return placed(spec.session.store, folder)


def hints(path: Path) -> list[str]:
    """What works but is hardly meant: a key in the file itself, settings without an effect."""
    found = document(text_of(path))
    if found.problems or not isinstance(found.data, dict):
        return []
    return [*_keys_in_file(found), *_without_effect(found)]


def note_on_masks(spec: Spec) -> str:
    """A word on a file that was written for masks at every call and runs under `auto`; else
    nothing."""
    context = spec.session.context
    kept = ("tool_result_keep_first", "tool_result_keep_last")
    given = [name for name in kept if name in context.model_fields_set]
    chosen = "policy" in spec.session.model_fields_set
    if chosen or not any(getattr(context, name) for name in given):
        return ""
    verb = "are" if len(given) > 1 else "is"
    return (
        f"{' and '.join(given)} {verb} set, and no policy: `auto` decides when results are masked. "
        "Set `policy: layered` in `session` to mask all between the first and the last ones before "
        "every call, or `policy: auto` if this is meant"
    )


def _no_block(data: Any) -> Problem:
    if data is None:
        return Problem(text="is empty; `trimtab init` writes one that works")
    what = "a list" if isinstance(data, list) else "one text"
    return Problem(
        text=f"is {what}; it must be names with values, such as `model:` with `name: …` indented "
        "below it, and a space after each `:`"
    )


def _has_empty(data: Any) -> bool:
    """Whether a name has no value anywhere; most files need not be walked by their schema."""
    if not isinstance(data, dict):
        return data is None
    return any(_has_empty(value) for value in cast("dict[str, Any]", data).values())


def _without_empty(data: Any, shape: Shape) -> Any:
    """The values without settings that have none: `session:` alone sets nothing.

    A name that is not known must not vanish without a word, nor a tool with nothing but its name.
    """
    shape = plain(shape, data)
    if not isinstance(data, dict):
        return data
    kept: dict[str, Any] = {}
    for name, value in cast("dict[str, Any]", data).items():
        known = shape.get("properties", {})
        inner = step(shape, name) or {}
        if value is None and is_block(inner) and name not in known:
            kept[name] = {}
        elif value is not None or name not in known:
            kept[name] = _without_empty(value, inner)
    return kept


def _checked(data: Any, found: Document) -> tuple[Spec | None, list[Problem]]:
    try:
        return Spec.model_validate(data), []
    except ValidationError as error:
        # Not raised from here: the error holds the values, and some may be secrets.
        errors = error.errors(include_url=False, include_context=False)
    return None, complaints(errors, data, found)


def _related(spec: Spec, found: Document) -> Iterator[Problem]:
    """What each value alone does not tell."""
    session = spec.session
    for name in spec.model.params:
        if name in WRITTEN:
            path = ("model", "params", name)
            instead = _INSTEAD[WRITTEN[name]]
            yield _problem(f"{named(path)} cannot stand here; {instead}", path, found)
    for name, kind, block in (
        ("summary", SummaryKnobs, session.summary),
        ("thresholds", ThresholdKnobs, session.thresholds),
    ):
        try:
            kind(**block.knobs())
        except ValueError as error:
            yield _problem(f"session.{error}", ("session", name), found)
    for at, pattern in enumerate(session.redact):
        try:
            re.compile(PATTERNS.get(pattern, pattern))
        except re.error as error:
            path = ("session", "redact", at)
            why = f"is neither one of {', '.join(PATTERNS)} nor a regular expression: {error.msg}"
            yield _problem(f"session.redact[{at + 1}] {why}", path, found)
    for name, tool in spec.tools.items():
        if isinstance(tool, McpTool) and (tool.command is None) is (tool.url is None):
            why = (
                "needs `command`, the program to start, or `url`, where the server is"
                if tool.url is None
                else "has a `command` and a `url`; keep the one that leads to the server"
            )
            yield _problem(f"tools.{name} {why}", ("tools", name), found)
    for path, why in wrong_doors(spec, found):
        yield _problem(f"{named(path)} {why}", path, found)


def _prompt_missing(spec: Spec, folder: Path, found: Document) -> Iterator[Problem]:
    try:
        system_of(spec, folder)
    except ValueError as error:
        mark = found.marks[("system",)]
        text = str(error)
        if mark.written and refers(mark.written) and spec.system:
            text = text.replace(spec.system, mark.written)
        yield Problem(text=text, place=mark.value, path=("system",))


def _is_file(system: str) -> bool:
    """Whether `system` names a file, and is not a prompt."""
    return system.endswith(_PROMPT_FILES) if len(system.split()) != 1 else True


def _problem(text: str, path: At, found: Document) -> Problem:
    mark = found.marks.get(path)
    return Problem(text=text, place=mark.key if mark else None, path=path)


def _keys_in_file(found: Document) -> Iterator[str]:
    secret = re.compile(PATTERNS["secret"])
    for path, mark in found.marks.items():
        if not mark.written or refers(mark.written) or path[:1] in (("system",), ("name",)):
            continue
        where = f"line {mark.value.line}: {named(path)}"
        if path in _SECRET or secret.search(mark.written):
            yield (
                f"{where} holds a key that everybody who sees the file can use; put it into the "
                "environment and write ${NAME} here"
            )
        elif path == ("session", "store") and holds_password(mark.written):
            yield f"{where} holds a password; put the address into the environment: ${{NAME}}"


def _without_effect(found: Document) -> Iterator[str]:
    data = cast("dict[str, Any]", found.data)
    session = data.get("session")
    if not isinstance(session, dict):
        return
    session = cast("dict[str, Any]", session)
    policy = session.get("policy") or "auto"
    context = {*Context.model_fields} - {"max_context_bytes"}
    for block, owner, everywhere in (
        ("context", "compact", context),
        ("summary", "rolling", ("by", "model", "prompt", "max_tokens", "list_tokens")),
        ("thresholds", "thresholds", ("display",)),
    ):
        given = session.get(block)
        if policy == owner or not isinstance(given, dict):
            continue
        for name in cast("dict[str, Any]", given):
            if name not in everywhere:
                line = found.marks["session", block, name].key.line
                yield (
                    f"line {line}: session.{block}.{name} has no effect under the policy {policy}; "
                    f"it is for `policy: {owner}`"
                )
