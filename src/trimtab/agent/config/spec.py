"""What blocks of `agent.yaml` are made of.

What `agent.yaml` says about how the agent is reached: HTTP, chat platforms, set times.

What may stand in `agent.yaml`, with its defaults. The reference in the docs is made from it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from trimtab.agent.config.env_refs import (
    parse_env_text_as_scalar,
    parse_nested_env_texts_as_scalars,
)
from trimtab.catalog import CacheMarks, parse_model_info
from trimtab.policy.config import (
    DEFAULT_KEPT_MESSAGES,
    ROLLING_FORCED_MESSAGES,
    ROLLING_WINDOW_MESSAGES,
    SUMMARISE_AT_SHARE,
    TRIM_AT_SHARE,
    Goal,
    ResultTruncation,
)
from trimtab.policy.presets import DEFAULT_POLICY_NAME, PolicyName
from trimtab.providers.factory import ProviderName
from trimtab.session.tools import OnInterrupt
from trimtab.session.turn import MAX_TOOL_ITERATIONS

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
"""`12h`, `90d`, `52w`."""
AgeOrForever = Annotated[str, Field(pattern=r"^(forever|[1-9][0-9]{0,4}[hdw])$")]
_AGE_UNIT_S = {"h": 3_600.0, "d": 86_400.0, "w": 7 * 86_400.0}


def age_in_seconds(age: str) -> float:
    """The seconds of an `Age`."""
    return int(age[:-1]) * _AGE_UNIT_S[age[-1]]


class ConfigBlock(BaseModel):
    """A block of the file: what it does not know it refuses."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    def __repr_args__(self) -> Iterator[tuple[str, Any]]:
        """Numbers and blocks only: any text may be a secret from the environment."""
        for name in type(self).model_fields:
            value = getattr(self, name)
            if isinstance(value, ConfigBlock | int | float):
                yield name, value


TcpPort = Annotated[
    int, Field(ge=0, le=65_535, strict=True), BeforeValidator(parse_env_text_as_scalar)
]
ChatIdentity = Annotated[int | str, BeforeValidator(parse_env_text_as_scalar)]

_CHAT_ADDRESS = re.compile(r"(telegram|discord):(-?[0-9]{1,20})(?::([0-9]{1,20}))?")


class ServeSpec(ConfigBlock):
    host: str = "127.0.0.1"
    """The address that HTTP listens on. Any other than this machine's own needs `keys`."""
    port: TcpPort = 8080
    """The port that HTTP listens on; 0 takes a free one."""
    keys: str | None = None
    """A file beside this one with the API keys that are accepted, written by `trimtab keys`."""
    allowed_origins: tuple[str, ...] = ()
    """Web pages that may call the API from a browser, such as `https://app.example.com`; none if it
    is empty."""
    max_concurrent_turns: PositiveInt = 32
    """Turns that one process runs at the same time."""
    max_concurrent_turns_per_tenant: PositiveInt | None = None
    """Turns of one tenant that run at the same time, over all processes; no limit if it is not
    set."""
    max_body_bytes: PositiveInt = 1_048_576
    """Bytes that the body of one request may have."""
    requests_per_minute: PositiveInt = 600
    """Requests that one key may make in a minute. A sixth of them, and ten at least, may come at
    once: 100 of 600."""
    max_connections: PositiveInt | None = None
    """HTTP connections that one process answers at the same time, each open stream one of them. If
    it is not set, half as many as the process may open descriptors, and 10000 at most."""
    max_connections_per_address: PositiveInt | None = None
    """The same for one address, or one /64 network of IPv6; half of `max_connections` if it is not
    set. Behind a reverse proxy all connections come from its address."""
    max_queued_messages: PositiveInt = 10_000
    """Messages of one tenant that may wait in the queue; further ones are refused."""
    retry_for: PositiveSeconds = 21_600.0
    """Seconds for which a turn is retried while the provider is away, overloaded or does not accept
    the key; after that its messages are dead letters. 21600 is six hours."""
    retain_for: dict[str, AgeOrForever] = Field(default_factory=dict[str, str])
    """By tenant, how long sessions are kept, in place of each agent's `session.retain_for`:
    `{acme: 30d, archive: forever}`."""
    shutdown_timeout: PositiveSeconds = 30.0
    """Seconds that running turns have to end when the server is stopped; another process, or the
    next start, continues the rest."""


