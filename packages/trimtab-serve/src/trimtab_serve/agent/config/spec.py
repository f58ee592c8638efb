"""The settings of `agent.yaml` with their defaults. The reference in the docs is made from them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from trimtab.engine.log.redaction import RedactionName
from trimtab.engine.policy.config import (
    DEFAULT_KEPT_MESSAGES,
    ROLLING_FORCED_MESSAGES,
    ROLLING_WINDOW_MESSAGES,
    SUMMARISE_AT_SHARE,
    TRIM_AT_SHARE,
    Goal,
    ResultTruncation,
)
from trimtab.engine.policy.presets import DEFAULT_POLICY_NAME, PolicyName
from trimtab.engine.summaries.transcript import MAX_MESSAGE_CHARS
from trimtab.models.catalog import parse_model_info
from trimtab.providers.factory import ProviderName
from trimtab.session.tools import OnInterrupt
from trimtab.session.turn import MAX_TOOL_ITERATIONS
from trimtab_serve.agent.config.env_refs import (
    parse_env_text_as_scalar,
    parse_nested_env_texts_as_scalars,
)

# Strict: "25" in quotes is a text; one from the environment stands for what it would unquoted.
Fraction = Annotated[
    float, Field(gt=0, le=1, strict=True), BeforeValidator(parse_env_text_as_scalar)
]
PositiveInt = Annotated[int, Field(gt=0, strict=True), BeforeValidator(parse_env_text_as_scalar)]
NonNegativeInt = Annotated[int, Field(ge=0, strict=True), BeforeValidator(parse_env_text_as_scalar)]
PositiveSeconds = Annotated[
    float, Field(gt=0, strict=True, allow_inf_nan=False), BeforeValidator(parse_env_text_as_scalar)
]
PositiveDollars = Annotated[
    float, Field(gt=0, strict=True, allow_inf_nan=False), BeforeValidator(parse_env_text_as_scalar)
]
StrictFlag = Annotated[bool, Field(strict=True), BeforeValidator(parse_env_text_as_scalar)]
CommandArgv = Annotated[tuple[str, ...], Field(min_length=1)]
ToolName = Annotated[str, Field(pattern=r"^[a-zA-Z][a-zA-Z0-9_-]{0,47}$")]


Age = Annotated[str, Field(pattern=r"^[1-9][0-9]{0,4}[hdw]$")]
"""An age such as `12h`, `90d` or `52w`."""
AgeOrForever = Annotated[str, Field(pattern=r"^(forever|[1-9][0-9]{0,4}[hdw])$")]
_AGE_UNIT_S = {"h": 3_600.0, "d": 86_400.0, "w": 7 * 86_400.0}


def age_in_seconds(age: str) -> float:
    """Convert an `Age` to seconds."""
    return int(age[:-1]) * _AGE_UNIT_S[age[-1]]


class ConfigBlock(BaseModel):
    """A block of the file. Unknown settings are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    def __repr_args__(self) -> Iterator[tuple[str, Any]]:
        """Show only numbers and blocks, because any text may be a secret from the environment."""
        for name in type(self).model_fields:
            value = getattr(self, name)
            if isinstance(value, ConfigBlock | int | float):
                yield name, value


TcpPort = Annotated[
    int, Field(ge=0, le=65_535, strict=True), BeforeValidator(parse_env_text_as_scalar)
]
ChatIdentity = Annotated[int | str, BeforeValidator(parse_env_text_as_scalar)]

_CHAT_ADDRESS = re.compile(r"(telegram|discord):(-?[0-9]{1,20})(?::([0-9]{1,20}))?")


class TenantLimitsSpec(ConfigBlock):
    sessions: PositiveInt = 100_000
    """Maximum number of sessions of one tenant, including forks."""
    session_bytes: PositiveInt = 268_435_456
    """Maximum number of bytes that one session stores. The default is 256 MiB."""
    bytes: PositiveInt = 10_737_418_240
    """Maximum number of bytes that all sessions of one tenant store. The default is 10 GiB."""
    schedules: PositiveInt = 100
    """Maximum number of schedules of one tenant that are not finished."""


