"""Claude Code's hook: cut the new output of a tool before the model sees it.

Claude Code starts it after each call of a tool. On any fault it prints nothing and exits with 0, so
that Claude Code goes on with the whole output.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, cast

from trimtab.integrations.claude_code.outputs import cap_output
from trimtab.integrations.claude_code.whole_texts import (
    choose_file,
    locate_folder,
    log_fault,
    save_text,
    sweep_if_due,
)

DEFAULT_MAX_TOKENS = 2_000
"""The most tokens that are shown of an output that is cut."""
MAX_INPUT_BYTES = 100_000_000
"""A larger input is not looked at."""


def answer_event(raw: bytes, folder: str, max_tokens: int) -> str:
    """Return what the hook prints for an event of Claude Code; empty if the output stays."""
    if len(raw) > MAX_INPUT_BYTES:
        raise ValueError
    parsed: object = json.loads(raw)
    if not isinstance(parsed, dict):
        return ""
    event = cast("dict[str, Any]", parsed)
    if event.get("hook_event_name") != "PostToolUse":
        return ""
    session, tool = str(event.get("session_id", "")), str(event.get("tool_name", ""))
    capped = cap_output(event, max_tokens, lambda: choose_file(folder, session, tool))
    if capped is None:
        return ""
    output, whole_texts = capped
    reply = {"hookEventName": "PostToolUse", "updatedToolOutput": output}
    line = json.dumps({"hookSpecificOutput": reply})
    if whole_texts:
        sweep_if_due(folder, time.time())
    for path, text in whole_texts.items():
        save_text(path, text)
    return line


def main(arguments: Sequence[str]) -> None:
    """Answer the event on standard input."""
    folder = ""
    try:
        options = dict(zip(arguments[::2], arguments[1::2], strict=True))
        folder = options.get("--folder") or locate_folder(os.environ)
        max_tokens = int(options.get("--max-tokens", DEFAULT_MAX_TOKENS))
        raw = sys.stdin.buffer.read(MAX_INPUT_BYTES + 1)
        reply = answer_event(raw, folder, max_tokens)
        if reply:
            sys.stdout.write(reply)
            sys.stdout.flush()
    except Exception as error:  # noqa: BLE001 - whatever it is, the client must go on
        _log(folder, error)


def _log(folder: str, error: Exception) -> None:
    """Write a line about a fault. It contains nothing of the output."""
    cause = str(error) if isinstance(error, OSError) else ""
    moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    line = f"{moment} {type(error).__name__} {cause}".rstrip()
    with suppress(Exception):
        log_fault(folder or locate_folder(os.environ), line)


if __name__ == "__main__":
    main(sys.argv[1:])
