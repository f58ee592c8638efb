"""What people read of why the model sees something as it does."""

from __future__ import annotations

from trimtab.engine.recall.visibility import STATE_DESCRIPTIONS, VisibilityReason


def test_a_reason_reads_as_a_sentence():
    hidden = VisibilityReason(
        handle="m12.0",
        state="masked",
        since=1_800_000_000.0,
        event=40,
        reason="tool results older than 3 turns",
        replacement="[hidden; recall m12.0]",
        text="a long text",
    )
    assert str(hidden) == (
        "m12.0 is not in the context: a placeholder replaces it; tool results older than 3 turns"
    )


def test_what_is_shown_has_no_reason():
    shown = VisibilityReason(handle="m2", state="shown", text="hello")
    assert str(shown) == "m2 is in the context, in full"


def test_the_parts_of_a_message_are_named():
    partial = VisibilityReason(
        handle="m3", state="partial", parts={"m3.0": "shown", "m3.1": "masked"}
    )
    assert str(partial).endswith("erased (m3.0: shown, m3.1: masked)")


def test_every_state_has_a_sentence():
    for state in STATE_DESCRIPTIONS:
        assert str(VisibilityReason(handle="m2", state=state)).startswith("m2 is ")
