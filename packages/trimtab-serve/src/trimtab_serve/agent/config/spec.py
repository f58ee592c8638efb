"""The settings of `agent.yaml` with their defaults. The reference in the docs is made from them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    model_validator,
)

from trimtab.engine.log.redaction import RedactionName
from trimtab.engine.policy.config import (
    DEFAULT_KEPT_MESSAGES,
    ROLLING_FORCED_MESSAGES,
    ROLLING_WINDOW_MESSAGES,
    SUMMARISE_AT_SHARE,
    TRIM_AT_SHARE,
    GoalName,
    ResultTruncation,
)
from trimtab.engine.policy.presets import DEFAULT_POLICY_NAME, PolicyName
from trimtab.engine.summaries.transcript import MAX_MESSAGE_CHARS
from trimtab.models.catalog import parse_model_info, resolve_model_info
from trimtab.providers.factory import ProviderName
from trimtab.session.spending import explain_unknown_price
from trimtab.session.tools import OnInterrupt
from trimtab.session.turn import MAX_TOOL_ITERATIONS
from trimtab_serve.agent.config import checks
from trimtab_serve.agent.config.checks import problem
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
PositiveNumber = Annotated[
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

TelegramIdentity = Annotated[ChatIdentity, AfterValidator(checks.check_telegram_identity)]
DiscordIdentity = Annotated[ChatIdentity, AfterValidator(checks.check_discord_identity)]


class TenantLimitsSpec(ConfigBlock):
    sessions: PositiveInt = 100_000
    """Sessions of one tenant, including forks."""
    session_bytes: PositiveInt = 268_435_456
    """Bytes that one session stores: 256 MiB."""
    bytes: PositiveInt = 10_737_418_240
    """Bytes that all sessions of one tenant store, with waiting messages and dead letters: 10
    GiB."""
    schedules: PositiveInt = 100
    """Schedules of one tenant that are not finished."""
    messages_per_minute: PositiveInt | None = None
    """Messages of one tenant that one process accepts per minute, from callers and chats. A sixth
    of them, but at least ten, may arrive at once. By default no limit."""
    cost_per_day: PositiveDollars | None = None
    """Cost of one tenant's model calls per UTC day, in US dollars, for all agents that share a
    store. By default no limit."""

    def replace_with(self, own: TenantLimitsSpec | None) -> TenantLimitsSpec:
        """Return the limits of a tenant that has its own. What is not set there stays."""
        return self if own is None else self.model_copy(update=own.model_dump(exclude_unset=True))


class ServeSpec(ConfigBlock):
    host: str = "127.0.0.1"
    """The address to listen on. Callers from other machines always need a key."""
    port: TcpPort = 8080
    """The port to listen on. 0 means any free port."""
    keys: StrictFlag = False
    """Whether callers need an API key, even from this machine."""
    allowed_origins: tuple[str, ...] = ()
    """Web pages that may call the API from a browser, such as `https://app.example.com`."""
    max_concurrent_turns: PositiveInt = 64
    """Turns that one process runs at the same time."""
    max_concurrent_turns_per_tenant: PositiveInt | None = None
    """The same for one tenant in all processes. By default half of the turns of each process."""
    max_body_bytes: PositiveInt = 1_048_576
    """Size of a request body."""
    requests_per_minute: PositiveInt = 600
    """Requests per minute with one key. A sixth of them, but at least ten, may arrive at once."""
    max_connections: PositiveInt | None = None
    """HTTP connections of one process at the same time, with open streams. By default half of its
    limit for open files, at most 10000."""
    max_connections_per_address: PositiveInt | None = None
    """The same for one address, or one IPv6 /64 network. By default half of `max_connections`."""
    trusted_proxies: tuple[Annotated[str, AfterValidator(checks.check_network)], ...] = ()
    """Addresses and networks of your reverse proxies: `[10.0.0.7, 10.1.0.0/16]`. Their header
    `X-Forwarded-For` names the caller, and they may have more connections than one address. From
    this machine the header counts without this setting."""
    max_queued_messages: PositiveInt = 10_000
    """Waiting messages of one tenant. Further ones are refused."""
    tenant_limits: TenantLimitsSpec = TenantLimitsSpec()
    """How much one tenant may store, send and cost. Chats and callers without a key belong to the
    tenant `default`. `limits_by_tenant` has the same settings for certain tenants."""
    limits_by_tenant: dict[str, TenantLimitsSpec] = Field(
        default_factory=dict[str, TenantLimitsSpec]
    )
    """Other limits of certain tenants, by name: `{acme: {bytes: 50000000000}}`. What is not set is
    as in `tenant_limits`."""
    retry_for: PositiveSeconds = 21_600.0
    """Seconds for which a turn is retried while the provider is down, overloaded or rejects the
    key. Then its messages become dead letters."""
    retain_for: dict[str, AgeOrForever] = Field(default_factory=dict[str, str])
    """How long sessions are kept, by tenant, instead of `session.retain_for`: `{acme: 30d, archive:
    forever}`."""
    shutdown_timeout: PositiveSeconds = 30.0
    """Seconds that running turns have to end when the server stops."""


class TelegramRuleSpec(ConfigBlock):
    """Rules for certain users or chats."""

    who: TelegramIdentity
    """The id of a user or a chat, an `@name`, or `"*"`."""
    groups: Literal["mention", "all", "off"] | None = None
    """When the bot answers this sender in groups. By default `telegram.groups`."""
    commands: tuple[str, ...] | None = None
    """Commands that this sender may use: `[help, context]`. By default all."""
    media: StrictFlag = True
    """Whether the bot accepts this sender's files."""


