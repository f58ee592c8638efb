"""Mistakes with tools."""

from __future__ import annotations

from tests.mistakes.mistake import AGENT, NOBODY, Mistake

HELLO = 'trimtab chat "hello"'


def tool(block: str) -> str:
    return f"{AGENT}tools:\n{block}"


def python(function: str) -> str:
    return tool(f"  weather:\n    kind: python\n    function: {function}\n")


def unusable(
    name: str, what: str, files: dict[str, str], *names: str, types: str = HELLO
) -> Mistake:
    return Mistake(name=name, what=what, types=types, files=files, status=2, names=names)


def calls(name: str, **arguments: str) -> dict[str, object]:
    return {"calls": [{"name": name, "arguments": arguments}]}


def command(*argv: str, more: str = "") -> str:
    argv_text = ", ".join(f'"{each}"' for each in argv)
    return tool(
        f"  look:\n    kind: command\n    description: Look.\n    command: [{argv_text}]\n{more}"
    )


TOOLS = (
    unusable(
        "program-not-found",
        "The program of a tool is not installed.",
        {"agent.yaml": command("pyton3", "-V")},
        "tools.look",
        "pyton3",
    ),
    unusable(
        "function-file-missing",
        "The file of a tool is not there.",
        {"agent.yaml": python("tool.py:weather")},
        "tools.weather",
        "tool.py",
    ),
    unusable(
        "function-missing",
        "The file of a tool has no such function.",
        {
            "agent.yaml": python("tools.py:wether"),
            "tools.py": 'def weather(city: str) -> str:\n    """The weather."""\n    return city\n',
        },
        "wether",
        "weather",
    ),
    unusable(
        "function-file-raises",
        "The file of a tool needs a package that is not installed.",
        {"agent.yaml": python("tools.py:weather"), "tools.py": "import metereology\n"},
        "tools.py",
        "metereology",
    ),
    unusable(
        "function-with-any-number-of-values",
        "The function of a tool takes any number of values, and the model needs a name for each.",
        {
            "agent.yaml": python("tools.py:weather"),
            "tools.py": 'def weather(*cities: str):\n    """The weather."""\n    return cities\n',
        },
        "weather",
        "cities",
    ),
    unusable(
        "mcp-server-does-not-start",
        "The program that is to be an MCP server is none.",
        {
            "agent.yaml": tool(
                "  files:\n    kind: mcp\n    command: [sh, -c, 'echo no config >&2; exit 3']\n"
            )
        },
        "tools.files",
        "exit status 3",
        "no config",
    ),
    unusable(
        "mcp-address-dead",
        "Nobody listens at the address of an MCP server.",
        {"agent.yaml": tool("  files:\n    kind: mcp\n    url: NOBODY/mcp\n")},
        "tools.files",
        f"{NOBODY}/mcp",
    ),
    Mistake(
        name="tool-hangs",
        what="A tool waits for ever.",
        types=HELLO,
        files={"agent.yaml": command("sleep", "1000", more="    timeout: 0.5\n")},
        says=[calls("look"), "It did not answer."],
        status=0,
        names=["0.5 seconds", "timeout"],
    ),
    Mistake(
        name="tool-floods",
        what="A tool prints more than anybody can read.",
        types=HELLO,
        files={
            "agent.yaml": command("seq", "1", "200000", more="    max_output_bytes: 2000\n"),
        },
        says=[calls("look"), "There are many."],
        status=0,
        names=["2.0 kB", "max_output_bytes"],
    ),
    Mistake(
        name="tool-denied",
        what="The model wants what is denied.",
        types=HELLO,
        files={"agent.yaml": tool('  shell:\n    kind: shell\n    deny: ["rm *"]\n')},
        says=[calls("shell", command="rm -r sessions"), "I may not."],
        status=0,
        names=["shell", "rm -r sessions", "rm *"],
    ),
    Mistake(
        name="nobody-to-ask",
        what="A tool asks first, and there is no terminal.",
        types=HELLO,
        files={"agent.yaml": tool("  shell:\n    kind: shell\n")},
        says=[calls("shell", command="git push"), "Not done."],
        status=0,
        names=["shell", "git push", "allow"],
    ),
    Mistake(
        name="too-many-rounds",
        what="The model calls a tool again and again.",
        types=HELLO,
        files={"agent.yaml": command("date", "-Iseconds") + "session:\n  max_tool_iterations: 2\n"},
        says=[calls("look")] * 3,
        status=1,
        names=["2 rounds", "max_tool_iterations"],
    ),
)
