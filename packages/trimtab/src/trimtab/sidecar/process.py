"""The process of `trimtab sidecar`, until its input ends."""

from __future__ import annotations

import os
import signal
import sys

from trimtab.sidecar.redacted_conversations import RedactedConversations, locate_file
from trimtab.sidecar.sidecar import MAX_CONVERSATIONS, Sidecar
from trimtab.sidecar.stdio import serve_stdio


def run_sidecar(*, store: str | None, max_conversations: int = MAX_CONVERSATIONS) -> None:
    """Answer the calls on standard input until it ends, or until nobody reads the answers."""
    redacted = RedactedConversations(locate_file(os.environ))
    sidecar = Sidecar(store, max_conversations=max_conversations, redacted=redacted)
    if sys.stdin.isatty():
        sys.stderr.write(
            "trimtab: waiting for calls, each a line of JSON. A program starts the sidecar; "
            "Control-D ends it\n"
        )
    else:
        # Control-C in a terminal reaches this process as well. The agent decides what it means.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        sidecar.run(serve_stdio(sidecar, sys.stdin.buffer, sys.stdout.buffer))
    except* BrokenPipeError:
        sidecar.run(sidecar.close())
        os._exit(1)  # a thread still reads, and Python would report what it cannot flush
    sidecar.run(sidecar.close())
