"""`run_turn` is the loop: the model calls your tools until it has an answer.

`@tool` makes a tool of a typed function. A scripted provider answers from a list; for a real one
use `with_retries(AnthropicProvider())` from `trimtab.providers`.

Needs: pip install trimtab
"""

import asyncio

from trimtab import Session, ToolError, run_turn, tool
from trimtab.events import ToolFinished, TurnEvent
from trimtab.testing import MemoryStore, ScriptedCall, ScriptedProvider

STOCK = {"rope": 12, "anchor": 1}


@tool
def count_stock(item: str) -> int:
    """How many pieces of an item are in stock."""
    if item not in STOCK:
        raise ToolError(f"there is no {item!r}; known items: {', '.join(STOCK)}")
    return STOCK[item]


def show(event: TurnEvent) -> None:
    """Print each tool call as it ends."""
    if isinstance(event, ToolFinished):
        print(event.call.name, event.call.arguments, "->", event.text)


async def main() -> None:
    """Ask one question, which takes two tool calls."""
    provider = ScriptedProvider(
        "anthropic",
        [
            ScriptedCall(name="count_stock", arguments={"item": "ropes"}),
            ScriptedCall(name="count_stock", arguments={"item": "rope"}),
            "There are 12 ropes.",
        ],
    )
    session = await Session.create(MemoryStore(), "stock", model="claude-sonnet-5-5")
    message = {"role": "user", "content": "How many ropes do we have?"}
    finished = await run_turn(session, provider, [count_stock], message=message, on_event=show)
    await session.close()
    print(finished.text, f"({finished.calls} model calls)")


asyncio.run(main())
