"""Errors as sentences that say what to do."""

from typing import get_args

import pytest

from trimtab.errors import (
    CannotFit,
    FailureKind,
    ProviderError,
    ProviderFailureDetails,
    SessionLockedByOtherProcess,
    StoreUnavailable,
)
from trimtab_serve.cli.chat.turn_errors import describe_turn_error


@pytest.mark.parametrize("kind", get_args(FailureKind))
def test_every_failure_of_a_provider_has_a_sentence_and_a_next_step(kind):
    trouble = describe_turn_error(
        ProviderError(ProviderFailureDetails(kind=kind, message="their words", status=500))
    )
    assert trouble is not None
    assert trouble.kind == kind
    assert trouble.text.endswith("(HTTP 500): their words.")
    assert trouble.prompt_hint.endswith(".")
    assert "Enter" not in trouble.unattended_hint
    assert "/" not in trouble.unattended_hint


def test_a_wait_that_the_provider_asks_for_is_named():
    failure = ProviderFailureDetails(kind="rate_limit", message="slow down", retry_after=17.0)
    trouble = describe_turn_error(ProviderError(failure))
    assert trouble is not None
    assert trouble.prompt_hint == "It asks to wait 17 s; then press Enter to try again."


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (CannotFit(100, 200, {"system": 150}), "too_large"),
        (SessionLockedByOtherProcess("another process has it"), "store"),
        (StoreUnavailable("the disk is gone"), "store"),
    ],
)
def test_what_is_no_fault_of_ours_is_told(error, kind):
    trouble = describe_turn_error(error)
    assert trouble is not None
    assert trouble.kind == kind
    assert str(error) in trouble.text


def test_a_mistake_of_ours_is_not_dressed_up():
    assert describe_turn_error(KeyError("oops")) is None
