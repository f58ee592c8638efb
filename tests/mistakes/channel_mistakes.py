"""Mistakes in how an agent is reached: bots, set times, who is answered."""

from __future__ import annotations

from tests.mistakes.mistake import AGENT, Mistake

TOKEN = "123456:hunter22hunter22hunter22hunter22hu"  # noqa: S105 - it opens nothing


def wrong(name: str, what: str, text: str, *names: str) -> Mistake:
    return Mistake(
        name=name,
        what=what,
        types="trimtab serve",
        files={"agent.yaml": text},
        status=2,
        names=names,
    )


def scheduled(lines: str) -> str:
    return AGENT + f"schedules:\n  morning:\n    message: What is new?\n{lines}"


SERVING = (
    wrong(
        "cron-without-a-weekday",
        "A cron expression has four fields.",
        scheduled('    cron: "0 8 * *"\n'),
        "line 9",
        "schedules.morning.cron",
        "five fields and has 4",
    ),
    wrong(
        "cron-at-25-o-clock",
        "A cron expression names an hour that there is not.",
        scheduled('    cron: "0 25 * * *"\n'),
        "line 9",
        "hour",
    ),
    wrong(
        "unknown-time-zone",
        "A city stands where a time zone is meant.",
        scheduled('    cron: "0 8 * * *"\n    timezone: Zurich\n'),
        "line 10",
        "Europe/Zurich",
    ),
    wrong(
        "schedule-without-a-time",
        "A schedule does not say when it is due.",
        scheduled(""),
        "line 7",
        "`cron`",
        "`at`",
    ),
    wrong(
        "result-to-a-chat-without-a-bot",
        "A schedule sends its result to Telegram, where the agent has no bot.",
        scheduled('    cron: "0 8 * * *"\n    to: telegram:123456\n'),
        "line 10",
        "`telegram`",
    ),
    wrong(
        "bad-allow-list",
        "Names of people stand where Telegram wants numbers or @names.",
        AGENT + "telegram:\n  token: 123456:abc\n  allow: [alice, Bob Smith]\n",
        "line 8",
        "`@alice`",
        "Bob Smith",
    ),
    wrong(
        "webhook-without-a-secret",
        "A webhook has no secret, so anybody could speak for Telegram.",
        AGENT + "telegram:\n  token: 123456:abc\n  webhook: https://bots.example.com/telegram\n",
        "line 8",
        "secret",
    ),
    wrong(
        "placeholder-for-a-token",
        "The placeholder of a tutorial stands where the token is meant.",
        AGENT + "telegram:\n  token: YOUR_TOKEN\n",
        "line 7",
        "BotFather",
    ),
    wrong(
        "unknown-on-message",
        "What becomes of messages during a turn is misspelt.",
        AGENT + "session:\n  on_message: steering\n",
        "line 7",
        "steer",
        "queue",
    ),
    Mistake(
        name="token-in-the-file",
        what="The bot's token stands in the file itself.",
        types="trimtab doctor --offline",
        files={"agent.yaml": AGENT + f"telegram:\n  token: {TOKEN}\n  allow: [123456]\n"},
        status=0,
        names=["line 7", "telegram.token", "${NAME}"],
    ),
)