class TelegramSpec(ConfigBlock):
    token: Annotated[str, AfterValidator(checks.check_telegram_token)]
    """The bot's token from BotFather, as a reference: `${TELEGRAM_TOKEN}`."""
    webhook: Annotated[str, AfterValidator(checks.check_webhook_address)] | None = None
    """The public address at which Telegram calls this server. By default the bot polls."""
    secret: str | None = None
    """The secret of the webhook, as a reference. Required with `webhook`."""
    allow: tuple[TelegramIdentity, ...] = ()
    """Users and chats that the bot answers, by id or `@name`; `"*"` means everybody. By default
    nobody."""
    deny: tuple[TelegramIdentity, ...] = ()
    """Whom the bot never answers, even if `allow` matches."""
    groups: Literal["mention", "all", "off"] = "mention"
    """When the bot answers in groups: if it is mentioned or replied to, always, or never."""
    rules: tuple[TelegramRuleSpec, ...] = ()
    """Rules for certain users or chats. The first that matches applies."""
    max_file_bytes: PositiveInt = 4_194_304
    """Size of an image or a file. For a larger one, the model gets a note."""
    stream: StrictFlag = True
    """Whether to show the reply while the model writes it."""
    api: str = "https://api.telegram.org"
    """The address of the Bot API."""

    @model_validator(mode="after")
    def _check_webhook(self) -> Self:
        checks.check_webhook_secret(self.webhook, self.secret)
        return self


class DiscordSpec(ConfigBlock):
    token: str
    """The bot's token, as a reference: `${DISCORD_TOKEN}`."""
    allow: tuple[DiscordIdentity, ...] = ()
    """Users, channels and servers that the bot answers, by id; `"*"` means everybody. By default
    nobody."""
    deny: tuple[DiscordIdentity, ...] = ()
    """Whom the bot never answers, even if `allow` matches."""
    threads: StrictFlag = True
    """Whether to answer a mention in a channel in a new thread, which becomes a session."""
    max_file_bytes: PositiveInt = 4_194_304
    """Size of an image or a file. For a larger one, the model gets a note."""
    api: str = "https://discord.com/api/v10"
    """The address of Discord's API."""


