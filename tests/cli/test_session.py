"""`trimtab session`, on files."""

import asyncio
import json
import re
import sys
import time
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tests.cli.long_conversation import HIDDEN, TURNS, answer, session
from tests.conversations import calls, prose, result, ticking, user
from tests.pictures import PNG_TEXT, png
from trimtab import Context
from trimtab.cli.session.display import print_session_list, print_session_view
from trimtab.cli.session.view_data import build_session_view, collect_calls
from trimtab.engine.log.event import dump_canonical_json
from trimtab.engine.log.redaction import redactor
from trimtab.session import Session
from trimtab.stores.base import SessionListEntry
from trimtab.stores.files import FileStore


@pytest.mark.slow
def test_a_past_request_is_printed_byte_for_byte_as_it_was_returned(kept):
    assert len(kept.requests) == 2 * TURNS
    for seq, made in list(kept.requests.items())[::7]:
        assert answer("show", "alpha", "--call", seq, "--json", store=kept.root) == made


def test_the_conversation_knows_edits(kept):
    seen = json.loads(answer("show", "alpha", "--json", "--last", 200, store=kept.root))
    ops = {op for call in seen["last_calls"] for op in call["edits"]}
    assert {"mask", "summarise", "drop"} <= ops
    assert [call["call"] for call in seen["last_calls"]] == list(kept.requests)
    assert seen["events"] == kept.events


def test_calls_are_counted_from_the_last(kept):
    *_, before, last = kept.requests.values()
    assert answer("show", "alpha", "--call", "last", "--json", store=kept.root) == last
    assert answer("show", "alpha", "--call", "last-1", "--json", store=kept.root) == before


def test_a_past_request_is_shown_whole_with_its_check(kept):
    seq = list(kept.requests)[3]
    told = answer("show", "alpha", "--call", seq, store=kept.root)
    assert told.startswith(f"call {seq} ")
    assert "exactly as sent: rebuilt from the log, SHA-256" in told
    for text in ("Be careful.", "Question 1: where is symbol_1?", "src/file_1.py", PROSE_END):
        assert text in told


PROSE_END = prose(1_500, "symbol_1 ")[-60:]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (
            "2",
            r"event 2 is not a call of session 'alpha', which has \d+ events; nearest calls: ",
        ),
        ("99999", r"there is no event 99999 of session 'alpha', which has \d+ events; nearest"),
        ("soon", r"invalid call 'soon': use a position"),
        ("last-500", r"there is no call last-500: session 'alpha' has 80 calls"),
    ],
)
def test_a_call_that_is_none_says_which_are(kept, call, said):
    done = session("show", "alpha", "--call", call, "--json", store=kept.root)
    assert (done.exit_code, done.stdout) == (2, "")
    assert re.match(f"trimtab: {said}", done.stderr)


def test_the_list_has_numbers_ages_and_parents(kept):
    told = answer("list", store=kept.root).splitlines()
    assert told[0].split() == ["session", "events", "messages", "updated", "forked", "from"]
    assert told[2].split()[:2] == ["alpha", str(kept.events)]
    assert "ago" in told[2]
    assert told[3].split()[0] == "beta"
    assert told[3].split()[-1] == "alpha"


def test_the_list_goes_page_by_page(kept):
    first = json.loads(answer("list", "--json", "--limit", 1, store=kept.root))
    assert ([s["session"] for s in first["sessions"]], first["after"]) == (["alpha"], "alpha")
    rest = json.loads(answer("list", "--json", "--after", "alpha", store=kept.root))
    assert ([s["session"] for s in rest["sessions"]], rest["after"]) == (["beta"], None)
    told = answer("list", "--limit", 1, store=kept.root)
    assert "more: trimtab session list --after alpha --store" in told
    assert answer("list", "--after", "beta", store=kept.root) == "no sessions after 'beta'\n"


def test_a_session_is_shown_with_its_bar_its_messages_and_its_calls(kept):
    told = answer("show", "alpha", store=kept.root)
    assert "Context Usage" in told
    assert "Free space:" in told
    assert re.search(r"The model sees \d+ of 160 messages; 1 more was undone\.", told)
    assert re.search(r"  summarised  \d+ messages, ~[\d,]+ tokens less: m2-m\d+", told)
    assert f"symbol_{TURNS - 1} is in src/file_{TURNS - 1}.py." in told
    assert f"\n {list(kept.requests)[-1]}  " in told
    assert "the last 10 of 80 calls" in told
    assert "trimtab session show alpha --call last --store" in told


def test_the_list_and_a_session_agree_about_its_messages(kept):
    row, *_ = json.loads(answer("list", "--json", store=kept.root))["sessions"]
    seen = json.loads(answer("show", "alpha", "--json", store=kept.root))
    assert (seen["said"], seen["undone"]) == (160, 1)
    assert row["messages"] == seen["said"] + seen["undone"]


