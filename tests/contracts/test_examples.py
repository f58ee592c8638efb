"""Each program of `examples/` runs, offline, and ends with the line that it promises."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import warm
from tests.stores import places

pytestmark = pytest.mark.process

FOLDER = Path(__file__).parents[2] / "examples"
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


def run_program(name, folder, *, cold=False, **more):
    own = ("_API_KEY", "_TOKEN", "DATABASE_URL")
    environ = {key: value for key, value in os.environ.items() if not key.endswith(own)}
    command = [sys.executable, "-W", "error", str(FOLDER / name)]
    environ |= {"PYTHONIOENCODING": "utf-8"} | more
    if not cold:
        return warm.run(command, cwd=folder, env=environ)
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
