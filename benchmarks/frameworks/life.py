"""One life of an agent, the same in every framework. Standard library only: it is also imported in
the frameworks' own environments.

In each turn the user asks for three reports. The model calls the tool twice in parallel, then once
more, and answers. All texts follow from numbers, so what the framework's history must hold
afterwards is known without the framework.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

SYSTEM = "You read reports and remember the rules that the user states."
TOOL = "read_report"
TOOL_DESCRIPTION = "Read one report."
CALLS_A_TURN = 3
MAX_OUTPUT_TOKENS = 1_000
REPORT_LINES = 110
CONVERSATION = "chat-7"

SUMMARY = """Goal and latest request:
- read three reports in each turn
Facts:
- the reports are numbered
Preferences:
Decisions:
Work done:
- reports were read
Errors and fixes:
Open questions and tasks:
Files and artefacts:
"""
SUMMARY_FACT = "- the reports are numbered"

Said = tuple[Any, ...]
"""("user", text), ("assistant", text), ("call", number, arguments) or ("result", number, text):
one thing of a history, whatever the framework calls it. Calls are numbered from 0."""
Api = Literal["openai_chat", "openai_responses", "anthropic"]
MODELS: dict[Api, str] = {
    "openai_chat": "gpt-4o",
    "openai_responses": "gpt-4o",
    "anthropic": "claude-sonnet-5-5",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """How a worker runs its agent."""

    url: str
    """Of the simulated provider."""
    api: Api
    """The API that the framework's model speaks."""
    stream: bool = False
    is_async: bool = False
    has_module: bool = True
    """Whether Trimtab's module is in the agent."""
    context_window: int | None = None
    """The window that the module is told. None tells it nothing."""
    folder: str = ""
    """Where the framework and our store keep what survives a restart."""
    lines: int = REPORT_LINES
    """The length of a report."""
    has_model_summaries: bool = False
    """Whether the framework's own model writes summaries, under a policy that asks for many."""

    @property
    def module_options(self) -> dict[str, Any]:
        """What the module is created with."""
        options: dict[str, Any] = {}
        if self.context_window:
            options["context_window"] = self.context_window
        if self.folder:
            options["store"] = f"{self.folder}/logs"
        if self.has_model_summaries:
            options |= {"summaries": "model", "policy": "rolling"}
        return options


def report(number: int, lines: int) -> str:
    rows = (f"line_{number}_{row} value={row * number % 977}" for row in range(lines))
    return f"report {number}: " + " ".join(rows)


def user_text(turn: int) -> str:
    return f"Turn {turn}: read three reports and remember rule-{turn}-keep."


def answer(turn: int) -> str:
    return f"I have read the three reports of turn {turn}, and rule-{turn}-keep holds from now on."


def script(first: int, last: int) -> list[dict[str, Any]]:
    """What the model says in the turns `first` to `last` - 1."""
    steps: list[dict[str, Any]] = []
    for turn in range(first, last):
        calls = [
            {"name": TOOL, "arguments": {"number": number}} for number in _numbers_of_turn(turn)
        ]
        steps += [{"calls": calls[:2]}, {"calls": calls[2:]}, {"text": answer(turn)}]
    return steps


def expected_history(turns: int, lines: int) -> list[Said]:
    """What the framework holds after these turns, if nothing changes its history."""
    history: list[Said] = []
    for turn in range(turns):
        numbers = _numbers_of_turn(turn)
        history.append(("user", user_text(turn)))
        for together in (numbers[:2], numbers[2:]):
            history += [("call", number, {"number": number}) for number in together]
            history += [("result", number, report(number, lines)) for number in together]
        history.append(("assistant", answer(turn)))
    return history


def _numbers_of_turn(turn: int) -> range:
    return range(CALLS_A_TURN * turn, CALLS_A_TURN * (turn + 1))