class TelegramRuleSpec(ConfigBlock):
    """What holds for some of those who are answered."""

    who: ChatIdentity
    """An id of a user or a chat, an `@name`, or `"*"`; the first rule that matches holds."""
    groups: Literal["mention", "all", "off"] | None = None
    """In groups: when this sender is answered; as for all others where it is missing."""
    commands: tuple[str, ...] | None = None
    """Commands that are obeyed, without the slash: `[help, context]`; all where it is missing."""
    media: StrictFlag = True
    """Whether pictures and files are taken."""


class TelegramSpec(ConfigBlock):
    token: str
    """The bot's token from BotFather, as a reference: `${TELEGRAM_TOKEN}`."""
    webhook: str | None = None
    """The public address, `https://bots.example.com/telegram`, at which Telegram calls this
    server; if it is not set, the bot polls Telegram."""
    secret: str | None = None
    """The secret that Telegram sends with each webhook call, as a reference; needed with
    `webhook`."""
    allow: tuple[ChatIdentity, ...] = ()
    """Who is answered: ids of users or chats, or `@names`. Nobody where it is empty; `"*"` is
    everybody."""
    deny: tuple[ChatIdentity, ...] = ()
    """Who is not answered, whatever `allow` says."""
    groups: Literal["mention", "all", "off"] = "mention"
    """In groups: answer where the bot is named or replied to, answer everything, or nothing."""
    rules: tuple[TelegramRuleSpec, ...] = ()
    """What holds for single senders or chats, the first that matches."""
    max_file_bytes: PositiveInt = 4_194_304
    """Bytes that a picture or a file may have; of a larger one the model gets a note."""
    stream: StrictFlag = True
    """Show the reply while it is being written."""
    api: str = "https://api.telegram.org"
    """Where the Bot API is."""


class DiscordSpec(ConfigBlock):
    token: str
    """The bot's token from the developer portal, as a reference: `${DISCORD_TOKEN}`."""
    allow: tuple[ChatIdentity, ...] = ()
    """Who is answered: ids of users, channels or servers. Nobody where it is empty; `"*"` is
    everybody."""
    deny: tuple[ChatIdentity, ...] = ()
    """Who is not answered, whatever `allow` says."""
    threads: StrictFlag = True
    """Answer a mention in a channel in a thread of its own, which is then a session."""
    max_file_bytes: PositiveInt = 4_194_304
    """Bytes that a picture or a file may have; of a larger one the model gets a note."""
    api: str = "https://discord.com/api/v10"
    """Where Discord's API is."""


class ScheduleSpec(ConfigBlock):
    message: str
    """The message that the agent gets when the schedule is due."""
    cron: str | None = None
    """When, as minute, hour, day, month, weekday: `0 8 * * mon-fri`. Either this or `at`."""
    at: str | None = None
    """Once, at a date and time: `2027-01-31 08:00`. Either this or `cron`."""
    timezone: str = "UTC"
    """Whose clock is meant: `Europe/Zurich`."""
    session: str | None = None
    """The session it happens in; where it is missing, that of the chat that gets the result, or
    one of its own, `schedule:` and its name."""
    to: str | None = None
    """Who gets the result: `telegram:123456`, `discord:987654`; nobody but the log where it is
    missing."""
    catch_up: Literal["skip", "once", "all"] = "once"
    """What to do about runs that were missed because no server ran: `skip` them, run `once` for all
    of them, or run `all`."""
    catch_up_window: NonNegativeInt = 86_400
    """Seconds after which a missed run is skipped in any case."""


