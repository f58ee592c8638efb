"""A session of a newer renderer is refused before anything is written."""

import pytest

from tests.conversations import user
from trimtab.engine.window.window import Window
from trimtab.errors import NewerLogError
from trimtab.session import Session
from trimtab.testing import MemoryStore

NEWER = (
    r"the settings at event 1 have renderer version 2; this release knows up to 1: upgrade trimtab"
)


@pytest.mark.anyio
async def test_a_newer_renderer_is_refused_before_anything_is_written(monkeypatch):
    store = MemoryStore()
    with monkeypatch.context() as newer:
        newer.setattr("trimtab.options.RENDERER_VERSION", 2)
        newer.setattr("trimtab.engine.window.window.RENDERER_VERSION", 2)
        session = await Session.create(store, "s", model="gpt-4o")
        await session.add(user("Hello."))
        await session.recorder.checkpoint()
        snapshot = await store.snapshot("s")
        assert snapshot is not None
        assert session.window.settings.renderer == 2
    position = await store.position("s")
    with pytest.raises(NewerLogError, match=NEWER):
        await Session.open(store, "s")
    with pytest.raises(NewerLogError, match=NEWER):
        Window(None, snapshot, [event async for event in store.events("s")])
    assert await store.position("s") == position
