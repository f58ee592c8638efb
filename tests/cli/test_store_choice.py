"""Which store a command works on where --store is not typed, and which session may be meant."""

import asyncio

import pytest
from typer.testing import CliRunner

from tests.conversations import said, user
from trimtab.cli.app import app
from trimtab.cli.store_command import MAX_SUGGESTED_SESSIONS
from trimtab.integrations.session_ids import make_session_id
from trimtab.session import Session
from trimtab.stores.files import FileStore

AGENT = "model:\n  name: gpt-5\nsession:\n  store: mystore\n"


def trimtab(*arguments, **env):
    env = {"TRIMTAB_STORE": "", "COLUMNS": "120", **env}
    return CliRunner().invoke(app, [*map(str, arguments)], env=env)


def fill(root, *ids):
    async def make():
        store = FileStore(root, fsync=False)
        for one in ids:
            talk = await Session.create(store, one, model="gpt-4o", dialect="openai_chat")
            await talk.add(user("Hello."))
            await talk.request()
            await talk.add(said("Good morning."))
            await talk.close()
        await store.close()

    asyncio.run(make())


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder of one's own, with three stores in it."""
    monkeypatch.chdir(tmp_path)
    for name in ("mystore", "sessions", "other"):
        fill(tmp_path / name, f"in-{name}")
    return tmp_path


def write(folder, text):
    (folder / "agent.yaml").write_text(text, encoding="utf-8")


def listed(*arguments, **env):
    """The one session that is listed."""
    done = trimtab("session", "list", *arguments, **env)
    assert done.exit_code == 0, done.output
    return done.stdout.splitlines()[-2].split()[0]


def test_the_store_is_the_typed_one_else_the_environments_else_the_agents(folder):
    assert listed() == "in-sessions"
    write(folder, AGENT)
    assert listed() == "in-mystore"
    assert listed(TRIMTAB_STORE="other") == "in-other"
    assert listed("--store", "sessions", TRIMTAB_STORE="other") == "in-sessions"


@pytest.mark.parametrize("agent", [AGENT, None])
def test_where_there_are_no_sessions_yet_the_first_step_is_named(tmp_path, monkeypatch, agent):
    monkeypatch.chdir(tmp_path)
    if agent is not None:
        write(tmp_path, agent)
    done = trimtab("session", "list")
    place = "mystore" if agent else "./sessions"
    assert done.exit_code == 2
    start = f"trimtab: there are no sessions here yet: {place} does not exist; `trimtab chat`"
    assert done.stderr.startswith(start)


def test_an_agent_that_names_no_store_has_its_sessions_beside_it(folder):
    write(folder, "model:\n  name: gpt-5\n")
    assert listed() == "in-sessions"


def test_the_agents_store_may_come_from_the_environment(folder):
    write(folder, "session:\n  store: ${PLACE}\n")
    assert listed(PLACE="other") == "in-other"


def test_schedules_are_looked_for_in_the_agents_store(folder):
    write(folder, AGENT)
    assert "no schedules in mystore; write" in trimtab("schedule", "list").stderr


def test_a_hint_names_the_store_only_where_it_must(folder):
    write(folder, AGENT)
    show = ("session", "show")
    assert "show in-mystore --call last\n" in trimtab(*show, "in-mystore").stdout
    typed = trimtab(*show, "in-sessions", "--store", "sessions").stdout
    assert "show in-sessions --call last --store sessions\n" in typed


def test_a_file_that_is_broken_elsewhere_stops_nobody(folder):
    write(folder, "modle: 7\nmodel:\n  api_key: ${NOT_SET}\nsession:\n  store: mystore\n")
    assert listed() == "in-mystore"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("session:\n  store: ${PLACE}\n", "refers to ${PLACE}, which is not set; run"),
        ("session: {store: mystore\n", "is not closed, or a comma is missing; or name"),
    ],
)
def test_a_store_that_the_file_does_not_tell_can_be_typed(folder, text, why):
    write(folder, text)
    done = trimtab("session", "list")
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.startswith("trimtab: agent.yaml, line ")
    assert why in done.stderr
    assert done.stderr.endswith("; or name the place of the sessions with --store\n")
    assert listed("--store", "other") == "in-other"


def test_the_name_of_a_served_session_is_answered_with_its_ids(tmp_path):
    ids = [f"default/{agent}/first" for agent in ("a", "b", "c", "d")]
    fill(tmp_path, ids[0], "default/a/at-first")
    one = trimtab("session", "show", "first", "--store", tmp_path)
    assert one.exit_code == 2
    assert one.stderr == (
        "trimtab: there is no session 'first'; did you mean default/a/first? `trimtab session "
        "list` shows all\n"
    )
    fill(tmp_path, *ids[1:])
    many = trimtab("session", "export", "first", "--store", tmp_path)
    assert f"did you mean {' or '.join(ids[:MAX_SUGGESTED_SESSIONS])}? `trimtab" in many.stderr


def test_the_id_of_a_framework_s_conversation_is_answered_with_its_session(tmp_path):
    session = make_session_id("Ann, 42")
    fill(tmp_path, session)
    done = trimtab("session", "show", "Ann, 42", "--store", tmp_path)
    assert f"did you mean {session}?" in done.stderr


def test_a_damaged_log_does_not_hide_that_a_session_is_not_there(tmp_path):
    fill(tmp_path, "broken")
    log = tmp_path / "broken" / "events.jsonl"
    first, *rest = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join([first, b"what?\n", *rest]))
    done = trimtab("session", "show", "first", "--store", tmp_path)
    assert (done.exit_code, done.stderr) == (
        2,
        "trimtab: there is no session 'first'; `trimtab session list` shows all\n",
    )
