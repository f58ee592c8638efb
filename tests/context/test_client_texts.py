"""What a client puts into the user's messages is instruction: it stays once, and the person's own
words beside it stay."""

import pytest

from tests.context.user_texts import (
    SUMMARY,
    block,
    call,
    filler,
    fits,
    listed,
    outside,
    person,
    reply,
    result,
    talking,
    told,
    work,
)

SIZES = (723, 168, 426, 1_880, 6_302, 86, 65)
"""Characters of what Claude Code says before the person does, in its first message."""
WORDS = "Read notes.txt, and whatever happens never push to the main branch."


def reminder(text):
    return f"<system-reminder>\n{text}\n</system-reminder>"


def client_texts():
    """Seven texts of a client, of which none is part of another."""
    frame = len(reminder(""))
    return [
        reminder(f"C{n} {filler(size, f'client {n}').replace(chr(10), ' ')}"[: size - frame])
        for n, size in enumerate(SIZES)
    ]


FIRST = client_texts()
BESIDE = [
    reminder("The file notes.txt was changed by somebody else; do not tell the user so."),
    reminder("The list of tasks is empty; do not mention it unless it is asked for."),
    reminder("You are in plan mode: read, and do not edit anything until you are told to."),
]
"""What comes beside results, again and again."""
EACH = reminder("Today is a working day. Answer in English and without greetings.")
"""What comes with each message of the person."""


def later_words(number):
    return f"Part {number}: see whether config_{number:02}.toml is still read, and by whom."


@pytest.fixture(scope="module")
def sent():
    """A session of Claude Code: one first message, twenty turns, 200 rounds."""
    context = talking(32_000)
    context.add({"role": "user", "content": [*map(block, FIRST), block(WORDS)]})
    for number in range(20):
        if number:
            said = [block(EACH), block(later_words(number))]
            context.add({"role": "user", "content": said})
        for index in range(10):
            at = number * 10 + index
            beside = [block(BESIDE[at // 5 % len(BESIDE)])] if at % 5 == 0 else []
            work(context, f"{number}-{index}", 300, *beside, thought=60)
        context.add(reply(f"Part {number} is done. {filler(100, number)}"))
    context.add(person("And what is left to do?"))
    return context.request()


@pytest.mark.slow
def test_the_session_is_long_enough_for_summaries_and_fits(sent):
    assert SUMMARY in told(sent)
    assert fits(sent, 32_000)


def test_the_persons_words_stay_beside_all_that_the_client_says(sent):
    text = outside(sent)
    assert WORDS in text
    assert [n for n in range(1, 20) if later_words(n) not in text] == []
    assert "And what is left to do?" in text


@pytest.mark.parametrize("number", range(len(SIZES)))
def test_what_the_client_said_in_its_first_message_stays(sent, number):
    assert outside(sent).count(FIRST[number]) == 1


@pytest.mark.parametrize("text", [*BESIDE, EACH], ids=["changed", "tasks", "plan", "each"])
def test_the_first_of_equal_reminders_stays_and_is_not_repeated_in_the_list(sent, text):
    assert listed(sent).count(text) == 1


def test_the_first_of_equal_reminders_stands_where_it_was_said_first(sent):
    words = listed(sent)
    places = [words.index(text) for text in (WORDS, EACH, later_words(1))]
    assert places == sorted(places)


def test_reminders_that_differ_are_all_kept():
    context = talking(16_000)
    differing = [reminder(f"{n} tasks are open, the next of them is T-{n:03}.") for n in range(30)]
    for n, text in enumerate(differing):
        context.add({"role": "user", "content": [block(text), block(f"Go on with {n}.")]})
        work(context, str(n), 300, thought=100)
        context.add(reply(filler(100, n)))
    context.add(person("What is open?"))
    request = context.request()
    assert SUMMARY in told(request)
    assert [text for text in differing if text not in outside(request)] == []


def test_a_person_who_says_the_same_twice_is_heard_twice_or_referred_to():
    """Only what a client repeats becomes a reference; a person's words stay."""
    context = talking(16_000)
    for n in range(40):
        context.add(person("Go on, but never touch billing/legacy_1.sql."))
        context.request()
        context.add(call(f"toolu_{n}", path=f"src/{n}.py"))
        context.add(result(f"toolu_{n}", filler(300, n)))
        context.request()
        context.add(reply(filler(150, n)))
    context.add(person("What must you not touch?"))
    request = context.request()
    assert SUMMARY in told(request)
    assert "Go on, but never touch billing/legacy_1.sql." in listed(request)
