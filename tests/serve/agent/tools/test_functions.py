"""Python functions as tools."""

import asyncio
import threading

import pytest

from tests.serve.agent.tools.toolboxes import Person, block, box, call, failure, invocation
from trimtab.engine.log.message import Media, Text
from trimtab_serve.agent.tools.tool_setting import UnusableToolError

pytestmark = pytest.mark.anyio

KNOWN = "place, span, unit, mode, tags, limit, wish, share, copy"
FILE = '''
from __future__ import annotations

import asyncio, enum, threading, time
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Annotated, Literal, Optional

from pydantic import BaseModel, Field
from typing_extensions import TypedDict
from trimtab.engine.log.message import Media, Text
from trimtab.session.tools import ToolInvocation

let_go = threading.Event()
seen = []


class Unit(enum.Enum):
    C = "celsius"
    F = "fahrenheit"


@dataclass
class Place:
    city: str
    country: str = "NO"


class Span(TypedDict):
    days: int


class Wish(BaseModel):
    what: str
    often: int = 1


def weather(
    place: Place,
    span: Span,
    unit: Unit = Unit.C,
    mode: Literal["short", "long"] = "short",
    tags: list[str] = [],
    limit: Optional[int] = None,
    wish: Wish | None = None,
    share: Annotated[float, Field(ge=0, le=1, description="Between 0 and 1.")] = 0.5,
    copy: bool = False,
) -> str:
    """The weather at a place.

    It is usually raining.
    """
    return repr((place, span, unit, mode, tags, limit, wish, share, copy))


def keyed(text: str, invocation: ToolInvocation) -> str:
    return f"{text} {invocation.key}"


def untyped(a, b=2): return a + b
async def later(n: int) -> int:
    await asyncio.sleep(0)
    return n + 1


def in_thread() -> bool: return threading.current_thread() is not threading.main_thread()
def hangs(): let_go.wait(); seen.append("ended")
async def waits(): await asyncio.Event().wait()
def raises(): raise LookupError("no such drawer")
def stops(): raise StopIteration
def leaves(): raise SystemExit(3)
def times_out(): raise TimeoutError("the far end is slow")


def gives(kind: str):
    return {
        "none": None, "text": "text", "empty": "", "number": 3, "list": [1, "ä"],
        "bytes": b"\\x00" * 40,
        "date": {"day": date(2026, 1, 2), "path": Path("a/b")}, "place": Place("Oslo"),
        "wish": Wish(what="s"), "object": object, "part": Text(text="part"),
        "parts": [Text(text="one"), Media(kind="image", mime="image/png", data="AAAA")],
        "long": "x" * 5000, "nan": float("nan"), "no parts": [],
    }[kind]


def any_number(*args: int): ...
def no_name(a: int, /): ...
def strange(a: threading.Thread): ...
def forward(a: Nowhere): ...
not_a_function = 3
'''


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "tools.py").write_text(FILE)
    return tmp_path


def one(folder, name, **own):
    return box(folder, tool=block("python", function=f"tools.py:{name}", **own))


async def test_the_signature_is_the_schema_and_the_docstring_the_description(folder):
    async with one(folder, "weather") as (tool,):
        definition = tool.definition
    assert definition["description"] == "The weather at a place.\n\nIt is usually raining."
    schema = definition["input_schema"]
    assert schema["required"] == ["place", "span"]
    assert schema["properties"]["mode"] == {
        "type": "string",
        "enum": ["short", "long"],
        "default": "short",
    }
    assert schema["properties"]["share"]["description"] == "Between 0 and 1."
    assert schema["properties"]["unit"]["default"] == "celsius"
    assert schema["properties"]["tags"] == {
        "type": "array",
        "items": {"type": "string"},
        "default": [],
    }
    assert schema["$defs"]["Place"]["required"] == ["city"]


async def test_arguments_are_read_into_the_types_of_the_signature(folder):
    async with one(folder, "weather") as (tool,):
        said = await call(
            tool,
            place={"city": "Oslo"},
            span={"days": "3"},
            unit="fahrenheit",
            limit="4",
            wish={"what": "s"},
            copy=True,
        )
    assert said == (
        "(Place(city='Oslo', country='NO'), {'days': 3}, <Unit.F: 'fahrenheit'>, 'short', [], 4, "
        "Wish(what='s', often=1), 0.5, True)"
    )