class ServeSpec(ConfigBlock):
    host: str = "127.0.0.1"
    """The address that the HTTP server listens on. At an address other than this machine's own,
    callers always need a key."""
    port: TcpPort = 8080
    """The port that the HTTP server listens on. 0 means any free port."""
    keys: StrictFlag = False
    """Whether callers need an API key, even from this machine. `trimtab keys` creates keys in the
    store."""
    allowed_origins: tuple[str, ...] = ()
    """Web pages that may call the API from a browser, such as `https://app.example.com`. By default
    none."""
    max_concurrent_turns: PositiveInt = 64
    """Maximum number of turns that one process runs at the same time."""
    max_concurrent_turns_per_tenant: PositiveInt | None = None
    """Maximum number of turns of one tenant that run at the same time in all processes. By default
    a tenant may use half of the turns of each process."""
    max_body_bytes: PositiveInt = 1_048_576
    """Maximum size of a request body in bytes."""
    requests_per_minute: PositiveInt = 600
    """Maximum number of requests per minute with one key. A sixth of them, but at least ten, may
    arrive at once: 100 of 600."""
    max_connections: PositiveInt | None = None
    """Maximum number of HTTP connections that one process serves at the same time, including open
    streams. The default is half of the process's limit for open files, at most 10000."""
    max_connections_per_address: PositiveInt | None = None
    """The same for one address, or for one IPv6 /64 network. The default is half of
    `max_connections`. Behind a reverse proxy, all connections come from its address."""
    max_queued_messages: PositiveInt = 10_000
    """Maximum number of one tenant's messages in the queue. The server refuses further messages."""
    tenant_limits: TenantLimitsSpec = TenantLimitsSpec()
    """How much one tenant may store. The tenant `default`, to which chats and this machine belong,
    has no such limits."""
    retry_for: PositiveSeconds = 21_600.0
    """How many seconds a turn is retried while the provider is down, overloaded or rejects the key.
    After that, its messages become dead letters. 21600 seconds are six hours."""
    retain_for: dict[str, AgeOrForever] = Field(default_factory=dict[str, str])
    """How long sessions are kept, by tenant, instead of each agent's `session.retain_for`: `{acme:
    30d, archive: forever}`."""
    shutdown_timeout: PositiveSeconds = 30.0
    """How many seconds running turns may take to end when the server stops. Another process, or the
    next start, continues unfinished turns."""


class TelegramRuleSpec(ConfigBlock):
    """Rules for certain users or chats."""

    who: ChatIdentity
    """The id of a user or a chat, an `@name`, or `"*"`. The first rule that matches applies."""
    groups: Literal["mention", "all", "off"] | None = None
    """When the bot answers this sender in groups. The default is the value of `telegram.groups`."""
    commands: tuple[str, ...] | None = None
    """Commands that this sender may use, without the slash: `[help, context]`. By default all."""
    media: StrictFlag = True
    """Whether the bot accepts images and files from this sender."""


class TelegramSpec(ConfigBlock):
    token: str
    """The bot's token from BotFather, as a reference: `${TELEGRAM_TOKEN}`."""
    webhook: str | None = None
    """The public address at which Telegram calls this server, such as
    `https://bots.example.com/telegram`. If it is not set, the bot polls Telegram."""
    secret: str | None = None
    """The secret that Telegram sends with each webhook call, as a reference. Required with
    `webhook`."""
    allow: tuple[ChatIdentity, ...] = ()
    """Users and chats that the bot answers, by id or `@name`. If it is empty, the bot answers
    nobody. `"*"` means everybody."""
    deny: tuple[ChatIdentity, ...] = ()
    """Users and chats that the bot never answers, even if `allow` matches."""
    groups: Literal["mention", "all", "off"] = "mention"
    """When the bot answers in groups: if it is mentioned or replied to, always, or never."""
    rules: tuple[TelegramRuleSpec, ...] = ()
    """Rules for certain users or chats. The first rule that matches applies."""
    max_file_bytes: PositiveInt = 4_194_304
    """Maximum size of an image or a file in bytes. For a larger one, the model gets a note
    instead."""
    stream: StrictFlag = True
    """Whether to show the reply while the model writes it."""
    api: str = "https://api.telegram.org"
    """The address of the Bot API."""


class DiscordSpec(ConfigBlock):
    token: str
    """The bot's token from the developer portal, as a reference: `${DISCORD_TOKEN}`."""
    allow: tuple[ChatIdentity, ...] = ()
    """Users, channels and servers that the bot answers, by id. If it is empty, the bot answers
    nobody. `"*"` means everybody."""
    deny: tuple[ChatIdentity, ...] = ()
    """Users, channels and servers that the bot never answers, even if `allow` matches."""
    threads: StrictFlag = True
    """Whether to answer a mention in a channel in a new thread, which becomes a session."""
    max_file_bytes: PositiveInt = 4_194_304
    """Maximum size of an image or a file in bytes. For a larger one, the model gets a note
    instead."""
    api: str = "https://discord.com/api/v10"
    """The address of Discord's API."""