class ScheduleSpec(ConfigBlock):
    message: Annotated[str, AfterValidator(checks.check_scheduled_message)]
    """The message that the agent gets."""
    cron: Annotated[str, AfterValidator(checks.check_cron)] | None = None
    """When to run: minute, hour, day, month, weekday. Set either this or `at`."""
    at: Annotated[str, AfterValidator(checks.check_moment)] | None = None
    """The time of a single run: `2027-01-31 08:00`. Set either this or `cron`."""
    timezone: Annotated[str, AfterValidator(checks.check_time_zone)] = "UTC"
    """The time zone of `cron` and `at`."""
    session: str | None = None
    """The session that gets the message. By default that of the chat in `to`, or `schedule:` and
    the schedule's name."""
    to: Annotated[str, AfterValidator(checks.check_chat_address)] | None = None
    """The chat that gets the result: `telegram:123456`, `discord:987654`. By default the result is
    only logged."""
    catch_up: Literal["skip", "once", "all"] = "once"
    """What to do about missed runs: `skip` them, run `once` for all, or run `all`."""
    catch_up_window: NonNegativeInt = 86_400
    """Missed runs older than this number of seconds are skipped."""

    @model_validator(mode="after")
    def _check_time(self) -> Self:
        if self.cron is None and self.at is None:
            raise problem("has no time; set `cron` to run repeatedly, or `at` to run once")
        if self.cron is not None and self.at is not None:
            raise problem("has both `cron` and `at`; keep one of them")
        return self


Permission = Literal["allow", "ask", "deny"]


def _off_for_false(value: Any) -> Any:
    """Read false as `off`, because YAML reads the word `off` as false."""
    return "off" if value is False else value


class ModelSpec(ConfigBlock):
    """The block `model` of an agent's file."""

    name: str
    """The model's name at its provider."""
    provider: ProviderName | None = None
    """The provider that serves the model. By default the model's name decides."""
    base_url: str | None = None
    """The address of the API, if it is not the provider's own. For `azure`, the endpoint."""
    api_key: str | None = None
    """The API key, as a reference: `${ANTHROPIC_API_KEY}`. By default the provider's usual
    variable."""
    region: str | None = None
    """The region for `bedrock` and `vertex`. By default AWS_REGION or CLOUD_ML_REGION."""
    project: str | None = None
    """The project that `vertex` bills. By default ANTHROPIC_VERTEX_PROJECT_ID or
    GOOGLE_CLOUD_PROJECT."""
    api_version: str | None = None
    """The API version for `azure`. By default OPENAI_API_VERSION, or `2024-10-21`."""
    context_window: NonNegativeInt | None = None
    """The model's window in tokens, input and output together. 0 means not set."""
    max_input_tokens: PositiveInt | None = None
    """Your own limit of input plus requested output, lower or higher than the model's. It takes
    precedence over `context_window`."""
    max_output_tokens: PositiveInt | None = None
    """Output tokens to request and to reserve."""
    cache: Annotated[Literal["off", "5m", "1h"] | None, BeforeValidator(_off_for_false)] = None
    """How long Anthropic should cache the prompt; `off` requests no caching."""
    model_info: Annotated[
        str | dict[str, Any], AfterValidator(parse_nested_env_texts_as_scalars)
    ] = Field(default_factory=dict[str, Any])
    """What the catalog does not know of the model: the name of a catalog model, or values such as
    `max_output`."""
    params: Annotated[
        dict[Annotated[str, AfterValidator(checks.check_param_name)], Any],
        AfterValidator(parse_nested_env_texts_as_scalars),
        AfterValidator(checks.check_params),
    ] = Field(default_factory=dict[str, Any])
    """Further request parameters, passed on unchanged: `temperature`, `thinking`, …"""
    timeout: PositiveSeconds = 600.0
    """Seconds that one call may take."""

    @model_validator(mode="after")
    def _check_model_info(self) -> Self:
        try:
            resolve_model_info(self.name, parse_model_info(self.model_info))
        except (TypeError, ValueError) as error:
            why = str(error)
            names_setting = why.startswith("model_info ")
            text = why.removeprefix("model_info ") if names_setting else f": {why}"
            raise problem(text, "model_info") from None
        return self

    @property
    def base_model(self) -> str | None:
        """The catalog model that `model_info` names. None if the model's own name is used."""
        return parse_model_info(self.model_info).get("base_model")


def _read_name_as_block(value: object) -> object:
    """Read a model's name alone as a block with nothing but the name."""
    if not isinstance(value, str):
        return value
    setting, _, rest = value.partition(":")
    if setting in ModelSpec.model_fields:
        message = f"{setting}:{rest} lacks a space after its colon"
        raise ValueError(message)
    return {"name": value}


