"""Each program of `examples/` runs, offline, and ends with the line that it promises."""

import asyncio
import os
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest

from tests import warm
from tests.stores import places
from trimtab.testing import serve_simulated_provider

pytestmark = pytest.mark.process

FOLDER = Path(__file__).parents[2] / "examples"
STARTERS = FOLDER / "starters"
LAST_LINES = {
    "01_three_lines_anthropic.py": "It steers the rudder, and the rudder steers the ship.",
    "02_openai_chat.py": "10 calls, 0 refused",
    "03_own_policy.py": "2 of 3 results are hidden",
    "04_tools_and_turns.py": r"There are 12 ropes\. \(3 model calls\)",
    "05_durable_session_files.py": r"Ada\. \(4 messages seen\)",
    "06_recall_hidden_text.py": r"recall m\d+\.0 returns all \d+ characters",
    "07_summaries_by_a_model.py": "24 messages were said, the model sees at most 15: True",
    "08_replay_your_logs.py": "the tight policy sends fewer, and costs more: True",
    "09_agent_yaml.py": r"Deep enough: 4\.2 m\. \(2 model calls\)",
    "10_serve_over_http.py": "the server ended with status 0",
}
"""What each prints last, as a regular expression."""
BOT = Path(__file__).with_name("bedrock_bot.py")
"""A program that runs the bot of the examples."""


def test_each_program_is_expected_and_named_in_the_readme():
    programs = {path.name for path in FOLDER.glob("*.py")}
    assert programs == set(LAST_LINES)
    readme = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert [name for name in sorted(programs) if f"({name})" not in readme] == []


@pytest.mark.parametrize("name", LAST_LINES)
def test_a_program_is_short_and_says_what_it_shows(name):
    text = (FOLDER / name).read_text(encoding="utf-8")
    assert text.startswith('"""')
    assert "Needs: pip install" in text
    assert len(text.splitlines()) <= 60


def run_program(name, folder, *arguments, cold=False, typed="", **more):
    own = ("_API_KEY", "_TOKEN", "DATABASE_URL")
    environ = {key: value for key, value in os.environ.items() if not key.endswith(own)}
    command = [sys.executable, "-W", "error", str(FOLDER / name), *arguments]
    environ |= {"PYTHONIOENCODING": "utf-8"} | more
    if not cold:
        return warm.run(command, cwd=folder, env=environ, input=typed)
    return subprocess.run(
        command,
        cwd=folder,
        env=environ,
        capture_output=True,
        encoding="utf-8",
        timeout=120,
        check=False,
    )


@pytest.mark.soak_on("from nothing")
@pytest.mark.parametrize("name", LAST_LINES)
@pytest.mark.parametrize("start", ["forked", "from nothing"])
def test_a_program_runs_and_ends_with_its_line(name, start, tmp_path):
    done = run_program(name, tmp_path, cold=start == "from nothing")
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(LAST_LINES[name], done.stdout.splitlines()[-1])
    assert list(tmp_path.iterdir()) == [], "a program leaves no file where it was started"


@pytest.mark.soak
def test_the_bot_of_document_3_sends_the_newest_messages_and_a_summary(tmp_path):
    done = run_program(BOT, tmp_path, PYTHONPATH=str(FOLDER.parent))
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()[-1]
    assert said == "28 messages were said, the model sees at most 16: True"


@pytest.mark.postgres
@pytest.mark.soak
def test_the_bot_of_document_3_keeps_its_conversations_in_a_database(tmp_path):
    from psycopg.conninfo import conninfo_to_dict

    with places.database("") as made:
        url = "postgresql://{user}@{host}:{port}/{dbname}".format(**conninfo_to_dict(made))
        done = run_program(BOT, tmp_path, PYTHONPATH=str(FOLDER.parent), DATABASE_URL=url)
    assert done.returncode == 0, done.stderr
    assert "Ada: 28 messages in the database" in done.stdout
    assert "0 of " in done.stdout


@pytest.fixture
def model():
    """A simulated provider, and the variables by which a program finds it."""
    with serve_simulated_provider() as server:
        key = {"ANTHROPIC_BASE_URL": server.url, "ANTHROPIC_API_KEY": "any"}
        yield server.simulator, key


def call(name, **arguments):
    return {"calls": [{"name": name, "arguments": arguments}]}


