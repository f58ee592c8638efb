"""Options: they are recorded as settings, if these differ from those of the log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from trimtab.options import (
    Options,
    build_settings_event,
    has_option_values,
    merge_options,
    split_system_prompt,
)
from trimtab.verbs.state import State, Verb
from trimtab.verbs.warnings import VerbWarning, describe_left_out_params, describe_model_doubt

_SECONDS_PER_DAY = 86_400


def configure(state: State, changes: Mapping[str, Any]) -> Verb[None]:
    """Change options from now on. Record nothing if they have these values already."""
    at = state.clock()
    settings, options = state.memory.given_options
    is_known = (
        settings is state.window.settings and state.memory.recorded_day[1] == at // _SECONDS_PER_DAY
    )
    if not is_known or not has_option_values(options, changes):
        counters = state.window.counters_by_name
        yield from record_options(state, merge_options(state.options, changes, counters), at=at)


def record_options(state: State, options: Options, *, at: float | None = None) -> Verb[None]:
    """Record all options, if the log has others. The prices are those of the day."""
    window = state.window
    memory = state.memory
    at = state.clock() if at is None else at
    day = at // _SECONDS_PER_DAY
    recorded_settings, recorded_day = memory.recorded_day
    if recorded_settings is window.settings and recorded_day == day and options == memory.options:
        return
    policy = options.build_policy()
    counter = options.build_counter()
    window.register_counter(counter)
    settings = build_settings_event(options, counter, at=at)
    current = window.settings
    if replace(settings, renderer=current.renderer) == current:
        settings = current  # a newer renderer alone is no reason to change the cached prefix
    memory.given_options = (settings, options)
    # From now on the options have parsed messages: a later change of the dialect would read the
    # blocks of the system prompt differently.
    system, listed_system = split_system_prompt(settings)
    options = replace(options, system=system, listed_system=listed_system)
    memory.recorded_options = (settings, options)
    if settings is current:
        memory.options = options
        memory.policy = policy
    else:
        if left_out := describe_left_out_params(current, settings):
            state.warnings.append(VerbWarning(left_out))
        if doubt := describe_model_doubt(options):
            state.warnings.append(VerbWarning(doubt, once=True))
        yield [settings]
    memory.recorded_day = (window.settings, day)