class ToolContextSpec(ConfigBlock):
    max_tool_result_tokens: PositiveInt | None = None
    """Tokens of one result of this tool."""
    tool_result_truncation: ResultTruncation | None = None
    """Which part of a long result of this tool is kept."""
    exempt: StrictFlag = False
    """Whether policies leave results of this tool alone and keep its newest call with its
    arguments. A result larger than the available space is still cut."""


class ContextLimitsSpec(ConfigBlock):
    max_history_tokens: NonNegativeInt | None = None
    """Tokens of the history before the newest user message. By default 20,000 in `layered`,
    elsewhere no limit (0)."""
    max_tool_result_tokens: PositiveInt | None = None
    """Tokens of one tool result. By default 8,000 in `layered` and `rolling`, 32,000 to 16,000 in
    `auto`, 4,000 bytes in `compact`, 8,000 characters in `thresholds`."""
    max_tool_result_chars: PositiveInt | None = None
    """The same in characters. Set only one of the two."""
    tool_result_truncation: ResultTruncation | None = None
    """Which part of a long result is kept: `head` (the default), in `auto` both ends and errors.
    The model of `session.summary` writes a `summary`."""
    tool_result_keep_first: NonNegativeInt | None = None
    """First results that are never masked. By default 2 in `layered`, elsewhere 0."""
    tool_result_keep_last: NonNegativeInt | None = None
    """Newest results that are never masked. By default 5 in `layered`, 6 in `compact`, 3 in
    `auto`."""
    keep: tuple[Annotated[str, Field(pattern=r"\S")], ...] = ()
    """Patterns of file names, such as `README*`. Results of calls that name such a file are hidden
    last."""
    max_context_bytes: PositiveInt | None = None
    """Size of the messages above which `compact` turns old results into lines. By default
    50,000."""
    max_request_bytes: PositiveInt | None = None
    """Size of a request above which older images and files are hidden. By default the provider's
    limit."""
    max_pictures: PositiveInt | None = None
    """Images in a request above which older ones are hidden. By default the provider's limit."""
    tools: dict[str, ToolContextSpec] = Field(default_factory=dict[str, ToolContextSpec])
    """Different settings for single tools, by the tool's name."""

    @model_validator(mode="after")
    def _check_policy(self) -> Self:
        checks.check_policy_settings(self.model_dump(exclude_unset=True))
        return self


class SummarySpec(ConfigBlock):
    by: Literal["model", "extract"] | None = None
    """What writes summaries. `extract` copies lines of the conversation. By default `model` in
    `rolling` and `thresholds`, `extract` in `auto`."""
    model: str | None = None
    """The model that writes summaries, also of single tool results. By default the cheap model of
    the same maker."""
    prompt: Annotated[str, Field(pattern=r"\S")] | None = None
    """Your own instructions for what to write."""
    window: PositiveInt = ROLLING_WINDOW_MESSAGES
    """Messages above which `rolling` summarises the oldest."""
    keep: PositiveInt = DEFAULT_KEPT_MESSAGES
    """Newest messages that `rolling` keeps whole."""
    forced: PositiveInt = ROLLING_FORCED_MESSAGES
    """Messages at which `rolling` no longer waits for a summary from the model."""
    max_tokens: PositiveInt | None = None
    """Tokens of a summary, in every policy. By default 500; in `auto` the listed names are
    added."""
    list_tokens: NonNegativeInt | None = None
    """Tokens of the list of names, figures and open questions next to a summary. 0, the default in
    `rolling`, means no list."""
    max_message_chars: PositiveInt = MAX_MESSAGE_CHARS
    """Characters of one message that the summarising model gets."""

    def policy_settings(self) -> dict[str, Any]:
        """Return the settings of this block that a policy knows."""
        return self.model_dump(exclude_unset=True, exclude={"by", "model", "prompt"})

    @model_validator(mode="after")
    def _check_policy(self) -> Self:
        checks.check_policy_settings(self.policy_settings(), "summary")
        return self


