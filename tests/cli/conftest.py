"""One long conversation, kept in files, for all that looks into it."""

import asyncio
from dataclasses import replace

import pytest

from tests.cli.long_conversation import answer, converse
from trimtab.session import Session
from trimtab.stores.files import FileStore


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    root = tmp_path_factory.mktemp("cli") / "sessions"

    async def make():
        store = FileStore(root, fsync=False)
        conversation = await converse(store, "alpha")
        await (await Session.open(store, "alpha")).fork("beta", at=30)
        await store.close()
        return conversation

    return replace(asyncio.run(make()), root=str(root))


@pytest.fixture
def own(kept, tmp_path):
    """A store of one's own that may be changed."""
    answer("export", "alpha", "-o", tmp_path / "alpha.jsonl", store=kept.root)
    answer("import", tmp_path / "alpha.jsonl", store=tmp_path / "own")
    return tmp_path / "own"
