"""`docs/llms.txt`, the list of pages for programs that read documentation: `make llms` writes it.

The format is that of https://llmstxt.org. Order and titles are those of the site's navigation.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "llms.txt"
ADDRESS = "https://raw.githubusercontent.com/trimtab/trimtab/main"
"""Where the pages are read as Markdown."""
INCLUDED = {"architecture": "ARCHITECTURE.md", "threats": "THREAT_MODEL.md"}
"""Pages that only include a file of the repository's root."""
TOCTREE = re.compile(r"```\{toctree\}\n(?P<options>(?::.*\n)*)\n(?P<entries>[^`]*)```")
CAPTION = re.compile(r":caption: (.+)")

HEAD = """\
# Trimtab

> Trimtab is a Python library that decides, before every model call of a long-lived agent, what the
> model sees. The request fits, tool calls keep their results, hidden text can be read back, and the
> provider's prompt cache stays warm. It also runs and serves agents that one file describes.

Install it with `pip install trimtab`; it needs Python 3.11 or newer. The main names are `Context`,
`fit`, `Session`, `run_turn` and `tool`.
"""

DESCRIPTIONS = {
    "start-library": "Ten lines around the model call of your own loop, then tools.",
    "start": "From nothing to an agent that chats, remembers and is served.",
    "frameworks": "The modules for LangChain, Pydantic AI and the OpenAI Agents SDK.",
    "langchain": "A middleware for LangChain agents and LangGraph graphs.",
    "pydantic-ai": "A capability for Pydantic AI agents.",
    "openai-agents": "A model around the model of the OpenAI Agents SDK.",
    "claude-code": "A hook in Claude Code that shortens outputs before they are sent.",
    "sidecar": "A process that fits the model calls of programs in any language.",
    "agents-you-run": "Plugins for Hermes, opencode and pi.",
    "cookbook/index": "Short programs for one task each.",
    "cookbook/streaming-and-tools": "Streaming loops with tools, for each SDK; parallel calls.",
    "cookbook/errors-and-retries": "A prompt that is too long, a request that cannot fit, checks.",
    "cookbook/other-servers": "Azure, Bedrock, Vertex AI, Ollama, vLLM and OpenRouter.",
    "cookbook/reading-the-report": "What each line of the report means, and what to log.",
    "cookbook/testing-your-agent": "Tests against simulated providers.",
    "cookbook/web-chat": "A chat service with FastAPI: double clicks, redelivery, restart.",
    "cookbook/one-machine-to-many": "Move sessions from files to PostgreSQL.",
    "cookbook/import": "Move a history that exists into a session, once.",
    "cookbook/moving-to-trimtab": "From trim_messages, summarisation or context_management.",
    "cookbook/ab-with-real-models": "Compare two settings with a real model and your own key.",
    "context": "Options of Context, limits, files, failures, policies of your own.",
    "sessions": "Sessions that outlive the process, and what each store promises.",
    "inspect": "One page of a session in the browser: every call, what is hidden, what it cost.",
    "turns": "run_turn: the loop with tools, events and recovery.",
    "forgetting": "Erase messages, sessions, users and tenants; retention.",
    "tools": "Tools of an agent: shell, Python functions, MCP servers, permissions, sandbox.",
    "chat": "trimtab chat: commands, display, several sessions.",
    "serve": "trimtab serve: keys, roles, disconnects, several agents.",
    "channels": "A bot on Telegram or Discord: set-up, sessions, commands, failures.",
    "operate": "Deploy, observe, back up, upgrade, alerts and what to do, size.",
    "schedules": "Messages to an agent at set times.",
    "replay": "What your sessions cost, and what to type so that they cost less: trimtab replay.",
    "concepts": "How it works, in pictures; what survives in a request; a glossary.",
    "auto": "The default policy: when it hides, what first, and what was measured.",
    "presets": "The other policies: when each hides, and what it does to the user's words.",
    "summaries": "Summaries with and without a model, and how they are checked.",
    "architecture": "The one idea, the flow, the folders, the laws.",
    "cli": "Every command; demo, init, doctor, models and migrate.",
    "agent": "Every field of agent.yaml.",
    "http": "Paths, events and errors of the HTTP API.",
    "reference/index": "Every public Python name.",
    "reference/context": "Context, fit, check, the report and the model catalog.",
    "reference/messages": "Messages, parts and events of the log.",
    "reference/policies": "Policies, plans, windows and summaries.",
    "reference/sessions": "Session, stores, export and import.",
    "reference/integrations": "What the modules for frameworks share.",
    "reference/turns": "run_turn, tools and the events of a turn.",
    "reference/providers": "Providers, retries and failures.",
    "reference/agents": "Agents from Python, secrets and metrics.",
    "reference/client": "The HTTP client.",
    "reference/replay": "Replay from Python.",
    "reference/testing": "Scripted providers, simulators and a store in memory.",
    "reference/errors": "Every exception.",
    "reference/types": "Types for annotations.",
    "vectors": "Inputs and expected outputs for a port to another language.",
    "stability": "What is public, the tiers, versions and stored formats.",
    "threats": "The threat model.",
    "benchmarks": "Speed, memory and cost, with the commands that measure them.",
    "peers": "Other libraries on the same conversations.",
}
"""One line for each page."""


def toctrees(name: str) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """The captions of a page's toctrees, and each entry's page and title."""
    folder = Path(name).parent
    for tree in TOCTREE.finditer((DOCS / f"{name}.md").read_text("utf-8")):
        entries: list[tuple[str, str]] = []
        for line in tree["entries"].split("\n"):
            if match := re.fullmatch(r"(?P<title>.+?) <(?P<page>\S+)>", line):
                entries.append(((folder / match["page"]).as_posix(), match["title"]))
            elif line:
                page = (folder / line).as_posix()
                entries.append((page, title(page)))
        caption = CAPTION.search(tree["options"])
        yield (caption[1] if caption else ""), entries


def title(name: str) -> str:
    """A page's first heading, without marks."""
    heading = re.search(r"^# (.+)", (DOCS / f"{name}.md").read_text("utf-8"), re.MULTILINE)
    return heading[1].replace("`", "") if heading else name


def lines(name: str, shown: str) -> Iterator[str]:
    """A page's line, and those of the pages below it."""
    path = INCLUDED.get(name, f"docs/{name}.md")
    yield f"- [{shown}]({ADDRESS}/{path}): {DESCRIPTIONS[name]}"
    for _, entries in toctrees(name):
        for below, below_title in entries:
            yield from lines(below, f"{shown}: {below_title}")


def page() -> str:
    """The whole file."""
    sections = [
        "\n".join([f"## {caption}", "", *(line for one in entries for line in lines(*one)), ""])
        for caption, entries in toctrees("index")
    ]
    return "\n".join([HEAD, *sections])


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
