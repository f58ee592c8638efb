"""How providers word their errors. All of it is data for `error_parser.py`.

In a pattern, `<input>`, `<limit>` and `<requested>` are numbers with that meaning. `<more>` is
further input that is counted separately, `<all>` is the input with it, `<total>` is input and
output together. Patterns match
anywhere in a text and ignore case. A space matches any white space.
"""

from __future__ import annotations

import re
from functools import cache

from trimtab.errors import FailureKind

NUMBER_PATTERN = (
    r"(?<!\d)(?:\d{1,3}(?:[,_'\u00a0\u2009\u202f]\d{3})+"
    r"|\d{1,9}(?:\.\d{1,3})?[kKmM](?![A-Za-z])|\d{1,12}(?!\d))"
)
"""`200000`, `200,000`, `200_000`, `128k`. It is bounded, so that a text of only digits costs no
more than any other."""

KIND_BY_CODE: dict[str, FailureKind] = {
    "context_length_exceeded": "overflow",
    "context_window_exceeded": "overflow",
    "exceed_context_size_error": "overflow",
    "model_context_window_exceeded": "overflow",
    "request_too_large": "overflow",
    "rate_limit_error": "rate_limit",
    "rate_limit_exceeded": "rate_limit",
    "resource_exhausted": "rate_limit",
    "throttlingexception": "rate_limit",
    "too_many_requests": "rate_limit",
    "overloaded_error": "overloaded",
    "servicequotaexceededexception": "rate_limit",
    "modelnotreadyexception": "overloaded",
    "serviceunavailableexception": "overloaded",
    "slow_down": "overloaded",
    "api_error": "server",
    "internal_server_error": "server",
    "internalserverexception": "server",
    "modelerrorexception": "server",
    "modelstreamerrorexception": "server",
    "server_error": "server",
    "deadline_exceeded": "timeout",
    "modeltimeoutexception": "timeout",
    "timeout_error": "timeout",
    "accessdeniedexception": "auth",
    "authentication_error": "auth",
    "expiredtokenexception": "auth",
    "incompletesignatureexception": "auth",
    "invalidsignatureexception": "auth",
    "invalid_api_key": "auth",
    "missingauthenticationtokenexception": "auth",
    "permission_error": "auth",
    "unauthenticated": "auth",
    "unrecognizedclientexception": "auth",
    # A used-up balance comes as a 429, but no waiting refills it.
    "billing_error": "refused",
    "billing_hard_limit_reached": "refused",
    "billing_not_active": "refused",
    "insufficient_quota": "refused",
    "deploymentnotfound": "refused",
    "model_not_found": "refused",
    "not_found_error": "refused",
    "resourcenotfoundexception": "refused",
    "unknown_parameter": "refused",
    "unsupported_parameter": "refused",
    "content_filter": "rejected",
    "content_policy_violation": "rejected",
    "empty_image_file": "rejected",
    "failed_to_download_image": "rejected",
    "image_content_policy_violation": "rejected",
    "image_file_not_found": "rejected",
    "image_file_too_large": "rejected",
    "image_parse_error": "rejected",
    "image_too_large": "rejected",
    "image_too_small": "rejected",
    "invalid_base64_image": "rejected",
    "invalid_image": "rejected",
    "invalid_image_format": "rejected",
    "invalid_image_mode": "rejected",
    "invalid_image_url": "rejected",
    "invalid_prompt": "rejected",
    "unsupported_image_media_type": "rejected",
}
"""Values of `type`, `code` or `status` of an error, in lower case."""

GENERAL_CODES = frozenset(
    {
        *("array_above_max_length", "string_above_max_length"),
        *("badrequesterror", "invalid_argument", "invalid_request_error", "validationexception"),
    }
)
"""General codes of a rejected request. The place of the fault decides whether it was the
content."""

DECISIVE_CODES = frozenset({"insufficient_quota"})
"""Codes that take precedence over the status and the texts."""

