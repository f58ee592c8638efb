"""Who gets the result of a schedule, as a file names them: `telegram:123456`.

The run happens in that chat's own session unless another is named. Whoever answers to what they got
is then understood: it was said where they speak.
"""

from __future__ import annotations

from trimtab.agent.doors import chat_named
from trimtab.worker.letters import Route


def route_to(to: str) -> Route:
    """The route to a chat. Raises `ValueError` where it names none."""
    door, chat, topic = chat_named(to)
    if door == "discord":
        return Route(door=door, address={"channel": chat})
    return Route(door=door, address={"chat": chat, **({"topic": topic} if topic else {})})


def session_of(route: Route) -> str:
    """What the session of a chat is called."""
    return ":".join([route.door, *map(str, route.address.values())])