class ScheduleSpec(ConfigBlock):
    message: str
    """The message that the agent gets at the scheduled time."""
    cron: str | None = None
    """When to run, as minute, hour, day, month, weekday: `0 8 * * mon-fri`. Set either this or
    `at`."""
    at: str | None = None
    """The date and time of a single run: `2027-01-31 08:00`. Set either this or `cron`."""
    timezone: str = "UTC"
    """The time zone of `cron` and `at`, such as `Europe/Zurich`."""
    session: str | None = None
    """The session that gets the message. The default is the session of the chat in `to`. Without
    `to`, it is a new session named `schedule:` and the schedule's name."""
    to: str | None = None
    """The chat that gets the result: `telegram:123456`, `discord:987654`. If it is not set, the
    result is only logged."""
    catch_up: Literal["skip", "once", "all"] = "once"
    """What to do about runs that were missed because no server was running: `skip` them, run `once`
    for all of them, or run `all`."""
    catch_up_window: NonNegativeInt = 86_400
    """Missed runs older than this number of seconds are always skipped."""


def parse_chat_address(address: str) -> tuple[str, int, int | None]:
    """Return the platform, the chat and the topic that `to` names. Raises `ValueError`."""
    match = _CHAT_ADDRESS.fullmatch(address.strip())
    if match is None or (match[1] == "discord" and match[3]):
        raise ValueError(
            f"{address[:60]!r} is not a valid chat; write telegram:123456, "
            "telegram:-1001234:7 for a "
            "topic of a group, or discord:987654 for a channel"
        )
    return match[1], int(match[2]), int(match[3]) if match[3] else None


Permission = Literal["allow", "ask", "deny"]


def _off_for_false(value: Any) -> Any:
    """Read false as `off`, because YAML reads the word `off` as false."""
    return "off" if value is False else value


class ModelSpec(ConfigBlock):
    """The block `model` of an agent's file."""

    name: str
    """The model's name at its provider."""
    provider: ProviderName | None = None
    """The provider that serves the model. If it is not set, the model's name decides. `openai` uses
    Chat Completions, `openai_responses` the newer API. So do `azure` and `azure_responses`, with
    the name of a deployment."""
    base_url: str | None = None
    """The address of the API, if it is not the provider's own. For `azure`, the endpoint."""
    api_key: str | None = None
    """The API key, as a reference: `${ANTHROPIC_API_KEY}`. The default is the provider's usual
    variable."""
    region: str | None = None
    """The region for `bedrock` and `vertex`, such as `eu-central-1` or `europe-west1`. The default
    is AWS_REGION or CLOUD_ML_REGION."""
    project: str | None = None
    """The project that `vertex` bills. The default is ANTHROPIC_VERTEX_PROJECT_ID or
    GOOGLE_CLOUD_PROJECT."""
    api_version: str | None = None
    """The API version for `azure`. The default is OPENAI_API_VERSION, or `2024-10-21` if that is
    not set."""
    context_window: NonNegativeInt | None = None
    """The model's window in tokens, input and output together, if the catalog is wrong or does not
    know the model. 0 means not set."""
    max_input_tokens: PositiveInt | None = None
    """Your own limit instead of the model's: lower (for cost) or higher (for custom models). Like
    `context_window`, it covers input plus requested output. It takes precedence over it."""
    max_output_tokens: PositiveInt | None = None
    """Number of output tokens to request and to reserve."""
    cache: Annotated[Literal["off", "5m", "1h"] | None, BeforeValidator(_off_for_false)] = None
    """How long the provider should cache the prompt, if the provider has such a setting
    (Anthropic): `5m`, `1h`, or `off` to request no caching."""
    model_info: Annotated[
        str | dict[str, Any], AfterValidator(parse_nested_env_texts_as_scalars)
    ] = Field(default_factory=dict[str, Any])
    """Properties of the model, if its name is not in the catalog. Either the name of a model that
    `trimtab models` lists, for a deployment with another name, or your own values, such as
    `max_output`."""
    params: Annotated[dict[str, Any], AfterValidator(parse_nested_env_texts_as_scalars)] = Field(
        default_factory=dict[str, Any]
    )
    """Further request parameters, passed on unchanged: `temperature`, `thinking`, …"""
    timeout: PositiveSeconds = 600.0
    """Maximum number of seconds for one call."""

    @property
    def base_model(self) -> str | None:
        """The catalog model that `model_info` names. None if the model's own name is used."""
        return parse_model_info(self.model_info).get("base_model")


