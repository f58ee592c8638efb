"""The bot of `examples/bedrock_bot/` at a simulated Telegram and a simulated Bedrock.

With DATABASE_URL it uses that database, else files.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.simulators.clouds.local_server import serve_simulated_clouds
from tests.simulators.telegram import serve_simulated_telegram

BOT = Path(__file__).parents[2] / "examples/bedrock_bot"
TRIMTAB = [sys.executable, "-m", "trimtab"]
CHAT, QUESTIONS = 7, 14
# The simulated model says the same to whatever it is asked, also when it is to write a summary.
SAYS = "Goal and latest request:\n- a boat\nFacts:\n- boat 3 is free\nDecisions:\n- Ada takes it"


def run_sql(database: str) -> None:
    """Create the view of our own conversations, and show what the bot keeps of this one."""
    import psycopg

    with psycopg.connect(database) as connection:
        connection.execute((BOT / "conversations.sql").read_bytes())
        connection.execute("INSERT INTO agent_conversations VALUES (DEFAULT, %s, 'Ada')", (CHAT,))
        rows = connection.execute("SELECT owner, message_count FROM agent_conversation_context")
        print(*(f"{owner}: {count} messages in the database" for owner, count in rows))


with (
    tempfile.TemporaryDirectory() as folder,
    serve_simulated_clouds() as bedrock,
    serve_simulated_telegram() as telegram,
):
    bedrock.simulator.script.set_replies([], otherwise=SAYS)
    environ = {"AWS_ACCESS_KEY_ID": "AKIAEXAMPLE", "AWS_SECRET_ACCESS_KEY": "simulated-secret"}
    environ |= {"AWS_ENDPOINT_URL_BEDROCK_RUNTIME": bedrock.url, "TELEGRAM_API": telegram.url}
    environ |= {"TELEGRAM_TOKEN": telegram.simulator.token, "PORT": "0"}
    database = os.environ.get("DATABASE_URL")
    environ |= {"DATABASE_URL": database or f"{folder}/sessions"}
    if database:
        subprocess.run([*TRIMTAB, "migrate", "--database", database], check=True)
    command = [*TRIMTAB, "serve", str(BOT / "agent.yaml")]
    environ, quiet = os.environ | environ, subprocess.DEVNULL
    with subprocess.Popen(command, env=environ, stdout=quiet, stderr=quiet) as bot:
        for number in range(1, QUESTIONS + 1):
            telegram.simulator.post_user_message(CHAT, f"Is a boat free on day {number}? " * 9)
            while len(telegram.simulator.list_bot_texts(CHAT)) < number and bot.poll() is None:
                time.sleep(0.02)
        bot.terminate()
    if database:
        run_sql(database)
sent = [len(record.body["messages"]) for record in bedrock.simulator.records.requests]
print(f"{bedrock.simulator.stats()['refused']} of {len(sent)} requests refused")
print(f"{2 * QUESTIONS} messages were said, the model sees at most 16: {max(sent) <= 16}")
