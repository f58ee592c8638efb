"""Overflows as providers word them: the table that the parser is held to."""

from __future__ import annotations

import json
from typing import Any


def openai(message: str, code: str | None = None, kind: str = "invalid_request_error") -> Any:
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def anthropic(message: str, kind: str = "invalid_request_error") -> Any:
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"}


def nested(*, raw: Any) -> Any:
    """As OpenRouter passes on what a provider behind it has said."""
    metadata = {"raw": json.dumps(raw), "provider_name": "Somebody"}
    return {"error": {"message": "Provider returned error", "code": 400, "metadata": metadata}}


CHAT = (
    "This model's maximum context length is 8192 tokens. However, you requested 8213 tokens (6683 "
    "in the messages, 730 in the functions, and 800 in the completion). Please reduce the length."
)
CLAUDE = "prompt is too long: 213462 tokens > 200000 maximum"
LLAMA = "the request exceeds the available context size, try increasing it"

OVERFLOWS: dict[str, tuple[int | None, Any, int | None, int | None, int | None]] = {
    "Anthropic: the prompt": (400, anthropic(CLAUDE), 200_000, 213_462, None),
    "Anthropic: prompt and output": (
        400,
        anthropic(
            "input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000, decrease "
            "input length or `max_tokens` and try again"
        ),
        200_000,
        188_240,
        21_333,
    ),
    "Anthropic: prompt and output, no numbers": (
        400,
        anthropic("input length and `max_tokens` exceed context limit"),
        None,
        None,
        None,
    ),
    "Anthropic: too many bytes": (
        413,
        anthropic("Request exceeds the maximum size", "request_too_large"),
        None,
        None,
        None,
    ),
    "OpenAI Chat": (400, openai(CHAT, "context_length_exceeded"), 8_192, 7_413, 800),
    "OpenAI Chat: messages alone": (
        400,
        openai(
            "This model's maximum context length is 128,000 tokens. However, your messages "
            "resulted in 204,308 tokens. Please reduce the length of the messages.",
            "context_length_exceeded",
        ),
        128_000,
        204_308,
        None,
    ),
    "OpenAI Chat: a prompt": (
        400,
        openai(
            "This model's maximum context length is 8192 tokens, however you requested 8977 tokens "
            "(8977 in your prompt; 0 for the completion). Please reduce your prompt"
        ),
        8_192,
        8_977,
        0,
    ),
    "OpenAI Responses": (
        400,
        openai(
            "Your input exceeds the context window of this model. Please adjust your input and try "
            "again.",
            "context_length_exceeded",
        ),
        None,
        None,
        None,
    ),
    "OpenAI: the code alone": (400, openai("Bad.", "context_length_exceeded"), None, None, None),
    "Azure": (400, openai("Input tokens exceed the configured limit"), None, None, None),
    "Azure: with numbers": (
        400,
        openai(
            "Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in "
            "300125 tokens. Please reduce the length of the messages."
        ),
        272_000,
        300_125,
        None,
    ),
    "Gemini": (
        400,
        [
            {
                "error": {
                    "code": 400,
                    "message": "The input token count (1196265) exceeds the maximum number of "
                    "tokens allowed (1048575).",
                    "status": "INVALID_ARGUMENT",
                }
            }
        ],
        1_048_575,
        1_196_265,
        None,
    ),
    "Vertex": (
        400,
        {
            "error": {
                "code": 400,
                "message": "Unable to submit request because the input token count is 32825 but "
                "model only supports up to 32768. Reduce the input token count and try again.",
                "status": "INVALID_ARGUMENT",
            }
        },
        32_768,
        32_825,
        None,
    ),
    "Bedrock": (
        400,
        {"__type": "ValidationException", "message": "Input is too long for requested model."},
        None,
        None,
        None,
    ),
    "Bedrock: input tokens": (
        400,
        {"message": "The request exceeds the maximum number of input tokens"},
        None,
        None,
        None,
    ),
    "OpenRouter": (
        400,
        openai(
            "This endpoint's maximum context length is 204800 tokens. However, you requested about "
            "205432 tokens (81684 of text input, 3748 of tool input, 120000 in the output). Please "
            'reduce the length of either one, or use the "middle-out" transform.'
        ),
        204_800,
        85_432,
        120_000,
    ),
    "OpenRouter: no split": (
        400,
        openai(
            "This endpoint's maximum context length is 16384 tokens. However, you requested about "
            "94307 tokens. Please reduce the length."
        ),
        16_384,
        None,
        None,
    ),
    "OpenRouter: nested": (400, nested(raw=anthropic(CLAUDE)), 200_000, 213_462, None),
    "OpenRouter: nested twice": (
        400,
        nested(raw=nested(raw={"detail": json.dumps(openai(CHAT))})),
        8_192,
        7_413,
        800,
    ),
    "xAI": (
        400,
        {
            "code": "Client specified an invalid argument",
            "error": "This model's maximum prompt length is 131072 but the request contains "
            "537812 tokens.",
        },
        131_072,
        537_812,
        None,
    ),
    "Groq": (
        400,
        openai("Please reduce the length of the messages or completion."),
        None,
        None,
        None,
    ),
    "DeepSeek": (
        400,
        openai(
            "This model's maximum context length is 131072 tokens. However, you requested 131134 "
            "tokens (122942 in the messages, 8192 in the completion). Please reduce the length.",
            "invalid_request_error",
        ),
        131_072,
        122_942,
        8_192,
    ),
    "Mistral": (
        400,
        {
            "object": "error",
            "message": "Prompt contains 40017 tokens and 0 draft tokens, too large for model with "
            "32768 maximum context length",
            "type": "invalid_request_prompt",
            "code": 3051,
        },
        32_768,
        40_017,
        None,
    ),
    "vLLM, old": (
        400,
        {
            "object": "error",
            "message": "This model's maximum context length is 16384 tokens. However, you requested"
            " 122946 tokens (112946 in the messages, 10000 in the completion). Please reduce the "
            "length of the messages or completion.",
            "type": "BadRequestError",
            "param": None,
            "code": 400,
        },
        16_384,
        112_946,
        10_000,
    ),
    "vLLM, new": (
        400,
        openai(
            "This model's maximum context length is 2048 tokens. However, your request has 8 input "
            "tokens plus 2045 'max_tokens'. Please reduce one or the other.",
            kind="BadRequestError",
        ),
        2_048,
        8,
        2_045,
    ),
    "vLLM: too large an output": (
        400,
        openai(
            "'max_tokens' or 'max_completion_tokens' is too large: 8192. This model's maximum "
            "context length is 65536 tokens and your request has 57879 input tokens (8192 > 65536 "
            "- 57879). None",
            kind="BadRequestError",
        ),
        65_536,
        57_879,
        8_192,
    ),
    "vLLM: at least": (
        400,
        openai(
            "This model's maximum context length is 4096 tokens. However, you requested 100 output "
            "tokens and your prompt contains at least 3997 input tokens, for a total of at least "
            "4097 tokens."
        ),
        4_096,
        3_997,
        100,
    ),
    "vLLM, the version with a wrong limit": (
        400,
        openai(
            "This model's maximum context length is 3 tokens. However, your request has 8 input "
            "tokens. Please reduce the length of the input messages. (parameter=input_tokens, "
            "value=8)"
        ),
        None,
        8,
        None,
    ),
    "vLLM: the decoder": (
        400,
        openai("The decoder prompt (length 5000) is longer than the maximum model length of 4096."),
        4_096,
        5_000,
        None,
    ),
    "SGLang": (
        400,
        openai(
            "Requested token count exceeds the model's maximum context length of 4096 tokens. You "
            "requested a total of 5000 tokens: 4000 tokens from the input messages and 1000 tokens "
            "for the completion."
        ),
        4_096,
        4_000,
        1_000,
    ),
    "llama.cpp": (
        400,
        {
            "error": {
                "code": 400,
                "message": LLAMA,
                "type": "exceed_context_size_error",
                "n_prompt_tokens": 14_429,
                "n_ctx": 8_192,
            }
        },
        8_192,
        14_429,
        None,
    ),
    "llama.cpp, newer": (
        400,
        openai("request (14429 tokens) exceeds the available context size (8192 tokens), try it"),
        8_192,
        14_429,
        None,
    ),
    "llama-cpp-python": (
        500,
        openai("Requested tokens (2285) exceed context window of 2048", kind="internal_error"),
        2_048,
        2_285,
        None,
    ),
    "LM Studio": (
        400,
        {
            "error": "The number of tokens to keep from the initial prompt is greater than the "
            "context length (n_keep: 5011 >= n_ctx: 4096)."
        },
        4_096,
        5_011,
        None,
    ),
    "Ollama": (400, {"error": "prompt too long; exceeded context length"}, None, None, None),
    "Ollama: by how much is no limit": (
        400,
        openai("prompt too long; exceeded max context length by 4000 tokens"),
        None,
        None,
        None,
    ),
    "TGI": (
        422,
        {
            "error": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. "
            "Given: 4000 `inputs` tokens and 500 `max_new_tokens`",
            "error_type": "validation",
        },
        4_096,
        4_000,
        500,
    ),
    "TGI: no numbers": (
        422,
        {"error": "`inputs` tokens + `max_new_tokens` must be"},
        None,
        None,
        None,
    ),
    "Copilot": (
        400,
        openai("prompt token count of 130123 exceeds the limit of 128000", "model_max_prompt"),
        128_000,
        130_123,
        None,
    ),
    "MiniMax: its error number is no limit": (
        400,
        openai("invalid params, context window exceeds limit (2013)"),
        None,
        None,
        None,
    ),
    "Kimi": (
        400,
        openai("Invalid request: Your request exceeded model token limit: 131072 (requested: 140)"),
        None,
        None,
        None,
    ),
    "Kimi: more than the limit": (
        400,
        openai("Your request exceeded model token limit: 131072 (requested: 140311)"),
        131_072,
        None,
        None,
    ),
    "OpenAI: functions are in the sum": (
        400,
        openai(
            "This model's maximum context length is 16385 tokens. However, your messages resulted "
            "in 18000 tokens (17000 in the messages, 1000 in the functions). Please reduce the "
            "length of the messages or functions.",
            "context_length_exceeded",
        ),
        16_385,
        18_000,
        None,
    ),
    "Qwen": (
        400,
        openai(
            "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 30720]",
            "invalid_parameter_error",
        ),
        30_720,
        None,
        None,
    ),
    "z.ai": (
        400,
        {"error": {"code": "1261", "message": "Prompt exceeds max length"}},
        None,
        None,
        None,
    ),
    "Cohere": (
        400,
        {
            "message": "too many tokens: total number of tokens in the prompt cannot exceed 128000 "
            "- received 130000. Try using a shorter prompt, or enabling prompt truncating."
        },
        128_000,
        130_000,
        None,
    ),
    "Cerebras": (
        400,
        openai(
            "Please reduce the length of the messages or completion. Current length is 9,012 while "
            "limit is 8,192",
            "context_length_exceeded",
        ),
        8_192,
        9_012,
        None,
    ),
    "Cerebras: a bare 400": (400, "", None, None, None),
    "Cerebras: a bare 413": (413, None, None, None, None),
    "Cerebras: as an SDK words it": (None, "413 status code (no body)", None, None, None),
    "a web server": (413, "<html><h1>413 Request Entity Too Large</h1></html>", None, None, None),
    "thousands as k": (
        400,
        openai("prompt token count of 130.5k exceeds the limit of 128k"),
        128_000,
        130_500,
        None,
    ),
    "text that holds JSON": (
        400,
        "upstream said 400: " + json.dumps(anthropic(CLAUDE)),
        200_000,
        213_462,
        None,
    ),
    "a stream, without a status": (None, anthropic(CLAUDE), 200_000, 213_462, None),
}
"""Status and body, then what is read from them: limit, input, requested output."""