REJECTED_CONTENT_PATTERN = (
    r"input (?:was|has been) flagged|flagged (?:as|for|by)|requires moderation|content[ _-]policy"
    r"|content (?:filter|management)|usage policy|violat\w+ .{0,60}polic"
    r"|could not process (?:the )?(?:image|document|file|audio|pdf)"
    r"|\bsupports? (?:image|vision|audio|video|file|multimodal)"
    r"|\b(?:image|audio|video|file)\w*(?: inputs?)? (?:is|are) (?:not|only) supported"
)
"""Phrases about the content that come with any status, even that of an account error."""

SETTING_NAME_PATTERN = (
    r"(?:^|['\"`])(?:model|tools?|tool_choice|functions?|system|max_\w*tokens|temperature|top_[pk]"
    r"|thinking|reasoning\w*|stop\w*|stream\w*|metadata|seed|response_format|output_config|betas?"
    r"|anthropic-[\w-]+|prompt_cache\w*|store|include|service_tier|logprobs|logit_bias)"
    r"(?:['\"`]|\s*[.:\[])"
)
"""The name of a parameter as the cause: in quotes, or at the start of the text."""

CONTENT_PARAMS = frozenset(
    {"messages", "input", "prompt", "content", "contents", "url", "image_url", "image", "file"}
)
"""Parameters that contain the messages, as `param` begins with them."""

NOT_OVERFLOW_PATTERNS: tuple[tuple[FailureKind, str], ...] = (
    # Whatever else such a text contains: a limit per minute, a deadline or a token of the other
    # kind, once taken for a full window, costs a conversation its history.
    ("rate_limit", r"rate[ _-]?limit|too many requests|throttl|\bTPM\b|\bRPM\b"),
    ("rate_limit", r"\bper[ -](?:min(?:ute)?|second|hour|day)\b|too many tokens, please wait"),
    ("rate_limit", r"exceeded your current quota|resource (?:has been )?exhausted"),
    ("timeout", r"deadline exceeded|timed[ -]out|\btime-?out\b"),
    ("overloaded", r"\boverloaded\b|currently at capacity"),
    ("auth", r"\b(?:auth(?:entication|orization)?|access|bearer|security|refresh|id) token\b"),
    ("auth", r"\b(?:invalid|expired|missing|revoked|malformed) (?:api |jwt )?(?:token|key)\b"),
    ("auth", r"\btoken (?:has |is |was )?(?:expired|invalid|revoked|missing|not valid)\b"),
    ("auth", r"api key not valid|incorrect api key|unauthori[sz]ed"),
    ("auth", r"\b(?:do|does) not have (?:access|permission)|permission denied"),
    ("refused", r"(?:unsupported|unknown|unrecognized) (?:parameter|request argument)"),
    # The requested output is above what the model can ever write; the input has nothing to do
    # with it.
    (
        "refused",
        r"max_tokens: <requested> > <total>, which is the maximum allowed number of output",
    ),
    ("refused", r"supports at most <total> completion tokens"),
    ("refused", r"maximum tokens you requested exceeds the model limit of <total>"),
    # The account, which some tell with the status of a bad request.
    ("refused", r"credit balance|insufficient (?:balance|credits?|funds)|payment required"),
    ("refused", r"long context beta is not|usage is required for long context"),
    ("refused", r"\bbilling\b|(?:usage|spend(?:ing)?) limits?\b|(?:hard|monthly) limit"),
    ("refused", r"(?:organi[sz]ation|account|project) (?:has been|is|was) (?:not active|disabled)"),
    ("refused", r"\b(?:account|organi[sz]ation)\b.{0,40}\b(?:deactivated|suspended|not active)\b"),
    ("refused", r"(?:location|country|region) (?:is )?not supported"),
    ("refused", r"\bmodel\b.{0,80}\b(?:does not exist|not found|is not available|deprecated)\b"),
    # Bedrock's: a name or a parameter that the model does not have, told as a bad request.
    ("refused", r"model identifier is invalid|on-demand throughput isn.t supported"),
    ("refused", r"api version is not supported|invalid api version|anthropic_version"),
    ("refused", r"malformed input request|this model doesn.t support"),
    ("rejected", r"\bimages?\b[^.]{0,60}\b(?:exceeds?|too (?:large|big|many|small))\b"),
    ("rejected", r"too many images|at most \d+ images?\b|maximum of \d+ (?:images|pdf pages)"),
    ("rejected", r"string too long\. expected a string|array too long\. expected an array"),
)

