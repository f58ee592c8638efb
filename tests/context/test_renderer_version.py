"""The version of the renderer is recorded, kept until the prefix breaks, and refused if newer."""

import json

import pytest

from tests.conversations import user
from trimtab import Context
from trimtab.engine.log.event import Settings
from trimtab.errors import NewerLogError

NEWER = (
    r"the settings at event 1 have renderer version 2; this release knows up to 1: upgrade trimtab"
)


@pytest.fixture
def of_version_2(monkeypatch):
    """A release whose renderer has another version."""
    monkeypatch.setattr("trimtab.options.RENDERER_VERSION", 2)
    monkeypatch.setattr("trimtab.engine.window.window.RENDERER_VERSION", 2)


def renderers(context: Context) -> list[int]:
    return [e.body.renderer for e in context.events if isinstance(e.body, Settings)]


def test_the_settings_record_the_version():
    [line] = Context("gpt-4o").dump()
    assert json.loads(line)["renderer"] == 1


def test_a_log_of_a_newer_renderer_is_refused_with_what_to_do():
    [line] = Context("gpt-4o").dump()
    with pytest.raises(NewerLogError, match=NEWER):
        Context.load([line.replace('"renderer":1', '"renderer":2')])


@pytest.mark.usefixtures("of_version_2")
def test_a_session_keeps_its_version_until_its_settings_change():
    [line] = Context("gpt-4o").dump()
    context = Context.load([line.replace('"renderer":2', '"renderer":1')])
    context.add(user("Hello."))
    context.request()
    context.configure(model="gpt-4o")
    assert renderers(context) == [1]
    context.configure(params={"seed": 7})
    assert renderers(context) == [1, 2]