def test_a_call_without_a_reply_is_waited_for_only_while_one_may_come(tmp_path):
    async def make():
        store, began = FileStore(tmp_path, fsync=False), time.time()
        for name, ago in (("new", 60), ("old", 7_200)):
            clock = ticking(began - ago)
            talk = await Session.create(store, name, model="gpt-4o", clock=clock)
            await talk.add(user("One."))
            await talk.request()
            await talk.add(user("Two."))
            await talk.request()
            await talk.close()
        await store.close()

    asyncio.run(make())
    new = answer("show", "new", store=tmp_path)
    assert (new.count("no reply: interrupted"), new.count("no reply yet")) == (1, 1)
    old = answer("show", "old", store=tmp_path)
    assert (old.count("no reply: interrupted"), old.count("no reply yet")) == (2, 0)


@pytest.mark.parametrize("width", [80, 120])
def test_what_is_shown_fits_a_terminal(kept, width):
    async def look():
        return await build_session_view(FileStore(kept.root), "alpha", 10)

    console = Console(width=width, force_terminal=True, record=True, file=StringIO())
    with console.file:
        print_session_view(asyncio.run(look()), console, [])
        one = SessionListEntry(
            session="x" * 36,
            position=1_234_567,
            messages=612_345,
            updated=0,
            active=0,
            parent="y" * 36,
        )
        print_session_list([one], console)
        plain = console.export_text(clear=False)
    assert max(len(line) for line in plain.splitlines()) <= width
    assert "m" in plain


def test_a_pipe_gets_no_colours(kept):
    for arguments in (["list"], ["show", "alpha"], ["why", "alpha", "m4"]):
        assert "\x1b" not in answer(*arguments, store=kept.root)


def test_why_says_since_when_by_what_and_shows_it(kept):
    told = answer("why", "alpha", "m2", store=kept.root)
    told_first = "m2 is in the context, in the list of the user's earlier messages.\n  since: "
    assert told.startswith(told_first)
    assert re.search(r"  by: event \d+, an edit\n  reason: \S", told)
    assert "  its text, 30 characters:\n  │ Question 0: where is symbol_0?" in told


def test_why_is_told_to_programs(kept):
    told = json.loads(answer("why", "alpha", "m2", "--json", store=kept.root))
    assert (told["handle"], told["state"]) == ("m2", "listed")
    assert told["event"] > 2
    assert "Question 0" in told["text"]


def test_what_is_in_the_context_is_said_to_be_there(kept):
    last = json.loads(answer("show", "alpha", "--json", store=kept.root))["messages"][-1]["handle"]
    assert answer("why", "alpha", last, store=kept.root).startswith(
        f"{last} is in the context, in full."
    )


def test_what_a_rewind_undid_names_the_rewind(kept):
    lines = (Path(kept.root) / "alpha" / "events.jsonl").read_text(encoding="utf-8").splitlines()
    undone = next(seq for seq, line in enumerate(lines, 1) if "Never mind." in line)
    told = answer("why", "alpha", f"m{undone}", store=kept.root)
    assert told.startswith(f"m{undone} is not in the context: a rewind has undone it.")
    assert f"by: event {undone + 1}, a rewind\n" in told
    assert "│ Never mind." in told


@pytest.mark.parametrize("handle", ["m1", "m99999", "m2.7"])
def test_a_handle_that_names_nothing_is_refused(kept, handle):
    for command in ("why", "recall", "erase"):
        done = session(command, "alpha", handle, store=kept.root)
        assert done.exit_code == 2
        assert f"there is no {handle}" in done.stderr


def test_a_handle_that_is_none_says_how_they_look(kept):
    done = session("why", "alpha", "12", store=kept.root)
    assert (done.exit_code, done.stderr) == (
        2,
        "trimtab: '12' is not a handle; handles look like m12.0, m12 or m3-m50\n",
    )


def test_search_finds_what_is_hidden_and_recall_prints_it(kept):
    told = answer("search", "alpha", "the-vault-code", "4711", store=kept.root)
    handle = told.partition(":")[0]
    assert HIDDEN in told
    assert answer("recall", "alpha", handle, store=kept.root) == prose(1_500, f"symbol_2 {HIDDEN}")


def test_recall_tells_of_a_picture_and_writes_it_to_a_file(tmp_path):
    async def keep() -> str:
        store = FileStore(str(tmp_path / "store"))
        made = await Session.create(store, "shots", model="claude-sonnet-4-5")
        source = {"type": "base64", "media_type": "image/png", "data": PNG_TEXT}
        said = {"role": "user", "content": [{"type": "image", "source": source}]}
        handle = await made.add(said)
        await made.close()
        await store.close()
        return f"{handle}.0"

    handle, root = asyncio.run(keep()), str(tmp_path / "store")
    told = answer("recall", "shots", handle, store=root)
    assert told.startswith(f"[image/png, {len(png()):,} bytes, 1 × 1 pixels")
    assert PNG_TEXT not in told
    out = tmp_path / "shot.png"
    assert f"{len(png()):,} bytes" in answer("recall", "shots", handle, "-o", out, store=root)
    assert out.read_bytes() == png()