MALFORMED_PATTERNS: tuple[tuple[str, str], ...] = (
    ("Anthropic", r"`tool_use` ids were found without `tool_result` blocks immediately after"),
    ("Anthropic", r"unexpected `?tool_use_id`? found in `tool_result` blocks"),
    ("Anthropic", r"tool use with id .{1,80} was found without a corresponding"),
    ("Anthropic", r"`tool_use` ids must be unique|each tool_use must have a single result"),
    ("Anthropic", r"expected `thinking` or `redacted_thinking`, but found"),
    ("Anthropic", r"`thinking` or `redacted_thinking` blocks .{0,60}cannot be modified"),
    ("Anthropic", r"invalid `signature` in `thinking` block"),
    ("Anthropic", r"roles must alternate|first message must use the .?user.? role"),
    ("Anthropic", r"text content blocks must be non-empty|messages must have non-empty content"),
    ("OpenAI", r"must be followed by tool messages responding to each 'tool_call_id'"),
    ("OpenAI", r"role 'tool' must be a response to a prece+ding message with 'tool_calls'"),
    ("OpenAI", r"no tool output found for|no tool call found for"),
    ("OpenAI", r"was provided without its required (?:following|preceding|'reasoning') item"),
    ("OpenAI", r"duplicate item found with id"),
    ("Gemini", r"function response parts .{0,40}equal to the number of function call parts"),
    ("Gemini", r"function call turn comes immediately after"),
    ("Bedrock", r"expected toolResult blocks at|number of toolResult blocks .{0,60}toolUse blocks"),
    ("Mistral", r"not the same number of function calls and responses"),
    ("Mistral", r"expected last role .{0,40}but got|unexpected role '\w+' after role"),
    ("templates", r"conversation roles must alternate|system message must be at the beginning"),
)
"""Provider and pattern: the history breaks a rule of the API."""

OVERFLOW_PATTERNS: tuple[tuple[str, str], ...] = (
    ("Anthropic", r"prompt is too long(?:: <input> tokens > <limit> maximum)?"),
    ("Anthropic", r"input length and `max_tokens` exceed context limit"),
    ("Anthropic", r"request (?:size )?exceeds the maximum (?:allowed )?(?:size|number of bytes)"),
    ("OpenAI Responses", r"input exceeds the context window of this model"),
    ("OpenAI, DeepSeek, vLLM, OpenRouter", r"maximum context length (?:is|of) <limit>"),
    ("Azure", r"input tokens exceed the configured limit(?: of <limit>)?"),
    ("Gemini", r"input token count (?:\(<input>\) )?exceeds the maximum number of tokens"),
    ("Vertex", r"input token count is <input> but model only supports up to <limit>"),
    ("Bedrock", r"input is too long for requested model"),
    ("Bedrock", r"exceeds the maximum number of input tokens"),
    ("Bedrock", r"max input tokens: <limit>, request input token count: <input>"),
    ("xAI", r"maximum prompt length is <limit> but the request contains <input> tokens"),
    ("Groq, Cerebras", r"reduce the length of the messages or completion"),
    (
        "Mistral",
        r"prompt contains <input> tokens .{0,40}?too large for model with <limit> maximum context",
    ),
    ("vLLM", r"prompt \((?:length |total length )?<input>(?: tokens)?\) is (?:longer|too long)"),
    ("vLLM", r"max_(?:completion_)?tokens must be at least 1, got -\d"),
    ("SGLang", r"input \(<input> tokens\) is longer than the model's context length \(<limit>"),
    ("SGLang", r"requested token count exceeds the model's maximum context length"),
    ("llama.cpp", r"(?:request \(<input> tokens\)|request) exceeds the available context size"),
    ("llama-cpp-python", r"requested tokens \(<input>\) exceed context window of <limit>"),
    ("LM Studio", r"tokens to keep from the initial prompt is greater than the context length"),
    ("LM Studio", r"model is loaded with context length of only <limit> tokens"),
    ("Ollama", r"prompt too long; exceeded (?:max )?context length"),
    ("TGI", r"`inputs` tokens \+ `max_new_tokens` must be(?: <= <limit>)?"),
    ("TGI", r"`inputs` must have less than <limit> tokens"),
    ("Copilot", r"prompt token count of <input> exceeds the limit of <limit>"),
    ("MiniMax", r"context window exceeds limit"),
    ("Kimi", r"exceeded model token limit(?:: <limit>(?: \(requested: <total>\))?)?"),
    ("Qwen", r"range of input length should be \[\d, ?<limit>\]"),
    ("z.ai", r"prompt exceeds max length"),
    ("Cohere", r"tokens in the prompt cannot exceed <limit>(?: - received <input>)?"),
    ("Cerebras", r"current length is <input> while limit is <limit>"),
    ("Cerebras, by the SDK", r"^(?:400|413) status code \(no body\)$"),
    ("gateways", r"context[_ ](?:length|window)[_ ]exceeded|exceeds the model's context window"),
    ("web servers", r"(?:payload|entity|content) too large"),
)
"""Provider and pattern: the request is larger than the model accepts."""

