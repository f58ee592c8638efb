"""Errors that are no overflow, whatever words they contain, and those of a malformed history."""

from __future__ import annotations

from typing import Any

from tests.providers.overflow_texts import CHAT, CLAUDE, anthropic, nested, openai

OTHERS: dict[str, tuple[str, int | None, Any]] = {
    "status 429, whatever it says": ("rate_limit", 429, anthropic(CLAUDE)),
    "a used-up balance": ("refused", 429, openai("You exceeded your quota.", "insufficient_quota")),
    "rate limit": (
        "rate_limit",
        400,
        openai("Rate limit reached: maximum context length is 8192 tokens"),
    ),
    "too many requests": ("rate_limit", 400, "Too Many Requests, prompt is too long"),
    "tokens per minute, as a 413": (
        "rate_limit",
        413,
        openai(
            "Request too large for model `x` on tokens per minute (TPM): Limit 6000, Requested "
            "9012, please reduce your message size and try again.",
            "rate_limit_exceeded",
            "tokens",
        ),
    ),
    "input tokens per minute": (
        "rate_limit",
        429,
        anthropic(
            "This request would exceed your organization's rate limit of 30,000 input tokens per "
            "minute",
            "rate_limit_error",
        ),
    ),
    "a long window that the account does not have": (
        "refused",
        400,
        anthropic("The long context beta is not yet available for this subscription."),
    ),
    "a long window that costs extra": (
        "refused",
        429,
        anthropic("Extra usage is required for long context requests.", "rate_limit_error"),
    ),
    "a range of another parameter": (
        "rejected",
        400,
        openai("Range of the number of images should be [1, 250]", "invalid_parameter_error"),
    ),
    "content that is too long for another reason": (
        "rejected",
        400,
        openai("The name of a file exceeds max length"),
    ),
    "Bedrock's tokens": (
        "rate_limit",
        400,
        {"message": "Too many tokens, please wait before trying again."},
    ),
    "Bedrock: an unknown model": (
        "refused",
        400,
        {"message": "The provided model identifier is invalid."},
    ),
    "Bedrock: a model that needs a profile": (
        "refused",
        400,
        {
            "message": "Invocation of model ID anthropic.claude-sonnet-4-20250514-v1:0 with "
            "on-demand throughput isn’t supported. Retry your request with the ID or ARN of an "
            "inference profile that contains this model."
        },
    ),
    "Bedrock: a version that the model has not": (
        "refused",
        400,
        {"message": "Invalid API version: 2026-10-21"},
    ),
    "Bedrock: a quota": (
        "rate_limit",
        400,
        {"__type": "ServiceQuotaExceededException", "message": "The request exceeds a quota"},
    ),
    "Bedrock: a model that failed": (
        "server",
        424,
        {"__type": "ModelErrorException", "message": "The model failed"},
    ),
    "Azure: no such deployment": (
        "refused",
        404,
        {"error": {"code": "DeploymentNotFound", "message": "The API deployment does not exist"}},
    ),
    "context deadline exceeded": ("timeout", 400, openai("context deadline exceeded")),
    "timed out": ("timeout", 500, openai("The context of the request timed out")),
    "a gateway's timeout": ("timeout", 504, "<html>504</html>"),
    "a request's timeout": ("timeout", 408, ""),
    "a token that is invalid": ("auth", 401, openai("Invalid token: too long", "invalid_token")),
    "a token that has expired": ("auth", 400, openai("token expired, length exceeded")),
    "a security token": (
        "auth",
        400,
        {"message": "The security token included in the request exceeds its lifetime"},
    ),
    "forbidden": ("auth", 403, openai("Your token may not use the maximum context length is 1")),
    "no permission, in a stream": ("auth", None, openai("Your token does not have access to x")),
    "Gemini's key": ("auth", 400, {"error": {"message": "API key not valid.", "code": 400}}),
    "Anthropic's key, in a stream": ("auth", None, anthropic("no", "authentication_error")),
    "unsupported max_tokens": (
        "refused",
        400,
        openai(
            "Unsupported parameter: 'max_tokens' is not supported with this model. Use "
            "'max_completion_tokens' instead.",
            "unsupported_parameter",
        ),
    ),
    "string_above_max_length": (
        "rejected",
        400,
        openai(
            "Invalid 'messages[0].content': string too long. Expected a string with maximum length "
            "1048576, but got a string with length 1184393 instead. context_length_exceeded",
            "string_above_max_length",
        ),
    ),
    "array_above_max_length": (
        "refused",
        400,
        openai("Invalid 'tools': array too long. Expected an array with maximum length 128", "x"),
    ),
    "an image of too many bytes": (
        "rejected",
        400,
        anthropic(
            "messages.0.content.1.image.source.base64: image exceeds 5 MB maximum: 6910836 bytes > "
            "5242880 bytes"
        ),
    ),
    "an image of too many pixels": (
        "rejected",
        413,
        anthropic("At least one of the image dimensions exceed max allowed size: 8000 pixels"),
    ),
    "too many images": ("rejected", 400, openai("Too many images in request: 101 > 100 maximum")),
    "an output above the model's": (
        "refused",
        400,
        anthropic(
            "max_tokens: 100000 > 64000, which is the maximum allowed number of output tokens for x"
        ),
    ),
    "an output above the model's, OpenAI": (
        "refused",
        400,
        openai(
            "max_tokens is too large: 100000. This model supports at most 16384 completion tokens, "
            "whereas you provided 100000."
        ),
    ),
    "an unknown model": ("refused", 404, openai("The model does not exist", "model_not_found")),
    "a request echoed": (
        "rejected",
        422,
        {"detail": [{"msg": "Field required", "type": "missing", "input": {"message": CHAT}}]},
    ),
    "a picture that nobody can draw": ("rejected", 400, anthropic("Could not process image")),
    "a picture under a wrong name": (
        "rejected",
        400,
        anthropic(
            "messages.92.content.0.tool_result.content.1.image.source.base64: The image was "
            "specified using the image/png media type, but the image appears to be a image/jpeg "
            "image"
        ),
    ),
    "a picture of OpenAI's that nobody can draw": (
        "rejected",
        400,
        openai("You uploaded an unsupported image. Please make sure your image is valid."),
    ),
    "a picture for a model that cannot see": (
        "rejected",
        400,
        openai("Invalid content type. image_url is only supported by certain models."),
    ),
    "the same at OpenRouter": (
        "rejected",
        404,
        {"error": {"message": "No endpoints found that support image input", "code": 404}},
    ),
    "a picture that nobody can draw, in a stream": (
        "rejected",
        None,
        {"code": "image_parse_error", "message": "The image could not be parsed."},
    ),
    "a document that is none": ("rejected", 400, anthropic("The PDF specified was not valid.")),
    "a text that a policy forbids": (
        "rejected",
        400,
        openai(
            "Invalid prompt: your prompt was flagged as potentially violating", "invalid_prompt"
        ),
    ),
    "the same at Azure": (
        "rejected",
        400,
        openai(
            "The response was filtered due to the prompt triggering Azure OpenAI's content "
            "management policy.",
            "content_filter",
        ),
    ),
    "the same at OpenRouter, as a matter of rights": (
        "rejected",
        403,
        {"error": {"message": "Your input was flagged", "code": 403}},
    ),
    "output that a policy forbids": (
        "rejected",
        400,
        anthropic("Output blocked by content filtering policy"),
    ),
    "a message of a wrong form": (
        "rejected",
        400,
        {"error": {"message": "Invalid type", "param": "messages[3].content[1].image_url"}},
    ),
    "an empty balance, as a bad request": (
        "refused",
        400,
        anthropic(
            "Your credit balance is too low to access the Anthropic API. Please go to Plans & "
            "Billing to upgrade or purchase credits."
        ),
    ),
    "an empty balance": ("refused", 402, {"error": {"message": "Insufficient Balance"}}),
    "a spending limit, as a bad request": (
        "refused",
        400,
        anthropic("You have reached your specified API usage limits."),
    ),
    "an organisation that was shut": (
        "refused",
        400,
        anthropic("This organization has been disabled."),
    ),
    "a country": ("refused", 400, openai("User location is not supported for the API use.")),
    "a model that is not there, as a bad request": (
        "refused",
        400,
        openai("The model `gpt-9` does not exist or you do not have it"),
    ),
    "a tool of a wrong form": ("refused", 400, anthropic("tools.0.custom.input_schema: wrong")),
    "a parameter of a wrong form": ("refused", 400, anthropic("temperature: range: 0..1")),
    "a parameter of a wrong form, OpenAI": (
        "refused",
        400,
        {"error": {"message": "Expected a value <= 2", "param": "temperature", "code": "x"}},
    ),
    "too many tools": ("refused", 400, openai("Invalid 'tools[0].function.name': too long")),
    "overloaded": ("overloaded", 529, anthropic("Overloaded", "overloaded_error")),
    "overloaded, in a stream": ("overloaded", None, anthropic("Overloaded", "overloaded_error")),
    "unavailable": ("overloaded", 503, "Service Unavailable"),
    "a server's fault": ("server", 500, openai("The server had an error", None, "server_error")),
    "a server's fault, in a stream": ("server", None, anthropic("Internal", "api_error")),
    "a bad gateway": ("server", 502, "<html>502 Bad Gateway</html>"),
    "a bare 500": ("server", 500, ""),
    "an unknown fault in a stream": ("server", None, {"error": {"message": "Hm."}}),
    "an invalid request in a stream": ("refused", None, anthropic("tools.0: no")),
    "a 429 within a 200": ("rate_limit", None, {"error": {"message": "Slow.", "code": 429}}),
}
"""Kind, then status and body that it is read from."""

