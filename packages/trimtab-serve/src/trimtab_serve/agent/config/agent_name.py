"""Find the name of the agent that a file describes, regardless of other problems in the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from trimtab_serve.agent.config.env_refs import resolve_env_references
from trimtab_serve.agent.config.problems import AgentFileError, read_agent_file_text
from trimtab_serve.agent.config.spec import AgentSpec
from trimtab_serve.agent.config.yaml_document import parse_yaml_collecting_problems
from trimtab_serve.agent.environment import ENVIRON


def read_agent_name(file: Path) -> str | None:
    """Return the name. None if the file is not that of an agent, which names its model."""
    try:
        document = parse_yaml_collecting_problems(read_agent_file_text(file))
    except AgentFileError:
        return None
    data = resolve_env_references(document, ENVIRON)
    if not isinstance(data, dict) or "model" not in data:
        return None
    name = cast("dict[str, Any]", data).get("name", AgentSpec.model_fields["name"].default)
    return name if isinstance(name, str) else None
