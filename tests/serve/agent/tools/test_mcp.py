"""Tools of real MCP servers, over stdio and over HTTP."""

import asyncio
import os
import signal
import subprocess
import sys
from contextlib import asynccontextmanager

import pytest

from tests import warm
from tests.serve.agent.tools.mcp_servers import STDIO, Http
from tests.serve.agent.tools.test_process import alive, until
from tests.serve.agent.tools.toolboxes import Person, block, box, call, failure, invocation, text
from trimtab.engine.log.message import Media, Text
from trimtab_serve.agent.tools.permissions.rules import USER_REFUSED_TEXT
from trimtab_serve.agent.tools.tool_setting import UnusableToolError

pytestmark = [pytest.mark.anyio, pytest.mark.process]
OPEN = "echo the door is open >&2; "
BROKEN = ("sh", "-c", f"{OPEN} echo and nobody in >&2; exit 1")
SILENT = ("sh", "-c", f"{OPEN} sleep 1000")


@pytest.fixture(scope="module", autouse=True)
def forked():
    """A server takes a second to start from nothing."""
    with warm.starts():
        yield


@pytest.fixture(scope="module")
def http():
    made = Http()
    made.start()
    yield made
    made.close()


@pytest.fixture(params=["stdio", "http"])
def where(request):
    if request.param == "stdio":
        return {"command": STDIO}
    return {"url": request.getfixturevalue("http").url}


@asynccontextmanager
async def workshop(folder, person=None, **own):
    """The server's tools, by their own names."""
    async with box(folder, person or Person(), ws=block("mcp", **own)) as tools:
        yield {tool.name.partition("__")[2]: tool for tool in tools}


@pytest.fixture(scope="module", params=["stdio", "http"])
async def tools(request, tmp_path_factory):
    """One connection for all that leave it as it was."""
    at = {"command": STDIO} if request.param == "stdio" else {}
    if not at:
        at = {"url": request.getfixturevalue("http").url}
    folder = tmp_path_factory.mktemp("shared")
    async with workshop(folder, timeout=3, max_output_bytes=1_000, **at) as made:
        yield made


async def test_its_tools_are_offered_under_its_name_with_their_schemas(tools):
    add = tools["add"].definition
    assert add["name"] == "ws__add"
    assert add["description"] == "Add two numbers."
    assert add["input_schema"]["required"] == ["a", "b"]
    assert all(len(f"ws__{name}") <= 64 for name in tools)


async def test_a_call_gives_what_the_server_gives(tools):
    assert await call(tools["add"], a=1, b=2) == [Text(text="3")]
    assert await call(tools["structured"]) == [Text(text='{"depth": 3}')]
    (picture,) = await call(tools["picture"])
    assert isinstance(picture, Media)
    assert (picture.kind, picture.mime) == ("image", "image/png")
    assert text(await call(tools["mixed"])).splitlines() == [
        "three things",
        "[shop://a.txt]",
        "inside",
        "[shop://b.bin: x/y, 3 bytes, not shown]",
        "[link to plan: shop://plan.md (the plan)]",
        "[audio, audio/wav, 3 bytes, not shown]",
    ]


async def test_a_failure_is_marked_as_one(tools):
    assert "fail" in await failure(tools["fail"])
    assert "Field required" in await failure(tools["add"], a=1)


async def test_calls_run_side_by_side(tools):
    given = await asyncio.gather(*(call(tools["add"], a=n, b=n) for n in range(20)))
    assert [text(each) for each in given] == [str(2 * n) for n in range(20)]


async def test_a_text_is_capped_and_a_message_that_is_far_too_long_is_not_taken(tmp_path, where):
    async with workshop(tmp_path, max_output_bytes=1_000, **where) as tools:
        given = text(await call(tools["flood"], megabytes=2))
        assert "[… 1,999,000 bytes left out …]" in given
        said = await failure(tools["flood"], megabytes=20)
        assert "(a message of more than 16,000,000 bytes)" in said
        assert await call(tools["say"], text="and on") == [Text(text="and on")]


async def test_a_call_that_hangs_is_given_up_and_the_server_goes_on(tools):
    before = text(await call(tools["process"]))
    assert await failure(tools["hang"]) == "ws did not answer within 3 seconds"
    assert text(await call(tools["process"])) == before


async def test_a_cancelled_call_leaves_the_connection_usable(tools):
    hanging = asyncio.create_task(call(tools["hang"]))
    assert await call(tools["say"], text="meanwhile") == [Text(text="meanwhile")]
    hanging.cancel()
    with pytest.raises(asyncio.CancelledError):
        await hanging
    assert await call(tools["say"], text="after") == [Text(text="after")]