MALFORMED: dict[str, tuple[int | None, Any]] = {
    "Anthropic: calls without results": (
        400,
        anthropic(
            "messages.3: `tool_use` ids were found without `tool_result` blocks immediately after: "
            "toolu_1. Each `tool_use` block must have a corresponding `tool_result` block in the "
            "next message."
        ),
    ),
    "Anthropic: results without calls": (
        400,
        anthropic(
            "messages.0.content.1: unexpected `tool_use_id` found in `tool_result` blocks: toolu_1"
        ),
    ),
    "Anthropic: a tool of its own without a result": (
        400,
        anthropic(
            "messages.1: `web_search` tool use with id `srvtoolu_0187qYzMeawDdJt5ZDoPfWeg` was "
            "found without a corresponding `web_search_tool_result` block"
        ),
    ),
    "Anthropic: thinking removed": (
        400,
        anthropic(
            "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found "
            "`tool_use`."
        ),
    ),
    "Anthropic: thinking changed": (
        400,
        anthropic(
            "messages.1: `thinking` or `redacted_thinking` blocks in the latest assistant message "
            "cannot be modified."
        ),
    ),
    "Anthropic: roles": (
        400,
        anthropic('messages: roles must alternate between "user" and "assistant"'),
    ),
    "Anthropic: empty": (400, anthropic("messages: text content blocks must be non-empty")),
    "OpenAI: calls without results": (
        400,
        openai(
            "An assistant message with 'tool_calls' must be followed by tool messages responding "
            "to each 'tool_call_id'. The following tool_call_ids did not have response messages"
        ),
    ),
    "OpenAI: results without calls": (
        400,
        openai(
            "Invalid parameter: messages with role 'tool' must be a response to a preceeding "
            "message with 'tool_calls'."
        ),
    ),
    "OpenAI Responses: a call without output": (
        400,
        openai("No tool output found for function call call_1."),
    ),
    "OpenAI Responses: an output without call": (
        400,
        openai("No tool call found for function call output with call_id call_1."),
    ),
    "OpenAI Responses: reasoning alone": (
        400,
        openai("Item 'rs_1' of type 'reasoning' was provided without its required following item."),
    ),
    "Gemini": (
        400,
        openai(
            "Please ensure that the number of function response parts is equal to the number of "
            "function call parts of the function call turn."
        ),
    ),
    "Bedrock": (
        400,
        {"message": "Expected toolResult blocks at messages.2.content for the following Ids: t1"},
    ),
    "Bedrock: too many results": (
        400,
        {
            "message": "The number of toolResult blocks at messages.2 exceeds the number of "
            "toolUse blocks of previous turn."
        },
    ),
    "Mistral": (400, {"message": "Not the same number of function calls and responses"}),
    "a chat template": (
        500,
        openai("Conversation roles must alternate user/assistant/user/assistant/..."),
    ),
    "nested": (
        400,
        nested(
            raw=anthropic(
                "`tool_use` ids were found without `tool_result` blocks immediately after"
            )
        ),
    ),
    "in a stream": (
        None,
        anthropic("`tool_use` ids were found without `tool_result` blocks immediately after: x"),
    ),
}
