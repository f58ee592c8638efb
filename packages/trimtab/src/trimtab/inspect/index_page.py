"""The list of several sessions, with a page for each beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from trimtab.engine.text.client_text import is_wholly_client_generated
from trimtab.inspect.page import SHARED_SCRIPTS, read_resource, read_script, render_document_start
from trimtab.inspect.text_pool import pack_json
from trimtab.inspect.timeline import Timeline

MAX_FIRST_WORDS_CHARS = 300
"""Characters of the first message that the list shows and searches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexedSession:
    """One session in the list."""

    file: str
    """The name of its page."""
    title: str
    """Its name."""
    source: str
    """The program that recorded it."""
    model: str
    """The model that answered last."""
    words: str
    """The user's first words."""
    at: float | None
    """Time of the last call, in seconds since the epoch."""
    calls: int
    """Number of calls."""
    input: int | None
    """Reported input tokens. None if nothing was reported."""
    dollars: float | None
    """The cost of the calls with a known price. None if there is none."""
    breaks: int
    """Calls that lost the cache."""
    hidden: int
    """Names that the model used while they were hidden."""


def index_session(file: str, timeline: Timeline) -> IndexedSession:
    """Return a session as the list shows it."""
    calls = timeline.calls
    costs = [sum(call.dollars) for call in calls if call.dollars is not None]
    inputs = [call.input for call in calls if call.input is not None]
    times = [call.at for call in calls if call.at is not None]
    return IndexedSession(
        file=file,
        title=timeline.title,
        source=timeline.source,
        model=timeline.heads[-1].model if timeline.heads else "",
        words=_find_first_words(timeline),
        at=times[-1] if times else None,
        calls=len(calls),
        input=sum(inputs) if inputs else None,
        dollars=round(sum(costs), 6) if costs else None,
        breaks=sum(call.lost > 0 for call in calls),
        hidden=sum(not name.is_recall for name in timeline.names),
    )


def render_index(origin: str, sessions: Sequence[IndexedSession], *, answer: str = "") -> str:
    """Return the page that lists sessions.

    Args:
        origin: The folder or the file of the sessions.
        sessions: The sessions in order.
        answer: The output of `trimtab replay`, shown above them.
    """
    listed = [asdict(one) for one in sessions]
    payload = pack_json({"origin": origin, "sessions": listed, "answer": answer})
    script = read_script((*SHARED_SCRIPTS, "index.js"))
    return "".join(
        [
            render_document_start("Sessions", script),
            read_resource("index.html"),
            f'<script type="text/plain" id="data">{payload}</script>\n',
            f"<script>{script}</script>\n",
            "</body>\n</html>\n",
        ]
    )


def _find_first_words(timeline: Timeline) -> str:
    for message in timeline.messages:
        texts = [timeline.pool[part.text] for part in message.parts if part.kind == "text"]
        words = [text for text in texts if not is_wholly_client_generated(text)]
        if message.role == "user" and words:
            return " ".join(words[0][: 2 * MAX_FIRST_WORDS_CHARS].split())[:MAX_FIRST_WORDS_CHARS]
    return ""