class ThresholdsSpec(ConfigBlock):
    summarise: Fraction = SUMMARISE_AT_SHARE
    """Share of the window above which `thresholds` summarises."""
    trim: Fraction = TRIM_AT_SHARE
    """Share of the window above which `thresholds` drops the oldest messages."""
    display: Fraction = 0.3
    """Share of the window above which the terminal shows the context bar."""
    keep: PositiveInt = DEFAULT_KEPT_MESSAGES
    """Newest messages that `thresholds` keeps whole."""

    def policy_settings(self) -> dict[str, Any]:
        """Return the settings of this block that a policy knows."""
        return self.model_dump(exclude_unset=True, exclude={"display"})

    @model_validator(mode="after")
    def _check_policy(self) -> Self:
        checks.check_policy_settings(self.policy_settings(), "thresholds")
        return self


class SessionSpec(ConfigBlock):
    store: Annotated[str, AfterValidator(checks.check_store_setting)] = "sessions"
    """A folder next to the file, or a database such as `${DATABASE_URL}`."""
    policy: PolicyName = DEFAULT_POLICY_NAME
    """The policy that decides what to hide, and when."""
    goal: GoalName | PositiveNumber = "balanced"
    """What the policy optimises for."""
    recall: StrictFlag = True
    """Whether the model gets tools to look up hidden content."""
    redact: tuple[RedactionName, ...] = ()
    """What to redact from messages before they are stored: `email`, `iban`, `card`, `secret`."""
    redact_patterns: tuple[
        Annotated[str, AfterValidator(checks.check_regular_expression)], ...
    ] = ()
    """Regular expressions of what to redact as well, such as `ACC-[0-9]+`."""
    on_disconnect: Literal["pause", "continue"] = "pause"
    """Whether a turn pauses after the current step when the client disconnects."""
    on_message: Literal["steer", "queue"] = "steer"
    """Whether a message that arrives while the agent works is shown to the model before its next
    step (`steer`), or answered afterwards (`queue`)."""
    debounce: Annotated[
        float, Field(ge=0, le=60, strict=True), BeforeValidator(parse_env_text_as_scalar)
    ] = 0.0
    """Seconds without a further message that a served turn waits before it begins."""
    retain_for: Age | None = None
    """How long a served session is kept after its last event: `12h`, `90d`, `52w`. By default
    forever."""
    max_tool_iterations: PositiveInt = MAX_TOOL_ITERATIONS
    """Replies with tool calls in one turn."""
    context: ContextLimitsSpec = ContextLimitsSpec()
    """Limits that apply in every policy."""
    summary: SummarySpec = SummarySpec()
    """When `rolling` summarises, and how long a summary may be."""
    thresholds: ThresholdsSpec = ThresholdsSpec()
    """When `thresholds` acts, and when the context bar is shown."""


class CostSpec(ConfigBlock):
    max_per_session: PositiveDollars | None = None
    """For one session."""
    max_per_day: PositiveDollars | None = None
    """For all tenants together per UTC day."""


class CommonToolSpec(ConfigBlock):
    """Settings that all tools have."""

    permission: Permission | None = None
    """What to do if no pattern below matches. By default `ask` for `shell` and `mcp`, `allow` for
    `command`, `python` and `schedule`."""
    allow: tuple[str, ...] = ()
    """Patterns of calls that run without approval: `git status *`."""
    ask: tuple[str, ...] = ()
    """Patterns of calls that need approval, even if `allow` matches."""
    deny: tuple[str, ...] = ()
    """Patterns of calls that never run, even if another pattern matches."""
    timeout: PositiveSeconds = 120.0
    """Seconds that one call may take."""
    max_output_bytes: PositiveInt = 1_000_000
    """Size of a result. The rest is counted and discarded."""
    on_interrupt: OnInterrupt = "report"
    """What to do with a call that a crash interrupted: `report` that its outcome is unknown,
    `rerun` it, or `ask`."""


class ProcessToolSpec(CommonToolSpec):
    cwd: str = "."
    """The folder that it runs in, relative to the file."""
    env: tuple[str, ...] | dict[str, str] = ()
    """Environment variables that it gets besides PATH, HOME and the like."""
    sandbox: Annotated[Literal["auto", "required", "off"], BeforeValidator(_off_for_false)] = "off"
    """Whether to run it in a bubblewrap sandbox: `auto` if that works here, `required` or not at
    all."""
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
    """The program and its arguments. `{name}` is replaced by a parameter."""
    parameters: dict[str, dict[str, Any]] = Field(default_factory=dict[str, dict[str, Any]])
    """The JSON Schema of each value, by name: `path: {type: string}`."""
    optional: tuple[str, ...] = ()
    """Parameters that the model may omit, with the arguments that contain them."""