async def test_all_that_is_wrong_is_told_at_once_and_nobody_is_asked(folder):
    person = Person()
    weather = block("python", function="tools.py:weather", permission="ask")
    wrong = {"place": {"country": 3}, "mode": "loud", "share": 2, "oops": 1}
    async with box(folder, person, tool=weather) as (tool,):
        said = await failure(tool, **wrong)
        assert tool.check_permission is not None
        assert await tool.check_permission(invocation(tool, wrong)) == said
    assert said.splitlines() == [
        "invalid arguments:",
        "- place.city: Field required",
        "- place.country: Input should be a valid string",
        "- mode: Input should be 'short' or 'long'",
        "- share: Input should be less than or equal to 1",
        f"- unknown parameter oops; the parameters are {KNOWN}",
        "- span: missing",
    ]
    assert person.asked == []


async def test_a_parameter_of_the_invocations_type_gets_it_and_the_model_does_not_see_it(folder):
    async with one(folder, "keyed") as (tool,):
        assert set(tool.definition["input_schema"]["properties"]) == {"text"}
        assert await call(tool, text="key:") == "key: s/0/m1.0/a"


async def test_functions_without_types_and_async_ones_work(folder):
    async with one(folder, "untyped") as (tool,):
        assert await call(tool, a=1) == "3"
    async with one(folder, "later") as (tool,):
        assert await call(tool, n=1) == "2"
    async with one(folder, "in_thread") as (tool,):
        assert await call(tool) == "true"


@pytest.mark.parametrize(
    ("kind", "shown"),
    [
        ("none", "[done, no value]"),
        ("text", "text"),
        ("empty", "[an empty text]"),
        ("number", "3"),
        ("list", '[1,"ä"]'),
        ("no parts", "[]"),
        ("bytes", "[binary output, 40 bytes, of an unknown kind: not shown]"),
        ("date", '{"day":"2026-01-02","path":"a/b"}'),
        ("place", '{"city":"Oslo","country":"NO"}'),
        ("wish", '{"what":"s","often":1}'),
        ("object", "\"<class 'object'>\""),
        ("nan", "NaN"),
        ("part", [Text(text="part")]),
        ("parts", [Text(text="one"), Media(kind="image", mime="image/png", data="AAAA")]),
    ],
)
async def test_what_it_gives_becomes_text_json_or_parts(folder, kind, shown):
    async with one(folder, "gives") as (tool,):
        assert await call(tool, kind=kind) == shown


async def test_what_it_gives_is_capped(folder):
    async with one(folder, "gives", max_output_bytes=100) as (tool,):
        said = await call(tool, kind="long")
    assert said == f"{'x' * 50}\n[… 4,900 bytes left out …]\n{'x' * 50}"


async def test_one_that_hangs_is_given_up_and_does_not_keep_the_process(folder):
    async with one(folder, "hangs", timeout=0.1) as (tool,):
        said = await failure(tool)
    assert said == (
        "tool was given up after 0.1 seconds; the function cannot be stopped and may still be "
        "running"
    )
    left = [each for each in threading.enumerate() if each.name == "trimtab-tool"]
    assert left
    assert all(each.daemon for each in left)
    async with one(folder, "waits", timeout=0.1) as (tool,):
        assert await failure(tool) == "tool was given up after 0.1 seconds"


@pytest.mark.parametrize(
    ("name", "kind", "said"),
    [
        ("raises", LookupError, "no such drawer"),
        ("stops", RuntimeError, "StopIteration"),
        ("leaves", RuntimeError, "SystemExit"),
        ("times_out", TimeoutError, "the far end is slow"),
    ],
)
async def test_what_it_raises_comes_out(folder, name, kind, said):
    async with one(folder, name) as (tool,):
        with pytest.raises(kind, match=said):
            await asyncio.wait_for(call(tool), 10)