def parse_chat_address(address: str) -> tuple[str, int, int | None]:
    """The platform, the chat and its topic that `to` names. Raises `ValueError`."""
    found = _CHAT_ADDRESS.fullmatch(address.strip())
    if found is None or (found[1] == "discord" and found[3]):
        raise ValueError(
            f"{address[:60]!r} names no chat; it looks like telegram:123456, "
            "telegram:-1001234:7 for a "
            "topic of a group, or discord:987654 for a channel"
        )
    return found[1], int(found[2]), int(found[3]) if found[3] else None


Permission = Literal["allow", "ask", "deny"]


def _off_for_false(value: Any) -> Any:
    """YAML reads the word `off` as false."""
    return "off" if value is False else value


class ModelSpec(ConfigBlock):
    name: str
    """The model's name as its provider knows it."""
    provider: ProviderName | None = None
    """Who serves it; by the model's name where it is missing. `openai` is Chat Completions, and
    `openai_responses` its newer API; so are `azure` and `azure_responses`, which take the name of a
    deployment."""
    base_url: str | None = None
    """Where it is served, if not at the provider's own address; for `azure` the endpoint."""
    api_key: str | None = None
    """The key, as a reference: `${ANTHROPIC_API_KEY}`. The provider's usual variable where it is
    missing."""
    region: str | None = None
    """Where `bedrock` and `vertex` serve it: `eu-central-1`, `europe-west1`. AWS_REGION or
    CLOUD_ML_REGION where it is missing."""
    project: str | None = None
    """The project that `vertex` bills. ANTHROPIC_VERTEX_PROJECT_ID or GOOGLE_CLOUD_PROJECT where it
    is missing."""
    api_version: str | None = None
    """The version of the API that `azure` is asked for. OPENAI_API_VERSION where it is missing, and
    `2024-10-21` without it."""
    context_window: NonNegativeInt | None = None
    """Tokens of input and output together, where the catalog is wrong or does not know; 0 is not
    set."""
    max_input_tokens: PositiveInt | None = None
    """A limit of your own in place of the model's, below it (for cost) or above it (for custom
    models). Like `context_window` it is for input and requested output together, and it goes before
    it."""
    max_output_tokens: PositiveInt | None = None
    """Tokens of output to ask for, and to reserve."""
    cache: Annotated[CacheMarks | None, BeforeValidator(_off_for_false)] = None
    """How long the provider is asked to cache what was sent, where that can be said (Anthropic):
    `5m`, `1h`, or `off` to ask for nothing."""
    model_info: Annotated[
        str | dict[str, Any], AfterValidator(parse_nested_env_texts_as_scalars)
    ] = Field(default_factory=dict[str, Any])
    """What the model is, if its name does not tell: the name of one that `trimtab models` lists,
    for a deployment of another name, or values of your own for its entry, such as `max_output`."""
    params: Annotated[dict[str, Any], AfterValidator(parse_nested_env_texts_as_scalars)] = Field(
        default_factory=dict[str, Any]
    )
    """Further parameters of the request, passed on as they are: `temperature`, `thinking`, …"""
    timeout: PositiveSeconds = 600.0
    """Seconds that one call may take."""

    @property
    def base_model(self) -> str | None:
        """The catalog model that `model_info` names; None where the model's own name tells."""
        return parse_model_info(self.model_info).get("base_model")


class ToolContextSpec(ConfigBlock):
    max_tool_result_tokens: PositiveInt | None = None
    """Tokens that one result of this tool may take."""
    tool_result_truncation: ResultTruncation | None = None
    """What is kept of a result that is too long: its `head`, its `tail`, `both`, or a `summary`."""
    exempt: StrictFlag = False
    """No policy cuts or masks results of this tool; one that is larger than the room is still cut
    to fit."""


