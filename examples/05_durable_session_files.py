"""A session in plain files goes on after the process has ended.

Here the session is closed and opened again; a new process would do the same.

Needs: pip install trimtab
"""

import asyncio
import tempfile

from trimtab import Session, run_turn
from trimtab.stores import FileStore
from trimtab.testing import ScriptedProvider


async def talk(folder: str, said: str, answer: str) -> int:
    """Say one thing in the session `chat-7`, and return how many messages the model then sees."""
    store = FileStore(folder)
    session = await Session.open_or_create(store, "chat-7", model="claude-sonnet-5-5")
    provider = ScriptedProvider("anthropic", [answer])
    await run_turn(session, provider, message={"role": "user", "content": said})
    seen = session.window.visible_messages
    await session.close()
    await store.close()
    return seen


with tempfile.TemporaryDirectory() as folder:
    first = asyncio.run(talk(folder, "My boat is called Ada.", "A good name."))
    second = asyncio.run(talk(folder, "What is my boat called?", "Ada."))
print(f"messages the model saw: {first}, then {second}")