class ToolContextSpec(ConfigBlock):
    max_tool_result_tokens: PositiveInt | None = None
    """Maximum number of tokens for one result of this tool."""
    tool_result_truncation: ResultTruncation | None = None
    """Which part of a long result is kept: its `head`, its `tail`, `both`, or a `summary`."""
    exempt: StrictFlag = False
    """Whether policies leave results of this tool alone. A result that is larger than the available
    space is still cut to fit."""


class ContextLimitsSpec(ConfigBlock):
    max_history_tokens: NonNegativeInt | None = None
    """Maximum number of tokens of the history before the newest user message. 0 means no limit. The
    default is 20,000 in `layered` and no limit in other policies."""
    max_tool_result_tokens: PositiveInt | None = None
    """Maximum number of tokens for one tool result. A token is four bytes in `layered` and
    `compact`. The default is 8,000 in `layered` and `rolling`. In `auto` it falls from 32,000 to
    8,000 as the window fills, and for `cost` from 6,000 to 4,000; in a small window it is less.
    `compact` cuts at 4,000 bytes, `thresholds` at 8,000 characters."""
    max_tool_result_chars: PositiveInt | None = None
    """The same maximum in characters, in every policy. Set only one of the two."""
    tool_result_truncation: ResultTruncation | None = None
    """Which part of a long result is kept: its `head` (the default), its `tail`, `both`, or a
    `summary`. The model of `session.summary` writes that summary before the result is first sent.
    If a summary is not possible, the head is kept. The default in `auto` is both ends and lines
    that look like errors."""
    tool_result_keep_first: NonNegativeInt | None = None
    """Number of first results that are never masked. The default is 2 in `layered` and 0 in other
    policies."""
    tool_result_keep_last: NonNegativeInt | None = None
    """Number of newest results that are never masked. The default is 5 in `layered`, 6 in `compact`
    and 3 in `auto`. If both numbers are 0, nothing is masked."""
    keep: tuple[Annotated[str, Field(pattern=r"\S")], ...] = ()
    """Patterns of file names, such as `README*` or `*.toml`. They are compared with each call's
    arguments and the last path part of each. The result of a call that matches is hidden after all
    other results."""
    max_context_bytes: PositiveInt | None = None
    """Size of the messages in bytes above which `compact` turns old results into lines. The default
    is 50,000; 30,000 for `cost` and 80,000 for `quality`."""
    max_request_bytes: PositiveInt | None = None
    """Maximum size of a request in bytes. Above it, older images and files are hidden. The default
    is the provider's own limit, such as 32,000,000 for Claude."""
    max_pictures: PositiveInt | None = None
    """Maximum number of images in a request. Above it, older ones are hidden. The default is the
    provider's own limit."""
    tools: dict[str, ToolContextSpec] = Field(default_factory=dict[str, ToolContextSpec])
    """Different settings for single tools, by the tool's name."""


class SummarySpec(ConfigBlock):
    by: Literal["model", "extract"] | None = None
    """What writes summaries: a `model`, or `extract`, which copies lines of the conversation. The
    default is a model in `rolling` and `thresholds`. In `auto` it is `extract`, which names what is
    hidden."""
    model: str | None = None
    """The model that writes summaries, also of single tool results. The default is the cheap model
    of the same maker, such as Haiku."""
    prompt: Annotated[str, Field(pattern=r"\S")] | None = None
    """Your own instructions for the summary, instead of the default ones. The prompt also says that
    the input is data, which headings to use and that the limit is 300 tokens."""
    window: PositiveInt = ROLLING_WINDOW_MESSAGES
    """Number of messages above which `rolling` summarises the oldest."""
    keep: PositiveInt = DEFAULT_KEPT_MESSAGES
    """Number of newest messages that `rolling` keeps whole."""
    forced: PositiveInt = ROLLING_FORCED_MESSAGES
    """Number of messages at which `rolling` no longer waits for a summary from the model."""
    max_tokens: PositiveInt | None = None
    """Maximum number of tokens for a summary, in every policy. The default is 500. In `auto`, the
    names that it lists are added to that."""
    list_tokens: NonNegativeInt | None = None
    """Maximum number of tokens for the list of names, figures and open questions next to a summary.
    0 means no list, and is the default in `rolling`. In `thresholds` the default is 8 % of the
    replaced content, from 500 to 4,000, and at most 500 if `max_tokens` is set. In `auto`, it is
    the same number as for names in its other summaries."""
    max_message_chars: PositiveInt = MAX_MESSAGE_CHARS
    """Maximum number of characters of one message that the summarising model gets, from its
    beginning and its end."""

    def policy_settings(self) -> dict[str, Any]:
        """Return the settings of this block that a policy knows."""
        return self.model_dump(exclude_unset=True, exclude={"by", "model", "prompt"})


