"""Errors as sentences that say what to do."""

from typing import get_args

import pytest

from trimtab.cli.chat.trouble import trouble_of
from trimtab.core.guard import CannotFit
from trimtab.providers.provider import Failure, Kind, ProviderError
from trimtab.stores.errors import SessionBusy, StoreUnavailable


@pytest.mark.parametrize("kind", get_args(Kind))
def test_every_failure_of_a_provider_has_a_sentence_and_a_next_step(kind):
    trouble = trouble_of(ProviderError(Failure(kind=kind, message="their words", status=500)))
    assert trouble is not None
    assert trouble.kind == kind
    assert trouble.text.endswith("(HTTP 500): their words.")
    assert trouble.next.endswith(".")
    assert "Enter" not in trouble.later
    assert "/" not in trouble.later


def test_a_wait_that_the_provider_asks_for_is_named():
    failure = Failure(kind="rate_limit", message="slow down", retry_after=17.0)
    trouble = trouble_of(ProviderError(failure))
    assert trouble is not None
    assert trouble.next == "It asks to wait 17 s; then Enter tries again."


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (CannotFit(100, 200, {"system": 150}), "too_large"),
        (SessionBusy("another process has it"), "store"),
        (StoreUnavailable("the disk is gone"), "store"),
    ],
)
def test_what_is_no_fault_of_ours_is_told(error, kind):
    trouble = trouble_of(error)
    assert trouble is not None
    assert trouble.kind == kind
    assert str(error) in trouble.text


def test_a_mistake_of_ours_is_not_dressed_up():
    assert trouble_of(KeyError("oops")) is None