@pytest.mark.parametrize("code", [-32000, -32001, -1])
@pytest.mark.parametrize("message", ["row 17 is locked by anna", "Connection closed"])
async def test_an_error_of_the_server_is_told_in_its_words_whatever_its_code(tools, code, message):
    before = text(await call(tools["process"]))
    said = await failure(tools["refuse"], code=code, message=message)
    assert said == f"the server refused the call: {message}"
    assert text(await call(tools["process"])) == before


async def test_a_program_that_dies_in_mid_call_is_told_and_started_again(tmp_path):
    async with workshop(tmp_path, command=STDIO) as tools:
        first = text(await call(tools["process"]))
        assert await failure(tools["die"]) == (
            "the server ws was lost in the middle of the call (exit status 3); it is unknown "
            "whether the call had an effect. The next call starts it again.\n"
            "Last lines on stderr:\nworkshop is open\nthe floor gave way"
        )
        assert text(await call(tools["process"])) != first


async def test_one_that_dies_between_calls_is_started_again_unnoticed(tmp_path, monkeypatch):
    from trimtab_serve.agent.tools import mcp

    links: list[mcp.McpConnection] = []
    connect = mcp.McpServer._connect

    async def noted(server):
        links.append(await connect(server))
        return links[-1]

    monkeypatch.setattr(mcp.McpServer, "_connect", noted)
    async with workshop(tmp_path, command=STDIO) as tools:
        first = int(text(await call(tools["process"])))
        os.kill(first, signal.SIGKILL)
        await until(lambda: links[0].is_over)
        assert int(text(await call(tools["process"]))) != first


async def test_parallel_calls_are_all_told_and_one_start_serves_those_that_follow(tmp_path):
    async with workshop(tmp_path, command=STDIO) as tools:
        hanging = [asyncio.create_task(failure(tools["hang"])) for _ in range(3)]
        assert await call(tools["say"], text="ready") == [Text(text="ready")]
        await failure(tools["die"])
        for said in await asyncio.gather(*hanging):
            assert "was lost in the middle of the call" in said
        pids = await asyncio.gather(*(call(tools["process"]) for _ in range(3)))
        assert len({text(each) for each in pids}) == 1


async def test_a_server_at_an_address_that_dies_is_connected_to_again(tmp_path):
    http = Http()
    http.start()
    try:
        async with workshop(tmp_path, url=http.url) as tools:
            said = await failure(tools["die"])
            assert "was lost in the middle of the call" in said
            assert "The next call connects to it again." in said
            http.start()
            assert await call(tools["say"], text="back") == [Text(text="back")]
    finally:
        http.close()


async def test_one_that_stays_away_is_told_with_each_call(tmp_path):
    http = Http()
    http.start()
    async with workshop(tmp_path, url=http.url) as tools:
        http.close()
        await failure(tools["say"], text="x")
        said = await failure(tools["say"], text="x")
    assert said.startswith("the server was lost and could not be started again: tools.ws: http://")
    assert "did not answer as an MCP server: All connection attempts failed" in said


async def test_nothing_is_left_running_afterwards(tmp_path):
    async with workshop(tmp_path, command=STDIO) as tools:
        pid = int(text(await call(tools["process"])))
    assert not alive(pid)