class ContextLimitsSpec(ConfigBlock):
    max_history_tokens: NonNegativeInt | None = None
    """Tokens of the history before the newest user message; 0 is no cap. 20,000 in `layered`, none
    elsewhere."""
    max_tool_result_tokens: PositiveInt | None = None
    """Tokens that one tool result may take. 8,000 in `layered` and `rolling`; in `auto` what the
    window has left, at least 8,000, or 4,000 for `cost`; `compact` cuts at 4,000 bytes,
    `thresholds` at 8,000 characters."""
    tool_result_truncation: ResultTruncation | None = None
    """What is kept of a result that is too long: its `head` (the default), its `tail`, `both`, or a
    `summary` that the model of `session.summary` writes before the result is first sent; where none
    may stand, the head. `auto` keeps both ends and what looks like errors unless it is set."""
    tool_result_keep_first: NonNegativeInt | None = None
    """First results that are never masked. 2 in `layered`, 0 elsewhere."""
    tool_result_keep_last: NonNegativeInt | None = None
    """Newest results that are never masked. 5 in `layered`, 6 in `compact`, 3 in `auto`. Both 0:
    nothing is masked."""
    keep: tuple[Annotated[str, Field(pattern=r"\S")], ...] = ()
    """Patterns of file names, such as `README*` or `*.toml`. A result of a call with an argument
    that matches one, whole or by its last part, is hidden after all other results."""
    max_context_bytes: PositiveInt | None = None
    """Bytes of messages above which `compact` turns old results into lines. 50,000; 30,000 for
    `cost` and 80,000 for `quality`."""
    max_request_bytes: PositiveInt | None = None
    """Bytes that a request may have as it is sent; above, older pictures and files are hidden.
    Where it is missing the provider's own limit, such as 32,000,000 for Claude."""
    max_pictures: PositiveInt | None = None
    """Pictures that a request may hold; above, older ones are hidden. Where it is missing the
    provider's own limit."""
    tools: dict[str, ToolContextSpec] = Field(default_factory=dict[str, ToolContextSpec])
    """By a tool's name: what differs for it."""


class SummarySpec(ConfigBlock):
    by: Literal["model", "extract"] | None = None
    """Who writes summaries: a model, or nobody, so that lines of what was said stand in. A model in
    `rolling` and `thresholds`, nobody in `auto`, which names what it hides."""
    model: str | None = None
    """The model that writes them, and those of single tool results; where it is missing the cheap
    one of the same maker, such as Haiku."""
    prompt: Annotated[str, Field(pattern=r"\S")] | None = None
    """What the model is to write, in your own words, in place of ours. That what it reads is data,
    the headings and the 300 tokens are told it beside them."""
    window: PositiveInt = ROLLING_WINDOW_MESSAGES
    """Messages above which `rolling` summarises the oldest."""
    keep: PositiveInt = DEFAULT_KEPT_MESSAGES
    """Newest messages that `rolling` keeps whole."""
    forced: PositiveInt = ROLLING_FORCED_MESSAGES
    """Messages at which `rolling` waits for nobody any more."""
    max_tokens: PositiveInt | None = None
    """Tokens that a summary may take, in every policy. Where it is missing 500, and in `auto` the
    names that it lists besides."""
    list_tokens: NonNegativeInt | None = None
    """Tokens that the list of names, figures and open questions beside it may take; 0 is no list.
    Where it is missing 8 % of what is replaced, from 500 to 4,000, and 500 at most where
    `max_tokens` is set; in `auto` as many as its other summaries have for names."""

    def policy_settings(self) -> dict[str, Any]:
        """What is set of it that a policy knows."""
        return self.model_dump(exclude_unset=True, exclude={"by", "model", "prompt"})


