from typing import Any

import pytest

from trimtab.integrations.claude_code.outputs import TOOL_MATCHER
from trimtab.replay import advice
from trimtab.replay.advice import AS_IT_IS, TRIMTAB, choose_settings, list_settings
from trimtab.replay.savings import Saving


def saving(saved: float, hidden: int) -> Saving:
    return Saving(cost=1 - saved, baseline=1, references=1_000, hidden=hidden)


def choose(**others: Saving) -> tuple[str | None, str | None]:
    known = {AS_IT_IS.name: saving(0, 0), TRIMTAB.name: saving(0.2, 10)}
    chosen = choose_settings({**known, **others})
    return chosen.best, chosen.next


def test_the_cheapest_that_hides_no_more_than_the_default_is_chosen():
    assert choose(a=saving(0.05, 0), b=saving(0.1, 10), c=saving(0.12, 11))[0] == "b"


def test_the_next_step_gains_most_for_what_it_hides_and_is_clearly_cheaper():
    steps: dict[str, Any] = {"slightly": saving(0.11, 11), "much": saving(0.4, 900)}
    assert choose(best=saving(0.1, 5), step=saving(0.2, 30), **steps) == ("best", "step")
    assert choose(best=saving(0.1, 5), slightly=saving(0.11, 11)) == ("best", None)


def test_a_saving_within_the_error_of_a_replay_is_left_alone():
    assert choose(little=saving(advice.MIN_SAVING - 0.01, 0)) == (None, None)


@pytest.mark.parametrize("client", ["Claude Code", "Codex", "opencode", "pi", "messages"])
def test_each_setting_has_a_name_of_its_own_and_a_line_to_type(client):
    settings = list_settings(client)
    assert len({setting.name for setting in settings}) == len(settings)
    assert all(setting.lines for setting in settings)
    assert all(setting.build_setup("claude-opus-4-6").name for setting in settings)


def test_both_settings_of_a_client_are_also_tried_together():
    both = [one for one in list_settings("Claude Code") if len(one.lines) == 2]
    assert both[0].lines == ("/autocompact 100k", "trimtab hook claude --max-tokens 1000")
    assert both[0].client.compact_at == 67_000
    assert both[0].client.max_result_tokens == 1_000


def test_a_model_without_a_known_dialect_is_replayed_in_chat_completions():
    options = TRIMTAB.build_setup("somebody/unheard-of").options
    assert options == {"policy": "auto", "goal": "balanced", "dialect": "openai_chat"}


def test_the_hook_is_replayed_for_the_tools_that_it_cuts():
    assert advice.CLAUDE_HOOK_TOOLS == TOOL_MATCHER