TOKEN_FIGURE_PATTERNS: tuple[str, ...] = (
    # Read only if the text names an overflow.
    r"exceed context limit: <input> \+ <requested> > <limit>",
    r"maximum number of tokens allowed \(<limit>\)",
    r"requested (?:about |a total of )?<total> tokens",
    r"messages resulted in <all> tokens",
    r"<input> in (?:the messages|your prompt)",
    r"<more> in the functions",
    r"<requested> (?:in|for) the (?:completion|output)\b",
    r"<input> of text input",
    r"<more> of tool input",
    r"<more> of image input",
    r"request has <input> input tokens",
    r"plus <requested> '(?:max_tokens|max_completion_tokens)'",
    r"prompt contains at least <input> input tokens",
    r"requested <requested> output tokens",
    r"'max_completion_tokens' is too large: <requested>\b",
    r"maximum model length of <limit>\b",
    r"<input> tokens from the input messages",
    r"<requested> tokens for the completion",
    r"available context size \(<limit> tokens\)",
    r"n_keep: <input> >= n_ctx: <limit>",
    r"first <input> tokens when context",
    r"given: <input>(?: `inputs` tokens and <requested> `max_new_tokens`)?",
)
"""Numbers that are apart from the text that names the overflow."""

TOKEN_FIGURE_KEYS = {"n_ctx": "limit", "n_prompt_tokens": "input"}
"""Numbers that have their own key (llama.cpp)."""

FULL_WINDOW_STOP_REASONS = frozenset(
    {
        "context_length_exceeded",
        "context_window_exceeded",
        "contextlengthreached",  # LM Studio
        "model_context_window_exceeded",  # Anthropic, Bedrock, z.ai
        "model_length",  # Mistral
    }
)
"""Stop reasons that mean a full window, in lower case. `length` and `max_tokens` do not: there the
output reached the requested limit."""


@cache
def compile_error_pattern(pattern: str) -> re.Pattern[str]:
    """Compile a pattern of the tables, with its numbers as named groups."""
    group_pattern = re.sub(r"<(\w+)>", lambda name: f"(?P<{name[1]}>{NUMBER_PATTERN})", pattern)
    return re.compile(group_pattern.replace(" ", r"\s+"), re.IGNORECASE | re.DOTALL)


def parse_printed_number(text: str) -> int:
    """Parse a number as providers print it; `k` is a thousand, never 1,024."""
    scale = {"k": 1_000, "m": 1_000_000}.get(text[-1].lower())
    if scale is not None:
        return int(float(text[:-1]) * scale)
    return int(re.sub(r"\D", "", text))