def test_a_search_without_a_match_says_so(kept):
    done = session("search", "alpha", "xylophone", store=kept.root)
    assert (done.exit_code, done.stdout) == (
        1,
        "nothing in alpha matches 'xylophone'; words match by their beginning\n",
    )


def test_functions_of_the_callers_own_are_not_needed(tmp_path):
    def mine(window, budget):
        from trimtab.engine.policy.planning.plan import Decision

        return Decision()

    async def make():
        store = FileStore(tmp_path, fsync=False)
        own: dict[str, Any] = {"policy": mine, "tokenizer": len, "redact": redactor("email")}
        talk = await Session.create(store, "own", model="gpt-4o", **own)
        await talk.add(user("hello"))
        made = dump_canonical_json(await talk.request())
        await store.close()
        return made

    made = asyncio.run(make())
    assert answer("show", "own", "--call", "last", "--json", store=tmp_path) == made
    assert "hello" in answer("show", "own", store=tmp_path)
    assert "in the context" in answer("why", "own", "m2", store=tmp_path)
    answer("fork", "own", "twin", store=tmp_path)
    answer("erase", "own", "m2", "--yes", store=tmp_path)


@pytest.mark.parametrize(
    "arguments",
    [
        ["show"],
        ["show", "--call", "last"],
        ["export"],
        ["delete", "--yes"],
        ["search", "word"],
        ["recall", "m2"],
        ["why", "m2"],
        ["erase", "m2"],
        ["fork", "new"],
    ],
)
def test_a_session_that_is_not_there_is_one_line(kept, arguments):
    command, *rest = arguments
    done = session(command, "nobody", *rest, store=kept.root)
    assert (done.exit_code, done.stdout, done.stderr) == (
        2,
        "",
        "trimtab: there is no session 'nobody'; `trimtab session list` shows all\n",
    )


def test_a_store_that_is_not_there_says_how_to_name_one(tmp_path):
    done = session("list", store=tmp_path / "none")
    assert done.exit_code == 2
    assert "does not exist; set the folder of the sessions with --store" in done.stderr


def test_a_damaged_log_and_a_newer_snapshot_are_one_line_each(own):
    (own / "alpha" / "state.yaml").write_text(
        "version: 99\nseq: 3\nspans: []\n...\n", encoding="utf-8"
    )
    done = session("show", "alpha", store=own)
    assert done.exit_code == 2
    assert "upgrade trimtab to open this session" in done.stderr
    (own / "alpha" / "state.yaml").unlink()
    log = own / "alpha" / "events.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join([*lines[:5], b"what?\n", *lines[6:]]))
    done = session("show", "alpha", store=own)
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.startswith("trimtab: ")


def test_without_psycopg_it_says_what_to_install(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("trimtab.stores.postgres")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    done = session("list", store="postgresql://nobody@127.0.0.1:1/none")
    assert (done.exit_code, done.stderr) == (
        2,
        "trimtab: PostgreSQL needs two more packages: pip install 'trimtab[postgres]'\n",
    )


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("postgresql://nobody:hush@127.0.0.1:1/none", "cannot be reached"),
        ("postgresql://nobody@[::1", "address cannot be read"),
    ],
)
def test_a_database_that_is_not_there_is_one_line_without_its_password(place, said):
    done = session("list", store=place)
    assert done.exit_code == 2
    assert said in done.stderr
    assert "hush" not in done.output


def test_what_a_tool_printed_does_not_reach_the_terminal_as_commands(tmp_path):
    async def make():
        store = FileStore(tmp_path, fsync=False)
        talk = await Session.create(store, "x", model="gpt-4o")
        await talk.add(user("a\x1b[2Jb\u202ec\ud800"))
        await talk.request()
        await store.close()

    asyncio.run(make())
    for arguments in (["show", "x"], ["why", "x", "m2"]):
        assert r"a\x1b[2Jb\u202ec\ud800" in answer(*arguments, store=tmp_path)
    # The last was sent as UTF-8 can say it.
    sent = answer("show", "x", "--call", "last", store=tmp_path)
    assert "a\\x1b[2Jb\\u202ec\ufffd" in sent


def test_each_call_says_how_long_it_and_the_tools_before_it_took():
    """So that somebody sees why a session is slow."""
    now = [0.0]
    context = Context("gpt-4o", clock=lambda: now[0])
    context.add(user("go"))
    context.request()
    now[0] = 3.0
    reply = calls("a")
    usage = {"prompt_tokens": 10, "completion_tokens": 5}
    context.add({"choices": [{"message": reply, "finish_reason": "tool_calls"}], "usage": usage})
    now[0] = 10.0
    context.add(result("a", "done"))
    now[0] = 11.0
    context.request()
    first, second = collect_calls(context.events)
    assert (first.tools_s, first.took_s) == (None, 3.0)
    assert (second.tools_s, second.took_s) == (7.0, None)
