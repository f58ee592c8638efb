"""The rules of Responses beyond the dialect's, and the state that it keeps between calls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trimtab.checking import find_output_limit_errors
from trimtab.dialects import get_dialect
from trimtab.models.catalog import ModelInfo
from trimtab.testing.pair_check import find_pairing_error
from trimtab.testing.request_counter import list_array_objects
from trimtab.testing.server.known_parameter_names import (
    RESPONSES_COUNT_PARAMETERS,
    RESPONSES_PARAMETERS,
)
from trimtab.testing.server.openai_rules import (
    check_cache_breakpoints,
    check_json_object_list,
    reject_bad_media_or_forbidden_text,
    reject_unknown_parameters,
)
from trimtab.testing.server.options import ProviderSimulatorOptions
from trimtab.testing.server.responses import make_openai_refusal as refused
from trimtab.testing.signatures import find_signature_fault

JsonObject = Mapping[str, Any]
OVERFLOW_MESSAGE = (
    "Your input exceeds the context window of this model. Please adjust your input and try again."
)
_CONTENT_PART_TYPES = ("input_text", "input_image", "input_file")


class StoredResponses:
    """The stored responses, and the reasoning that belongs to each item."""

    def __init__(self) -> None:
        self.responses: dict[str, list[JsonObject]] = {}
        self.items: dict[str, JsonObject] = {}
        self.reasoning: dict[str, str] = {}

    def expand_request(
        self, request: JsonObject, *, for_token_count: bool = False
    ) -> dict[str, Any]:
        """Return the request with the earlier items that it refers to."""
        names = RESPONSES_COUNT_PARAMETERS if for_token_count else RESPONSES_PARAMETERS
        reject_unknown_parameters(request, names)
        input_items = request.get("input", [])
        if not isinstance(input_items, str):
            check_json_object_list({"input": input_items}, "input")
        items = (
            [{"role": "user", "content": input_items}]
            if isinstance(input_items, str)
            else list_array_objects(input_items)
        )
        full_items = [self._resolve_reference(item) for item in items]
        before = request.get("previous_response_id")
        if before is None:
            return {**request, "input": full_items}
        if before not in self.responses:
            raise refused(
                f"Previous response with id '{before}' not found.",
                param="previous_response_id",
                code="previous_response_not_found",
            )
        return {**request, "input": [*self.responses[before], *full_items]}

    def _resolve_reference(self, item: JsonObject) -> JsonObject:
        return self.items.get(str(item.get("id")), item) if _is_reference(item) else item

    def store_reply(self, full_request: JsonObject, reply: JsonObject) -> None:
        """Remember a reply. Its items are kept only if the request asked to store them."""
        reasoning = ""
        for item in reply["output"]:
            if item["type"] == "reasoning":
                reasoning = item["id"]
            elif reasoning:
                self.reasoning[item["id"]] = reasoning
                reasoning = ""
        if full_request.get("store", True):
            self.items.update({item["id"]: item for item in reply["output"]})
            self.responses[reply["id"]] = [*full_request["input"], *reply["output"]]


def _is_reference(item: JsonObject) -> bool:
    return item.get("type") == "item_reference" or set(item) == {"id"}


def validate_responses_request(
    request: JsonObject,
    full_request: JsonObject,
    stored: StoredResponses,
    options: ProviderSimulatorOptions,
) -> None:
    """Refuse a request that breaks a rule. `full_request` includes what the request refers to."""
    whole_request = {
        key: value for key, value in full_request.items() if key != "previous_response_id"
    }
    _examine_items(full_request, stored, options)
    for wrong in get_dialect("openai_responses").find_request_errors(whole_request):
        raise refused(wrong.partition(": ")[2] if "No tool" in wrong else wrong, param="input")
    if (wrong := find_pairing_error(full_request, "openai_responses")) is not None:
        raise refused(f"Invalid input: {wrong}", param="input")
    check_cache_breakpoints(request, "input", "content", _CONTENT_PART_TYPES)
    reject_bad_media_or_forbidden_text(full_request, "openai_responses", options)


def _examine_items(
    full_request: JsonObject, store: StoredResponses, options: ProviderSimulatorOptions
) -> None:
    ids: set[str] = set()
    for item in list_array_objects(full_request["input"]):
        name = str(item.get("id", ""))
        if name and name in ids:
            raise refused(f"Duplicate item found with id {name}.", param="input")
        ids.add(name)
        if _is_reference(item):
            raise _item_not_found(name)
        if item.get("type") == "reasoning" and options.signatures:
            _examine_reasoning(item, name, store)
        reasoning_id = store.reasoning.get(name)
        if reasoning_id is not None and reasoning_id not in ids:
            raise refused(
                f"Item '{name}' of type '{item.get('type')}' was provided without its required "
                f"'reasoning' item: '{reasoning_id}'.",
                param="input",
            )


def _examine_reasoning(item: JsonObject, name: str, store: StoredResponses) -> None:
    encrypted_content = item.get("encrypted_content")
    if encrypted_content is None:
        if name not in store.items:
            raise _item_not_found(name)
    elif find_signature_fault(name, str(encrypted_content).removeprefix("gAAAA"), "") is not None:
        raise refused(
            f"The encrypted content {str(encrypted_content)[:4]}...{str(encrypted_content)[-4:]} "
            "could not be verified. "
            "Reason: Encrypted content could not be decrypted or parsed.",
            code="invalid_encrypted_content",
        )


def _item_not_found(name: str) -> Exception:
    return refused(
        f"Item with id '{name}' not found. Items are not persisted when `store` is set to false. "
        "Try again with `store` set to true, or remove this item from your input.",
        404,
        param="input",
    )


def compute_responses_limit_or_refuse(
    request: JsonObject, input_tokens: int, model_info: ModelInfo
) -> int:
    """Return the maximum number of tokens for the reply, if the request fits."""
    requested_output = request.get("max_output_tokens")
    for wrong in find_output_limit_errors(request):
        raise refused(wrong, param="max_output_tokens", code="invalid_value")
    if (
        input_tokens + (requested_output or 0) > model_info.context_window
        or input_tokens > model_info.input_limit
    ):
        raise refused(
            OVERFLOW_MESSAGE, param="input", code="context_length_exceeded", cause="overflow"
        )
    return min(requested_output or model_info.max_output, model_info.context_window - input_tokens)