async def test_a_server_gets_no_secrets_but_those_that_are_named(tmp_path, monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-secret")
    monkeypatch.setenv("DRAWER_KEY", "brass")
    async with workshop(tmp_path, command=STDIO, env=["DRAWER_KEY"]) as tools:
        names = text(await call(tools["environment"])).splitlines()
    assert "DRAWER_KEY" in names
    assert "ANTHROPIC_API_KEY" not in names


async def test_only_some_of_its_tools(tmp_path):
    async with workshop(tmp_path, command=STDIO, only=["say", "add"]) as tools:
        assert list(tools) == ["say", "add"]
    with pytest.raises(
        UnusableToolError, match="`only` lists 'sing', but the server has add, say, fail"
    ):
        async with workshop(tmp_path, command=STDIO, only=["sing"]):
            pass


async def test_permissions_see_the_tools_name_and_its_arguments(tmp_path):
    person = Person("no")
    rules = {"allow": ["ws__add *"], "deny": ["* text=*secret*"]}
    async with workshop(tmp_path, person, command=STDIO, **rules) as tools:

        async def permitted(name, **arguments):
            permit = tools[name].check_permission
            assert permit is not None
            return await permit(invocation(tools[name], arguments))

        assert await permitted("add", a=1, b=2) is None
        assert await permitted("fail") == USER_REFUSED_TEXT
        assert "denies it" in (await permitted("say", text="a-secret") or "")
        person.answer = "nobody"
        told = await permitted("fail") or ""
        assert told.startswith("[not run: ws__fail needs approval for this, and nobody can approve")
    assert [each.text for each in person.asked] == ["ws__fail", "ws__fail"]


@pytest.mark.parametrize(
    ("own", "said"),
    [
        (
            {"command": BROKEN},
            "by hand to see what it needs.\nLast lines on stderr:\nthe door is open\nand nobody in",
        ),
        ({"command": ["no-such-program"]}, "the program 'no-such-program' is not on the PATH"),
        ({"command": ["cat"]}, "cat did not start as an MCP server: Method not found"),
        (
            {"url": "http://127.0.0.1:9/mcp"},
            "http://127.0.0.1:9/mcp did not answer as an MCP server",
        ),
        ({"command": ["cat"], "cwd": "nowhere"}, "cwd 'nowhere' is not a folder"),
    ],
)
async def test_a_server_that_cannot_start_is_named_with_its_last_words(tmp_path, own, said):
    with pytest.raises(UnusableToolError) as raised:
        async with workshop(tmp_path, **own):
            pass
    assert str(raised.value).startswith("tools.ws: ")
    assert said in str(raised.value)


async def test_one_that_does_not_answer_is_not_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr("trimtab_serve.agent.tools.mcp.MCP_START_TIMEOUT_S", 2.0)
    with pytest.raises(UnusableToolError) as raised:
        async with workshop(tmp_path, command=SILENT):
            pass
    assert str(raised.value).endswith(
        " did not answer as an MCP server within 2 seconds; run the command by hand to see what it "
        "needs.\nLast lines on stderr:\nthe door is open"
    )


async def test_of_several_that_start_the_others_end_when_one_cannot(tmp_path):
    file = tmp_path / "pid"
    program = f"import os; open({str(file)!r}, 'w').write(str(os.getpid())); import runpy, sys; "
    program += f"sys.argv = ['x']; runpy.run_path({STDIO[1]!r}, run_name='__main__')"
    good = block("mcp", command=[sys.executable, "-c", program])
    bad = block("mcp", command=BROKEN)
    with pytest.raises(UnusableToolError, match=r"tools\.bad: "):
        async with box(tmp_path, good=good, bad=bad):
            pass
    assert not alive(int(file.read_text()))


def test_names_are_allowed_everywhere_and_unique():
    from trimtab_serve.agent.tools.mcp import assign_mcp_tool_names

    odd = ["read", "read file", "read/file", "x" * 80, "x" * 81]
    names = assign_mcp_tool_names("files", odd)
    assert names["read"] == "files__read"
    assert names["read file"] == "files__read_file"
    assert len(set(names.values())) == len(odd)
    assert all(len(name) <= 64 and name.replace("-", "_").isidentifier() for name in names.values())
    assert names == assign_mcp_tool_names("files", odd)


def test_without_the_package_the_way_to_get_it_is_said():
    code = (
        "import sys, asyncio, pathlib; sys.modules['mcp_types'] = None\n"
        "from trimtab_serve.agent.tools.tools_from_config import open_tools\n"
        "from trimtab_serve.agent.tools.permissions.rules import PermissionGate\n"
        "from trimtab_serve.agent.tools.permissions.rules import decline_unattended\n"
        "from trimtab_serve.agent.tools.tool_setting import ToolSetting\n"
        "from trimtab_serve.agent.config.spec import McpToolSpec\n"
        "async def main():\n"
        "    tools = {'ws': McpToolSpec(kind='mcp', command=('cat',))}\n"
        "    gate = PermissionGate(approve=decline_unattended)\n"
        "    folder = pathlib.Path('.')\n"
        "    setting = ToolSetting(folder=folder, gate=gate, environ={})\n"
        "    async with open_tools(tools, setting): pass\n"
        "asyncio.run(main())\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    last = ran.stderr.splitlines()[-1]
    assert last.endswith("tools.ws: mcp_types is not installed: pip install 'trimtab[mcp]'")


async def test_a_program_that_is_given_no_grace_is_fetched_all_the_same(tmp_path, monkeypatch):
    from trimtab_serve.agent.tools import mcp_transport

    async def cut_off(_):
        raise OSError("cut off")

    monkeypatch.setattr(mcp_transport, "_end", cut_off)
    life = mcp_transport.McpServerExitDetails()

    async def connect():
        command = ("sleep", "1000")
        async with mcp_transport.open_mcp_stdio(command, cwd=tmp_path, env=os.environ, state=life):
            pass

    with pytest.raises(ExceptionGroup):
        await connect()
    assert life.process is not None
    assert life.process.returncode == -signal.SIGKILL
