"""The lives in which laws are tried.

A quick run leads each life once and asks every law that was collected. A longer run leads lives for
each law alone, and looks for the smallest that breaks it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis.strategies import SearchStrategy

from tests.conftest import CHOSEN
from tests.strategies.life import Hooks, live
from tests.strategies.logs import Story

Law = Callable[[Story], Hooks]
"""How a law looks on at one life."""

_collected: defaultdict[SearchStrategy[Story], dict[str, Law]] = defaultdict(dict[str, Law])
"""By the lives that they are for: the laws whose tests were collected, by name."""
_lives_alone: dict[str, SearchStrategy[Story]] = {}
"""By law: the lives in which it is tried if no other law is asked."""


def law(
    lives: SearchStrategy[Story], *, alone: SearchStrategy[Story] | None = None
) -> Callable[[Law], Callable[..., None]]:
    """Return what makes a law a test that it holds in these lives, or in others if it is alone."""

    def make_test(hooks_of: Law) -> Callable[..., None]:
        name = hooks_of.__name__
        _collected[lives][name] = hooks_of
        _lives_alone[name] = lives if alone is None else alone

        def holds() -> None:
            if (breach := _find_breaches(lives).get(name)) is not None:
                raise breach

        def holds_alone(story: Story) -> None:
            story = replace(story, ahead=True)
            live(story, hooks_of(story))

        test = holds if CHOSEN == "quick" else holds_alone
        test.__name__ = test.__qualname__ = name
        test.__module__, test.__doc__ = hooks_of.__module__, hooks_of.__doc__
        return test if CHOSEN == "quick" else _laws(given(_lives_alone[name])(test))

    return make_test


def _laws(test: Callable[..., None]) -> Callable[..., None]:
    return settings(settings.get_profile("laws"))(test)


@cache
def _find_breaches(lives: SearchStrategy[Story]) -> Mapping[str, BaseException]:
    """By law: how it was broken for the first time."""
    laws = _collected[lives]
    breaches: dict[str, BaseException] = {}

    @given(_lives_alone[next(iter(laws))] if len(laws) == 1 else lives)
    def lead(story: Story) -> None:
        if len(laws) == 1:
            story = replace(story, ahead=True)
        hooks = {name: hooks_of(story) for name, hooks_of in laws.items() if name not in breaches}
        try:
            live(story, _all_of(hooks, breaches, story))
        except Exception as error:  # noqa: BLE001 - no law holds in a life that cannot be led
            for name in laws:
                breaches.setdefault(name, error)

    _laws(lead)()
    return breaches


def _all_of(hooks: dict[str, Hooks], breaches: dict[str, BaseException], story: Story) -> Hooks:
    """Return hooks that ask each of these laws until it is broken."""

    def ask_each(hook: str) -> Callable[..., None]:
        # Law 8 watches how edits are decided, law 5 that no more are: the later one goes first.
        names = reversed(hooks) if hook == "asking" else hooks
        named_hooks = [
            (name, each) for name in names if (each := getattr(hooks[name], hook)) is not None
        ]

        def ask(*arguments: Any) -> None:
            for name, each in named_hooks:
                if name in breaches:
                    continue
                try:
                    each(*arguments)
                except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 - any failure is its own
                    error.add_note(f"in this life: {story!r}")
                    breaches[name] = error

        return ask

    return Hooks(**{field.name: ask_each(field.name) for field in fields(Hooks)})
