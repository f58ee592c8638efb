"""Mistakes with sessions, stores, folders and packages."""

from __future__ import annotations

import json
from pathlib import Path

from tests.mistakes.mistake import AGENT, CLAUDE, Mistake

HELLO = 'trimtab chat "hello"'
FIRST = 'trimtab chat --session first "hello"'
DATABASE = AGENT + "session:\n  store: ${DATABASE_URL}\n"


def newer(folder: Path) -> None:
    """Let a session's last event be of a release that is still to come."""
    [log] = (folder / "sessions").rglob("*.jsonl")
    *rest, last = log.read_text(encoding="utf-8").splitlines()
    event = json.loads(last)
    log.write_text(
        "\n".join([*rest, json.dumps({**event, "version": 99})]) + "\n", encoding="utf-8"
    )


def in_the_way(folder: Path) -> None:
    (folder / "sessions").write_text("notes\n", encoding="utf-8")


PLACES = (
    Mistake(
        name="database-down",
        what="The database does not run.",
        types=HELLO,
        files={"agent.yaml": DATABASE},
        environ={"DATABASE_URL": "host=127.0.0.1 port=1 user=me dbname=agents password=hunter22"},
        status=2,
        names=["database agents at 127.0.0.1:1"],
    ),
    Mistake(
        name="database-not-migrated",
        what="The database has none of our tables yet.",
        types=HELLO,
        files={"agent.yaml": DATABASE},
        database=True,
        status=2,
        names=["trimtab migrate"],
    ),
    Mistake(
        name="database-address",
        what="The database's address is none.",
        types="trimtab migrate --database postgresql://me:hunter22@[agents",
        status=2,
        names=["database"],
    ),
    Mistake(
        name="store-is-a-file",
        what="A file stands where the sessions are to be kept.",
        types=HELLO,
        makes=in_the_way,
        status=2,
        names=["sessions", "not a folder"],
    ),
    Mistake(
        name="folder-is-a-file",
        what="A file stands where the agent's folder is to be.",
        types="trimtab init notes",
        files={"notes": "Buy milk.\n"},
        status=2,
        names=["notes"],
    ),
    Mistake(
        name="folder-not-writable",
        what="The agent's folder cannot be made where it is to be.",
        types="trimtab init notes/agent",
        files={"notes": "Buy milk.\n"},
        status=2,
        names=["notes/agent"],
    ),
    Mistake(
        name="store-not-writable",
        what="The sessions cannot be kept where they are to be.",
        types=HELLO,
        files={"agent.yaml": AGENT + "session:\n  store: notes/sessions\n", "notes": "Buy milk.\n"},
        status=2,
        names=["notes/sessions"],
    ),
    Mistake(
        name="init-unknown-provider",
        what="The provider is misspelt.",
        types="trimtab init --provider antropic",
        files={},
        status=2,
        names=["antropic", "anthropic"],
    ),
    Mistake(
        name="init-without-a-model",
        what="The provider serves so many models that one has to be named.",
        types="trimtab init --provider openrouter",
        files={},
        status=2,
        names=["openrouter", "--model"],
    ),
    Mistake(
        name="unknown-command",
        what="The command is misspelt.",
        types="trimtab chta",
        status=2,
        names=["chta", "chat"],
    ),
    Mistake(
        name="unknown-option",
        what="An option is misspelt.",
        types='trimtab chat --sesion first "hello"',
        status=2,
        names=["--sesion", "--session"],
    ),
    Mistake(
        name="continue-without-a-session",
        what="There is nothing yet to go on with.",
        types="trimtab chat --continue",
        status=2,
        names=["no session"],
    ),
    Mistake(
        name="continue-and-session",
        what="Two sessions are meant at once.",
        types="trimtab chat --continue --session first",
        status=2,
        names=["--continue", "--session"],
    ),
    Mistake(
        name="unknown-session",
        what="There is no session of that name.",
        types="trimtab session show frist",
        makes=lambda folder: (folder / "sessions").mkdir(),
        status=2,
        names=["frist", "session list"],
    ),
    Mistake(
        name="no-store-here",
        what="Sessions are looked for in the wrong folder.",
        types="trimtab session list",
        files={},
        status=2,
        names=["sessions", "--store"],
    ),
    Mistake(
        name="two-chats-on-one-session",
        what="The session is open in another terminal.",
        types=FIRST,
        beside="trimtab chat --json --session first",
        status=1,
        names=["first"],
    ),
    Mistake(
        name="session-of-a-newer-release",
        what="The session was written by a newer release.",
        types=FIRST,
        before=[FIRST],
        makes=newer,
        says=["Hello."],
        status=2,
        names=["99"],
    ),
    Mistake(
        name="agent-extra-missing",
        what="Only the command line was installed.",
        types=HELLO,
        without=["yaml", "pydantic", "prompt_toolkit"],
        status=2,
        names=["trimtab[agent]"],
    ),
    Mistake(
        name="provider-extra-missing",
        what="The provider's package was not installed.",
        types=HELLO,
        files={"agent.yaml": CLAUDE},
        key="ANTHROPIC_API_KEY",
        without=["anthropic"],
        status=2,
        names=["trimtab[anthropic]"],
    ),
    Mistake(
        name="mcp-extra-missing",
        what="There is an MCP server, and the package for them was not installed.",
        types=HELLO,
        files={"agent.yaml": AGENT + "tools:\n  files:\n    kind: mcp\n    command: [ls]\n"},
        without=["mcp", "mcp_types"],
        status=2,
        names=["trimtab[mcp]"],
    ),
    Mistake(
        name="postgres-extra-missing",
        what="The store is a database, and the package for it was not installed.",
        types=HELLO,
        files={"agent.yaml": DATABASE},
        environ={"DATABASE_URL": "postgresql://me@127.0.0.1/agents"},
        without=["psycopg", "psycopg_pool"],
        status=2,
        names=["trimtab[postgres]"],
    ),
    Mistake(
        name="library-alone",
        what="The library was installed without the command line.",
        types="trimtab chat",
        without=["typer", "rich"],
        status=2,
        names=["trimtab[agent]"],
    ),
)
