"""Files in which a newcomer gets wrong how the agent is reached, each with all that is said."""

from tests.serve.agent.config_files import LEAST
from tests.snapshots import snapshot

BOT = LEAST + "telegram:\n  token: ${BOT}\n"
MORNING = LEAST + "schedules:\n  morning:\n    message: What is new?\n"

WRONG_CHANNELS = {
    "who is answered by a name without its sign": (
        BOT + "  allow: [alice, Bob Smith]\n",
        snapshot(
            "agent.yaml has 2 problems:\n  line 5, column 11: telegram.allow[1] is `alice`, "
            "which is not a Telegram user or chat; write `@alice`, or the number of a user or "
            'a chat, which you get from @userinfobot; `"*"` means everybody\n  line 5, column '
            "18: telegram.allow[2] is `Bob Smith`, which is not a Telegram user or chat; write "
            'the number of a user or a chat, which you get from @userinfobot; `"*"` means '
            "everybody"
        ),
    ),
    "who is answered as one text": (
        BOT + "  allow: alice\n",
        snapshot(
            'agent.yaml, line 5, column 10: telegram.allow is "alice"; it must be a list of '
            'values; write ["alice"]'
        ),
    ),
    "a rule for nobody": (
        BOT + "  rules:\n    - who: Bob Smith\n      groups: all\n",
        snapshot(
            "agent.yaml, line 6, column 7: telegram.rules[1].who is `Bob Smith`, which is not "
            "a Telegram user or chat; write the number of a user or a chat, which you get from "
            '@userinfobot; `"*"` means everybody'
        ),
    ),
    "when groups are answered": (
        BOT + "  groups: always\n",
        snapshot(
            'agent.yaml, line 5, column 11: telegram.groups is "always"; choose one of '
            "mention, all, off"
        ),
    ),
    "a webhook without encryption": (
        BOT + "  webhook: http://bots.example.com/t\n",
        snapshot(
            "agent.yaml, line 5, column 3: telegram.webhook must begin with https://, because "
            "Telegram calls no other addresses; without `webhook`, the bot polls Telegram"
        ),
    ),
    "a webhook without a secret": (
        BOT + "  webhook: https://bots.example.com/t\n",
        snapshot(
            "agent.yaml, line 5, column 3: telegram.webhook needs `secret` next to it, or anybody "
            "could send messages as Telegram; create one with `openssl rand -hex 32` and write "
            "`secret: ${TELEGRAM_SECRET}`"
        ),
    ),
    "a webhook with a secret that somebody guesses": (
        BOT + "  webhook: https://bots.example.com/t\n  secret: x\n",
        snapshot(
            "agent.yaml, line 6, column 3: telegram.secret must have 16 to 256 letters, digits, _ "
            "or -, so that nobody guesses it; create one with `openssl rand -hex 32` and write "
            "`secret: ${TELEGRAM_SECRET}`"
        ),
    ),
    "a token that is none": (
        LEAST + "telegram:\n  token: YOUR_TOKEN\n",
        snapshot(
            "agent.yaml, line 4, column 3: telegram.token is not a valid bot token, such as "
            "123456:ABC-def; get one from @BotFather and write `${TELEGRAM_TOKEN}` here"
        ),
    ),
    "a token under another name": (
        LEAST + "telegram:\n  tokn: ${BOT}\n",
        snapshot(
            "agent.yaml has 2 problems:\n  line 3, column 1: telegram.token is missing; write "
            "a text: the bot's token from BotFather, as a reference: `${TELEGRAM_TOKEN}`\n  "
            "line 4, column 3: telegram.tokn is not a known setting here; did you mean token?"
        ),
    ),
    "a name on discord": (
        LEAST + "discord:\n  token: ${BOT}\n  allow: ['@bob']\n",
        snapshot(
            "agent.yaml, line 5, column 11: discord.allow[1] is `@bob`, but Discord ids are "
            "numbers; switch on Developer Mode in Discord's settings, then right-click and "
            'Copy ID; `"*"` means everybody'
        ),
    ),
    "a cron expression of four fields": (
        MORNING + "    cron: 0 8 * *\n",
        snapshot(
            "agent.yaml, line 6, column 5: schedules.morning.cron is not a valid cron "
            "expression (it needs five fields and has 4); write minute, hour, day, month, "
            "weekday, as in `0 8 * * mon-fri`"
        ),
    ),
    "a cron expression at 25 o'clock": (
        MORNING + "    cron: 0 25 * * *\n",
        snapshot(
            "agent.yaml, line 6, column 5: schedules.morning.cron is not a valid cron "
            "expression (Bad hour); write minute, hour, day, month, weekday, as in `0 8 * * "
            "mon-fri`"
        ),
    ),
    "a cron expression for the 31st of February": (
        MORNING + "    cron: 0 0 31 2 *\n",
        snapshot(
            "agent.yaml, line 6, column 5: schedules.morning.cron is not a valid cron "
            "expression (Bad day-of-month); write minute, hour, day, month, weekday, as in `0 "
            "8 * * mon-fri`"
        ),
    ),
    "a cron expression by a name that is none": (
        MORNING + "    cron: '@noon'\n",
        snapshot(
            "agent.yaml, line 6, column 5: schedules.morning.cron is not a valid cron "
            "expression (use @hourly, @daily, @midnight, @weekly, @monthly, @yearly, "
            "@annually, or five fields); write minute, hour, day, month, weekday, as in `0 8 * "
            "* mon-fri`"
        ),
    ),
    "a cron expression from the environment": (
        MORNING + "    cron: ${ANTHROPIC_API_KEY}\n",
        snapshot(
            "agent.yaml, line 6, column 5: schedules.morning.cron is not a valid cron "
            "expression (it needs five fields and has 1); write minute, hour, day, month, "
            "weekday, as in `0 8 * * mon-fri`"
        ),
    ),
    "a city for a time zone": (
        MORNING + "    cron: 0 8 * * *\n    timezone: Zurich\n",
        snapshot(
            "agent.yaml, line 7, column 5: schedules.morning.timezone is not a time zone; did "
            "you mean Europe/Zurich?"
        ),
    ),
    "a time zone that is none": (
        MORNING + "    cron: 0 8 * * *\n    timezone: CEST\n",
        snapshot(
            "agent.yaml, line 7, column 5: schedules.morning.timezone is not a time zone; "
            "use a name such as Europe/Zurich or UTC"
        ),
    ),
    "a schedule with two times": (
        MORNING + "    cron: 0 8 * * *\n    at: 2027-01-31 08:00\n",
        snapshot(
            "agent.yaml, line 4, column 3: schedules.morning has both `cron` and `at`; keep "
            "one of them"
        ),
    ),
    "a schedule without a time": (
        MORNING,
        snapshot(
            "agent.yaml, line 4, column 3: schedules.morning has no time; set `cron` to run "
            "repeatedly, or `at` to run once"
        ),
    ),
    "a date in words": (
        MORNING + "    at: tomorrow\n",
        snapshot(
            "agent.yaml, line 6, column 5: schedules.morning.at is not a date and time; write "
            "it as 2027-01-31 08:00"
        ),
    ),
    "a schedule that says nothing": (
        LEAST + "schedules:\n  morning:\n    message: ' '\n    cron: 0 8 * * *\n",
        snapshot(
            "agent.yaml, line 5, column 5: schedules.morning.message is empty; write the "
            "message that the agent gets at the scheduled time"
        ),
    ),
    "a result for nobody": (
        MORNING + "    cron: 0 8 * * *\n    to: bob\n",
        snapshot(
            "agent.yaml, line 7, column 5: schedules.morning.to is not a valid chat; write "
            "telegram:123456, telegram:-1001234:7 for a topic of a group, or discord:987654 "
            "for a channel"
        ),
    ),
    "a result for a chat without a bot": (
        MORNING + "    cron: 0 8 * * *\n    to: discord:1\n",
        snapshot(
            "agent.yaml, line 7, column 5: schedules.morning.to names a chat on Discord, but "
            "the agent has no bot there; add the block `discord` with its token"
        ),
    ),
    "schedules as a list": (
        LEAST + "schedules:\n  - cron: 0 8 * * *\n    message: Hello.\n",
        snapshot(
            "agent.yaml, line 4, column 3: schedules is a list; it must be names with a "
            "block of settings each"
        ),
    ),
    "what becomes of missed runs": (
        MORNING + "    cron: 0 8 * * *\n    catch_up: never\n",
        snapshot(
            'agent.yaml, line 7, column 15: schedules.morning.catch_up is "never"; choose one '
            "of skip, once, all"
        ),
    ),
    "what becomes of messages during a turn": (
        LEAST + "session:\n  on_message: steering\n",
        snapshot(
            'agent.yaml, line 4, column 15: session.on_message is "steering"; did you mean '
            "steer? Choose one of steer, queue"
        ),
    ),
    "a pause that is too long": (
        LEAST + "session:\n  debounce: 90\n",
        snapshot(
            "agent.yaml, line 4, column 13: session.debounce is 90; it must be a number, 0 to 60"
        ),
    ),
    "a port that there is not": (
        LEAST + "serve:\n  port: 80800\n",
        snapshot(
            "agent.yaml, line 4, column 9: serve.port is 80800; it must be a whole number, 0 "
            "to 65,535"
        ),
    ),
}