class ThresholdsSpec(ConfigBlock):
    summarise: Fraction = SUMMARISE_AT_SHARE
    """Share of the window in use above which `thresholds` summarises."""
    trim: Fraction = TRIM_AT_SHARE
    """Share of the window in use above which `thresholds` drops the oldest messages."""
    display: Fraction = 0.3
    """Share of the window in use above which the terminal shows the context bar."""
    keep: PositiveInt = DEFAULT_KEPT_MESSAGES
    """Newest messages that `thresholds` keeps whole."""

    def policy_settings(self) -> dict[str, Any]:
        """What is set of it that a policy knows."""
        return self.model_dump(exclude_unset=True, exclude={"display"})


class SessionSpec(ConfigBlock):
    store: str = "sessions"
    """A folder, beside the file, or a database: `${DATABASE_URL}`."""
    policy: PolicyName = DEFAULT_POLICY_NAME
    """When to hide, down to where, and what first."""
    goal: Goal = "balanced"
    """What the policy is tuned for: `cost`, `balanced` or `quality`."""
    recall: StrictFlag = True
    """Whether the model gets tools to look up what is hidden."""
    redact: tuple[str, ...] = ()
    """What is taken out of all that is said before it is kept: `secret`, `email`, `card`, `iban`,
    or regular expressions."""
    on_disconnect: Literal["pause", "continue"] = "pause"
    """What a turn does when the one who asked has gone: stop after this step, or finish."""
    on_message: Literal["steer", "queue"] = "steer"
    """What becomes of a message that comes while the agent is at work, when it is served: `steer`
    shows it to the model before its next step, `queue` answers it afterwards."""
    debounce: Annotated[
        float, Field(ge=0, le=60, strict=True), BeforeValidator(parse_env_text_as_scalar)
    ] = 0.0
    """Seconds without a further message that a served turn waits for before it begins; people
    write in pieces."""
    retain_for: Age | None = None
    """How long a served session is kept after its last event: hours, days or weeks, `90d`. The
    server then deletes it; nothing is deleted if it is not set."""
    max_tool_iterations: PositiveInt = MAX_TOOL_ITERATIONS
    """Replies with tool calls that one turn may have."""
    context: ContextLimitsSpec = ContextLimitsSpec()
    """What binds in every policy."""
    summary: SummarySpec = SummarySpec()
    """When `rolling` summarises, and how long a summary may be."""
    thresholds: ThresholdsSpec = ThresholdsSpec()
    """Where `thresholds` acts, and when the context bar is shown."""


class CostSpec(ConfigBlock):
    max_per_session: PositiveDollars | None = None
    """US dollars that one session may cost; no limit if it is not set."""
    max_per_tenant_per_day: PositiveDollars | None = None
    """US dollars that one tenant may spend with this agent in a day of UTC; no limit if it is not
    set."""
    max_per_day: PositiveDollars | None = None
    """US dollars that all tenants together may spend with this agent in a day of UTC; no limit if
    it is not set."""

    @property
    def ceilings(self) -> dict[str, float]:
        """Those that are set, by their names here."""
        return self.model_dump(exclude_none=True)


class CommonToolSpec(ConfigBlock):
    """What all tools have."""

    permission: Permission | None = None
    """What holds where no pattern below matches. `ask` for `shell` and `mcp`, `allow` for what you
    wrote yourself: `command` and `python`."""
    allow: tuple[str, ...] = ()
    """Patterns of calls that run without asking: `git status *`."""
    ask: tuple[str, ...] = ()
    """Patterns of calls that are asked about, even where `allow` matches."""
    deny: tuple[str, ...] = ()
    """Patterns of calls that never run, whatever else matches."""
    timeout: PositiveSeconds = 120.0
    """Seconds after which it is given up."""
    max_output_bytes: PositiveInt = 1_000_000
    """Bytes of a result that are kept; the rest is counted and thrown away as it comes."""
    on_interrupt: OnInterrupt = "report"
    """After a crash in the middle of it: `report` that its outcome is unknown, `rerun` it, or
    `ask`."""


