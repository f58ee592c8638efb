"""What may stand in `agent.yaml`, with its defaults. The reference in the docs is made from it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from trimtab.agent.block import Argv, Block, Count, Flag, Seconds, Share, Tokens, ToolName
from trimtab.agent.doors import Discord, Schedule, Serve, Telegram
from trimtab.agent.references import typed, typed_within
from trimtab.catalog import CacheMarks
from trimtab.core.policies import DEFAULT, PolicyName
from trimtab.core.policies.knobs import (
    FORCED,
    KEEP,
    SUMMARISE_AT,
    TRIM_AT,
    WINDOW,
    Goal,
    Truncation,
)
from trimtab.providers.choose import ProviderName
from trimtab.session.tools import OnInterrupt
from trimtab.session.turn import MAX_TOOL_ITERATIONS

Permission = Literal["allow", "ask", "deny"]


def _off(value: Any) -> Any:
    """YAML reads the word `off` as false."""
    return "off" if value is False else value


class Model(Block):
    name: str
    """The model's name as its provider knows it."""
    provider: ProviderName | None = None
    """Who serves it; by the model's name where it is missing. `openai` is Chat Completions, and
    `openai_responses` its newer API."""
    base_url: str | None = None
    """Where it is served, if not at the provider's own address."""
    api_key: str | None = None
    """The key, as a reference: `${ANTHROPIC_API_KEY}`. The provider's usual variable where it is
    missing."""
    context_window: Count | None = None
    """Tokens of input and output together, where the catalog is wrong or does not know; 0 is not
    set."""
    max_input_tokens: Tokens | None = None
    """A limit of your own in place of the model's, below it (for cost) or above it (for custom
    models). Like `context_window` it is for input and requested output together, and it goes before
    it."""
    max_output_tokens: Tokens | None = None
    """Tokens of output to ask for, and to reserve."""
    cache: Annotated[CacheMarks | None, BeforeValidator(_off)] = None
    """How long the provider is asked to cache what was sent, where that can be said (Anthropic):
    `5m`, `1h`, or `off` to ask for nothing."""
    params: Annotated[dict[str, Any], AfterValidator(typed_within)] = Field(
        default_factory=dict[str, Any]
    )
    """Further parameters of the request, passed on as they are: `temperature`, `thinking`, …"""
    timeout: Seconds = 600.0
    """Seconds that one call may take."""


class ToolContext(Block):
    max_tool_result_tokens: Tokens | None = None
    """Tokens that one result of this tool may take."""
    tool_result_truncation: Truncation | None = None
    """What is kept of a result that is too long: its `head`, its `tail`, `both`, or a `summary`."""
    exempt: Flag = False
    """No policy cuts or masks results of this tool; one that is larger than the room is still cut
    to fit."""


class Context(Block):
    max_history_tokens: Count | None = None
    """Tokens of the history before the newest user message; 0 is no cap. 20,000 in `layered`, none
    elsewhere."""
    max_tool_result_tokens: Tokens | None = None
    """Tokens that one tool result may take. 8,000 in `layered` and `rolling`; in `auto` what the
    window has left, at least 8,000, or 4,000 for `cost`; `compact` cuts at 4,000 bytes,
    `thresholds` at 8,000 characters."""
    tool_result_truncation: Truncation | None = None
    """What is kept of a result that is too long: its `head` (the default), its `tail`, `both`, or a
    `summary` that the model of `session.summary` writes before the result is first sent; where none
    may stand, the head. `auto` keeps both ends and what looks like errors unless it is set."""
    tool_result_keep_first: Count | None = None
    """First results that are never masked. 2 in `layered`, 0 elsewhere."""
    tool_result_keep_last: Count | None = None
    """Newest results that are never masked. 5 in `layered`, 6 in `compact`, 3 in `auto`. Both 0:
    nothing is masked."""
    keep: tuple[Annotated[str, Field(pattern=r"\S")], ...] = ()
    """Patterns of file names, such as `README*` or `*.toml`. A result of a call with an argument
    that matches one, whole or by its last part, is hidden after all other results."""
    max_context_bytes: Tokens | None = None
    """Bytes of messages above which `compact` turns old results into lines. 50,000; 30,000 for
    `cost` and 80,000 for `quality`."""
    tools: dict[str, ToolContext] = Field(default_factory=dict[str, ToolContext])
    """By a tool's name: what differs for it."""


class Summary(Block):
    by: Literal["model", "extract"] | None = None
    """Who writes summaries: a model, or nobody, so that lines of what was said stand in. A model in
    `rolling` and `thresholds`, nobody in `auto`, which names what it hides."""
    model: str | None = None
    """The model that writes them, and those of single tool results; where it is missing the cheap
    one of the same maker, such as Haiku."""
    prompt: Annotated[str, Field(pattern=r"\S")] | None = None
    """What the model is to write, in your own words, in place of ours. That what it reads is data,
    the headings and the 300 tokens are told it beside them."""
    window: Tokens = WINDOW
    """Messages above which `rolling` summarises the oldest."""
    keep: Tokens = KEEP
    """Newest messages that `rolling` keeps whole."""
    forced: Tokens = FORCED
    """Messages at which `rolling` waits for nobody any more."""
    max_tokens: Tokens | None = None
    """Tokens that a summary may take, in every policy. Where it is missing 500, and in `auto` the
    names that it lists besides."""
    list_tokens: Count | None = None
    """Tokens that the list of names, figures and open questions beside it may take; 0 is no list.
    Where it is missing 8 % of what is replaced, from 500 to 4,000, and 500 at most where
    `max_tokens` is set; in `auto` as many as its other summaries have for names."""

    def knobs(self) -> dict[str, Any]:
        """What is set of it that a policy knows."""
        return self.model_dump(exclude_unset=True, exclude={"by", "model", "prompt"})