def test_the_starters_are_short_and_named_in_the_readme():
    readme = (FOLDER / "README.md").read_text(encoding="utf-8")
    programs = list(STARTERS.glob("*.py"))
    assert len(programs) == 3
    for path in programs:
        text = path.read_text(encoding="utf-8")
        assert "Needs: pip install" in text
        assert len(text.splitlines()) <= 110
        assert f"(starters/{path.name})" in readme


def test_the_coding_agent_edits_after_a_yes_and_remembers_its_folder(tmp_path, model):
    simulator, key = model
    project = tmp_path / "project"
    project.mkdir()
    (project / "a.py").write_text("x = 1\n")
    simulator.script.set_replies(
        [
            call("read_file", path="a.py"),
            call("edit_file", path="a.py", old="x = 1", new="x = 2"),
            call("run", command="cat a.py"),
            call("read_file", path="/etc/hostname"),
            "Done.",
            "It was 1.",
        ]
    )
    first, second = (
        run_program(
            "starters/coding_agent.py", project, typed=typed, HOME=str(tmp_path / "home"), **key
        )
        for typed in ("Make x 2.\ny\nn\n\n", "What was x?\n\n")
    )
    assert first.returncode == 0, first.stderr
    assert (project / "a.py").read_text() == "x = 2\n"
    assert "Done." in first.stdout
    assert "It was 1." in second.stdout
    last_request = str(simulator.records.requests[-1].body)
    assert "Make x 2." in last_request
    assert "the user said no" in last_request
    assert "is outside of" in last_request


def test_the_batch_answers_each_question_once_whenever_it_is_started(tmp_path, model):
    simulator, key = model
    simulator.script.set_replies([call("read_file", path="questions.txt")], otherwise="Three.")
    (tmp_path / "questions.txt").write_text("How many lines?\nHow many words?\n\n")
    first, second = (
        run_program("starters/batch.py", tmp_path, "questions.txt", "answers", **key)
        for _ in range(2)
    )
    assert first.returncode == 0, first.stderr
    assert "2 answered, 0 failed, $" in first.stdout
    assert sorted(second.stdout.splitlines()) == sorted(first.stdout.splitlines())
    assert len(simulator.records.requests) == 3


def test_a_batch_with_a_failed_question_says_so(tmp_path, model):
    simulator, key = model
    simulator.script.set_replies([{"fault": "auth_token"}])
    (tmp_path / "questions.txt").write_text("How many lines?\n")
    done = run_program("starters/batch.py", tmp_path, "questions.txt", "answers", **key)
    assert done.returncode == 1
    assert "How many lines?: failed: " in done.stderr
    assert "0 answered, 1 failed" in done.stdout


def test_the_web_chat_gives_each_visitor_a_chat_and_answers_a_post_once(
    tmp_path, model, monkeypatch
):
    simulator, key = model
    for name, value in {**key, "CHATS": str(tmp_path / "chats")}.items():
        monkeypatch.setenv(name, value)
    simulator.script.set_replies(["Hello, Ada.", "Hello, Ben."])
    app = runpy.run_path(str(STARTERS / "web_chat.py"))["app"]
    post = {"id": "1", "text": "Hello!"}

    async def visit():
        transport = httpx2.ASGITransport(app=app)
        async with app.router.lifespan_context(app):
            for name in ("Ada", "Ben"):
                async with httpx2.AsyncClient(
                    transport=transport, base_url="https://chat"
                ) as client:
                    assert (await client.post("/messages", json=post)).status_code == 422
                    assert "<form>" in (await client.get("/")).text
                    for _ in range(2):
                        answer = await client.post("/messages", json=post)
                        assert answer.json() == {"text": f"Hello, {name}."}
                    history = (await client.get("/messages")).json()
                    assert [message["text"] for message in history] == [
                        "Hello!",
                        f"Hello, {name}.",
                    ]

    asyncio.run(visit())
    assert len(simulator.records.requests) == 2


def test_the_telegram_bot_keeps_notes(tmp_path, model):
    simulator, key = model
    simulator.script.set_replies([call("remember", note="The key is under the mat."), "Noted."])
    bot = tmp_path / "bot"
    shutil.copytree(STARTERS / "telegram_bot", bot)
    done = warm.trimtab(
        ["chat", "Remember: the key is under the mat."],
        cwd=bot,
        env={**os.environ, **key, "TELEGRAM_TOKEN": f"1:{'x' * 35}", "HOME": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "Noted."
    assert (bot / "notes.txt").read_text() == "The key is under the mat.\n"
