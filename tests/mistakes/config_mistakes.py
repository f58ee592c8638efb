"""Mistakes in agent.yaml."""

from __future__ import annotations

from tests.mistakes.mistake import AGENT, Mistake

HELLO = 'trimtab chat "hello"'


def wrong(name: str, what: str, text: str, *names: str) -> Mistake:
    return Mistake(
        name=name, what=what, types=HELLO, files={"agent.yaml": text}, status=2, names=names
    )


FILES = (
    Mistake(
        name="no-agent-file",
        what="There is no agent.yaml here.",
        types="trimtab chat",
        files={},
        status=2,
        names=["agent.yaml"],
    ),
    Mistake(
        name="agent-is-a-folder",
        what="The folder is named where the file is meant.",
        types='trimtab chat --agent helper "hello"',
        files={"helper/agent.yaml": AGENT},
        status=2,
        names=["helper/agent.yaml"],
    ),
    wrong("empty-file", "agent.yaml is empty.", "", "agent.yaml"),
    wrong(
        "tabs",
        "A line is indented with a tab.",
        "name: helper\nmodel:\n\tname: claude-sonnet-4-6\n",
        "line 3",
        "tab",
    ),
    wrong(
        "no-space-after-a-colon",
        "There is no space after a colon.",
        "name: helper\nmodel:\n  name:claude-sonnet-4-6\n",
        "line 3",
    ),
    wrong(
        "misspelt-name",
        "The name of a setting is misspelt.",
        AGENT + "session:\n  polcy: layered\n",
        "line 7",
        "polcy",
        "policy",
    ),
    wrong(
        "misspelt-value",
        "The name of a policy is misspelt.",
        AGENT + "session:\n  policy: layred\n",
        "line 7",
        "layred",
        "layered",
    ),
    wrong(
        "wrong-type",
        "A number is written in words, another in quotes.",
        AGENT
        + 'session:\n  max_tool_iterations: many\n  context:\n    max_history_tokens: "20000"\n',
        "line 7",
        "line 9",
        "max_tool_iterations",
    ),
    wrong(
        "setting-in-the-wrong-block",
        "A setting of the session stands in the block of the model.",
        AGENT.replace(
            "  base_url: SIMULATOR/v1\n", "  base_url: SIMULATOR/v1\n  policy: layered\n"
        ),
        "line 5",
        "session",
    ),
    wrong(
        "model-is-missing",
        "No model is named.",
        "name: helper\nsystem: You are a helper.\n",
        "model",
    ),
    wrong(
        "written-twice",
        "A block stands in the file twice.",
        AGENT + "model:\n  name: gpt-5-mini\n",
        "line 6",
        "model",
    ),
    wrong(
        "system-prompt-missing",
        "The file with the system prompt is not there.",
        AGENT.replace("You are a helper.", "sytem.md"),
        "sytem.md",
    ),
    wrong(
        "variable-not-set",
        "The file refers to an environment variable that is not set.",
        AGENT.replace(
            "  base_url: SIMULATOR/v1\n", "  base_url: SIMULATOR/v1\n  api_key: ${MY_KEY}\n"
        ),
        "MY_KEY",
        "line 5",
    ),
    wrong(
        "two-kinds-of-one-tool",
        "A tool has the settings of two kinds.",
        AGENT + "tools:\n  date:\n    kind: shell\n    function: tools.py:today\n",
        "tools.date",
        "function",
    ),
    wrong(
        "unknown-kind-of-tool",
        "The kind of a tool is none of ours.",
        AGENT + "tools:\n  date:\n    kind: bash\n",
        "tools.date",
        "bash",
        "shell",
    ),
    wrong(
        "tool-without-a-kind",
        "The kind of a tool is missing.",
        AGENT + "tools:\n  date:\n    command: [date]\n",
        "tools.date",
        "kind",
    ),
)

ASKED_OF_THE_MODEL = (
    wrong(
        "params-that-are-settings",
        "A parameter is given that has a setting of its own.",
        AGENT.replace("system:", "  params:\n    max_tokens: 500\nsystem:"),
        "model.params.max_tokens",
        "max_output_tokens",
    ),
    wrong(
        "more-output-than-the-model-writes",
        "More output is asked for than the model can write.",
        "model:\n  name: gpt-4o\n  max_output_tokens: 50000\n",
        "50,000",
        "gpt-4o",
        "16,384",
    ),
)