class ThresholdsSpec(ConfigBlock):
    summarise: Fraction = SUMMARISE_AT_SHARE
    """Share of the window in use above which `thresholds` summarises."""
    trim: Fraction = TRIM_AT_SHARE
    """Share of the window in use above which `thresholds` drops the oldest messages."""
    display: Fraction = 0.3
    """Share of the window in use above which the terminal shows the context bar."""
    keep: PositiveInt = DEFAULT_KEPT_MESSAGES
    """Number of newest messages that `thresholds` keeps whole."""

    def policy_settings(self) -> dict[str, Any]:
        """Return the settings of this block that a policy knows."""
        return self.model_dump(exclude_unset=True, exclude={"display"})


class SessionSpec(ConfigBlock):
    store: str = "sessions"
    """The store of the sessions: a folder next to the file, or a database such as
    `${DATABASE_URL}`."""
    policy: PolicyName = DEFAULT_POLICY_NAME
    """The policy that decides when to hide content, how much of it, and what first."""
    goal: Goal = "balanced"
    """What the policy optimises for: `cost`, `balanced` or `quality`."""
    recall: StrictFlag = True
    """Whether the model gets tools to look up hidden content."""
    redact: tuple[RedactionName, ...] = ()
    """What to redact from all messages before they are stored: `email`, `iban`, `card`,
    `secret`."""
    redact_patterns: tuple[str, ...] = ()
    """Your own regular expressions for what to redact as well, such as `ACC-[0-9]+`."""
    on_disconnect: Literal["pause", "continue"] = "pause"
    """What a turn does when the client disconnects: `pause` after the current step, or
    `continue`."""
    on_message: Literal["steer", "queue"] = "steer"
    """What a server does with a message that arrives while the agent is working. `steer` shows it
    to the model before its next step, `queue` answers it afterwards."""
    debounce: Annotated[
        float, Field(ge=0, le=60, strict=True), BeforeValidator(parse_env_text_as_scalar)
    ] = 0.0
    """How many seconds without a further message a served turn waits before it begins, because
    people often write in several messages."""
    retain_for: Age | None = None
    """How long a served session is kept after its last event, in hours, days or weeks: `90d`. The
    server then deletes it. By default nothing is deleted."""
    max_tool_iterations: PositiveInt = MAX_TOOL_ITERATIONS
    """Maximum number of replies with tool calls in one turn."""
    context: ContextLimitsSpec = ContextLimitsSpec()
    """Limits that apply in every policy."""
    summary: SummarySpec = SummarySpec()
    """When `rolling` summarises, and how long a summary may be."""
    thresholds: ThresholdsSpec = ThresholdsSpec()
    """When `thresholds` acts, and when the context bar is shown."""


class CostSpec(ConfigBlock):
    max_per_session: PositiveDollars | None = None
    """Maximum cost of one session in US dollars. By default there is no limit."""
    max_per_tenant_per_day: PositiveDollars | None = None
    """Maximum cost of one tenant's use of this agent per UTC day, in US dollars. By default there
    is no limit."""
    max_per_day: PositiveDollars | None = None
    """Maximum cost of this agent for all tenants together per UTC day, in US dollars. By default
    there is no limit."""

    @property
    def ceilings(self) -> dict[str, float]:
        """The ceilings that are set, by their names in the file."""
        return self.model_dump(exclude_none=True)


class CommonToolSpec(ConfigBlock):
    """Settings that all tools have."""

    permission: Permission | None = None
    """What to do if no pattern below matches. The default is `ask` for `shell` and `mcp`, and
    `allow` for tools that you wrote yourself, `command` and `python`."""
    allow: tuple[str, ...] = ()
    """Patterns of calls that run without approval: `git status *`."""
    ask: tuple[str, ...] = ()
    """Patterns of calls that need approval, even if `allow` matches."""
    deny: tuple[str, ...] = ()
    """Patterns of calls that never run, even if another pattern matches."""
    timeout: PositiveSeconds = 120.0
    """Maximum number of seconds for one call."""
    max_output_bytes: PositiveInt = 1_000_000
    """Maximum size of a result in bytes. The rest is counted and discarded as it arrives."""
    on_interrupt: OnInterrupt = "report"
    """What to do with a call that a crash interrupted: `report` that its outcome is unknown,
    `rerun` it, or `ask`."""


