"""The files of a new agent."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from textwrap import indent

from trimtab_serve.agent.config.schema import format_editor_schema
from trimtab_serve.cli.init.model_choice import ModelChoice

AGENT_FILE_PURPOSES = {
    "agent.yaml": "the agent: model, tools, memory",
    "system.md": "the system prompt",
    "tools.py": "a function that the agent may call",
    ".gitignore": "files that git must not store",
    ".agent.schema.json": "lets editors complete agent.yaml",
}
"""What each file is for, in the order in which they are listed."""
SCHEMA_FILE_NAME = ".agent.schema.json"
_AZURE_LINES = (
    "# base_url: https://my-resource.openai.azure.com # default: AZURE_OPENAI_ENDPOINT",
    "# model_info: {context_window: 400000} # the name of a deployment does not show its window",
)
_AZURE_SETUP = ("export AZURE_OPENAI_ENDPOINT=…   # https://my-resource.openai.azure.com",)
CLOUD_LINES = {
    "bedrock": ("# region: eu-central-1 # default: AWS_REGION",),
    "azure": _AZURE_LINES,
    "azure_responses": _AZURE_LINES,
    "vertex": (
        "# region: global # default: CLOUD_ML_REGION",
        "# project: my-project # default: ANTHROPIC_VERTEX_PROJECT_ID",
    ),
}
"""Other settings that the model may need, by cloud."""
CLOUD_SETUP_COMMANDS = {
    "bedrock": (
        "aws configure       # or set AWS_REGION, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY",
    ),
    "azure": _AZURE_SETUP,
    "azure_responses": _AZURE_SETUP,
    "vertex": (
        "gcloud auth application-default login",
        "export CLOUD_ML_REGION=global ANTHROPIC_VERTEX_PROJECT_ID=…",
    ),
}
"""Commands that set up credentials, by cloud."""


def build_agent_files(
    agent_name: str, choice: ModelChoice, *, with_shell: bool = False
) -> dict[str, str]:
    """Return all files by name. The shell is commented out unless `with_shell` is set."""
    files = {file: _read_template(file) for file in AGENT_FILE_PURPOSES if file != SCHEMA_FILE_NAME}
    files["agent.yaml"] = files["agent.yaml"].format(
        name=agent_name,
        model=_quoted_yaml(choice.model),
        provider=_provider_lines(choice),
        shell=indent(_read_template("shell.yaml"), "  " if with_shell else "  # "),
    )
    return {**files, SCHEMA_FILE_NAME: format_editor_schema()}


def write_agent_files(
    folder: Path, file_texts: Mapping[str, str], *, force: bool
) -> tuple[list[str], list[str]]:
    """Write the files that do not exist yet. Return the names written and the names kept."""
    folder.mkdir(parents=True, exist_ok=True)
    new_files: list[str] = []
    old_files: list[str] = []
    for name, text in file_texts.items():
        path = folder / name
        # The schema is ours: an old one would mislead.
        if path.exists() and not force and name != SCHEMA_FILE_NAME:
            old_files.append(name)
            continue
        path.write_text(text, encoding="utf-8")
        new_files.append(name)
    return new_files, old_files


def derive_agent_name(folder: Path) -> str:
    """Derive the agent's name from its folder's name."""
    plain = re.sub(r"\W+", "-", folder.resolve().name.lower()).strip("-")
    return plain if plain[:1].isalpha() else "agent"


def _read_template(name: str) -> str:
    place = files("trimtab_serve.cli.init").joinpath(f"{name.lstrip('.')}.txt")
    return place.read_text(encoding="utf-8")


def _provider_lines(choice: ModelChoice) -> str:
    lines = [f"  provider: {choice.provider}"] if choice.provider else []
    lines += [f"  {line}" for line in CLOUD_LINES.get(choice.provider or "", ())]
    if choice.key_variable:
        lines.append(f"  # api_key: ${{{choice.key_variable}}} # never the key itself")
    lines += ["  # max_output_tokens: 8192", f"  {_window_line(choice)}"]
    return "\n".join(lines) + "\n"


def _window_line(choice: ModelChoice) -> str:
    if choice.provider == "ollama":
        # It cuts what is longer, and says nothing.
        return "context_window: 4096 # must equal OLLAMA_CONTEXT_LENGTH of Ollama (4096 if not set)"
    return "# context_window: 128000 # if the catalog does not know the model"


def _quoted_yaml(model: str) -> str:
    """Quote a model's name such as `qwen3:8b` if YAML needs it."""
    return model if re.fullmatch(r"[A-Za-z][\w./-]*", model) else json.dumps(model)
