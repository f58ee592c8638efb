"""A session in plain files goes on after the process has ended.

Here the session is closed and opened again; a new process would do the same.

Needs: pip install trimtab
"""

import asyncio
import tempfile

from trimtab import Session, run_turn
from trimtab.stores import FileStore
from trimtab.testing import ScriptedProvider


async def talk(folder: str, said: str, answer: str) -> str:
    """Say one thing in the session `chat-7`, and return the answer."""
    store = FileStore(folder)
    session = await Session.open_or_create(store, "chat-7", model="claude-sonnet-5-5")
    provider = ScriptedProvider("anthropic", [answer])
    finished = await run_turn(session, provider, message={"role": "user", "content": said})
    seen = session.window.visible_messages
    await session.close()
    await store.close()
    return f"{finished.text} ({seen} messages seen)"


with tempfile.TemporaryDirectory() as folder:
    print(asyncio.run(talk(folder, "My boat is called Ada.", "A good name.")))
    print(asyncio.run(talk(folder, "What is my boat called?", "Ada.")))