class ProcessToolSpec(CommonToolSpec):
    cwd: str = "."
    """The folder it runs in, beside the file."""
    env: tuple[str, ...] | dict[str, str] = ()
    """What it sees of the environment besides PATH, HOME, LANG and the like: names, or names with
    values. Secrets are not inherited unless they are named here."""
    sandbox: Annotated[Literal["auto", "required", "off"], BeforeValidator(_off_for_false)] = "off"
    """Whether it runs in a sandbox by bubblewrap, in which it can write to `cwd` alone: `auto` if
    that works on this machine, `required` to refuse to start if it does not, or `off`."""
    sandbox_network: StrictFlag = False
    """Whether it reaches the network from its sandbox."""


class ShellToolSpec(ProcessToolSpec):
    """The model writes the command."""

    kind: Literal["shell"]
    """A shell."""
    description: str | None = None
    """What the model is told it is for; a good text where it is missing."""


class CommandToolSpec(ProcessToolSpec):
    """You write the command, the model fills in values."""

    kind: Literal["command"]
    """A command with places for values."""
    description: str
    """What the model is told it is for."""
    command: CommandArgv
    """The program and its arguments; `{name}` stands for a parameter. No shell reads it."""
    parameters: dict[str, dict[str, Any]] = Field(default_factory=dict[str, dict[str, Any]])
    """By name, the JSON Schema of each value: `path: {type: string}`."""
    optional: tuple[str, ...] = ()
    """Parameters that the model may leave out; an argument that holds one is then left out."""


class PythonToolSpec(CommonToolSpec):
    """A function of yours."""

    kind: Literal["python"]
    """A Python function, async or not."""
    function: str
    """`tools.py:weather`, beside the file, or `package.module:weather`. Its signature and docstring
    are what the model is told."""
    env: tuple[str, ...] | dict[str, str] = ()
    """What it finds in `os.environ` besides PATH, HOME, LANG and the like: names, or names with
    values. All functions of the process find it there."""


class McpToolSpec(CommonToolSpec):
    """All tools of an MCP server, each under `SERVER__TOOL`."""

    kind: Literal["mcp"]
    """An MCP server."""
    command: CommandArgv | None = None
    """The program that is started, with its arguments. Either this or `url`."""
    url: str | None = None
    """Where it is. Either this or `command`."""
    headers: dict[str, str] = Field(default_factory=dict[str, str])
    """Sent with each request to `url`."""
    cwd: str = "."
    """The folder it runs in, beside the file."""
    env: tuple[str, ...] | dict[str, str] = ()
    """What it sees of the environment, as with a shell."""
    only: tuple[str, ...] | None = None
    """The server's tools that the model gets; all where it is missing."""


AnyToolSpec = Annotated[
    ShellToolSpec | CommandToolSpec | PythonToolSpec | McpToolSpec, Field(discriminator="kind")
]


class AgentSpec(ConfigBlock):
    """An agent."""

    name: str = "agent"
    """What it is called, in lists and prompts."""
    model: ModelSpec
    """Who answers."""
    system: str | None = None
    """A Markdown file beside this one with the system prompt, `system.md`; or the prompt itself,
    which is anything with a space in it that does not end in `.md` or `.txt`."""
    session: SessionSpec = SessionSpec()
    """How it remembers."""
    cost: CostSpec = CostSpec()
    """What it may cost. A call that might cost more than is left is not made."""
    tools: dict[ToolName, AnyToolSpec] = Field(default_factory=dict[str, AnyToolSpec])
    """What it may do, by the name that the model uses."""
    serve: ServeSpec = ServeSpec()
    """How `trimtab serve` serves it."""
    telegram: TelegramSpec | None = None
    """A bot on Telegram."""
    discord: DiscordSpec | None = None
    """A bot on Discord."""
    schedules: dict[ToolName, ScheduleSpec] = Field(default_factory=dict[str, ScheduleSpec])
    """Messages that it gets at set times, by name."""