async def test_two_tools_of_one_file_share_it(folder):
    (folder / "state.py").write_text("n = []\ndef put(x: int): n.append(x)\ndef all(): return n\n")
    made = [block("python", function=f"state.py:{name}") for name in ("put", "all")]
    async with box(folder, put=made[0], all=made[1]) as (put, everything):
        await call(put, x=1)
        assert await call(everything) == "[1]"


async def test_a_function_of_a_package_and_of_a_module_beside_the_file(folder):
    (folder / "beside_the_file.py").write_text("def say(): return 'beside'\n")
    (folder / "uses.py").write_text(
        "import beside_the_file\ndef say(): return beside_the_file.say()\n"
    )
    for where in ("beside_the_file:say", "uses.py:say"):
        async with box(folder, tool=block("python", function=where)) as (tool,):
            assert await call(tool) == "beside"
    async with box(folder, tool=block("python", function="os.path:basename")) as (tool,):
        assert await call(tool, p="a/b") == "b"


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("tools.py", ": write `file.py:name` or `package.module:name`"),
        ("tools.py:", ": write `file.py:name` or `package.module:name`"),
        ("nowhere.py:f", "the file .*nowhere.py does not exist; create it, or correct `function`"),
        ("broken.py:f", "broken.py failed to load: SyntaxError"),
        (
            "raising.py:f",
            "raising.py failed to load, on line 2: KeyError: 'X'; correct it",
        ),
        ("reading.py:f", "reading.py failed to load: .*data.csv"),
        ("no_such_package_here:f", "failed to load: ModuleNotFoundError"),
        ("tools.py:wether", "has no function 'wether'; it has weather, keyed, "),
        ("tools.py:not_a_function", "has no function 'not_a_function'"),
        ("tools.py:any_number", r"\*args: .*int.* is not supported; declare every parameter"),
        ("tools.py:no_name", "a is positional-only; remove the `/` after it"),
        ("tools.py:strange", "the type of a has no JSON form"),
        (
            "tools.py:forward",
            "the function's signature cannot be read: name 'Nowhere' is not defined",
        ),
    ],
)
async def test_what_cannot_be_a_tool_is_said_at_the_start(folder, function, said):
    (folder / "broken.py").write_text("def f(:\n")
    (folder / "raising.py").write_text("import os\nos.environ.copy().pop('X' * 1)\n")
    (folder / "reading.py").write_text("open('/nowhere/data.csv')\n")
    with pytest.raises(UnusableToolError, match=f"(?s)^tools.tool: .*{said}"):
        async with box(folder, tool=block("python", function=function)):
            pass


NEEDY = """
import os
{top}
def ask() -> str:
    '''Ask the service.'''
    return os.environ["SERVICE_KEY"]
"""
FIX = "SERVICE_KEY is withheld from tools; to pass it on, write `env: [SERVICE_KEY]` in agent.yaml"


async def test_a_function_finds_what_its_block_names_and_is_told_about_what_it_does_not(
    tmp_path, monkeypatch
):
    kept = {"SERVICE_KEY": "brass"}
    monkeypatch.setattr("trimtab_serve.agent.environment._withheld", kept)
    (tmp_path / "asks.py").write_text(NEEDY.format(top=""), encoding="utf-8")
    (tmp_path / "needs.py").write_text(NEEDY.format(top="os.environ['SERVICE_KEY']"), "utf-8")
    async with box(tmp_path, environ=kept, ask=block("python", function="asks.py:ask")) as (ask,):
        assert await failure(ask) == f"ask failed: {FIX}"
    with pytest.raises(UnusableToolError, match=r"needs\.py failed to load") as refused:
        async with box(tmp_path, environ=kept, ask=block("python", function="needs.py:ask")):
            pass
    assert str(refused.value).endswith(FIX)
    # So that it is gone again after the test.
    monkeypatch.setenv("SERVICE_KEY", "")
    monkeypatch.delenv("SERVICE_KEY")
    named = block("python", function="needs.py:ask", env=["SERVICE_KEY"])
    async with box(tmp_path, environ=kept, ask=named) as (ask,):
        assert await call(ask) == "brass"
