"""A cheap model summarises old messages in the background, and the summary is checked before use.

Needs: pip install trimtab
"""

import asyncio

from trimtab import Session, run_turn
from trimtab.events import SummaryFinished, TurnEvent
from trimtab.models import find_makers_cheap_model
from trimtab.summaries import Summariser
from trimtab.testing import MemoryStore, ScriptedProvider

SUMMARY = """Goal and latest request:
- compare the offers
Facts:
- offer 3 is the cheapest
Decisions:
- none is taken yet
"""
MODEL = "claude-sonnet-5-5"


def show(event: TurnEvent) -> None:
    """Print that a summary was made, or why not."""
    if isinstance(event, SummaryFinished):
        print(event.attempt)


async def main() -> None:
    """Talk for twelve turns under the policy `rolling`."""
    provider = ScriptedProvider("anthropic", [f"Offer {n} costs {100 + n} €." for n in range(12)])
    writer = ScriptedProvider("anthropic", [SUMMARY] * 12)
    summariser = Summariser(provider=writer, model=find_makers_cheap_model(MODEL))
    session = await Session.create(MemoryStore(), "offers", model=MODEL, policy="rolling")
    for n in range(12):
        message = {"role": "user", "content": f"And what of offer {n}? " * 9}
        await run_turn(session, provider, message=message, summariser=summariser, on_event=show)
        await session.wait_for_background()
    print(session.window.conversation.framed_summary(session.window.summary))
    seen, made = session.window.visible_messages, session.report().summaries.made
    await session.close()
    assert made > 0
    print(f"24 messages were said, the model sees at most 15: {seen <= 15}")


asyncio.run(main())