class PythonToolSpec(CommonToolSpec):
    """A Python function of yours."""

    kind: Literal["python"]
    """A Python function, async or not."""
    function: str
    """The function: `tools.py:weather`, relative to the file, or `package.module:weather`."""
    env: tuple[str, ...] | dict[str, str] = ()
    """Further variables that it finds in `os.environ`. All functions of the process can read
    them."""


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

    @model_validator(mode="after")
    def _check_connection(self) -> Self:
        if self.command is None and self.url is None:
            raise problem(
                "needs `command`, the program to start, or `url`, the address of the server"
            )
        if self.command is not None and self.url is not None:
            raise problem("has both `command` and `url`; keep one of them")
        return self


class ScheduleToolSpec(CommonToolSpec):
    """Three tools with which a served agent sends itself messages at set times."""

    kind: Literal["schedule"]
    """The tools `schedule_task`, `list_schedules` and `cancel_schedule`."""


AnyToolSpec = Annotated[
    ShellToolSpec | CommandToolSpec | PythonToolSpec | McpToolSpec | ScheduleToolSpec,
    Field(discriminator="kind"),
]


class AgentSpec(ConfigBlock):
    """All settings of an agent."""

    name: str = "agent"
    """The name of the agent, in lists and prompts."""
    model: Annotated[
        ModelSpec, BeforeValidator(_read_name_as_block, json_schema_input_type=str | ModelSpec)
    ]
    """The model that answers: its name, or a block."""
    system: str | None = None
    """The system prompt, or a Markdown file next to this one, such as `system.md`. A text with a
    space in it is a prompt unless it ends in `.md` or `.txt`."""
    session: SessionSpec = SessionSpec()
    """The store of the sessions, and what manages their context."""
    cost: CostSpec = CostSpec()
    """Cost ceilings in US dollars. A call that might cost more than what is left is not made."""
    tools: dict[ToolName, AnyToolSpec] = Field(default_factory=dict[str, AnyToolSpec])
    """The tools that the agent may use, by the name that the model uses."""
    serve: ServeSpec = ServeSpec()
    """Settings of `trimtab serve`."""
    telegram: TelegramSpec | None = None
    """A bot on Telegram."""
    discord: DiscordSpec | None = None
    """A bot on Discord."""
    schedules: dict[ToolName, ScheduleSpec] = Field(default_factory=dict[str, ScheduleSpec])
    """Messages that the agent gets at set times, by name."""

    @model_validator(mode="after")
    def _check_price(self) -> Self:
        info = resolve_model_info(self.model.name, parse_model_info(self.model.model_info))
        if self.cost_ceilings and (info.input_price is None or info.output_price is None):
            raise problem(f": {explain_unknown_price(self.model.name)}", "cost")
        return self

    @model_validator(mode="after")
    def _check_schedules(self) -> Self:
        for name, schedule in self.schedules.items():
            platform = checks.parse_chat_address(schedule.to)[0] if schedule.to else None
            if platform is not None and getattr(self, platform) is None:
                raise problem(
                    f"names a chat on {platform.capitalize()}, but the agent has no bot there; "
                    f"add the block `{platform}` with its token",
                    *("schedules", name, "to"),
                )
        return self

    @property
    def cost_ceilings(self) -> dict[str, float]:
        """The cost ceilings that are set, by their names in the file."""
        blocks = {f"serve.limits_by_tenant.{t}": o for t, o in self.serve.limits_by_tenant.items()}
        limits = {"serve.tenant_limits": self.serve.tenant_limits, **blocks}
        by_name = {f"cost.{name}": dollars for name, dollars in self.cost}
        by_name |= {f"{name}.cost_per_day": own.cost_per_day for name, own in limits.items()}
        return {name: dollars for name, dollars in by_name.items() if dollars is not None}
