"""The schema for editors takes what reading takes, and refuses what reading refuses."""

from pathlib import Path

import jsonschema
import pytest
from hypothesis import given

from tests.serve.agent.config_files import ENVIRON, GOOD, folder
from tests.serve.agent.config_mistakes import WRONG as WRONG_FILES
from tests.serve.agent.test_config_loading import TEXTS
from tests.serve.agent.tool_mistakes import WRONG_TOOLS
from trimtab_serve.agent.config.loader import load_agent_spec
from trimtab_serve.agent.config.problems import AgentFileError
from trimtab_serve.agent.config.schema import build_editor_schema
from trimtab_serve.agent.config.yaml_document import parse_yaml_collecting_problems

__all__ = ["folder"]

WRONG = {**WRONG_FILES, **WRONG_TOOLS}
CHECK = jsonschema.Draft202012Validator(build_editor_schema())
READING_ALONE = {
    "a cost ceiling for a model without a price",
    "a limit in two units",
    "a pattern that is none",
    "more kept than the window holds",
    "a summary before the trim",
    "a variable that is not set",
    "a misspelt variable",
    "an empty variable",
    "half a reference",
    "a variable that holds no number",
    "a prompt that is not there",
    "parameters that are settings",
    "history at the provider",
    "a proxy by its name",
}
"""What no schema can tell."""


def accepted(text: str) -> bool:
    return CHECK.is_valid(parse_yaml_collecting_problems(text.removeprefix("\ufeff")).data)


def test_it_is_a_schema_itself():
    jsonschema.Draft202012Validator.check_schema(build_editor_schema())


@pytest.mark.parametrize("name", GOOD)
def test_it_takes_a_good_file(name):
    assert accepted(GOOD[name])


@pytest.mark.parametrize("name", WRONG)
def test_it_refuses_a_wrong_file_unless_only_reading_can_tell(name):
    found = parse_yaml_collecting_problems(WRONG[name][0])
    if not found.problems:
        assert CHECK.is_valid(found.data) is (name in READING_ALONE)


@given(text=TEXTS)
def test_it_takes_all_that_reading_takes(text, tmp_path_factory):
    path = tmp_path_factory.getbasetemp() / "agent.yaml"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    try:
        load_agent_spec(path, {"X": "3"})
    except AgentFileError:
        return
    assert accepted(text)


def test_a_reference_may_stand_for_a_number_a_choice_or_a_truth(folder):
    text = GOOD["numbers and choices from the environment"]
    Path("agent.yaml").write_text(text, encoding="utf-8")
    assert accepted(text)
    assert load_agent_spec(Path("agent.yaml"), ENVIRON).session.max_tool_iterations == 12


def test_every_setting_says_what_it_is_for():
    made = build_editor_schema()
    bare = [
        f"{block}.{name}"
        for block, shape in [("the file", made), *made["$defs"].items()]
        for name, setting in shape["properties"].items()
        if not setting.get("description", "").strip()
    ]
    assert bare == []
