"""Files in which a newcomer gets a tool wrong, each with all that is said about it."""

from tests.serve.agent.config_files import TOOLS
from tests.snapshots import snapshot

WRONG_TOOLS = {
    "a command as one text": (
        TOOLS + "  log: {kind: command, description: x, command: git log -5}\n",
        snapshot(
            'agent.yaml, line 4, column 49: tools.log.command is "git log -5"; it must be '
            'a list of one or more texts; write ["git", "log", "-5"]'
        ),
    ),
    "an empty command": (
        TOOLS + "  log: {kind: command, description: x, command: []}\n",
        snapshot(
            "agent.yaml, line 4, column 49: tools.log.command is an empty list; it must be "
            "a list of one or more texts"
        ),
    ),
    "tools as a list": (
        TOOLS + "  - shell\n",
        snapshot(
            "agent.yaml, line 4, column 3: tools is a list; it must be names with a block "
            "of settings each; write each tool's name with a `:` and its settings indented "
            "below, without dashes"
        ),
    ),
    "a tool as one word": (
        TOOLS + "  sh: shell\n",
        snapshot(
            'agent.yaml, line 4, column 7: tools.sh is "shell"; it must be a block of '
            "settings; write `kind: shell` on a separate line, indented below `sh:`"
        ),
    ),
    "a tool without a kind": (
        TOOLS + "  weather:\n    function: tools.py:weather\n",
        snapshot(
            "agent.yaml, line 4, column 3: tools.weather.kind is missing; write `kind:` "
            "with one of command, mcp, python, schedule, shell; it looks like `kind: python`"
        ),
    ),
    "a tool with nothing but its name": (
        TOOLS + "  shell:\n",
        snapshot(
            "agent.yaml, line 4, column 3: tools.shell.kind is missing; write `kind:` with "
            "one of command, mcp, python, schedule, shell; it looks like `kind: shell`"
        ),
    ),
    "a tool with a type": (
        TOOLS + "  shell:\n    type: shell\n",
        snapshot(
            "agent.yaml, line 4, column 3: tools.shell.kind is missing; the setting for the "
            "type of a tool is called `kind`, not `type`"
        ),
    ),
    "a kind by another name": (
        TOOLS + "  shell:\n    kind: bash\n",
        snapshot(
            'agent.yaml, line 5, column 11: tools.shell.kind is "bash"; did you mean '
            "shell? Choose one of command, mcp, python, schedule, shell"
        ),
    ),
    "a tool's name with a space": (
        TOOLS + "  run tests:\n    kind: shell\n",
        snapshot(
            'agent.yaml, line 4, column 3: tools."run tests" is not a valid name for a tool; '
            "begin with a letter, and use letters, digits, _ and -, at most 48 characters"
        ),
    ),
    "a command without what it needs": (
        TOOLS + "  grep:\n    kind: command\n",
        snapshot(
            "agent.yaml has 2 problems:\n  line 4, column 3: tools.grep.description is "
            "missing; write a text: the description that the model reads\n  line 4, column 3: "
            "tools.grep.command is missing; write a list of one or more texts: the program and "
            "its arguments. `{name}` is replaced by a parameter"
        ),
    ),
    "a parameter without a schema": (
        TOOLS + "  a: {kind: command, description: x, command: ['{b}'], parameters: {b: string}}\n",
        snapshot(
            'agent.yaml, line 4, column 72: tools.a.parameters.b is "string"; it must be '
            "names with values; write {type: string}"
        ),
    ),
    "a server that is nowhere": (
        TOOLS + "  files:\n    kind: mcp\n",
        snapshot(
            "agent.yaml, line 4, column 3: tools.files needs `command`, the program to start, "
            "or `url`, the address of the server"
        ),
    ),
    "a server in two places": (
        TOOLS + "  files: {kind: mcp, url: 'https://example.com', command: [x]}\n",
        snapshot(
            "agent.yaml, line 4, column 3: tools.files has both `command` and `url`; keep one "
            "of them"
        ),
    ),
    "an empty variable of a tool": (
        TOOLS + "  shell:\n    kind: shell\n    env:\n      TOKEN:\n",
        snapshot(
            "agent.yaml, line 7, column 13: tools.shell.env.TOKEN is empty; it must be a text"
        ),
    ),
}
