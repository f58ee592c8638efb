"""What Responses refuses beyond the dialect's rules, and what it keeps between calls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trimtab.catalog import Entry
from trimtab.dialects import dialect
from trimtab.testing.counting import listed
from trimtab.testing.pairing import unpaired
from trimtab.testing.seals import broken
from trimtab.testing.server.openai import (
    examine_breakpoints,
    examine_content,
    examine_list,
    examine_names,
    examine_output,
)
from trimtab.testing.server.options import Options
from trimtab.testing.server.parameters import RESPONSES
from trimtab.testing.server.refusals import openai as refused

Wire = Mapping[str, Any]
OVERFLOW = (
    "Your input exceeds the context window of this model. Please adjust your input and try again."
)
_PARTS = ("input_text", "input_image", "input_file")


class Kept:
    """Responses that were to be stored, and which reasoning an item came from."""

    def __init__(self) -> None:
        self.responses: dict[str, list[Wire]] = {}
        self.items: dict[str, Wire] = {}
        self.reasoning: dict[str, str] = {}

    def whole(self, request: Wire) -> dict[str, Any]:
        """The request with all that came before it, as far as it refers to it."""
        examine_names(request, RESPONSES)
        given = request.get("input", [])
        if not isinstance(given, str):
            examine_list({"input": given}, "input")
        items = [{"role": "user", "content": given}] if isinstance(given, str) else listed(given)
        found = [self._meant(item) for item in items]
        before = request.get("previous_response_id")
        if before is None:
            return {**request, "input": found}
        if before not in self.responses:
            raise refused(
                f"Previous response with id '{before}' not found.",
                param="previous_response_id",
                code="previous_response_not_found",
            )
        return {**request, "input": [*self.responses[before], *found]}

    def _meant(self, item: Wire) -> Wire:
        return self.items.get(str(item.get("id")), item) if _refers(item) else item

    def keep(self, whole: Wire, reply: Wire) -> None:
        """Remember a reply; its items only where the request asked to store them."""
        reasoning = ""
        for item in reply["output"]:
            if item["type"] == "reasoning":
                reasoning = item["id"]
            elif reasoning:
                self.reasoning[item["id"]] = reasoning
                reasoning = ""
        if whole.get("store", True):
            self.items.update({item["id"]: item for item in reply["output"]})
            self.responses[reply["id"]] = [*whole["input"], *reply["output"]]


def _refers(item: Wire) -> bool:
    return item.get("type") == "item_reference" or set(item) == {"id"}


def examine(request: Wire, whole: Wire, kept: Kept, options: Options) -> None:
    """Refuse what breaks a rule; `whole` has what the request refers to."""
    checked = {key: value for key, value in whole.items() if key != "previous_response_id"}
    _examine_items(whole, kept, options)
    for wrong in dialect("openai_responses").check(checked):
        raise refused(wrong.partition(": ")[2] if "No tool" in wrong else wrong, param="input")
    if (wrong := unpaired(whole, "openai_responses")) is not None:
        raise refused(f"Invalid input: {wrong}", param="input")
    examine_breakpoints(request, "input", "content", _PARTS)
    examine_content(whole, "openai_responses", options)


def _examine_items(whole: Wire, kept: Kept, options: Options) -> None:
    seen: set[str] = set()
    for item in listed(whole["input"]):
        name = str(item.get("id", ""))
        if name and name in seen:
            raise refused(f"Duplicate item found with id {name}.", param="input")
        seen.add(name)
        if _refers(item):
            raise _unknown(name)
        if item.get("type") == "reasoning" and options.signatures:
            _examine_reasoning(item, name, kept)
        wanted = kept.reasoning.get(name)
        if wanted is not None and wanted not in seen:
            raise refused(
                f"Item '{name}' of type '{item.get('type')}' was provided without its required "
                f"'reasoning' item: '{wanted}'.",
                param="input",
            )


def _examine_reasoning(item: Wire, name: str, kept: Kept) -> None:
    sealed = item.get("encrypted_content")
    if sealed is None:
        if name not in kept.items:
            raise _unknown(name)
    elif broken(name, str(sealed).removeprefix("gAAAA"), "") is not None:
        raise refused(
            f"The encrypted content {str(sealed)[:4]}...{str(sealed)[-4:]} could not be verified. "
            "Reason: Encrypted content could not be decrypted or parsed.",
            code="invalid_encrypted_content",
        )


def _unknown(name: str) -> Exception:
    return refused(
        f"Item with id '{name}' not found. Items are not persisted when `store` is set to false. "
        "Try again with `store` set to true, or remove this item from your input.",
        404,
        param="input",
    )


def admit(request: Wire, tokens: int, entry: Entry) -> int:
    """Tokens that the reply may take, if the request fits."""
    asked = request.get("max_output_tokens")
    examine_output(asked, "max_output_tokens", request["model"], least=16)
    if tokens + (asked or 0) > entry.context_window or tokens > entry.input_limit:
        raise refused(OVERFLOW, param="input", code="context_length_exceeded", cause="overflow")
    return min(asked or entry.max_output, entry.context_window - tokens)
