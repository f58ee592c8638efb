"""The types of nested options name exactly what is taken at run time."""

from __future__ import annotations

import inspect
from dataclasses import fields
from typing import get_args

import pytest

from trimtab import Context
from trimtab.dialects import DIALECT_NAMES
from trimtab.engine.policy.config import (
    PerToolLimits,
    PerToolResultConfig,
    PolicyConfig,
    SummaryConfig,
    SummaryLimits,
    ThresholdsPresetConfig,
    ThresholdsPresetLimits,
)
from trimtab.engine.policy.presets import POLICY_NAMES
from trimtab.models import ModelInfoValues
from trimtab.models.catalog import ModelInfo
from trimtab.types import ContextOptions, DialectName, PolicyLimits, PolicyName


@pytest.mark.parametrize(
    ("typed", "parsed", "not_set_by_callers"),
    [
        (PolicyLimits, PolicyConfig, set()),
        (PerToolLimits, PerToolResultConfig, set()),
        (SummaryLimits, SummaryConfig, set()),
        (ThresholdsPresetLimits, ThresholdsPresetConfig, set()),
        (ModelInfoValues, ModelInfo, {"name"}),
    ],
)
def test_a_typed_dict_has_the_keys_that_are_read(typed, parsed, not_set_by_callers):
    read = {field.name for field in fields(parsed)}
    assert set(typed.__annotations__) == read - not_set_by_callers


def test_the_options_of_a_context_can_be_passed_on_but_for_model_hook_and_clock():
    taken = set(inspect.signature(Context).parameters)
    assert set(ContextOptions.__annotations__) == taken - {"model", "on_edit", "clock"}


def test_the_names_are_those_of_the_presets_and_dialects():
    assert get_args(PolicyName) == POLICY_NAMES
    assert get_args(DialectName) == DIALECT_NAMES


def test_a_request_is_a_plain_dict_with_and_without_a_stream():
    context = Context("gpt-4o")
    context.add({"role": "user", "content": "Hello."})
    assert type(context.request()) is dict
    assert type(context.request(stream=True)) is dict