class Thresholds(Block):
    summarise: Share = SUMMARISE_AT
    """Share of the window in use above which `thresholds` summarises."""
    trim: Share = TRIM_AT
    """Share of the window in use above which `thresholds` drops the oldest messages."""
    display: Share = 0.3
    """Share of the window in use above which the terminal shows the context bar."""
    keep: Tokens = KEEP
    """Newest messages that `thresholds` keeps whole."""

    def knobs(self) -> dict[str, Any]:
        """What is set of it that a policy knows."""
        return self.model_dump(exclude_unset=True, exclude={"display"})


class Session(Block):
    store: str = "sessions"
    """A folder, beside the file, or a database: `${DATABASE_URL}`."""
    policy: PolicyName = DEFAULT
    """When to hide, down to where, and what first."""
    goal: Goal = "balanced"
    """What the policy is tuned for: `cost`, `balanced` or `quality`."""
    recall: Flag = True
    """Whether the model gets tools to look up what is hidden."""
    redact: tuple[str, ...] = ()
    """What is taken out of all that is said before it is kept: `secret`, `email`, `card`, `iban`,
    or regular expressions."""
    on_disconnect: Literal["pause", "continue"] = "pause"
    """What a turn does when the one who asked has gone: stop after this step, or finish."""
    on_message: Literal["steer", "queue"] = "steer"
    """What becomes of a message that comes while the agent is at work, when it is served: `steer`
    shows it to the model before its next step, `queue` answers it afterwards."""
    debounce: Annotated[float, Field(ge=0, le=60, strict=True), BeforeValidator(typed)] = 0.0
    """Seconds without a further message that a served turn waits for before it begins; people
    write in pieces."""
    max_tool_iterations: Tokens = MAX_TOOL_ITERATIONS
    """Replies with tool calls that one turn may have."""
    context: Context = Context()
    """What binds in every policy."""
    summary: Summary = Summary()
    """When `rolling` summarises, and how long a summary may be."""
    thresholds: Thresholds = Thresholds()
    """Where `thresholds` acts, and when the context bar is shown."""


class Common(Block):
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
    timeout: Seconds = 120.0
    """Seconds after which it is given up."""
    max_output_bytes: Tokens = 1_000_000
    """Bytes of a result that are kept; the rest is counted and thrown away as it comes."""
    on_interrupt: OnInterrupt = "report"
    """After a crash in the middle of it: `report` that its outcome is unknown, `rerun` it, or
    `ask`."""


class Process(Common):
    cwd: str = "."
    """The folder it runs in, beside the file."""
    env: tuple[str, ...] | dict[str, str] = ()
    """What it sees of the environment besides PATH, HOME, LANG and the like: names, or names with
    values. Secrets are not inherited unless they are named here."""


class ShellTool(Process):
    """The model writes the command."""

    kind: Literal["shell"]
    """A shell."""
    description: str | None = None
    """What the model is told it is for; a good text where it is missing."""


class CommandTool(Process):
    """You write the command, the model fills in values."""

    kind: Literal["command"]
    """A command with places for values."""
    description: str
    """What the model is told it is for."""
    command: Argv
    """The program and its arguments; `{name}` stands for a parameter. No shell reads it."""
    parameters: dict[str, dict[str, Any]] = Field(default_factory=dict[str, dict[str, Any]])
    """By name, the JSON Schema of each value: `path: {type: string}`."""
    optional: tuple[str, ...] = ()
    """Parameters that the model may leave out; an argument that holds one is then left out."""


class PythonTool(Common):
    """A function of yours."""

    kind: Literal["python"]
    """A Python function, async or not."""
    function: str
    """`tools.py:weather`, beside the file, or `package.module:weather`. Its signature and docstring
    are what the model is told."""
    env: tuple[str, ...] | dict[str, str] = ()
    """What it finds in `os.environ` besides PATH, HOME, LANG and the like: names, or names with
    values. All functions of the process find it there."""


class McpTool(Common):
    """All tools of an MCP server, each under `SERVER__TOOL`."""

    kind: Literal["mcp"]
    """An MCP server."""
    command: Argv | None = None
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


AnyTool = Annotated[ShellTool | CommandTool | PythonTool | McpTool, Field(discriminator="kind")]


class Spec(Block):
    """An agent."""

    name: str = "agent"
    """What it is called, in lists and prompts."""
    model: Model
    """Who answers."""
    system: str | None = None
    """A Markdown file beside this one with the system prompt, `system.md`; or the prompt itself,
    which is anything with a space in it that does not end in `.md` or `.txt`."""
    session: Session = Session()
    """How it remembers."""
    tools: dict[ToolName, AnyTool] = Field(default_factory=dict[str, AnyTool])
    """What it may do, by the name that the model uses."""
    serve: Serve = Serve()
    """How `trimtab serve` serves it."""
    telegram: Telegram | None = None
    """A bot on Telegram."""
    discord: Discord | None = None
    """A bot on Discord."""
    schedules: dict[ToolName, Schedule] = Field(default_factory=dict[str, Schedule])
    """What it is told at set times, by name."""