class ProcessToolSpec(CommonToolSpec):
    cwd: str = "."
    """The folder that it runs in, relative to the file."""
    env: tuple[str, ...] | dict[str, str] = ()
    """Environment variables that it gets in addition to PATH, HOME, LANG and similar ones: names,
    or names with values. Secrets are passed on only if they are named here."""
    sandbox: Annotated[Literal["auto", "required", "off"], BeforeValidator(_off_for_false)] = "off"
    """Whether to run it in a bubblewrap sandbox, in which it can write only to `cwd`. `auto` uses
    the sandbox if it works on this machine, `required` refuses to start without it, and `off` never
    uses it."""
    sandbox_network: StrictFlag = False
    """Whether it can reach the network from its sandbox."""


class ShellToolSpec(ProcessToolSpec):
    """A shell. The model writes the command."""

    kind: Literal["shell"]
    """A shell."""
    description: str | None = None
    """The description that the model reads. There is a good default."""


class CommandToolSpec(ProcessToolSpec):
    """A command that you write. The model fills in values."""

    kind: Literal["command"]
    """A command with placeholders for values."""
    description: str
    """The description that the model reads."""
    command: CommandArgv
    """The program and its arguments. `{name}` is replaced by a parameter. No shell is involved."""
    parameters: dict[str, dict[str, Any]] = Field(default_factory=dict[str, dict[str, Any]])
    """The JSON Schema of each value, by name: `path: {type: string}`."""
    optional: tuple[str, ...] = ()
    """Parameters that the model may omit. An argument that contains an omitted parameter is also
    omitted."""


class PythonToolSpec(CommonToolSpec):
    """A Python function of yours."""

    kind: Literal["python"]
    """A Python function, async or not."""
    function: str
    """The function: `tools.py:weather`, relative to the file, or `package.module:weather`. The
    model reads its signature and docstring."""
    env: tuple[str, ...] | dict[str, str] = ()
    """Variables that it finds in `os.environ` in addition to PATH, HOME, LANG and similar ones:
    names, or names with values. All functions of the process can read them."""


class McpToolSpec(CommonToolSpec):
    """All tools of an MCP server, each named `SERVER__TOOL`."""

    kind: Literal["mcp"]
    """An MCP server."""
    command: CommandArgv | None = None
    """The program to start, with its arguments. Set either this or `url`."""
    url: str | None = None
    """The address of the server. Set either this or `command`."""
    headers: dict[str, str] = Field(default_factory=dict[str, str])
    """Headers to send with each request to `url`."""
    cwd: str = "."
    """The folder that it runs in, relative to the file."""
    env: tuple[str, ...] | dict[str, str] = ()
    """Environment variables that it gets, as for a shell."""
    only: tuple[str, ...] | None = None
    """The server's tools that the model gets. By default all."""


AnyToolSpec = Annotated[
    ShellToolSpec | CommandToolSpec | PythonToolSpec | McpToolSpec, Field(discriminator="kind")
]


class AgentSpec(ConfigBlock):
    """All settings of an agent."""

    name: str = "agent"
    """The name of the agent, in lists and prompts."""
    model: ModelSpec
    """The model that answers."""
    system: str | None = None
    """A Markdown file next to this one with the system prompt, such as `system.md`, or the prompt
    itself. A text with a space in it is a prompt unless it ends in `.md` or `.txt`."""
    session: SessionSpec = SessionSpec()
    """How sessions are stored and which policy manages their context."""
    cost: CostSpec = CostSpec()
    """Cost ceilings. A call that might cost more than what is left is not made."""
    tools: dict[ToolName, AnyToolSpec] = Field(default_factory=dict[str, AnyToolSpec])
    """The tools that the agent may use, by the name that the model uses."""
    serve: ServeSpec = ServeSpec()
    """Settings of `trimtab serve`."""
    telegram: TelegramSpec | None = None
    """A bot on Telegram."""
    discord: DiscordSpec | None = None
    """A bot on Discord."""
    schedules: dict[ToolName, ScheduleSpec] = Field(default_factory=dict[str, ScheduleSpec])
    """Messages that the agent gets at scheduled times, by name."""
