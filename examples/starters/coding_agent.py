"""A coding agent: it reads, edits and runs things in the current folder, and asks you first.

Start it again, after a crash too, and it continues the conversation of this folder.

Needs: pip install 'trimtab[anthropic]', and ANTHROPIC_API_KEY
"""

import asyncio
from pathlib import Path

from trimtab import Session, ToolError, run_turn, tool
from trimtab.events import TextDelta, ToolStarted, TurnEvent
from trimtab.providers import AnthropicProvider, with_retries
from trimtab.stores import FileStore

SESSIONS = Path.home() / ".local/state/coding-agent"
SYSTEM = "You are a careful engineer in a terminal. Read before you edit. Run the tests. Be brief."
TERMINAL = asyncio.Lock()  # the calls of one reply run side by side


async def ask(question: str) -> None:
    async with TERMINAL:
        if await asyncio.to_thread(input, f"\n{question} [y/N] ") != "y":
            raise ToolError("the user said no: ask what to do instead")


def resolve(path: str) -> Path:
    if not (target := Path(path).resolve()).is_relative_to(Path.cwd()):
        raise ToolError(f"{path} is outside of {Path.cwd()}")
    return target


@tool
def read_file(path: str) -> str:
    """Read a text file, or list a folder."""
    target = resolve(path)
    return "\n".join(map(str, target.iterdir())) if target.is_dir() else target.read_text()


@tool
async def edit_file(path: str, old: str, new: str) -> str:
    """Replace the one place where `old` stands. An empty `old` writes the whole file."""
    target = resolve(path)
    text = target.read_text() if old else ""
    if old and text.count(old) != 1:
        raise ToolError(f"{path} has {text.count(old)} places with this text, not one")
    await ask(f"Edit {path}?\n- {old}\n+ {new}\n")
    return f"wrote {target.write_text(text.replace(old, new) if old else new)} characters"


@tool
async def run(command: str) -> str:
    """Run a shell command in this folder, and return its output."""
    await ask(f"Run `{command}`?")
    pipe, both = asyncio.subprocess.PIPE, asyncio.subprocess.STDOUT
    process = await asyncio.create_subprocess_shell(command, stdout=pipe, stderr=both)
    output, _ = await process.communicate()
    return f"{output.decode(errors='replace')}\n[exit status {process.returncode}]"


TOOLS = [read_file, edit_file, run]


def show(event: TurnEvent) -> None:
    if isinstance(event, TextDelta) and event.kind == "text":
        print(event.text, end="", flush=True)
    elif isinstance(event, ToolStarted):
        print(f"\n● {event.call.name} {event.call.arguments}")


async def main() -> None:
    provider, store, name = with_retries(AnthropicProvider()), FileStore(SESSIONS), str(Path.cwd())
    async with await Session.open_or_create(
        store, name, model="claude-sonnet-5-5", system=SYSTEM, recall=True
    ) as session:
        while line := await asyncio.to_thread(input, "\n> "):  # until an empty line
            message = {"role": "user", "content": line}
            await run_turn(session, provider, TOOLS, message=message, on_event=show)
            print(
                f"\n{session.report().share:.0%} of the window, ${session.report().cost or 0:.2f}"
            )
    await provider.close()


asyncio.run(main())
