"""Single results that somebody may summarise before they are first sent, instead of cutting them.

No model is asked here: what a policy would cut is named, and a summary that came is put in place.
"""

from __future__ import annotations

from dataclasses import dataclass

from trimtab.core.event import Edit
from trimtab.core.message import Message, Text, ToolResult
from trimtab.core.plan import Decision, Plan
from trimtab.core.policies.knobs import Knobs
from trimtab.core.policies.summaries import SummaryRefused
from trimtab.core.rounds import Result
from trimtab.core.summary_text import MAX_TOKENS, list_cap
from trimtab.core.window import Window


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedResult:
    """A tool result that is over its cap, and that a summary may be sent in place of."""

    seq: int
    """Position of the message that carries it."""
    part: int
    """Its index there."""
    tool: str
    """The name of the tool that gave it."""
    result: ToolResult
    """What it gave."""
    tokens: int
    """Tokens that it takes now."""
    most: int
    """Tokens that it would take if it were cut: the summary must not take more."""
    max_tokens: int = MAX_TOKENS
    """Tokens that the summary's lines may take."""
    list_tokens: int
    """Tokens that its list may take beside them."""

    @property
    def handle(self) -> str:
        """By what the whole text is recalled."""
        return f"m{self.seq}.{self.part}"

    @property
    def message(self) -> Message:
        """The result as a message of its own."""
        return Message(role="tool", parts=(self.result,))


def wanted_results(window: Window, decision: Decision, knobs: Knobs) -> tuple[WantedResult, ...]:
    """What a policy would cut now and the user wants summarised, oldest first.

    Only texts that the model has never seen: an edit of those costs no cache write.
    """
    unsent = {result.key: result for result in window.new_results() if result.edited is None}
    wanted: list[WantedResult] = []
    for edit in decision.edits:
        result = unsent.get((edit.first, -1 if edit.part is None else edit.part))
        if edit.op != "truncate" or result is None or knobs.truncation(result.tool) != "summary":
            continue
        given = _texts_alone(result)
        if given is not None:
            tokens, own = result.size.tokens, knobs.summary
            wanted.append(
                WantedResult(
                    seq=result.seq,
                    part=result.part,
                    tool=result.tool,
                    result=given,
                    tokens=tokens,
                    most=edit.size.tokens,
                    max_tokens=own.max_tokens or MAX_TOKENS,
                    list_tokens=list_cap(tokens) if own.listed is None else own.listed,
                )
            )
    return tuple(sorted(wanted, key=lambda each: (each.seq, each.part)))


def summarised_part(plan: Plan, wanted: WantedResult, text: str, by: str) -> tuple[Edit, ...]:
    """The edit that puts a summary in place of a result; refused where that is no longer so."""
    named = f"the summary of {wanted.handle}"
    unsent = {each.key: each for each in plan.window.new_results() if each.edited is None}
    result = unsent.get((wanted.seq, wanted.part))
    if result is None or _texts_alone(result) != wanted.result:
        raise SummaryRefused(
            f"{named} came too late: the result was sent, cut, undone or erased meanwhile"
        )
    why = f"{wanted.tool}: {wanted.tokens} tokens, summarised{f' by {by}' if by else ''}"
    put = text.strip() and plan.summarise_part(result.entry, result.part, text, why)
    if not put or plan.size(result.entry, result.part).tokens > wanted.most:
        raise SummaryRefused(f"{named} is empty or larger than the cut that it stands for")
    return plan.decision().edits


def _texts_alone(result: Result) -> ToolResult | None:
    """The result, where it is made of texts: a summary in its place would lose a picture."""
    part = result.entry.message.parts[result.part]
    if not isinstance(part, ToolResult) or result.entry.pinned:
        return None
    return part if all(isinstance(each, Text) for each in part.content) else None
