"""Commands with places for values, which no shell reads."""

import json
import sys

import pytest

from tests.serve.agent.tools.toolboxes import Person, block, box, call, failure, invocation
from trimtab_serve.agent.tools.tool_setting import UnusableToolError

pytestmark = pytest.mark.anyio
SHOW = (sys.executable, "-c", "import sys, json; print(json.dumps(sys.argv[1:]))")
TEXT = {"type": "string"}


def showing(*arguments: str, **own):
    """A command that prints the arguments it got."""
    return block("command", description="Shows.", command=(*SHOW, *arguments), **own)


async def got(tmp_path, tool, **values):
    async with box(tmp_path, show=tool) as (show,):
        return json.loads(await call(show, **values))


@pytest.mark.process
async def test_values_are_filled_in_and_no_shell_reads_them(tmp_path):
    tool = showing("--", "{a}", "x={b}", parameters={"a": TEXT, "b": TEXT})
    values = {"a": "$(rm -rf /); `id` && *", "b": 'it\'s "here" {a}'}
    assert await got(tmp_path, tool, **values) == ["--", values["a"], f"x={values['b']}"]


@pytest.mark.process
async def test_numbers_truth_and_lists_become_arguments(tmp_path):
    kinds = {"n": "integer", "f": "number", "yes": "boolean"}
    parameters = {name: {"type": kind} for name, kind in kinds.items()}
    tool = showing(
        "{n}", "{f}", "--all={yes}", "--tag={tags}", "end",
        parameters={**parameters, "tags": {"type": "array", "items": TEXT}},
    )  # fmt: skip
    values = {"n": -3, "f": 0.5, "yes": True, "tags": ["a", "-b"]}
    assert await got(tmp_path, tool, **values) == [
        "-3",
        "0.5",
        "--all=true",
        "--tag=a",
        "--tag=-b",
        "end",
    ]


@pytest.mark.process
async def test_an_argument_without_its_value_is_left_out(tmp_path):
    tool = showing("a", "--x={x}", "b", parameters={"x": TEXT}, optional=["x"])
    assert await got(tmp_path, tool) == ["a", "b"]
    assert await got(tmp_path, tool, x=None) == ["a", "b"]
    assert await got(tmp_path, tool, x="1") == ["a", "--x=1", "b"]


@pytest.mark.process
async def test_braces_that_name_nothing_are_left_alone(tmp_path):
    tool = showing("{print $1}", "{}", '{"a": "{x}"}', parameters={"x": TEXT})
    assert await got(tmp_path, tool, x="1") == ["{print $1}", "{}", '{"a": "1"}']


@pytest.mark.process
async def test_a_value_does_not_become_an_option_unless_a_double_dash_stands_before(tmp_path):
    parameters = {"path": TEXT}
    async with box(tmp_path, show=showing("{path}", parameters=parameters)) as (show,):
        said = await failure(show, path="--output=/etc/passwd")
    assert said.startswith("path may not begin with a dash, which the program would read as an op")
    assert "./--output" in said
    for before in (("--", "{path}"), ("--file={path}",)):
        values = await got(tmp_path, showing(*before, parameters=parameters), path="-x")
        assert values[-1].endswith("-x")


@pytest.mark.parametrize(
    ("schema", "value", "said"),
    [
        (TEXT, 3, "x must be of type string, not 3"),
        ({"type": "integer"}, "3", "x must be of type integer, not '3'"),
        ({"type": "integer"}, True, "x must be of type integer, not True"),
        ({"type": "boolean"}, 1, "x must be of type boolean, not 1"),
        ({"enum": ["a", "b"]}, "c", "x must be one of a, b, not 'c'"),
        ({"pattern": "^[a-z]+$"}, "A", "x must match ^[a-z]+$, not 'A'"),
        ({"minLength": 2}, "a", "x must have at least 2 characters, not 1"),
        ({"maxLength": 2}, "abc", "x must have at most 2 characters, not 3"),
        ({"type": "number", "minimum": 1}, 0.5, "x must be at least 1, not 0.5"),
        ({"type": "number", "maximum": 1}, 2, "x must be at most 1, not 2"),
        (
            {"type": "array", "items": TEXT},
            ["a", 1],
            "x has an item that must be of type string, not 1",
        ),
        (TEXT, "a\0b", "a value contains a NUL character, which is not allowed in an argument"),
    ],
)
async def test_a_value_that_does_not_fit_is_told_to_the_model(tmp_path, schema, value, said):
    async with box(tmp_path, show=showing("{x}", parameters={"x": schema})) as (show,):
        assert await failure(show, x=value) == said


async def test_missing_and_unknown_values_are_told_without_asking(tmp_path):
    person = Person()
    tool = showing("{x}", parameters={"x": TEXT}, permission="ask")
    async with box(tmp_path, person, show=tool) as (show,):
        assert await failure(show) == "missing: x"
        assert await failure(show, x="a", y="b") == "unknown parameter y; the parameters are x"
        assert show.check_permission is not None
        assert await show.check_permission(invocation(show, {})) == "missing: x"
    assert person.asked == []


async def test_it_runs_without_asking_and_patterns_see_its_values(tmp_path):
    tool = showing("{path}", parameters={"path": TEXT}, deny=["path=/etc/*"])
    async with box(tmp_path, show=tool) as (show,):
        assert show.check_permission is not None
        assert await show.check_permission(invocation(show, {"path": "notes.txt"})) is None
        denied = await show.check_permission(invocation(show, {"path": "/etc/passwd"}))
    assert denied is not None
    assert "'path=/etc/*' denies it" in denied


@pytest.mark.parametrize(
    ("own", "said"),
    [
        ({"command": ["{x}"], "parameters": {"x": TEXT}}, "the program itself cannot be"),
        ({"command": ["no-such-program"]}, "'no-such-program' is not on the PATH; install"),
        ({"command": ["./run.sh"]}, "run.sh is not a program; correct the path, or make"),
        ({"command": ["ls", "{x}"]}, r"command uses \{x\}, but parameters has none; add it there"),
        ({"command": ["ls"], "parameters": {"x": TEXT}}, r"command does not use \{x\}; add it"),
        ({"command": ["ls"], "optional": ["y"]}, "optional lists 'y', but parameters has none"),
        (
            {"command": ["ls", "{x}"], "parameters": {"x": {"oneOf": []}}},
            "parameters.x: 'oneOf' would not be checked; a command supports enum, items",
        ),
        (
            {
                "command": ["ls", "{x}{y}"],
                "parameters": {"x": {"type": "array"}, "y": {"type": "array"}},
            },
            "contains two lists; write a separate argument for each",
        ),
    ],
)  # fmt: skip
async def test_a_block_that_cannot_work_is_refused_at_the_start(tmp_path, own, said):
    with pytest.raises(UnusableToolError, match=f"^tools.broken: .*{said}"):
        async with box(tmp_path, broken=block("command", description="Broken.", **own)):
            pass
