"""What a newcomer sees who makes a mistake: a text for each, under `expected/`.

TRIMTAB_UPDATE=1 writes them anew; read what has changed before it is kept.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests import warm
from tests.mistakes.channel_mistakes import SERVING
from tests.mistakes.config_mistakes import ASKED_OF_THE_MODEL, FILES
from tests.mistakes.mistake import Mistake, World, run, shown
from tests.mistakes.provider_mistakes import ASKING
from tests.mistakes.store_mistakes import PLACES
from tests.mistakes.tool_mistakes import TOOLS
from tests.stores import places
from trimtab.testing.server import RemoteSimulator

EXPECTED = Path(__file__).parent / "expected"
MISTAKES = {
    f"{number:02}-{one.name}": one
    for number, one in enumerate(
        (*ASKING, *FILES, *TOOLS, *PLACES, *SERVING, *ASKED_OF_THE_MODEL), 1
    )
}
VERBS = (
    "add|allow|ask|begin|check|choose|connect|continue|correct|create|declare|end|export|free|give|"
    "indent|install|keep|lower|make|move|name|pip install|put|quote|remove|rename|run|save|say|see|"
    "set|shorten|start|take|trimtab|try|type|upgrade|use|wait|write"
)
NEXT = re.compile(
    rf"(?:[;:.,?→]|\bor|\band) +`?(?:{VERBS})\b|`trimtab |did you mean |it belongs |it must be |"
    r"it is for |it looks like |\(put |` in agent\.yaml|settings in agent\.yaml",
    re.IGNORECASE,
)
"""A clause that begins with what to do, a command that does it, or the setting to change."""
UNSEEN = ("Traceback", "0123456789abcdef", "hunter22", "Error(", " at 0x")
"""What no newcomer is to see: our insides, and secrets."""


@pytest.fixture(scope="session")
def simulator() -> Iterator[RemoteSimulator]:
    with warm.spawn_simulated_provider(
        api_keys=[one.secret for one in MISTAKES.values()]
    ) as remote:
        yield remote


@pytest.fixture(scope="session")
def dead() -> Iterator[str]:
    """An address that is taken, and at which nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


def needs(mistake: Mistake) -> tuple[pytest.MarkDecorator, ...]:
    return (pytest.mark.postgres,) if mistake.database else ()


@pytest.mark.process
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=needs(one)) for name, one in MISTAKES.items()]
)
@pytest.mark.parametrize(
    "cold", [False, pytest.param(True, marks=pytest.mark.soak)], ids=["forked", "from nothing"]
)
def test_a_mistake_is_met_with_what_to_do_next(name, cold, tmp_path, simulator, request):
    mistake = MISTAKES[name]
    dead = request.getfixturevalue("dead")
    folder = tmp_path / "my-agent"
    folder.mkdir()
    simulator.set_replies(mistake.says, key=mistake.secret)
    with ExitStack() as held:
        database = None
        if mistake.database:
            request.getfixturevalue("server")
            database = held.enter_context(places.database(""))
        world = World(folder=folder, url=simulator.url, dead=dead, database=database, cold=cold)
        snapshot = run(mistake, world)
    place = EXPECTED / f"{name}.txt"
    if os.environ.get("TRIMTAB_UPDATE"):
        place.write_text(snapshot, encoding="utf-8")
    assert snapshot == place.read_text(encoding="utf-8")


@pytest.fixture(scope="session")
def server() -> None:
    psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed")
    try:
        psycopg.connect(places.SERVER, connect_timeout=3).close()
    except psycopg.OperationalError as error:
        pytest.skip(f"no PostgreSQL at {places.SERVER!r}: {error}")


@pytest.mark.parametrize("name", MISTAKES)
def test_what_is_shown_names_the_cause_and_says_what_to_do(name):
    mistake = MISTAKES[name]
    text = shown((EXPECTED / f"{name}.txt").read_text(encoding="utf-8"))
    assert [named for named in mistake.names if named not in text] == []
    assert text.splitlines()[-1] == f"exit status {mistake.status}"
    said = "\n".join(line for line in text.splitlines() if not line.startswith("To go on: "))
    assert NEXT.search(said), said
    assert [word for word in UNSEEN if word in text] == []


@pytest.mark.parametrize(
    "text",
    [
        "trimtab: notes: File exists",
        "The provider cannot be reached: Connection error.",
        "trimtab: tools.files: it did not start as an MCP server: Connection closed.",
        "trimtab: KeyError: 'model'",
    ],
)
def test_the_search_for_what_to_do_misses_where_nothing_is_said(text):
    assert NEXT.search(text) is None


def test_every_text_belongs_to_a_mistake():
    assert sorted(place.stem for place in EXPECTED.iterdir()) == sorted(MISTAKES)
    assert len(MISTAKES) >= 30
